"""Drift over the runs of a suite: a detector that pages at most once in a thousand unchanged runs.

A run's p-value is that of its answers among all that were given before (`surprise`). Which of them are exchangeable is
explicit: answers within a case that recurs, cases where each run has its own, and days, whose moods all answers of a
day share (`Days`). So nothing has to be known of the reference, and without change the p-values of successive days are
bounded from below by independent uniform ones (as conformal p-values are: Vovk, Gammerman and Shafer 2005, chapter 8).

Each day is a bet against its p-value, by a function that falls in p and whose mean over a uniform p is 1. The stakes
that were begun with each day add up to an e-detector (Shin, Ramdas and Rinaldo 2024; that of Shiryaev and Roberts where
bets are likelihood ratios). Without change its mean grows by 1 a day, so that it reaches `PAGED` at most once in as
many days on average: however long one looks, and over all references that might have been drawn. Several runs of one
day share one bet, the mean of theirs.
"""

from __future__ import annotations

import math
from datetime import date
from functools import lru_cache
from statistics import NormalDist
from typing import TYPE_CHECKING, Literal, NamedTuple

import msgspec

from evalq.evalcore.compare.pairs import pairs_of
from evalq.evalcore.compare.summary import CaseColumn, CaseSummary, RunCases
from evalq.evalcore.compare.surprise import RunFall, binned, of_cases, of_draws
from evalq.evalcore.contract.measures import Measure

if TYPE_CHECKING:
    from collections.abc import Mapping
from evalq.evalcore.model.canonical import canonical_json

# The moods of days: by how much unchanged runs differ from each other beyond what their answers' draw explains.
# On a bad day all answers of a run are a little worse. Each day's mood is taken for normal around that of its
# weekday, with a standard deviation that nobody knows. For the first nine comparisons it is `DAY_SD`; from then on
# each of `_DEVIATIONS` counts by how well it explains the changes that were seen (its likelihood), and by
# `_WEIGHTS`, which lean to `DAY_SD`: nine days do not show that there are no moods. Changes against all runs before
# are independent of each other, as Helmert's contrasts are.

DAY_SD = 0.03
"""The standard deviation of a day's mood that is assumed before runs have shown it, as a share of the scale."""
_DEVIATIONS = (0.0, 0.01, 0.02, 0.03, 0.045, 0.07, 0.1)
_WEIGHTS = (0.1, 0.1, 0.1, 0.5, 0.15, 0.04, 0.01)
_SHOWN = 9
"""So many comparisons have to be there before they say anything of days: from the tenth on."""
_LEAST = 0.5
"""A run's deviation by its draw is at least that of half an answer, or runs that all pass would be certain of it."""


class Moods(NamedTuple):
    """What a run's change is to be held against: the ``expected`` change, and the deviations beside its draw."""

    expected: float
    deviations: list[float]
    odds: list[float]


class Days(msgspec.Struct, frozen=True):
    """What the runs of a chain say of days, by one measure.

    ``level`` is the mean of all runs less that of the reference, ``spread`` the sum of the squares of their shares of
    it. ``likelihood`` has the logarithm of that of each of `_DEVIATIONS`, of ``compared`` days. ``weekdays`` has how
    many days there were of each weekday before the newest day, and the sum of their levels; ``today`` the runs of the
    newest day, ``day``, and the sum of theirs.
    """

    level: float = 0.0
    spread: float = 1.0
    compared: int = 0
    likelihood: tuple[float, ...] = (0.0,) * len(_DEVIATIONS)
    weekdays: dict[int, tuple[int, float]] = {}
    day: str = ""
    today: tuple[int, float] = (1, 0.0)

    def moods(self, fall: RunFall, day: str) -> Moods:
        """For a run of ``day`` (ISO, empty where nobody knows it), compared with all runs before it."""
        shown = self.compared >= _SHOWN
        deviations, odds = (_DEVIATIONS, self._odds()) if shown else ((DAY_SD,), [1.0])
        expected, spreads = self._of(fall, day, deviations)
        return Moods(expected, [math.sqrt(each) for each in spreads], odds)

    def after(self, fall: RunFall, day: str) -> Days:
        """With that run. Of one day the first run alone says how days differ, since they share their mood."""
        share = fall.of_old / (fall.of_new + fall.of_old)
        level = self.level + fall.change
        again = bool(day) and day == self.day
        runs, levels = self.today if again else (0, 0.0)
        return msgspec.structs.replace(
            self,
            level=self.level + share * fall.change,
            spread=(1 - share) ** 2 * self.spread + share**2,
            compared=self.compared + (not again),
            likelihood=self.likelihood if again else self._likelihood(fall, day),
            weekdays=self.weekdays if again else self._weekdays(),
            day=day,
            today=(runs + 1, levels + level),
        )

    def _odds(self) -> list[float]:
        best = max(self.likelihood)
        found = [weight * math.exp(each - best) for weight, each in zip(_WEIGHTS, self.likelihood, strict=True)]
        return [each / sum(found) for each in found]

    def _of(self, fall: RunFall, day: str, deviations: tuple[float, ...]) -> tuple[float, list[float]]:
        """The expected change, and the variances beside the draw: by days like this one where there are any."""
        many, levels = (
            self._weekdays().get(date.fromisoformat(day).weekday(), (0, 0.0)) if day and day != self.day else (0, 0.0)
        )
        if day and day == self.day:
            many, levels = self.weekdays.get(date.fromisoformat(day).weekday(), (0, 0.0))
        if not many:
            return 0.0, [each**2 * (1 + self.spread) for each in deviations]
        # The draw of one run, of which those like days are a mean.
        drawn = fall.variance * fall.of_new / (fall.of_new + fall.of_old)
        return levels / many - self.level, [each**2 * (1 + 1 / many) + drawn / many for each in deviations]

    def _likelihood(self, fall: RunFall, day: str) -> tuple[float, ...]:
        expected, spreads = self._of(fall, day, _DEVIATIONS)
        # By falls alone: where most cases always pass no day is much better than the others, and bad ones are worse
        # than a deviation of both would say.
        if fall.change >= expected:
            return self.likelihood
        least = (_LEAST * fall.of_new / fall.cases) ** 2
        every = [max(fall.variance, least) + each for each in spreads]
        off = (fall.change - expected) ** 2
        return tuple(
            before - (math.log(each) + off / each) / 2 for before, each in zip(self.likelihood, every, strict=True)
        )

    def _weekdays(self) -> dict[int, tuple[int, float]]:
        """With the newest day, as it is over."""
        if not self.day:
            return self.weekdays
        which, (runs, levels) = date.fromisoformat(self.day).weekday(), self.today
        many, total = self.weekdays.get(which, (0, 0.0))
        return {**self.weekdays, which: (many + 1, total + levels / runs)}


_ALIKE = 0.5
"""The share of a run's answers that must be to known cases for runs to be compared case by case."""
_SPARE = 1000
_TIMES = 4
"""A pool with more than `_TIMES` times the cases of a run, and `_SPARE` more, drops those that the run lacks."""


def _sums_only(run: CaseSummary) -> CaseSummary:
    """Only the sums: what a pool keeps of a run."""
    return CaseSummary(run.measures, run.ids, [0] * len(run.ids), run.columns)


def _comparable(pool: CaseSummary, run: CaseSummary) -> bool:
    """Whether they are of the same cases, mostly: recorded work has new ones every day."""
    known = set(pool.ids)
    # By the measure with the most of them, since an optional one has a value for some records only.
    answers = [max(each) for each in zip(*(run.columns[one.name].count for one in run.measures), strict=True)]
    shared = sum(count for case, count in zip(run.ids, answers, strict=True) if case in known)
    return bool(shared >= _ALIKE * sum(answers))


def _merged(pool: CaseSummary, run: CaseSummary) -> CaseSummary:
    """Both together; the result's memory is bounded by the cases of ``run``, however many runs there were.

    A measure that ``run`` has no values of stays with those of the pool.
    """
    kept = set(pool.ids) | set(run.ids)
    if len(kept) > _TIMES * len(run.ids) + _SPARE:
        kept = set(run.ids)
    ids = sorted(kept)
    measures = [*run.measures, *(each for each in pool.measures if each.name not in run.columns)]
    columns = {measure.name: _column(ids, pool, run, measure.name) for measure in measures}
    return CaseSummary(measures, ids, [0] * len(ids), columns)


def _column(ids: list[str], pool: CaseSummary, run: CaseSummary, name: str) -> CaseColumn:
    sums = {case: [0.0, 0.0, 0.0] for case in ids}
    for side in (pool, run):
        column = side.columns.get(name)
        if column is None:
            continue
        for case, *values in zip(side.ids, column.count, column.total, column.squares, strict=True):
            if (of_case := sums.get(case)) is not None:
                for at, value in enumerate(values):
                    of_case[at] += value
    return CaseColumn(
        [int(each[0]) for each in sums.values()],
        [each[1] for each in sums.values()],
        [each[2] for each in sums.values()],
    )


_CHAIN_SCHEMA = "evalq.drift/2"
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
MOST_EVIDENCE = 10 * PAGED
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

    schema: str = _CHAIN_SCHEMA
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


def begin_chain(run: RunCases, kind: Literal["baseline", "first"] = "first") -> Chain:
    """A chain whose reference is ``run``."""
    return Chain(
        specification=run.specification,
        reference=run.run,
        kind=kind,
        pool=_sums_only(run.cases),
        watched={measure.name: WatchedMeasure(days=Days(day=run.day)) for measure in run.cases.measures},
        known=[(run.run, run.report)],
        day=run.day,
    )


def count_in_chain(chain: Chain, run: RunCases) -> Chain:
    """The chain with one more run; itself where that was counted before.

    Recorded outputs (runs without a target) that are evaluated a second time, under whatever name, are no further
    evidence, and are not counted either.
    """
    if any(name == run.run or (not run.target and report == run.report) for name, report in chain.known):
        return chain
    new = _sums_only(run.cases)
    # Settled with the first run that is compared: what stakes are worth is of one kind of comparison.
    drawn = chain.drawn or (chain.runs == 0 and not _comparable(chain.pool, new))
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
        pool=CaseSummary(new.measures) if drawn else _merged(chain.pool, new),
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


def _drawn(before: Mapping[str, list[float]], new: Mapping[str, list[float]], measure: Measure) -> RunFall | None:
    there = measure.name in before and measure.name in new
    return of_draws(before[measure.name], new[measure.name]) if there else None


def _paired(pool: CaseSummary, new: CaseSummary, measure: Measure) -> RunFall | None:
    pairs = pairs_of(pool, new, measure) if measure.name in pool.columns else None
    return of_cases(pairs, measure) if pairs is not None and pairs.ids else None


def _watched(before: WatchedMeasure, fall: RunFall, there: float, run: RunCases) -> WatchedMeasure:
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
    over = math.log(max(1.0, worth(kept) / MOST_EVIDENCE))
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


# What is kept of a chain between two runs, and what is shown of it. Each run counts exactly once.

RECORD_SCHEMA = "evalq.drift-record/2"
_OF_RUN, _RUNS = 8, 100
"""Answers remembered of each run, and of how many runs. A run that took half of its answers from the cache that one of
them filled is noticed in 255 of 256 cases, one that took a tenth in more than half."""


class DriftRecord(msgspec.Struct, kw_only=True):
    """A chain with its newest run, and ``before`` that run: its answers may be replaced, as `evalq retry` does.

    ``before`` is empty where the newest run began the chain. ``name`` is what the suite calls these runs, ``run`` the
    newest one. ``sampled`` are numbers of some answers of each (`Usage.sample`).
    """

    schema: str = RECORD_SCHEMA
    name: str = ""
    run: str
    now: Chain
    before: Chain | None = None
    sampled: list[int] = []


class MeasureState(msgspec.Struct, frozen=True):
    """How one measure stands. ``since`` is the run that paged, empty where none did; ``worse`` the one from which on it
    looks worse, by a tenth of the evidence.

    ``e`` is the detector's value, ``p`` the newest run's p-value, ``change`` by how much the newest run differs from
    all before it, as a share of the scale; below 0 is worse. ``run`` is the newest that has values of it.
    """

    since: str = ""
    worse: str = ""
    e: float = 0.0
    p: float = 1.0
    change: float = 0.0
    run: str = ""


class DriftState(msgspec.Struct, frozen=True, kw_only=True):
    """What is shown of a chain: without the answers that it holds.

    ``run`` is the newest run, ``runs`` how many were compared with the ``reference``, which was approved (``kind``
    "baseline") or came first. ``counted`` is when the newest one was, in seconds since 1970; 0 where nobody knows.
    """

    specification: str
    version: str = ""
    name: str = ""
    run: str
    reference: str
    kind: str
    runs: int
    measures: dict[str, MeasureState]
    counted: float = 0.0

    @property
    def drifting(self) -> bool:
        """Whether any measure pages."""
        return any(measure.since for measure in self.measures.values())

    @property
    def looks_worse(self) -> bool:
        """Whether any measure looks worse, or pages."""
        return any(measure.since or measure.worse for measure in self.measures.values())


def key_of(run: RunCases) -> str:
    """Which chain of its suite ``run`` belongs to: runs of one specification, version of the evaluator, and name."""
    # By version, too: other code may judge the same answers otherwise, which would look like drift.
    return canonical_json([run.specification, run.version, run.name]).decode()


def counted(record: DriftRecord | None, run: RunCases) -> DriftRecord | None:
    """The record with ``run``; the very same one where that is no further evidence, None where there is none yet.

    The newest run again, with other answers, takes its own place. An older one stays as it was counted, since all that
    came later was compared with it; so does the reference. A run without any answer tells nothing, and neither does one
    that has answers of an earlier one, from a cache or as it took them over, nor one with cases that stopped when they
    were decided: how many answers these have depends on what they are, so that they are no draw from all of them.
    """
    if run.cases.stopped or not any(any(column.count) for column in run.cases.columns.values()):
        return record
    if record is None:
        return DriftRecord(name=run.name, run=run.run, now=begin_chain(run), sampled=_sampled([], run))
    known = dict(record.now.known)
    if run.run == record.run and known.get(run.run) not in (None, run.report):
        if record.before is not None:
            return _after(record, record.before, run)
        # The reference itself was answered anew, and nothing has been compared with it yet.
        if record.now.kind == "first":
            return msgspec.structs.replace(record, now=begin_chain(run), sampled=_sampled(record.sampled, run))
    # A run that is counted has its own sample in the record: only of a new one does a shared answer say anything.
    if run.run == record.now.reference or (run.run not in known and _cached(record, run)):
        return record
    return _after(record, record.now, run)


def _after(record: DriftRecord, before: Chain, run: RunCases) -> DriftRecord:
    now = count_in_chain(before, run)
    if now is before:
        return record
    return DriftRecord(name=run.name, run=run.run, now=now, before=before, sampled=_sampled(record.sampled, run))


def _cached(record: DriftRecord, run: RunCases) -> bool:
    # By lineage too: answers that were taken over need not be among the few that are sampled.
    if run.lineage is not None and not dict(record.now.known).keys().isdisjoint(run.lineage.akin):
        return True
    return run.usage is not None and not set(run.usage.sample).isdisjoint(record.sampled)


def _sampled(before: list[int], run: RunCases) -> list[int]:
    return [*before, *(run.usage.sample[:_OF_RUN] if run.usage else [])][-_OF_RUN * _RUNS :]


def approved(record: DriftRecord | None, run: RunCases) -> DriftRecord | None:
    """A chain that begins anew with the approved ``run``: what was counted before is evidence no more.

    The very same record where that run is its reference already, so that approving it once more forgets nothing, and
    where cases of it stopped, so that it is no reference (see `counted`).
    """
    if run.cases.stopped:
        return record
    chain = begin_chain(run, "baseline")
    if record is None:
        return DriftRecord(name=run.name, run=run.run, now=chain, sampled=_sampled([], run))
    old = record.now
    if (old.kind, old.reference) == ("baseline", run.run) and dict(old.known).get(run.run, run.report) == run.report:
        return record
    # A run that was counted before, and is resumed or tried again later, is none that came after the approved one.
    chain.known += [each for each in old.known if each[0] != run.run]
    # The samples stay: what a cache gave before an approval is no fresh answer after it.
    return DriftRecord(name=run.name, run=record.run, now=chain, sampled=_sampled(record.sampled, run))


def state_of(record: DriftRecord, version: str) -> DriftState:
    """What is shown of ``record``."""
    chain = record.now
    return DriftState(
        specification=chain.specification,
        version=version,
        name=record.name,
        run=record.run,
        reference=chain.reference,
        kind=chain.kind,
        runs=chain.runs,
        measures={
            name: MeasureState(watched.since, watched.worse, watched.e, watched.p, watched.change, watched.run)
            for name, watched in chain.watched.items()
        },
    )
