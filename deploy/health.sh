#!/bin/sh
# Whether the role that runs in this container is well: evalq-health [heard | alive] [PID].
# The role is that of process PID (of a container, its first). A worker writes at each heartbeat, every two seconds, into
# $EVALQ_HEALTH_FILE.<pid>: "alive" asks whether it did so within a minute, "heard" whether the ledger heard it lately. The
# exporter is well when it answers, and any other command as long as it runs. Nothing here waits for a server or starts
# evalq: a probe has seconds.
asked=heard
case "$1" in heard | alive) asked=$1; shift ;; esac
seconds=15
[ "$asked" = alive ] && seconds=60
pid=${1:-1}
command=" $(tr '\0' ' ' < "/proc/$pid/cmdline")"
case "$command" in
  *" worker "*)
    file=${EVALQ_HEALTH_FILE:-/tmp/evalq-health}
    # The first process of a container hands signals on to the worker, which has a number of its own.
    [ "$pid" = 1 ] && pid='[0-9]*'
    # shellcheck disable=SC2086
    fresh=$(find "${file%/*}" -maxdepth 1 -name "${file##*/}.$pid" ! -name '*.new' -newermt "-$seconds seconds")
    [ -n "$fresh" ] || { echo "the worker has said nothing for $seconds seconds"; exit 1; }
    [ "$asked" = alive ] && exit 0
    for each in $fresh; do
      grep -qx heard "$each" && exit 0
    done
    echo "the ledger does not hear the worker"
    exit 1 ;;
  *" exporter "*)
    port=${command##* --port[ =]}
    [ "$port" = "$command" ] && port=9808
    # By either kind of address: a container may have IPv4 or IPv6 alone.
    exec python -P -c '
import sys, urllib.request
for host in "127.0.0.1", "[::1]":
    try:
        sys.exit(urllib.request.urlopen(f"http://{host}:{sys.argv[1]}/healthz", timeout=5).status != 200)
    except OSError as error:
        print(error, file=sys.stderr)
sys.exit(1)' "${port%% *}" ;;
esac
