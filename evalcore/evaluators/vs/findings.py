"""What was wrong with an output: one finding a failed check, in words, with what to do about it."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Mapping

import msgspec

from evalq.evalcore.evaluators.vs.contract import ContractFault
from evalq.evalcore.evaluators.vs.expectations import Unmet
from evalq.evalcore.evaluators.vs.params import VsParams
from evalq.evalcore.evaluators.vs.validators import CritiqueResult, PhaseResult, ProvenanceResult, TScoreResult
from evalq.evalcore.naming import shorten

__all__ = [
    "LOW_SPREAD",
    "REMEDIES",
    "Finding",
    "contract_findings",
    "critique_finding",
    "expectation_finding",
    "in_full",
    "phase_finding",
    "provenance_finding",
    "t_score_finding",
]

REMEDIES: Mapping[str, str] = {
    "output": "Make the agent answer with one JSON object, and record it on one line with its case and repeat.",
    "contract": "Make the agent's output follow the contract at the paths named.",
    "phases": "Have the agent execute the missing phases, or register it at a level that does not require them.",
    "t_scores": "Have the agent sample options of low typicality and select one that is not modal.",
    "self_critique": "Have the agent name strengths, weaknesses, improvements and alternatives to its own answer.",
    "provenance": "Have the agent list its sources and reasoning steps and state its assumptions.",
    "expected": "Make the output meet the expectation, or correct the golden set if it asks too much.",
}
"""What to do, in one sentence, by check."""

LOW_SPREAD = "T-Score diversity below threshold"

_PHASE = re.compile(r"-?\d+")
_POSITION = re.compile(r"\[\d+\]")
_MISSING = {
    "has_strengths": "strengths",
    "has_weaknesses": "weaknesses",
    "has_improvements": "improvement suggestions",
    "has_alternatives": "alternatives",
    "has_sources": "sources",
    "has_reasoning": "reasoning trace",
    "has_assumptions": "assumptions",
}


class Finding(msgspec.Struct, frozen=True):
    """``check`` is a key of REMEDIES, ``kind`` one of few texts, counted over outputs, ``issue`` is of one output."""

    check: str
    kind: str
    issue: str


def contract_findings(faults: list[ContractFault]) -> Iterator[Finding]:
    """One finding a breach; positions in lists are left out of its kind."""
    for fault in faults:
        # Without positions: one mistake in twenty places is one kind of issue in the report.
        kind = f"Contract: {_POSITION.sub('[]', fault.path)} {fault.reason}"
        yield Finding("contract", kind, f"Contract: {fault.path} {fault.reason}")


def phase_finding(result: PhaseResult, params: VsParams) -> Finding:
    """Which phases are missing, with their names."""
    phases = result.missing_phases
    noun = "Phase" if len(phases) == 1 else "Phases"
    kind = f"{noun} {', '.join(map(str, phases))} missing"
    issue = in_full("phases", kind, params)
    if result.reason:
        issue += f": {result.reason}"
    return Finding("phases", kind, issue)


def in_full(check: str, kind: str, params: VsParams) -> str:
    """A kind of issue as a detailed result words it: missing phases by number and name, all else as it is."""
    if check != "phases":
        return kind

    def named(match: re.Match[str]) -> str:
        number = int(match[0])
        # From 0 on: a golden set may require phase -1, which Python would take for the last name.
        return f"{number} ({params.phase_names[number]})" if 0 <= number < len(params.phase_names) else match[0]

    return f"{_PHASE.sub(named, kind.removesuffix(' missing'))} not executed"


def t_score_finding(result: TScoreResult, params: VsParams) -> Finding:
    """Why the T-scores fail: none, unreadable, no option of low typicality, or a modal selection."""
    if result.t_score_spread is None:
        missing = result.reason == "No T-scores provided"
        return Finding("t_scores", "No T-scores provided" if missing else "T-scores unreadable", result.reason or "")
    rule, kinds, issues = params.t_scores, [], []
    if not result.has_diversity:
        kinds.append("no T-score is low")
        issues.append(f"no T-score is below {rule.diverse_below:g}")
    final = result.final_selection_t_score
    if final is None:
        kinds.append("the final selection has no T-score")
        # SPEC, section 1: a missing score of the selection counts as 1.0.
        issues.append(result.reason or "the final selection has no T-score, which counts as modal")
    elif final > rule.modal_above:
        # A kind without the score: with it every output would be one of its own, and nothing would add up.
        kinds.append("the final selection is modal")
        issues.append(f"the final selection is modal (T-score {_told(final)} above {rule.modal_above:g})")
    return Finding("t_scores", "T-scores: " + ", ".join(kinds), "T-scores: " + ", ".join(issues))


def _told(score: float) -> str:
    # A whole number may be beyond all floats, which no format takes.
    return f"{score:g}" if abs(score) <= sys.float_info.max else shorten(str(score))


def critique_finding(result: CritiqueResult) -> Finding:
    """Which parts of the self-critique are missing or too few."""
    return _incomplete("self_critique", "Self-critique", result.reason, result.checks)


def provenance_finding(result: ProvenanceResult) -> Finding:
    """Which parts of the provenance are missing."""
    return _incomplete("provenance", "Provenance", result.reason, result.checks)


def _incomplete(check: str, title: str, reason: str | None, checks: Mapping[str, bool]) -> Finding:
    if reason:
        kind = reason if reason.startswith("No ") else f"{title} unreadable"
        return Finding(check, kind, reason)
    text = f"{title} lacks " + ", ".join(_MISSING[name] for name, held in checks.items() if not held)
    return Finding(check, text, text)


def expectation_finding(unmet: Unmet) -> Finding:
    """An expectation of the golden set that the output does not meet."""
    return Finding("expected", unmet.kind, unmet.issue)
