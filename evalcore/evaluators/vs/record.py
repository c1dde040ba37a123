"""One line of records.jsonl: what became of a test, with every check of it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import msgspec

from evalq.evalcore.evaluators.vs.findings import REMEDIES
from evalq.evalcore.evaluators.vs.score import ExpectationResult, Judgement, Scores
from evalq.evalcore.evaluators.vs.validators import CritiqueResult, PhaseResult, ProvenanceResult, TScoreResult
from evalq.evalcore.naming import kind_of, shorten

__all__ = ["record_line"]

_EXTRA = 20


class _Metrics(msgspec.Struct):
    """The specification's metrics of one test; null where a validator does not apply or had nothing to measure."""

    vs_phase_score: float
    t_score_diversity: float | None
    self_critique_quality: float | None
    provenance_completeness: float


class _Checks(msgspec.Struct, omit_defaults=True):
    """What each validator returned, in the specification's names, and each expectation of the golden set.

    A validator that does not apply to the level is left out.
    """

    phases: PhaseResult
    provenance: ProvenanceResult
    t_scores: TScoreResult | None = None
    self_critique: CritiqueResult | None = None
    expected: tuple[ExpectationResult, ...] = ()


class _Line(msgspec.Struct):
    record: str
    id: str | None
    status: str
    metrics: _Metrics | None
    issue: str | None
    remediation: str | None
    case: str | None
    repeat: int | None
    agent: str | None
    option: str | None
    faults: list[str]
    checks: _Checks | None


def record_line(record: str, test: Judgement) -> bytes:
    """The line of the output that is called ``record``."""
    case = test.plan.case if test.plan else None
    first = test.findings[0] if test.findings else None
    line = _Line(
        record=record,
        id=f"{case.id}#{test.repeat}" if case and test.repeat is not None else None,
        status=test.status,
        metrics=_metrics(test.scores) if test.scores else None,
        issue="; ".join(finding.issue for finding in test.findings) if first else None,
        remediation=REMEDIES[first.check] if first else None,
        case=case.id if case else None,
        repeat=test.repeat,
        agent=case.agent if case else None,
        option=test.option,
        faults=[f"{fault.path}: {fault.reason}" for fault in test.faults],
        checks=_checks(test.scores, test.expected) if test.scores else None,
    )
    return _encode(line)


def _metrics(scores: Scores) -> _Metrics:
    return _Metrics(
        vs_phase_score=scores.phases.score,
        t_score_diversity=scores.t_scores.t_score_spread if scores.t_scores else None,
        self_critique_quality=scores.self_critique.quality_score if scores.self_critique else None,
        provenance_completeness=scores.provenance.provenance_completeness,
    )


def _checks(scores: Scores, expected: tuple[ExpectationResult, ...]) -> _Checks:
    phases = scores.phases
    if phases.extra_phases:
        phases = replace(phases, extra_phases=[_plain(phase) for phase in phases.extra_phases[:_EXTRA]])
    return _Checks(phases, scores.provenance, scores.t_scores, scores.self_critique, expected)


def _plain(value: Any) -> Any:
    """A value of an output, not longer than it needs to be."""
    if isinstance(value, str):
        return shorten(value)
    return value if value is None or isinstance(value, bool | int | float) else kind_of(value)


_encode = msgspec.json.Encoder().encode
