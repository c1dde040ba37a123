"""Encode a text as one byte per character, so that a byte-wise engine can search it.

The character sets of the patterns divide Unicode into equivalence classes: no pattern distinguishes two members of a
class. Each class gets one byte. An encoded text therefore has as many bytes as the text has characters, and offsets
need no conversion. The table also settles case and the classes of Python's `re`, so RE2 is exact on any script. For
patterns with word boundaries, classes of word characters get bytes that are word characters in ASCII.
"""

from __future__ import annotations

import itertools
import string
from collections.abc import Collection, Iterable
from functools import cached_property
from typing import Protocol

import numpy as np

from evalq.evalcore.scan.nodes import (
    END,
    NEWLINE,
    Anchor,
    Chars,
    CharSet,
    Choice,
    Concatenation,
    Node,
    PatternRefused,
    Place,
    Repetition,
    category,
)

WORD_BYTES = frozenset((string.ascii_letters + string.digits + "_").encode())
_LINE_END = 10
_WORDS = bytes(sorted(WORD_BYTES))
_OTHERS = bytes(byte for byte in range(256) if byte not in WORD_BYTES and byte != _LINE_END)
_PIECE = 1 << 16


class Alphabet:
    """The equivalence classes of ``sets``, each with its byte; ``words`` keeps word boundaries exact.

    Raises PatternRefused if there are more classes than bytes.
    """

    def __init__(self, sets: Collection[CharSet], *, words: bool) -> None:
        distinguished = [NEWLINE, *sets, *([category("w")] if words else [])]
        edges = {0, *(edge for chars in distinguished for pair in chars for edge in pair)} - {END}
        self._starts = np.array(sorted(edges), dtype=np.int64)
        kinds = np.array([self._inside(chars) for chars in distinguished])
        self._rows = dict(zip(distinguished, kinds, strict=True))
        first, block = _blocks(kinds)
        self._bytes = _assign(kinds[:, first], words=words)[block]
        self._ascii = self._bytes[np.searchsorted(self._starts, np.arange(256), side="right") - 1].tobytes()

    @cached_property
    def _table(self) -> np.ndarray[tuple[int], np.dtype[np.uint8]]:
        """The byte of each code point, 1.1 MB in all: encoding a character is one lookup."""
        return np.repeat(self._bytes, np.diff(np.append(self._starts, END)))

    def symbols(self, chars: CharSet) -> bytes:
        """The bytes of the characters in ``chars``, which is one of the sets given to the constructor."""
        return bytes(sorted(set(self._bytes[self._rows[chars]].tobytes())))

    def ascii(self, symbol: int) -> bytes:
        """The ASCII characters that are encoded as ``symbol``."""
        return bytes(byte for byte in range(128) if self._ascii[byte] == symbol)

    def encode(self, text: str) -> bytes:
        """``text`` as one byte per character."""
        if text.isascii():
            return text.encode("ascii").translate(self._ascii)
        # In pieces: pieces of plain ASCII take the fast path, and the 4-byte copies of others fit the CPU's cache.
        return b"".join([self._piece(text[at : at + _PIECE]) for at in range(0, len(text), _PIECE)])

    def _piece(self, text: str) -> bytes:
        if text.isascii():
            return text.encode("ascii").translate(self._ascii)
        points = np.frombuffer(text.encode("utf-32-le", "surrogatepass"), dtype="<u4")
        symbols: bytes = self._table[points].tobytes()
        return symbols

    def _inside(self, chars: CharSet) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
        """For each range between two edges, whether it is in ``chars``."""
        flips = np.array([edge for pair in chars for edge in pair], dtype=np.int64)
        return (np.searchsorted(flips, self._starts, side="right") & 1).astype(np.bool_)


def _blocks(kinds: np.ndarray[tuple[int, int], np.dtype[np.bool_]]) -> tuple[list[int], list[int]]:
    """The distinct columns in ascending order (the first index of each), and for every column its rank among them."""
    # Columns are compared as bytes: numpy takes a hundred times as long to sort whole columns.
    wide = -(-len(kinds) // 8)
    packed = np.ascontiguousarray(np.packbits(kinds, axis=0).T).tobytes()
    columns = [packed[at : at + wide] for at in range(0, len(packed), wide)]
    first = {column: at for at, column in enumerate(columns)}
    order = sorted(first)
    rank = {column: number for number, column in enumerate(order)}
    return [first[column] for column in order], [rank[column] for column in columns]


def _assign(
    kinds: np.ndarray[tuple[int, int], np.dtype[np.bool_]], *, words: bool
) -> np.ndarray[tuple[int], np.dtype[np.uint8]]:
    """A byte for each class. ``kinds`` has one column per class; its first row marks newline, its last word."""
    newline, word = kinds[0], kinds[-1] & words
    given = np.zeros(kinds.shape[1], dtype=np.uint8)
    given[newline] = _LINE_END
    for chosen, pool in ((word, _WORDS), (~word & ~newline, _OTHERS if words else _OTHERS + _WORDS)):
        count = int(chosen.sum())
        if count > len(pool):
            raise PatternRefused(f"{count} kinds of characters to tell apart, where there is room for {len(pool)}")
        given[chosen] = np.frombuffer(pool[:count], dtype=np.uint8)
    return given


# From pattern trees to byte-wise searches: the source of an RE2 pattern, or a few plain strings.

MAX_STRINGS = 32
"""A pattern that matches more plain strings than this is searched by RE2."""

_PLACES: dict[Place, bytes] = {
    "begin": rb"\A",
    "end": rb"\z",
    "line_begin": b"(?m:^)",
    "line_end": b"(?m:$)",
    "boundary": rb"\b",
    "inside": rb"\B",
}


class Symbols(Protocol):
    """The part of an alphabet that `re2_source` needs."""

    def symbols(self, chars: CharSet) -> bytes:
        """The bytes of the characters in ``chars``."""


def re2_source(node: Node, alphabet: Symbols) -> bytes:
    """``node`` in RE2's syntax, for text encoded by ``alphabet``."""
    match node:
        case Chars(chars):
            return symbol_class(alphabet.symbols(chars))
        case Anchor(place):
            return _PLACES[place]
        case Concatenation(parts):
            return b"".join(re2_source(part, alphabet) for part in parts) or b"(?:)"
        case Choice(options):
            return b"(?:" + b"|".join(re2_source(option, alphabet) for option in options) + b")"
        case Repetition(inner, least, most, lazy):
            times = f"{{{least},{'' if most is None else most}}}{'?' * lazy}"
            return b"(?:" + re2_source(inner, alphabet) + b")" + times.encode()


def symbol_class(symbols: bytes) -> bytes:
    """The RE2 source of a class that matches any one of ``symbols``."""
    if not symbols:
        # RE2 refuses an empty class; this one matches nothing.
        return rb"[^\x00-\xff]"
    escaped = b"".join(b"\\x%02x" % symbol for symbol in symbols)
    return escaped if len(symbols) == 1 else b"[" + escaped + b"]"


def strings(node: Node, alphabet: Alphabet) -> tuple[bytes, ...] | None:
    """The strings that ``node`` matches, in the order of its preference; None if RE2 has to search for it.

    That is so for more than MAX_STRINGS strings, sets of several characters, anchors and unbounded repetitions.
    """
    match node:
        case Chars(chars):
            symbols = alphabet.symbols(chars)
            return tuple(bytes([symbol]) for symbol in symbols) if len(symbols) == 1 else None
        case Choice(options):
            known = [strings(option, alphabet) for option in options]
            return _few(s for found in known if found for s in found) if all(known) else None
        case Concatenation(parts):
            known = [strings(part, alphabet) for part in parts]
            return _few(map(b"".join, itertools.product(*(found or () for found in known)))) if all(known) else None
        case Repetition(inner, 0, 1, lazy):
            some = strings(inner, alphabet)
            return None if some is None else (b"", *some) if lazy else (*some, b"")
        case _:
            return None


def _few(found: Iterable[bytes]) -> tuple[bytes, ...] | None:
    few = tuple(itertools.islice(found, MAX_STRINGS + 1))
    return few if len(few) <= MAX_STRINGS else None


def whole_words(node: Node) -> Node | None:
    r"""X if ``node`` is ``\bX\b``, else None."""
    match node:
        case Concatenation((Anchor("boundary"), *inner, Anchor("boundary"))):
            return Concatenation(tuple(inner))
        case _:
            return None
