"""Trees over an alphabet: the source of a byte-wise RE2 pattern, or plain strings where that is all they are."""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from typing import Protocol

from evalq.evalcore.scan.alphabet import Alphabet
from evalq.evalcore.scan.charset import CharSet
from evalq.evalcore.scan.nodes import Anchor, Chars, Choice, Node, Place, Repeat, Sequence

__all__ = ["re2_source", "strings", "symbol_class", "whole_words"]

MAX_STRINGS = 32
"""A pattern that stands for more plain strings than this is left to the engine."""

_PLACES: dict[Place, bytes] = {
    "begin": rb"\A",
    "end": rb"\z",
    "line_begin": b"(?m:^)",
    "line_end": b"(?m:$)",
    "boundary": rb"\b",
    "inside": rb"\B",
}


class Symbols(Protocol):
    """An alphabet, as far as a pattern's source depends on it."""

    def symbols(self, chars: CharSet) -> bytes:
        """The bytes that stand for ``chars``."""


def re2_source(node: Node, alphabet: Symbols) -> bytes:
    """``node`` in the syntax of RE2, for bytes that ``alphabet`` encoded."""
    match node:
        case Chars(chars):
            return symbol_class(alphabet.symbols(chars))
        case Anchor(place):
            return _PLACES[place]
        case Sequence(parts):
            return b"".join(re2_source(part, alphabet) for part in parts) or b"(?:)"
        case Choice(options):
            return b"(?:" + b"|".join(re2_source(option, alphabet) for option in options) + b")"
        case Repeat(inner, least, most, lazy):
            times = f"{{{least},{'' if most is None else most}}}{'?' * lazy}"
            return b"(?:" + re2_source(inner, alphabet) + b")" + times.encode()


def symbol_class(symbols: bytes) -> bytes:
    """The source of a pattern of any one of ``symbols``."""
    if not symbols:
        # A class that matches nothing: RE2 refuses an empty one.
        return rb"[^\x00-\xff]"
    escaped = b"".join(b"\\x%02x" % symbol for symbol in symbols)
    return escaped if len(symbols) == 1 else b"[" + escaped + b"]"


def strings(node: Node, alphabet: Alphabet) -> tuple[bytes, ...] | None:
    """The strings that ``node`` matches, in the order it tries them; None when they are too many or not that simple."""
    match node:
        case Chars(chars):
            symbols = alphabet.symbols(chars)
            return tuple(bytes([symbol]) for symbol in symbols) if len(symbols) == 1 else None
        case Choice(options):
            known = [strings(option, alphabet) for option in options]
            return _few(s for found in known if found for s in found) if all(known) else None
        case Sequence(parts):
            known = [strings(part, alphabet) for part in parts]
            return _few(map(b"".join, itertools.product(*(found or () for found in known)))) if all(known) else None
        case Repeat(inner, 0, 1, lazy):
            some = strings(inner, alphabet)
            return None if some is None else (b"", *some) if lazy else (*some, b"")
        case _:
            return None


def _few(found: Iterable[bytes]) -> tuple[bytes, ...] | None:
    few = tuple(itertools.islice(found, MAX_STRINGS + 1))
    return few if len(few) <= MAX_STRINGS else None


def whole_words(node: Node) -> Node | None:
    r"""X, where ``node`` is ``\bX\b``."""
    match node:
        case Sequence((Anchor("boundary"), *inner, Anchor("boundary"))):
            return Sequence(tuple(inner))
        case _:
            return None
