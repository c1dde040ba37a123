"""A chunk of a log as events: all of it at once where every line is as it should be, else line by line.

Both ways give the same events for a line, so an answer never depends on what else is in its chunk.
"""

from __future__ import annotations

from codecs import utf_8_decode

import msgspec
import numpy as np
from numpy.typing import NDArray

from evalq.evalcore.contract.evaluator import Batch
from evalq.evalcore.evaluators.cooperation.lines import MAX_DEPTH, BadLine, parse_line, too_deep
from evalq.evalcore.evaluators.cooperation.record import Event, integral

__all__ = ["read"]

_DECODER = msgspec.json.Decoder(Event)
_PIECE_BYTES = 1 << 16
_NEWLINE, _RETURN, _OPEN, _CLOSE = b"\n\r{}"


def read(batch: Batch) -> tuple[list[Event], list[tuple[int, str]]]:
    """The events of a chunk in file order, and (line, reason) of every line that is none; blank lines are skipped."""
    events = _at_once(batch.data if batch.data.endswith(b"\n") else batch.data + b"\n")
    return (events, []) if events is not None else _line_by_line(batch)


def _at_once(data: bytes) -> list[Event] | None:
    """The events of whole lines, or None where some line has to be read by itself."""
    block = np.frombuffer(data, dtype=np.uint8)
    ends = np.flatnonzero(block == _NEWLINE)
    starts = np.concatenate((ends[:1] * 0, ends[:-1] + 1))
    # The bulk decoder is used only where its result cannot differ from that of line by line: whatever it accepts and
    # the line reader refuses is ruled out first.
    if not _braced(block, starts, ends) or _any_too_deep(data, starts, ends) or not _is_utf8(data):
        return None
    try:
        events = _DECODER.decode_lines(data)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None
    if len(events) != len(ends) or not _whole_turns(events):
        return None
    return events


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
        event = _well_formed(data)
        if event is None:
            try:
                event = parse_line(data)
            except BadLine as error:
                faults.append((line, str(error)))
                continue
        events.append(event)
    return events, faults


def _well_formed(line: bytes) -> Event | None:
    if too_deep(line):
        return None
    try:
        line.decode()
        event = _DECODER.decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None
    return event if type(event.turn) is int else None
