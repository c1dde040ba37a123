"""Regular expressions as trees, parsed by Python's own parser, with sets of characters at the leaves.

`parse` raises `PatternRefused` for the constructs that have no linear-time search.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cache, lru_cache
from re import _constants, _parser  # type: ignore[attr-defined]  # the parser that defines what a pattern means
from typing import Any, Literal

import numpy as np

from evalq.evalcore.words import ignore_pattern_warnings

# Sets of characters as ranges of code points: classes, categories and case folding as in Python's `re`.

CharSet = tuple[tuple[int, int], ...]
"""Half-open ranges of code points, in ascending order, neither overlapping nor adjacent."""

Folding = Literal["ascii", "unicode"]
"""The meaning of "ignore case": only A-Z equal a-z, or all characters that `re.IGNORECASE` treats as equal on str."""

END = 0x110000
EVERY: CharSet = ((0, END),)
NEWLINE: CharSet = ((10, 11),)

_UPPER, _LOWER, _CASE = range(ord("A"), ord("Z") + 1), range(ord("a"), ord("z") + 1), 32
_BLOCK = 256


def _union(ranges: Iterable[tuple[int, int]]) -> CharSet:
    """The ranges as a set: sorted, with overlapping and adjacent ranges merged."""
    joined: list[tuple[int, int]] = []
    for low, high in sorted(ranges):
        if joined and low <= joined[-1][1]:
            joined[-1] = (joined[-1][0], max(joined[-1][1], high))
        else:
            joined.append((low, high))
    return tuple(joined)


def _complement(chars: CharSet) -> CharSet:
    """All code points that are not in ``chars``."""
    edges = [0, *(edge for pair in chars for edge in pair), END]
    return tuple((low, high) for low, high in zip(edges[::2], edges[1::2], strict=True) if low < high)


@cache
def category(letter: str) -> CharSet:
    r"""The characters of ``\w``, ``\d`` or ``\s`` (given as "w", "d", "s") in a str pattern of this Python."""
    return tuple(match.span() for match in re.finditer(rf"\{letter}+", _all_characters()))


@lru_cache(maxsize=1024)  # a pattern repeats the same few letters
def folded(chars: CharSet, folding: Folding) -> CharSet:
    """``chars`` and every character that differs from one of them only in case."""
    if folding == "unicode":
        # Ask Python's own engine which characters are equal; only those that have a case need testing.
        inside = "".join(f"\\U{low:08x}-\\U{high - 1:08x}" for low, high in chars)
        twins = re.findall(f"[{inside}]", _cased(), re.IGNORECASE) if chars else []
        return _union([*chars, *((ord(twin), ord(twin) + 1) for twin in twins)])
    upper = [(low - _CASE, high - _CASE) for low, high in _overlap(chars, _LOWER)]
    lower = [(low + _CASE, high + _CASE) for low, high in _overlap(chars, _UPPER)]
    return _union([*chars, *upper, *lower])


def _overlap(chars: CharSet, letters: range) -> list[tuple[int, int]]:
    cut = [(max(low, letters.start), min(high, letters.stop)) for low, high in chars]
    return [(low, high) for low, high in cut if low < high]


def _all_characters() -> str:
    return np.arange(END, dtype="<u4").tobytes().decode("utf-32-le", "surrogatepass")


@cache
def _cased() -> str:
    """All characters that an upper, lower or casefold conversion changes."""
    every = _all_characters()
    # Whole blocks first: most of Unicode has no case, which saves most of a million comparisons.
    blocks = (every[at : at + _BLOCK] for at in range(0, END, _BLOCK))
    return "".join(
        char
        for block in blocks
        if not block == block.lower() == block.upper() == block.casefold()
        for char in block
        if not char == char.lower() == char.upper() == char.casefold()
    )


Place = Literal["begin", "end", "line_begin", "line_end", "boundary", "inside"]
"""Where an anchor matches: at the ends of the text or of a line, at a word boundary, or away from one ("inside")."""


class PatternRefused(ValueError):
    """A pattern is invalid or has no linear-time search; the message says why."""


@dataclass(frozen=True, slots=True)
class Chars:
    """Any one character of a set."""

    chars: CharSet


@dataclass(frozen=True, slots=True)
class Anchor:
    """A position between two characters; it matches no character."""

    place: Place


@dataclass(frozen=True, slots=True)
class Concatenation:
    """Several nodes in sequence."""

    parts: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class Choice:
    """An alternation: the first option with which the whole pattern matches."""

    options: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class Repetition:
    """``node`` repeated ``least`` to ``most`` times (None: no limit), as few as possible if ``lazy``."""

    node: Node
    least: int
    most: int | None
    lazy: bool


Node = Chars | Anchor | Concatenation | Choice | Repetition


def charsets(node: Node) -> set[CharSet]:
    """All sets of characters in the tree."""
    match node:
        case Chars(chars):
            return {chars}
        case Anchor():
            return set()
        case Repetition(inner):
            return charsets(inner)
        case Concatenation(parts) | Choice(parts):
            return set().union(*map(charsets, parts))


def has_boundary(node: Node) -> bool:
    r"""Whether the tree has an anchor at or away from word boundaries (``\b``, ``\B``)."""
    match node:
        case Anchor(place):
            return place in ("boundary", "inside")
        case Repetition(inner):
            return has_boundary(inner)
        case Concatenation(parts) | Choice(parts):
            return any(map(has_boundary, parts))
        case _:
            return False


def width(node: Node) -> tuple[int, int | None]:
    """The least and the greatest number of characters of a match (None: no limit)."""
    match node:
        case Chars():
            return 1, 1
        case Anchor():
            return 0, 0
        case Repetition(inner, least, most):
            low, high = width(inner)
            return low * least, None if high is None or most is None else high * most
        case Concatenation(parts):
            widths = [width(part) for part in parts]
            return sum(low for low, _ in widths), _total([high for _, high in widths])
        case Choice(options):
            widths = [width(option) for option in options]
            highs = [high for _, high in widths if high is not None]
            return min(low for low, _ in widths), max(highs) if len(highs) == len(widths) else None


def _total(highs: list[int | None]) -> int | None:
    known = [high for high in highs if high is not None]
    return sum(known) if len(known) == len(highs) else None


# Parse a regular expression of Python's `re` into a tree, and refuse constructs without a linear-time search.

_REFUSED = {
    "ASSERT": "a look-ahead or look-behind",
    "ASSERT_NOT": "a negative look-ahead or look-behind",
    "GROUPREF": "a reference back to a group",
    "GROUPREF_EXISTS": "a conditional group",
    "GROUPREF_IGNORE": "a reference back to a group",
    "ATOMIC_GROUP": "an atomic group",
    "POSSESSIVE_REPEAT": "a possessive repetition",
}
_PLACES: dict[str, Place] = {
    "AT_BEGINNING_STRING": "begin",
    "AT_END_STRING": "end",
    "AT_BOUNDARY": "boundary",
    "AT_NON_BOUNDARY": "inside",
}


def parse(source: str, flags: int = 0, folding: Folding = "unicode") -> Node:
    """The tree of the pattern ``source`` under the ``flags`` of `re`; ``folding`` defines "ignore case".

    Raises PatternRefused if ``source`` is invalid, or uses look-around, references or another construct of _REFUSED.
    """
    try:
        with ignore_pattern_warnings():
            tree = _parser.parse(source, flags)
        return _TreeBuilder(folding).sequence(tree, int(tree.state.flags))
    except re.error as error:
        raise PatternRefused(f"not a regular expression: {error}") from None
    except OverflowError:
        raise PatternRefused("a repetition count that is too large") from None
    except RecursionError:
        raise PatternRefused("nested too deeply") from None


class _TreeBuilder:
    """Turns the parser's (code, argument) pairs into nodes; inline groups can change the flags for their parts."""

    def __init__(self, folding: Folding) -> None:
        self._folding: Folding = folding
        self._by_name: dict[str, Callable[[Any, int], Node]] = {
            "LITERAL": lambda code, flags: Chars(self._cased(_one(code), flags)),
            "NOT_LITERAL": lambda code, flags: Chars(_complement(self._cased(_one(code), flags))),
            "ANY": lambda _, flags: Chars(EVERY if flags & re.DOTALL else _complement(NEWLINE)),
            "IN": self._class,
            "BRANCH": lambda given, flags: Choice(tuple(self.sequence(option, flags) for option in given[1])),
            "SUBPATTERN": lambda given, flags: self.sequence(given[3], (flags | given[1]) & ~given[2]),
            "MAX_REPEAT": lambda given, flags: self._repeat(given, flags, lazy=False),
            "MIN_REPEAT": lambda given, flags: self._repeat(given, flags, lazy=True),
            "AT": _anchor,
        }

    def sequence(self, items: Iterable[tuple[Any, Any]], flags: int) -> Node:
        """One node for all of ``items`` in sequence."""
        if flags & re.ASCII:
            raise PatternRefused("the ASCII flag, which this engine does not have")
        parts = tuple(self._node(str(code), given, flags) for code, given in items)
        return parts[0] if len(parts) == 1 else Concatenation(parts)

    def _node(self, name: str, given: Any, flags: int) -> Node:
        if name not in self._by_name:
            raise PatternRefused(f"{_REFUSED.get(name, name)}, which has no search in linear time")
        return self._by_name[name](given, flags)

    def _cased(self, chars: CharSet, flags: int) -> CharSet:
        return folded(chars, self._folding) if flags & re.IGNORECASE else chars

    def _class(self, items: list[tuple[Any, Any]], flags: int) -> Node:
        negated = str(items[0][0]) == "NEGATE"
        plain: list[tuple[int, int]] = []
        categories: list[tuple[int, int]] = []
        for code, given in items[negated:]:
            match str(code):
                case "LITERAL":
                    plain += _one(given)
                case "RANGE":
                    plain.append((given[0], given[1] + 1))
                case _:
                    categories += _category(str(given))
        # Categories need no folding: \w holds both cases of a letter, \d and \s hold no letters.
        chars = _union([*self._cased(_union(plain), flags), *categories])
        return Chars(_complement(chars) if negated else chars)

    def _repeat(self, given: tuple[Any, Any, Any], flags: int, *, lazy: bool) -> Node:
        least, most, items = given
        inner = self.sequence(items, flags)
        endless = most == _constants.MAXREPEAT
        # RE2 and Python's `re` differ in what such a repetition matches, so neither may run it.
        if endless and width(inner)[0] == 0:
            raise PatternRefused("an endless repetition of what can be empty")
        return Repetition(inner, int(least), None if endless else int(most), lazy)


def _one(code: int) -> CharSet:
    return ((code, code + 1),)


def _category(name: str) -> CharSet:
    letter = {"DIGIT": "d", "SPACE": "s", "WORD": "w"}[name.rsplit("_", 1)[1]]
    return _complement(category(letter)) if "_NOT_" in name else category(letter)


def _anchor(code: Any, flags: int) -> Node:
    name = str(code)
    if name == "AT_BEGINNING":
        return Anchor("line_begin" if flags & re.MULTILINE else "begin")
    if name == "AT_END":
        if not flags & re.MULTILINE:
            raise PatternRefused(
                r"a '$' that would look ahead for a last newline (write \Z, or (?m) before the pattern)"
            )
        return Anchor("line_end")
    return Anchor(_PLACES[name])


# Which patterns can be counted in linear time.
# One search is linear for every pattern. Counting starts a new search after each match. It is linear in total only if
# no search reads far beyond the match that it finds. ``a.*?z|a`` over "aaaa..." reads to the end of the text each time.

MAX_COUNTED = 512
"""The most characters that the bounded parts of a counted pattern may match together."""


def require_countable(node: Node) -> None:
    """Raise PatternRefused unless matches of ``node`` can be counted in linear time.

    That holds if the length of a match is bounded. It also holds for a concatenation of bounded parts and one lazy
    repetition, such as ``.*?``. Between two characters that the repetition cannot cross, such a search fails at most
    once: as long as the pattern's end occurs ahead, the first start reaches it.
    """
    if width(node)[0] == 0:
        raise PatternRefused("it can match nothing at all, and so cannot be counted")
    parts = node.parts if isinstance(node, Concatenation) else (node,)
    endless = [part for part in parts if width(part)[1] is None]
    if len(endless) > 1 or not all(_is_lazy_run(part) for part in endless):
        raise PatternRefused(
            "a repetition without an upper bound, other than one lazy one such as '.*?' outside all groups:"
            " counting its matches may take more than linear time (give an upper bound: {0,100})"
        )
    bounded = sum(width(part)[1] or 0 for part in parts)
    if bounded > MAX_COUNTED:
        raise PatternRefused(
            f"{bounded} characters in the parts of bounded length; a counted pattern has {MAX_COUNTED}"
        )


def _is_lazy_run(part: Node) -> bool:
    return isinstance(part, Repetition) and part.lazy and isinstance(part.node, Chars)
