"""How often the drift detector pages where nothing changed, and how soon where something did.

    python -m tests.bench.drift --seed 1

Runs come with the same cases, with a third of them new, or with all of them new; and with days whose mood moves all
answers of a run alike. Both levels are counted: "worse" pages, "looks worse" does not. Prints the tables of
docs/reference/drift.md.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from datetime import date, timedelta
from itertools import product
from typing import Literal, NamedTuple

import numpy as np

from evalq.evalcore.compare.drift import Chain, begin_chain, count_in_chain
from evalq.evalcore.compare.summary import CaseColumn, CaseSummary, RunCases
from evalq.evalcore.contract.measures import Measure
from evalq.evalcore.statistics.rates import exact_interval

_MEASURES = {"pass": Measure("pass_rate"), "score": Measure("score", "score")}
_CERTAIN = 4.0
"""Answers of a case are beta-distributed where they are scores: so many of them were seen, as it were."""
RUNS, LEAD, PATIENCE = 60, 20, 30
_BEGUN = date(2026, 1, 5)
_WEEKEND = 0.05
"""So much lower are the runs of Saturdays and Sundays, where days have dates."""


class Cell(NamedTuple):
    """A suite. ``new`` is the share of cases that each run has for itself.

    Pass rates of cases are Beta around ``rate``: as of ``alike`` answers, so that few make cases that pass always or
    never. ``day`` is the standard deviation of a day's mood, which moves the rates of all cases; ``dated`` runs come
    nightly, and are worse at weekends.
    """

    kind: Literal["pass", "score"]
    cases: int
    repeats: int
    rate: float
    new: float = 0.0
    alike: float = 4.0
    day: float = 0.0
    dated: bool = False

    @property
    def seeds(self) -> list[int]:
        """Numbers that no other cell has."""
        kind, *others = self
        return [int(kind == "score"), *(round(1000 * each) for each in others)]

    @property
    def told(self) -> str:
        """As a row has it."""
        new = {0.0: "none", 1.0: "all"}.get(self.new, "a third")
        spread = "about it" if self.alike > 1 else "always or never"
        if self.rate == 1.0:
            spread = "always"
        weekend = ", weekends lower" if self.dated else ""
        moods = f"{100 * self.day:g}{weekend}"
        return f"{self.kind} | {self.cases} x {self.repeats} | {self.rate:g} | {spread} | {new} | {moods}"


DRAWN = ((10, 10), (30, 5), (30, 10), (100, 5))
MOODY = ((10, 10), (30, 10), (100, 5))
GROUPS = {
    "the same cases": [
        *(Cell("pass", *size, rate) for size, rate in product(((10, 5), (30, 5), (100, 1)), (0.5, 0.9, 1.0))),
        *(Cell("score", *size, 0.8) for size in ((10, 5), (100, 1))),
    ],
    "new cases": [
        *(Cell("pass", *size, rate, 1.0, 0.3) for size, rate in product(DRAWN, (0.5, 0.9))),
        *(Cell("pass", *size, 0.9, 1.0) for size in DRAWN),
        Cell("score", 30, 5, 0.8, 1.0),
        *(Cell("pass", *size, 0.8, 1 / 3, alike) for size, alike in product(((10, 10), (30, 5)), (4.0, 0.3))),
    ],
    "moods of days up to 3 points": [
        Cell("pass", 30, 10, 0.8, day=0.01),
        *(Cell("pass", *size, rate, day=0.03) for size, rate in product(MOODY, (0.5, 0.9))),
        *(Cell("pass", *size, 0.9, 1.0, 0.3, day=0.03) for size in MOODY),
        *(Cell("pass", *size, 0.9, 0.0, 0.3, day=0.03) for size in MOODY),
        Cell("pass", 30, 10, 0.8, 1 / 3, day=0.03),
        Cell("score", 30, 5, 0.8, day=0.03),
        *(Cell("pass", 30, 10, 0.8, day=day, dated=True) for day in (0.0, 0.03)),
    ],
    "beyond what is stated": [Cell("pass", 30, 10, 0.8, day=0.05)],
}
FALLEN = [
    *(Cell("pass", *size, 0.8) for size in ((10, 5), (30, 5), (100, 1), (100, 5))),
    *(Cell("score", *size, 0.8) for size in ((10, 5), (100, 1))),
    *(Cell("pass", *size, 0.8, 1.0) for size in ((10, 10), (30, 5), (100, 5))),
    Cell("pass", 30, 5, 0.8, 1 / 3),
    Cell("pass", 30, 5, 0.8, day=0.03),
]
DROPS = (0.05, 0.1, 0.2)


class Pages(NamedTuple):
    """Pages, and times that it began to look worse, in ``runs`` unchanged runs, the first one of each history aside."""

    cell: Cell
    runs: int
    worse: int
    looks: int


class Delay(NamedTuple):
    """After how many runs a drop was seen, a number a history; infinite where it was not within `PATIENCE`."""

    cell: Cell
    drop: float
    worse: list[float]
    looks: list[float]


class History:
    """A suite's runs, as a chain counts them."""

    def __init__(self, rng: np.random.Generator, cell: Cell) -> None:
        self._rng, self._cell = rng, cell
        self._ids = [f"{case:05d}" for case in range(cell.cases)]
        self._rates = self._drawn(cell.cases)
        self._runs = 0
        self._chain: Chain | None = None

    def add(self, drop: float = 0.0) -> tuple[bool, bool]:
        """One more run, whose mean is lower by ``drop``; whether it is worse, and looks worse, after it."""
        cell, number = self._cell, self._runs
        self._runs += 1
        rates, ids = self._rates.copy(), list(self._ids)
        own = round(cell.cases * cell.new)
        if own:
            rates[-own:] = self._drawn(own)
            ids[-own:] = [f"{number}-{case:05d}" for case in range(own)]
        day = _BEGUN + timedelta(number)
        move = self._rng.normal(0.0, cell.day) - (_WEEKEND if cell.dated and day.weekday() > 4 else 0.0)
        rates = np.clip(_lowered(rates, drop) + move, 0.0, 1.0)
        total, squares = self._answers(rates)
        measure = _MEASURES[cell.kind]
        column = CaseColumn([cell.repeats] * cell.cases, total, squares)
        run = RunCases(
            run=f"r{number}", evaluator="vs", version="1", target="t", specification="s", report=f"r{number}",
            records={}, cases=CaseSummary([measure], ids, [0] * cell.cases, {measure.name: column}),
            day=day.isoformat() if cell.dated else "",
        )  # fmt: skip
        self._chain = begin_chain(run) if self._chain is None else count_in_chain(self._chain, run)
        watched = self._chain.watched[measure.name]
        return bool(watched.since), bool(watched.worse)

    def _drawn(self, cases: int) -> np.ndarray:
        rate, alike = self._cell.rate, self._cell.alike
        return np.full(cases, 1.0) if rate == 1.0 else self._rng.beta(alike * rate, alike * (1 - rate), cases)

    def _answers(self, rates: np.ndarray) -> tuple[list[float], list[float]]:
        """Of each case the sum of its answers, and that of their squares."""
        if self._cell.kind == "pass":
            passed = self._rng.binomial(self._cell.repeats, rates).astype(float).tolist()
            return passed, passed
        mean = np.clip(rates, 0.01, 0.99)
        scores = self._rng.beta(_CERTAIN * mean, _CERTAIN * (1 - mean), (self._cell.repeats, len(mean)))
        return scores.sum(axis=0).tolist(), (scores * scores).sum(axis=0).tolist()


def _lowered(rates: np.ndarray, drop: float) -> np.ndarray:
    """The mean falls by ``drop``: each case as far as it can."""
    if not drop:
        return rates
    low = np.clip(rates - drop, 0.0, 1.0)
    return low * max(0.0, float(rates.mean()) - drop) / max(float(low.mean()), 1e-9)


def unchanged(cell: Cell, seed: int, histories: int, runs: int) -> Pages:
    """What begins, over histories of ``runs`` runs each."""
    rng = np.random.default_rng([seed, *cell.seeds])
    found = [0, 0]
    for _ in range(histories):
        history, was = History(rng, cell), (False, False)
        for _ in range(runs):
            now = history.add()
            found = [number + (new and not old) for number, new, old in zip(found, now, was, strict=True)]
            was = now
    return Pages(cell, histories * (runs - 1), *found)


def fallen(cell: Cell, drop: float, seed: int, histories: int) -> Delay:
    """`LEAD` unchanged runs, then runs whose mean is lower by ``drop``."""
    rng = np.random.default_rng([seed, round(1000 * drop), *cell.seeds])
    found = Delay(cell, drop, [], [])
    for _ in range(histories):
        history = History(rng, cell)
        for _ in range(LEAD):
            history.add()
        seen = [float("inf"), float("inf")]
        for number in range(1, PATIENCE + 1):
            seen = [min(at, number) if page else at for at, page in zip(seen, history.add(drop), strict=True)]
        found.worse.append(seen[0])
        found.looks.append(seen[1])
    return found


_HEADS = "| answers | cases x repeats | mean rate | cases pass | new cases | moods of days, points |"


def _lines(pages: Sequence[Pages], delays: Sequence[Delay], seed: int) -> Iterator[str]:
    yield f"Seed {seed}. In a thousand unchanged runs:"
    yield ""
    yield f"{_HEADS} runs | worse | looks worse |"
    yield "| --- | ---: | ---: | --- | --- | --- | ---: | ---: | ---: |"
    by = {each.cell: each for each in pages}
    for name, cells in GROUPS.items():
        found = [by[cell] for cell in cells if cell in by]
        for each in found:
            shown = " | ".join(_rate(number, each.runs) for number in (each.worse, each.looks))
            yield f"| {each.cell.told} | {each.runs:,} | {shown} |"
        if found:
            runs = sum(each.runs for each in found)
            worse = _rates(sum(each.worse for each in found), runs)
            looks = _rates(sum(each.looks for each in found), runs)
            yield f"| **{name}** | | | | | | **{runs:,}** | **{worse}** | **{looks}** |"
    yield ""
    yield f"Runs until a drop was seen, the median (and the share of histories in which it was, within {PATIENCE}):"
    yield ""
    yield f"{_HEADS} drop, points | worse | looks worse |"
    yield "| --- | ---: | ---: | --- | --- | --- | ---: | ---: | ---: |"
    for delay in delays:
        shown = " | ".join(_shown(runs) for runs in (delay.worse, delay.looks))
        yield f"| {delay.cell.told} | {100 * delay.drop:g} | {shown} |"


def _rate(number: int, runs: int) -> str:
    return f"{1000 * number / runs:.2f}"


def _rates(number: int, runs: int) -> str:
    low, high = exact_interval(number, runs)
    return f"{_rate(number, runs)} ({1000 * low:.2f} to {1000 * high:.2f})"


def _shown(runs: Sequence[float]) -> str:
    seen = sum(each <= PATIENCE for each in runs) / len(runs)
    middle = float(np.median(runs))
    return f"{middle:g} ({seen:.2f})" if middle <= PATIENCE else f"not seen ({seen:.2f})"


def main() -> None:
    """Print both tables."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--histories", type=int, default=60, help=f"of unchanged runs, {RUNS} each")
    parser.add_argument("--delays", type=int, default=30, help="histories a drop")
    parser.add_argument("--only", default="", help="rows that have this text")
    asked = parser.parse_args()
    cells = [cell for group in GROUPS.values() for cell in group if asked.only in cell.told]
    fallen_cells = [each for each in product(FALLEN, DROPS) if asked.only in each[0].told]
    with ProcessPoolExecutor(2) as pool:
        pages = [pool.submit(unchanged, cell, asked.seed, asked.histories, RUNS) for cell in cells]
        delays = [pool.submit(fallen, *each, asked.seed, asked.delays) for each in fallen_cells]
        print(*_lines([each.result() for each in pages], [each.result() for each in delays], asked.seed), sep="\n")


if __name__ == "__main__":
    main()
