"""How often the drift detector pages where nothing changed, and how soon where something did.

    python -m tests.bench.drift --seed 1

Simulated beside the rule that was there before: the newest run below the mean of the nine before it by two standard
deviations and by five points. Prints the tables of docs/reference/drift.md.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from itertools import product
from typing import NamedTuple

import numpy as np

from evalq.evalcore.compare.drift import Chain, begin, count
from evalq.evalcore.compare.run import RunCases
from evalq.evalcore.compare.summary import CaseSummary, Column
from evalq.evalcore.contract.measures import Measure

PASS = Measure("pass_rate")
SCORE = Measure("score", "score")
_MEASURES = {"pass": PASS, "score": SCORE}
_CERTAIN = 4.0
"""Answers of a case are beta-distributed where they are scores: so many of them were seen, as it were."""
UNCHANGED = [
    *product((10, 30, 100), (1, 5), (0.5, 0.9, 1.0), ("pass",)),
    *product((10, 30, 100), (1, 5), (0.5, 0.9), ("score",)),
]
FALLEN = [
    *product(((10, 5), (30, 5), (100, 1), (100, 5), (300, 5)), (0.05, 0.1, 0.2), ("pass",)),
    *product(((10, 5), (100, 1), (100, 5)), (0.05, 0.1, 0.2), ("score",)),
]
LEAD, PATIENCE = 20, 40


class Pages(NamedTuple):
    """Pages of both rules in ``runs`` unchanged runs."""

    kind: str
    cases: int
    repeats: int
    rate: float
    runs: int
    detector: int
    rule: int


class Delay(NamedTuple):
    """After how many runs a drop was seen, a number a history; infinite where it was not within `PATIENCE`."""

    kind: str
    cases: int
    repeats: int
    drop: float
    detector: list[float]
    rule: list[float]


class History:
    """A suite's runs, looked at by both."""

    def __init__(self, rng: np.random.Generator, repeats: int, kind: str) -> None:
        self._rng, self._repeats, self._kind = rng, repeats, kind
        self._means: list[float] = []
        self._chain: Chain | None = None

    def add(self, rates: np.ndarray) -> tuple[bool, bool]:
        """One more run; whether the detector and the rule page after it."""
        measure = _MEASURES[self._kind]
        total, squares = self._answers(rates)
        column = Column([self._repeats] * len(total), total, squares)
        ids = [f"{case:05d}" for case in range(len(total))]
        name = f"r{len(self._means)}"
        cases = CaseSummary([measure], ids, [0] * len(ids), {measure.name: column})
        run = RunCases(
            run=name, evaluator="vs", version="1", target="t", specification="s", report=name, records={}, cases=cases
        )
        self._chain = begin(run) if self._chain is None else count(self._chain, run)
        self._means.append(sum(total) / (self._repeats * len(total)))
        return bool(self._chain.watched[measure.name].since), _rule(self._means)

    def _answers(self, rates: np.ndarray) -> tuple[list[float], list[float]]:
        """Of each case the sum of its answers, and that of their squares."""
        if self._kind == "pass":
            passed = self._rng.binomial(self._repeats, rates).astype(float).tolist()
            return passed, passed
        mean = np.clip(rates, 0.01, 0.99)
        scores = self._rng.beta(_CERTAIN * mean, _CERTAIN * (1 - mean), (self._repeats, len(mean)))
        return scores.sum(axis=0).tolist(), (scores * scores).sum(axis=0).tolist()


def _rule(means: Sequence[float]) -> bool:
    before = means[-10:-1]
    return len(before) >= 3 and means[-1] < float(np.mean(before)) - max(2 * float(np.std(before)), 0.05)


def unchanged(cell: tuple[int, int, float, str], seed: int, histories: int, runs: int) -> Pages:
    """Pages that begin, over histories of ``runs`` runs each."""
    cases, repeats, rate, kind = cell
    rng = np.random.default_rng([seed, cases, repeats, int(rate * 100), *([] if kind == "pass" else [1])])
    pages = [0, 0]
    for _ in range(histories):
        history, was = History(rng, repeats, kind), (False, False)
        rates = np.full(cases, 1.0) if rate == 1.0 else rng.beta(4 * rate, 4 * (1 - rate), cases)
        for _ in range(runs):
            now = history.add(rates)
            pages = [number + (new and not old) for number, new, old in zip(pages, now, was, strict=True)]
            was = now
    return Pages(kind, cases, repeats, rate, histories * (runs - 1), *pages)


def fallen(cell: tuple[tuple[int, int], float, str], seed: int, histories: int) -> Delay:
    """`LEAD` unchanged runs with a mean rate of .8, then runs whose mean is lower by the drop, in all cases."""
    (cases, repeats), drop, kind = cell
    rng = np.random.default_rng([seed, cases, repeats, int(drop * 100), 7, *([] if kind == "pass" else [1])])
    found = Delay(kind, cases, repeats, drop, [], [])
    for _ in range(histories):
        history = History(rng, repeats, kind)
        rates = rng.beta(3.2, 0.8, cases)
        low = np.clip(rates - drop, 0, 1)
        low *= max(0.0, float(rates.mean()) - drop) / max(float(low.mean()), 1e-9)
        for _ in range(LEAD):
            history.add(rates)
        seen = [float("inf"), float("inf")]
        for number in range(1, PATIENCE + 1):
            seen = [min(at, number) if page else at for at, page in zip(seen, history.add(low), strict=True)]
        found.detector.append(seen[0])
        found.rule.append(seen[1])
    return found


def _lines(pages: Sequence[Pages], delays: Sequence[Delay], seed: int) -> Iterator[str]:
    yield f"Seed {seed}. Pages in a thousand unchanged runs:"
    yield ""
    yield "| answers | cases | repeats | rate | runs | detector | 2 sd and 5 points |"
    yield "| --- | ---: | ---: | ---: | ---: | ---: | ---: |"
    for each in pages:
        shares = (1000 * number / each.runs for number in (each.detector, each.rule))
        shown = " | ".join(f"{share:.2f}" for share in shares)
        yield f"| {each.kind} | {each.cases} | {each.repeats} | {each.rate:g} | {each.runs:,} | {shown} |"
    yield ""
    yield f"Runs until a drop was seen, the median (and the share of histories in which it was, within {PATIENCE}):"
    yield ""
    yield "| answers | cases | repeats | drop | detector | 2 sd and 5 points |"
    yield "| --- | ---: | ---: | ---: | ---: | ---: |"
    for delay in delays:
        shown = " | ".join(_shown(runs) for runs in (delay.detector, delay.rule))
        yield f"| {delay.kind} | {delay.cases} | {delay.repeats} | {delay.drop:g} | {shown} |"


def _shown(runs: Sequence[float]) -> str:
    seen = [each for each in runs if each <= PATIENCE]
    middle = float(np.median(runs))
    return (
        f"{middle:g} ({len(seen) / len(runs):.2f})" if middle <= PATIENCE else f"not seen ({len(seen) / len(runs):.2f})"
    )


def main() -> None:
    """Print both tables."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--histories", type=int, default=10, help="of unchanged runs, 400 each")
    parser.add_argument("--delays", type=int, default=60, help="histories a drop")
    asked = parser.parse_args()
    with ProcessPoolExecutor() as pool:
        pages = [pool.submit(unchanged, cell, asked.seed, asked.histories, 400) for cell in UNCHANGED]
        delays = [pool.submit(fallen, cell, asked.seed, asked.delays) for cell in FALLEN]
        print(*_lines([each.result() for each in pages], [each.result() for each in delays], asked.seed), sep="\n")


if __name__ == "__main__":
    main()
