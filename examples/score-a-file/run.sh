set -eu
evalq score polite.py outputs.jsonl
