"""Questions and answers as HTML: one answer with what it took, and two side by side with the difference marked."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from evalq.evalcore.views.charts import number
from evalq.producer.page.answers import AttemptFacts, ShownAnswer, ShownQuestion
from evalq.producer.page.render import Html, element, joined, text

SHOWN = 50_000
"""Characters of one text on a page; a browser takes seconds for a megabyte."""

# The difference of two texts, word by word: the shortest one, by E. Myers, "An O(ND) Difference Algorithm and Its
# Variations" (1986). The work is bounded, so that no pair of texts takes long.

_WORDS = re.compile(r"\w+|\s+|[^\w\s]")
_MOST_EDITS = 600
_MOST_WORDS = 40_000


class Piece(NamedTuple):
    """A part of a text: whether the other text lacks it."""

    text: str
    changed: bool


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


# What was asked, and what came back.


def question_block(question: ShownQuestion | None, why: str) -> Html:
    """A question, or the sentence ``why`` it is not here."""
    if question is None:
        return element("p", why, class_="caption")
    parts = []
    for role, content in question.messages:
        head = element("p", role.capitalize(), class_="role") if role else None
        parts.append(element("div", head, said(content), class_="message"))
    return joined(*parts)


def said(content: str, pieces: Sequence[Piece] | None = None, mark: str = "") -> Html:
    """A text of somebody else as it is, cut if it is very long; changed ``pieces`` are in elements called ``mark``."""
    more = len(content) - SHOWN
    note = element("p", f"{more:,} more characters are in the run folder.", class_="caption") if more > 0 else None
    inner = text(content[:SHOWN])
    if pieces is not None:
        inner = joined(*(element(mark, each.text) if each.changed else text(each.text) for each in pieces))
    empty = element("span", "An empty text.", class_="quiet") if not content else inner
    return joined(element("div", empty, class_="said", dir="auto"), note)


def answer_block(answer: ShownAnswer, pieces: Sequence[Piece] | None = None, mark: str = "") -> Html:
    """An answer: its text or error, its tool calls, and what it took."""
    parts: list[Html | None] = []
    if answer.error:
        parts.append(element("p", "No usable answer: ", answer.error[:SHOWN], class_="fault", dir="auto"))
    if answer.text or not answer.error:
        parts.append(said(answer.text, pieces, mark))
    if answer.tools:
        calls = [
            element(
                "li", element("code", name, dir="auto"), element("pre", arguments[:SHOWN], dir="auto", tabindex="0")
            )
            for name, arguments in answer.tools
        ]
        parts.append(joined(element("p", "Tool calls", class_="role"), element("ol", *calls, class_="tools")))
    return joined(*parts, took(answer))


def took(answer: ShownAnswer) -> Html | None:
    """Attempts, seconds, tokens and cost of an answer."""
    facts = list(_facts(answer))
    if not facts:
        return None
    rows = [element("div", element("dt", name), element("dd", value)) for name, value in facts]
    attempts = None
    if len(answer.attempts) > 1 or any(each.ended != "answered" for each in answer.attempts):
        items = [element("li", _attempt(each), dir="auto") for each in answer.attempts]
        attempts = element("details", element("summary", "Each attempt"), element("ol", *items))
    return joined(element("dl", *rows, class_="took"), attempts)


def _facts(answer: ShownAnswer) -> Iterator[tuple[str, str]]:
    if answer.attempts:
        yield "Attempts", f"{len(answer.attempts):,}"
    if answer.seconds is not None:
        yield "Seconds", number(answer.seconds, "seconds")
    if answer.tokens is not None:
        yield "Tokens", f"{answer.tokens[0]:,} in the prompt, {answer.tokens[1]:,} in the answer"
    if answer.cost is not None:
        yield "Cost", f"{answer.cost:.4g}"


def _attempt(attempt: AttemptFacts) -> str:
    seconds = "" if attempt.seconds is None else number(attempt.seconds, "seconds")
    tokens = "" if attempt.completion_tokens is None else f"{attempt.completion_tokens:,} tokens in the answer"
    cost = "" if attempt.cost is None else f"cost {attempt.cost:.4g}"
    return ", ".join(filter(None, (attempt.ended[:1_000], seconds, tokens, cost)))


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
