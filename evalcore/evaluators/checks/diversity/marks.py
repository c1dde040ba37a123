"""What stands for an answer where answers are counted by kind."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from evalq.evalcore.evaluators.checks.diversity.embeddings import embedding_of, vector_of
from evalq.evalcore.evaluators.checks.diversity.pairs import PairHalf
from evalq.evalcore.evaluators.checks.diversity.sketching import sketch
from evalq.evalcore.evaluators.checks.diversity.texts import kind_of_text, normal
from evalq.evalcore.evaluators.checks.params import Diversity

__all__ = ["NOT_COUNTED", "Mark", "mark_of"]


class Mark(NamedTuple):
    """``text`` stands for the normalised text, empty where answers are not counted by kind; ``likeness`` is what tells
    how near it is to others (a sketch, a vector), where that is asked. ``embedder`` is whose vector it is.

    ``lacks``: by its vector, and there is none. ``half`` is what a judge of pairs is to say of it, or said.
    """

    text: bytes = b""
    likeness: bytes = b""
    embedder: str = ""
    lacks: bool = False
    half: PairHalf | None = None


NOT_COUNTED = Mark()


def mark_of(answer: str, how: Diversity | None, record: Mapping[str, Any]) -> Mark:
    """What stands for the text of an answer, ``record`` being the line that it is in. Raises Misplaced."""
    if how is None:
        return NOT_COUNTED
    whole = normal(answer)
    text = kind_of_text(whole)
    if how.by == "near":
        return Mark(text, sketch(whole, answer))
    if how.by == "text" or not whole:
        return Mark(text)  # nobody has a vector for nothing: it is a kind by itself
    found = embedding_of(record, text)
    return Mark(text, lacks=True) if found is None else Mark(text, vector_of(found), found.embedder)
