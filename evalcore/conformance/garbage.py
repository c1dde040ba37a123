"""Breaking records: a simple mutator, without a property-testing library, that a seed repeats."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterator
from random import Random
from typing import Any

from evalq.evalcore.conformance.subject import Example
from evalq.evalcore.contract.evaluator import Evaluator
from evalq.evalcore.model.manifest import Format
from evalq.evalcore.records.scanning import QuoteFault, record_ends

__all__ = ["garbled"]

MAX_RECORDS = 60
_HUGE_NUMBER = "a number too large for a float"
_JUNK: tuple[Any, ...] = (
    *(None, True, False, 0, -1, 2.5, 1e308, -1e308, 5e-324, 10**30, 10**400, float("nan"), float("inf"), _HUGE_NUMBER),
    *("", " ", "x", "0", "-1", "1e999", "nan", "null", "\ud800", "\x00", "\u2028", "x" * 5000, "[" * 2000),
    *([], {}, [[]], [None], [{}], {"": None}, {"a": {"b": []}}),
)
_JUNK_LINES = (
    b"",
    b" ",
    b"\r",
    b"null",
    b"[]",
    b"{}",
    b"0",
    b'"x"',
    b"{",
    b"[" * 3000,
    b'{"a":' * 3000,
    b"\x00",
    b"\xff\xfe",
)


def garbled(evaluator: Evaluator[Any, Any], example: Example, rng: Random, wild: bool = True) -> Example:
    """Some records of ``example``, in their order, a third of them broken in one way or another.

    Not ``wild``, they stay well-formed rows or JSON, and only values in them are others. What the cutter would refuse
    (broken quoting in a CSV) is left out: no evaluator ever sees it.
    """
    count = len(example.records)
    first = rng.randrange(max(1, count - MAX_RECORDS + 1))
    header = example.data[: len(example.data) - sum(map(len, example.records))]
    kept = [
        broken
        for record in example.records[first : first + MAX_RECORDS]
        for broken in _record(evaluator.records.format, record.rstrip(b"\r\n"), rng, wild)
    ]
    return Example.of(evaluator, example.name, header + b"".join(record + b"\n" for record in kept))


def _record(fmt: Format, record: bytes, rng: Random, wild: bool) -> Iterator[bytes]:
    """``record`` itself, something made of it, or both."""
    # Most stay whole: among broken records alone it would not show that one spoils the result of another.
    if rng.random() < 2 / 3:
        yield record
        return
    made = rng.choice((_bytes, _width, _value, _value) if wild else (_value,))(fmt, record, rng)
    yield from (new for new in rng.choice(([made], [made, made], [record, made])) if _whole(fmt, new))


def _whole(fmt: Format, record: bytes) -> bool:
    """Whether ``record`` and a newline are a record to the cutter."""
    try:
        ends = record_ends(record + b"\n", fmt)
    except QuoteFault:
        return False
    return len(ends) > 0 and int(ends[-1]) == len(record) + 1


def _bytes(fmt: Format, record: bytes, rng: Random) -> bytes:
    """``record`` cut off, stripped of a piece, with random bytes in it, or replaced."""
    at, to = sorted(rng.choices(range(len(record) + 1), k=2))
    return rng.choice(
        (
            record[:at],
            record[:at] + record[to:],
            record[:to] + record[at:],
            record[:at] + rng.randbytes(rng.randint(1, 4)) + record[at:],
            record + record,
            rng.choice(_JUNK_LINES),
        )
    )


def _width(fmt: Format, record: bytes, rng: Random) -> bytes:
    """``record`` with a field more or less than it should have; of JSON, with one more member."""
    if fmt == "jsonl":
        return record.removesuffix(b"}") + b',"one more":[]}'
    fields = _fields(record)
    at = rng.randrange(len(fields) + 1)
    return _written([*fields[:at], "one more", *fields[at:]] if rng.random() < 0.5 else fields[:at])


def _value(fmt: Format, record: bytes, rng: Random) -> bytes:
    """``record`` with one of its fields or values changed, still well formed."""
    if fmt == "jsonl":
        return _json(record.decode("utf-8", "replace"), rng).encode("utf-8", "replace")
    fields = _fields(record)
    if fields:
        at = rng.randrange(len(fields))
        fields[at] = rng.choice((_json, _other))(fields[at], rng)
    return _written(fields)


def _fields(record: bytes) -> list[str]:
    return next(csv.reader(io.StringIO(record.decode("utf-8", "replace"), newline="")), [])


def _written(fields: list[str]) -> bytes:
    out = io.StringIO(newline="")
    csv.writer(out).writerow(fields)
    return out.getvalue().removesuffix("\r\n").encode("utf-8", "replace")


def _other(text: str, rng: Random) -> str:
    return str(rng.choice(_JUNK[:-7]))


def _json(text: str, rng: Random) -> str:
    """``text`` with one value of the JSON in it changed; something else where it holds no JSON object or array."""
    try:
        holder = [json.loads(text)]
    except (ValueError, RecursionError):
        return _other(text, rng)
    places = list(_places(holder))
    container, key = rng.choice(places)
    other_container, other_key = rng.choice(places)
    value = container[key]
    if isinstance(value, str) and value[:1] in ("{", "["):
        container[key] = _json(value, rng)
    elif len(places) > 1 and rng.random() < 0.2:
        container[key] = json.loads(json.dumps(other_container[other_key]))
    elif container is not holder and rng.random() < 0.2:
        del container[key]
    else:
        container[key] = rng.choice((*_JUNK, [value], {"value": value}, json.dumps(value), str(value)))
    return json.dumps(holder[0]).replace(f'"{_HUGE_NUMBER}"', "1e999")


def _places(container: Any) -> Iterator[tuple[Any, Any]]:
    """Every (container, key or index) inside ``container``."""
    for key, value in list(container.items() if isinstance(container, dict) else enumerate(container)):
        yield container, key
        if isinstance(value, dict | list):
            yield from _places(value)
