#!/usr/bin/env bash
# The agents' tests of a golden set, from the command line and in CI:
#
#   run_vs_tests.sh --all                         every case
#   run_vs_tests.sh --agent ID                    those of an agent
#   run_vs_tests.sh --level Full                  those of a level (Full, Enhanced, Light)
#   run_vs_tests.sh --all --format json           the report as JSON on standard output
#
# What the agents answered is in $OUTPUTS, what is asked of them in $GOLDEN; other words go to evalq vs as they are.
set -euo pipefail
golden=${GOLDEN:-golden.yaml}
outputs=${OUTPUTS:-outputs.jsonl}
exec evalq vs "$golden" --outputs "$outputs" --no-progress "$@"
