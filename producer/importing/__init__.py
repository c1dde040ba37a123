"""What other tools have recorded, as cases, targets and recorded outputs of evalq."""
