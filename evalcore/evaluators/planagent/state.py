"""What the rows of a chunk add up to; the same numbers however the input was cut."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from evalq.evalcore.contract.evaluator import State
from evalq.evalcore.evaluators.planagent.llm import Agreement
from evalq.evalcore.evaluators.planagent.params import TOP_SCORE
from evalq.evalcore.evaluators.planagent.queries import Queries
from evalq.evalcore.model.state import Merging, Table
from evalq.evalcore.statistics.exact import ExactSum

__all__ = ["GroupCount", "PlanState", "RoundStats"]


def _zeros() -> list[int]:
    return [0] * (TOP_SCORE + 1)


class GroupCount:
    """What the vectors of `PlanState.sets`, `categories` and `forms` count, by position."""

    ROWS, LOW, SLOW, JUDGED, FAILED = range(5)


class RoundStats(Merging, array_like=True):
    """One round's rows. All but ``unscored`` is of scored rows alone.

    ``scores`` and ``points`` count rows by score and by speed points, ``seconds`` sums the timed rows, ``forced``
    counts the zeros for an error or for nothing to judge. ``llm_rows`` have a readable LLM score, ``llm_score`` sums
    it and ``llm_ours`` our score of the same rows.
    """

    unscored: int = 0
    scores: list[int] = msgspec.field(default_factory=_zeros)
    forced: int = 0
    points: list[int] = msgspec.field(default_factory=_zeros)
    # Exact sums: those of floats depend on their order, and so on where the input was cut.
    seconds: ExactSum = msgspec.field(default_factory=ExactSum)
    llm_rows: int = 0
    # Kept beside the LLM's sum, so that its reading of accuracy can put one in place of the other in the mean.
    llm_ours: int = 0
    llm_score: ExactSum = msgspec.field(default_factory=ExactSum)

    @property
    def scored(self) -> int:
        """Rows with a score."""
        return sum(self.scores)

    @property
    def timed(self) -> int:
        """Scored rows with seconds."""
        return sum(self.points)

    def add_llm(self, pairs: Sequence[tuple[int, float]]) -> None:
        """Count rows of (our score, the LLM's)."""
        self.llm_rows += len(pairs)
        self.llm_ours += sum(ours for ours, _ in pairs)
        self.llm_score.merge(ExactSum.of(llm for _, llm in pairs))

    def merge(self, later: RoundStats) -> None:
        """Take in further rows of the round."""
        self.unscored += later.unscored
        self.scores = [a + b for a, b in zip(self.scores, later.scores, strict=True)]
        self.forced += later.forced
        self.points = [a + b for a, b in zip(self.points, later.points, strict=True)]
        self.seconds.merge(later.seconds)
        self.llm_rows += later.llm_rows
        self.llm_ours += later.llm_ours
        self.llm_score.merge(later.llm_score)


class PlanState(State):
    """Rows of one plan-agent CSV.

    ``kinds`` holds [passed, judged] by kind of check, ``found`` by kind how often a missed value stood at another key
    path, ``misses`` [failed, failed in low rows] by what was wanted, ``forced`` the zeros by reason, ``errors`` the
    texts of errors, ``unread`` [conditions that no form reads, rows with such]. ``sets`` (kinds asked for),
    ``categories`` and ``forms`` (asked -> answered) count as `GroupCount` says.
    """

    rounds: dict[str, RoundStats] = msgspec.field(default_factory=dict)
    queries: Queries = msgspec.field(default_factory=Queries)
    kinds: dict[str, list[int]] = msgspec.field(default_factory=dict)
    found: dict[str, Table] = msgspec.field(default_factory=dict)
    misses: Table = msgspec.field(default_factory=Table)
    sets: Table = msgspec.field(default_factory=Table)
    categories: Table = msgspec.field(default_factory=Table)
    forms: Table = msgspec.field(default_factory=Table)
    forced: dict[str, int] = msgspec.field(default_factory=dict)
    errors: Table = msgspec.field(default_factory=Table)
    llm: Agreement = msgspec.field(default_factory=Agreement)
    unread: list[int] = msgspec.field(default_factory=lambda: [0, 0])

    def merge(self, later: PlanState) -> None:
        """Take in the rows that follow."""
        for name, stats in later.rounds.items():
            self.round(name).merge(stats)
        self.queries.merge(later.queries)
        for kind, (passed, judged) in later.kinds.items():
            self.add_kind(kind, passed, judged)
        for kind, table in later.found.items():
            self.found_paths(kind).merge(table)
        self.misses.merge(later.misses)
        self.sets.merge(later.sets)
        self.categories.merge(later.categories)
        self.forms.merge(later.forms)
        for reason, count in later.forced.items():
            self.forced[reason] = self.forced.get(reason, 0) + count
        self.errors.merge(later.errors)
        self.llm.merge(later.llm)
        self.unread = [a + b for a, b in zip(self.unread, later.unread, strict=True)]

    def to_wire(self) -> bytes:
        """Canonical JSON, tables at their kept size, rounds in the order of their names."""
        if self.queries.pairs is not None:
            # Numbered in the order in which rows came until here: two cuts of one file would differ in their bytes.
            self.queries.pairs.sort()
        for table in (self.misses, self.sets, self.categories, self.forms, self.errors, *self.found.values()):
            table.trim()
        return super().to_wire()

    def round(self, name: str) -> RoundStats:
        """The round ``name``, made where it is new."""
        stats = self.rounds.get(name)
        if stats is None:
            stats = self.rounds[name] = RoundStats()
        return stats

    def add_kind(self, kind: str, passed: int, judged: int) -> None:
        """Count checks of one kind."""
        old = self.kinds.setdefault(kind, [0, 0])
        old[0] += passed
        old[1] += judged

    def found_paths(self, kind: str) -> Table:
        """The key paths found for failed checks of one kind."""
        table = self.found.get(kind)
        if table is None:
            table = self.found[kind] = Table()
        return table
