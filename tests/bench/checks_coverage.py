"""How often the intervals of a checks report hold the truth, in simulation; ``python -m tests.bench.checks_coverage``.

Of one case: the pass rate, pass@k and pass^k over a number of answers that was fixed. Over cases: the mean rate of
cases like these, which differ by a beta distribution of a given correlation within a case. Prints Markdown.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Iterator, Sequence
from itertools import product

import numpy as np

from evalq.evalcore.statistics.distributions import at_least, at_most
from evalq.evalcore.statistics.rates import Rate, clustered, exact_interval
from evalq.evalcore.views.markdown import table

LEAST = 0.93
"""What every interval of 95 % has to hold in."""
_RATES = (0.0, 0.02, 0.1, 0.3, 0.5, 0.8, 0.95, 0.99, 1.0)
_ANSWERS = (1, 2, 3, 5, 10, 20, 50)
_CASES = (2, 3, 5, 10, 30)
_REPEATS = (1, 5, 20)
_MEANS = (0.0, 0.5, 0.8, 0.95, 0.99, 1.0)
_CORRELATIONS = (0.0, 0.1, 0.5, 0.9)


def case_coverage(rate: float, answers: int) -> float:
    """How often the exact interval of ``answers`` holds ``rate``: a sum over all numbers of passes, no simulation.

    That of pass@k and of pass^k is the same: both rise with the rate, and so do their bounds.
    """
    held = 0.0
    for passed in range(answers + 1):
        low, high = exact_interval(passed, answers)
        if low - 1e-12 <= rate <= high + 1e-12:
            held += _chance(passed, answers, rate)
    return held


def _chance(passed: int, answers: int, rate: float) -> float:
    if rate in (0.0, 1.0):
        return float(passed == round(answers * rate))
    return at_least(passed, answers, rate) + at_most(passed, answers, rate) - 1.0


def clustered_coverage(
    cases: int, repeats: int, mean: float, correlation: float, times: int, source: np.random.Generator
) -> tuple[float, float]:
    """How often the interval over ``cases`` holds the mean of all such cases, and how wide it is on average."""
    held, wide = 0, 0.0
    for _ in range(times):
        chances = _chances(cases, mean, correlation, source)
        passed = source.binomial(repeats, chances)
        found = clustered([Rate(count / repeats, repeats) for count in passed.tolist()])
        assert found is not None
        held += found.low - 1e-12 <= mean <= found.high + 1e-12
        wide += found.high - found.low
    return held / times, wide / times


def _chances(cases: int, mean: float, correlation: float, source: np.random.Generator) -> Sequence[float]:
    if correlation == 0.0 or mean in (0.0, 1.0):
        return [mean] * cases
    size = 1 / correlation - 1
    drawn: list[float] = source.beta(mean * size, (1 - mean) * size, cases).tolist()
    return drawn


def _case_rows() -> Iterator[tuple[object, ...]]:
    for answers in _ANSWERS:
        found = [case_coverage(rate, answers) for rate in _RATES]
        yield answers, *(f"{share:.1%}" for share in found), f"{min(found):.1%}"


def _clustered_rows(times: int, source: np.random.Generator) -> Iterator[tuple[object, ...]]:
    for cases, repeats in product(_CASES, _REPEATS):
        row: list[str] = []
        least = 1.0
        for mean in _MEANS:
            messages = [clustered_coverage(cases, repeats, mean, each, times, source) for each in _CORRELATIONS]
            worst = min(share for share, _ in messages)
            least = min(least, worst)
            row.append(f"{worst:.1%} ({messages[0][1]:.2f} to {messages[-1][1]:.2f})")
        yield cases, repeats, *row, f"{least:.1%}"


def main() -> None:
    """Both tables, and the least of all."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.checks_coverage", description=__doc__)
    parser.add_argument("--times", type=int, default=2000, help="simulated runs a cell")
    parser.add_argument("--seed", type=int, default=20261123)
    asked = parser.parse_args()
    heads = [f"{rate:g}" for rate in _RATES]
    print(table(("answers", *(f"rate {head}" for head in heads), "least"), list(_case_rows())))
    source = np.random.default_rng(asked.seed)
    rows = list(_clustered_rows(asked.times, source))
    print(table(("cases", "answers of each", *(f"mean {mean:g}" for mean in _MEANS), "least"), rows))
    error = 1.96 * math.sqrt(0.05 * 0.95 / asked.times)
    print(f"{asked.times} runs a cell, seed {asked.seed}; a share near 95 % is known to {error:.1%}.")


if __name__ == "__main__":
    main()
