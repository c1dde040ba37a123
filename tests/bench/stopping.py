"""How often stopping when decided errs, and how many calls it saves, by simulation.

    python -m tests.bench.stopping [--cases 2000] [--seed 20261122]

prints the table of docs/reference/vs-stopping.md. Cases answer at random from known probabilities; each is looked at
after every call and called no more once it has a verdict. Wrong is "collapsed" of a case whose mode has the threshold's
probability or less, and "diverse" of one whose mode has that or more.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np

from evalq.evalcore.statistics.exact import wilson
from evalq.evalcore.statistics.mode_share import FIXED_RUNS, ShareRule, stopping_rule
from evalq.evalcore.views.markdown import table as markdown_table

CASES = 2000
SEED = 20261122
SHARES = (0.3, 0.4, 0.5, 0.6, 0.65, 0.69, 0.71, 0.75, 0.8, 0.9, 0.95, 0.99)
OTHERS = (1, 6)
MOST_CALLS = (100, 1000)
FIXED = 100
COLLAPSE_SHARE = 0.7
COLUMNS = (
    "first answer",
    "others",
    "mode",
    "calls at most",
    "decided",
    f"decided by {FIXED} fixed",
    "wrong (95 %)",
    "ever wrong",
    "mean calls",
    f"saved of {FIXED}",
    "wrong by fixed interval",
)

Ints = np.ndarray[tuple[int], np.dtype[np.int64]]


@dataclass(frozen=True)
class Cell:
    """What was measured of ``cases`` cases: counts of cases, and calls in all.

    ``wrong`` by the verdict at which a case was stopped, ``ever_wrong`` by any verdict that it would have had in
    ``most`` calls, ``fixed_wrong`` had it been stopped by the interval for a fixed number of runs; ``fixed_decided`` by
    that interval as it is meant, looked at once, after FIXED calls.
    """

    shares: tuple[float, ...]
    most: int
    cases: int
    decided: int
    wrong: int
    ever_wrong: int
    calls: int
    fixed_wrong: int
    fixed_decided: int


@cache
def _stopping(most: int) -> ShareRule:
    """One object for each number of calls, so that its limits are looked for once."""
    return stopping_rule(most)


@cache
def limits(rule: ShareRule, most: int) -> tuple[Ints, Ints]:
    """By number of runs up to ``most``: the least count of the mode that is collapsed, the largest that is diverse."""
    collapsed, diverse = np.zeros(most + 1, np.int64), np.zeros(most + 1, np.int64)
    collapsed[0], low, high = 1, 1, 0
    for n in range(1, most + 1):
        while low <= n and not (low > COLLAPSE_SHARE * n and rule.decided(low, n, COLLAPSE_SHARE)):
            low += 1
        while high + 1 < COLLAPSE_SHARE * n and rule.decided(high + 1, n, COLLAPSE_SHARE):
            high += 1
        collapsed[n], diverse[n] = low, high
    return collapsed, diverse


def modes(shares: Sequence[float], most: int, cases: int, seed: int) -> Iterator[Ints]:
    """After each of ``most`` calls, how often each case's commonest answer has come."""
    generator = np.random.Generator(np.random.PCG64([seed, most, len(shares), round(1e6 * shares[0])]))
    ends = np.cumsum(shares)[:-1]
    counts = np.zeros(len(shares) * cases, np.int64)
    every, mode = np.arange(cases), np.zeros(cases, np.int64)
    for _ in range(most):
        at = np.searchsorted(ends, generator.random(cases), side="right") * cases + every
        counts[at] = come = counts[at] + 1
        mode = np.maximum(mode, come)
        yield mode


class _Watch:
    """One rule's verdicts of all cases as they are called."""

    def __init__(self, rule: ShareRule, mode: float, most: int, cases: int) -> None:
        self._collapsed, self._diverse = limits(rule, most)
        self._mode = mode
        self.alive = np.ones(cases, bool)
        self.wrong = np.zeros(cases, bool)
        self.ever_wrong = np.zeros(cases, bool)

    def look(self, n: int, mode_counts: Ints) -> int:
        """Stop the cases that have a verdict after ``n`` calls; how many have one, stopped before or not."""
        collapsed, diverse = mode_counts >= self._collapsed[n], mode_counts <= self._diverse[n]
        mistaken = (collapsed & (self._mode <= COLLAPSE_SHARE)) | (diverse & (self._mode >= COLLAPSE_SHARE))
        self.wrong |= mistaken & self.alive
        self.ever_wrong |= mistaken
        self.alive &= ~(collapsed | diverse)
        return int(np.count_nonzero(collapsed | diverse))


def measure(share: float, others: int, most: int, cases: int, seed: int) -> Cell:
    """Simulate one cell; the same arguments give the same numbers."""
    shares = (share, *[(1 - share) / others] * others)
    sequence, fixed = (_Watch(rule, max(shares), most, cases) for rule in (_stopping(most), FIXED_RUNS))
    calls = fixed_decided = 0
    for n, mode_counts in enumerate(modes(shares, most, cases, seed), start=1):
        calls += int(np.count_nonzero(sequence.alive))
        sequence.look(n, mode_counts)
        decided = fixed.look(n, mode_counts)
        fixed_decided = decided if n == FIXED else fixed_decided
    return Cell(
        shares=shares,
        most=most,
        cases=cases,
        decided=cases - int(sequence.alive.sum()),
        wrong=int(sequence.wrong.sum()),
        ever_wrong=int(sequence.ever_wrong.sum()),
        calls=calls,
        fixed_wrong=int(fixed.wrong.sum()),
        fixed_decided=fixed_decided,
    )


def row(cell: Cell) -> tuple[object, ...]:
    """The cell's line of the table."""
    low, high = wilson(cell.wrong, cell.cases)
    mean = cell.calls / cell.cases
    return (
        f"{cell.shares[0]:g}",
        len(cell.shares) - 1,
        f"{max(cell.shares):.4g}",
        cell.most,
        f"{cell.decided / cell.cases:.1%}",
        f"{cell.fixed_decided / cell.cases:.1%}",
        f"{cell.wrong / cell.cases:.2%} ({low:.2%} to {high:.2%})",
        f"{cell.ever_wrong / cell.cases:.2%}",
        f"{mean:.1f}",
        f"{FIXED - mean:.1f}",
        f"{cell.fixed_wrong / cell.cases:.2%}",
    )


def table(cases: int, seed: int) -> str:
    """The table in Markdown, with what it was made with."""
    cells = [measure(share, others, most, cases, seed) for most in MOST_CALLS for share in SHARES for others in OTHERS]
    worst, fixed = max(cell.ever_wrong for cell in cells), max(cell.fixed_wrong for cell in cells)
    return (
        f"{cases} cases a row, seed {seed}, threshold {COLLAPSE_SHARE:g}.\n\n"
        + markdown_table(COLUMNS, [row(cell) for cell in cells])
        + f"\nMost cases that were ever wrong in a row: {worst / cases:.2%}; "
        f"by the interval for a fixed number of runs: {fixed / cases:.2%}.\n"
    )


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.stopping")
    parser.add_argument("--cases", type=int, default=CASES)
    parser.add_argument("--seed", type=int, default=SEED)
    asked = parser.parse_args()
    sys.stdout.write(table(asked.cases, asked.seed))


if __name__ == "__main__":
    main()
