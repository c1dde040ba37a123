set -eu
evalq planagent results.csv --lang ko
