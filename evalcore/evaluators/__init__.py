"""The evaluators that come with evalq, one folder each."""
