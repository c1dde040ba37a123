"""What a policy says of collapsed cases: whether any is seen beyond chance, among all cases of a run."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from evalq.evalcore.compare.collapse import new_collapses, undecided_collapses
from evalq.evalcore.compare.decision import Check, Decided, Decision
from evalq.evalcore.compare.looks import Errors
from evalq.evalcore.compare.policy import Policy
from evalq.evalcore.compare.run import RunCases
from evalq.evalcore.errors import UsageError
from evalq.evalcore.modes.nowhere import collapsed_somewhere

__all__ = ["collapse_checks", "collapses", "none_told_apart", "tells_apart"]

_NONE, _NONE_NEW = "no collapsed case", "no newly collapsed case"
_NAMED, _KEPT = 5, 20


def collapses(decision: Decision) -> list[Check]:
    """The collapsed cases that stop it. Where answers are confirmed nobody asks for these afresh."""
    return [check for check in decision.checks if check.demand in (_NONE, _NONE_NEW) and check.decided == "NO-GO"]


def collapse_checks(
    policy: Policy, run: RunCases, partner: RunCases | None, lacking: str, errors: Errors
) -> Iterator[Check]:
    """Collapsed cases, where the policy forbids them and the evaluator finds any at all."""
    if policy.collapse == "allowed":
        return
    metric, demand = f"{run.called}.collapse", _NONE if policy.collapse == "none" else _NONE_NEW
    if not run.cases.labels:
        # Its evaluator tells answers apart, and no answer was readable; or the baseline's were told apart.
        if run.cases.collapse_p is not None or (partner is not None and partner.cases.labels):
            yield Check(metric, demand, "critical", "INCONCLUSIVE", "no answer has what answers are told apart by")
        return
    if policy.collapse == "none":
        yield _any_collapsed(metric, run, errors)
    elif partner is not None:
        yield _newly_collapsed(metric, run, partner, errors)
    elif lacking:
        yield Check(metric, _NONE_NEW, "critical", "INCONCLUSIVE", lacking)
    else:
        raise UsageError("collapse: none-new needs a baseline: --baseline NAME")


def tells_apart(run: RunCases) -> bool:
    """Whether the answers of a run are counted by kind, so that collapse can be looked for."""
    return bool(run.cases.labels) or run.cases.collapse_p is not None


def none_told_apart(policy: Policy, runs: Sequence[RunCases]) -> Iterator[Check]:
    """INCONCLUSIVE where the policy forbids collapse, and no run of ``runs`` tells its answers apart: none was looked
    for.
    """
    if policy.collapse == "allowed" or any(map(tells_apart, runs)):
        return
    demand = _NONE if policy.collapse == "none" else _NONE_NEW
    reason = "no run tells its answers apart; count them by kind (checks: --diversity text), or omit `collapse`"
    yield Check("collapse", demand, "critical", "INCONCLUSIVE", reason)


def _any_collapsed(metric: str, run: RunCases, errors: Errors) -> Check:
    """NO-GO for what is collapsed beyond chance over all cases, by `collapsed_somewhere`; GO if each is diverse."""
    alpha, known = _alpha(errors), sorted((run.cases.collapse_p or {}).items())
    # Answers that were taken over came from one place, which may have given one answer to many.
    taken = run.lineage is not None and bool(run.lineage.reused)
    found = collapsed_somewhere([p for _, p in known], independent=not taken)
    named = [known[at][0] for at in found.named(alpha)]
    open_ = undecided_collapses(None, run.cases)
    if found.p > alpha:
        return _open(metric, _NONE, run, open_, found.p, errors)
    if named:
        reason = f"{_listed(named, run)} collapsed beyond chance (p {found.p:.2g} over all cases)"
    else:
        reason = (
            f"the cases together are collapsed beyond chance (Fisher's p {found.together:.2g}, {len(known)} cases) and "
            f"no single one can be named; {len(open_)} of them are not decided diverse"
        )
    return _checked(metric, _NONE, "NO-GO", reason, named or open_, found.p, run, errors)


def _newly_collapsed(metric: str, run: RunCases, partner: RunCases, errors: Errors) -> Check:
    """NO-GO for cases that surely collapsed since; GO if each is diverse now, or was collapsed before."""
    alpha = _alpha(errors)
    found = new_collapses(partner.cases, run.cases, alpha)
    p = found[0].adjusted if found else 1.0
    if named := [each.case for each in found if each.adjusted <= alpha]:
        reason = f"{_listed(named, run)} collapsed since the baseline, beyond chance (p {p:.2g} among all cases)"
        return _checked(metric, _NONE_NEW, "NO-GO", reason, named, p, run, errors)
    return _open(metric, _NONE_NEW, run, undecided_collapses(partner.cases, run.cases), p, errors)


def _open(metric: str, demand: str, run: RunCases, open_: Sequence[str], p: float, errors: Errors) -> Check:
    """GO where no case is ``open_``: that nothing surprises is no evidence of diversity."""
    every = len(run.cases.ids) + len(run.cases.unrecorded or ())
    if every and not open_:
        return _checked(
            metric, demand, "GO", f"each of {every} case(s) is decided diverse by itself", (), p, run, errors
        )
    reason = (
        f"{_listed(open_, run)} not decided diverse by itself, and nothing collapsed beyond chance (p {p:.2g}): "
        "more answers to a case decide it"
        if every
        else "no case is there"
    )
    return _checked(metric, demand, "INCONCLUSIVE", reason, open_, p, run, errors)


def _checked(
    metric: str,
    demand: str,
    decided: Decided,
    reason: str,
    cases: Sequence[str],
    p: float,
    run: RunCases,
    errors: Errors,
) -> Check:
    # A single answer of a case agrees with nothing, and is no evidence.
    evidence = sum(answers for labels in run.cases.labels if (answers := sum(labels.values())) > 1)
    return Check(
        metric,
        demand,
        "critical",
        decided,
        reason,
        len(cases),
        cases=tuple(cases[:_KEPT]),
        # Where runs are confirmed nobody asks labels afresh: collapse spends by itself. Else it shares Holm.
        p_margin=p if errors.collapse is None else None,
        evidence=evidence,
    )


def _alpha(errors: Errors) -> float:
    return errors.no_go if errors.collapse is None else errors.collapse


def _listed(cases: Sequence[str], run: RunCases) -> str:
    more = f" and {len(cases) - _NAMED} more" if len(cases) > _NAMED else ""
    every = len(run.cases.ids) + len(run.cases.unrecorded or ())
    return f"{len(cases)} of {every} case(s) ({', '.join(cases[:_NAMED])}{more})"
