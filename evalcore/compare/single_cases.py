"""Demands on single cases: by their repeats, whether they are quarantined, and whether answers are missing."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from types import MappingProxyType
from typing import Literal, NamedTuple

from evalq.evalcore.compare.comparison import fisher
from evalq.evalcore.compare.decision import Check, Decided, Quarantined, keep_from_go
from evalq.evalcore.compare.intervals import ALPHA
from evalq.evalcore.compare.pairs import Side, permutation_p
from evalq.evalcore.compare.policy import CaseDemand, Gate, Policy, Quarantine
from evalq.evalcore.compare.spending import SINGLE, Errors
from evalq.evalcore.compare.summary import CaseSummary, RunCases, has_common_answers, with_unrecorded
from evalq.evalcore.contract.measures import Measure, pass_measure
from evalq.evalcore.errors import UsageError
from evalq.evalcore.statistics.distributions import at_least, at_most
from evalq.evalcore.statistics.mode_share import holm, rejected
from evalq.evalcore.statistics.rates import exact_interval, pass_at_k, pass_hat_k
from evalq.evalcore.statistics.sequences import surely_above, surely_below
from evalq.evalcore.views.markdown import plural

_SHOWN = 20
_MOST = 10_000


class CasePasses(NamedTuple):
    """One case: how many of its ``answers`` passed, and how many more are ``missing``."""

    case: str
    passed: int
    answers: int
    missing: int = 0


def rows_of(run: CaseSummary, measure: Measure) -> list[CasePasses]:
    """The cases that were answered or should have been, by a measure of kind "pass", in the order of their ids."""
    column = run.columns[measure.name]
    rows = []
    for case, ones, answers, missing in zip(run.ids, column.total, column.count, run.missing, strict=True):
        if answers or missing:
            passed = round(ones if measure.better == "higher" else answers - ones)
            rows.append(CasePasses(case, passed, answers, missing))
    return rows


@lru_cache(maxsize=65536)
def estimate(demand: CaseDemand, passed: int, answers: int) -> float | None:
    """The unbiased estimate of the demanded number (for a share, the share itself); None for fewer than k answers."""
    estimated = pass_at_k if demand.number == "pass@" else pass_hat_k
    return estimated(passed, answers, demand.k)


@lru_cache(maxsize=65536)
def case_interval(demand: CaseDemand, passed: int, answers: int, alpha: float = ALPHA) -> tuple[float, float]:
    """Bounds of that number by Clopper and Pearson (1934), each wrong with probability ``alpha`` at most."""
    low, high = exact_interval(passed, answers, alpha)
    return _reached(demand, low), _reached(demand, high)


def _reached(demand: CaseDemand, p: float) -> float:
    return 1.0 - (1.0 - p) ** demand.k if demand.number == "pass@" else p**demand.k


def provable(demand: CaseDemand, alpha: float = ALPHA) -> int | None:
    """How many answers prove the demand if all of them pass; None if no number does."""
    # The small number keeps rounding from asking for one answer more if the quotient is whole.
    return math.ceil(math.log(alpha) / math.log(demand.share) - 1e-9) if demand.share < 1.0 else None


def enough_for(demand: CaseDemand, rate: float, cases: int, power: float = 0.8) -> int | None:
    """About how many answers prove the demand for all ``cases`` with a chance of ``power``, if each passes at ``rate``.

    None if ``rate`` is no higher than the demand, or if it takes more than `_MOST` answers.
    """
    least = max(demand.k, provable(demand) or _MOST + 1)
    # No number of answers proves a demand that the case does not meet.
    if rate <= demand.share or least > _MOST:
        return None
    answers = least
    while answers <= _MOST and _all_proved(demand, rate, cases, answers) < power:
        # The chance rises with the answers, but not at each step (passes are whole), so this walks on, by 2 %.
        answers += max(1, answers // 50)
    return answers if answers <= _MOST else None


def _all_proved(demand: CaseDemand, rate: float, cases: int, answers: int) -> float:
    few, enough = 0, answers  # the fewest passes that prove it; all of them do
    while enough - few > 1:
        middle = (few + enough) // 2
        few, enough = (few, middle) if at_least(middle, answers, demand.share) <= ALPHA else (middle, enough)
    return at_least(enough, answers, rate) ** cases


def by_case(
    demand: CaseDemand, rows: Sequence[CasePasses], *, minimum: int = 1, errors: Errors = SINGLE
) -> tuple[dict[str, Decided], float]:
    """The verdict on each case, failing cases first, by p-value; and the smallest p-value, adjusted for all cases.

    GO needs a case's lower bound at the demand. NO-GO uses Holm's procedure over the cases. A case is undecided if it
    has fewer than ``minimum`` answers, fewer than the demand's k, or missing answers that could change its verdict.
    """
    least = max(minimum, demand.k)
    verdicts, surprise = _decided(demand, [(row.case, row.passed, row.answers) for row in rows], least, errors)
    if any(row.missing for row in rows):
        # Missing answers might have failed: keep a verdict only if it stays the same when all of them fail.
        filled = [(row.case, row.passed, row.answers + row.missing) for row in rows]
        worst, _ = _decided(demand, filled, least, errors)
        verdicts = {case: each if each == worst[case] else "INCONCLUSIVE" for case, each in verdicts.items()}
    return verdicts, surprise


def _decided(
    demand: CaseDemand, rows: Sequence[tuple[str, int, int]], least: int, errors: Errors
) -> tuple[dict[str, Decided], float]:
    enough = [row for row in rows if row[2] >= least]
    surprises = sorted((_below(m, n, demand.share), case) for case, m, n in enough)
    failing = surprises[: rejected([p for p, _ in surprises], errors.no_go)]
    verdicts: dict[str, Decided] = {case: "NO-GO" for _, case in failing}
    # No correction here: GO needs a proof for every case, so more cases do not make a false GO more likely.
    proved = {case for case, m, n in enough if _above(m, n, demand.share) <= errors.go}
    for case, _, _ in rows:
        verdicts.setdefault(case, "GO" if case in proved else "INCONCLUSIVE")
    return verdicts, min(1.0, surprises[0][0] * len(surprises)) if surprises else 1.0


@lru_cache(maxsize=65536)
def _below(m: int, n: int, share: float) -> float:
    return at_most(m, n, share)


@lru_cache(maxsize=65536)
def _above(m: int, n: int, share: float) -> float:
    return at_least(m, n, share)


def per_case_checks(
    gate: Gate,
    run: CaseSummary,
    measure: Measure,
    errors: Errors,
    minimum: int = 1,
    quarantined: frozenset[str] = frozenset(),
) -> Iterator[Check]:
    """A check for each demand of ``per_case``, over all cases that are not ``quarantined``.

    Raises UsageError for scores, which do not pass or fail.
    """
    if gate.per_case is None:
        return
    if measure.kind != "pass":
        raise UsageError(f"{gate.metric}: per_case is about passes, and this is a score")
    rows = [row for row in rows_of(run, measure) if row.case not in quarantined]
    for demand in gate.per_case.demands:
        verdicts, surprise = by_case(demand, rows, minimum=minimum, errors=errors)
        failing = [case for case, each in verdicts.items() if each == "NO-GO"]
        open_ = [case for case, each in verdicts.items() if each == "INCONCLUSIVE"]
        decided: Decided = "NO-GO" if failing else "INCONCLUSIVE" if open_ or not verdicts else "GO"
        reason = "; ".join(_reasons(demand, rows, len(failing), set(open_), minimum))
        reason += f"; {len(quarantined)} more in quarantine" if quarantined else ""
        cases = tuple((failing or open_)[:_SHOWN])
        yield Check(
            gate.metric,
            demand.demand,
            gate.tier,
            decided,
            reason,
            len(failing),
            cases=cases,
            p_margin=surprise,
            evidence=sum(row.answers for row in rows),
        )


def _reasons(
    demand: CaseDemand, rows: Sequence[CasePasses], failing: int, undecided: set[str], minimum: int
) -> Iterator[str]:
    counts = f"{failing} of {plural(len(rows), 'case')} failing, {len(undecided)} undecided"
    yield counts if rows else "there is no case to check"
    estimates = [(each, row) for row in rows if (each := estimate(demand, row.passed, row.answers)) is not None]
    if estimates:
        lowest, row = min(estimates)
        low, high = case_interval(demand, row.passed, row.answers)
        name = "the share" if demand.number == "passes" else f"{demand.number}{demand.k}"
        mean = math.fsum(each for each, _ in estimates) / len(estimates)
        yield (
            f"{name} is {mean:.4g} on average, lowest {lowest:.4g} ({row.passed} of {row.answers}), "
            f"with 95 % between {low:.4g} and {high:.4g}"
        )
    least = max(demand.k, minimum)
    few = sum(row.answers < least for row in rows)
    if few:
        yield f"{plural(few, 'case')} with fewer than the {least} answers that it takes"
    needed = provable(demand)
    if needed is None and undecided:
        yield "no number of passes proves it"
    elif needed is not None and any(row.answers < needed for row in rows if row.case in undecided):
        yield f"even a case that always passes takes {max(needed, least)} answers to prove it"


def enough_repeats(check: Check, run: CaseSummary, measure: Measure, minimum: int) -> Check:
    """The check, kept from GO if a case with answers has fewer than ``minimum`` of them."""
    # A case without any answer is missing: `missing_checks` counts it.
    counts = [count for count in run.columns[measure.name].count if count]
    few = sum(count < minimum for count in counts)
    if not few:
        return check
    return keep_from_go(
        check, f"{few} of {plural(len(counts), 'case')} with fewer answers than the {minimum} that the policy wants"
    )


# Missing answers by cause.


class _Slots(NamedTuple):
    """The answers of a case that one side should have, and how many of them are missing."""

    planned: int
    missing: int


class _Lacking(NamedTuple):
    """The cases of one cause, with the slots of either side; ``alone`` have no answer of the candidate at all."""

    ids: list[str]
    base: list[_Slots]
    cand: list[_Slots]
    alone: list[str]

    @property
    def excess(self) -> float:
        """How many more answers the candidate lacks than it would at the baseline's rate."""
        planned, lacking = (sum(each[at] for each in self.base) for at in (0, 1))
        share = sum(each.planned for each in self.cand) / planned if planned else 0.0
        return sum(each.missing for each in self.cand) - lacking * share

    def p_more(self) -> float:
        """The exact p-value, within cases, of so many missing answers if both sides lose equally often."""
        return permutation_p(_side(self.base), _side(self.cand))[0]


SHORT = "as many repeats of each case"
"""The demand of the check that some cases have fewer repeats than others, in a file of recorded outputs."""
_SAID = 5
Short = Mapping[str, int]
"""{case: how many repeats fewer it has than the others}."""
_Cause = Literal["lost", "own", "short"]


LOSSES = "no more answers lost than in the baseline"
"""The demand of the check that evalq's machinery, a server or the network lost more than chance explains."""


def missing_checks(
    policy: Policy, run: RunCases, partner: RunCases, errors: Errors, short: Short = MappingProxyType({})
) -> Iterator[Check]:
    """A check for each cause of which the candidate lacks more answers than allowed, over the cases of ``partner``.

    An answer that the server, the network or a worker lost says nothing about the candidate, so it is never NO-GO. More
    losses than in the baseline beyond chance are INCONCLUSIVE, and the gate then ends as an incomplete run. Others are
    left to the demands, which are GO only if they also hold with lost answers at the worst; with `missing`, more than
    so many are INCONCLUSIVE by themselves.

    Unusable answers are NO-GO if an exact test shows more than in the baseline, else they are left to the demands.
    Repeats that a case has ``short`` of others are like lost answers, since nobody knows why: failures that were left
    out, or cases that were called no more. Their check names the cases.
    """
    # GATE, The question: add up all cases of a cause. Case by case, 4 losses here and 3 there would count as 3.
    allowed = policy.missing or 0
    causes: tuple[_Cause, ...] = ("lost", "own", "short")
    rows = list(_answers(run, partner, short))
    for cause in causes:
        own = cause == "own"
        lacking = _lacking(rows, cause)
        if lacking.excess <= allowed + 1e-9:
            continue
        p = lacking.p_more()
        beyond = p <= errors.no_go
        if not beyond and (own or (policy.missing is None and cause == "lost")):
            continue
        yield Check(
            run.called,
            _demand(cause, allowed, beyond=beyond),
            "critical" if beyond or policy.missing is not None else "advisory",
            "NO-GO" if own else "INCONCLUSIVE",
            _short(lacking, short)
            if cause == "short"
            else _reason(lacking, allowed, own=own, beyond=beyond, by=_losers(run)),
            value=sum(each.missing for each in lacking.cand),
            cases=tuple(sorted(short) if cause == "short" else lacking.alone)[:_SHOWN],
            # Losses belong to no family of the candidate's errors: they cannot block.
            p_margin=p if own else None,
            evidence=sum(each.planned for each in lacking.cand),
            change=True,
        )


def _demand(cause: _Cause, allowed: int, *, beyond: bool) -> str:
    if cause == "short":
        return SHORT
    return LOSSES if beyond and cause == "lost" else f"at most {allowed} answers missing"


def _short(lacking: _Lacking, short: Short) -> str:
    shown = [
        f"{case} ({slots.planned - slots.missing:,} of {slots.planned:,})"
        for case, slots in zip(lacking.ids, lacking.cand, strict=True)
        if case in short
    ]
    more = f" and {len(shown) - _SAID:,} more" if len(shown) > _SAID else ""
    return (
        f"{plural(len(short), 'case')} {'has' if len(short) == 1 else 'have'} fewer repeats than the others: "
        f"{', '.join(shown[:_SAID])}{more}. If failures were left out, the candidate only looks good: a demand is GO "
        "only if it holds with all of them. Record all repeats, or put `uneven_repeats: true` into the policy"
    )


def incomplete(run: RunCases) -> bool:
    """Whether calls or records of a run ended without a result that says why."""
    return bool(run.records.get("dead")) or bool(run.target and run.cases.unrecorded)


def _losers(run: RunCases) -> str:
    """Who may have lost answers of a run."""
    if run.usage is not None and run.usage.users:
        return "The server, the network, a worker or the simulated user"
    return "The server, the network or a worker"


def _reason(lacking: _Lacking, allowed: int, *, own: bool, beyond: bool, by: str) -> str:
    (lost, of), (before, of_before) = (
        (sum(each.missing for each in side), sum(each.planned for each in side))
        for side in (lacking.cand, lacking.base)
    )
    what = "The candidate gave no usable answer for" if own else f"{by} lost"
    alone = f"; {plural(len(lacking.alone), 'case')} without any answer" if lacking.alone else ""
    counts = f"{what} {lost:,} of {of:,} answers ({before:,} of {of_before:,} in the baseline{alone})"
    if own:
        return f"{counts}: more than in the baseline beyond chance"
    more = max(allowed + 1, round(lacking.excess + 0.499999))
    if beyond:
        return (
            f"{counts}. That is more than chance explains, and says nothing about the candidate. Check the server, "
            f"then run again, or allow losses with `missing: {more}`"
        )
    return f"{counts}: too few to blame the candidate. Run again, or allow losses with `missing: {more}`"


class _Answers(NamedTuple):
    """The answers of a case, and those that are missing by cause."""

    answered: int
    lost: int
    own: int
    short: int


_CaseAnswers = tuple[str, _Answers, _Answers]
"""A case of the baseline, with its answers there and in the candidate."""


def _answers(run: RunCases, partner: RunCases, short: Short) -> Iterator[_CaseAnswers]:
    # No call loses recorded outputs on the way: the agent, or its owner, did not give them.
    recorded = not run.target and run.usage is None
    theirs, nothing = _table(run.cases, short), _Answers(0, 0, 0, 0)
    for case, base in _table(partner.cases, {}).items():
        if not any(base):
            continue
        cand = theirs.get(case, nothing)
        if not any(cand):
            cand = cand._replace(**{"own" if recorded else "lost": base.answered})
        yield case, base, cand


def _lacking(rows: Sequence[_CaseAnswers], cause: _Cause) -> _Lacking:
    lacking = _Lacking([], [], [], [])
    # Most runs lack nothing.
    if not any(getattr(cand, cause) for _, _, cand in rows):
        return lacking
    for case, base, cand in rows:
        pair = getattr(base, cause), getattr(cand, cause)
        # Leave out answers with another cause: here they count neither as lost nor as there.
        before = base.answered + pair[0]
        now = cand.answered + pair[1]
        if before and now:
            lacking.ids.append(case)
            lacking.base.append(_Slots(before, pair[0]))
            lacking.cand.append(_Slots(now, pair[1]))
            if not cand.answered and pair[1]:
                lacking.alone.append(case)
    return lacking


def _table(cases: CaseSummary, short: Short) -> dict[str, _Answers]:
    """{case: its answers}, answered by the measure with the most values."""
    counts = [[0] * len(cases.ids), *(column.count for column in cases.columns.values())]
    answered = list(map(max, *counts)) if len(counts) > 1 else counts[0]
    table = {}
    for case, answers, missing in zip(cases.ids, answered, cases.missing, strict=True):
        unusable = min(missing, cases.unusable.get(case, 0))
        lacking = short.get(case, 0)
        table[case] = _Answers(answers, max(0, missing - unusable - lacking), unusable, lacking)
    return table


def _side(slots: list[_Slots]) -> Side:
    import numpy as np

    planned = np.array([each.planned for each in slots], dtype=np.int64)
    there = np.array([each.planned - each.missing for each in slots], dtype=float)
    return Side(planned, there, there)


# Flaky cases by their history, and the quarantine of a policy.

STEADY = 0.95
"""A case is stable if its commoner result has a larger share than this, and flaky if it has a smaller one."""

Flakiness = Literal["flaky", "stable", "unknown"]


class CaseHistory(NamedTuple):
    """{case: (passes, answers)} over so many earlier ``runs`` of one target.

    ``stopped`` are the cases that any of these runs stopped calling once they were decided.
    """

    cases: dict[str, tuple[int, int]]
    runs: int
    stopped: frozenset[str] = frozenset()


@lru_cache(maxsize=65536)
def flakiness(passed: int, answers: int) -> Flakiness:
    """Whether a case sometimes passes and sometimes fails, by a confidence sequence for its commoner result's share.

    So evalq may check after every run, and the chance of ever being wrong is .025 on either side.
    """
    # Use the commoner result: a case that always fails is stable.
    most = max(passed, answers - passed)
    if answers and surely_below(most, answers, STEADY):
        return "flaky"
    return "stable" if answers and surely_above(most, answers, STEADY) else "unknown"


def past_of(run: RunCases, partner: RunCases | None, history: Sequence[RunCases] = ()) -> CaseHistory:
    """The history of a run's cases: its baseline's answers, and those of all runs of the baseline's target.

    A target is known by the digest of its settings. Recorded outputs have none, so for them only the baseline counts.
    Without a baseline it is the target of ``run``. Runs with other parameters do not count. Answers that several runs
    share count once.
    """
    counted: list[RunCases] = []
    config = _config(partner or run)
    # The baseline counts with any target; later runs count only if their target's settings are known to be the same.
    if partner is not None and _same_rules(partner, run):
        counted.append(partner)
    for each in history:
        if (
            _same_rules(each, run)
            and config
            and _config(each) == config
            and not any(has_common_answers(each, one) for one in (run, *counted))
        ):
            counted.append(each)
    cases: dict[str, tuple[int, int]] = {}
    for each in counted:
        measure = pass_measure(each.cases.measures)
        for row in rows_of(each.cases, measure) if measure is not None else ():
            passed, answers = cases.get(row.case, (0, 0))
            cases[row.case] = passed + row.passed, answers + row.answers
    return CaseHistory(cases, len(counted), frozenset(case for each in counted for case in each.cases.stopped))


def _same_rules(run: RunCases, other: RunCases) -> bool:
    facts = ((each.evaluator, each.version, each.specification) for each in (run, other))
    return next(facts) == next(facts)


def _config(run: RunCases) -> str:
    return run.usage.config if run.usage is not None else ""


def flaky_cases(past: CaseHistory) -> list[str]:
    """The ids of the flaky cases, sorted."""
    return sorted(case for case, counts in past.cases.items() if flakiness(*counts) == "flaky")


def quarantine_entries(
    policy: Policy, runs: Sequence[RunCases], pasts: Sequence[CaseHistory], today: str
) -> Iterator[Quarantined]:
    """Each entry of the policy's quarantine for each of ``runs`` that it means; ``today`` is an ISO day.

    A case is quarantined only while its history proves it flaky. A case that always fails is not flaky, and a case with
    few answers is unknown. Quarantine does not excuse missing answers.
    """
    if not policy.quarantine:
        return
    measures = [pass_measure(run.cases.measures) for run in runs]
    tables = [
        {row.case: row for row in rows_of(with_unrecorded(run.cases), measure)} if measure is not None else {}
        for run, measure in zip(runs, measures, strict=True)
    ]
    for entry in policy.quarantine:
        known = False
        for run, rows, past in zip(runs, tables, pasts, strict=True):
            if entry.run in ("", run.called, run.evaluator) and (row := rows.get(entry.case)) is not None:
                known = True
                yield _entry(entry, run, row, past, today)
        if not known:
            yield Quarantined(entry.run, entry.case, False, "no run has such a case", entry.reason, entry.until)


def _entry(entry: Quarantine, run: RunCases, row: CasePasses, past: CaseHistory, today: str) -> Quarantined:
    passed, answers = past.cases.get(entry.case, (0, 0))
    state = flakiness(passed, answers)
    why = f"{state}: {passed} of {answers} answers passed in {plural(past.runs, 'earlier run')} of one target"
    if not answers:
        why = "unknown: no earlier run of this target answered it"
    quarantined = state == "flaky"
    if entry.until and entry.until < today:
        # The last day is still in quarantine: ISO days compare as texts.
        quarantined, why = False, f"its quarantine ended on {entry.until}; {why}"
    elif row.missing or not row.answers:
        quarantined, why = False, f"{row.missing} of its answers are missing, which quarantine does not excuse; {why}"
    return Quarantined(
        run.called,
        entry.case,
        quarantined,
        why,
        entry.reason,
        entry.until,
        row.passed,
        row.answers,
        (passed, answers),
    )


def quarantined_in(run: RunCases, entries: Sequence[Quarantined]) -> frozenset[str]:
    """The quarantined cases of a run."""
    return frozenset(entry.case for entry in entries if entry.quarantined and entry.run == run.called)


def regression_check(
    run: RunCases, entries: Sequence[Quarantined], alpha: float = ALPHA, stopped_before: frozenset[str] = frozenset()
) -> Iterator[Check]:
    """NO-GO if a quarantined case passes less often than in its history, since that is more than flakiness.

    By Fisher's exact test of each case, one-sided, and Holm's procedure over them. The test does not hold for cases
    that stopped once they were decided, now or before: a fall of these is INCONCLUSIVE.
    """
    quarantined = [entry for entry in entries if entry.quarantined and entry.run == run.called]
    if not quarantined:
        return
    stops = stopped_before.union(run.cases.stopped)
    firm = _tested([entry for entry in quarantined if entry.case not in stops])
    stopped = _tested([entry for entry in quarantined if entry.case in stops])
    regressed, unsure = ([entry for p, entry in tested if p <= alpha] for tested in (firm, stopped))
    first = (*regressed, *unsure, *(entry for _, entry in (*firm, *stopped)))[0]
    reason = (
        f"{len(regressed) + len(unsure)} of {plural(len(quarantined), 'case')} in quarantine fell below their history; "
        f"the most surprising passed {first.passed} of {first.answers}, and {first.history[0]} of {first.history[1]} "
        "before"
    )
    if unsure:
        reason += f"; {len(unsure)} of those stopped once decided: for a gate, sweep without --stop"
    yield Check(
        f"{run.called}.quarantine",
        "no case in quarantine is seen to pass less often than before",
        "critical",
        "NO-GO" if regressed else "INCONCLUSIVE" if unsure else "GO",
        reason,
        len(regressed) + len(unsure),
        # The smallest adjusted p-value is that of the whole check.
        p_margin=firm[0][0] if firm else None,
        cases=tuple(entry.case for entry in regressed + unsure),
        evidence=sum(entry.answers for entry in quarantined),
    )


def _tested(entries: Sequence[Quarantined]) -> list[tuple[float, Quarantined]]:
    """Each entry with the p-value of its fall, adjusted for all entries, smallest first."""
    # The history is the base, so few passes now are a fall.
    tested = [(fisher(each.history[1], each.history[0], each.answers, each.passed)[0], each) for each in entries]
    # Sort equal p-values by name, so that the same runs always give the same output.
    tested.sort(key=lambda each: (each[0], each[1].case))
    return list(zip(holm([p for p, _ in tested]), (entry for _, entry in tested), strict=True))
