"""Recorded runs held to each other case by case, without any statistics: what passed before has to pass now."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import NamedTuple

import msgspec

from evalq.evalcore.compare.decision import Check, Decided, Decision, FailingCase, named_cases
from evalq.evalcore.compare.intersection import paired
from evalq.evalcore.compare.policy import Policy
from evalq.evalcore.compare.repeats import rows_of
from evalq.evalcore.compare.run import RunCases
from evalq.evalcore.compare.shared_answers import same_answers
from evalq.evalcore.compare.trust_in_judges import on_trust
from evalq.evalcore.contract.measures import pass_measure

__all__ = ["as_recorded", "recorded_once"]

_STILL_PASSES = "every case that passed before passes"
_STILL_ANSWERED = "every case that passed before has an answer"
_NOTHING_IN_BOTH = 5
"""The exit code where nothing can be held to anything, as of a run without any result."""
_ORDER: Sequence[Decided] = ("NO-GO", "SUSPECT", "INCONCLUSIVE", "GO")
_TOLD = 10


class _Held(NamedTuple):
    """The cases of one run and its baseline: those in both, those that fail now, and those without an answer now."""

    both: int
    fails: list[str]
    unanswered: list[str]


def recorded_once(run: RunCases, partner: RunCases) -> bool:
    """Whether both have one answer a case at most, by passing or failing: too little for statistics of single cases."""
    for each in (run, partner):
        measure = pass_measure(each.cases.measures)
        if measure is None or any(count > 1 for count in each.cases.columns[measure.name].count):
            return False
    return True


def as_recorded(
    policy: Policy,
    candidates: Sequence[RunCases],
    partners: Mapping[str, RunCases],
    statistical: Decision,
    runs: Collection[str],
) -> Decision:
    """The decision on ``runs`` (by what they are called) as recorded, with the ``statistical`` one beside it.

    A case passed if all of its recorded answers pass. NO-GO names those that passed before and fail now, INCONCLUSIVE
    those that have no answer now. New and changed cases are listed. Where no case is in both the exit code is 5.
    """
    own: list[Check] = []
    both = 0
    equal: list[str] = []
    for run in candidates:
        partner = partners.get(run.called)
        if run.called not in runs or partner is None:
            continue
        held = _held(run, paired(run, partner).partner)
        both += held.both
        measure = pass_measure(run.cases.measures)
        path = measure.name if measure is not None else ""
        own += on_trust(_checks(f"{run.called}.{path}", held), path, policy, run, partner)
        if same := same_answers(run, partner):
            equal.append(f"{run.called}: {same} (equal files)")
    beside = [_beside(check, runs) for check in statistical.checks]
    words = {check.decided for check in (*own, *beside) if check.tier == "critical"}
    nothing = "no case is in both runs: nothing can be held to anything"
    notes = ([nothing] if not both else []) + equal
    told = f"as recorded; by statistics it would be {statistical.decided}"
    return msgspec.structs.replace(
        statistical,
        decided="INCONCLUSIVE" if not both or not words else min(words, key=_ORDER.index),
        checks=(*own, *beside),
        notes=(told, *notes, *statistical.notes),
        exit_with=_NOTHING_IN_BOTH if not both else None,
        failing=_named_anew(statistical.failing, own),
    )


def _named_anew(failing: Sequence[FailingCase], checks: Sequence[Check]) -> tuple[FailingCase, ...]:
    found = [msgspec.structs.replace(each, named=each.case in named_cases(checks, each.run)) for each in failing]
    return tuple(sorted(found, key=lambda each: not each.named))


def _held(run: RunCases, partner: RunCases) -> _Held:
    ours, theirs = _passing(partner), _passing(run)
    passed = [case for case, passes in ours.items() if passes]
    return _Held(
        sum(case in theirs for case in ours),
        [case for case in passed if theirs.get(case) is False],
        [case for case in passed if case not in theirs],
    )


def _passing(run: RunCases) -> dict[str, bool]:
    """{case that has an answer: whether all of them pass}."""
    measure = pass_measure(run.cases.measures)
    rows = rows_of(run.cases, measure) if measure is not None else []
    return {row.case: row.passed == row.answers for row in rows if row.answers}


def _checks(metric: str, held: _Held) -> Iterator[Check]:
    for demand, cases, broken, what in (
        (_STILL_PASSES, held.fails, "NO-GO", "passed before and fail now"),
        (_STILL_ANSWERED, held.unanswered, "INCONCLUSIVE", "passed before and have no answer now"),
    ):
        decided: Decided = "GO" if not cases else "NO-GO" if broken == "NO-GO" else "INCONCLUSIVE"
        names = f": {', '.join(cases[:_TOLD])}{' ...' if len(cases) > _TOLD else ''}" if cases else ""
        reason = f"{len(cases)} case(s) {what}{names}; {held.both} in both runs"
        yield Check(metric, demand, "critical", decided, reason, len(cases), cases=tuple(cases), evidence=held.both)


def _beside(check: Check, runs: Collection[str]) -> Check:
    """A statistical check of one of ``runs``: shown, and decides nothing."""
    about = any(check.metric == run or check.metric.startswith(f"{run}.") for run in runs)
    return msgspec.structs.replace(check, tier="advisory") if about and check.tier == "critical" else check
