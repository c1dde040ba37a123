"""Demands that rest on verdicts of judges: who decides by them trusts the judge, as far as people have labelled it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import msgspec

from evalq.evalcore.compare.decision import Check
from evalq.evalcore.compare.policy import Policy
from evalq.evalcore.compare.run import RunCases

__all__ = ["nothing_decides", "on_trust", "why_advisory"]

_NAMED = 5


def on_trust(
    checks: Iterable[Check], path: str, policy: Policy, run: RunCases, partner: RunCases | None
) -> Iterator[Check]:
    """Checks of what stands at ``path``, advisory where they rest on judges of whom too few verdicts are labelled."""
    why = why_advisory(path, policy, run, partner)
    for check in checks:
        if not why or check.tier == "advisory":
            yield check
        else:
            yield msgspec.structs.replace(check, tier="advisory", reason=f"{check.reason}; advisory: {why}")


def why_advisory(path: str, policy: Policy, run: RunCases, partner: RunCases | None) -> str:
    """Why what stands at ``path`` in the results decides nothing; empty where it may.

    Labels of the baseline count, too, where the same judges were asked by the same words: a judge that people were
    compared with once need not be labelled anew with every candidate.
    """
    judged = run.cases.judged
    if judged is None or policy.judges == "decide" or not judged.rests(path):
        return ""
    if policy.judges == "advisory":
        return "it rests on judges (judges: advisory)"
    labels = dict(judged.labels)
    before = partner.cases.judged if partner is not None else None
    if before is not None and before.by == judged.by:
        labels = {check: count + before.labels.get(check, 0) for check, count in labels.items()}
    lacking = sorted(check for check, count in labels.items() if count < policy.minimum_labels)
    if not lacking:
        return ""
    told = ", ".join(f"{check} ({labels[check]})" for check in lacking[:_NAMED])
    more = f" and {len(lacking) - _NAMED} more" if len(lacking) > _NAMED else ""
    return f"it rests on judges with fewer than {policy.minimum_labels} labelled verdicts: {told}{more}"


def nothing_decides(policy: Policy, checks: Sequence[Check]) -> Iterator[Check]:
    """INCONCLUSIVE where all that the policy holds critical rests on judges: nothing would be left to say no."""
    # Only what its author holds critical: that answers are missing says no without any judge, and says nothing else.
    metrics = {gate.metric for gate in policy.gates if gate.tier == "critical"}
    own = [check for check in checks if check.metric in metrics]
    if own and not any(check.tier == "critical" for check in own):
        reason = "all critical demands rest on judges, and are advisory: label a random sample, or say judges: decide"
        yield Check("judges", "something that decides", "critical", "INCONCLUSIVE", reason)
