set -eu
evalq checks cases.yaml --outputs outputs.jsonl --judge grader --targets targets.yaml
