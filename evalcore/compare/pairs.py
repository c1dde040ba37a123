"""Two runs side by side: the cases that both have, with what each case's answers add up to on either side."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from evalq.evalcore.compare.summary import CaseSummary, Column
from evalq.evalcore.contract.measures import Measure

if TYPE_CHECKING:
    from numpy import float64, int64
    from numpy.typing import NDArray

__all__ = ["ROUNDED", "Pairs", "Side", "pairs_of"]

ROUNDED = 1e-12
"""A variance of no more than this, as a share of the mean square, is none: no double tells it from rounding."""
_PLACES = 2.0**-50


class Side(NamedTuple):
    """A run's answers to the cases of a comparison, an element each: how many, their sum, that of their squares."""

    answers: NDArray[int64]
    total: NDArray[float64]
    squares: NDArray[float64]

    @property
    def mean(self) -> NDArray[float64]:
        """The mean of each case's answers."""
        return self.total / self.answers

    @property
    def variance(self) -> NDArray[float64]:
        """The unbiased variance of each case's answers; 0 where there is but one, or where they are all alike."""
        import numpy as np

        spread = self.squares - self.total * self.total / self.answers
        # Of equal decimals the rounding of their sums is left, a few units of the last place for each of them: taken
        # for a spread it would make a change of them as good as certain, and one of binary fractions not.
        left = np.maximum(ROUNDED, self.answers * _PLACES) * self.squares
        return np.where(spread > left, spread, 0.0) / np.maximum(self.answers - 1, 1)


class Pairs(NamedTuple):
    """The cases answered on both sides, sorted by id, and those that are not.

    ``alone`` are answered by the base only, ``new`` by the candidate only. ``missing`` is how many answers to cases of
    the base the candidate lacks and the base does not: what a gate may hold against it.
    """

    ids: list[str]
    base: Side
    cand: Side
    alone: list[str]
    new: list[str]
    missing: int


def pairs_of(base: CaseSummary, cand: CaseSummary, measure: Measure, *, worst: bool = False) -> Pairs:
    """The two runs by ``measure``; a case without any answer on a side is not answered there.

    With ``worst`` every answer that is missing counts against the candidate: its own as the worst there is on the scale
    (for cases that it lacks altogether, as many as the base has answers), the base's as the best.
    """
    low, high = (measure.low, measure.high) if measure.better == "higher" else (measure.high, measure.low)
    ours = _answered(base, measure.name, fill=high if worst else None)
    theirs = _answered(cand, measure.name, fill=low if worst else None)
    lost = _lost(base, cand, measure.name)
    if worst:
        for case in ours.keys() - theirs.keys():
            count = ours[case][0]
            theirs[case] = (count, count * low, count * low * low)
    ids = sorted(ours.keys() & theirs.keys())
    alone, new = sorted(ours.keys() - theirs.keys()), sorted(theirs.keys() - ours.keys())
    return Pairs(ids, _side(ours, ids), _side(theirs, ids), alone, new, lost)


_Sums = tuple[int, float, float]


def _answered(run: CaseSummary, name: str, fill: float | None) -> dict[str, _Sums]:
    """{case: its sums}, with ``fill`` in place of each missing answer."""
    column, found = _column(run, name), {}
    rows = zip(run.ids, column.count, column.total, column.squares, run.missing, strict=True)
    for case, count, total, squares, missing in rows:
        if fill is not None and missing:
            count, total, squares = count + missing, total + missing * fill, squares + missing * fill * fill
        if count:
            found[case] = (count, total, squares)
    return found


def _column(run: CaseSummary, name: str) -> Column:
    """Empty where the run does not have that measure, as one by another version of its evaluator."""
    return run.columns.get(name) or Column([0] * len(run.ids), [0.0] * len(run.ids), [0.0] * len(run.ids))


def _lost(base: CaseSummary, cand: CaseSummary, name: str) -> int:
    there = dict(zip(cand.ids, zip(_column(cand, name).count, cand.missing, strict=True), strict=True))
    lost = 0
    for case, count, missing in zip(base.ids, _column(base, name).count, base.missing, strict=True):
        if count:
            answered, lacking = there.get(case, (0, 0))
            # What the baseline lacked as well is not held against the candidate.
            lost += max(0, lacking - missing) if answered or lacking else count
    return lost


def _side(sums: dict[str, _Sums], ids: list[str]) -> Side:
    import numpy as np

    # In shape also without any case, where numpy would make no columns.
    rows = np.array([sums[case] for case in ids], dtype=float).reshape(len(ids), 3)
    return Side(rows[:, 0].astype(np.int64), rows[:, 1].copy(), rows[:, 2].copy())
