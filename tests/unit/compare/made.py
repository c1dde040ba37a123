"""Runs as comparisons see them, from counts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from random import Random

from evalq.evalcore.compare.summary import CaseColumn, CaseSummary, RunCases, Taking
from evalq.evalcore.contract.measures import Measure, Number, spread_of
from evalq.evalcore.statistics.mode_share import FIXED_RUNS
from evalq.evalcore.statistics.quantiles import Quantiles

PASS = Measure("pass_rate")
SCORE = Measure("mean_score", "score")


def passes(rows: Sequence[tuple[int, int]], missing: Sequence[int] = (), ids: Sequence[str] = ()) -> CaseSummary:
    """A run of cases, each (passes, answers)."""
    names = list(ids) or [f"c{number:06d}" for number in range(len(rows))]
    passed = [float(m) for m, _ in rows]
    column = CaseColumn([n for _, n in rows], passed, list(passed))
    return CaseSummary([PASS], names, list(missing) or [0] * len(rows), {PASS.name: column})


def scores(rows: Sequence[Sequence[float]]) -> CaseSummary:
    """A run of cases, each the scores of its answers."""
    column = CaseColumn(
        [len(row) for row in rows], [sum(row) for row in rows], [sum(x * x for x in row) for row in rows]
    )
    return CaseSummary([SCORE], [f"c{n}" for n in range(len(rows))], [0] * len(rows), {SCORE.name: column})


def run_of(
    cases: CaseSummary,
    results: Mapping[str, object] | None = None,
    *,
    evaluator: str = "vs",
    specification: str = "s",
    facts: Sequence[str] = (),
) -> RunCases:
    """A finished run with these cases; ``facts`` are numbers of the results that are counted in it."""
    return RunCases(
        run=f"{evaluator}-run",
        evaluator=evaluator,
        version="1",
        specification=specification,
        report="0",
        records={},
        results=dict(results or {}),
        cases=cases,
        numbers=[Number(name) for name in facts],
    )


def taken(
    values: Sequence[Sequence[float]], *, missing: int = 0, name: str = "latency_seconds", evaluator: str = "checks"
) -> RunCases:
    """A run of cases, each by what its answers took; each lacks so many ``missing`` more."""
    taking = Taking([name])
    cases = passes([(len(each), len(each)) for each in values], [missing] * len(values))
    for case, each in zip(cases.ids, values, strict=True):
        for value in each:
            taking.add(case, [value])
    run = run_of(cases, evaluator=evaluator)
    run.took = taking.by_name(dict(zip(cases.ids, cases.missing, strict=True)))
    run.numbers = list(spread_of(name, {"p50": 0.5, "p95": 0.95, "p99": 0.99}))
    sketch = run.took[name].sketch if run.took else Quantiles()
    run.results = {
        name: {
            "mean": sketch.mean(),
            "total": sketch.total.value(),
            "max": sketch.most,
            "count": sketch.count,
            **{f"p{share}": sketch.quantile(share / 100) for share in (50, 95, 99)},
        }
    }
    return run


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
