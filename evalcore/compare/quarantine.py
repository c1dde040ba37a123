"""Which cases are flaky by their history, and which of those a policy has in quarantine."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import Literal, NamedTuple

from evalq.evalcore.compare.comparison import fisher
from evalq.evalcore.compare.decision import Check, Quarantined
from evalq.evalcore.compare.eligibility import shares
from evalq.evalcore.compare.intervals import ALPHA
from evalq.evalcore.compare.policy import Policy, Quarantine
from evalq.evalcore.compare.repeats import CasePasses, rows_of
from evalq.evalcore.compare.summary import RunCases, with_unrecorded
from evalq.evalcore.contract.measures import pass_measure
from evalq.evalcore.statistics.mode_share import holm
from evalq.evalcore.statistics.sequences import surely_above, surely_below

STEADY = 0.95
"""A case whose commoner result has a larger share than this is stable, one in which it has a smaller one flaky."""

Flakiness = Literal["flaky", "stable", "unknown"]


class CaseHistory(NamedTuple):
    """What is known of cases from before: {case: (passes, answers)} over so many ``runs`` of one target.

    ``stopped`` are those that any of these runs asked no more once they were decided.
    """

    cases: dict[str, tuple[int, int]]
    runs: int
    stopped: frozenset[str] = frozenset()


@lru_cache(maxsize=65536)
def flakiness(passed: int, answers: int) -> Flakiness:
    """Whether a case sometimes passes and sometimes fails, by a confidence sequence for the share of its commoner
    result: it may be looked at after every run, and the chance of ever being wrong is .025 on either side.
    """
    most = max(passed, answers - passed)
    # By the commoner result: a case that always fails is stable.
    if answers and surely_below(most, answers, STEADY):
        return "flaky"
    return "stable" if answers and surely_above(most, answers, STEADY) else "unknown"


def past_of(run: RunCases, partner: RunCases | None, history: Sequence[RunCases] = ()) -> CaseHistory:
    """The history of a run's cases: its baseline's answers, and those of all runs of the baseline's target.

    That is the target by the digest of its settings, which recorded outputs do not have: of those the baseline alone
    counts. Without a baseline it is the target of ``run`` itself. Runs by other parameters ask something else, and
    answers that several runs share, since they came from a cache, count once.
    """
    counted: list[RunCases] = []
    config = _config(partner or run)
    # What was approved counts by whatever target; later runs only where its settings are known to be the same.
    if partner is not None and _of_one_kind(partner, run):
        counted.append(partner)
    for each in history:
        if (
            _of_one_kind(each, run)
            and config
            and _config(each) == config
            and not any(shares(each, one) for one in (run, *counted))
        ):
            counted.append(each)
    cases: dict[str, tuple[int, int]] = {}
    for each in counted:
        measure = pass_measure(each.cases.measures)
        for row in rows_of(each.cases, measure) if measure is not None else ():
            passed, answers = cases.get(row.case, (0, 0))
            cases[row.case] = passed + row.passed, answers + row.answers
    return CaseHistory(cases, len(counted), frozenset(case for each in counted for case in each.cases.stopped))


def _of_one_kind(run: RunCases, other: RunCases) -> bool:
    """Whether the same is asked and judged by both."""
    facts = ((each.evaluator, each.version, each.specification) for each in (run, other))
    return next(facts) == next(facts)


def _config(run: RunCases) -> str:
    return run.usage.config if run.usage is not None else ""


def flaky_cases(past: CaseHistory) -> list[str]:
    """Those of them that are flaky, by their names."""
    return sorted(case for case, counts in past.cases.items() if flakiness(*counts) == "flaky")


def quarantine_entries(
    policy: Policy, runs: Sequence[RunCases], pasts: Sequence[CaseHistory], today: str
) -> Iterator[Quarantined]:
    """Each entry of the policy's quarantine for each of ``runs`` that it means; ``today`` is an ISO day.

    A case is set aside only while its history proves it flaky: one that always fails is no flaky one, and what nobody
    has seen often enough may be either. Nor does quarantine excuse answers that are missing.
    """
    if not policy.quarantine:
        return
    measures = [pass_measure(run.cases.measures) for run in runs]
    tables = [
        {row.case: row for row in rows_of(with_unrecorded(run.cases), measure)} if measure is not None else {}
        for run, measure in zip(runs, measures, strict=True)
    ]
    for entry in policy.quarantine:
        meant = 0
        for run, rows, past in zip(runs, tables, pasts, strict=True):
            if entry.run in ("", run.called, run.evaluator) and (row := rows.get(entry.case)) is not None:
                meant += 1
                yield _entry(entry, run, row, past, today)
        if not meant:
            yield Quarantined(entry.run, entry.case, False, "no run has such a case", entry.reason, entry.until)


def _entry(entry: Quarantine, run: RunCases, row: CasePasses, past: CaseHistory, today: str) -> Quarantined:
    passed, answers = past.cases.get(entry.case, (0, 0))
    state = flakiness(passed, answers)
    why = f"{state}: {passed} of {answers} answers passed in {past.runs} earlier run(s) of one target"
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
    """The cases of a run that are set aside."""
    return frozenset(entry.case for entry in entries if entry.quarantined and entry.run == run.called)


def regression_check(
    run: RunCases, entries: Sequence[Quarantined], alpha: float = ALPHA, stopped_before: frozenset[str] = frozenset()
) -> Iterator[Check]:
    """Whether any case that is set aside passes less often than its history has it: that is no flakiness any more.

    By Fisher's exact test of each, one-sided, and Holm's procedure over them. The test is for numbers of answers that
    do not go by what these are: of cases that were asked no more once they were decided, now or before, a fall is
    INCONCLUSIVE.
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
        f"{len(regressed) + len(unsure)} of {len(quarantined)} case(s) in quarantine fell below their history; the "
        f"most surprising passed {first.passed} of {first.answers}, and {first.history[0]} of {first.history[1]} before"
    )
    if unsure:
        reason += f"; {len(unsure)} of those were asked no more once they were decided: for a gate sweep without --stop"
    yield Check(
        f"{run.called}.quarantine",
        "no case in quarantine is seen to pass less often than before",
        "critical",
        "NO-GO" if regressed else "INCONCLUSIVE" if unsure else "GO",
        reason,
        len(regressed) + len(unsure),
        # The first one's, since the check as a whole is as surprising as its first case is among all.
        p_margin=firm[0][0] if firm else None,
        cases=tuple(entry.case for entry in regressed + unsure),
        evidence=sum(entry.answers for entry in quarantined),
    )


def _tested(entries: Sequence[Quarantined]) -> list[tuple[float, Quarantined]]:
    """Each with the p-value of its fall, adjusted for all of them, the most surprising first."""
    # The history is the base: few passes now, given all of them, are a fall.
    tested = [(fisher(each.history[1], each.history[0], each.answers, each.passed)[0], each) for each in entries]
    # By name where two surprise alike, so that the same runs are told alike.
    tested.sort(key=lambda each: (each[0], each[1].case))
    return list(zip(holm([p for p, _ in tested]), (entry for _, entry in tested), strict=True))
