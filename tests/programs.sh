#!/bin/sh
# Make sure of the Debian programs some tests start. Root installs what is missing; others are told,
# and the tests in question skip. In CI nothing may skip, so there a missing program is an error.
missing=""
for program in redis-server rabbitmq-server; do
  command -v "$program" >/dev/null 2>&1 || missing="$missing $program"
done
[ -z "$missing" ] && exit 0
if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null 2>&1; then
  # A run level of 1 keeps the packages from starting servers of their own.
  export DEBIAN_FRONTEND=noninteractive RUNLEVEL=1
  # shellcheck disable=SC2086
  { apt-get update -q && apt-get install -y -q --no-install-recommends $missing; } >/dev/null && exit 0
fi
echo "not installed:$missing (tests that start them will skip; install them with your package manager)" >&2
[ -z "$CI" ]
