"""Reading one line of JSON written by an agent, or by somebody's script, and saying where it is broken.

Python's own scanner is used because it alone shows a key that occurs twice; all faults carry a path as in
``$.evidence[0].content``.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any, NoReturn, TypeVar

import msgspec

__all__ = ["RecordFault", "deeper_than", "read_object", "typed"]

T = TypeVar("T")

MAX_DEPTH = 100
"""How deep objects and lists may nest: far from where a decoder would give up, which depends on its caller's depth."""
_TOO_DEEP = f"nested more than {MAX_DEPTH} deep"
_LONG = 1 << 16
_SHOWN = 60


class RecordFault(ValueError):
    """A record is broken; the message gives the path of the fault and what is wrong there."""

    def __init__(self, path: str, reason: str) -> None:
        # A key with half a surrogate pair would make the message itself impossible to write down.
        super().__init__(f"{path.encode('utf-8', 'replace').decode()}: {reason}")


def read_object(line: bytes) -> dict[str, Any]:
    """The object in ``line``.

    Raises RecordFault: not UTF-8, not JSON, no object, a key twice, nested too deeply, half a surrogate pair.
    """
    value = _decoded(line)
    # In a long line looking at the few values is faster than looking for a reason to do so.
    if len(line) > _LONG or line.count(b"{") + line.count(b"[") > MAX_DEPTH:
        _refuse_depth(value)
    if not isinstance(value, dict):
        raise RecordFault("$", f"expected an object, got {_kind(value)}")
    if len(line) > _LONG or b"\\u" in line:
        _refuse_surrogates(value)
    return value


def _decoded(line: bytes) -> Any:
    try:
        text = line.decode()
    except UnicodeDecodeError as error:
        raise RecordFault("$", f"not UTF-8: byte 0x{line[error.start]:02x} at {error.start}") from None
    try:
        return _DECODER.decode(text)
    except (_Repeated, RecursionError, ValueError) as error:
        # Before all else: how deep a decoder gets depends on its caller, and the reason must not.
        if deeper_than(MAX_DEPTH, line):
            raise RecordFault("$", _TOO_DEEP) from None
        raise _fault(text, error) from None


def _fault(text: str, error: Exception) -> RecordFault:
    """What is wrong with ``text``, which could not be decoded because of ``error``."""
    try:
        if isinstance(error, _Repeated):
            # The rest of the line may be worse than a key that occurs twice.
            return RecordFault(_repeated_key(_PAIRS_DECODER.decode(text)), "the key occurs twice")
    except ValueError as worse:
        error = worse
    if isinstance(error, json.JSONDecodeError):
        return RecordFault("$", f"not JSON: {error.msg} at {error.pos}")
    return RecordFault("$", "not JSON: NaN, an infinity, or a number of thousands of digits")


def deeper_than(limit: int, data: bytes) -> bool:
    """Whether objects and lists nest more than ``limit`` deep in ``data``, JSON or not; those in strings don't."""
    if data.count(b"[") + data.count(b"{") <= limit:
        return False
    depth = 0
    for bracket in _STRING.sub(b"", data).translate(None, _NOT_BRACKETS):
        depth += 1 if bracket in b"[{" else -1
        if depth > limit:
            return True
    return False


def typed(value: Any, kind: type[T]) -> T:
    """``value`` as ``kind``, which msgspec can name. Raises RecordFault with the path of what does not fit."""
    try:
        return msgspec.convert(value, kind)
    except msgspec.ValidationError as error:
        # msgspec has the place of a fault in its message only.
        message, _, path = str(error).partition(" - at `")
        path = path.rstrip("`") or "$"
        if missing := message.partition("missing required field `")[2]:
            raise RecordFault(f"{path}.{missing.rstrip('`')}", "missing") from None
        raise RecordFault(path, f"{message[:1].lower()}{message[1:]}") from None


class _Repeated(Exception):
    pass


class _Pairs(list[tuple[str, Any]]):
    """An object of which nothing was dropped."""


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    made = dict(pairs)
    if len(made) != len(pairs):
        raise _Repeated
    return made


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is no JSON")


_DECODER = json.JSONDecoder(object_pairs_hook=_unique, parse_constant=_no_constant)
_PAIRS_DECODER = json.JSONDecoder(object_pairs_hook=_Pairs, parse_constant=_no_constant)
# Possessive, so that a quote that is never closed is not tried at every length.
_STRING = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"?', re.DOTALL)
_NOT_BRACKETS = bytes(set(range(256)) - set(b"[]{}"))


def _repeated_key(value: Any) -> str:
    """The path of the first key in ``value`` that occurs twice in one object."""
    for path, pairs in _walk(value, "$"):
        seen: set[str] = set()
        for key, _ in pairs if isinstance(pairs, _Pairs) else ():
            if key in seen:
                return f"{path}.{key[:_SHOWN]}"
            seen.add(key)
    raise AssertionError("no key occurs twice")


def _walk(value: Any, path: str) -> Iterator[tuple[str, Any]]:
    """Every value inside ``value``, with its path."""
    waiting = [(path, value)]
    while waiting:
        at, inner = waiting.pop()
        yield at, inner
        if isinstance(inner, dict | _Pairs):
            items = inner.items() if isinstance(inner, dict) else inner
            # From behind, as the last one in is the first one out: faults are found in the order of the text.
            waiting += [(f"{at}.{key[:_SHOWN]}", held) for key, held in reversed(list(items))]
        elif isinstance(inner, list):
            waiting += [(f"{at}[{index}]", held) for index, held in reversed(list(enumerate(inner)))]


def _refuse_depth(value: Any) -> None:
    level = [value] if isinstance(value, dict | list) else []
    for _ in range(MAX_DEPTH):
        holders = (list(held.values()) if isinstance(held, dict) else held for held in level)
        level = [inner for holder in holders for inner in holder if isinstance(inner, dict | list)]
    if level:
        raise RecordFault("$", _TOO_DEEP)


def _refuse_surrogates(value: Any) -> None:
    for path, inner in _walk(value, "$"):
        texts = list(inner) if isinstance(inner, dict) else [inner]
        if any(isinstance(text, str) and not _encodable(text) for text in texts):
            raise RecordFault(path, "half of a surrogate pair")


def _encodable(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _kind(value: Any) -> str:
    names = {list: "an array", str: "a string", bool: "a boolean", int: "a number", float: "a number"}
    return names.get(type(value), "null")
