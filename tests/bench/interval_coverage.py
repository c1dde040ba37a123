"""How often the two intervals of the vs report hold the truth, and how often its verdict is wrong, by simulation.

    python tests/bench/interval_coverage.py [--draws 4000] [--seed 20260301]

prints the table of docs/reference/vs-statistics.md. Answers are drawn from known distributions; a verdict is wrong
when it says collapsed though the true mode share is at most the threshold, or diverse though it is at least that.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from evalq.evalcore.statistics.mode_share import collision_interval, collision_probability, mode_share_interval, verdict

DRAWS = 4000
SEED = 20260301
RUNS = (10, 30, 100)
NEAR_THRESHOLD = (0.6, 0.65, 0.69, 0.71, 0.75, 0.8)
COLLAPSE_SHARE = 0.7


@dataclass(frozen=True)
class Cell:
    """What was measured for one distribution and number of runs, each a share of the draws."""

    name: str
    runs: int
    mode_share: float
    collision: float
    wrong: float


def _with_mode(share: float, others: int) -> list[float]:
    return [share, *[(1 - share) / others] * others]


def distributions() -> dict[str, list[float]]:
    """Probabilities of the answers, by name."""
    zipf = [1 / rank for rank in range(1, 101)]
    found = {
        "uniform over 5": [1 / 5] * 5,
        "uniform over 50": [1 / 50] * 50,
        "zipf over 100": [weight / sum(zipf) for weight in zipf],
        "collapsed, 0.9 and ten others": _with_mode(0.9, 10),
        "collapsed, 0.99 and ten others": _with_mode(0.99, 10),
        "mode 0.98 and one other": _with_mode(0.98, 1),
    }
    return found | {f"mode {share:g} and six others": _with_mode(share, 6) for share in NEAR_THRESHOLD}


def measure(name: str, shares: list[float], runs: int, draws: int, seed: int) -> Cell:
    """Simulate one cell; the same arguments give the same numbers."""
    generator = np.random.Generator(np.random.PCG64([seed, runs, len(shares), round(1e6 * max(shares))]))
    mode, agreement = max(shares), sum(share * share for share in shares)
    held_mode = held_agreement = wrong = 0
    for drawn in generator.multinomial(runs, shares, size=draws):
        counts = [int(count) for count in drawn if count]
        low, high = mode_share_interval(max(counts), runs)
        held_mode += low <= mode <= high
        said = verdict(low, high, COLLAPSE_SHARE)
        wrong += said == "collapsed" if mode <= COLLAPSE_SHARE else said == "diverse"
        estimate = collision_probability(counts)
        assert estimate is not None
        low, high = collision_interval(estimate, max(counts), runs)
        held_agreement += low <= agreement <= high
    return Cell(name, runs, held_mode / draws, held_agreement / draws, wrong / draws)


def table(draws: int, seed: int) -> Iterator[str]:
    """The lines of the table in Markdown, with what it was made with."""
    yield f"{draws} draws a cell, seed {seed}, threshold {COLLAPSE_SHARE:g}."
    yield ""
    yield "| answers | runs | mode share | collision probability | wrong verdict |"
    yield "| --- | --- | --- | --- | --- |"
    cells = [measure(name, shares, n, draws, seed) for name, shares in distributions().items() for n in RUNS]
    for cell in cells:
        yield f"| {cell.name} | {cell.runs} | {cell.mode_share:.3f} | {cell.collision:.3f} | {cell.wrong:.4f} |"
    yield ""
    lowest = f"{min(cell.mode_share for cell in cells):.3f} and {min(cell.collision for cell in cells):.3f}"
    yield f"Lowest coverage {lowest}, most wrong verdicts {max(cell.wrong for cell in cells):.4f}."


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--draws", type=int, default=DRAWS)
    parser.add_argument("--seed", type=int, default=SEED)
    asked = parser.parse_args()
    for line in table(asked.draws, asked.seed):
        sys.stdout.write(line + "\n")


if __name__ == "__main__":
    main()
