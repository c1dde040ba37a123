"""Reading a regular expression of Python's `re` into a tree, and refusing what has no linear-time search."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from re import _constants, _parser  # type: ignore[attr-defined]  # the parser that defines what a pattern means
from typing import Any

from evalq.evalcore.scan.charset import EVERY, NEWLINE, CharSet, Folding, category, complement, folded, union
from evalq.evalcore.scan.nodes import Anchor, Chars, Choice, Node, PatternRefused, Place, Repeat, Sequence, width
from evalq.evalcore.words import ignore_pattern_warnings

__all__ = ["parse"]

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
    """The tree of ``source`` under ``flags`` of `re`; ``folding`` is what ignoring case means.

    Raises PatternRefused for what is no pattern, and for look-around, references and the like.
    """
    try:
        with ignore_pattern_warnings():
            tree = _parser.parse(source, flags)
        return _Reader(folding).sequence(tree, int(tree.state.flags))
    except re.error as error:
        raise PatternRefused(f"not a regular expression: {error}") from None
    except OverflowError:
        raise PatternRefused("a repetition count that is too large") from None
    except RecursionError:
        raise PatternRefused("nested too deeply") from None


class _Reader:
    """Turns the parser's (code, argument) pairs into nodes, with the flags that hold where each stands."""

    def __init__(self, folding: Folding) -> None:
        self._folding: Folding = folding
        self._by_name: dict[str, Callable[[Any, int], Node]] = {
            "LITERAL": lambda code, flags: Chars(self._cased(_one(code), flags)),
            "NOT_LITERAL": lambda code, flags: Chars(complement(self._cased(_one(code), flags))),
            "ANY": lambda _, flags: Chars(EVERY if flags & re.DOTALL else complement(NEWLINE)),
            "IN": self._class,
            "BRANCH": lambda given, flags: Choice(tuple(self.sequence(option, flags) for option in given[1])),
            "SUBPATTERN": lambda given, flags: self.sequence(given[3], (flags | given[1]) & ~given[2]),
            "MAX_REPEAT": lambda given, flags: self._repeat(given, flags, lazy=False),
            "MIN_REPEAT": lambda given, flags: self._repeat(given, flags, lazy=True),
            "AT": _anchor,
        }

    def sequence(self, items: Iterable[tuple[Any, Any]], flags: int) -> Node:
        """The node of ``items``, one after the other."""
        if flags & re.ASCII:
            raise PatternRefused("the ASCII flag, which this engine does not have")
        parts = tuple(self._node(str(code), given, flags) for code, given in items)
        return parts[0] if len(parts) == 1 else Sequence(parts)

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
        chars = union([*self._cased(union(plain), flags), *categories])
        return Chars(complement(chars) if negated else chars)

    def _repeat(self, given: tuple[Any, Any, Any], flags: int, *, lazy: bool) -> Node:
        least, most, items = given
        inner = self.sequence(items, flags)
        endless = most == _constants.MAXREPEAT
        # Engines differ in what such a repetition matches, and here all have to match the same.
        if endless and width(inner)[0] == 0:
            raise PatternRefused("an endless repetition of what can be empty")
        return Repeat(inner, int(least), None if endless else int(most), lazy)


def _one(code: int) -> CharSet:
    return ((code, code + 1),)


def _category(name: str) -> CharSet:
    letter = {"DIGIT": "d", "SPACE": "s", "WORD": "w"}[name.rsplit("_", 1)[1]]
    return complement(category(letter)) if "_NOT_" in name else category(letter)


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
