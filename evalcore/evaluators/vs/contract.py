"""The output contract: one table of shapes, checked fast by a typed conversion, and walked only to explain.

What a validator tests itself (its absence is that validator's failure) is not wanted here, so that
one absence is never two faults; wrong types are the contract's all the same.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import Annotated, Any

import msgspec

from evalq.evalcore.naming import join, kind_of

__all__ = ["OUTPUT", "ContractFault", "contract_faults"]


class ContractFault(msgspec.Struct, frozen=True):
    """One breach: ``path`` such as ``vs_metadata.t_scores[2].score``, and the ``reason``, of a small set of texts."""

    path: str
    reason: str


class Shape(msgspec.Struct, frozen=True):
    """What a value must be: of a JSON ``kind`` ("" is any), ``within`` bounds, with such ``items`` or ``members``."""

    kind: str = ""
    within: tuple[float, float] | None = None
    items: Shape | None = None
    members: tuple[Member, ...] = ()


class Member(msgspec.Struct, frozen=True):
    """A key of an object; ``wanted``: absence is a fault; ``nullable``: null counts as absent."""

    key: str
    shape: Shape
    wanted: bool = True
    nullable: bool = False


def _tested(key: str, shape: Shape) -> Member:
    """A key that a validator tests: the contract says nothing when it is absent."""
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
        # Nearly all outputs keep it: msgspec tells so in one call, and only the others are walked through.
        msgspec.convert(output, _TYPED)
    except msgspec.ValidationError:
        # Some only: a list of a million broken items must not make as many lines of a report.
        return list(islice(_explain(output, OUTPUT, ""), most))
    return []


def _typed(shape: Shape, name: str) -> Any:
    """``shape`` as a type that msgspec converts to; it accepts exactly what `_explain` has nothing to say about."""
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
    # UnsetType takes what is absent; null is a value, and a fault unless the key may be null.
    return (member.key, kind) if member.wanted else (member.key, kind | msgspec.UnsetType, msgspec.UNSET)


_TYPED = _typed(OUTPUT, "Output")


def _explain(value: Any, shape: Shape, path: str) -> Iterator[ContractFault]:
    """Every breach below ``path``, depth first."""
    found = kind_of(value)
    if shape.kind == "an integer" and type(value) is int:
        found = "an integer"
    if shape.kind not in ("", found):
        # The one fault of what is below it, too: nothing there can be held against a shape.
        yield ContractFault(path, f"{found} where {shape.kind} is wanted")
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
