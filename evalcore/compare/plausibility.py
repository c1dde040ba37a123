"""Whether a file that is given as a run's cases can be one: anybody may have written it, as in a pull request."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator

from evalq.evalcore.compare.run import RunCases
from evalq.evalcore.compare.summary import CaseSummary, Column
from evalq.evalcore.compare.took import Took
from evalq.evalcore.contract.measures import Measure

__all__ = ["fault_of"]

_MOST_ANSWERS = 100_000_000
"""To one case: more than anybody has, and as many as can be drawn from."""
_ROUNDED = 1e-9
"""By what share of their size sums differ that were added in another order, or written down."""
_LINES = re.compile(r"[0-9]{1,18}-[0-9a-f]{32}\Z")
_CALLED = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}(\[[A-Za-z0-9._:+=,-]{1,400}\])?\Z")


def fault_of(run: RunCases) -> str:
    """Why ``run`` cannot be one, with the place; empty for one that can."""
    return next(_faults(run), "")


def _faults(run: RunCases) -> Iterator[str]:
    for key, name in (("evaluator", run.evaluator), ("name", run.name or run.evaluator)):
        if not _CALLED.match(name):
            yield f"{key}: {name[:100]!r} is no name for one"
    if not all(map(_LINES.match, run.lines)):
        yield "lines: no digests of lines"
    cases = run.cases
    if not cases.measures:
        yield "cases.measures: there are none"
    if len(set(cases.ids)) < len(cases.ids):
        yield "cases.ids: a case is there twice"
    if len(cases.missing) != len(cases.ids) or min(cases.missing, default=0) < 0 or cases.unattributed < 0:
        yield "cases.missing: not a count for each case"
    if cases.labels and len(cases.labels) != len(cases.ids):
        yield "cases.labels: not one for each case"
    if any(min(each.values(), default=1) < 1 or sum(each.values()) > _MOST_ANSWERS for each in cases.labels):
        yield "cases.labels: no answers add up to these numbers"
    if not all(0 <= p <= 1 for p in (cases.collapse_p or {}).values()):
        yield "cases.collapse_p: not all are probabilities"
    for measure in cases.measures:
        yield from _of_measure(measure, cases)
    for name, took in run.took.items():
        if not _addable(took):
            yield f"took.{name}: no answers add up to these numbers"


def _addable(took: Took) -> bool:
    """Whether the sums by case are those of the answers that the sketch counts, as far as it can be told."""
    columns = (took.count, took.missing, took.total, took.squares, took.logs, took.log_squares)
    if any(len(each) != len(took.ids) for each in columns) or len(set(took.ids)) < len(took.ids):
        return False
    sketch = took.sketch
    counted = sketch.zeros + sum(sketch.buckets.values())
    whole = min([0, *took.count, *took.missing]) == 0 and sum(took.count) == sketch.count == counted
    sums = [*took.total, *took.squares, *took.logs, *took.log_squares, sketch.most, sketch.least or 0.0]
    return whole and all(map(math.isfinite, sums)) and min([0.0, *took.total, *took.squares]) == 0.0


def _of_measure(measure: Measure, cases: CaseSummary) -> Iterator[str]:
    place, column = f"cases.columns.{measure.name}", cases.columns.get(measure.name)
    if column is None or not all(len(each) == len(cases.ids) for each in (column.count, column.total, column.squares)):
        yield f"{place}: not a number for each case"
    elif not measure.low < measure.high:
        yield f"{place}: its scale has no width"
    elif not all(_possible(measure, column, at) for at in range(len(cases.ids))):
        yield f"{place}: no answers add up to these numbers"


def _possible(measure: Measure, column: Column, at: int) -> bool:
    count, total, squares = column.count[at], column.total[at], column.squares[at]
    if not 0 <= count <= _MOST_ANSWERS or squares < 0 or (not count and (total or squares)):
        return False
    if measure.kind == "pass":
        return 0 <= total <= count and total == int(total)
    # On its scale: a mean beyond it passes any bound, and has no interval.
    rounding = _ROUNDED * max(abs(measure.low), abs(measure.high)) * count
    if not count * measure.low - rounding <= total <= count * measure.high + rounding:
        return False
    # Squared, as variances are taken of it.
    return math.isfinite(total * total) and math.isfinite(squares)
