"""Two answers side by side, with the difference marked."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

from evalq.producer.page.answers import ShownAnswer
from evalq.producer.page.render import SHOWN, Html, Piece, answer_block, element

# The difference of two texts, word by word: the shortest one, by E. Myers, "An O(ND) Difference Algorithm and Its
# Variations" (1986). The work is bounded, so that no pair of texts takes long.

_WORDS = re.compile(r"\w+|\s+|[^\w\s]")
_MOST_EDITS = 600
_MOST_WORDS = 40_000


def difference(base: str, cand: str) -> tuple[list[Piece], list[Piece]]:
    """Both texts in pieces. Very different texts are each one changed piece, but for a common beginning and end."""
    ours, theirs = _WORDS.findall(base), _WORDS.findall(cand)
    start = _common(ours, theirs)
    end = _common(ours[start:][::-1], theirs[start:][::-1])
    left, right = ours[start : len(ours) - end], theirs[start : len(theirs) - end]
    kept = _kept(left, right) if max(len(left), len(right)) <= _MOST_WORDS else None
    marks = [bytearray(len(words)) for words in (left, right)]
    for one, other in kept or ():
        marks[0][one] = marks[1][other] = 1
    sides = []
    for words, middle, mark in ((ours, left, marks[0]), (theirs, right, marks[1])):
        flags = [*([False] * start), *(not each for each in mark), *([False] * end)]
        sides.append(_joined(words, flags) if len(flags) == len(words) else [Piece("".join(middle), True)])
    return sides[0], sides[1]


def _common(one: Sequence[str], other: Sequence[str]) -> int:
    """The number of words with which both begin."""
    count = 0
    for a, b in zip(one, other, strict=False):
        if a != b:
            break
        count += 1
    return count


def _kept(left: Sequence[str], right: Sequence[str]) -> list[tuple[int, int]] | None:
    """The pairs of equal words in a shortest difference; None if it takes too many edits."""
    wide, high = len(left), len(right)
    best, trace = {1: 0}, []
    for edits in range(min(wide + high, _MOST_EDITS) + 1):
        trace.append(dict(best))
        for diagonal in range(-edits, edits + 1, 2):
            down = diagonal == -edits or (diagonal != edits and best.get(diagonal - 1, -1) < best.get(diagonal + 1, -1))
            x = best.get(diagonal + 1, 0) if down else best.get(diagonal - 1, 0) + 1
            y = x - diagonal
            while x < wide and y < high and left[x] == right[y]:
                x, y = x + 1, y + 1
            best[diagonal] = x
            if x >= wide and y >= high:
                return _path(trace, wide, high)
    return None


def _path(trace: Sequence[dict[int, int]], x: int, y: int) -> list[tuple[int, int]]:
    """The equal words on the way back from the end of both texts."""
    pairs = []
    for edits in range(len(trace) - 1, -1, -1):
        best, diagonal = trace[edits], x - y
        down = diagonal == -edits or (diagonal != edits and best.get(diagonal - 1, -1) < best.get(diagonal + 1, -1))
        before = diagonal + 1 if down else diagonal - 1
        from_x = best.get(before, 0) if edits else 0
        from_y = from_x - before if edits else 0
        while x > from_x and y > from_y and x > 0 and y > 0:
            x, y = x - 1, y - 1
            pairs.append((x, y))
        x, y = from_x, from_y
    return pairs


def _joined(words: Sequence[str], changed: Sequence[bool]) -> list[Piece]:
    """Words of the same kind as one piece."""
    pieces: list[Piece] = []
    start = 0
    for at in range(1, len(words) + 1):
        if at == len(words) or changed[at] != changed[start]:
            pieces.append(Piece("".join(words[start:at]), changed[start]))
            start = at
    return pieces


def side_by_side(answers: Sequence[ShownAnswer | None], heads: Sequence[Html], none: Callable[[int], str]) -> Html:
    """Two answers beside each other, with the difference marked; ``none`` says why one is not here."""
    one, other = answers
    pieces: tuple[Sequence[Piece] | None, Sequence[Piece] | None] = (None, None)
    if one is not None and other is not None and one.text != other.text:
        pieces = difference(one.text[:SHOWN], other.text[:SHOWN])
    cells = []
    for at, (answer, head) in enumerate(zip(answers, heads, strict=True)):
        inner = element("p", none(at), class_="caption")
        if answer is not None:
            inner = answer_block(answer, pieces[at], ("del", "ins")[at])
        cells.append(element("div", head, inner))
    return element("div", *cells, class_="pair")
