"""Patterns as trees: what is left of a regular expression once Python's own parser has read it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from evalq.evalcore.scan.charset import CharSet

__all__ = [
    "Anchor",
    "Chars",
    "Choice",
    "Node",
    "PatternRefused",
    "Place",
    "Repeat",
    "Sequence",
    "charsets",
    "has_boundary",
    "width",
]

Place = Literal["begin", "end", "line_begin", "line_end", "boundary", "inside"]
"""Where an anchor holds: at the text's or a line's ends, at a word boundary, or anywhere but at one."""


class PatternRefused(ValueError):
    """A pattern cannot be searched for in linear time, or means nothing; the message says why."""


@dataclass(frozen=True, slots=True)
class Chars:
    """One character out of a set."""

    chars: CharSet


@dataclass(frozen=True, slots=True)
class Anchor:
    """A place between two characters."""

    place: Place


@dataclass(frozen=True, slots=True)
class Sequence:
    """One node after the other."""

    parts: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class Choice:
    """The first of the nodes with which the whole pattern matches."""

    options: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class Repeat:
    """``node`` between ``least`` and ``most`` times (None: any number), as few as possible where ``lazy``."""

    node: Node
    least: int
    most: int | None
    lazy: bool


Node = Chars | Anchor | Sequence | Choice | Repeat


def charsets(node: Node) -> set[CharSet]:
    """All sets of characters in the tree."""
    match node:
        case Chars(chars):
            return {chars}
        case Anchor():
            return set()
        case Repeat(inner):
            return charsets(inner)
        case Sequence(parts) | Choice(parts):
            return set().union(*map(charsets, parts))


def has_boundary(node: Node) -> bool:
    """Whether the tree asks for word boundaries."""
    match node:
        case Anchor(place):
            return place in ("boundary", "inside")
        case Repeat(inner):
            return has_boundary(inner)
        case Sequence(parts) | Choice(parts):
            return any(map(has_boundary, parts))
        case _:
            return False


def width(node: Node) -> tuple[int, int | None]:
    """How many characters a match has at least and at most (None: no limit)."""
    match node:
        case Chars():
            return 1, 1
        case Anchor():
            return 0, 0
        case Repeat(inner, least, most):
            low, high = width(inner)
            return low * least, None if high is None or most is None else high * most
        case Sequence(parts):
            widths = [width(part) for part in parts]
            return sum(low for low, _ in widths), _total([high for _, high in widths])
        case Choice(options):
            widths = [width(option) for option in options]
            highs = [high for _, high in widths if high is not None]
            return min(low for low, _ in widths), max(highs) if len(highs) == len(widths) else None


def _total(highs: list[int | None]) -> int | None:
    known = [high for high in highs if high is not None]
    return sum(known) if len(known) == len(highs) else None
