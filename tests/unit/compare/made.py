"""Runs as comparisons see them, from counts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from random import Random

from evalq.evalcore.compare.run import RunCases
from evalq.evalcore.compare.summary import CaseSummary, Column
from evalq.evalcore.contract.measures import Measure
from evalq.evalcore.modes import FIXED_RUNS

PASS = Measure("pass_rate")
SCORE = Measure("mean_score", "score")


def passes(rows: Sequence[tuple[int, int]], missing: Sequence[int] = (), ids: Sequence[str] = ()) -> CaseSummary:
    """A run of cases, each (passes, answers)."""
    names = list(ids) or [f"c{number:06d}" for number in range(len(rows))]
    passed = [float(m) for m, _ in rows]
    column = Column([n for _, n in rows], passed, list(passed))
    return CaseSummary([PASS], names, list(missing) or [0] * len(rows), {PASS.name: column})


def scores(rows: Sequence[Sequence[float]]) -> CaseSummary:
    """A run of cases, each the scores of its answers."""
    column = Column([len(row) for row in rows], [sum(row) for row in rows], [sum(x * x for x in row) for row in rows])
    return CaseSummary([SCORE], [f"c{n}" for n in range(len(rows))], [0] * len(rows), {SCORE.name: column})


def run_of(
    cases: CaseSummary, results: Mapping[str, object] | None = None, *, evaluator: str = "vs", specification: str = "s"
) -> RunCases:
    """A finished run with these cases."""
    return RunCases(
        run=f"{evaluator}-run",
        evaluator=evaluator,
        version="1",
        specification=specification,
        report="0",
        records={},
        results=dict(results or {}),
        cases=cases,
    )


def drawn(rng: Random, rate: float, cases: int, repeats: int) -> list[tuple[int, int]]:
    """Passes of so many cases of one rate."""
    return [(sum(rng.random() < rate for _ in range(repeats)), repeats) for _ in range(cases)]


def answered(labels: Sequence[Mapping[str, int]], share: float = 0.7) -> RunCases:
    """A vs run of cases that always pass, by how often each option came; decided as an evaluator decides them."""
    cases = passes([(sum(each.values()), sum(each.values())) for each in labels])
    cases.labels = [dict(each) for each in labels]
    counts = [
        (case, max(each.values(), default=0), sum(each.values())) for case, each in zip(cases.ids, labels, strict=True)
    ]
    verdicts = {case: FIXED_RUNS.verdict(mode, n, share) for case, mode, n in counts if n > 1}
    cases.collapse_p = {case: FIXED_RUNS.p_value(mode, n, share) for case, mode, n in counts if n}
    cases.collapsed = [case for case, verdict in verdicts.items() if verdict == "collapsed"]
    cases.diverse = [case for case, verdict in verdicts.items() if verdict == "diverse"]
    return run_of(cases)
