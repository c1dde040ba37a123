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
    """``data``: the packed answer; ``digest``: `answer_digest` of it unpacked, the same from every worker."""

    digest: str
    data: bytes


class ChunkAnswer(msgspec.Struct, frozen=True):
    """A chunk's answer for the fold; ``text`` has its record lines as in records.jsonl, without the last newline."""

    state: State
    tally: Tally
    text: memoryview


class _AnswerHead(msgspec.Struct, array_like=True, forbid_unknown_fields=True):
    state: msgspec.Raw
    tally: Tally
    of: str = ""


def encode(outcome: Outcome[Any], chunk: Chunk | None = None) -> Partial:
    """Pack an outcome: a line of JSON with state, tally and the digest of its ``chunk``, then the record lines."""
    of = "" if chunk is None else digest(to_wire(chunk))
    head = _AnswerHead(msgspec.Raw(outcome.state.to_wire()), outcome.tally, of)
    head_line = msgspec.json.encode(head, order="deterministic")
    plain = b"\n".join([head_line, *outcome.lines])
    return Partial(answer_digest(plain), pack(plain))


def decode(partial: Partial, evaluator: Evaluator[Any, Any], chunk: Chunk | None = None) -> Outcome[State]:
    """`unpack_answer`, with the record lines as a list."""
    answer = unpack_answer(partial, evaluator, chunk)
    return Outcome(answer.state, answer.tally, bytes(answer.text).split(b"\n") if answer.text else [])


def unpack_answer(partial: Partial, evaluator: Evaluator[Any, Any], chunk: Chunk | None = None) -> ChunkAnswer:
    """Unpack and check. Raises WireError if the bytes do not match the digest, hold no partial, or hold the answer of
    another chunk or of more records than ``chunk`` has.
    """
    try:
        plain = _unpacked(partial.data)
        if answer_digest(plain) != partial.digest:
            raise WireError("a partial in the ledger does not have the digest it was committed with")
        end = plain.find(b"\n")
        # Not split into lines: the fold decodes only the head, and copies the lines.
        text = memoryview(plain)[end + 1 :] if end >= 0 else memoryview(b"")
        head = msgspec.json.decode(plain[:end] if end >= 0 else plain, type=_AnswerHead)
        state = evaluator.State.from_wire(bytes(head.state))
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise WireError(f"a partial in the ledger is damaged: {error}") from error
    # The partial's digest proves that its bytes are intact. The chunk's digest in the head proves that no answer of
    # another chunk replaced it.
    if chunk is not None and head.of != digest(to_wire(chunk)):
        raise WireError(f"a partial in the ledger answers another chunk than chunk {chunk.seq} of this plan")
    if chunk is not None and head.tally.total > chunk.records:
        raise WireError(f"the answer of chunk {chunk.seq} counts {head.tally.total} records of {chunk.records}")
    return ChunkAnswer(state, head.tally, text)


def _unpacked(data: bytes) -> bytes:
    try:
        return unpack(data, MAX_PARTIAL_BYTES)
    except WireError as error:
        raise WireError(f"a partial in the ledger is damaged: {error}") from error
