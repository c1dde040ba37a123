"""How often what labels say of a judge holds the truth, in simulation; ``python -m tests.bench.labels_coverage``.

Cases differ by a beta distribution of a given correlation within a case; a judge errs on answers, or on whole cases.
Some answers are labelled: drawn from all of them, or all answers of some cases. Prints Markdown.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Iterator, Mapping
from itertools import product
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from evalq.evalcore.statistics.agreement import AgreementTable, kappa, share
from evalq.evalcore.statistics.corrected_rate import Labelled, corrected
from evalq.evalcore.statistics.rates import Interval
from evalq.evalcore.views.markdown import table

Bits = npt.NDArray[np.bool_]


class Judge(NamedTuple):
    """How often it passes what people pass, and what they fail; ``by_case``: it is right or wrong on whole cases."""

    of_good: float
    of_bad: float
    by_case: bool = False


JUDGES: Mapping[str, Judge] = {
    "perfect": Judge(1.0, 0.0),
    "good": Judge(0.95, 0.1),
    "fair": Judge(0.8, 0.3),
    "wrong on whole cases": Judge(0.9, 0.1, by_case=True),
    "a coin": Judge(0.5, 0.5),
    "passes all": Judge(1.0, 1.0),
}
_SIZES = ((5, 10), (30, 10), (200, 5))
_LABELS = (5, 10, 20, 50)
_MEANS = (0.0, 0.5, 0.8, 0.95, 1.0)
_CORRELATIONS = (0.0, 0.3, 0.9)
_NAMED = ("perfect", "good", "fair", "a coin")
_UNEQUAL = ((0.5, 0.3), (0.8, 0.3), (0.9, 0.9), (0.95, 0.05), (1.0, 0.0))
"""Rates and correlations of cases that weigh unequally."""


class Setting(NamedTuple):
    """``labels`` of the answers, ``answers`` to each of ``cases``, are labelled: of whole cases, or any.

    ``unequal``: cases have exponential weights, and any number of answers up to ``answers``.
    """

    cases: int
    answers: int
    labels: int
    whole: bool
    judge: Judge
    mean: float
    correlation: float
    unequal: bool = False


class _Run(NamedTuple):
    """A simulated run: cases x answers of what people would say, what the judge said, which are labelled, and which
    there are at all; and the weights of the cases.
    """

    good: Bits
    judged: Bits
    seen: Bits
    there: Bits
    weights: list[float]


def _drawn(given: Setting, source: np.random.Generator) -> _Run:
    shape, mean = (given.cases, given.answers), given.mean
    chances = np.full(given.cases, mean)
    if given.correlation and mean not in (0.0, 1.0):
        size = 1 / given.correlation - 1
        chances = source.beta(mean * size, (1 - mean) * size, given.cases)
    good = source.random(shape) < chances[:, None]
    # One number for a case makes the judge right or wrong on all of it.
    luck = (
        np.repeat(source.random((given.cases, 1)), given.answers, axis=1)
        if given.judge.by_case
        else source.random(shape)
    )
    judged = np.where(good, luck < given.judge.of_good, luck >= 1 - given.judge.of_bad)
    seen, there, weights = np.zeros(shape, bool), np.ones(shape, bool), [1.0] * given.cases
    if given.unequal:
        there = np.arange(given.answers) < source.integers(1, given.answers + 1, (given.cases, 1))
        weights = (source.exponential(1.0, given.cases) + 0.05).tolist()
    if given.whole:
        seen[source.permutation(given.cases)[: max(1, given.labels // given.answers)]] = True
    else:
        every = np.flatnonzero(there)
        seen.flat[source.choice(every, min(given.labels, len(every)), replace=False)] = True
    return _Run(good, judged & there, seen, there, weights)


def _tables(run: _Run) -> list[AgreementTable]:
    cells = [run.seen & a & b for a, b in ((run.judged, run.good), (run.judged, ~run.good), (~run.judged, run.good),
                                           (~run.judged, ~run.good))]  # fmt: skip
    return [AgreementTable(*counts) for counts in zip(*(cell.sum(axis=1).tolist() for cell in cells), strict=True)]


def corrected_coverage(given: Setting, times: int, source: np.random.Generator) -> tuple[float, float]:
    """How often the corrected interval holds the rate, and how wide it is beside that of the labels alone."""
    held, wide, alone = 0, 0.0, 0.0
    for _ in range(times):
        run = _drawn(given, source)
        counts = zip(
            _tables(run), run.judged.sum(axis=1).tolist(), run.there.sum(axis=1).tolist(), run.weights, strict=True
        )
        found = corrected([Labelled(*table, passed, answers, weight) for table, passed, answers, weight in counts])
        assert found is not None
        held += _holds(found.interval, given.mean)
        wide += found.interval.high - found.interval.low
        alone += found.alone_interval.high - found.alone_interval.low
    return held / times, wide / alone


def agreement_coverage(given: Setting, times: int, source: np.random.Generator) -> tuple[float, float, float, float]:
    """How often the intervals of agreement, kappa, false passes and false fails hold theirs; 1 of what has none."""
    (good, bad, _), mean = given.judge, given.mean
    agree = mean * good + (1 - mean) * (1 - bad)
    chance = (judge := mean * good + (1 - mean) * bad) * mean + (1 - judge) * (1 - mean)
    truth = (agree, (agree - chance) / (1 - chance) if chance < 1 else None, bad, 1 - good)
    held = np.zeros(4)
    for _ in range(times):
        tables = _tables(_drawn(given, source))
        found = (
            share([(t.both + t.neither, t.labels) for t in tables], given.cases),
            kappa(tables, given.cases),
            share([(t.false_pass, t.false_pass + t.neither) for t in tables], given.cases),
            share([(t.false_fail, t.false_fail + t.both) for t in tables], given.cases),
        )
        held += [
            each.interval is None or true is None or _holds(each.interval, true)
            for each, true in zip(found, truth, strict=True)
        ]
    return tuple((held / times).tolist())


def _holds(interval: Interval, truth: float) -> bool:
    return interval.low - 1e-9 <= truth <= interval.high + 1e-9


def _settings(size: tuple[int, int], labels: int, judge: Judge) -> Iterator[Setting]:
    for mean, correlation, whole in product(_MEANS, _CORRELATIONS, (False, True)):
        # A rate of 0 or 1 knows no correlation, and labels of half a case are none of whole ones.
        if (correlation and mean in (0.0, 1.0)) or (whole and labels < size[1]):
            continue
        yield Setting(*size, labels, whole, judge, mean, correlation)


def _rows(times: int, source: np.random.Generator) -> Iterator[tuple[Any, ...]]:
    for size, labels in product(_SIZES, _LABELS):
        row, least = [], 1.0
        for judge in JUDGES.values():
            found = [corrected_coverage(each, times, source) for each in _settings(size, labels, judge)]
            worst = min(held for held, _ in found)
            least = min(least, worst)
            row.append(f"{worst:.1%} ({math.fsum(wide for _, wide in found) / len(found):.2f})")
        yield *size, labels, *row, f"{least:.1%}"


def _agreeing(times: int, source: np.random.Generator) -> Iterator[tuple[Any, ...]]:
    for size, labels in product(_SIZES, _LABELS):
        settings = (each for judge in JUDGES.values() for each in _settings(size, labels, judge))
        found = [agreement_coverage(each, times, source) for each in settings]
        yield *size, labels, *(f"{min(column):.1%}" for column in zip(*found, strict=True))


def _unequal(times: int, source: np.random.Generator) -> Iterator[tuple[Any, ...]]:
    """Cases of unequal weights and numbers of answers."""
    for cases, labels in product((10, 40, 150), (10, 30, 80)):
        row = []
        for judge in (JUDGES[name] for name in _NAMED):
            settings = [Setting(cases, 19, labels, False, judge, *each, unequal=True) for each in _UNEQUAL]
            row.append(min(corrected_coverage(each, times, source)[0] for each in settings))
        yield cases, labels, *(f"{share:.1%}" for share in row), f"{min(row):.1%}"


def main() -> None:
    """All three tables."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.labels_coverage", description=__doc__)
    parser.add_argument("--times", type=int, default=400, help="simulated runs a cell")
    parser.add_argument("--seed", type=int, default=20261123)
    asked = parser.parse_args()
    # Each table has a source of its own, so that either can be made again alone.
    source = np.random.default_rng(asked.seed)
    print(table(("cases", "answers of each", "labels", *JUDGES, "least"), list(_rows(asked.times, source))), flush=True)
    heads = ("cases", "answers of each", "labels", "agreement", "kappa", "false passes", "false fails")
    print(table(heads, list(_agreeing(asked.times, np.random.default_rng(asked.seed)))))
    found = list(_unequal(asked.times, np.random.default_rng(asked.seed)))
    print(table(("cases of 1 to 19 answers", "labels", *_NAMED, "least"), found))
    error = 1.96 * math.sqrt(0.05 * 0.95 / asked.times)
    print(f"{asked.times} runs a cell, seed {asked.seed}; a share near 95 % is known to {error:.1%}.")


if __name__ == "__main__":
    main()
