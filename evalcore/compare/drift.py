"""Drift over the runs of a suite: a detector that pages at most once in a thousand unchanged runs, by construction.

A run's p-value is that of its answers among all that were given to the same cases before (`surprise`): given those
and the new ones together, which of them are new is a draw without replacement, whatever the cases' true rates are. So
nothing has to be known of the reference, and without change the p-values of successive runs are bounded from below by
independent uniform ones (as conformal p-values are: Vovk, Gammerman and Shafer 2005, chapter 8).

Each run is a bet against its p-value, by a function that falls in p and whose mean over a uniform p is 1. The stakes
that were begun with each run add up to an e-detector (Shin, Ramdas and Rinaldo 2024; that of Shiryaev and Roberts where
bets are likelihood ratios). Without change its mean grows by 1 a run, so that it reaches `PAGED` at most once in as
many runs on average: however long one looks, and over all references that might have been drawn.
"""

from __future__ import annotations

import math
from functools import lru_cache
from statistics import NormalDist
from typing import Literal

import msgspec

from evalq.evalcore.compare.pairs import Pairs, pairs_of
from evalq.evalcore.compare.pool import added, alike, bare, together
from evalq.evalcore.compare.run import RunCases
from evalq.evalcore.compare.summary import CaseSummary
from evalq.evalcore.compare.surprise import surprise
from evalq.evalcore.contract.measures import Measure

__all__ = [
    "CLEARED",
    "MOST",
    "PAGED",
    "SCHEMA",
    "SHIFTS",
    "Chain",
    "Stake",
    "WatchedMeasure",
    "begin",
    "bet",
    "count",
    "worth",
]

SCHEMA = "evalq.drift/1"
PAGED = 1000.0
"""An e-value from which on it pages; without change that takes at least as many runs, on average."""
CLEARED = 100.0
"""An e-value below this ends a page, and evidence is gathered anew."""
SHIFTS = (0.5, 1.0, 2.0, 4.0)
"""By how many standard deviations of a run a change may lower it; bets on each are mixed equally."""
_MOST_SCALE = 2.0
"""A run whose deviations are a smaller part of the first one's is bet on as if they were a half of those. A p-value is
at most seven deviations out, where steeper bets win least; and the fee of a slope above 37 is beyond any double."""
_FLOOR = -1.0
"""A run that is better than by so many standard deviations costs no more: a later drop is then seen as soon."""
MOST = 10 * PAGED
"""More evidence is not kept, so that a page ends a few runs after the agent was fixed."""
_STAKES = 50
_KNOWN = 200
_NORMAL = NormalDist()


class Stake(msgspec.Struct, array_like=True):
    """What was bet from one run on: ``before`` answers were there by then; by shift the logarithm of its worth."""

    before: float
    logs: list[float]


class WatchedMeasure(msgspec.Struct):
    """One measure of a chain. ``e`` is the detector's value, ``p`` the newest run's p-value.

    ``change`` is by how much the newest run's cases differ from what was there, as a share of the scale; below 0 is
    worse. ``information`` is how much the first run that was compared could tell: shifts are in its standard
    deviations. ``since`` is the run that paged, as long as it does. The newest run is the newest that has values of it:
    ``run``, empty in what earlier versions wrote.
    """

    stakes: list[Stake] = []
    information: float = 0.0
    e: float = 0.0
    p: float = 1.0
    change: float = 0.0
    since: str = ""
    run: str = ""


class Chain(msgspec.Struct, kw_only=True):
    """The runs of one suite and target by one specification: a reference, and all that came after it, as sums.

    ``kind`` says where the reference comes from, ``runs`` how many were compared with it since. ``pool`` has the
    answers of all, by case (``whole``: as if of one). ``known`` has the newest runs that were counted, with the digest
    of each one's report.
    """

    schema: str = SCHEMA
    specification: str
    reference: str
    kind: Literal["baseline", "first"]
    runs: int = 0
    whole: bool = False
    pool: CaseSummary
    watched: dict[str, WatchedMeasure] = {}
    known: list[tuple[str, str]] = []


def begin(run: RunCases, kind: Literal["baseline", "first"] = "first") -> Chain:
    """A chain whose reference is ``run``."""
    return Chain(
        specification=run.specification,
        reference=run.run,
        kind=kind,
        pool=bare(run.cases),
        watched={measure.name: WatchedMeasure() for measure in run.cases.measures},
        known=[(run.run, run.report)],
    )


def count(chain: Chain, run: RunCases) -> Chain:
    """The chain with one more run; itself where that was counted before.

    Recorded outputs (runs without a target) that are evaluated a second time, under whatever name, are no further
    evidence, and are not counted either.
    """
    if any(name == run.run or (not run.target and report == run.report) for name, report in chain.known):
        return chain
    new = bare(run.cases)
    # Settled with the first run that is compared: what stakes are worth is of one kind of comparison.
    whole = chain.whole or (chain.runs == 0 and not alike(chain.pool, new))
    pool = together(chain.pool) if whole else chain.pool
    new = together(new) if whole else new
    watched = {
        measure.name: _watched(chain.watched.get(measure.name, WatchedMeasure()), pool, measure, new, run.run)
        for measure in new.measures
    }
    # A run without values of an optional measure says nothing of it: its evidence, and its page, stay as they are.
    watched |= {name: before for name, before in chain.watched.items() if name not in watched}
    return msgspec.structs.replace(
        chain,
        runs=chain.runs + 1,
        whole=whole,
        # Only now: a run that stood in its own reference would look less surprising than it is.
        pool=added(pool, new),
        watched=watched,
        known=[*chain.known, (run.run, run.report)][-_KNOWN:],
    )


def _watched(before: WatchedMeasure, pool: CaseSummary, measure: Measure, new: CaseSummary, run: str) -> WatchedMeasure:
    pairs = pairs_of(pool, new, measure) if measure.name in pool.columns else None
    # No case to compare is no evidence either way: the detector stands still.
    if pairs is None or not pairs.ids:
        return before
    p = surprise(pairs, measure)
    sign = 1.0 if measure.better == "higher" else -1.0
    change = sign * float((pairs.cand.mean - pairs.base.mean).mean()) / measure.width
    information, remaining = _design(pairs)
    # That of the first comparison, for good: a stake that is carried on must keep the unit that it was made in.
    first = before.information or information
    answers = float(sum(pool.columns[measure.name].count))
    stakes = bet(before.stakes, p, remaining * math.sqrt(information / first), answers)
    e = worth(stakes)
    since = before.since or (run if e >= PAGED else "")
    # All stakes go, not the page alone: those that won by the drop would page again by what is over.
    if since and e < CLEARED:
        return WatchedMeasure([], first, 0.0, p, change, run=run)
    return WatchedMeasure(stakes, first, e, p, change, since, run)


def _design(pairs: Pairs) -> tuple[float, float]:
    """What a run could tell, and what of its effect remains beside the uncertainty of what it is compared with.

    By counts alone: a stake that knew of outcomes could not be carried from run to run.
    """
    of_new = float((1.0 / pairs.cand.answers).mean())
    of_old = float((1.0 / pairs.base.answers).mean())
    return len(pairs.ids) / of_new, math.sqrt(of_new / (of_new + of_old))


def bet(stakes: list[Stake], p: float, scale: float, answers: float) -> list[Stake]:
    """All stakes after a run of p-value ``p``, with one that is begun by it; ``answers`` were there before it.

    ``scale`` is by how many deviations this run would be lowered where the first was by one. Stakes begun earlier bet
    on less: what came after a drop is in the reference by now. No other rule than dropping stakes, or lowering them,
    keeps the expected sum below the number of runs. It goes by counts alone, so that its bound leaves the bet fair.
    """
    scale = min(scale, _MOST_SCALE)
    # At 1 there is no quantile, and so little surprise is at the floor anyway.
    z = max(_FLOOR, -_NORMAL.inv_cdf(p)) if p < 1.0 else _FLOOR
    after = []
    for stake in (*stakes, Stake(answers, [0.0] * len(SHIFTS))):
        slopes = [shift * scale * stake.before / answers for shift in SHIFTS]
        logs = [log + slope * z - _fee(slope) for log, slope in zip(stake.logs, slopes, strict=True)]
        after.append(Stake(stake.before, logs))
    # The ones worth least go: what is dropped only lowers the sum, so its bound still holds.
    kept = sorted(sorted(after, key=_worth)[-_STAKES:], key=lambda stake: stake.before)
    over = math.log(max(1.0, worth(kept) / MOST))
    return [Stake(stake.before, [log - over for log in stake.logs]) for stake in kept]


def worth(stakes: list[Stake]) -> float:
    """The detector's value: all stakes together."""
    return sum(map(_worth, stakes))


def _worth(stake: Stake) -> float:
    # A mean of fair bets is a fair bet, whichever shift comes true; the best of them would be none.
    return sum(map(math.exp, stake.logs)) / len(SHIFTS)


@lru_cache(maxsize=4096)
def _fee(slope: float) -> float:
    """log E exp(slope max(z, floor)) for a standard normal z: what makes the bet fair."""
    above = math.exp(slope * slope / 2) * _NORMAL.cdf(slope - _FLOOR)
    return math.log(above + math.exp(slope * _FLOOR) * _NORMAL.cdf(_FLOOR))
