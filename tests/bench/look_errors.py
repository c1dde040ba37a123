"""How often whole histories of commits are wrong, simulated; prints docs/reference/look-errors.md.

    python -m tests.bench.look_errors --histories 400 --seed 1 > docs/reference/look-errors.md

A history is a baseline and a hundred commits held to it, one after another, by what commands decide with: the look's
errors, the interval and the exact p-value. Where a commit is not let go its job is run again with fresh answers, ten
times at most. The files' count of looks is used as it is. Compared with it: the same gate without a count.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from itertools import product
from typing import Literal, NamedTuple

import numpy as np

from evalq.evalcore.compare.comparison import estimate
from evalq.evalcore.compare.looks import Errors, Look
from evalq.evalcore.compare.pairs import pairs_of
from evalq.evalcore.compare.summary import CaseSummary, Column
from evalq.evalcore.contract.measures import Measure

PASS = Measure("pass_rate")
MARGIN, COMMITS, RUNS = 0.05, 100, 11
CELLS = [(10, 5), (30, 5), (100, 1), (100, 5)]
RATES = (0.5, 0.9)
RULES = ("counted", "not counted")


class Cell(NamedTuple):
    """Cases, repeats of a candidate (the baseline has four times as many), their mean pass rate, and who counts."""

    cases: int
    repeats: int
    rate: float
    rule: str


class Found(NamedTuple):
    """Shares: of histories with a false NO-GO; of commits that fell by the margin and went, at once and after all runs;
    of commits that fell by 20 points and were stopped, first or as the hundredth.
    """

    stopped: float
    went: float
    went_at_last: float
    seen_first: float
    seen_last: float


def main() -> None:
    """Simulate every cell, and print the page."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--histories", type=int, default=400, help="histories a cell")
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    cells = [Cell(*size, rate, rule) for size, rate, rule in product(CELLS, RATES, RULES)]
    with ProcessPoolExecutor() as pool:
        seeds = [[given.seed, number // len(RULES)] for number in range(len(cells))]  # the same answers for both rules
        found = list(pool.map(_simulated, cells, seeds, [given.histories] * len(cells)))
    sys.stdout.write("\n".join(_page(cells, found, given.histories, given.seed)) + "\n")


def _simulated(cell: Cell, seed: list[int], histories: int) -> Found:
    rng = np.random.default_rng(seed)
    stopped, went, at_last, first, last = [], [], [], [], []
    for _ in range(histories):
        rates = rng.beta(4 * cell.rate, 4 * (1 - cell.rate), cell.cases)
        base = _drawn(rng, rates, 4 * cell.repeats)
        stopped.append(_history(rng, cell, base, rates))
        fell = np.clip(rates - MARGIN, 0, 1)
        fell += (rates.mean() - MARGIN - fell.mean()) * (fell > 0.1) / max(1e-9, (fell > 0.1).mean())
        ends = [_decided(cell, base, _drawn(rng, fell, cell.repeats), Look(1, draw)) for draw in range(1, RUNS + 1)]
        went.append(ends[0] == "GO")
        at_last.append(_at_last(ends, counted=cell.rule == "counted") == "GO")
        much = _drawn(rng, np.clip(rates - 0.2, 0, 1), cell.repeats)
        first.append(_decided(cell, base, much, Look(1)) == "NO-GO")
        last.append(_decided(cell, base, much, Look(COMMITS)) == "NO-GO")
    return Found(*(float(np.mean(each)) for each in (stopped, went, at_last, first, last)))


Decided = Literal["GO", "NO-GO", "INCONCLUSIVE"]


def _history(rng: np.random.Generator, cell: Cell, base: CaseSummary, rates: np.ndarray) -> bool:
    """Whether any of a hundred unchanged commits is stopped, each run again while it is inconclusive."""
    number = 0
    for _ in range(COMMITS):
        for draw in range(1, RUNS + 1):
            number += 1
            decided = _decided(cell, base, _drawn(rng, rates, cell.repeats), Look(number, draw))
            if decided == "NO-GO":
                return True
            if decided == "GO":
                break
    return False


def _at_last(ends: list[Decided], *, counted: bool) -> Decided:
    """Where a job ends that is run again until it goes: counted, a NO-GO is the end of it."""
    for end in ends:
        if end == "GO" or (counted and end == "NO-GO"):
            return end
    return ends[-1]


def _decided(cell: Cell, base: CaseSummary, cand: CaseSummary, look: Look) -> Decided:
    errors = look.errors if cell.rule == "counted" else Errors()
    seen = estimate(pairs_of(base, cand, PASS), PASS, errors.go)
    if seen.low > -MARGIN:
        return "GO"
    return "NO-GO" if seen.p_worse <= errors.no_go else "INCONCLUSIVE"


def _drawn(rng: np.random.Generator, rates: np.ndarray, repeats: int) -> CaseSummary:
    passed = rng.binomial(repeats, np.clip(rates, 0, 1)).astype(float).tolist()
    column = Column([repeats] * len(rates), passed, passed)
    return CaseSummary([PASS], [f"{n:05d}" for n in range(len(rates))], [0] * len(rates), {PASS.name: column})


def _page(cells: list[Cell], found: list[Found], histories: int, seed: int) -> Iterator[str]:
    yield "# How often a history of commits is wrong"
    yield ""
    yield f"Made by `python -m tests.bench.look_errors --histories {histories} --seed {seed}`: {histories:,} histories a row,"
    yield f"each a baseline and {COMMITS} commits held to it with a margin of .05. A job that is inconclusive is run again with"
    yield f"fresh answers, up to {RUNS - 1} times. The baseline has four times the repeats of a candidate. Looks are counted"
    yield "as [decision 16](../decisions/0016-looks-are-counted.md) says, or not at all."
    yield ""
    yield "- **NO-GO**: of histories without any change, those in which some commit is stopped. Allowed: .05."
    yield "- **GO**: of commits that fell by the margin, those that go at once. Allowed: .05."
    yield "- **GO at last**: of them, those that go when the job is run again until it does. Allowed: .05."
    yield "- **seen first**, **seen last**: of commits that fell by 20 points, those that are stopped at once: as the"
    yield "  first look at a baseline, and as the hundredth. What counting costs."
    yield ""
    yield "| cases | repeats | rate | looks | NO-GO | GO | GO at last | seen first | seen last |"
    yield "| ---: | ---: | ---: | --- | ---: | ---: | ---: | ---: | ---: |"
    for cell, each in zip(cells, found, strict=True):
        shares = " | ".join(_share(share) for share in each)
        yield f"| {cell.cases} | {cell.repeats} | {cell.rate:g} | {cell.rule} | {shares} |"


def _share(value: float) -> str:
    return f"{value:.3f}".lstrip("0") if value else "0"


if __name__ == "__main__":
    main()
