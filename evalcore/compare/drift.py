"""Drift over the runs of a suite: a detector that pages at most once in a thousand unchanged runs.

A run's p-value compares its answers with all earlier ones (`surprise`). It says which of them are exchangeable: answers
within a recurring case, whole cases if each run has new ones, and days, since all answers of a day share its mood
(`Days`). So nothing need be known of the reference. Without change, independent uniform values bound the p-values of
successive days from below (as with conformal p-values: Vovk, Gammerman and Shafer 2005, chapter 8).

Each day is a bet against its p-value, by a function that falls in p and has a mean of 1 over a uniform p. The stakes
from each day on add up to an e-detector (Shin, Ramdas and Rinaldo 2024; Shiryaev and Roberts if bets are likelihood
ratios). Without change its mean grows by 1 a day. It reaches `PAGED` at most once in as many days on average, however
long it runs, and over all references that might have been drawn. Several runs of one day share one bet, their mean.
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

# The moods of days: how much unchanged runs differ beyond the draw of their answers. On a bad day all answers of a run
# are a little worse. A day's mood is normal around that of its weekday, with an unknown standard deviation. For the
# first nine comparisons evalq assumes `DAY_SD`. From then on each of `_DEVIATIONS` counts by its likelihood given the
# changes so far, and by `_WEIGHTS`. These lean to `DAY_SD`, since nine days cannot rule out moods. Changes against all
# earlier runs are independent of each other, like Helmert's contrasts.

DAY_SD = 0.03
"""The standard deviation of a day's mood that evalq assumes at first, as a share of the scale."""
_DEVIATIONS = (0.0, 0.01, 0.02, 0.03, 0.045, 0.07, 0.1)
_WEIGHTS = (0.1, 0.1, 0.1, 0.5, 0.15, 0.04, 0.01)
_SHOWN = 9
"""How many comparisons it takes before they tell about days: evalq uses them from the tenth on."""
_LEAST = 0.5
"""The least deviation of a run by its draw, in answers: otherwise runs that always pass would seem certain."""


class Moods(NamedTuple):
    """The ``expected`` change of a run, and the deviations beside its draw with their odds."""

    expected: float
    deviations: list[float]
    odds: list[float]


class Days(msgspec.Struct, frozen=True):
    """The moods of days in the runs of a chain, by one measure.

    ``level`` is the mean of all runs less that of the reference, ``spread`` the sum of the squares of their shares of
    it. ``likelihood`` has the log-likelihood of each of `_DEVIATIONS` over ``compared`` days. ``weekdays`` has for each
    weekday the number of days before the newest one, and the sum of their levels. ``today`` has the number of runs of
    the newest day, ``day``, and the sum of their levels.
    """

    level: float = 0.0
    spread: float = 1.0
    compared: int = 0
    likelihood: tuple[float, ...] = (0.0,) * len(_DEVIATIONS)
    weekdays: dict[int, tuple[int, float]] = {}
    day: str = ""
    today: tuple[int, float] = (1, 0.0)

    def moods(self, fall: RunFall, day: str) -> Moods:
        """The moods for a run of ``day`` (ISO, empty if unknown), compared with all runs before it."""
        shown = self.compared >= _SHOWN
        deviations, odds = (_DEVIATIONS, self._odds()) if shown else ((DAY_SD,), [1.0])
        expected, spreads = self._of(fall, day, deviations)
        return Moods(expected, [math.sqrt(each) for each in spreads], odds)

    def after(self, fall: RunFall, day: str) -> Days:
        """The days with that run. Only the first run of a day counts for the variance between days, as runs of one day
        are correlated.
        """
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
        odds = [weight * math.exp(each - best) for weight, each in zip(_WEIGHTS, self.likelihood, strict=True)]
        return [each / sum(odds) for each in odds]

    def _of(self, fall: RunFall, day: str, deviations: tuple[float, ...]) -> tuple[float, list[float]]:
        """The expected change, and the variances beside the draw: by equal weekdays if there are any."""
        many, levels = (
            self._weekdays().get(date.fromisoformat(day).weekday(), (0, 0.0)) if day and day != self.day else (0, 0.0)
        )
        if day and day == self.day:
            many, levels = self.weekdays.get(date.fromisoformat(day).weekday(), (0, 0.0))
        if not many:
            return 0.0, [each**2 * (1 + self.spread) for each in deviations]
        # The variance of one run's draw, over the number of equal weekdays.
        drawn = fall.variance * fall.of_new / (fall.of_new + fall.of_old)
        return levels / many - self.level, [each**2 * (1 + 1 / many) + drawn / many for each in deviations]

    def _likelihood(self, fall: RunFall, day: str) -> tuple[float, ...]:
        expected, spreads = self._of(fall, day, _DEVIATIONS)
        # Use falls only: if most cases always pass, no day is much better than others, and a deviation over both sides
        # would understate the bad ones.
        if fall.change >= expected:
            return self.likelihood
        least = (_LEAST * fall.of_new / fall.cases) ** 2
        every = [max(fall.variance, least) + each for each in spreads]
        off = (fall.change - expected) ** 2
        return tuple(
            before - (math.log(each) + off / each) / 2 for before, each in zip(self.likelihood, every, strict=True)
        )

    def _weekdays(self) -> dict[int, tuple[int, float]]:
        """The weekdays with the newest day, once it is over."""
        if not self.day:
            return self.weekdays
        which, (runs, levels) = date.fromisoformat(self.day).weekday(), self.today
        many, total = self.weekdays.get(which, (0, 0.0))
        return {**self.weekdays, which: (many + 1, total + levels / runs)}


_ALIKE = 0.5
"""The least share of a run's answers to known cases for a comparison case by case."""
_SPARE = 1000
_TIMES = 4
"""A pool with more than `_TIMES` times the cases of a run, and `_SPARE` more, drops those that the run lacks."""


def _sums_only(run: CaseSummary) -> CaseSummary:
    """The run's sums only, which a pool keeps."""
    return CaseSummary(run.measures, run.ids, [0] * len(run.ids), run.columns)


def _comparable(pool: CaseSummary, run: CaseSummary) -> bool:
    """Whether most cases are the same: recorded work has new cases every day."""
    known = set(pool.ids)
    # Use the measure with the most answers, since an optional one has a value for some records only.
    answers = [max(each) for each in zip(*(run.columns[one.name].count for one in run.measures), strict=True)]
    shared = sum(count for case, count in zip(run.ids, answers, strict=True) if case in known)
    return bool(shared >= _ALIKE * sum(answers))


def _merged(pool: CaseSummary, run: CaseSummary) -> CaseSummary:
    """Both together; the cases of ``run`` bound the memory, however many runs there were.

    A measure without values in ``run`` keeps those of the pool.
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
"""The e-value from which on evalq pages; without change that takes at least as many runs, on average."""
WORSE = 100.0
"""The e-value from which on a suite looks worse, without a page: ten times as often without change."""
CLEARED = 100.0
"""An e-value below this ends a page, and evidence starts anew."""
SHIFTS = (0.5, 1.0, 2.0, 4.0)
"""The drops to bet on, in standard deviations of a run; bets on each are mixed equally."""
_MOST_SCALE = 2.0
"""The largest scale of a bet. A p-value is at most seven deviations out, where steeper bets win least; and the fee of a
slope above 37 is beyond any double."""
_FLOOR = -1.0
"""The best run that a bet counts, in standard deviations, so that good runs do not hide a later drop."""
MOST_EVIDENCE = 10 * PAGED
"""The limit of evidence, so that a page ends a few runs after the agent was fixed."""
_STAKES = 50
_KNOWN = 200
_NORMAL = NormalDist()


class Stake(msgspec.Struct, array_like=True):
    """A bet from one run on: the number of answers ``before`` it, and the logarithm of its worth by shift."""

    before: float
    logs: list[float]


class WatchedMeasure(msgspec.Struct):
    """One measure of a chain. ``e`` is the detector's value, ``p`` the newest run's p-value.

    ``change`` is how far the newest run's cases differ from all before, as a share of the scale; below 0 is worse.
    ``information`` is that of the first compared run: shifts are in its standard deviations. ``since`` is the run that
    paged, as long as the page lasts; ``worse`` is the run from which on the measure looks worse. ``run`` is the newest
    run with values of the measure.

    ``days`` has the moods of days. ``morning`` are the stakes before the newest day, which has ``today`` runs so far.
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
    """The runs of one suite and target by one specification: a reference, and all later runs, as sums.

    ``kind`` says where the reference comes from, ``runs`` how many later runs there are. ``pool`` has the answers of
    all, by case. If each run has new cases (``drawn``), these are the draws, and ``means`` counts their means by
    measure, `binned`. ``known`` has the newest counted runs, with the digest of each report. ``day`` is that of the
    newest run, empty if unknown.
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
    """The chain with one more run; the same chain if it counted the run before.

    Recorded outputs (runs without a target) that are evaluated again, under any name, are no further evidence.
    """
    if any(name == run.run or (not run.target and report == run.report) for name, report in chain.known):
        return chain
    new = _sums_only(run.cases)
    # The first compared run settles this for good, since stakes are worth something in one kind of comparison only.
    drawn = chain.drawn or (chain.runs == 0 and not _comparable(chain.pool, new))
    means = chain.means if chain.drawn else _means(chain.pool) if drawn else {}
    new_means = _means(new) if drawn else {}
    watched = dict(chain.watched)
    for measure in new.measures:
        fall = _drawn(means, new_means, measure) if drawn else _paired(chain.pool, new, measure)
        # Without a case to compare there is no evidence either way: the measure's evidence and page stay as they are.
        if fall is not None:
            before = watched.get(measure.name, WatchedMeasure(days=Days(day=chain.day)))
            answers = sum(means[measure.name]) if drawn else float(sum(chain.pool.columns[measure.name].count))
            watched[measure.name] = _watched(before, fall, answers, run)
    return msgspec.structs.replace(
        chain,
        runs=chain.runs + 1,
        drawn=drawn,
        # Add the run only now: as a part of its own reference it would look less surprising.
        pool=CaseSummary(new.measures) if drawn else _merged(chain.pool, new),
        means=_summed(means, new_means),
        watched=watched,
        known=[*chain.known, (run.run, run.report)][-_KNOWN:],
        day=run.day,
    )


def _means(cases: CaseSummary) -> dict[str, list[float]]:
    """{measure: how many cases have which mean}."""
    means = {}
    for measure in cases.measures:
        pairs = pairs_of(cases, cases, measure)
        if pairs.ids:
            means[measure.name] = binned(pairs.base, measure)
    return means


def _summed(before: Mapping[str, list[float]], new: Mapping[str, list[float]]) -> dict[str, list[float]]:
    both = {
        name: [a + b for a, b in zip(each, before[name], strict=True)] for name, each in new.items() if name in before
    }
    return {**before, **new, **both}


def _drawn(before: Mapping[str, list[float]], new: Mapping[str, list[float]], measure: Measure) -> RunFall | None:
    known = measure.name in before and measure.name in new
    return of_draws(before[measure.name], new[measure.name]) if known else None


def _paired(pool: CaseSummary, new: CaseSummary, measure: Measure) -> RunFall | None:
    pairs = pairs_of(pool, new, measure) if measure.name in pool.columns else None
    return of_cases(pairs, measure) if pairs is not None and pairs.ids else None


def _watched(before: WatchedMeasure, fall: RunFall, answers: float, run: RunCases) -> WatchedMeasure:
    """The measure with one more run, before which there were so many ``answers``, or cases if these are drawn."""
    # A further run of its day. The reference's day had no bet.
    again = bool(run.day) and run.day == before.days.day and before.today > 0
    moods = before.days.moods(fall, run.day)
    p = fall.p(moods.deviations, moods.odds, moods.expected)
    # The information of a run, and the part of it that remains beside the uncertainty of the earlier runs. Both depend
    # on counts only: a stake that depends on outcomes could not go on from run to run.
    information = fall.cases / fall.of_new
    remaining = math.sqrt(fall.of_new / (fall.of_new + fall.of_old))
    # Keep that of the first comparison for good, since a stake must keep its unit.
    first = before.information or information
    morning = before.morning if again else before.stakes
    stakes = bet(morning, p, remaining * math.sqrt(information / first), answers)
    if again:
        stakes = _shared(before.stakes, before.today, stakes)
    e = worth(stakes)
    watched = WatchedMeasure(
        stakes, first, e, p, fall.change, run=run.run, days=before.days.after(fall, run.day), morning=morning,
        today=before.today + 1 if again else 1,
    )  # fmt: skip
    watched.since = before.since or (run.run if e >= PAGED else "")
    watched.worse = (before.worse or run.run) if e >= WORSE else ""
    # Drop all stakes with the page: those that won by the drop would page again.
    if watched.since and e < CLEARED:
        watched.stakes, watched.morning, watched.e, watched.since = [], [], 0.0, ""
    return watched


def _shared(before: list[Stake], runs: int, newest: list[Stake]) -> list[Stake]:
    """The mean of the bets of ``runs`` runs of a day and of its newest one: a mean of fair bets is a fair bet."""
    mixed: dict[float, list[float]] = {}
    for stakes, share in ((before, runs / (runs + 1)), (newest, 1 / (runs + 1))):
        for stake in stakes:
            logs = [log + math.log(share) for log in stake.logs]
            known = mixed.get(stake.before)
            mixed[stake.before] = logs if known is None else [_log_sum(*each) for each in zip(known, logs, strict=True)]
    return [Stake(at, logs) for at, logs in sorted(mixed.items())]


def _log_sum(a: float, b: float) -> float:
    return max(a, b) + math.log1p(math.exp(-abs(a - b)))


def bet(stakes: list[Stake], p: float, scale: float, answers: float) -> list[Stake]:
    """All stakes after a run with p-value ``p``, with a new one from this run on; ``answers`` came before it.

    ``scale`` converts a drop from deviations of the first run to those of this run. Older stakes bet on less, since the
    reference now has the answers after a drop. Only dropping or lowering stakes keeps the expected sum below the number
    of runs. The scale depends on counts only, so that its limit leaves the bet fair.
    """
    scale = min(scale, _MOST_SCALE)
    # A p of 1 has no quantile, and is at the floor anyway.
    z = max(_FLOOR, -_NORMAL.inv_cdf(p)) if p < 1.0 else _FLOOR
    after = []
    for stake in (*stakes, Stake(answers, [0.0] * len(SHIFTS))):
        slopes = [shift * scale * stake.before / answers for shift in SHIFTS]
        logs = [log + slope * z - _fee(slope) for log, slope in zip(stake.logs, slopes, strict=True)]
        after.append(Stake(stake.before, logs))
    # Drop the stakes worth least: that only lowers the sum, so its bound still holds.
    kept = sorted(sorted(after, key=_worth)[-_STAKES:], key=lambda stake: stake.before)
    over = math.log(max(1.0, worth(kept) / MOST_EVIDENCE))
    return [Stake(stake.before, [log - over for log in stake.logs]) for stake in kept]


def worth(stakes: list[Stake]) -> float:
    """The detector's value: all stakes together."""
    return sum(map(_worth, stakes))


def _worth(stake: Stake) -> float:
    # A mean of fair bets is a fair bet, whichever shift comes true; the best of them would not be fair.
    return sum(map(math.exp, stake.logs)) / len(SHIFTS)


@lru_cache(maxsize=4096)
def _fee(slope: float) -> float:
    """log E exp(slope max(z, floor)) for a standard normal z, which makes the bet fair."""
    above = math.exp(slope * slope / 2) * _NORMAL.cdf(slope - _FLOOR)
    return math.log(above + math.exp(slope * _FLOOR) * _NORMAL.cdf(_FLOOR))


# The record of a chain between two runs, and the state to show. Each run counts exactly once.

RECORD_SCHEMA = "evalq.drift-record/2"
_OF_RUN, _RUNS = 8, 100
"""How many answers the record keeps of each run, and of how many runs. It detects a run with half of its answers from
an earlier run's cache in 255 of 256 cases, and a run with a tenth of them in more than half."""


class DriftRecord(msgspec.Struct, kw_only=True):
    """A chain with its newest run (``now``) and without it (``before``), since `evalq retry` may replace its answers.

    ``before`` is None if the newest run began the chain. ``name`` is the runs' name in the suite, ``run`` the newest
    one. ``sampled`` are numbers of some answers of each run (`RunUsage.sample`).
    """

    schema: str = RECORD_SCHEMA
    name: str = ""
    run: str
    now: Chain
    before: Chain | None = None
    sampled: list[int] = []


class MeasureState(msgspec.Struct, frozen=True):
    """The state of one measure. ``since`` is the run that paged, empty if none did; ``worse`` is the run from which on
    it looks worse, by a tenth of the evidence.

    ``e`` is the detector's value, ``p`` the newest run's p-value. ``change`` is how far the newest run differs from all
    before it, as a share of the scale; below 0 is worse. ``run`` is the newest run with values of the measure.
    """

    since: str = ""
    worse: str = ""
    e: float = 0.0
    p: float = 1.0
    change: float = 0.0
    run: str = ""


class DriftState(msgspec.Struct, frozen=True, kw_only=True):
    """The state of a chain to show, without its answers.

    ``run`` is the newest run, ``runs`` how many came after the ``reference``, which was approved (``kind`` "baseline")
    or came first. ``counted`` is when evalq counted the newest one, in seconds since 1970; 0 if unknown.
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
    """The key of the chain of ``run`` in its suite: specification, version of the evaluator, and name."""
    # Another version may judge the same answers otherwise, which would look like drift.
    return canonical_json([run.specification, run.version, run.name]).decode()


def counted(record: DriftRecord | None, run: RunCases) -> DriftRecord | None:
    """The record with ``run``; the same record if the run is no further evidence, None if there is no record yet.

    The newest run with other answers replaces itself. An older run, and the reference, stay as counted, since evalq
    compared later runs with them. These runs are no evidence: one without any answer, one with answers of an earlier
    run, and one with cases that stopped once decided, since their number of answers depends on the answers.
    """
    if run.cases.stopped or not any(any(column.count) for column in run.cases.columns.values()):
        return record
    if record is None:
        return DriftRecord(name=run.name, run=run.run, now=begin_chain(run), sampled=_sampled([], run))
    known = dict(record.now.known)
    if run.run == record.run and known.get(run.run) not in (None, run.report):
        if record.before is not None:
            return _after(record, record.before, run)
        # The reference itself has new answers, and no other run was compared with it yet.
        if record.now.kind == "first":
            return msgspec.structs.replace(record, now=begin_chain(run), sampled=_sampled(record.sampled, run))
    # A counted run has its own sample in the record, so only a new run can share answers with an earlier one.
    if run.run == record.now.reference or (run.run not in known and _cached(record, run)):
        return record
    return _after(record, record.now, run)


def _after(record: DriftRecord, before: Chain, run: RunCases) -> DriftRecord:
    now = count_in_chain(before, run)
    if now is before:
        return record
    return DriftRecord(name=run.name, run=run.run, now=now, before=before, sampled=_sampled(record.sampled, run))


def _cached(record: DriftRecord, run: RunCases) -> bool:
    # Check the lineage, too: reused answers need not be among the few in the sample.
    if run.lineage is not None and not dict(record.now.known).keys().isdisjoint(run.lineage.akin):
        return True
    return run.usage is not None and not set(run.usage.sample).isdisjoint(record.sampled)


def _sampled(before: list[int], run: RunCases) -> list[int]:
    return [*before, *(run.usage.sample[:_OF_RUN] if run.usage else [])][-_OF_RUN * _RUNS :]


def approved(record: DriftRecord | None, run: RunCases) -> DriftRecord | None:
    """A chain that begins anew with the approved ``run``, without earlier evidence.

    The same record if that run is its reference already, so that approving it again forgets nothing. The same, too, if
    cases of it stopped: then it is no reference (see `counted`).
    """
    if run.cases.stopped:
        return record
    chain = begin_chain(run, "baseline")
    if record is None:
        return DriftRecord(name=run.name, run=run.run, now=chain, sampled=_sampled([], run))
    old = record.now
    if (old.kind, old.reference) == ("baseline", run.run) and dict(old.known).get(run.run, run.report) == run.report:
        return record
    # A run that was counted before did not come after the approved one, even if somebody resumes or retries it later.
    chain.known += [each for each in old.known if each[0] != run.run]
    # Keep the samples: an answer from a cache that was filled before the approval is not fresh after it.
    return DriftRecord(name=run.name, run=record.run, now=chain, sampled=_sampled(record.sampled, run))


def state_of(record: DriftRecord, version: str) -> DriftState:
    """The state of ``record`` to show."""
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
