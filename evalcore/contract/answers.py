"""What evaluating takes and gives: params, the state that chunks merge into, a chunk's outcome, an input's result."""

from __future__ import annotations

from typing import Generic, TypeVar

import msgspec
from pydantic import BaseModel, ConfigDict

from evalq.evalcore.model.state import Merging, Tally

__all__ = ["InputResult", "Outcome", "P", "Params", "S", "State"]


class Params(BaseModel):
    """What changes an evaluator's answer: strict, frozen, unknown keys are errors that name the key.

    Only hashable field types (tuples, not lists; nested Params, not dicts), so that what an evaluator
    compiles from its params can be cached on them.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")


class State(Merging):
    """What a chunk adds up to. Its fields may be further `Merging` ones."""


P = TypeVar("P", bound=Params)
S = TypeVar("S", bound=State)


class Outcome(msgspec.Struct, Generic[S]):
    """What `evaluate` returns for a chunk: its state, one line of records.jsonl a record, and the counts.

    ``lines`` are JSON objects as bytes, without a newline, in input order, each with at least the keys
    ``record`` (what `Batch.where` says of its line), ``id`` and ``status``; an evaluator whose record is a whole
    input has none.
    """

    state: S
    tally: Tally
    lines: list[bytes] = []


class InputResult(msgspec.Struct, Generic[S]):
    """One input when all of it is merged: ``name`` (unique in the run), the path as ``given``, and its state."""

    name: str
    given: str
    state: S
    tally: Tally
