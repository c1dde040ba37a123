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
_MOSTLY_SAME = "at least half of the baseline's cases are asked in the same way"


class _Held(NamedTuple):
    """The cases of one run and its baseline: those in both, those that fail now, and those without an answer now.

    ``equal`` of the ``base`` cases that the baseline has are asked in the same way now.
    """

    both: int
    fails: list[str]
    unanswered: list[str]
    equal: int
    base: int


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
    *,
    written: bool = True,
) -> Decision:
    """The decision on ``runs`` (by what they are called) as recorded, with the ``statistical`` one beside it.

    A case passed if all of its recorded answers pass. NO-GO names those that passed before and fail now, INCONCLUSIVE
    those that have no answer now, whether they are asked still or not (unless the policy compares the intersection).
    New and changed cases are listed. A run of which most cases differ from the baseline's is INCONCLUSIVE. Where no
    case is in both the exit code is 5.

    Set aside is what this decides in its own way: whether passes fell, and what has to be the same for that. All else
    that the policy demands (bounds, single cases, collapse, other numbers) stays as statistics decide it, unless nobody
    has ``written`` that.
    """
    own: list[Check] = []
    held_to: set[str] = set()
    both = 0
    equal: list[str] = []
    for run in candidates:
        partner = partners.get(run.called)
        if run.called not in runs or partner is None:
            continue
        held = _held(policy, run, partner)
        both += held.both
        measure = pass_measure(run.cases.measures)
        path = measure.name if measure is not None else ""
        held_to |= {f"{name}{end}" for name in (run.called, run.evaluator) for end in ("", f".{path}")}
        own += on_trust(_checks(f"{run.called}.{path}", held, policy), path, policy, run, partner)
        if same := same_answers(run, partner):
            equal.append(f"{run.called}: {same} (equal files)")
    beside = [_beside(check, runs, held_to, written) for check in statistical.checks]
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


def _held(policy: Policy, run: RunCases, partner: RunCases) -> _Held:
    pair = paired(run, partner)
    ours, theirs, before = _passing(pair.partner), _passing(run), _passing(partner)
    passed = [case for case, passes in ours.items() if passes]
    # A case that is asked no more has no answer either: else a case that fails would pass under another name.
    asked = {*run.cases.ids, *(run.cases.unrecorded or ())}
    gone = [case for case, passes in before.items() if passes and case not in ours and case not in asked]
    return _Held(
        sum(case in theirs for case in ours),
        [case for case in passed if theirs.get(case) is False],
        [case for case in passed if case not in theirs] + ([] if policy.specification == "intersection" else gone),
        pair.cases.equal,
        pair.cases.base,
    )


def _passing(run: RunCases) -> dict[str, bool]:
    """{case that has an answer: whether all of them pass}."""
    measure = pass_measure(run.cases.measures)
    rows = rows_of(run.cases, measure) if measure is not None else []
    return {row.case: row.passed == row.answers for row in rows if row.answers}


def _checks(metric: str, held: _Held, policy: Policy) -> Iterator[Check]:
    if not held.both or (policy.specification == "same" and 2 * held.equal < held.base):
        reason = (
            f"{held.equal} of the baseline's {held.base} case(s) are asked in the same way, {held.both} are answered "
            "in both runs: approve a new baseline"
        )
        yield Check(metric, _MOSTLY_SAME, "critical", "INCONCLUSIVE", reason, held.equal, evidence=held.both)
    for demand, cases, broken, what in (
        (_STILL_PASSES, held.fails, "NO-GO", "passed before and fail now"),
        (_STILL_ANSWERED, held.unanswered, "INCONCLUSIVE", "passed before and have no answer now"),
    ):
        decided: Decided = "GO" if not cases else "NO-GO" if broken == "NO-GO" else "INCONCLUSIVE"
        names = f": {', '.join(cases[:_TOLD])}{' ...' if len(cases) > _TOLD else ''}" if cases else ""
        reason = f"{len(cases)} case(s) {what}{names}; {held.both} in both runs"
        yield Check(metric, demand, "critical", decided, reason, len(cases), cases=tuple(cases), evidence=held.both)


def _beside(check: Check, runs: Collection[str], held_to: Collection[str], written: bool) -> Check:
    """A statistical check: of what one of ``runs`` is held to by its recorded answers it is shown, and decides nothing.

    ``held_to`` are these runs, and what of each passes or fails, as a policy names them.
    """
    about = any(check.metric == run or check.metric.startswith(f"{run}.") for run in runs)
    aside = check.change and check.metric in held_to if written else about
    return msgspec.structs.replace(check, tier="advisory") if aside and check.tier == "critical" else check
