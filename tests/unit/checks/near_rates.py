"""How often the verdict of near answers errs on sets whose truth is known, and how often it decides."""

from __future__ import annotations

from collections import Counter
from typing import NamedTuple

from evalq.evalcore.evaluators.checks.diversity.kinds import KindCounts, mark_of
from evalq.evalcore.evaluators.checks.diversity.report import diversity_section
from evalq.evalcore.evaluators.checks.params import Diversity
from tests.unit.checks.helpers import params_of
from tests.unit.checks.near_corpus import corpus

SEEDS = range(5)


class NearRates(NamedTuple):
    """Shares of all decided sets that are wrongly so, of all sets that are decided, and of each half that is."""

    false_collapsed: float
    false_diverse: float
    decided: float
    decided_different: float
    decided_same: float


def verdict_of(answers: list[str]) -> str:
    """The verdict of a report on these answers to one case, by near texts."""
    how = Diversity(by="near")
    counts = KindCounts()
    for repeat, answer in enumerate(answers):
        counts.add(repeat, mark_of(answer, how, {}))
    counts.sort()
    params = params_of([{"id": "c", "checks": [{"contains": "x"}], "diversity": {"by": "near"}}])
    return str(diversity_section([(params.cases[0], counts, 0)], params)["diversity"]["by_case"][0]["verdict"])


def near_rates(number: int) -> NearRates:
    """Of the 40 sets of a corpus, drawn with each of `SEEDS`."""
    said: Counter[tuple[bool, str]] = Counter()
    for seed in SEEDS:
        for each in corpus(number, seed):
            said[each.same, verdict_of(each.answers)] += 1
    halves = {same: sum(count for (of, _), count in said.items() if of is same) for same in (True, False)}
    decided = {same: halves[same] - said[same, "inconclusive"] for same in (True, False)}
    known = sum(decided.values())
    return NearRates(
        said[False, "collapsed"] / known,
        said[True, "diverse"] / known,
        known / sum(halves.values()),
        decided[False] / halves[False],
        decided[True] / halves[True],
    )
