"""How often gates err over live answers, simulated; prints the last parts of docs/reference/gate-errors.md.

    python -m tests.bench.live_errors --pairs 600 --seed 1 >> docs/reference/gate-errors.md

Scores of a judge who is not sure of himself, on a scale from 0 to 5, and on days with moods; and sweeps whose cases
were each stopped once they were decided, where an answer passes if it is its case's commonest one: by that, how often
a case was asked depends on how it fared.
"""

from __future__ import annotations

import argparse
import math
import sys
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from itertools import product
from typing import Any, NamedTuple

import numpy as np

from evalq.evalcore.compare.comparison import estimate, verdict_of
from evalq.evalcore.compare.pairs import pairs_of
from evalq.evalcore.compare.summary import CaseColumn, CaseSummary
from evalq.evalcore.contract.measures import Measure
from evalq.evalcore.statistics.mode_share import stopping_rule
from tests.bench.stopping import limits

SCORE, PASS = Measure("accuracy", "score", 0.0, 5.0), Measure("pass_rate")
MARGIN = 0.05
"""Of the scale."""
JUDGED = list(product((10, 50, 200), (1, 3, 10), (0.5, 1.5), (0.0, 0.2)))
STOPPED = list(product((10, 30, 100), (20, 100), (0.5, 0.9), ("the commonest", "any")))

Floats = np.ndarray[Any, np.dtype[np.float64]]


class Found(NamedTuple):
    """Shares of pairs: a verdict where nothing changed (by these cases, by cases like these), a NO-GO there, and a GO
    where the mean fell by the margin.
    """

    alarms: float
    alarms_by_cases: float
    stops: float
    passes: float


def main() -> None:
    """Simulate every cell, and print both tables."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--pairs", type=int, default=1000, help="pairs of runs a cell")
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    with ProcessPoolExecutor() as pool:
        seeds = [[given.seed, number] for number in range(len(JUDGED))]
        judged = list(pool.map(_judged, JUDGED, seeds, [given.pairs] * len(seeds)))
        stopped = list(pool.map(_stopped, STOPPED, seeds, [given.pairs] * len(seeds)))
    sys.stdout.write("\n".join(_page(judged, stopped, given.pairs, given.seed)) + "\n")


Run = Callable[[float], CaseSummary]


def _counted(measure: Measure, run: Callable[[], tuple[Run, Run]], pairs: int) -> Found:
    """Of so many pairs of runs, each of a base and of a candidate whose mean is lower by what it is called with."""
    margin = MARGIN * measure.width
    counts = np.zeros(4)
    for _ in range(pairs):
        base, cand = run()
        same, fell = (estimate(pairs_of(base(0.0), cand(drop), measure), measure) for drop in (0.0, margin))
        counts += [
            verdict_of(same, margin) in ("worse", "better"),
            verdict_of(same, margin, by_cases=True) in ("worse", "better"),
            same.low <= -margin and same.p_worse <= 0.025,
            fell.low > -margin,
        ]
    return Found(*(counts / pairs))


def _judged(cell: tuple[int, int, float, float], seed: list[int], pairs: int) -> Found:
    """A judge's score of a case is its quality and an error of his, rounded; his mood moves all scores of a run."""
    cases, repeats, noise, mood = cell
    rng = np.random.default_rng(seed)

    def both() -> tuple[Run, Run]:
        quality = rng.uniform(1.5, 4.5, cases)

        def run(drop: float) -> CaseSummary:
            wanted = float(_mean(quality, noise).mean()) - drop
            low, high = 0.0, 5.0
            while high - low > 1e-6:  # by how much quality falls for the mean score to fall by the drop
                middle = (low + high) / 2
                low, high = (middle, high) if float(_mean(quality - middle, noise).mean()) > wanted else (low, middle)
            at = quality - (low if drop else 0.0) + rng.normal(0, mood)
            scores = np.clip(np.rint(rng.normal(at[:, None], noise, (cases, repeats))), 0, 5)
            column = CaseColumn([repeats] * cases, scores.sum(1).tolist(), (scores**2).sum(1).tolist())
            return _summary(SCORE, cases, column)

        return run, run

    return _counted(SCORE, both, pairs)


def _mean(quality: Floats, noise: float) -> Floats:
    """The mean of rounded scores, by case: the sum of P(score > k) over k."""
    edges = (np.arange(5) + 0.5 - quality[:, None]) / noise
    above: Floats = np.vectorize(lambda z: math.erfc(z / math.sqrt(2)) / 2)(edges).sum(axis=1)
    return above


def _stopped(cell: tuple[int, int, float, str], seed: list[int], pairs: int) -> Found:
    """Each case is asked until its commonest answer is decided, at most so often; that answer passes, or any does."""
    cases, most, rate, passes = cell
    rng = np.random.default_rng([*seed, 1])
    collapsed, diverse = limits(stopping_rule(most), most)
    numbers = np.arange(1, most + 1)

    def both() -> tuple[Run, Run]:
        rates = rng.beta(4 * rate, 4 * (1 - rate), cases)

        def run(drop: float) -> CaseSummary:
            fell = np.clip(rates - drop, 0, 1)
            fell += (rates.mean() - drop - fell.mean()) * (fell > 0.1) / max(1e-9, (fell > 0.1).mean())
            passed, common = (
                (rng.random((cases, most)) < np.clip(fell, 0, 1)[:, None]).cumsum(1) for _ in ("passes", "options")
            )
            common = passed if passes == "the commonest" else common
            mode = np.maximum(common, numbers - common)
            over = (mode >= collapsed[1:]) | (mode <= diverse[1:])
            asked = np.where(over.any(1), over.argmax(1) + 1, most)
            ones = passed[np.arange(cases), asked - 1].astype(float).tolist()
            return _summary(PASS, cases, CaseColumn(asked.tolist(), ones, ones))

        return run, run

    return _counted(PASS, both, pairs)


def _summary(measure: Measure, cases: int, column: CaseColumn) -> CaseSummary:
    return CaseSummary([measure], [f"{n:05d}" for n in range(cases)], [0] * cases, {measure.name: column})


def _page(judged: list[Found], stopped: list[Found], pairs: int, seed: int) -> Iterator[str]:
    yield ""
    yield "## Scores of a judge"
    yield ""
    yield f"Made by `python -m tests.bench.live_errors --pairs {pairs} --seed {seed}`. A judge's score from 0 to 5 is a"
    yield "case's quality plus the judge's error of so many points (noise), rounded. Each day a mood moves all scores"
    yield "by so many (standard deviation). Columns as above, the margin is .25; **by cases** is the alarm of"
    yield "`--by-cases`."
    yield ""
    yield from _table(("cases", "repeats", "noise", "mood"), JUDGED, judged)
    yield ""
    yield "With moods, repeats are not independent, and no number of them helps. An A/A run shows that"
    yield "(`evalq compare BASE BASE2`), but a gate does not know it."
    yield ""
    yield "## Sweeps that stop"
    yield ""
    yield "Both sides were called with `--stop when-decided`, each case at most so often. The commonest answer passes,"
    yield "or any answer with the same chance."
    yield ""
    yield from _table(("cases", "calls at most", "rate", "what passes"), STOPPED, stopped)
    yield ""
    yield "This table counts GO as if the number of answers had been fixed. A case that looks well stops first. So a"
    yield "gate does not accept such a GO: it is INCONCLUSIVE if any case was stopped."
    yield "NO-GO and SUSPECT stay if both sides stopped alike, as here. Otherwise they are INCONCLUSIVE, because the"
    yield "means of stopped cases move to their commonest answer, beside a baseline that was called to the end."


def _table(heads: Sequence[str], cells: Sequence[tuple[object, ...]], found: list[Found]) -> Iterator[str]:
    """A row for each cell: what it is made of, and what was found there."""
    yield f"| {' | '.join((*heads, 'alarm', 'by cases', 'NO-GO or SUSPECT', 'GO'))} |"
    kinds = ["---" if isinstance(value, str) else "---:" for value in (*cells[0], *found[0])]
    yield f"| {' | '.join(kinds)} |"
    for cell, shares in zip(cells, found, strict=True):
        shown = [f"{value:g}" if isinstance(value, float) else str(value) for value in cell]
        yield f"| {' | '.join((*shown, *map(_share, shares)))} |"


def _share(value: float) -> str:
    return f"{value:.3f}".lstrip("0") if value else "0"


if __name__ == "__main__":
    main()
