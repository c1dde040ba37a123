"""How often the intervals and verdicts of diversity are right, in simulation; ``python -m tests.bench.diversity``.

Over cases: the chance that two answers to a case are of one kind, mean over these cases, of which each has a
distribution of its own. Of near-duplicates: how exact sketches are, what they cost, and the verdicts on an agent whose
answers vary about a few texts. Prints Markdown.
"""

from __future__ import annotations

import argparse
import math
import random
import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import product
from typing import NamedTuple

import numpy as np
from numpy import float64
from numpy.typing import NDArray

from evalq.evalcore.evaluators.checks.diversity.near import SHINGLE, NearKinds, kind_of_text, similarity, sketch
from evalq.evalcore.evaluators.checks.diversity.report import bounds_at_the_edge
from evalq.evalcore.statistics.diversity import share_rule
from evalq.evalcore.statistics.mode_share import FIXED_RUNS, collision_interval, collision_probability, mean_interval
from evalq.evalcore.views.markdown import table
from evalq.evalcore.words import EMPTY_WORDS, NEGATIONS, against

LEAST = 0.93
"""What every interval of 95 % has to hold in."""
_CASES = (1, 2, 5, 30)
_ANSWERS = (2, 5, 20, 100)
_KINDS = 10
_letters = random.Random("diversity")
_MADE = ["".join(_letters.choices("abcdefghiklmoprstuvwz", k=_letters.randint(3, 9))) for _ in range(3000)]
_VOCABULARY = [word for word in _MADE if word not in NEGATIONS | EMPTY_WORDS and not against(word)]

Shares = NDArray[float64]


def _dirichlet(size: float) -> Callable[[np.random.Generator], Shares]:
    return lambda source: source.dirichlet([size] * _KINDS)


def _mixed(collapsed: float) -> Callable[[np.random.Generator], Shares]:
    """That part of the cases always gets one answer, the others ten kinds alike."""
    one, all_alike = np.eye(_KINDS)[0], np.full(_KINDS, 1 / _KINDS)
    return lambda source: one if source.random() < collapsed else all_alike


AGENTS: Mapping[str, Callable[[np.random.Generator], Shares]] = {
    "ten kinds alike": _mixed(0.0),
    "kinds vary little": _dirichlet(5.0),
    "kinds vary": _dirichlet(0.5),
    "one kind mostly": _dirichlet(0.05),
    "half collapsed": _mixed(0.5),
    "one in ten collapsed": _mixed(0.1),
    "one in fifty answers differs": lambda source: np.array([0.98, 0.02]),
    "all collapsed": _mixed(1.0),
}
"""How a case's shares are drawn."""


def agreement_coverage(
    agent: str, cases: int, answers: int, times: int, source: np.random.Generator
) -> tuple[float, float]:
    """How often the interval holds the mean over ``cases``, and how wide it is on average."""
    held, wide = 0, 0.0
    for _ in range(times):
        shares = [AGENTS[agent](source) for _ in range(cases)]
        truth = sum(float((each**2).sum()) for each in shares) / cases
        found = [_estimate(source.multinomial(answers, each).tolist()) for each in shares]
        bounds = mean_interval(found, [1.0] * cases)
        assert bounds is not None
        held += bounds[0] - 1e-12 <= truth <= bounds[1] + 1e-12
        wide += bounds[1] - bounds[0]
    return held / times, wide / times


def _estimate(counts: list[int]) -> tuple[float, float, float]:
    value = collision_probability(counts)
    assert value is not None
    return value, *collision_interval(value, max(counts), sum(counts))


class Accuracy(NamedTuple):
    """Of estimated shares: the root of the mean square error, the mean and largest error; and microseconds a sketch."""

    rms: float
    bias: float
    most: float
    micros: float


def text_of(length: int, source: random.Random) -> str:
    """So many made-up words."""
    return " ".join(source.choice(_VOCABULARY) for _ in range(length))


def edited(text: str, changes: int, source: random.Random) -> str:
    """The text with so many of its words replaced."""
    parts = text.split(" ")
    for _ in range(changes):
        parts[source.randrange(len(parts))] = source.choice(_VOCABULARY)
    return " ".join(parts)


def accuracy(length: int, pairs: int, source: random.Random) -> Accuracy:
    """Sketches of texts of so many words against Jaccard's share, of pairs that differ in up to a quarter."""
    errors, micros = [], []
    for _ in range(pairs):
        one = text_of(length, source)
        other = edited(one, source.randrange(max(1, length // 4) + 1), source)
        started = time.process_time_ns()
        mine = sketch(one)
        micros.append((time.process_time_ns() - started) / 1000)
        sets = [{f" {text} "[at : at + SHINGLE] for at in range(len(text) + 3 - SHINGLE)} for text in (one, other)]
        errors.append(similarity(mine, sketch(other)) - len(sets[0] & sets[1]) / len(sets[0] | sets[1]))
    mean_square = statistics.mean(error * error for error in errors)
    return Accuracy(math.sqrt(mean_square), statistics.mean(errors), max(map(abs, errors)), statistics.median(micros))


class NearRates(NamedTuple):
    """How often the interval held the commonest text's share, how often the verdict was wrong, how often there was one;
    and how often a sweep that looks after every answer would have stopped, and did so wrongly.
    """

    covered: float
    wrong: float
    decided: float
    stopped: float
    stopped_wrong: float


def near_rates(
    shares: Sequence[float], answers: int, changes: int, times: int, source: random.Random, limit: float = 0.7
) -> NearRates:
    """An agent that says texts of 40 words by ``shares``, each time with up to so many words replaced."""
    truth = max(shares)
    covered = wrong = decided = stopped = 0
    for _ in range(times):
        bases, kinds, loose, ended = [text_of(40, source) for _ in shares], NearKinds(0.8), NearKinds(0.7), False
        for base in source.choices(bases, shares, k=answers):
            text = edited(base, source.randint(0, changes), source)
            for each in (kinds, loose):
                each.add(kind_of_text(text), sketch(text))
            # By near texts only a collapse ends a case.
            ended = ended or share_rule(answers).verdict(kinds.mode, kinds.answers, limit) == "collapsed"
        low, high, said = bounds_at_the_edge(FIXED_RUNS, kinds.mode, loose.mode, answers, limit)
        covered += low <= truth <= high
        wrong += said == ("collapsed" if truth <= limit else "diverse")
        decided += said != "inconclusive"
        stopped += ended
    ended_wrong = stopped / times if truth <= limit else 0.0
    return NearRates(covered / times, wrong / times, decided / times, stopped / times, ended_wrong)


def _near_rows(times: int, source: random.Random) -> Iterator[tuple[object, ...]]:
    agents = ((0.7, 0.3), (0.7, 0.1, 0.1, 0.1), (0.5, 0.5), (0.9, 0.1), (1.0,))
    for changes, shares, answers in product((1, 2), agents, (5, 20, 50)):
        found = near_rates(shares, answers, changes, times, source)
        messages = ", ".join(f"{share:g}" for share in shares)
        yield changes, messages, answers, *(f"{rate:.1%}" for rate in found)


def _accuracy_rows(source: random.Random) -> Iterator[tuple[object, ...]]:
    for length in (5, 10, 30, 150, 700):
        found = accuracy(length, 300, source)
        yield length, f"{found.rms:.3f}", f"{found.bias:+.3f}", f"{found.most:.3f}", f"{found.micros:.0f}"


def _rows(times: int, source: np.random.Generator) -> Iterator[tuple[object, ...]]:
    for cases, answers in product(_CASES, _ANSWERS):
        messages = [agreement_coverage(agent, cases, answers, times, source) for agent in AGENTS]
        least = min(share for share, _ in messages)
        yield cases, answers, *(f"{share:.1%} ({wide:.2f})" for share, wide in messages), f"{least:.1%}"


def main() -> None:
    """The table, and what it is known to."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.diversity", description=__doc__)
    parser.add_argument("--times", type=int, default=1000, help="simulated runs a cell")
    parser.add_argument("--seed", type=int, default=20261123)
    asked = parser.parse_args()
    source = np.random.default_rng(asked.seed)
    print(table(("cases", "answers of each", *AGENTS, "least"), list(_rows(asked.times, source))))
    words = random.Random(asked.seed)
    print(table(("words", "root mean square", "mean error", "largest", "µs a sketch"), list(_accuracy_rows(words))))
    rows = list(_near_rows(asked.times, words))
    print(
        table(
            (
                "words replaced",
                "shares of texts",
                "answers",
                "interval held",
                "wrong verdict",
                "any verdict",
                "stopped",
                "wrongly",
            ),
            rows,
        )
    )
    error = 1.96 * math.sqrt(0.05 * 0.95 / asked.times)
    print(f"{asked.times} runs a cell, seed {asked.seed}; a share near 95 % is known to {error:.1%}.")


if __name__ == "__main__":
    main()
