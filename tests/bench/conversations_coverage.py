"""How often intervals over conversations hold the truth; ``python -m tests.bench.conversations_coverage`` simulates it.

pass^k over cases like these, which differ by a beta distribution, or are of two kinds. And the pass rate without the
answers that a simulated user loses, which a judge finds not always, and people label for some. Prints Markdown.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Iterator
from itertools import product
from typing import NamedTuple

import numpy as np

from evalq.evalcore.evaluators.checks.report import UNSEEN_OF_PASS_HAT, rates_of_k
from evalq.evalcore.evaluators.checks.user.report import UserCounts, corrected_rate
from evalq.evalcore.statistics.rates import clustered
from evalq.evalcore.views.markdown import table

LEAST = 0.93
"""What every interval of 95 % has to hold in."""
CONVERSATIONS = (5, 10, 20, 50)
REPEATS = (1, 2, 3, 5, 10)
MEANS = (0.0, 0.3, 0.5, 0.8, 0.9, 0.95, 0.99, 1.0)
CORRELATIONS = (0.0, 0.1, 0.5, 0.9)


class Kinds(NamedTuple):
    """The conversations: their mean chance to pass, and the correlation of repeats; or two kinds of them."""

    mean: float
    correlation: float
    rare: tuple[float, float, float] | None = None
    """(share of the first kind, its chance, that of the second kind) in place of both."""

    def chances(self, cases: int, source: np.random.Generator) -> list[float]:
        """The chance of each of some conversations."""
        if self.rare is not None:
            share, first, second = self.rare
            return np.where(source.random(cases) < share, first, second).tolist()  # type: ignore[no-any-return]  # numpy says Any
        if self.correlation == 0.0 or self.mean in (0.0, 1.0):
            return [self.mean] * cases
        size = 1 / self.correlation - 1
        drawn: list[float] = source.beta(self.mean * size, (1 - self.mean) * size, cases).tolist()
        return drawn

    def of_k(self, k: int) -> float:
        """The mean chance that k repeats all pass."""
        if self.rare is not None:
            share, first, second = self.rare
            return share * first**k + (1 - share) * second**k
        if self.correlation == 0.0 or self.mean in (0.0, 1.0):
            return self.mean**k
        size = 1 / self.correlation - 1
        return math.prod((self.mean * size + at) / (size + at) for at in range(k))


EVERY = [
    *(Kinds(mean, each) for mean, each in product(MEANS, CORRELATIONS) if mean not in (0.0, 1.0) or not each),
    *(
        Kinds(0, 0, rare)
        for rare in ((0.1, 0.0, 1.0), (0.2, 0.3, 0.98), (0.1, 0.2, 0.9), (0.5, 0.0, 1.0), (0.2, 0.95, 0.05))
    ),
]


def pass_hat_coverage(
    cases: int, repeats: int, k: int, kinds: Kinds, times: int, source: np.random.Generator, lost: float = 0.0
) -> float:
    """How often the interval of pass^k holds; each answer is ``lost`` with that chance, so that numbers differ."""
    held, truth = 0, kinds.of_k(k)
    for _ in range(times):
        left = source.binomial(repeats, 1 - lost, cases) if lost else np.full(cases, repeats)
        passed = source.binomial(left, kinds.chances(cases, source))
        rates = rates_of_k([(c, n, 1.0, "") for c, n in zip(passed.tolist(), left.tolist(), strict=True)], k, hat=True)
        found = clustered(rates, unseen=UNSEEN_OF_PASS_HAT)
        held += found is None or found.low - 1e-9 <= truth <= found.high + 1e-9
    return held / times


class Users(NamedTuple):
    """A simulated user that fails more often where the agent fails; and the judge of it: what it finds, and wrongly."""

    if_passed: float
    if_failed: float
    found: float
    wrongly: float
    labelled: float


USERS = {
    "no fault": Users(0.0, 0.0, 0.0, 0.0, 0.5),
    "no judge": Users(0.05, 0.3, 0.0, 0.0, 0.5),
    "good judge": Users(0.05, 0.3, 0.9, 0.05, 0.3),
    "fair judge": Users(0.1, 0.3, 0.7, 0.2, 0.3),
    "all labelled": Users(0.05, 0.3, 0.9, 0.05, 1.0),
}


def corrected_coverage(
    cases: int, repeats: int, mean: float, correlation: float, users: Users, times: int, source: np.random.Generator
) -> tuple[float, float]:
    """How often the corrected rate's interval holds the rate of answers whose user keeps to its part; its width."""
    kinds, held, wide, number = Kinds(mean, correlation), 0, 0.0, 0
    kept = (mean * (1 - users.if_passed), (1 - mean) * (1 - users.if_failed))
    truth = kept[0] / sum(kept)
    for _ in range(times):
        shape = (cases, repeats)
        passed = source.random(shape) < np.array(kinds.chances(cases, source))[:, None]
        fault = source.random(shape) < np.where(passed, users.if_passed, users.if_failed)
        flagged = source.random(shape) < np.where(fault, users.found, users.wrongly)
        seen = np.zeros(cases * repeats, bool)
        count = max(1, round(users.labelled * cases * repeats))
        seen[source.permutation(cases * repeats)[:count]] = True
        labelled = seen.reshape(shape)
        cells = [
            part.sum(axis=1)
            for passes, finds in product((passed, ~passed), (~flagged, flagged))
            for part in (passes & finds, passes & finds & labelled & ~fault, passes & finds & labelled & fault)
        ]
        found = corrected_rate([UserCounts(1.0, 0, row) for row in np.array(cells).T.tolist()])
        if found is None:
            held += 1
            continue
        number += 1
        held += found.interval.low - 1e-9 <= truth <= found.interval.high + 1e-9
        wide += found.interval.high - found.interval.low
    return held / times, wide / max(1, number)


def _pass_hat_rows(times: int, source: np.random.Generator, lost: float) -> Iterator[tuple[object, ...]]:
    for cases in CONVERSATIONS:
        for repeats in REPEATS:
            row, least = [], 1.0
            for k in REPEATS:
                if k > repeats:
                    row.append("")
                    continue
                worst = min(pass_hat_coverage(cases, repeats, k, each, times, source, lost) for each in EVERY)
                least = min(least, worst)
                row.append(f"{worst:.1%}")
            yield cases, repeats, *row, f"{least:.1%}"


def _corrected_rows(times: int, source: np.random.Generator) -> Iterator[tuple[object, ...]]:
    for cases, repeats in product(CONVERSATIONS, (1, 3, 10)):
        row, least = [], 1.0
        for users in USERS.values():
            settings = product((0.3, 0.5, 0.8, 0.95), (0.0, 0.3, 0.9))
            found = [corrected_coverage(cases, repeats, *each, users, times, source) for each in settings]
            worst = min(held for held, _ in found)
            least = min(least, worst)
            row.append(f"{worst:.1%} ({math.fsum(wide for _, wide in found) / len(found):.2f})")
        yield cases, repeats, *row, f"{least:.1%}"


def main() -> None:
    """All three tables."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.conversations_coverage", description=__doc__)
    parser.add_argument("--times", type=int, default=1000, help="simulated runs a cell")
    parser.add_argument("--seed", type=int, default=20261128)
    parser.add_argument("--part", choices=("pass", "users"), help="one of the two; default: both")
    asked = parser.parse_args()
    heads = ("conversations", "repeats", *(f"k = {k}" for k in REPEATS), "least")
    for lost in () if asked.part == "users" else (0.0, 0.1):
        print(f"pass^k, {lost:.0%} of the answers lost:\n")
        print(table(heads, list(_pass_hat_rows(asked.times, np.random.default_rng(asked.seed), lost))), flush=True)
    if asked.part != "pass":
        found = list(_corrected_rows(asked.times, np.random.default_rng(asked.seed)))
        print(table(("conversations", "repeats", *USERS, "least"), found))
    error = 1.96 * math.sqrt(0.05 * 0.95 / asked.times)
    print(f"{asked.times} runs a cell, seed {asked.seed}; a share near 95 % is known to {error:.1%}.")


if __name__ == "__main__":
    main()
