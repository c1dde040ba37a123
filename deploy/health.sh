#!/bin/sh
# Whether the role that runs in this container is well, by the command of process $1 (of a container, its first).
# A worker: the ledger hears it. The exporter: it answers. Any other command is well as long as it runs.
command=" $(tr '\0' ' ' < "/proc/${1:-1}/cmdline")"
case "$command" in
  *" worker "*) exec evalq doctor --worker ;;
  *" exporter "*)
    port=${command##* --port[ =]}
    [ "$port" = "$command" ] && port=9808
    exec python -P -c 'import sys, urllib.request as u; u.urlopen(sys.argv[1], timeout=5)' \
      "http://127.0.0.1:${port%% *}/healthz" ;;
esac
