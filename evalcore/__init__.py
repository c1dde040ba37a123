"""evalq's evaluation library: pure, without queues, servers, clocks or sockets."""
