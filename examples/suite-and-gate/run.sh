set -eu
evalq checks cases.yaml --target agent --targets targets.yaml --repeat 80 --out first --format none
evalq baseline set main first
evalq run evalq.yaml --targets targets.yaml --out second --format none
