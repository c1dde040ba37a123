"""What a policy says of collapsed cases: how many of them are seen beyond chance, among all cases of a run."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec

from evalq.evalcore.compare.decision import Check, Decided, Decision
from evalq.evalcore.compare.intervals import ALPHA
from evalq.evalcore.compare.looks import Errors
from evalq.evalcore.compare.policy import Policy
from evalq.evalcore.compare.run import RunCases
from evalq.evalcore.errors import UsageError

__all__ = ["collapse_checks", "collapses"]

_NONE, _NONE_NEW = "no collapsed case", "no newly collapsed case"


def collapses(decision: Decision) -> list[Check]:
    """The collapsed cases that stop it. Where answers are confirmed nobody asks for these afresh."""
    return [check for check in decision.checks if check.demand in (_NONE, _NONE_NEW) and check.decided == "NO-GO"]


def collapse_checks(
    policy: Policy, run: RunCases, partner: RunCases | None, lacking: str, errors: Errors
) -> Iterator[Check]:
    """Collapsed cases, where the policy forbids them and the evaluator finds any at all."""
    metric = f"{run.called}.collapse"
    if policy.collapse == "allowed" or not run.cases.labels:
        # Where the baseline's answers could collapse the candidate's could, had any of them been readable.
        if policy.collapse != "allowed" and partner is not None and partner.cases.labels:
            demand = _NONE if policy.collapse == "none" else _NONE_NEW
            yield Check(
                metric, demand, "critical", "INCONCLUSIVE", "no answer has what the baseline's are told apart by"
            )
        return
    if policy.collapse == "none":
        yield _any_collapsed(metric, run, errors)
    elif partner is not None:
        yield _newly_collapsed(metric, run, partner, errors)
    elif lacking:
        yield Check(metric, _NONE_NEW, "critical", "INCONCLUSIVE", lacking)
    else:
        raise UsageError("collapse: none-new needs a baseline: --baseline NAME")


def _any_collapsed(metric: str, run: RunCases, errors: Errors) -> Check:
    """NO-GO for what is collapsed beyond chance among all cases; what is by its own verdict alone is INCONCLUSIVE."""
    cases, known = list(run.cases.collapsed), run.cases.collapse_p
    if known is None:
        # By each case's own interval: that is all that its evaluator, or what an earlier version kept, can tell.
        return _collapsed(metric, _NONE, run, cases, "NO-GO")
    surprises = sorted((known.get(case, 1.0), case) for case in cases)
    return _surprising(metric, _NONE, run, surprises, cases, errors)


def _newly_collapsed(metric: str, run: RunCases, partner: RunCases, errors: Errors) -> Check:
    """NO-GO at the error that this look may spend; what surprises at that of a first one only is INCONCLUSIVE, and so
    is what no answers can tell.
    """
    from evalq.evalcore.compare.collapse import collapse_surprises, untold

    surprises = collapse_surprises(partner.cases, run.cases, _alpha(errors))
    check = _surprising(metric, _NONE_NEW, run, surprises, [case for p, case in surprises if p <= ALPHA], errors)
    if check.decided != "GO" or not (unknown := untold(partner.cases, run.cases)):
        return check
    told = _collapsed(metric, _NONE_NEW, run, unknown, "INCONCLUSIVE")
    reason = f"{told.reason} collapsed, and equal answers of both sides are too few to tell whether that is new"
    return msgspec.structs.replace(told, reason=reason, p_margin=check.p_margin)


def _surprising(
    metric: str,
    demand: str,
    run: RunCases,
    surprises: Sequence[tuple[float, str]],
    suspects: Sequence[str],
    errors: Errors,
) -> Check:
    """NO-GO for those of ``surprises``, the most first, that are as surprising as this look asks; else ``suspects`` are
    INCONCLUSIVE.
    """
    sure = sorted(case for p, case in surprises if p <= _alpha(errors))
    check = _collapsed(metric, demand, run, sure, "NO-GO")
    if not sure and suspects:
        check = _collapsed(metric, demand, run, sorted(suspects), "INCONCLUSIVE")
        check = msgspec.structs.replace(
            check, reason=f"{check.reason}, not surprising enough among all cases for this look"
        )
    # Where runs are confirmed nobody asks labels afresh: collapse spends by itself. Else it shares Holm with the gates.
    if errors.collapse is not None:
        return check
    return msgspec.structs.replace(check, p_margin=surprises[0][0] if surprises else 1.0)


def _alpha(errors: Errors) -> float:
    return errors.no_go if errors.collapse is None else errors.collapse


def _collapsed(metric: str, demand: str, run: RunCases, cases: list[str], decided: Decided) -> Check:
    reason = f"{len(cases)} of {len(run.cases.ids)} case(s)" + (f": {', '.join(cases[:5])}" if cases else "")
    decided = decided if cases else "GO"
    # Answers that are told apart by something: of one answer a case nobody can tell whether it is collapsed.
    evidence = sum(sum(labels.values()) for labels in run.cases.labels)
    return Check(metric, demand, "critical", decided, reason, len(cases), cases=tuple(cases[:20]), evidence=evidence)
