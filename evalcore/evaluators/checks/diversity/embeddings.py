"""Kinds of answers by what an embedder says of them: its vectors as a line has them, and kinds of near ones."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Annotated, Any

import msgspec

from evalq.evalcore.evaluators.checks.taken import Misplaced
from evalq.evalcore.model.calls import MOST_DIMENSIONS, Attempt, cosine, join_vectors
from evalq.evalcore.naming import kind_of, shorten

__all__ = ["Embedding", "VectorKinds", "embedding_of", "vector_of"]

_MARK = 4
_Text = Annotated[str, msgspec.Meta(max_length=1000)]


class Embedding(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What ``target``, with settings of the digest ``config``, said of the normalised text that ``text`` stands for.

    ``vector`` has a signed byte for each dimension; ``error`` says why there is none.
    """

    text: _Text
    target: _Text
    config: _Text = ""
    vector: Annotated[bytes, msgspec.Meta(max_length=MOST_DIMENSIONS)] = b""
    error: str = ""
    attempts: tuple[Attempt, ...] = ()

    @property
    def embedder(self) -> str:
        """Its target and the digest of its settings: vectors of two embedders have nothing in common."""
        return f"{shorten(self.target)} {self.config[:64]}"


def embedding_of(record: Mapping[str, Any], text: bytes) -> Embedding | None:
    """What a line has of the text; None where it has nothing, or something about another text. Raises Misplaced."""
    given = record.get("embedding")
    if given is None:
        return None
    if not isinstance(given, dict):
        raise Misplaced(f"embedding: {kind_of(given)} where an object is wanted")
    try:
        found = msgspec.convert(given, Embedding)
    except msgspec.ValidationError as error:
        raise Misplaced(f"embedding: {error}") from None
    # An answer that was changed since has the vector of another text, which says nothing of this one.
    if found.text != text.hex() or found.error:
        return None
    if not any(found.vector):
        raise Misplaced("embedding.vector: a vector that is not zero is wanted, a byte for each dimension in base64")
    return found


def vector_of(found: Embedding) -> bytes:
    """A mark of the embedder, and the vector behind it."""
    return hashlib.blake2b(found.embedder.encode("utf-8", "surrogatepass"), digest_size=_MARK).digest() + found.vector


class VectorKinds:
    """Answers to one case by kind: texts with a cosine of ``alike`` at least are one, and all that such steps connect.

    ``counts`` is how often each text came, ``vectors`` has what `vector_of` gave of it. Those of two embedders, or of
    two lengths, are never alike; a text without a vector is a kind by itself.
    """

    def __init__(self, counts: Mapping[bytes, int], vectors: Mapping[bytes, bytes], alike: float) -> None:
        self._counts = counts
        self._vectors = vectors
        self._kind: dict[bytes, bytes] = {}
        groups: dict[tuple[bytes, int], list[bytes]] = {}
        # Sorted, so that a kind is called by its first text in that order, whichever came first.
        for text in sorted(counts):
            vector = vectors.get(text, b"")
            if len(vector) > _MARK:
                # Apart by length as well: an embedder whose model was changed under its name gives other ones.
                groups.setdefault((vector[:_MARK], len(vector)), []).append(text)
            else:
                self._kind[text] = text
        for texts in groups.values():
            first = join_vectors([vectors[text][_MARK:] for text in texts], alike)
            self._kind |= {text: texts[at] for text, at in zip(texts, first, strict=True)}
        self._size: dict[bytes, int] = {}
        for text, kind in self._kind.items():
            self._size[kind] = self._size.get(kind, 0) + counts[text]

    @property
    def mode(self) -> int:
        """How many answers are of the commonest kind."""
        return max(self._size.values(), default=0)

    def counts(self) -> list[int]:
        """How often each kind came."""
        return list(self._size.values())

    def least_alike(self) -> float | None:
        """The least cosine between the commonest text of the commonest kind and another of it; None without any."""
        if not self._size:
            return None
        mode = self.mode
        largest = [text for text, kind in self._kind.items() if self._size[kind] == mode]
        first = min(largest, key=lambda text: (-self._counts[text], text))
        own = [text for text in largest if self._kind[text] == self._kind[first] and text != first]
        return min((cosine(self._vectors[first][_MARK:], self._vectors[text][_MARK:]) for text in own), default=1.0)
