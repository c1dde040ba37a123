"""How often the intervals of the vs report hold the truth, and how often its verdict is wrong, counted exactly.

    python -m tests.bench.exact_coverage

prints the table of docs/reference/vs-statistics.md. Nothing is drawn: of every distribution all outcomes are gone
through, each with its probability. An interval holds a share exactly if the verdict on that share is inconclusive
(tests/unit/statistics/test_decide.py), so no interval of the mode's share is looked for. The families are those in
which that can be done: two options; one option and answers that never come twice; one option and a few others that
share the rest evenly.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache

from evalq.evalcore.statistics.mode_share import (
    ALPHA,
    FIXED_RUNS,
    collision_interval,
    collision_probability,
    mode_share_p_value,
)
from evalq.evalcore.views.markdown import table as markdown_table

RUNS = (2, 3, 5, 8, 10, 15, 20, 25, 30, 40, 50, 100, 200)
FEW_RUNS = (2, 3, 5, 8, 12)
LOW = (0.02, 0.05, 0.1, 0.12, 0.15, 0.2, 0.3, 0.4, 0.45)
HIGH = (0.5, 0.505, 0.55, 0.6, 0.65, 0.69, 0.7, 0.71, 0.75, 0.8, 0.9, 0.95, 0.98, 0.99, 0.999)
SHARES = (*LOW, *HIGH)
OTHERS = (2, 3)
COLLAPSE_SHARES = (0.3, 0.5, 0.501, 0.505, 0.51, 0.55, 0.6, 0.7, 0.9)
FAMILIES = ("two options", "one option, the rest never twice", *(f"one option, {others} others" for others in OTHERS))
COLUMNS = ("answers", "cells", "mode share", "collision probability", "p ≤ 2.5 % at the mode's share", "wrong verdict")

Outcome = tuple[float, tuple[int, ...]]


@dataclass(frozen=True)
class Cell:
    """What holds for one distribution and number of runs: probabilities, each a sum over all outcomes.

    ``surprised`` is the chance of a p-value of ALPHA or less at the mode's own share, ``wrong`` the most, over
    thresholds, of collapsed though the mode has the threshold at most, or of diverse though it has it at least.
    """

    share: float
    runs: int
    mode_share: float
    collision: float
    surprised: float
    wrong: float


def outcomes(family: str, share: float, runs: int) -> tuple[list[Outcome], float, float]:
    """(probability, counts) of everything that may come of ``runs``; the mode's share; the chance that two agree."""
    single = [math.comb(runs, k) * share**k * (1 - share) ** (runs - k) for k in range(runs + 1)]
    if family == FAMILIES[0]:
        found = [(single[k], tuple(c for c in (k, runs - k) if c)) for k in range(runs + 1)]
        return found, max(share, 1 - share), share**2 + (1 - share) ** 2
    if family == FAMILIES[1]:
        return [(single[k], (*([k] * (k > 0)), *[1] * (runs - k))) for k in range(runs + 1)], share, share**2
    others = int(family.split()[2])
    each = (1 - share) / others
    found = []
    for counts in _compositions(runs, others + 1):
        ways = math.factorial(runs) // math.prod(map(math.factorial, counts))
        found.append((ways * share ** counts[0] * each ** (runs - counts[0]), tuple(c for c in counts if c)))
    return found, max(share, each), share**2 + others * each**2


def _compositions(total: int, parts: int) -> Iterator[tuple[int, ...]]:
    if parts == 1:
        yield (total,)
        return
    for first in range(total + 1):
        for rest in _compositions(total - first, parts - 1):
            yield (first, *rest)


# The same counts come again at every share; only their probabilities differ.
_verdict = cache(FIXED_RUNS.verdict)
_p_value = cache(mode_share_p_value)


@cache
def _collision_interval(counts: tuple[int, ...]) -> tuple[float, float]:
    estimate = collision_probability(counts)
    assert estimate is not None
    return collision_interval(estimate, max(counts), sum(counts))


def measure(family: str, share: float, runs: int) -> Cell:
    """Go through one cell."""
    found, mode, agree = outcomes(family, share, runs)
    held_mode, held_agree, surprised = [], [], []
    wrong: dict[float, list[float]] = {threshold: [] for threshold in COLLAPSE_SHARES}
    for chance, counts in found:
        m = max(counts)
        held_mode.append(chance * (_verdict(m, runs, mode) == "inconclusive"))
        surprised.append(chance * (_p_value(m, runs, mode) <= ALPHA))
        low, high = _collision_interval(counts)
        held_agree.append(chance * (low <= agree <= high))
        for threshold, mistakes in wrong.items():
            said = _verdict(m, runs, threshold)
            mistakes.append(chance * (said == ("collapsed" if mode <= threshold else "diverse")))
    worst = max(math.fsum(mistakes) for mistakes in wrong.values())
    return Cell(share, runs, math.fsum(held_mode), math.fsum(held_agree), math.fsum(surprised), worst)


@cache
def cells(family: str) -> tuple[Cell, ...]:
    """All cells of a family."""
    numbers = RUNS if family in FAMILIES[:2] else FEW_RUNS
    return tuple(measure(family, share, runs) for runs in numbers for share in SHARES)


def row(family: str) -> tuple[object, ...]:
    """A family's line of the table: the worst of its cells."""
    every = cells(family)
    return (
        family,
        len(every),
        f"{min(cell.mode_share for cell in every):.4f}",
        f"{min(cell.collision for cell in every):.4f}",
        f"{max(cell.surprised for cell in every):.4f}",
        f"{max(cell.wrong for cell in every):.4f}",
    )


def main() -> None:
    """Print the table."""
    sys.stdout.write(markdown_table(COLUMNS, [row(family) for family in FAMILIES]))


if __name__ == "__main__":
    main()
