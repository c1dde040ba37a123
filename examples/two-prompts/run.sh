set -eu
evalq init --from questions.csv
cp old.md prompt.md
evalq checks cases.yaml --target agent --targets targets.yaml --repeat 5 --out old --format none
cp new.md prompt.md
evalq checks cases.yaml --target agent --targets targets.yaml --repeat 5 --out new --format none
evalq compare old new
evalq baseline set main old
evalq gate new --policy policy.yaml --baseline main
