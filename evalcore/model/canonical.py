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
    """Encode ``value`` in evalq's only form, without a newline.

    Raises ValueError for NaN and infinities, which JSON cannot hold. A lone surrogate, which UTF-8 cannot hold, stays
    an escape. A list in a file (`evalq.evalcore.model.lines`) stands there by its marker.
    """
    # The standard library rather than msgspec, which writes NaN as null and refuses lone surrogates.
    text = json.dumps(
        value, sort_keys=True, ensure_ascii=False, separators=(",", ":"), allow_nan=False, default=_marker
    )
    return text.encode("utf-8", "backslashreplace")


def _marker(value: object) -> Json:
    marker = getattr(value, "marker", None)
    if marker is None:
        raise TypeError(f"Object of type {type(value).__name__} is not JSON serializable")
    return dict(marker)


def canonical_line(value: Json) -> bytes:
    """The canonical JSON of ``value`` with a newline: a document, or a line of one."""
    return canonical_json(value) + b"\n"


def as_written(value: Json) -> Json:
    """``value`` as read from its canonical JSON: keys in order, lists for tuples."""
    return read_again(canonical_json(value))


def read_again(data: bytes) -> Json:
    """The value in canonical JSON, half surrogate pairs included."""
    try:
        return msgspec.json.decode(data)
    except (ValueError, RecursionError):  # half a surrogate pair, which UTF-8 has no bytes for
        return json.loads(data)


def longer_than(value: Json, most: int) -> bool:
    """Whether ``value`` takes more than ``most`` bytes as JSON without spaces."""
    try:
        return len(msgspec.json.encode(value, enc_hook=_marker)) > most
    except UnicodeEncodeError:  # a lone surrogate
        return len(canonical_json(value)) > most


def digest(data: bytes) -> str:
    """SHA-256 of ``data``, hexadecimal."""
    return hashlib.sha256(data).hexdigest()


# Packing of chunks, answers, prompts and outputs for the ledger. Functions import zstandard themselves: it takes ten
# milliseconds, and most commands pack nothing.

# Level -5 saves .1 µs a row, and makes answers 1.8 times as long in the ledger (docs/decisions/0021).
_LEVEL = 1


def pack(data: bytes) -> bytes:
    """``data`` as one frame that names its unpacked length."""
    import zstandard

    return zstandard.ZstdCompressor(level=_LEVEL).compress(data)


def unpack(data: bytes, most: int) -> bytes:
    """The bytes that `pack` packed, at most ``most``. Raises WireError for anything else.

    It checks the announced length first, because unpacking allocates that much memory at once.
    """
    import zstandard

    try:
        if zstandard.get_frame_parameters(data).content_size > most:  # a frame without a length counts as too long
            raise WireError(f"it unpacks to more than {most} bytes")
        # Refuse extra data behind the frame, which would be ignored.
        return zstandard.ZstdDecompressor().decompress(data, allow_extra_data=False)
    except zstandard.ZstdError as error:
        raise WireError(str(error)) from error


_COLLECT_AFTER = 50_000
_MANY_OBJECTS = 500_000
_command = False


def collect_as_command() -> None:
    """Collect cycles of references rarely from here on, as suits the process of one command.

    What `uncollected` makes much of is never looked through: the process ends before its memory is worth that.
    """
    global _command
    _command = True
    gc.set_threshold(_COLLECT_AFTER, 50, 100)


@contextlib.contextmanager
def uncollected() -> Iterator[None]:
    """A block, or a function, in which Python does not collect cycles of references.

    For short code that makes much plain data without cycles: collecting took a third of the time for 100,000 cases.
    """
    ours = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        # Enable it only if this block disabled it: another thread may be in such a block, too.
        if ours:
            if _command and gc.get_count()[0] > _MANY_OBJECTS:
                gc.freeze()
            gc.enable()
