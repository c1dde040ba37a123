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
from evalq.evalcore.compare.looks import SCREEN, Errors, Look, confirming
from evalq.evalcore.compare.pairs import pairs_of
from evalq.evalcore.compare.summary import CaseSummary, Column
from evalq.evalcore.contract.measures import Measure

PASS = Measure("pass_rate")
MARGIN, COMMITS, RUNS = 0.05, 100, 11
CELLS = [(10, 5), (30, 5), (100, 1), (100, 5)]
RATES = (0.5, 0.9)
RULES = ("counted", "confirmed", "neither")
LATE = 6
"""The confirmation that the hundredth commit would have, by five false alarms in a hundred before it."""


class Cell(NamedTuple):
    """Cases, repeats of a candidate (the baseline has four times as many), their mean pass rate, and who counts."""

    cases: int
    repeats: int
    rate: float
    rule: str


Decided = Literal["GO", "NO-GO", "INCONCLUSIVE"]


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


class _Gate:
    """A gate over one history: its rule, and how often it has looked and confirmed."""

    def __init__(self, rng: np.random.Generator, cell: Cell, base: np.ndarray, looks: int = 0, asked: int = 0) -> None:
        self._rng, self._cell, self._rates = rng, cell, base
        self._base = _drawn(rng, base, 4 * cell.repeats)
        self._looks, self._asked = looks, asked

    def decide(self, rates: np.ndarray, draw: int = 1) -> Decided:
        """On fresh answers of a candidate, the ``draw``-th of them."""
        self._looks += 1
        errors = Look(self._looks, draw).errors
        if self._cell.rule == "neither":
            errors = Errors()
        elif self._cell.rule == "confirmed":
            errors = Errors(SCREEN, errors.go)
        decided = self._held(self._base, _drawn(self._rng, rates, self._cell.repeats), errors)
        if decided == "NO-GO" and self._cell.rule == "confirmed":
            self._asked += 1
            base, cand = (_drawn(self._rng, each, 2 * self._cell.repeats) for each in (self._rates, rates))
            return "NO-GO" if self._held(base, cand, confirming(self._asked)) == "NO-GO" else "INCONCLUSIVE"
        return decided

    @staticmethod
    def _held(base: CaseSummary, cand: CaseSummary, errors: Errors) -> Decided:
        seen = estimate(pairs_of(base, cand, PASS), PASS, errors.go)
        if seen.low > -MARGIN:
            return "GO"
        return "NO-GO" if seen.p_worse <= errors.no_go else "INCONCLUSIVE"


def _simulated(cell: Cell, seed: list[int], histories: int) -> Found:
    rng = np.random.default_rng(seed)
    stopped, went, at_last, first, last = [], [], [], [], []
    for _ in range(histories):
        rates = rng.beta(4 * cell.rate, 4 * (1 - cell.rate), cell.cases)
        stopped.append(_history(_Gate(rng, cell, rates), rates))
        fell = np.clip(rates - MARGIN, 0, 1)
        fell += (rates.mean() - MARGIN - fell.mean()) * (fell > 0.1) / max(1e-9, (fell > 0.1).mean())
        ends = list(_ends(_Gate(rng, cell, rates), fell, again_if_stopped=cell.rule == "neither"))
        went.append(ends[0] == "GO")
        at_last.append(ends[-1] == "GO")
        much = np.clip(rates - 0.2, 0, 1)
        first.append(_Gate(rng, cell, rates).decide(much) == "NO-GO")
        last.append(_Gate(rng, cell, rates, COMMITS - 1, LATE - 1).decide(much) == "NO-GO")
    return Found(*(float(np.mean(each)) for each in (stopped, went, at_last, first, last)))


def _history(gate: _Gate, rates: np.ndarray) -> bool:
    """Whether any of a hundred unchanged commits is stopped."""
    return any("NO-GO" in _ends(gate, rates, again_if_stopped=False) for _ in range(COMMITS))


def _ends(gate: _Gate, rates: np.ndarray, *, again_if_stopped: bool) -> Iterator[Decided]:
    """How a commit's job ends, each time that it is run until it goes."""
    for draw in range(1, RUNS + 1):
        yield (decided := gate.decide(rates, draw))
        if decided == "GO" or (decided == "NO-GO" and not again_if_stopped):
            return


def _drawn(rng: np.random.Generator, rates: np.ndarray, repeats: int) -> CaseSummary:
    passed = rng.binomial(repeats, np.clip(rates, 0, 1)).astype(float).tolist()
    column = Column([repeats] * len(rates), passed, passed)
    return CaseSummary([PASS], [f"{n:05d}" for n in range(len(rates))], [0] * len(rates), {PASS.name: column})


def _page(cells: list[Cell], found: list[Found], histories: int, seed: int) -> Iterator[str]:
    yield "# How often a history of commits is wrong"
    yield ""
    yield f"Made by `python -m tests.bench.look_errors --histories {histories} --seed {seed}`:"
    yield f"{histories:,} histories a row, each a baseline and {COMMITS} commits held to it with a margin of .05."
    yield f"A job that is inconclusive is run again with fresh answers, up to {RUNS - 1} times. The baseline has four"
    yield "times the repeats of a candidate. Looks are counted as [decision 16](../decisions/0016-looks-are-counted.md)"
    yield "says, or confirmed (`evalq gate --confirm`), or neither. No share is known better than to .03."
    yield ""
    yield "- **NO-GO**: of histories without any change, those in which some commit is stopped. Allowed: .05."
    yield "- **GO**: of commits that fell by the margin, those that go at once. Allowed: .05."
    yield "- **GO at last**: of them, those that go when the job is run again until it does. Allowed: .05."
    yield "- **seen first**, **seen last**: of commits that fell by 20 points, those that are stopped at once: as the"
    yield f"  first look at a baseline, and as the hundredth (the {LATE}th confirmation). What counting costs."
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
