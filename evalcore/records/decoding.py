"""Decoding a line that anyone may have written: what cannot be read is said, never raised by surprise.

Nesting is bounded here and not by the interpreter's stack, which differs between processes; a key that an
object gives twice, which decoders pass over in silence, is found.
"""

from __future__ import annotations

import json
import re
from typing import Any

import msgspec

from evalq.evalcore.naming import join
from evalq.evalcore.records.objects import deeper_than

__all__ = ["MAX_DEPTH", "Malformed", "decode", "repeated_keys"]

MAX_DEPTH = 200
"""Objects and lists inside one another; no agent's answer needs more."""

_SPACED_COLON = re.compile(rb'"[ \t\r\n]+:')


class Malformed(ValueError):
    """A line that is no JSON; the message says why and where."""


def decode(data: bytes) -> Any:
    """The JSON value in ``data``. Raises Malformed."""
    if deeper_than(MAX_DEPTH, data):
        raise Malformed(f"nested deeper than {MAX_DEPTH} levels")
    try:
        return msgspec.json.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise Malformed(_reason(data, error)) from None


def _reason(data: bytes, error: Exception) -> str:
    try:
        data.decode()
    except UnicodeDecodeError as found:
        return f"not UTF-8: 0x{data[found.start]:02x} (byte {found.start})"
    return f"not JSON: {str(error).removeprefix('JSON is malformed: ')}"


class _Object(dict[str, Any]):
    """An object as it was written, with the keys it gives more than once."""

    repeated: tuple[str, ...] = ()


def repeated_keys(data: bytes, value: Any) -> list[str]:
    """Paths of keys given more than once in ``data``, which decoded to ``value``; in the order of their objects."""
    # Every key is one `":`, and a repeated one is lost in decoding. Strings may hold that text too, on both
    # sides alike, unless written with escapes or spaces: then only the slow way can tell.
    plain = b"\\u00" not in data and _SPACED_COLON.search(data) is None
    if plain and data.count(b'":') == msgspec.json.encode(value).count(b'":'):
        return []
    # Only keys matter here, and a number of thousands of digits would take long to become one, or be refused.
    root = json.loads(data, object_pairs_hook=_kept, parse_int=len, parse_float=len)
    found, stack = [], [("", root)]
    while stack:
        path, node = stack.pop()
        if isinstance(node, _Object):
            found += [join(path, key) for key in node.repeated]
            stack += [(join(path, key), member) for key, member in reversed(node.items())]
        elif isinstance(node, list):
            stack += [(join(path, index), item) for index, item in reversed(list(enumerate(node)))]
    return found


def _kept(pairs: list[tuple[str, Any]]) -> _Object:
    made = _Object(pairs)
    if len(made) < len(pairs):
        seen: dict[str, int] = {}
        for key, _ in pairs:
            seen[key] = seen.get(key, 0) + 1
        made.repeated = tuple(key for key, times in seen.items() if times > 1)
    return made
