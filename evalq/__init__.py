"""evalq: a distributed evaluator of agents. This name is all that is installed; its public API stands here."""
