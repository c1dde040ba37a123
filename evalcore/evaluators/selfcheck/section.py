"""From what checks add up to, to the results of the report."""

from __future__ import annotations

from collections.abc import Sequence

from evalq.evalcore.contract.effectiveness import effectiveness
from evalq.evalcore.contract.evaluator import InputResult
from evalq.evalcore.evaluators.selfcheck.params import SelfCheckParams
from evalq.evalcore.evaluators.selfcheck.state import SelfCheckState
from evalq.evalcore.evaluators.selfcheck.suspicion import REASONS
from evalq.evalcore.model.canonical import Json
from evalq.evalcore.views.failures import failed_section

__all__ = ["section"]


def section(results: Sequence[InputResult[SelfCheckState]], params: SelfCheckParams) -> dict[str, Json]:
    """Pass rate, rates by question, counts by signal; goals where verified, effectiveness where labelled."""
    state = SelfCheckState.zero()
    for result in results:
        state.merge(result.state)
    share = {q.id: _share(state.questions.get(q.id, 0), state.checked) for q in params.questions}
    found: dict[str, Json] = {
        "passed": state.passed,
        "pass_rate": _share(state.passed, state.checked),
        "questions": share,
        "signals": {signal.message: state.signals.get(signal.message, 0) for signal in params.signals},
    }
    reasons = {reason: state.suspicions.get(reason, 0) for reason in REASONS}
    found["suspected"] = {"records": state.suspected, "reasons": reasons}
    found["failed"] = failed_section((result.name, result.state.failed) for result in results)
    if state.goals:
        found["goals"] = {"verified": state.goals, "reached": state.goals_reached}
    if state.unresolved:
        found["unresolved"] = state.unresolved
    if state.by_verdict.total:
        any_signal = effectiveness(state.by_signal, params.targets)
        suspected = effectiveness(state.by_suspicion, params.targets)
        by_verdict = effectiveness(state.by_verdict, params.targets)
        found["labels"] = {**by_verdict, "any_signal": any_signal, "suspected": suspected}
        if state.by_judge.total:
            found["labels"]["judged"] = effectiveness(state.by_judge, params.targets)
    if state.judged.total:
        found["judged"] = state.judged.section()
    return found


def _share(count: int, of: int) -> float | None:
    return count / of if of else None
