"""Reading one line of JSON written by an agent, or by somebody's script, and saying where it is broken.

Python's own scanner is used because it alone shows a key that occurs twice; all faults carry a path as in
``$.evidence[0].content``.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, NoReturn, TypeVar

import msgspec

__all__ = ["RecordFault", "read_object", "typed"]

T = TypeVar("T")

_SHOWN = 60


class RecordFault(ValueError):
    """A record is broken; the message gives the path of the fault and what is wrong there."""


def read_object(line: bytes) -> dict[str, Any]:
    """The object in ``line``. Raises RecordFault: not UTF-8, not JSON, no object, a key twice, half a surrogate pair."""
    try:
        text = line.decode()
        value = _DECODER.decode(text)
    except UnicodeDecodeError as error:
        raise RecordFault(f"$: not UTF-8: byte 0x{line[error.start]:02x} at {error.start}") from None
    except json.JSONDecodeError as error:
        raise RecordFault(f"$: not JSON: {error.msg} at {error.pos}") from None
    except RecursionError:
        raise RecordFault("$: not JSON: nested too deeply") from None
    except _Repeated:
        raise RecordFault(f"{_repeated_key(text)}: the key occurs twice") from None
    except ValueError as error:
        raise RecordFault(f"$: not JSON: {str(error)[:_SHOWN]}") from None
    if not isinstance(value, dict):
        raise RecordFault(f"$: expected an object, got {_kind(value)}")
    if b"\\u" in line:
        _refuse_surrogates(value)
    return value


def typed(value: Any, kind: type[T]) -> T:
    """``value`` as ``kind``, which msgspec can name. Raises RecordFault with the path of what does not fit."""
    try:
        return msgspec.convert(value, kind)
    except msgspec.ValidationError as error:
        message, _, path = str(error).partition(" - at `")
        raise RecordFault(f"{path.rstrip('`') or '$'}: {message[:1].lower()}{message[1:]}") from None


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


def _repeated_key(text: str) -> str:
    """The path of the first key in ``text`` that occurs twice in one object."""
    value = json.JSONDecoder(object_pairs_hook=_Pairs).decode(text)
    for path, pairs in _walk(value, "$"):
        if isinstance(pairs, _Pairs):
            seen: set[str] = set()
            for key, _ in pairs:
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
            waiting += [(f"{at}.{key[:_SHOWN]}", held) for key, held in reversed(list(items))]
        elif isinstance(inner, list):
            waiting += [(f"{at}[{index}]", held) for index, held in reversed(list(enumerate(inner)))]


def _refuse_surrogates(value: Any) -> None:
    for path, inner in _walk(value, "$"):
        texts = list(inner) if isinstance(inner, dict) else [inner]
        if any(isinstance(text, str) and not _encodable(text) for text in texts):
            # In a key it would be part of the path, which has to be encodable itself.
            raise RecordFault(f"{path.encode('utf-8', 'replace').decode()}: half of a surrogate pair")


def _encodable(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _kind(value: Any) -> str:
    names = {list: "an array", str: "a string", bool: "a boolean", int: "a number", float: "a number"}
    return names.get(type(value), "null")
