"""From what scores add up to, to the results of the report."""

from __future__ import annotations

from collections.abc import Sequence

from evalq.evalcore.contract.effectiveness import effectiveness
from evalq.evalcore.contract.evaluator import InputResult
from evalq.evalcore.evaluators.verification.params import VerificationParams
from evalq.evalcore.evaluators.verification.score import BANDS, COMPONENTS
from evalq.evalcore.evaluators.verification.state import VerificationState
from evalq.evalcore.model.canonical import Json
from evalq.evalcore.views.failures import failed_section

__all__ = ["section"]


def section(results: Sequence[InputResult[VerificationState]], params: VerificationParams) -> dict[str, Json]:
    """Means, pass rate and bands; where records are labelled, how the pattern sets agree with the labels."""
    state = VerificationState.zero()
    for result in results:
        state.merge(result.state)
    count = state.scored
    means = [total.mean(count) if count else None for total in (state.score, *state.components)]
    found: dict[str, Json] = {
        "mean_score": means[0],
        "pass_rate": state.passed / count if count else None,
        "passed": state.passed,
        "bands": dict(zip(BANDS, state.bands, strict=True)),
        "components": dict(zip(COMPONENTS, means[1:], strict=True)),
        "unsubstantiated": state.claims,
        "failed": failed_section((result.name, result.state.failed) for result in results),
    }
    if labelled := state.agreement.records:
        right = {name: {"right": k, "share": k / labelled} for name, k in state.agreement.right.items()}
        same = {"same": state.agreement.same, "share": state.agreement.same / labelled}
        found["labels"] = {
            "records": labelled,
            "patterns": right,
            "agreement": same,
            "by_score": effectiveness(state.agreement.by_score, params.targets),
        }
        if state.agreement.by_judge.total:
            found["labels"]["judged"] = effectiveness(state.agreement.by_judge, params.targets)
    if state.judged.total:
        found["judged"] = state.judged.section()
    return found
