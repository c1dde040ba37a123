"""Canonical JSON: one value, one byte string (sorted keys, UTF-8, shortest floats, no NaN); and packed bytes."""

from __future__ import annotations

import contextlib
import gc
import hashlib
import json
from collections.abc import Iterator
from typing import Any

import msgspec

from evalq.evalcore.errors import WireError

Json = Any
"""A JSON value: None, bool, int, float, str, list, or dict with string keys."""


def canonical_json(value: Json) -> bytes:
    """Encode ``value`` the one way evalq ever does, without a newline.

    Raises ValueError for NaN and infinities, which JSON cannot carry. A lone surrogate, which UTF-8
    cannot carry, stays the escape it came as.
    """
    # The standard library rather than msgspec, which writes NaN as null and refuses lone surrogates.
    text = json.dumps(value, sort_keys=True, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    return text.encode("utf-8", "backslashreplace")


def canonical_line(value: Json) -> bytes:
    """The same with its newline: a document, or a line of one."""
    return canonical_json(value) + b"\n"


def as_written(value: Json) -> Json:
    """``value`` as whoever reads its canonical JSON has it: keys in order, lists for tuples."""
    return read_again(canonical_json(value))


def read_again(data: bytes) -> Json:
    """What canonical JSON holds, as whoever reads it has it."""
    try:
        return msgspec.json.decode(data)
    except (ValueError, RecursionError):  # half a surrogate pair, which UTF-8 has no bytes for
        return json.loads(data)


def longer_than(value: Json, most: int) -> bool:
    """Whether ``value`` has more than ``most`` bytes as JSON without spaces."""
    try:
        return len(msgspec.json.encode(value)) > most
    except UnicodeEncodeError:  # a lone surrogate
        return len(canonical_json(value)) > most


def digest(data: bytes) -> str:
    """SHA-256 of ``data``, hexadecimal."""
    return hashlib.sha256(data).hexdigest()


# Chunks, answers, prompts and outputs are packed for the ledger. zstandard is imported where it is used: that takes ten
# milliseconds, and most commands pack nothing.

# Level -5 saves .1 µs a row, and makes answers 1.8 times as long in the ledger (docs/decisions/0021).
_LEVEL = 1


def pack(data: bytes) -> bytes:
    """``data`` as one frame that says how long it is unpacked."""
    import zstandard

    return zstandard.ZstdCompressor(level=_LEVEL).compress(data)


def unpack(data: bytes, most: int) -> bytes:
    """What `pack` made ``data`` of, ``most`` bytes at most. Raises WireError for anything else.

    What the frame says is looked at first: unpacking takes memory for what is announced before a byte of it is there.
    """
    import zstandard

    try:
        if zstandard.get_frame_parameters(data).content_size > most:  # so is a frame that does not say
            raise WireError(f"it unpacks to more than {most} bytes")
        # No extra data: what stands behind the frame would be passed over unseen.
        return zstandard.ZstdDecompressor().decompress(data, allow_extra_data=False)
    except zstandard.ZstdError as error:
        raise WireError(str(error)) from error


@contextlib.contextmanager
def uncollected() -> Iterator[None]:
    """A block, or a function, in which Python looks for no cycles of references.

    For code that makes much plain data without cycles and ends soon: of the time that 100,000 cases take, a third went
    there.
    """
    ours = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        # By whoever disabled it: another thread may be in such a block, too.
        if ours:
            gc.enable()
