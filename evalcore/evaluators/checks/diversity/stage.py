"""Asking an embedder about outputs: each normalised text once, whatever case and repeat it is of."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import msgspec

from evalq.evalcore.contract.evaluator import Question
from evalq.evalcore.errors import UsageError
from evalq.evalcore.evaluators.checks.diversity.embeddings import Embedding
from evalq.evalcore.evaluators.checks.diversity.kind_counts import MOST_REPEATS
from evalq.evalcore.evaluators.checks.diversity.texts import kind_of_text, normal
from evalq.evalcore.evaluators.checks.params import ChecksParams, diversity_of
from evalq.evalcore.evaluators.checks.score import judge_for
from evalq.evalcore.model.calls import Output, Prompt
from evalq.evalcore.naming import shorten

__all__ = ["LONGEST", "EmbedStage"]

LONGEST = 8000
"""Characters of a normalised text that an embedder is given: most take no more than 8,000 tokens."""


class EmbedStage:
    """Asks about outputs of the selected cases of ``params`` that are counted by embedding.

    ``embedder`` is the target that the command names, for cases that name none.
    """

    def __init__(self, params: ChecksParams, embedder: str) -> None:
        self._judge = judge_for(params)
        self._targets = {
            case.id: how.embedder or embedder
            for case in params.selected()
            if (how := diversity_of(case, params)) is not None and how.by == "embedding"
        }

    def look(self, lines: Callable[[], Iterable[bytes]]) -> None:
        """Nothing: each text stands for itself."""

    def asks(self, repeats: int = 1) -> Mapping[tuple[str, int], int]:
        """{(embedder, 1): questions} about so many outputs of each case. Raises UsageError where none is named."""
        for case, target in self._targets.items():
            if not target:
                raise UsageError(f"case {shorten(case)}: an embedder is to be asked; name one: --embedder NAME")
        counts = Counter((target, 1) for target in self._targets.values())
        return {asked: count * repeats for asked, count in counts.items()}

    def questions(self, line: bytes) -> list[Question]:
        """The text of the output in ``line``; nothing where it has none, or is not counted by embedding."""
        asked = self._asked(line)
        return [] if asked is None else [_question(*asked)]

    def _asked(self, line: bytes) -> tuple[str, str] | None:
        found = self._judge.answer(line)
        # Repeats that are not counted are not paid for either.
        if found is None or found.repeat >= MOST_REPEATS or found.case not in self._targets:
            return None
        text = normal(found.text)
        return (self._targets[found.case], text) if text else None

    def joined(self, line: bytes, answers: Callable[[Question], Sequence[Output]]) -> bytes:
        """``line`` with what was recorded of its text as its ``embedding``."""
        asked = self._asked(line)
        replies = answers(_question(*asked)) if asked is not None else ()
        if asked is None or not replies:
            return line
        # The values as they were written: numbers and repeated keys of an answer are no business of an embedder.
        record = msgspec.json.decode(line, type=dict[str, msgspec.Raw])
        return msgspec.json.encode({**record, "embedding": _told(kind_of_text(asked[1]).hex(), replies[0])})

    def recorded(self, line: bytes) -> list[Output]:
        """The vector that ``line`` has of its text, as it was recorded."""
        asked = self.questions(line)
        known = _former(line) if asked else None
        # Of this very text: an answer that was changed since is asked about anew.
        if known is None or not known.vector or f"embedding {known.text}" != asked[0].prompt.case:
            return []
        reply = msgspec.Raw(msgspec.json.encode(_Reply(known.vector)))
        name, prompt = asked[0].prompt.case, asked[0].prompt.digest
        return [Output(0, name, "", 0, prompt, known.target, known.config, reply, attempts=known.attempts)]


def _question(target: str, text: str) -> Question:
    return Question(Prompt(f"embedding {kind_of_text(text).hex()}", "", text[:LONGEST]), target)


def _former(line: bytes) -> Embedding | None:
    try:
        return msgspec.json.decode(line, type=_Embedded).embedding
    except msgspec.DecodeError:
        return None


class _Embedded(msgspec.Struct):
    embedding: Embedding | None = None


def _told(text: str, reply: Output) -> Embedding:
    about: dict[str, Any] = {"text": text, "target": reply.target, "config": reply.config, "attempts": reply.attempts}
    if reply.failed:
        return Embedding(**about, error=reply.error)
    try:
        return Embedding(**about, vector=msgspec.json.decode(reply.output, type=_Reply).vector)
    except msgspec.DecodeError:
        return Embedding(**about, error="the target gave no vector: one of kind embeddings does")


class _Reply(msgspec.Struct):
    vector: bytes
