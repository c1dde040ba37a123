"""The answers of many runs together, by case: what a further run is compared with."""

from __future__ import annotations

from evalq.evalcore.compare.summary import CaseSummary, Column

__all__ = ["added", "alike", "bare"]

_ALIKE = 0.5
"""The share of a run's answers that must be to known cases for runs to be compared case by case."""
_SPARE = 1000
_TIMES = 4
"""A pool with more than `_TIMES` times the cases of a run, and `_SPARE` more, drops those that the run lacks."""


def bare(run: CaseSummary) -> CaseSummary:
    """Only the sums: what a pool keeps of a run."""
    return CaseSummary(run.measures, run.ids, [0] * len(run.ids), run.columns)


def alike(pool: CaseSummary, run: CaseSummary) -> bool:
    """Whether they are of the same cases, mostly: recorded work has new ones every day."""
    known = set(pool.ids)
    # By the measure with the most of them, since an optional one has a value for some records only.
    answers = [max(each) for each in zip(*(run.columns[one.name].count for one in run.measures), strict=True)]
    shared = sum(count for case, count in zip(run.ids, answers, strict=True) if case in known)
    return bool(shared >= _ALIKE * sum(answers))


def added(pool: CaseSummary, run: CaseSummary) -> CaseSummary:
    """Both together; the result's memory is bounded by the cases of ``run``, however many runs there were.

    A measure that ``run`` has no values of stays with those of the pool.
    """
    kept = set(pool.ids) | set(run.ids)
    if len(kept) > _TIMES * len(run.ids) + _SPARE:
        kept = set(run.ids)
    ids = sorted(kept)
    measures = [*run.measures, *(each for each in pool.measures if each.name not in run.columns)]
    columns = {measure.name: _column(ids, pool, run, measure.name) for measure in measures}
    return CaseSummary(measures, ids, [0] * len(ids), columns)


def _column(ids: list[str], pool: CaseSummary, run: CaseSummary, name: str) -> Column:
    sums = {case: [0.0, 0.0, 0.0] for case in ids}
    for side in (pool, run):
        column = side.columns.get(name)
        if column is None:
            continue
        for case, *values in zip(side.ids, column.count, column.total, column.squares, strict=True):
            if (of_case := sums.get(case)) is not None:
                for at, value in enumerate(values):
                    of_case[at] += value
    return Column(
        [int(each[0]) for each in sums.values()],
        [each[1] for each in sums.values()],
        [each[2] for each in sums.values()],
    )
