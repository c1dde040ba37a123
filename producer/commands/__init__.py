"""The commands of evalq, a module for each group of them; imported when one of them is called."""
