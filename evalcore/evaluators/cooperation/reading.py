"""A chunk of a log as columns: block by block where every line is as it should be, else line by line.

A block is first decoded as if no resource had a key that was not seen before, which needs no dict a row; then with
any keys; then line by line. All ways give the same for a line, so an answer never depends on what else is in its chunk.
"""

from __future__ import annotations

import re
from codecs import utf_8_decode
from collections.abc import Iterable, Iterator
from functools import lru_cache
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from evalq.evalcore.contract.evaluator import Batch
from evalq.evalcore.evaluators.cooperation.columns import NO_VALUE, Columns, Gatherer
from evalq.evalcore.evaluators.cooperation.lines import MAX_DEPTH, BadLine, parse_line, too_deep
from evalq.evalcore.evaluators.cooperation.params import Rules
from evalq.evalcore.evaluators.cooperation.record import Event, Int64, Number, integral

__all__ = ["read", "read_columns", "read_line"]

_DECODER = msgspec.json.Decoder(Event)
# Rows of a block stay in the processor's cache from their bytes to their columns.
_BLOCK_BYTES = 1 << 18
_SAMPLED = 16
_MOST_KEYS = 24
_MOST_REFUSALS = 4
_PIECE_BYTES = 1 << 16
_PLAIN = re.compile(r'[^\x00-\x1f"\\\ud800-\udfff]*')
_NEWLINE, _RETURN, _OPEN, _CLOSE = b"\n\r{}"


def read_columns(batch: Batch, rules: Rules) -> tuple[Columns, list[tuple[int, str]]]:
    """The rows of a chunk in file order, and (line, reason) of every line that is none; blank lines are skipped."""
    rows, bad = Gatherer(rules), list[tuple[int, str]]()
    decoder, refusals, counted, line = _sampled(batch, rules.resource_key), 0, 0, batch.first_line
    for start, block in _blocks(batch.data):
        if decoder is not None and decoder.into(rows, block):
            continue
        line, counted = line + batch.data.count(b"\n", counted, start), start
        events, faults = read(Batch(batch.source, line, block))
        rows.add(events)
        bad += faults
        refusals += 1
        if decoder is not None:
            # After so many blocks that needed another way, a further try is most likely paid for in vain.
            decoder = decoder.widened(events) if refusals < _MOST_REFUSALS else None
    return rows.columns(), bad


def read(batch: Batch) -> tuple[list[Event], list[tuple[int, str]]]:
    """The events of a block in file order, and (line, reason) of every line that is none; blank lines are skipped."""
    data = _closed(batch.data)
    events = _at_once(data, _DECODER)
    if events is not None and _whole_turns(events):
        return events, []
    return _line_by_line(batch)


class _Decoder:
    """Decodes rows whose resources have none but certain ``keys``, among them the contributed one."""

    def __init__(self, key: str, keys: frozenset[str]) -> None:
        self._key, self._keys = key, keys | {key}
        self._rows = _row_decoder(key, self._keys)

    def into(self, rows: Gatherer, block: bytes) -> bool:
        """Add the rows of ``block`` to ``rows``; False, and nothing added, where some line needs another way."""
        events = _at_once(_closed(block), self._rows)
        if events is None:
            return False
        none = NO_VALUE
        rows.extend(events, [none if (held := event.resources) is None else held.given for event in events])
        return True

    def widened(self, events: list[Event]) -> _Decoder | None:
        """One that has the keys of these rows, too; None where there are too many."""
        return _decoder(self._key, self._keys | _keys_of(events))


def _decoder(key: str, keys: frozenset[str]) -> _Decoder | None:
    # msgspec has no fields whose names JSON would have to escape.
    return _Decoder(key, keys) if len(keys) <= _MOST_KEYS and _PLAIN.fullmatch("".join((key, *keys))) else None


@lru_cache(maxsize=64)
def _row_decoder(key: str, keys: frozenset[str]) -> msgspec.json.Decoder[Any]:
    """A decoder of rows like `Event`, but for resources with a slot each in place of a dict.

    Where it decodes a line, that holds what `Event` says: every resource a number, a turn that is an int as it stands.
    """
    others = sorted(keys - {key})
    fields: list[tuple[str, Any, Any]] = [
        ("given", Number, NO_VALUE),
        *((f"other{n}", Number, NO_VALUE) for n in range(len(others))),
    ]
    names = {"given": key, **{f"other{n}": other for n, other in enumerate(others)}}
    held = msgspec.defstruct("Held", fields, gc=False, forbid_unknown_fields=True, rename=names)
    shape: list[tuple[str, Any] | tuple[str, Any, Any]] = [
        ("turn", Int64),
        ("agent", str),
        ("decision", str | None, None),
        ("resources", held | None, None),
        ("dry_run", bool | None, None),
    ]
    return msgspec.json.Decoder(msgspec.defstruct("Row", shape, gc=False))


def _sampled(batch: Batch, key: str) -> _Decoder | None:
    """A decoder for the resources of the first lines."""
    events = []
    for line in batch.data[:_BLOCK_BYTES].split(b"\n", _SAMPLED)[:_SAMPLED]:
        event = _well_formed(line)
        if event is not None:
            events.append(event)
    return _decoder(key, _keys_of(events))


def _keys_of(events: Iterable[Event]) -> frozenset[str]:
    return frozenset().union(*(event.resources for event in events if event.resources))


def _blocks(data: bytes) -> Iterator[tuple[int, bytes]]:
    """Pieces of whole lines, with the places where they begin."""
    start = 0
    while start < len(data):
        end = data.rfind(b"\n", start, start + _BLOCK_BYTES) + 1
        end = end or data.find(b"\n", start + _BLOCK_BYTES) + 1 or len(data)
        yield start, data[start:end]
        start = end


def _closed(data: bytes) -> bytes:
    return data if data.endswith(b"\n") else data + b"\n"


def _at_once(data: bytes, decoder: msgspec.json.Decoder[Any]) -> list[Any] | None:
    """The rows of whole lines, or None where some line has to be read by itself."""
    block = np.frombuffer(data, dtype=np.uint8)
    ends = np.flatnonzero(block == _NEWLINE)
    starts = np.concatenate((ends[:1] * 0, ends[:-1] + 1))
    # The bulk decoder is used only where its result cannot differ from that of line by line: whatever it accepts and
    # the line reader refuses is ruled out first.
    if not _braced(block, starts, ends) or _any_too_deep(data, starts, ends) or not _is_utf8(data):
        return None
    try:
        events = decoder.decode_lines(data)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None
    return events if len(events) == len(ends) else None


def _braced(block: NDArray[np.uint8], starts: NDArray[np.int64], ends: NDArray[np.int64]) -> bool:
    """Whether every line begins with ``{`` and ends with ``}``.

    The bulk decoder takes a value that continues over a newline, and two values in one line. Where every line is
    braced the first cannot be: behind ``}`` and a newline no JSON continues with ``{`` (and no string holds a newline).
    So every line holds at least one value, and as many values as lines means one in each.
    """
    last = block[ends - 1]
    last = np.where(last == _RETURN, block[np.maximum(ends - 2, 0)], last)
    return bool((block[starts] == _OPEN).all() and (last == _CLOSE).all())


def _any_too_deep(data: bytes, starts: NDArray[np.int64], ends: NDArray[np.int64]) -> bool:
    long = np.flatnonzero(ends - starts > 2 * MAX_DEPTH)
    return any(too_deep(data[a:b]) for a, b in zip(starts[long].tolist(), ends[long].tolist(), strict=True))


def _is_utf8(data: bytes) -> bool:
    """Whether all of it is UTF-8: the JSON decoder does not look into the strings it skips.

    In pieces that stay in the processor's cache this takes a third of the time.
    """
    view, at = memoryview(data), 0
    try:
        while at < len(data):
            end = min(at + _PIECE_BYTES, len(data))
            at += utf_8_decode(view[at:end], "strict", end == len(data))[1]
    except UnicodeDecodeError:
        return False
    return True


def _whole_turns(events: list[Event]) -> bool:
    """Make every turn an int; False where one has no integer value."""
    if {type(event.turn) for event in events} == {int}:
        return True
    for event in events:
        turn = integral(event.turn)
        if turn is None:
            return False
        event.turn = turn
    return True


def _line_by_line(batch: Batch) -> tuple[list[Event], list[tuple[int, str]]]:
    events: list[Event] = []
    faults: list[tuple[int, str]] = []
    for line, data in batch.lines():
        try:
            events.append(read_line(data))
        except BadLine as error:
            faults.append((line, str(error)))
    return events, faults


def read_line(line: bytes) -> Event:
    """The event in ``line``. Raises BadLine."""
    return _well_formed(line) or parse_line(line)


def _well_formed(line: bytes) -> Event | None:
    if too_deep(line):
        return None
    try:
        line.decode()
        event = _DECODER.decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None
    return event if type(event.turn) is int else None
