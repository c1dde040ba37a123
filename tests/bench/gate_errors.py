"""How often comparisons and gates err, simulated; prints docs/reference/gate-errors.md.

    python -m tests.bench.gate_errors --pairs 400 --seed 1 > docs/reference/gate-errors.md
    python -m tests.bench.repeat_errors --runs 2000 --seed 1 >> docs/reference/gate-errors.md
    python -m tests.bench.live_errors --pairs 600 --seed 1 >> docs/reference/gate-errors.md
    python -m tests.bench.lost_replies --runs 1000 --seed 1 >> docs/reference/gate-errors.md

Each cell draws pairs of runs from one golden set: cases with their own pass rates around a mean, and a number of
repeats, which may differ from case to case. Nothing is changed between the two, or the candidate's rates fall by half
the margin or by just the margin: a little in all cases, or wholly in some. Decisions are those of a gate with one
critical demand and the veto of named cases, by the functions that a gate calls.
"""

from __future__ import annotations

import argparse
import math
import sys
import textwrap
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from itertools import product
from typing import NamedTuple

import numpy as np

from evalq.evalcore.compare.comparison import change_in, falls, p_values
from evalq.evalcore.compare.decision import Check, overall
from evalq.evalcore.compare.intervals import ALPHA
from evalq.evalcore.compare.outlook import bound_checks, dropped
from evalq.evalcore.compare.pairs import Pairs, Side
from evalq.evalcore.compare.policy import Gate
from evalq.evalcore.compare.spending import SINGLE, Errors
from evalq.evalcore.compare.summary import CaseColumn, CaseSummary
from evalq.evalcore.contract.measures import Measure

PASS = Measure("pass_rate")
MARGIN = 0.05
CASES, REPEATS, RATES = (5, 10, 20, 50, 200, 1000), ("1", "3", "10", "2, 5 or 10"), (0.5, 0.9, 1.0)
SHAPES = ("none", "half", "all", "some")
OTHER_DAYS = tuple(product(((30, 5), (100, 1), (100, 5), (20, 10)), (0.0, 1 / 3), (0.0, 0.01, 0.02, 0.03, 0.05)))
POWER = ((30, 5, 0.8, 0.05), (100, 1, 0.8, 0.05), (100, 5, 0.8, 0.05), (20, 10, 0.95, 0.05), (200, 1, 0.8, 0.1))


class Cell(NamedTuple):
    """What is drawn. ``shape`` says which cases fall: none, all by half the margin or by the margin, or some wholly."""

    cases: int
    repeats: str
    rate: float
    shape: str


class Found(NamedTuple):
    """Of so many ``pairs``: verdicts of `compare`, decisions of a gate, and runs in which a case was named."""

    cell: Cell
    pairs: int
    alarms: int = 0
    stops: int = 0
    suspects: int = 0
    passes: int = 0
    named: int = 0


def main() -> None:
    """Simulate every cell, and print the page."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--pairs", type=int, default=400, help="pairs of runs a cell")
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    cells = [Cell(*each) for each in product(CASES, REPEATS, RATES, SHAPES)]
    unchanged = [cell for cell in cells if cell.shape == "none"]
    with ProcessPoolExecutor(2) as pool:
        seeds = [[given.seed, number] for number in range(len(cells))]
        found = list(pool.map(simulated, cells, seeds, [_few(cell, given.pairs) for cell in cells]))
        numbers = [_few(cell, given.pairs) for cell in unchanged]
        bounds = list(pool.map(bounded, unchanged, seeds, numbers))
        holm = list(pool.map(three_gates, unchanged, seeds, [max(1, number // 2) for number in numbers]))
        powers = list(pool.map(_power, POWER, [given.seed] * len(POWER)))
        others = list(
            pool.map(_other_days, OTHER_DAYS, [given.seed] * len(OTHER_DAYS), [given.pairs] * len(OTHER_DAYS))
        )
    sys.stdout.write("\n".join(_page(found, bounds, holm, powers, others, given.pairs, given.seed)) + "\n")


def _few(cell: Cell, pairs: int) -> int:
    """A thousand cases take as long as many pairs."""
    return pairs if cell.cases < 1000 else max(1, pairs // 4)


def _rates(rng: np.random.Generator, cell: Cell) -> tuple[np.ndarray, np.ndarray]:
    """Of base and candidate, by case: with a mean of ``rate``, and as varied as Beta with four pseudo-counts."""
    rate = cell.rate
    base = np.full(cell.cases, 1.0) if rate == 1.0 else rng.beta(4 * rate, 4 * (1 - rate), cell.cases)
    if cell.shape == "none":
        return base, base
    if cell.shape in ("half", "all"):
        return base, fallen(base, MARGIN / 2 if cell.shape == "half" else MARGIN)
    cand, left = base.copy(), MARGIN * cell.cases
    for case in rng.permutation(cell.cases):
        taken = min(left, cand[case])
        cand[case] -= taken
        left -= taken
    return base, cand


def fallen(rates: np.ndarray, drop: float) -> np.ndarray:
    """Rates whose mean is lower by ``drop``: each case loses in proportion to what it has."""
    return rates * max(0.0, 1 - drop / max(1e-9, float(rates.mean())))


def _side(rng: np.random.Generator, repeats: str, rates: np.ndarray) -> Side:
    each = np.resize([2, 5, 10], len(rates)) if repeats == "2, 5 or 10" else np.full(len(rates), int(repeats))
    passed = rng.binomial(each, np.clip(rates, 0, 1)).astype(float)
    return Side(each, passed, passed)


def _pairs(rng: np.random.Generator, cell: Cell) -> Pairs:
    base, cand = (_side(rng, cell.repeats, rates) for rates in _rates(rng, cell))
    return Pairs([f"{n:05d}" for n in range(cell.cases)], base, cand, [], [], 0)


def checks_of(pairs: Pairs, margin: float, errors: Errors = SINGLE) -> list[Check]:
    """The demand of a drop of at most ``margin``, and the veto of named cases."""
    metric = "vs.pass_rate"
    change, _ = change_in(pairs, PASS)
    worse = p_values(pairs, PASS, change)[0]
    decided = dropped(pairs, PASS, margin, errors, worse)
    drop = Check(metric, "", "critical", decided, "", p_worse=worse, p_margin=change.p_margin(margin), evidence=2)
    named = [fall for fall in falls(pairs) if fall.p <= errors.no_go]
    veto = Check(
        metric, "", "critical", "SUSPECT" if named else "INCONCLUSIVE", "", p_worse=named[0].p if named else 1.0,
        cases=tuple(fall.case for fall in named), case_p=tuple(fall.p for fall in named), veto=True, evidence=2,
    )  # fmt: skip
    return [drop, veto]


def simulated(cell: Cell, seed: list[int], pairs: int) -> Found:
    """Gates of one demand."""
    rng = np.random.default_rng(seed)
    decided, alarms, named = [], 0, 0
    for _ in range(pairs):
        drawn = _pairs(rng, cell)
        checks = checks_of(drawn, MARGIN)
        decided.append(overall(checks)[0])
        named += bool(checks[1].cases)
        if cell.shape == "none":
            alarms += _differs(drawn)
    stops, suspects, passes = (sum(found == each for found in decided) for each in ("NO-GO", "SUSPECT", "GO"))
    return Found(cell, pairs, alarms, stops, suspects, passes, named)


def _differs(pairs: Pairs) -> bool:
    """Whether `compare` says worse or better."""
    change, _ = change_in(pairs, PASS)
    low, high = change.interval()
    return not (low > -MARGIN and high < MARGIN) and min(p_values(pairs, PASS, change)) <= ALPHA


def bounded(cell: Cell, seed: list[int], pairs: int) -> Found:
    """An absolute bound at the true mean: GO and NO-GO are both wrong there, or right by nothing."""
    rng = np.random.default_rng([*seed, 1])
    stops = passes = 0
    for _ in range(pairs):
        rates, _ = _rates(rng, cell)
        side = _side(rng, cell.repeats, rates)
        column = CaseColumn(side.answers.tolist(), side.total.tolist(), side.total.tolist())
        run = CaseSummary([PASS], [f"{n:05d}" for n in range(cell.cases)], [0] * cell.cases, {PASS.name: column})
        (check,) = bound_checks(Gate(metric="vs.pass_rate", min=float(rates.mean())), run, PASS)
        stops += check.decided == "NO-GO"
        passes += check.decided == "GO" and cell.rate < 1.0  # at 1 the bound is kept whatever comes
    return Found(cell, pairs, stops=stops, passes=passes)


def three_gates(cell: Cell, seed: list[int], pairs: int) -> Found:
    """Three critical gates over independent runs, nothing changed: NO-GO or SUSPECT by any of them."""
    rng = np.random.default_rng([*seed, 2])
    decided = []
    for _ in range(pairs):
        checks = [check for _ in range(3) for check in checks_of(_pairs(rng, cell), MARGIN)[:1]]
        decided.append(overall(checks)[0])
    return Found(cell, pairs, stops=decided.count("NO-GO"), suspects=decided.count("SUSPECT"))


def _power(size: tuple[int, int, float, float], seed: int) -> str:
    """A row: NO-GO, SUSPECT and GO by the true drop, as the rules are, and NO-GO by the rule before them."""
    cases, repeats, rate, margin = size
    rng = np.random.default_rng([seed, cases, repeats, 3])
    shown = []
    for times in (0, 0.5, 1, 2, 3, 4):
        decided, before = [], 0
        for _ in range(_DRAWS):
            rates = rng.beta(4 * rate, 4 * (1 - rate), cases)
            base, cand = (_side(rng, str(repeats), each) for each in (rates, fallen(rates, times * margin)))
            pairs = Pairs([str(n) for n in range(cases)], base, cand, [], [], 0)
            checks = checks_of(pairs, margin)
            decided.append(overall(checks)[0])
            before += checks[0].decided != "GO" and (checks[0].p_worse or 0.0) <= ALPHA
        counts = (decided.count("NO-GO"), decided.count("SUSPECT"), decided.count("GO"), before)
        shown.append(" / ".join(_share(round(each / _DRAWS, 2)) for each in counts))
    return f"| {cases} x {repeats} | {rate:g} | {margin:g} | " + " | ".join(shown) + " |"


_DRAWS = 200
_OTHER = """\
A gate assumes that the answers of two runs differ by chance alone and by what was changed. Here each run has a
mood of its day, too: a number of points, normal with the standard deviation of the row, by which the pass rates of all
its cases differ. The mean rate is .8, and a row has {pairs} pairs of runs. Two runs cannot tell a mood from a change:
where a target has moods, ask base and candidate at the same time, as `evalq gate --confirm` does. New cases have no
pair, and `specification: intersection` decides on the others: that costs power, not errors. The first three shares are
of unchanged candidates, the last three of those that fell by the margin."""


def _other_days(size: tuple[tuple[int, int], float, float], seed: int, draws: int) -> str:
    """A row: what is decided where each run has a mood of its day and a share of its cases is new.

    A mood moves the pass rates of all cases of a run by the same number, drawn from a normal distribution. New cases
    have no pair, so that a gate with `specification: intersection` decides on the others.
    """
    (cases, repeats), new, sd = size
    rng = np.random.default_rng([seed, cases, repeats, round(new * 100), round(sd * 100), 4])
    shared, shown = cases - round(new * cases), []
    for drop in (0.0, MARGIN):
        decided = []
        for _ in range(draws):
            rates = rng.beta(4 * 0.8, 4 * 0.2, shared)
            base, cand = (
                _side(rng, str(repeats), np.clip(each + rng.normal(0, sd), 0, 1))
                for each in (rates, fallen(rates, drop))
            )
            decided.append(overall(checks_of(Pairs([str(n) for n in range(shared)], base, cand, [], [], 0), MARGIN))[0])
        shown += [_share(round(decided.count(each) / draws, 3)) for each in ("NO-GO", "SUSPECT", "GO")]
    return f"| {cases} x {repeats} | {round(100 * new)} % | {100 * sd:g} | " + " | ".join(shown) + " |"


def _page(
    found: list[Found],
    bounds: list[Found],
    holm: list[Found],
    powers: Sequence[str],
    others: Sequence[str],
    pairs: int,
    seed: int,
) -> Iterator[str]:
    yield "# How often a gate errs"
    yield ""
    known = 1.96 * math.sqrt(0.025 * 0.975 / pairs)
    yield f"Made by `python -m tests.bench.gate_errors --pairs {pairs} --seed {seed}`: {pairs:,} pairs of runs a cell,"
    yield f"so a share of .025 is known to {known:.3f}. Of 1,000 cases"
    yield "there are a quarter as many, and for three gates half as many. Every case has a pass rate of its own. The"
    yield "margin is .05. Rules: [gate a pull request](../how-to/gate-a-pull-request.md)."
    yield ""
    yield f"The worst of {len(found) // len(SHAPES)} cells lies above its own share by two to three such errors, by"
    yield "chance alone. The line **all** has the mean over the cells."
    yield ""
    yield "| column | what is counted | allowed |"
    yield "| --- | --- | ---: |"
    for name, (message, allowed) in COLUMNS.items():
        yield f"| {name} | {message} | {allowed} |"
    yield ""
    yield "| cases | repeats | rate | " + " | ".join(COLUMNS) + " |"
    yield "| ---: | ---: | ---: |" + " ---: |" * len(COLUMNS)
    by = {each.cell: each for each in found}
    at_bound, of_three = ({each.cell: each for each in several} for several in (bounds, holm))
    rows = []
    for cases, repeats, rate in product(CASES, REPEATS, RATES):
        none, half, all_, some = (by[Cell(cases, repeats, rate, shape)] for shape in SHAPES)
        bound, three = at_bound[none.cell], of_three[none.cell]
        counts = (
            none.alarms, none.stops, none.stops + none.suspects, half.stops, max(all_.stops, some.stops), all_.passes,
            some.passes, none.named, bound.stops, bound.passes,
        )  # fmt: skip
        rows.append([*(count / none.pairs for count in counts), (three.stops + three.suspects) / three.pairs])
        yield f"| {cases} | {repeats} | {rate:g} | " + " | ".join(map(_share, rows[-1])) + " |"
    for name, of in (("worst", np.max), ("all", np.mean)):
        shares = (float(share) for share in of(np.array(rows), axis=0))
        yield f"| | | **{name}** | " + " | ".join(f"**{_share(share)}**" for share in shares) + " |"
    yield ""
    yield "## What a gate sees"
    yield ""
    yield f"Shares of {_DRAWS} candidates whose mean fell by so many margins: NO-GO / SUSPECT / GO, and last how many"
    yield "the rule before stopped, which was NO-GO by any fall beyond chance. The rest is INCONCLUSIVE."
    yield ""
    yield "| cases x repeats | rate | margin | unchanged | half | the margin | 2 | 3 | 4 |"
    yield "| --- | ---: | ---: | --- | --- | --- | --- | --- | --- |"
    yield from powers
    yield ""
    yield "## Other days, other cases"
    yield ""
    yield from textwrap.wrap(_OTHER.format(pairs=pairs), 119)
    yield ""
    yield "| cases x repeats | new cases | moods, points | NO-GO | SUSPECT | GO | NO-GO | SUSPECT | GO |"
    yield "| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |"
    yield from others


COLUMNS = {
    "alarm": ("`compare` says worse or better, and nothing changed", ".05"),
    "NO-GO": ("a gate with `max_drop: 0.05` says NO-GO, and nothing changed", ".025"),
    "or SUSPECT": ("it says NO-GO or SUSPECT, and nothing changed", ".05"),
    "half": ("it says NO-GO, and the mean fell by half the margin", ".01"),
    "margin": ("it says NO-GO, and the mean fell by just the margin, in all cases or in some", ".05"),
    "GO, all": ("it says GO, and the mean fell by the margin, a little in all cases", ".05"),
    "GO, some": ("it says GO, and the mean fell by the margin, wholly in some cases", ".05"),
    "named": ("a case is named as worse, and nothing changed", ".025"),
    "bound NO-GO": ("a gate `min:` at the true mean says NO-GO", ".035"),
    "bound GO": ("it says GO", ".035"),
    "three": ("any of three critical gates says NO-GO or SUSPECT by Holm, and nothing changed", ".05"),
}


def _share(value: float) -> str:
    return f"{value:.4f}".lstrip("0") if value else "0"


if __name__ == "__main__":
    main()
