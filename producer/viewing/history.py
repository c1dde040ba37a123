"""How the runs of a suite went, one after the other: of each what a page shows, and no more is kept in memory."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, NamedTuple

from evalq.evalcore.compare.comparison import Verdict
from evalq.evalcore.compare.intervals import level_of
from evalq.evalcore.compare.pairs import pairs_of
from evalq.evalcore.compare.summary import RunCases
from evalq.evalcore.contract.measures import Measure
from evalq.evalcore.errors import EvalqError, UsageError
from evalq.producer.comparing.comparing import MARGIN
from evalq.producer.comparing.drifting import drift_lines
from evalq.producer.viewing.catalogue import KnownRun
from evalq.producer.viewing.sides import Sides
from evalq.producer.viewing.viewer import NewestValues, Viewer

if TYPE_CHECKING:
    from evalq.workers.ledger.history import Entry

__all__ = ["Histories", "PastRun", "Suite", "Went", "suites_of"]

_SECONDS = 2.0
"""Of reading how cases went; the page says what is left, and has it when it is loaded again."""
_ENTRIES = 1_000


class Suite(NamedTuple):
    """Whose runs are compared with each other."""

    evaluator: str
    suite: str
    target: str


class PastRun(NamedTuple):
    """A finished run of a suite: in a folder here, in the ledger's history, or both.

    ``when`` a run in a folder was begun, which does not say when it ended; else when it ended.
    """

    run: str
    when: str
    known: KnownRun | None
    entry: Entry | None


class Went(NamedTuple):
    """How a run went: {measure: (mean, low, high)}, and {baseline: by the first measure} where it was compared."""

    run: str
    records: int
    measures: tuple[Measure, ...]
    levels: Mapping[str, tuple[float, float, float]]
    verdicts: Mapping[str, tuple[str, Verdict] | None]


class Histories:
    """The histories of suites. For many threads at a time."""

    def __init__(self, viewer: Viewer, sides: Sides) -> None:
        self._viewer = viewer
        self._sides = sides
        self._went: NewestValues[Went] = NewestValues(5_000)

    def past(self, suite: Suite) -> list[PastRun]:
        """Its runs, the newest first."""
        entries = {entry.run: entry for entry in self._viewer.ledger.entries(*suite, most=_ENTRIES)}
        runs = self._viewer.catalogue.runs()
        found = [
            PastRun(known.run, known.started, known, entries.pop(known.run, None))
            for known in runs
            if known.state == "done" and (known.evaluator, known.suite, known.target) == suite
        ]
        away = {known.run: known for known in runs if known.folder is None}
        for entry in entries.values():
            ended = datetime.fromtimestamp(entry.ended, UTC).isoformat()
            found.append(PastRun(entry.run, ended, away.get(entry.run), entry))
        return sorted(found, key=lambda each: (each.when, each.run), reverse=True)

    def approved(self, suite: Suite) -> dict[str, RunCases]:
        """The baselines that runs of a suite are compared with."""
        found = {}
        for name, runs in self._sides.baselines().items():
            same = [run for run in runs if run.evaluator == suite.evaluator]
            if len(same) > 1:
                same = [run for run in same if run.target == suite.target]
            if same:
                found[name] = same[0]
        return found

    def drift(self, suite: Suite) -> list[str]:
        """Whether its runs get worse, in words; nothing where no ledger has counted them."""
        return list(drift_lines(self._viewer.ledger.drift(*suite)))

    def read(self, runs: Sequence[PastRun], approved: Mapping[str, RunCases]) -> tuple[dict[str, Went], int, int]:
        """How ``runs`` went, as far as that is known in a while; of how many it is left, and too much to be read."""
        until, left, many = time.monotonic() + _SECONDS, 0, 0
        found: dict[str, Went] = {}
        bases = tuple((name, base.run, base.report) for name, base in approved.items())
        for past in runs:
            if past.known is None:
                continue
            with contextlib.suppress(EvalqError, OSError):
                digest = past.entry.digest if past.entry else ""
                key = (past.known.key, self._sides.stamp(past.known), digest, bases)
                went = self._went.get(key)
                if went is None and not self._sides.at_hand(past.known):
                    many += 1
                elif went is None and time.monotonic() > until:
                    left += 1
                else:
                    found[past.run] = went or self._went.put(key, self._of(past.known, approved))
        return found, left, many

    def of_baseline(self, base: RunCases) -> Went:
        """How an approved run went."""
        key = (base.run, base.report)
        return self._went.get(key) or self._went.put(key, _went(base, {}))

    def _of(self, known: KnownRun, approved: Mapping[str, RunCases]) -> Went:
        run = self._sides.cases(known)
        verdicts: dict[str, tuple[str, Verdict] | None] = {}
        for name, base in approved.items():
            if run.run == base.run and run.report == base.report:
                verdicts[name] = None
                continue
            with contextlib.suppress(UsageError):
                first = self._sides.compare(base, run, MARGIN)[0]
                verdicts[name] = (first.measure.name, first.verdict)
        return _went(run, verdicts)


def _went(run: RunCases, verdicts: Mapping[str, tuple[str, Verdict] | None]) -> Went:
    levels = {}
    for measure in run.cases.measures:
        if measure.name not in run.cases.columns:
            continue
        side = pairs_of(run.cases, run.cases, measure).base
        if len(side.answers):
            level = level_of(side, measure.low, measure.width)
            levels[measure.name] = (level.mean, *level.interval())
    return Went(run.run, run.records["total"], tuple(run.cases.measures), levels, verdicts)


def suites_of(viewer: Viewer) -> dict[Suite, int]:
    """Every suite that has a run, and how many it has here."""
    counts: dict[Suite, int] = {}
    for known in viewer.catalogue.runs():
        if known.evaluator and known.state == "done":
            suite = Suite(known.evaluator, known.suite, known.target)
            counts[suite] = counts.get(suite, 0) + 1
    for place in viewer.ledger.places():
        counts.setdefault(Suite(place.evaluator, place.suite, place.target), 0)
    return counts
