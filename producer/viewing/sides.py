"""The runs that pages compare: by the key of a run that is shown, or by the name of a baseline."""

from __future__ import annotations

import threading
from typing import NamedTuple

from evalq.evalcore.compare.comparison import Comparison
from evalq.evalcore.compare.summary import RunCases
from evalq.evalcore.errors import UsageError
from evalq.producer.comparing.baselines import Baselines, place_of
from evalq.producer.comparing.comparing import compare_runs
from evalq.producer.outputs.cases import CASES, cases_of, decode_cases
from evalq.producer.servers import Servers
from evalq.producer.viewing.catalogue import KnownRun
from evalq.producer.viewing.viewer import NewestValues, Viewer
from evalq.workers.settings import Settings

__all__ = ["BASELINE", "Side", "Sides"]

BASELINE = "baseline:"
"""Before the names of baselines where runs are named too."""
Stamp = tuple[str, int, int, int]
_FEW_BYTES = 1 << 26


class Side(NamedTuple):
    """A run to be compared; ``known`` where it is among those that are shown."""

    name: str
    cases: RunCases
    known: KnownRun | None


class Sides:
    """Runs as sides of comparisons, and what came of those. For many threads at a time."""

    def __init__(self, viewer: Viewer) -> None:
        self._viewer = viewer
        self._cases: NewestValues[RunCases] = NewestValues(3)  # of a run of 200,000 cases it takes about 100 MB
        self._compared: NewestValues[list[Comparison]] = NewestValues(500)
        self._reading = threading.Lock()

    def side(self, name: str, partner: str = "") -> Side:
        """The run of this key, or the baseline of this name that is to be compared with the run ``partner``.

        Raises EvalqError where there is none, or nothing of it to compare.
        """
        if name.startswith(BASELINE):
            return self._baseline(name.removeprefix(BASELINE), partner)
        known = self._viewer.catalogue.get(name)
        if known is None:
            raise UsageError(f"no run here is called {name!r}")
        return Side(known.run, self.cases(known), known)

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
        return self._viewer.ledger.ask(_approved, _approved(Servers(Settings())))

    def compare(self, base: RunCases, cand: RunCases, margin: float) -> list[Comparison]:
        """By every measure that both have. Raises UsageError for runs of two evaluators."""
        key = (base.report, cand.report, base.run, cand.run, margin)
        return self._compared.get(key) or self._compared.put(key, compare_runs(base, cand, margin))

    def _baseline(self, name: str, partner: str) -> Side:
        approved = self.baselines().get(name, [])
        other = self._viewer.catalogue.get(partner)
        same = [run for run in approved if other is None or run.evaluator == other.evaluator]
        if other is not None and len(same) > 1:
            same = [run for run in same if run.target == other.target]
        if not same:
            raise UsageError(f"the baseline {name!r} holds no run of that evaluator")
        found = same[0]
        known = next((each for each in self._viewer.catalogue.runs() if each.run == found.run), None)
        return Side(f"{name} ({place_of(found)}, run {found.run})", found, known)


def _approved(servers: Servers) -> dict[str, list[RunCases]]:
    """Of the current folder, and of the servers where one is named."""
    return Baselines(servers).every()[0]
