"""How often comparisons and gates err, simulated; prints docs/reference/gate-errors.md.

    python -m tests.bench.gate_errors --pairs 2000 --seed 1 > docs/reference/gate-errors.md
    python -m tests.bench.repeat_errors --runs 2000 --seed 1 >> docs/reference/gate-errors.md
    python -m tests.bench.live_errors --pairs 600 --seed 1 >> docs/reference/gate-errors.md

Each cell draws pairs of runs from one golden set: cases with their own pass rates around a mean, and a number of
repeats. Nothing is changed between the two, or the candidate's rates fall by just the margin: a little in all cases, or
wholly in some. A false alarm is a verdict other than the same or inconclusive where nothing changed; a false NO-GO is
one there; a false GO is one where the drop is the margin itself.
"""

from __future__ import annotations

import argparse
import math
import sys
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from itertools import product
from typing import NamedTuple

import numpy as np

from evalq.evalcore.compare.comparison import estimate, verdict_of
from evalq.evalcore.compare.decision import Check, overall
from evalq.evalcore.compare.demands import held
from evalq.evalcore.compare.pairs import pairs_of
from evalq.evalcore.compare.policy import Gate
from evalq.evalcore.compare.summary import CaseSummary, Column
from evalq.evalcore.contract.measures import Measure

PASS = Measure("pass_rate")
MARGIN = 0.05
CASES, REPEATS, RATES = (5, 10, 20, 50, 200, 1000), ("1", "3", "10", "2, 5 or 10"), (0.5, 0.9, 1.0)
SHAPES = ("none", "all", "some")


class Cell(NamedTuple):
    """What is drawn: ``shape`` says which cases fall by the margin."""

    cases: int
    repeats: str
    rate: float
    shape: str


class Found(NamedTuple):
    """Of so many ``pairs``: verdicts and decisions, counted."""

    cell: Cell
    pairs: int
    alarms: int
    stops: int
    passes: int


def main() -> None:
    """Simulate every cell, and print the page."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--pairs", type=int, default=2000, help="pairs of runs a cell")
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    cells = [Cell(*each) for each in product(CASES, REPEATS, RATES, SHAPES)]
    with ProcessPoolExecutor() as pool:
        seeds = [[given.seed, number] for number in range(len(cells))]
        found = list(pool.map(_simulated, cells, seeds, [given.pairs] * len(cells)))
        bounds = list(pool.map(_bounded, [c for c in cells if c.shape == "none"], seeds, [given.pairs] * len(cells)))
        holm = list(pool.map(_three_gates, [c for c in cells if c.shape == "none"], seeds, [given.pairs] * len(cells)))
    sys.stdout.write("\n".join(_page(found, bounds, holm, given.pairs, given.seed)) + "\n")


def _rates(rng: np.random.Generator, cell: Cell) -> tuple[np.ndarray, np.ndarray]:
    """Of base and candidate, by case: with a mean of ``rate``, and as varied as Beta with four pseudo-counts."""
    rate = cell.rate
    base = np.full(cell.cases, 1.0) if rate == 1.0 else rng.beta(4 * rate, 4 * (1 - rate), cell.cases)
    if cell.shape == "none":
        return base, base
    if cell.shape == "all":
        lower = np.clip(base - MARGIN, 0, 1)
        return base, lower + (base.mean() - MARGIN - lower.mean()) * (lower > 0.1) / max(1e-9, (lower > 0.1).mean())
    cand, left = base.copy(), MARGIN * cell.cases
    for case in rng.permutation(cell.cases):
        taken = min(left, cand[case])
        cand[case] -= taken
        left -= taken
    return base, cand


def _drawn(rng: np.random.Generator, cell: Cell, rates: np.ndarray) -> CaseSummary:
    if cell.repeats == "2, 5 or 10":
        repeats = np.resize([2, 5, 10], cell.cases)
    else:
        repeats = np.full(cell.cases, int(cell.repeats))
    passed = rng.binomial(repeats, np.clip(rates, 0, 1)).astype(float).tolist()
    column = Column(repeats.tolist(), passed, passed)
    return CaseSummary([PASS], [f"{n:05d}" for n in range(cell.cases)], [0] * cell.cases, {PASS.name: column})


def _simulated(cell: Cell, seed: list[int], pairs: int) -> Found:
    rng = np.random.default_rng(seed)
    alarms = stops = passes = 0
    for _ in range(pairs):
        base, cand = (_drawn(rng, cell, rates) for rates in _rates(rng, cell))
        seen = estimate(pairs_of(base, cand, PASS), PASS)
        alarms += verdict_of(seen, MARGIN) in ("worse", "better")
        passes += seen.low > -MARGIN
        stops += seen.low <= -MARGIN and seen.p_worse <= 0.025
    return Found(cell, pairs, alarms, stops, passes)


def _bounded(cell: Cell, seed: list[int], pairs: int) -> Found:
    """An absolute bound at the true mean: GO and NO-GO are both wrong there, or right by nothing."""
    rng = np.random.default_rng([*seed, 1])
    stops = passes = 0
    for _ in range(pairs):
        rates, _ = _rates(rng, cell)
        (check,) = held(Gate(metric="vs.pass_rate", min=float(rates.mean())), _drawn(rng, cell, rates), PASS)
        stops += check.decided == "NO-GO"
        passes += check.decided == "GO" and cell.rate < 1.0  # at 1 the bound is kept whatever comes
    return Found(cell, pairs, 0, stops, passes)


def _three_gates(cell: Cell, seed: list[int], pairs: int) -> Found:
    """Three critical gates over independent runs, nothing changed: NO-GO by any of them."""
    rng = np.random.default_rng([*seed, 2])
    stops = 0
    for _ in range(pairs // 4):
        checks = []
        for _ in range(3):
            base, cand = (_drawn(rng, cell, rates) for rates in _rates(rng, cell))
            seen = estimate(pairs_of(base, cand, PASS), PASS)
            decided = "NO-GO" if seen.p_worse <= 0.025 else "INCONCLUSIVE"
            checks.append(Check("vs.pass_rate", "", "critical", decided, "", p_margin=seen.p_worse))  # type: ignore[arg-type]  # one of them
        stops += overall(checks)[0] == "NO-GO"
    return Found(cell, pairs // 4, 0, stops, 0)


def _page(found: list[Found], bounds: list[Found], holm: list[Found], pairs: int, seed: int) -> Iterator[str]:
    yield "# How often a gate errs"
    yield ""
    known = 1.96 * math.sqrt(0.025 * 0.975 / pairs)
    yield f"Made by `python -m tests.bench.gate_errors --pairs {pairs} --seed {seed}`: {pairs:,} pairs of runs a cell,"
    yield f"so that a share of .025 is known to {known:.3f}. Every case has a pass rate of its own around the mean; the"
    yield "margin is .05. What the rules are: [gate a pull request](../how-to/gate-a-pull-request.md)."
    yield ""
    cells = len(found) // len(SHAPES)
    yield f"The worst of {cells} cells lies above what all of them share by two to three such errors,"
    yield "by chance alone. Three gates at once were tried with a quarter of the pairs, which doubles theirs."
    yield ""
    yield "- **alarm**: `compare` says worse or better, and nothing changed. Allowed: .05."
    yield "- **NO-GO**: of a gate with `max_drop: 0.05`, and nothing changed. Allowed: .025."
    yield "- **GO**: of that gate, and the mean fell by .05: in all cases a little, or wholly in some. Allowed: .05; by"
    yield "  the interval's own error it would be .025."
    yield "- **bound**: a gate `min:` at the true mean itself says NO-GO, or GO. Allowed: .025 each."
    yield "- **three**: any of three critical gates says NO-GO where nothing changed, by Holm. Allowed: .025."
    yield ""
    yield "| cases | repeats | rate | alarm | NO-GO | GO, all | GO, some | bound NO-GO | bound GO | three |"
    yield "| ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |"
    by = {each.cell: each for each in found}
    at_bound, of_three = ({each.cell: each for each in several} for several in (bounds, holm))
    worst: dict[str, float] = {}
    for cases, repeats, rate in product(CASES, REPEATS, RATES):
        none, all_, some = (by[Cell(cases, repeats, rate, shape)] for shape in SHAPES)
        bound, three = at_bound[none.cell], of_three[none.cell]
        shares = {
            "alarm": none.alarms / none.pairs,
            "NO-GO": none.stops / none.pairs,
            "GO, all": all_.passes / all_.pairs,
            "GO, some": some.passes / some.pairs,
            "bound NO-GO": bound.stops / bound.pairs,
            "bound GO": bound.passes / bound.pairs,
            "three": three.stops / three.pairs,
        }
        worst = {name: max(worst.get(name, 0.0), share) for name, share in shares.items()}
        yield f"| {cases} | {repeats} | {rate:g} | " + " | ".join(map(_share, shares.values())) + " |"
    yield "| | | **worst** | " + " | ".join(f"**{_share(share)}**" for share in worst.values()) + " |"


def _share(value: float) -> str:
    return f"{value:.4f}".lstrip("0") if value else "0"


if __name__ == "__main__":
    main()
