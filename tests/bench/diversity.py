"""How often the intervals and verdicts of diversity are right, in simulation; ``python -m tests.bench.diversity``.

Over cases: the chance that two answers to a case are of one kind, mean over these cases, of which each has a
distribution of its own. Prints Markdown.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable, Iterator, Mapping
from itertools import product

import numpy as np
from numpy import float64
from numpy.typing import NDArray

from evalq.evalcore.modes.intervals import collision_interval, collision_probability, mean_interval
from evalq.evalcore.views.markdown import table

__all__ = ["AGENTS", "LEAST", "agreement_coverage"]

LEAST = 0.93
"""What every interval of 95 % has to hold in."""
_CASES = (1, 2, 5, 30)
_ANSWERS = (2, 5, 20, 100)
_KINDS = 10

Shares = NDArray[float64]


def _dirichlet(size: float) -> Callable[[np.random.Generator], Shares]:
    return lambda source: source.dirichlet([size] * _KINDS)


def _mixed(collapsed: float) -> Callable[[np.random.Generator], Shares]:
    """That part of the cases always gets one answer, the others ten kinds alike."""
    one, all_alike = np.eye(_KINDS)[0], np.full(_KINDS, 1 / _KINDS)
    return lambda source: one if source.random() < collapsed else all_alike


AGENTS: Mapping[str, Callable[[np.random.Generator], Shares]] = {
    "ten kinds alike": _mixed(0.0),
    "kinds vary little": _dirichlet(5.0),
    "kinds vary": _dirichlet(0.5),
    "one kind mostly": _dirichlet(0.05),
    "half collapsed": _mixed(0.5),
    "one in ten collapsed": _mixed(0.1),
    "one in fifty answers differs": lambda source: np.array([0.98, 0.02]),
    "all collapsed": _mixed(1.0),
}
"""How a case's shares are drawn."""


def agreement_coverage(
    agent: str, cases: int, answers: int, times: int, source: np.random.Generator
) -> tuple[float, float]:
    """How often the interval holds the mean over ``cases``, and how wide it is on average."""
    held, wide = 0, 0.0
    for _ in range(times):
        shares = [AGENTS[agent](source) for _ in range(cases)]
        truth = sum(float((each**2).sum()) for each in shares) / cases
        found = [_estimate(source.multinomial(answers, each).tolist()) for each in shares]
        bounds = mean_interval(found, [1.0] * cases)
        assert bounds is not None
        held += bounds[0] - 1e-12 <= truth <= bounds[1] + 1e-12
        wide += bounds[1] - bounds[0]
    return held / times, wide / times


def _estimate(counts: list[int]) -> tuple[float, float, float]:
    value = collision_probability(counts)
    assert value is not None
    return value, *collision_interval(value, max(counts), sum(counts))


def _rows(times: int, source: np.random.Generator) -> Iterator[tuple[object, ...]]:
    for cases, answers in product(_CASES, _ANSWERS):
        told = [agreement_coverage(agent, cases, answers, times, source) for agent in AGENTS]
        least = min(share for share, _ in told)
        yield cases, answers, *(f"{share:.1%} ({wide:.2f})" for share, wide in told), f"{least:.1%}"


def main() -> None:
    """The table, and what it is known to."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.diversity", description=__doc__)
    parser.add_argument("--times", type=int, default=1000, help="simulated runs a cell")
    parser.add_argument("--seed", type=int, default=20261123)
    asked = parser.parse_args()
    source = np.random.default_rng(asked.seed)
    print(table(("cases", "answers of each", *AGENTS, "least"), list(_rows(asked.times, source))))
    error = 1.96 * math.sqrt(0.05 * 0.95 / asked.times)
    print(f"{asked.times} runs a cell, seed {asked.seed}; a share near 95 % is known to {error:.1%}.")


if __name__ == "__main__":
    main()
