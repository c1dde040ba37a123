"""Canonical JSON: one value, one byte string (sorted keys, UTF-8, shortest floats, no NaN)."""

from __future__ import annotations

import hashlib
import json
from typing import Any

import msgspec

__all__ = ["Json", "as_written", "canonical_json", "canonical_line", "digest", "longer_than", "read_again"]

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
