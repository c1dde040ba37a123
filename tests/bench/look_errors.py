"""How often whole histories of commits are wrong, simulated; prints docs/reference/look-errors.md.

    python -m tests.bench.look_errors --histories 150 --seed 1 > docs/reference/look-errors.md

A history is a baseline and commits held to it, one after another, by what a gate decides with: the errors of the look,
the demand of a drop and the veto of named cases. Where a commit is not let go its job is run again with fresh answers,
ten times at most. Compared with it: the same gate without a count.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from itertools import product
from typing import NamedTuple

import numpy as np

from evalq.evalcore.compare.decision import Decided, overall
from evalq.evalcore.compare.pairs import Pairs, Side
from evalq.evalcore.compare.spending import SCREEN, Errors, GateLook, confirmation_errors
from tests.bench.gate_errors import MARGIN, checks_of, fallen

COMMITS, RUNS = 100, 11
LOOKS = {"counted": 20, "confirmed": 60, "neither": 20}
"""How many looks a history has here. The later ones may spend next to nothing: those after the twentieth .0012 each way
in all, counted. A confirmation comes with every twentieth look."""
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


class Found(NamedTuple):
    """Shares: of histories with a false NO-GO or SUSPECT; of commits that fell by half the margin, run again and again,
    that are NO-GO in the end; of commits that fell by the margin and went, at once and after all runs; of commits that
    fell by 20 points and were stopped, first or as the hundredth.
    """

    stopped: float
    half: float
    went: float
    went_at_last: float
    seen_first: float
    seen_last: float


def main() -> None:
    """Simulate every cell, and print the page."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--histories", type=int, default=150, help="histories a cell")
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    cells = [Cell(*size, rate, rule) for size, rate, rule in product(CELLS, RATES, RULES)]
    with ProcessPoolExecutor(2) as pool:
        seeds = [[given.seed, number // len(RULES)] for number in range(len(cells))]  # the same answers for both rules
        found = list(pool.map(_simulated, cells, seeds, [given.histories] * len(cells)))
    sys.stdout.write("\n".join(_page(cells, found, given.histories, given.seed)) + "\n")


class _Gate:
    """A gate over one history: its rule, and how often it has looked and confirmed."""

    def __init__(self, rng: np.random.Generator, cell: Cell, base: np.ndarray, looks: int = 0, asked: int = 0) -> None:
        self._rng, self._cell, self._rates = rng, cell, base
        self._base = _drawn(rng, base, 4 * cell.repeats)
        self.looks, self._asked = looks, asked

    def decide(self, rates: np.ndarray, draw: int = 1) -> Decided:
        """On fresh answers of a candidate, the ``draw``-th of them."""
        self.looks += 1
        errors = GateLook(self.looks, draw).errors
        if self._cell.rule == "neither":
            errors = Errors()
        elif self._cell.rule == "confirmed":
            errors = Errors(SCREEN, errors.go)
        decided = _held(self._base, _drawn(self._rng, rates, self._cell.repeats), errors)
        if decided in STOPPED and self._cell.rule == "confirmed":
            self._asked += 1
            base, cand = (_drawn(self._rng, each, 2 * self._cell.repeats) for each in (self._rates, rates))
            return _held(base, cand, confirmation_errors(self._asked)._replace(go=errors.go))
        return decided


STOPPED: tuple[Decided, ...] = ("NO-GO", "SUSPECT")


def _held(base: Side, cand: Side, errors: Errors) -> Decided:
    pairs = Pairs([f"{n:03d}" for n in range(len(base.answers))], base, cand, [], [], 0)
    return overall(checks_of(pairs, MARGIN, errors), errors.no_go)[0]


def _simulated(cell: Cell, seed: list[int], histories: int) -> Found:
    rng = np.random.default_rng(seed)
    stopped, half, went, at_last, first, last = [], [], [], [], [], []
    for _ in range(histories):
        rates = rng.beta(4 * cell.rate, 4 * (1 - cell.rate), cell.cases)
        stopped.append(_history(_Gate(rng, cell, rates), rates, LOOKS[cell.rule]))
        half.append("NO-GO" in _ends(_Gate(rng, cell, rates), fallen(rates, MARGIN / 2), again_if_stopped=True))
        ends = list(_ends(_Gate(rng, cell, rates), fallen(rates, MARGIN), again_if_stopped=True))
        went.append(ends[0] == "GO")
        at_last.append(ends[-1] == "GO")
        much = fallen(rates, 0.2)
        first.append(_Gate(rng, cell, rates).decide(much) in STOPPED)
        last.append(_Gate(rng, cell, rates, COMMITS - 1, LATE - 1).decide(much) in STOPPED)
    return Found(*(float(np.mean(each)) for each in (stopped, half, went, at_last, first, last)))


def _history(gate: _Gate, rates: np.ndarray, looks: int) -> bool:
    """Whether any of the looks at unchanged commits stops one."""
    while gate.looks < looks:
        for decided in _ends(gate, rates, again_if_stopped=False):
            if decided in STOPPED:
                return True
            if gate.looks >= looks:
                break
    return False


def _ends(gate: _Gate, rates: np.ndarray, *, again_if_stopped: bool) -> Iterator[Decided]:
    """How a commit's job ends, each time that it is run until it goes."""
    for draw in range(1, RUNS + 1):
        yield (decided := gate.decide(rates, draw))
        if decided == "GO" or (decided in STOPPED and not again_if_stopped):
            return


def _drawn(rng: np.random.Generator, rates: np.ndarray, repeats: int) -> Side:
    passed = rng.binomial(repeats, np.clip(rates, 0, 1)).astype(float)
    return Side(np.full(len(rates), repeats), passed, passed)


def _page(cells: list[Cell], found: list[Found], histories: int, seed: int) -> Iterator[str]:
    yield "# How often a history of commits is wrong"
    yield ""
    yield f"Made by `python -m tests.bench.look_errors --histories {histories} --seed {seed}`:"
    yield f"{histories:,} histories a row, each a baseline and commits held to it with a margin of .05. The baseline"
    yield "has four times the repeats of a candidate. A job that does not end with GO runs again with fresh answers,"
    yield f"up to {RUNS - 1} times. Looks are counted as [decision 16](../decisions/0016-looks-are-counted.md) says"
    yield f"({LOOKS['counted']} of them, which can spend .95 of the error), or confirmed ({LOOKS['confirmed']} looks,"
    yield f"`evalq gate --confirm`), or neither ({LOOKS['neither']} looks). No share is known better than to .07."
    yield ""
    yield "- **stopped**: the share of histories without any change that have a NO-GO or SUSPECT. Allowed: .05."
    yield "- **half**: the share of commits half a margin worse that are NO-GO in any of 11 runs. Allowed: .05."
    yield "- **GO**: the share of commits worse by the margin that get GO at once. Allowed: .05."
    yield "- **GO at last**: the share of them that get GO when the job runs again until it does. Allowed: .05."
    yield "- **seen first**, **seen last**: the share of commits worse by 20 points that are NO-GO or SUSPECT at once:"
    yield f"  as the first look at a baseline, and as the hundredth (the {LATE}th confirmation). What counting costs."
    yield ""
    yield "| cases | repeats | rate | looks | stopped | half | GO | GO at last | seen first | seen last |"
    yield "| ---: | ---: | ---: | --- | ---: | ---: | ---: | ---: | ---: | ---: |"
    for cell, each in zip(cells, found, strict=True):
        shares = " | ".join(_share(share) for share in each)
        yield f"| {cell.cases} | {cell.repeats} | {cell.rate:g} | {cell.rule} | {shares} |"
    for rule in RULES:
        of_rule = [each for cell, each in zip(cells, found, strict=True) if cell.rule == rule]
        shares = " | ".join(f"**{_share(float(share))}**" for share in np.mean(np.array(of_rule), axis=0))
        yield f"| | | | **{rule}, all** | {shares} |"


def _share(value: float) -> str:
    return f"{value:.3f}".lstrip("0") if value else "0"


if __name__ == "__main__":
    main()
