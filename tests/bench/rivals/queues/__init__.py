"""The same work by other task queues: rows of the plan agent, some a message, two worker processes, all results back.

Each module is a rival: what it is, and `main`, its client. All of them score with evalq's own kernel, and print the
seconds from the first message to the last result, and a digest of all lines.
"""
