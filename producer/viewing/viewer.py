"""The data of a viewer's pages, with caches."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Hashable, Mapping, Sequence
from pathlib import Path
from typing import Generic, NamedTuple, TypeVar

from evalq.evalcore.compare.comparison import MeasureComparison
from evalq.evalcore.compare.summary import RunCases
from evalq.evalcore.contract import plugins
from evalq.evalcore.errors import UsageError
from evalq.evalcore.model.canonical import Json
from evalq.evalcore.views.charts import Summary
from evalq.producer.comparing.baselines import Baselines
from evalq.producer.comparing.comparing import compare_runs
from evalq.producer.comparing.samples import slot_of
from evalq.producer.folder.files import RECORDS
from evalq.producer.outputs.cases import CASES, cases_of, decode_cases
from evalq.producer.page import summary_of
from evalq.producer.servers import Servers
from evalq.producer.viewing.catalogue import Catalogue, KnownRun, Ledger, ProgressReader
from evalq.producer.viewing.records import LineIndexes
from evalq.workers.settings import Settings

T = TypeVar("T")
Query = Mapping[str, list[str]]
"""The query of an address."""

_LARGEST = 4_000_000
"""The index shows no headline of a larger report.json."""


class NewestValues(Generic[T]):
    """A cache of the newest values. Thread-safe."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._values: OrderedDict[Hashable, T] = OrderedDict()
        self._changing = threading.Lock()

    def get(self, key: Hashable) -> T | None:
        """The value of ``key``, if it is still here."""
        with self._changing:
            if key in self._values:
                self._values.move_to_end(key)
            return self._values.get(key)

    def put(self, key: Hashable, value: T) -> T:
        """Keep ``value``, and return it."""
        with self._changing:
            self._values[key] = value
            self._values.move_to_end(key)
            while len(self._values) > self._most:
                self._values.popitem(last=False)
        return value


class Viewer:
    """The runs to show, with caches of their reports."""

    def __init__(self, given: Sequence[str], servers: Servers) -> None:
        """``given`` as in `Catalogue`. Raises UsageError, and what connecting to a server raises."""
        self.ledger = Ledger(servers)
        self.catalogue = Catalogue(given, self.ledger)
        self.standings = ProgressReader(self.ledger)
        self.lines = LineIndexes()
        self._heads: NewestValues[Summary] = NewestValues(2_000)

    def report(self, known: KnownRun) -> dict[str, Json] | None:
        """The report of a run that has one, from its folder or from the ledger. Raises EvalqError."""
        if known.folder is None:
            return self.ledger.report(known.run)
        try:
            return known.folder.report() if known.folder.reported else None
        except OSError as error:
            raise UsageError(f"{known.folder.path}: {error.strerror or error}") from error

    def head(self, known: KnownRun) -> Summary | None:
        """The summary of a finished run in a folder; None if it is slow to read."""
        if known.folder is None or not known.folder.reported:
            return None
        try:
            found = (known.folder.path / "report.json").stat()
            key = (known.folder.path, found.st_ino, found.st_size, found.st_mtime_ns)
            kept = self._heads.get(key)
            if kept is None and found.st_size <= _LARGEST:
                report = known.folder.report()
                kept = self._heads.put(key, summary_of(plugins.get(report["evaluator"]), report))
        except (Exception, SystemExit):  # the run's own page shows the error; other runs are not affected
            return None
        return kept

    def path_of(self, known: KnownRun) -> Path | None:
        """The records.jsonl of a run, if it is here."""
        return known.folder.own(RECORDS) if known.folder and known.folder.records.is_file() else None


def query_value(query: Query, name: str) -> str:
    """One value of a query, empty where it has none."""
    return query.get(name, [""])[-1].strip()


def query_number(query: Query, name: str) -> int:
    """A count in a query; 0 without a valid one."""
    given = query_value(query, name)
    return int(given) if given.isascii() and given.isdigit() and len(given) < 13 else 0


# The runs that pages compare, by the key of a run or the name of a baseline.

BASELINE = "baseline:"
"""Prefix of baselines' names where runs have names, too."""
Stamp = tuple[str, int, int, int]
_FEW_BYTES = 1 << 26


class RunSide(NamedTuple):
    """A run to compare; ``known`` if it is among the runs of the viewer."""

    name: str
    cases: RunCases
    known: KnownRun | None


class ShownRun(NamedTuple):
    """A run on one side of a page; ``known`` if it is among the runs of the viewer."""

    name: str
    known: KnownRun | None


class RunSides:
    """Runs as sides of comparisons, with a cache of comparisons. Thread-safe."""

    def __init__(self, viewer: Viewer) -> None:
        self._viewer = viewer
        self._cases: NewestValues[RunCases] = NewestValues(3)  # a run of 200,000 cases takes about 100 MB
        self._compared: NewestValues[list[MeasureComparison]] = NewestValues(500)
        self._reading = threading.Lock()

    def side(self, name: str, partner: str = "") -> RunSide:
        """The run of this key, or the baseline of this name that is to be compared with the run ``partner``.

        Raises EvalqError if there is none, or if it cannot be compared.
        """
        if name.startswith(BASELINE):
            return self._baseline(name.removeprefix(BASELINE), partner)
        known = self._viewer.catalogue.get(name)
        if known is None:
            raise UsageError(f"no run here is called {name!r}")
        return RunSide(known.run, self.cases(known), known)

    def shown(self, name: str, partner: str = "") -> ShownRun:
        """The run of `side`, without reading its cases. Raises EvalqError if there is none."""
        if name.startswith(BASELINE):
            side = self._baseline(name.removeprefix(BASELINE), partner)
            return ShownRun(side.name, side.known)
        known = self._viewer.catalogue.get(name)
        if known is None:
            raise UsageError(f"no run here is called {name!r}")
        return ShownRun(known.run, known)

    def at_hand(self, known: KnownRun) -> bool:
        """Whether a run's cases are quick to read: it has few records, or a cases.json."""
        if known.folder is None:
            return True
        try:
            few = known.folder.records.stat().st_size <= _FEW_BYTES
        except OSError:
            return True  # the error is quick, too
        return few or (known.folder.path / CASES).is_file()

    def cases(self, known: KnownRun) -> RunCases:
        """The cases of a run. Raises EvalqError."""
        if known.folder is None:
            data = self._viewer.ledger.cases(known.run)
            if data is None:
                raise UsageError(f"run {known.run}: the ledger does not have its cases; compare it where its folder is")
            return decode_cases(data, f"the ledger's record of run {known.run}")
        key = self.stamp(known)
        with self._reading:  # otherwise two threads would read the same records
            return self._cases.get(key) or self._cases.put(key, cases_of(known.folder, keep=False))

    def stamp(self, known: KnownRun) -> Stamp:
        """A stamp that changes with a run's report. Raises UsageError without a report."""
        if known.folder is None:
            return known.run, 0, 0, 0
        try:
            found = (known.folder.path / "report.json").stat()
        except OSError:
            raise UsageError(f"{known.run} has no report (yet): it cannot be compared") from None
        return str(known.folder.path), found.st_ino, found.st_size, found.st_mtime_ns

    def baselines(self) -> dict[str, list[RunCases]]:
        """The approved runs by name, without those that cannot be read."""
        return self._viewer.ledger.ask(_approved_runs, _approved_runs(Servers(Settings())))

    def compare(self, base: RunCases, cand: RunCases, margin: float) -> list[MeasureComparison]:
        """Compare by every measure that both have. Raises UsageError for runs of two evaluators."""
        key = (base.report, cand.report, base.run, cand.run, margin)
        return self._compared.get(key) or self._compared.put(key, compare_runs(base, cand, margin))

    def _baseline(self, name: str, partner: str) -> RunSide:
        approved = self.baselines().get(name, [])
        other = self._viewer.catalogue.get(partner)
        same = [run for run in approved if other is None or run.evaluator == other.evaluator]
        if other is not None and len(same) > 1:
            same = [run for run in same if run.target == other.target]
        if not same:
            raise UsageError(f"the baseline {name!r} has no run of that evaluator")
        found = same[0]
        known = next((each for each in self._viewer.catalogue.runs() if each.run == found.run), None)
        return RunSide(f"{name} ({slot_of(found)}, run {found.run})", found, known)


def _approved_runs(servers: Servers) -> dict[str, list[RunCases]]:
    """The approved runs of the current folder, and of the named server."""
    return Baselines(servers).every()[0]
