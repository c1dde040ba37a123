"""The contract of an agent's output, and the four validators of the vs specification, on plain dicts.

The contract is one table of shapes. A typed conversion checks it fast, and only a breach is walked through to explain
it. The contract does not require a key that a validator tests, so that its absence is one fault and not two; but it
checks the type of such a key.

The validators compute what the specification's own code computes, even for values that break the contract (a score of
1.5, a phase "0"). If that code would raise an exception for a value, the result is not passed, ``reason`` names the
value, and numbers that cannot be computed are 0 or None.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Annotated, Any

import msgspec

from evalq.evalcore.evaluators.vs.params import LEVELS, CritiqueRule, ProvenanceRule, TScoreRule
from evalq.evalcore.naming import join, kind_of


class ContractFault(msgspec.Struct, frozen=True):
    """One breach: its ``path``, such as ``vs_metadata.t_scores[2].score``, and a ``reason`` out of few texts."""

    path: str
    reason: str


class Shape(msgspec.Struct, frozen=True):
    """What a value must be: its JSON ``kind`` ("" is any), its bounds, its ``items`` or ``members``."""

    kind: str = ""
    within: tuple[float, float] | None = None
    items: Shape | None = None
    members: tuple[Member, ...] = ()


class Member(msgspec.Struct, frozen=True):
    """A key of an object. ``wanted``: absence is a fault. ``nullable``: null counts as absent."""

    key: str
    shape: Shape
    wanted: bool = True
    nullable: bool = False


def _tested(key: str, shape: Shape) -> Member:
    """A key that a validator tests: the contract accepts its absence."""
    return Member(key, shape, wanted=False)


def _optional(key: str, shape: Shape) -> Member:
    return Member(key, shape, wanted=False, nullable=True)


_ANY = Shape()
_TEXT = Shape("a string")
_LIST = Shape("a list")
_T_SCORE = Shape("a number", within=(0.0, 1.0))


def _object(*members: Member) -> Shape:
    return Shape("an object", members=members)


_METADATA = _object(
    _tested("phase_executed", Shape("a list", items=Shape("an integer"))),
    Member("modal_identified", _LIST),
    _tested(
        "t_scores",
        Shape("a list", items=_object(Member("option", _TEXT), Member("score", _T_SCORE), Member("rationale", _TEXT))),
    ),
    Member(
        "final_selection",
        _object(Member("option", _TEXT), _tested("t_score", _T_SCORE), Member("justification", _TEXT)),
    ),
)
_PROVENANCE = _object(_tested("sources", _LIST), _tested("reasoning_trace", _LIST), _tested("assumptions", _ANY))
_CRITIQUE = _object(
    _optional("strengths", _LIST),
    _optional("weaknesses", _LIST),
    _optional("improvement_suggestions", _LIST),
    _optional("alternative_perspectives", _ANY),
)

OUTPUT = _object(
    Member("agent_id", _TEXT),
    Member("vs_level", _TEXT),
    Member("execution_timestamp", _TEXT),
    Member("vs_metadata", _METADATA),
    Member("content", _object(Member("summary", _TEXT), Member("main_output", _ANY), Member("confidence", _ANY))),
    _tested("provenance", _PROVENANCE),
    _optional("next_agents", _ANY),
    _optional("warnings", _ANY),
    _optional("limitations", _ANY),
    _optional("self_critique", _CRITIQUE),
)
"""The contract of an agent's output, as SPEC section 1 lists it."""


def contract_faults(output: dict[str, Any], most: int = 100) -> list[ContractFault]:
    """The first ``most`` breaches of the contract in ``output``, in the contract's order; usually none."""
    try:
        # Nearly all outputs keep the contract, and one call of msgspec shows that.
        msgspec.convert(output, _TYPED)
    except msgspec.ValidationError:
        # Not all: a list of a million broken items must not make a million lines of a report.
        return list(islice(_explain(output, OUTPUT, ""), most))
    return []


def _typed(shape: Shape, name: str) -> Any:
    """``shape`` as a type for msgspec; it accepts exactly the values in which `_explain` finds no fault."""
    if shape.kind == "an object":
        fields = [_field(member, f"{name}_{member.key}") for member in shape.members]
        return msgspec.defstruct(name, fields, kw_only=True)
    if shape.kind == "a list":
        item: Any = _typed(shape.items, f"{name}_item") if shape.items else Any
        return list[item]
    if shape.kind == "a number" and shape.within:
        return Annotated[float, msgspec.Meta(ge=shape.within[0], le=shape.within[1])]
    return {"a string": str, "an integer": int, "": Any}[shape.kind]


def _field(member: Member, name: str) -> Any:
    kind = _typed(member.shape, name)
    if member.nullable:
        kind = kind | None
    # UnsetType accepts absence. Null is a value, and a fault unless the key may be null.
    return (member.key, kind) if member.wanted else (member.key, kind | msgspec.UnsetType, msgspec.UNSET)


_TYPED = _typed(OUTPUT, "Output")


def _explain(value: Any, shape: Shape, path: str) -> Iterator[ContractFault]:
    """Every breach below ``path``, depth first."""
    kind = kind_of(value)
    if shape.kind == "an integer" and type(value) is int:
        kind = "an integer"
    if shape.kind not in ("", kind):
        # Nothing below it can be compared with a shape.
        yield ContractFault(path, f"{kind} where {shape.kind} is wanted")
        return
    if shape.within and not shape.within[0] <= value <= shape.within[1]:
        yield ContractFault(path, f"outside {shape.within[0]:g} to {shape.within[1]:g}")
    if shape.items:
        for index, item in enumerate(value):
            yield from _explain(item, shape.items, join(path, index))
    for member in shape.members:
        yield from _explain_member(value, member, join(path, member.key))


def _explain_member(holder: dict[str, Any], member: Member, path: str) -> Iterator[ContractFault]:
    if member.key not in holder:
        if member.wanted:
            yield ContractFault(path, "missing")
    elif holder[member.key] is not None or not member.nullable:
        yield from _explain(holder[member.key], member.shape, path)


# The validators


@dataclass(kw_only=True, slots=True)
class ValidationResult:
    """Whether a validator passed; ``reason`` if there was nothing to validate, or nothing readable."""

    passed: bool
    reason: str | None = None


@dataclass(kw_only=True, slots=True)
class PhaseResult(ValidationResult):
    """``score``: the share of required phases that were executed. Both lists are sorted."""

    missing_phases: list[int] = field(default_factory=list)
    extra_phases: list[Any] = field(default_factory=list)
    score: float = 0.0


@dataclass(kw_only=True, slots=True)
class TScoreResult(ValidationResult):
    """``diversity_score`` is 1 - (max - min), as specified; ``t_score_spread`` max - min, high where scores differ."""

    modal_collapse_detected: bool = False
    has_diversity: bool = False
    diversity_score: float | None = None
    t_score_spread: float | None = None
    final_selection_t_score: Any = None


@dataclass(kw_only=True, slots=True)
class CritiqueResult(ValidationResult):
    """``quality_score``: the share of the four ``checks`` that hold."""

    checks: dict[str, bool] = field(default_factory=dict)
    quality_score: float = 0.0


@dataclass(kw_only=True, slots=True)
class ProvenanceResult(ValidationResult):
    """``provenance_completeness``: the share of the three ``checks`` that hold."""

    checks: dict[str, bool] = field(default_factory=dict)
    provenance_completeness: float = 0.0


class _Unreadable(Exception):
    """A value of a kind the validator cannot work with."""


def _member(holder: object, key: str, path: str, default: object) -> Any:
    """``holder[key]``, or ``default``; ``path`` is the holder's."""
    if not isinstance(holder, dict):
        raise _Unreadable(f"{path or 'the output'} is {kind_of(holder)}, not an object")
    return holder.get(key, default)


def _length(holder: object, key: str, path: str) -> int:
    # Anything with a length is accepted, even a text.
    value = _member(holder, key, path, [])
    try:
        return len(value)
    except TypeError:
        raise _Unreadable(f"{join(path, key)} is {kind_of(value)}, not a list") from None


def validate_vs_phases(output: dict[str, Any], level: str) -> PhaseResult:
    """Whether ``vs_metadata.phase_executed`` has the phases of ``level``.

    Those are 0 to 5 for Full, 0, 1, 2, 4 for Enhanced, and 0, 1, 4 for Light.
    ``score`` is the share of them that is there; further phases do no harm. Raises ValueError on another level.
    """
    for known in LEVELS:
        if known.name == level:
            return check_phases(output, known.phases)
    raise ValueError(f"no level {level!r}; there are {', '.join(known.name for known in LEVELS)}")


def check_phases(output: object, required: Sequence[int]) -> PhaseResult:
    """`validate_vs_phases` for any set of ``required`` phases."""
    wanted = set(required)
    try:
        phases = _member(_member(output, "vs_metadata", "", {}), "phase_executed", "vs_metadata", [])
        # Any iterable of hashable values is accepted.
        executed = set(phases)
    except _Unreadable as error:
        return PhaseResult(passed=False, reason=str(error), missing_phases=sorted(wanted))
    except TypeError:
        reason = "vs_metadata.phase_executed is no list of phases"
        return PhaseResult(passed=False, reason=reason, missing_phases=sorted(wanted))
    return PhaseResult(
        passed=wanted <= executed,
        missing_phases=sorted(wanted - executed),
        extra_phases=sorted(executed - wanted, key=_any_order),
        score=len(executed & wanted) / len(wanted),
    )


def _any_order(value: object) -> tuple[int, float, str]:
    """A sort key for values of mixed types: numbers first, by size, then all else by its text."""
    try:
        # Extra phases may have any type, and a report lists them in one order.
        return (0, float(value), "") if isinstance(value, int | float) else (1, 0.0, str(value))
    except OverflowError:
        return 0, math.inf, ""


def validate_t_score_distribution(output: dict[str, Any]) -> TScoreResult:
    """Whether some option is of low typicality (a score below 0.6) and the selected one is not modal (0.8 or less).

    Scores are ``vs_metadata.t_scores[].score``, the selected one's is ``final_selection.t_score``; without it the
    selection counts as modal. ``modal_collapse_detected``: every score is above 0.8.
    """
    return check_t_scores(output, TScoreRule())


def check_t_scores(output: object, rule: TScoreRule) -> TScoreResult:
    """`validate_t_score_distribution` by the thresholds of ``rule``."""
    try:
        metadata = _member(output, "vs_metadata", "", {})
        t_scores = _member(metadata, "t_scores", "vs_metadata", [])
        if not t_scores:
            return TScoreResult(passed=False, reason="No T-scores provided")
        scores = _scores(t_scores)
        spread = max(scores) - min(scores)
        # As specified, though it is low if scores differ. The spread is reported beside it.
        diversity = 1 - spread
    except _Unreadable as error:
        return TScoreResult(passed=False, reason=str(error))
    except OverflowError:
        return TScoreResult(passed=False, reason="vs_metadata.t_scores holds a score too large for a number")
    final, reason = _final_t_score(metadata)
    diverse = any(score < rule.diverse_below for score in scores)
    # A selection without a score counts as the most typical one, as in the specification's code.
    modal = (1.0 if final is None else final) > rule.modal_above
    return TScoreResult(
        passed=diverse and not modal,
        reason=reason,
        modal_collapse_detected=all(score > rule.modal_above for score in scores),
        has_diversity=diverse,
        diversity_score=diversity,
        t_score_spread=spread,
        final_selection_t_score=final,
    )


def _scores(t_scores: object) -> list[float]:
    path = "vs_metadata.t_scores"
    if not isinstance(t_scores, list | tuple):
        raise _Unreadable(f"{path} is {kind_of(t_scores)}, not a list")
    scores: list[float] = []
    for index, entry in enumerate(t_scores):
        if not isinstance(entry, dict):
            raise _Unreadable(f"{path}[{index}] is {kind_of(entry)}, not an object")
        score = entry.get("score")
        # The specification's code reads a boolean as 0 or 1. It is a contract fault.
        if not isinstance(score, int | float):
            problem = f"{kind_of(score)}, not a number" if "score" in entry else "missing"
            raise _Unreadable(f"{path}[{index}].score is {problem}")
        scores.append(score)
    return scores


def _final_t_score(metadata: dict[str, Any]) -> tuple[Any, str | None]:
    """The final selection's score, or why its value is not a number."""
    final = metadata.get("final_selection", {})
    if not isinstance(final, dict):
        return None, f"vs_metadata.final_selection is {kind_of(final)}, not an object"
    score = final.get("t_score")
    if score is None or isinstance(score, int | float):
        return score, None
    return None, f"vs_metadata.final_selection.t_score is {kind_of(score)}, not a number"


def validate_self_critique(output: dict[str, Any]) -> CritiqueResult:
    """Whether the output criticises itself with at least three of four kinds of remark (Full level only).

    The kinds: two strengths, two weaknesses, one improvement suggestion, and alternatives (their key, or one weakness).
    """
    return check_self_critique(output, CritiqueRule())


def check_self_critique(output: object, rule: CritiqueRule) -> CritiqueResult:
    """`validate_self_critique` by the counts of ``rule``."""
    path = "self_critique"
    try:
        critique = _member(output, path, "", {})
        if not critique:
            return CritiqueResult(passed=False, reason="No self-critique provided")
        weaknesses = _length(critique, "weaknesses", path)
        checks = {
            "has_strengths": _length(critique, "strengths", path) >= rule.strengths,
            "has_weaknesses": weaknesses >= rule.weaknesses,
            "has_improvements": _length(critique, "improvement_suggestions", path) >= rule.improvement_suggestions,
            # SPEC, section 1: the key alone is enough, even if it is empty, and so is one weakness.
            "has_alternatives": "alternative_perspectives" in critique
            or weaknesses >= rule.weaknesses_for_alternatives,
        }
    except _Unreadable as error:
        return CritiqueResult(passed=False, reason=str(error))
    score = sum(checks.values()) / len(checks)
    return CritiqueResult(passed=score >= rule.pass_at, checks=checks, quality_score=score)


def validate_provenance(output: dict[str, Any]) -> ProvenanceResult:
    """Whether ``provenance`` has a source and a step of reasoning, and states its assumptions (which may be none)."""
    return check_provenance(output, ProvenanceRule())


def check_provenance(output: object, rule: ProvenanceRule) -> ProvenanceResult:
    """`validate_provenance` by the counts of ``rule``."""
    path = "provenance"
    try:
        provenance = _member(output, path, "", {})
        checks = {
            "has_sources": _length(provenance, "sources", path) >= rule.sources,
            "has_reasoning": _length(provenance, "reasoning_trace", path) >= rule.reasoning_trace,
            "has_assumptions": "assumptions" in provenance,
        }
    except _Unreadable as error:
        return ProvenanceResult(passed=False, reason=str(error))
    passed_count = sum(checks.values())
    return ProvenanceResult(
        passed=passed_count == len(checks), checks=checks, provenance_completeness=passed_count / len(checks)
    )
