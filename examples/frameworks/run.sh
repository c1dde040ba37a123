set -eu
evalq checks cases.yaml --target plain_loop --targets targets.yaml
