"""Drift over the runs of a suite: a detector that pages at most once in a thousand unchanged runs.

A run's p-value is that of its answers among all that were given before (`surprise`). Which of them are exchangeable is
explicit: answers within a case that recurs, cases where each run has its own, and days, whose moods all answers of a
day share (`days`). So nothing has to be known of the reference, and without change the p-values of successive days are
bounded from below by independent uniform ones (as conformal p-values are: Vovk, Gammerman and Shafer 2005, chapter 8).

Each day is a bet against its p-value, by a function that falls in p and whose mean over a uniform p is 1. The stakes
that were begun with each day add up to an e-detector (Shin, Ramdas and Rinaldo 2024; that of Shiryaev and Roberts where
bets are likelihood ratios). Without change its mean grows by 1 a day, so that it reaches `PAGED` at most once in as
many days on average: however long one looks, and over all references that might have been drawn. Several runs of one
day share one bet, the mean of theirs.
"""

from __future__ import annotations

import math
from functools import lru_cache
from statistics import NormalDist
from typing import TYPE_CHECKING, Literal

import msgspec

from evalq.evalcore.compare.days import Days
from evalq.evalcore.compare.pairs import pairs_of
from evalq.evalcore.compare.pool import added, alike, bare
from evalq.evalcore.compare.run import RunCases
from evalq.evalcore.compare.summary import CaseSummary
from evalq.evalcore.compare.surprise import Fall, binned, of_cases, of_draws
from evalq.evalcore.contract.measures import Measure

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = [
    "CLEARED",
    "MOST",
    "PAGED",
    "SCHEMA",
    "SHIFTS",
    "WORSE",
    "Chain",
    "Stake",
    "WatchedMeasure",
    "begin",
    "bet",
    "count",
    "worth",
]

SCHEMA = "evalq.drift/2"
PAGED = 1000.0
"""An e-value from which on it pages; without change that takes at least as many runs, on average."""
WORSE = 100.0
"""An e-value from which on a suite looks worse, which pages nobody: ten times as often without change."""
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
    deviations. ``since`` is the run that paged, as long as it does; ``worse`` the one from which on the measure looks
    worse, as long as it does. The newest run is the newest that has values of it: ``run``.

    ``days`` is what the runs say of the moods of days. ``morning`` are the stakes before the newest day, on which
    ``today`` runs were counted.
    """

    stakes: list[Stake] = []
    information: float = 0.0
    e: float = 0.0
    p: float = 1.0
    change: float = 0.0
    since: str = ""
    worse: str = ""
    run: str = ""
    days: Days = msgspec.field(default_factory=Days)
    morning: list[Stake] = []
    today: int = 0


class Chain(msgspec.Struct, kw_only=True):
    """The runs of one suite and target by one specification: a reference, and all that came after it, as sums.

    ``kind`` says where the reference comes from, ``runs`` how many were compared with it since. ``pool`` has the
    answers of all, by case. Where each run has cases of its own (``drawn``) those are the draws, and ``means`` counts
    the means of all of them by measure, `binned`. ``known`` has the newest runs that were counted, with the digest of
    each one's report; ``day`` is the newest one's, empty where nobody knows.
    """

    schema: str = SCHEMA
    specification: str
    reference: str
    kind: Literal["baseline", "first"]
    runs: int = 0
    drawn: bool = False
    pool: CaseSummary
    means: dict[str, list[float]] = {}
    watched: dict[str, WatchedMeasure] = {}
    known: list[tuple[str, str]] = []
    day: str = ""


def begin(run: RunCases, kind: Literal["baseline", "first"] = "first") -> Chain:
    """A chain whose reference is ``run``."""
    return Chain(
        specification=run.specification,
        reference=run.run,
        kind=kind,
        pool=bare(run.cases),
        watched={measure.name: WatchedMeasure(days=Days(day=run.day)) for measure in run.cases.measures},
        known=[(run.run, run.report)],
        day=run.day,
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
    drawn = chain.drawn or (chain.runs == 0 and not alike(chain.pool, new))
    means = chain.means if chain.drawn else _means(chain.pool) if drawn else {}
    further = _means(new) if drawn else {}
    watched = dict(chain.watched)
    for measure in new.measures:
        fall = _drawn(means, further, measure) if drawn else _paired(chain.pool, new, measure)
        # No case to compare is no evidence either way: the detector stands still. A run without values of an optional
        # measure says nothing of it: its evidence, and its page, stay as they are.
        if fall is not None:
            before = watched.get(measure.name, WatchedMeasure(days=Days(day=chain.day)))
            there = sum(means[measure.name]) if drawn else float(sum(chain.pool.columns[measure.name].count))
            watched[measure.name] = _watched(before, fall, there, run)
    return msgspec.structs.replace(
        chain,
        runs=chain.runs + 1,
        drawn=drawn,
        # Only now: a run that stood in its own reference would look less surprising than it is.
        pool=CaseSummary(new.measures) if drawn else added(chain.pool, new),
        means=_summed(means, further),
        watched=watched,
        known=[*chain.known, (run.run, run.report)][-_KNOWN:],
        day=run.day,
    )


def _means(cases: CaseSummary) -> dict[str, list[float]]:
    """{measure: how many cases have which mean}."""
    found = {}
    for measure in cases.measures:
        pairs = pairs_of(cases, cases, measure)
        if pairs.ids:
            found[measure.name] = binned(pairs.base, measure)
    return found


def _summed(before: Mapping[str, list[float]], new: Mapping[str, list[float]]) -> dict[str, list[float]]:
    both = {
        name: [a + b for a, b in zip(each, before[name], strict=True)] for name, each in new.items() if name in before
    }
    return {**before, **new, **both}


def _drawn(before: Mapping[str, list[float]], new: Mapping[str, list[float]], measure: Measure) -> Fall | None:
    there = measure.name in before and measure.name in new
    return of_draws(before[measure.name], new[measure.name]) if there else None


def _paired(pool: CaseSummary, new: CaseSummary, measure: Measure) -> Fall | None:
    pairs = pairs_of(pool, new, measure) if measure.name in pool.columns else None
    return of_cases(pairs, measure) if pairs is not None and pairs.ids else None


def _watched(before: WatchedMeasure, fall: Fall, there: float, run: RunCases) -> WatchedMeasure:
    """With one more run, before which so many answers, or cases, were ``there``."""
    # Not the first run of its day. That of the reference is no day that was bet on.
    again = bool(run.day) and run.day == before.days.day and before.today > 0
    moods = before.days.moods(fall, run.day)
    p = fall.p(moods.deviations, moods.odds, moods.expected)
    # What a run could tell, and what of its effect remains beside the uncertainty of what it is compared with. By
    # counts alone: a stake that knew of outcomes could not be carried from run to run.
    information = fall.cases / fall.of_new
    remaining = math.sqrt(fall.of_new / (fall.of_new + fall.of_old))
    # That of the first comparison, for good: a stake that is carried on must keep the unit that it was made in.
    first = before.information or information
    morning = before.morning if again else before.stakes
    stakes = bet(morning, p, remaining * math.sqrt(information / first), there)
    if again:
        stakes = _shared(before.stakes, before.today, stakes)
    e = worth(stakes)
    found = WatchedMeasure(
        stakes, first, e, p, fall.change, run=run.run, days=before.days.after(fall, run.day), morning=morning,
        today=before.today + 1 if again else 1,
    )  # fmt: skip
    found.since = before.since or (run.run if e >= PAGED else "")
    found.worse = (before.worse or run.run) if e >= WORSE else ""
    # All stakes go, not the page alone: those that won by the drop would page again by what is over.
    if found.since and e < CLEARED:
        found.stakes, found.morning, found.e, found.since = [], [], 0.0, ""
    return found


def _shared(before: list[Stake], runs: int, newest: list[Stake]) -> list[Stake]:
    """The mean of the bets of ``runs`` runs of a day and of its newest one: a mean of fair bets is a fair bet."""
    found: dict[float, list[float]] = {}
    for stakes, share in ((before, runs / (runs + 1)), (newest, 1 / (runs + 1))):
        for stake in stakes:
            logs = [log + math.log(share) for log in stake.logs]
            known = found.get(stake.before)
            found[stake.before] = logs if known is None else [_log_sum(*each) for each in zip(known, logs, strict=True)]
    return [Stake(at, logs) for at, logs in sorted(found.items())]


def _log_sum(a: float, b: float) -> float:
    return max(a, b) + math.log1p(math.exp(-abs(a - b)))


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
