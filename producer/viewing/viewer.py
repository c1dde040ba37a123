"""What the pages of one viewer are made from, and what of it is kept so that nobody reads it twice."""

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
from evalq.producer.comparing.baselines import Baselines, slot_of
from evalq.producer.comparing.comparing import compare_runs
from evalq.producer.folder.files import RECORDS
from evalq.producer.outputs.cases import CASES, cases_of, decode_cases
from evalq.producer.page import summary_of
from evalq.producer.servers import Servers
from evalq.producer.viewing.catalogue import Catalogue, KnownRun, Ledger, ProgressReader
from evalq.producer.viewing.records import LineIndexes
from evalq.workers.settings import Settings

T = TypeVar("T")
Query = Mapping[str, list[str]]
"""What stands behind the question mark of an address."""

_LARGEST = 4_000_000
"""Of a larger report.json the index shows no headline."""


class NewestValues(Generic[T]):
    """The newest of some values, by what they were made of. For many threads at a time."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._values: OrderedDict[Hashable, T] = OrderedDict()
        self._changing = threading.Lock()

    def get(self, key: Hashable) -> T | None:
        """The value of ``key``, while it is kept."""
        with self._changing:
            if key in self._values:
                self._values.move_to_end(key)
            return self._values.get(key)

    def put(self, key: Hashable, value: T) -> T:
        """Keep ``value``, and give it back."""
        with self._changing:
            self._values[key] = value
            self._values.move_to_end(key)
            while len(self._values) > self._most:
                self._values.popitem(last=False)
        return value


class Viewer:
    """The runs that are shown, and what was read of them."""

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
        """What the page of a finished run in a folder begins with; None where that is not soon known."""
        if known.folder is None or not known.folder.reported:
            return None
        try:
            found = (known.folder.path / "report.json").stat()
            key = (known.folder.path, found.st_ino, found.st_size, found.st_mtime_ns)
            kept = self._heads.get(key)
            if kept is None and found.st_size <= _LARGEST:
                report = known.folder.report()
                kept = self._heads.put(key, summary_of(plugins.get(report["evaluator"]), report))
        except (Exception, SystemExit):  # the run's own page says what: a plug-in takes no other's run along
            return None
        return kept

    def path_of(self, known: KnownRun) -> Path | None:
        """The records.jsonl of a run, where it is here."""
        return known.folder.own(RECORDS) if known.folder and known.folder.records.is_file() else None


def query_value(query: Query, name: str) -> str:
    """One value of a query, empty where it has none."""
    return query.get(name, [""])[-1].strip()


def query_number(query: Query, name: str) -> int:
    """A count in a query: 0 where it has none, or it is none that could be."""
    given = query_value(query, name)
    return int(given) if given.isascii() and given.isdigit() and len(given) < 13 else 0


# The runs that pages compare: by the key of a run that is shown, or by the name of a baseline.

BASELINE = "baseline:"
"""Before the names of baselines where runs are named too."""
Stamp = tuple[str, int, int, int]
_FEW_BYTES = 1 << 26


class RunSide(NamedTuple):
    """A run to be compared; ``known`` where it is among those that are shown."""

    name: str
    cases: RunCases
    known: KnownRun | None


class RunSides:
    """Runs as sides of comparisons, and what came of those. For many threads at a time."""

    def __init__(self, viewer: Viewer) -> None:
        self._viewer = viewer
        self._cases: NewestValues[RunCases] = NewestValues(3)  # of a run of 200,000 cases it takes about 100 MB
        self._compared: NewestValues[list[MeasureComparison]] = NewestValues(500)
        self._reading = threading.Lock()

    def side(self, name: str, partner: str = "") -> RunSide:
        """The run of this key, or the baseline of this name that is to be compared with the run ``partner``.

        Raises EvalqError where there is none, or nothing of it to compare.
        """
        if name.startswith(BASELINE):
            return self._baseline(name.removeprefix(BASELINE), partner)
        known = self._viewer.catalogue.get(name)
        if known is None:
            raise UsageError(f"no run here is called {name!r}")
        return RunSide(known.run, self.cases(known), known)

    def at_hand(self, known: KnownRun) -> bool:
        """Whether how the cases of a run went is soon known: there are few records, or somebody has compared it."""
        if known.folder is None:
            return True
        try:
            few = known.folder.records.stat().st_size <= _FEW_BYTES
        except OSError:
            return True  # and that is soon known as well
        return few or (known.folder.path / CASES).is_file()

    def cases(self, known: KnownRun) -> RunCases:
        """How the cases of a run went. Raises EvalqError."""
        if known.folder is None:
            data = self._viewer.ledger.cases(known.run)
            if data is None:
                raise UsageError(f"run {known.run}: the ledger does not have how its cases went; see it in its folder")
            return decode_cases(data, f"what the ledger has of run {known.run}")
        key = self.stamp(known)
        with self._reading:  # two at once would read the same records twice
            return self._cases.get(key) or self._cases.put(key, cases_of(known.folder, keep=False))

    def stamp(self, known: KnownRun) -> Stamp:
        """What is another one when a run has another report. Raises UsageError where it has none."""
        if known.folder is None:
            return known.run, 0, 0, 0
        try:
            found = (known.folder.path / "report.json").stat()
        except OSError:
            raise UsageError(f"{known.run} has no report (yet): it cannot be compared") from None
        return str(known.folder.path), found.st_ino, found.st_size, found.st_mtime_ns

    def baselines(self) -> dict[str, list[RunCases]]:
        """What is approved, by name; one that cannot be read is left out."""
        return self._viewer.ledger.ask(_approved_runs, _approved_runs(Servers(Settings())))

    def compare(self, base: RunCases, cand: RunCases, margin: float) -> list[MeasureComparison]:
        """By every measure that both have. Raises UsageError for runs of two evaluators."""
        key = (base.report, cand.report, base.run, cand.run, margin)
        return self._compared.get(key) or self._compared.put(key, compare_runs(base, cand, margin))

    def _baseline(self, name: str, partner: str) -> RunSide:
        approved = self.baselines().get(name, [])
        other = self._viewer.catalogue.get(partner)
        same = [run for run in approved if other is None or run.evaluator == other.evaluator]
        if other is not None and len(same) > 1:
            same = [run for run in same if run.target == other.target]
        if not same:
            raise UsageError(f"the baseline {name!r} holds no run of that evaluator")
        found = same[0]
        known = next((each for each in self._viewer.catalogue.runs() if each.run == found.run), None)
        return RunSide(f"{name} ({slot_of(found)}, run {found.run})", found, known)


def _approved_runs(servers: Servers) -> dict[str, list[RunCases]]:
    """Of the current folder, and of the servers where one is named."""
    return Baselines(servers).every()[0]
