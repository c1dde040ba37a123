"""A chunk's answer on its way to the report: canonical bytes with a digest."""

from __future__ import annotations

from typing import Any

import msgspec

from evalq.evalcore.contract.evaluator import Evaluator, Outcome, State
from evalq.evalcore.errors import WireError
from evalq.evalcore.model.canonical import digest, pack, unpack
from evalq.evalcore.model.manifest import Chunk, to_wire
from evalq.evalcore.model.state import Tally
from evalq.evalcore.records.digests import answer_digest

MAX_PARTIAL_BYTES = 512 << 20


class Partial(msgspec.Struct, frozen=True):
    """``data``: the packed answer; ``digest``: `answer_digest` of it unpacked, the same whoever computed it."""

    digest: str
    data: bytes


class ChunkAnswer(msgspec.Struct, frozen=True):
    """A chunk's answer as whoever folds it needs it: ``text`` is its record lines as they stand in records.jsonl, but
    for the last one's newline; empty where there are none.
    """

    state: State
    tally: Tally
    text: memoryview


class _AnswerHead(msgspec.Struct, array_like=True, forbid_unknown_fields=True):
    state: msgspec.Raw
    tally: Tally
    of: str = ""


def encode(outcome: Outcome[Any], chunk: Chunk | None = None) -> Partial:
    """Pack an outcome: a line of JSON with state, tally and which chunk it is the answer of (where it is one of a run),
    then the record lines as they are.
    """
    of = "" if chunk is None else digest(to_wire(chunk))
    head = _AnswerHead(msgspec.Raw(outcome.state.to_wire()), outcome.tally, of)
    head_line = msgspec.json.encode(head, order="deterministic")
    plain = b"\n".join([head_line, *outcome.lines])
    return Partial(answer_digest(plain), pack(plain))


def decode(partial: Partial, evaluator: Evaluator[Any, Any], chunk: Chunk | None = None) -> Outcome[State]:
    """`opened`, with the record lines one by one."""
    answer = opened(partial, evaluator, chunk)
    return Outcome(answer.state, answer.tally, bytes(answer.text).split(b"\n") if answer.text else [])


def opened(partial: Partial, evaluator: Evaluator[Any, Any], chunk: Chunk | None = None) -> ChunkAnswer:
    """Unpack and check. Raises WireError when bytes and digest differ, the content is not a partial, or it is not the
    answer of ``chunk``, with no more records than that has.
    """
    try:
        plain = _unpacked(partial.data)
        if answer_digest(plain) != partial.digest:
            raise WireError("a partial in the ledger does not have the digest it was committed with")
        end = plain.find(b"\n")
        # Not taken apart by lines: the fold needs the head alone, and the lines are written as they are.
        text = memoryview(plain)[end + 1 :] if end >= 0 else memoryview(b"")
        head = msgspec.json.decode(plain[:end] if end >= 0 else plain, type=_AnswerHead)
        state = evaluator.State.from_wire(bytes(head.state))
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise WireError(f"a partial in the ledger is damaged: {error}") from error
    # The partial's digest shows that its bytes are whole; only the chunk's digest in its head shows that it is not the
    # answer of another chunk put in this one's place.
    if chunk is not None and head.of != digest(to_wire(chunk)):
        raise WireError(f"it is the answer of another chunk than number {chunk.seq} of this plan")
    if chunk is not None and head.tally.total > chunk.records:
        raise WireError(f"the answer of chunk {chunk.seq} counts {head.tally.total} records of {chunk.records}")
    return ChunkAnswer(state, head.tally, text)


def _unpacked(data: bytes) -> bytes:
    try:
        return unpack(data, MAX_PARTIAL_BYTES)
    except WireError as error:
        raise WireError(f"a partial in the ledger is damaged: {error}") from error
