"""Rows with their lines in 16 bytes or a few more, as compiled code packs them, too."""

from __future__ import annotations

import struct
from collections.abc import Iterator

__all__ = [
    "UNSCORED",
    "kept_name",
    "no_round_twice",
    "pack_line",
    "pack_rest",
    "pack_row",
    "rests",
    "split",
    "unpack_rest",
    "unpack_rows",
]

UNSCORED = 255
"""Stands for the score of a row that has none."""

_PAD = 8
_REST = struct.Struct("<BH")
_LINE_BYTES = 5
_MOST = 0xFFFF
_SHORT = _LINE_BYTES + _REST.size + _PAD
_NAMED = _LINE_BYTES + 1
"""Where a row says how long its round's name is, and then which."""


def pack_row(round_: str, score: int, line: int) -> bytes:
    """One row in 16 bytes or a few more; lines up to 2**40, names of rounds up to 65,535 bytes (then cut)."""
    return pack_line(line) + pack_rest(round_, score)


def pack_line(line: int) -> bytes:
    """The first part of a packed row, which differs from row to row."""
    return line.to_bytes(_LINE_BYTES, "little")


def pack_rest(round_: str, score: int) -> bytes:
    """The second part, which many rows have in common."""
    name = round_.encode()[:_MOST]
    return _REST.pack(score, len(name)) + name.ljust(_room(len(name)), b"\0")


def unpack_rest(rest: bytes) -> tuple[str, int]:
    """(round, score) of a row's second part."""
    score, size = _REST.unpack_from(rest)
    return rest[_REST.size : _REST.size + size].decode("utf-8", "replace"), score


def unpack_rows(packed: bytes) -> Iterator[tuple[str, int, int]]:
    """(round, score, line) of each packed row."""
    for row in split(packed):
        yield *unpack_rest(row[_LINE_BYTES:]), int.from_bytes(row[:_LINE_BYTES], "little")


def kept_name(round_: str) -> str:
    """The name of a round as a packed row has it."""
    # A character takes four bytes at most, so that nothing of such a name can have been cut.
    return round_ if len(round_) <= _MOST // 4 else unpack_rest(pack_rest(round_, UNSCORED))[0]


def split(packed: bytes) -> list[bytes]:
    """Each packed row by itself."""
    if _all_short(packed):
        return [packed[at : at + _SHORT] for at in range(0, len(packed), _SHORT)]
    rows, at = [], 0
    while at < len(packed):
        _, size = _REST.unpack_from(packed, at + _LINE_BYTES)
        start, at = at, at + _LINE_BYTES + _REST.size + _room(size)
        rows.append(packed[start:at])
    return rows


def rests(packed: bytes) -> list[bytes]:
    """The second part of each packed row."""
    if len(packed) == _SHORT:  # as nearly all rows of a chunk are where there are many Query IDs
        return [packed[_LINE_BYTES:]]
    if _all_short(packed):
        return [packed[at : at + _SHORT - _LINE_BYTES] for at in range(_LINE_BYTES, len(packed), _SHORT)]
    return [row[_LINE_BYTES:] for row in split(packed)]


def no_round_twice(packed: bytes) -> bool:
    """Whether no two rows are of one round; False also where names are long, and only `unpack_rows` can tell."""
    if not _all_short(packed):
        return False
    names = {packed[at : at + _SHORT - _NAMED] for at in range(_NAMED, len(packed), _SHORT)}
    return len(names) * _SHORT == len(packed)


def _all_short(packed: bytes) -> bool:
    """Whether each row has a short name, and so as many bytes as all of the others.

    The first row begins at 0, and behind one with a short name the next begins _SHORT bytes on: so where no size that
    is looked at is larger, these were the sizes.
    """
    return (
        not len(packed) % _SHORT
        and not any(packed[_NAMED + 1 :: _SHORT])
        and max(packed[_NAMED::_SHORT], default=0) <= _PAD
    )


def _room(size: int) -> int:
    """Bytes a name of ``size`` takes: padded, so that rows of short names are all as long."""
    return max(_PAD, -(-size // _PAD) * _PAD)
