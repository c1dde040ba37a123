"""A chunk's answer on its way to the report: canonical bytes with a digest."""

from __future__ import annotations

from typing import Any

import msgspec
import zstandard

from evalcore.canonical import digest
from evalcore.errors import WireError
from evalcore.evaluator import Evaluator, Outcome, State
from evalcore.tally import Tally

__all__ = ["Partial", "decode", "encode"]

MAX_PARTIAL_BYTES = 512 << 20
_LEVEL = 1


class Partial(msgspec.Struct, frozen=True):
    """``data``: the packed answer; ``digest``: SHA-256 of it unpacked, the same whoever computed it."""

    digest: str
    data: bytes


class _Head(msgspec.Struct, array_like=True, forbid_unknown_fields=True):
    state: msgspec.Raw
    tally: Tally


def encode(outcome: Outcome[Any]) -> Partial:
    """Pack an outcome: a line of JSON with state and tally, then the record lines as they are."""
    head = msgspec.json.encode(_Head(msgspec.Raw(outcome.state.to_wire()), outcome.tally), order="deterministic")
    plain = b"\n".join([head, *outcome.lines])
    return Partial(digest(plain), zstandard.ZstdCompressor(level=_LEVEL).compress(plain))


def decode(partial: Partial, evaluator: Evaluator[Any, Any]) -> Outcome[State]:
    """Unpack and check. Raises WireError when bytes and digest differ or the content is not a partial."""
    try:
        plain = _unpacked(partial.data)
        if digest(plain) != partial.digest:
            raise WireError("a partial in the ledger does not have the digest it was committed with")
        first, _, rest = plain.partition(b"\n")
        head = msgspec.json.decode(first, type=_Head)
        state = evaluator.State.from_wire(bytes(head.state))
    except (zstandard.ZstdError, msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise WireError(f"a partial in the ledger is damaged: {error}") from error
    return Outcome(state, head.tally, rest.split(b"\n") if rest else [])


def _unpacked(data: bytes) -> bytes:
    """The one frame in ``data``; its size is looked at first, since unpacking takes memory for what it announces."""
    size = zstandard.get_frame_parameters(data).content_size
    if size > MAX_PARTIAL_BYTES:  # so is a frame that does not say
        raise WireError(f"a partial in the ledger is damaged: it unpacks to more than {MAX_PARTIAL_BYTES} bytes")
    return zstandard.ZstdDecompressor().decompress(data, allow_extra_data=False)
