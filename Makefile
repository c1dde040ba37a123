# Everything starts here; each target makes .venv first if it is not there yet.
PYTHON ?= python3
BIN := .venv/bin
PY := $(BIN)/python

# Tests start Python some hundred times: what it compiled is kept, whatever the environment says.
test thorough quick celery: export PYTHONDONTWRITEBYTECODE =

# Python compiles what is imported, and keeps it; all else of the packages would take as long as to install them.
LATER = $(if $(PYTHONDONTWRITEBYTECODE),,--no-compile)

INSTALL = $(PY) -m pip install --quiet --disable-pip-version-check

# A .venv keeps the Python that it was made with, unless another is asked for: made over that, it is a mixture of both.
WHICH = -c "import sys; print(sys.base_prefix, sys.version)"
OTHER := $(if $(filter file,$(origin PYTHON)),,$(shell \
  test "$$($(PYTHON) $(WHICH))" = "$$($(PY) $(WHICH) 2> /dev/null)" || echo other))
UNLESS_MADE = $(if $(OTHER),,$(PY) -c "import pip" 2> /dev/null ||)

.PHONY: setup demo test thorough quick celery check docs bench chaos mutation importers peers lock programs clean other

setup: .venv/ready

BUILT = pyproject.toml setup.py $(wildcard evalcore/native/*.[ch])

# What is in one lock, with hashes, and evalq itself from here.
define install
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "evalq needs Python 3.11 or newer: make PYTHON=python3.12 ...")'
	@$(UNLESS_MADE) $(PYTHON) -m venv --clear .venv
	@echo "Installing $$(grep -c == $(1)) packages of $(1) in .venv ..."
	@$(INSTALL) $(LATER) --require-hashes -r $(1)
	@$(INSTALL) --no-deps --no-build-isolation -e .
endef

.venv/ready: requirements.lock $(BUILT) $(OTHER)
	$(call install,requirements.lock)
	@touch .venv/running $@

# What running needs, without what developing needs: a quarter of it, in the same versions.
.venv/running: requirements-run.lock $(BUILT) $(OTHER)
	$(call install,requirements-run.lock)
	@touch $@

other:

demo: .venv/running  ## The main job on sample data, with an embedded server; installs only what running needs.
	@$(BIN)/evalq demo

# More than half of a test's time is waiting for processes and servers: four for each of two cores keep those busy.
TESTS_AT_ONCE ?= 8

programs:  ## Programs that some tests start: from Debian when this is root, and from npm where it is.
	sh tests/programs.sh

# Else each of the processes that run tests would compile all of them, and what they import.
.venv/compiled: .venv/ready
	-$(PY) -m pytest -q --collect-only > /dev/null
	touch $@

# Tests of the site are skipped where it was not built; in CI nothing is.
ifdef CI
test thorough: docs
endif

test: setup programs .venv/compiled  ## All tests, on a third of the made-up examples and of long lists of parameters: others each time.
	$(PY) -m pytest -q -n $(TESTS_AT_ONCE)

thorough: setup programs .venv/compiled  ## The same on all of them; before a release.
	$(PY) -m pytest -q -n $(TESTS_AT_ONCE) --hypothesis-profile=thorough

# These wait for nobody: more processes than cores would only collect the tests more often.
quick: setup .venv/compiled  ## What starts no server, on a fifth of the examples; for after each small change.
	$(PY) -m pytest -q -n 2 --hypothesis-profile=quick tests/unit tests/contract

# The same, and over it the previous line of Celery and kombu, with the redis-py that they allow.
.venv-celery/ready: requirements.lock tests/contract/celery.lock $(BUILT)
	$(PYTHON) -m venv --clear .venv-celery
	for lock in requirements.lock tests/contract/celery.lock; do \
	  .venv-celery/bin/python -m pip install --quiet --disable-pip-version-check --require-hashes -r $$lock || exit 1; done
	.venv-celery/bin/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e .
	touch $@

# Tests of what evalq does with Celery, kombu and redis-py.
OF_CELERY = $(addprefix tests/,unit/workers contract/test_private_parts.py contract/test_celery_variables.py \
  $(addprefix integration/test_,transport.py kombu_faults.py celery_tools.py own_workers.py submit_task.py neighbours.py faults.py hints.py rabbitmq.py rabbitmq_timeouts.py sick.py \
  signals.py sweeps.py unusable.py upgraded.py waiting.py) \
  $(addprefix doors/test_,acl.py messages.py remote_control.py tls.py) chaos/test_short.py)

celery: .venv-celery/ready programs  ## The tests of the fleet with the previous line of Celery; .venv has the current one.
	.venv-celery/bin/python -m pytest -q -n $(TESTS_AT_ONCE) $(OF_CELERY)

check: setup
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(PY) -m tests.tools.house --check
	$(PY) docs/generate.py --check
	$(PY) grafana/generate.py --check
	$(PY) docs/check.py
	$(PY) docs/words.py

# In an environment of its own: nothing else needs what builds a site.
.venv-docs/ready: docs/requirements.lock
	$(PYTHON) -m venv --clear .venv-docs
	.venv-docs/bin/python -m pip install --quiet --disable-pip-version-check --require-hashes -r $<
	touch $@

docs: export NO_MKDOCS_2_WARNING = 1
docs: .venv-docs/ready  ## The docs as a site in build/site, searchable, with llms.txt; any dead link fails it.
	.venv-docs/bin/python docs/build_site.py

bench: setup  ## Speed, side by side with its rivals; takes several minutes.
	$(PY) -m tests.bench

SEEDS ?= 20
chaos: setup programs  ## The fault suite: SEEDS seeds that were not run before, then the table in docs/reliability.md.
	$(PY) -m tests.chaos --seeds $(SEEDS)
	$(PY) -m tests.chaos.table

mutation: setup  ## Do tests notice changes of the evaluators, and of what they decide by? Makes docs/reference/mutation.md; takes hours.
	$(PY) -m tests.mutation --sample 150 --seed 3 --tests unit --out mutation.json
	$(PY) -m tests.mutation --page mutation.json > docs/reference/mutation.md

importers: setup  ## Record anew what other evaluation tools write, with the tools themselves, and hold imports against it.
	$(PY) -m tests.importing.record
	$(PY) -m pytest -q -n 0 tests/importing

# Kept beside .venv, which is made anew with other dependencies: the tools are some gigabytes.
peers: export EVALQ_IMPORTERS ?= $(CURDIR)/.venv-peers
peers: setup  ## Have promptfoo, Inspect, lm-eval and DeepEval judge 1,000 answers, hold imported checks and requests against them, sweep llama.cpp's server, run agents of five frameworks, and Flower and celery-exporter beside a worker.
	$(PY) -m tests.importing.trajectories
	$(PY) -m tests.importing.peers
	$(PY) -m tests.importing.first_verdict
	$(PY) -m tests.agents.llama
	$(PY) -m tests.agents.frameworks
	$(PY) -m tests.bench.traces --traces 5000 --peer
	$(PY) -m pytest -q -n 0 tests/importing/test_peers.py tests/importing/test_trajectories.py tests/importing/peer_requests.py tests/integration/peer_tools.py

# uv, as pip-tools would lock what this Python needs on this machine: 3.11.2 needs a package that 3.11.3 does not.
LOCKED = .venv-lock/bin/uv pip compile --quiet --upgrade --universal --python-version 3.11 --generate-hashes \
  --no-strip-extras --no-header --no-annotate

# docs has a lock of its own.
OF_EXTRAS = $(PYTHON) -c 'import tomllib; e = tomllib.load(open("pyproject.toml", "rb"))["project"]["optional-dependencies"]; docs = e.pop("docs"); $(1)'
EXTRAS = $$($(call OF_EXTRAS,print(*(f"--extra {name}" for name in e))))
DOCS_EXTRA = $(call OF_EXTRAS,print(*docs, sep="\n"))

lock:  ## Resolve the dependencies again, for all machines and each Python from 3.11 on.
	$(PYTHON) -m venv .venv-lock
	.venv-lock/bin/pip install --quiet uv
	$(LOCKED) $(EXTRAS) --output-file requirements.lock pyproject.toml
	printf '%s\n' 'setuptools>=77' | $(LOCKED) --constraint requirements.lock --output-file requirements-run.lock pyproject.toml -
	$(DOCS_EXTRA) | $(LOCKED) --output-file docs/requirements.lock -
	$(LOCKED) --output-file tests/deploy/checkers.lock tests/deploy/checkers.in
	$(LOCKED) --output-file tests/contract/celery.lock tests/contract/celery.in
	rm -rf .venv-lock

clean:
	rm -rf .venv build *.egg-info
