"""Answers of a case by kind: by their text, by an embedder's vectors, by a judge of pairs."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Annotated, Any, NamedTuple, Self

import msgspec

from evalq.evalcore.evaluators.checks.answer import LONGEST, InvalidField, Unreadable, Vote, text_digest
from evalq.evalcore.evaluators.checks.diversity.near import WIDTH, NearKinds, kind_of_text, normal, sketch
from evalq.evalcore.evaluators.checks.params import Diversity
from evalq.evalcore.evaluators.checks.vocabulary.declaring import JudgeQuestion
from evalq.evalcore.evaluators.checks.vocabulary.judged import SAME
from evalq.evalcore.model.calls import MOST_DIMENSIONS, Attempt, cosine, join_vectors
from evalq.evalcore.model.canonical import Json
from evalq.evalcore.model.state import Merging
from evalq.evalcore.naming import kind_of, shorten
from evalq.evalcore.records.prompts import Asked, written
from evalq.evalcore.statistics.rates import exact_interval
from evalq.evalcore.statistics.sequences import rate_sequence

_EMBEDDER_BYTES = 4
_Text = Annotated[str, msgspec.Meta(max_length=1000)]


class Embedding(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The reply of ``target``, with settings of digest ``config``, for the normalised text with digest ``text``.

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
        """The target and the digest of its settings: vectors of two embedders cannot be compared."""
        return f"{shorten(self.target)} {self.config[:64]}"


def _embedding_of(record: Mapping[str, Any], text: bytes) -> Embedding | None:
    """The embedding of the text in a line; None without one, or for another text. Raises InvalidField."""
    value = record.get("embedding")
    if value is None:
        return None
    if not isinstance(value, dict):
        raise InvalidField(f"embedding: {kind_of(value)} where an object is wanted")
    try:
        embedding = msgspec.convert(value, Embedding)
    except msgspec.ValidationError as error:
        raise InvalidField(f"embedding: {error}") from None
    # If the answer has changed since, the vector is that of another text.
    if embedding.text != text.hex() or embedding.error:
        return None
    if not any(embedding.vector):
        raise InvalidField("embedding.vector: a vector that is not zero is wanted, a byte for each dimension in base64")
    return embedding


def _vector_of(embedding: Embedding) -> bytes:
    """The digest of the embedder, followed by the vector."""
    return (
        hashlib.blake2b(embedding.embedder.encode("utf-8", "surrogatepass"), digest_size=_EMBEDDER_BYTES).digest()
        + embedding.vector
    )


class VectorKinds:
    """Answers to one case by kind: texts with a cosine of at least ``similarity`` are one kind, also through others.

    ``counts`` says how often each text occurs, ``vectors`` has its vector from `_vector_of`. Vectors of two embedders,
    or of two lengths, are never alike; a text without a vector is a kind by itself.
    """

    def __init__(self, counts: Mapping[bytes, int], vectors: Mapping[bytes, bytes], similarity: float) -> None:
        self._counts = counts
        self._vectors = vectors
        self._kind: dict[bytes, bytes] = {}
        groups: dict[tuple[bytes, int], list[bytes]] = {}
        # Sorted, so that the name of a kind does not depend on the order of answers.
        for text in sorted(counts):
            vector = vectors.get(text, b"")
            if len(vector) > _EMBEDDER_BYTES:
                # Grouped also by length: an embedder whose model changed may give vectors of another length.
                groups.setdefault((vector[:_EMBEDDER_BYTES], len(vector)), []).append(text)
            else:
                self._kind[text] = text
        for texts in groups.values():
            first_of = join_vectors([vectors[text][_EMBEDDER_BYTES:] for text in texts], similarity)
            self._kind |= {text: texts[at] for text, at in zip(texts, first_of, strict=True)}
        self._size: dict[bytes, int] = {}
        for text, kind in self._kind.items():
            self._size[kind] = self._size.get(kind, 0) + counts[text]

    @property
    def mode(self) -> int:
        """The number of answers of the commonest kind."""
        return max(self._size.values(), default=0)

    def counts(self) -> list[int]:
        """The number of answers of each kind."""
        return list(self._size.values())

    def least_alike(self) -> float | None:
        """The lowest cosine of the commonest text to others of the commonest kind; None without texts."""
        if not self._size:
            return None
        mode = self.mode
        largest = [text for text, kind in self._kind.items() if self._size[kind] == mode]
        first = min(largest, key=lambda text: (-self._counts[text], text))
        others = [text for text in largest if self._kind[text] == self._kind[first] and text != first]
        return min(
            (cosine(self._vectors[first][_EMBEDDER_BYTES:], self._vectors[text][_EMBEDDER_BYTES:]) for text in others),
            default=1.0,
        )


# Kinds by a judge, who says of pairs of answers (repeats 0 and 1, 2 and 3) whether both say the same.
# No answer is in two pairs, so pairs are independent, and their share that says the same estimates the chance P that
# two answers are of one kind. With m the share of the commonest kind, m^2 <= P <= m: this kind alone adds m^2 to P,
# and the sum of p_k^2 is at most m times the sum of p_k. So a bound of P is one of m, exact for any number of
# pairs, up to what the judge gets wrong.

_LEFT_OUT = ("undecided", "unreadable", "failed", "not_asked")
_OUTCOMES = {True: "same", False: "different", None: "undecided"}


class PairHalf(NamedTuple):
    """One answer of a pair. ``text`` is its digest, ``other`` that of the text it was compared with, if any.

    ``outcome`` is the judge's verdict: same, different, undecided, unreadable or failed. It is empty without a
    judgement, and for the second answer of a pair, whose record has none.
    """

    repeat: int
    text: str
    other: str = ""
    outcome: str = ""


def pair_digest(text: str, other: str) -> str:
    """The digests of both texts of a pair."""
    return f"{text_digest(text)}.{text_digest(other)}"


def _pair_prompt(program_input: str | None, answer: str, other: str, order: int) -> Asked:
    texts = {"first": answer, "second": other}
    return written(SAME, texts if program_input is None else {**texts, "input": program_input})


def _read_same(reply: dict[str, Any]) -> bool | None:
    same = reply.get("same", "")
    if same is not None and not isinstance(same, bool):
        raise Unreadable('no "same" that is true, false or null')
    return same


PAIR = JudgeQuestion("same-answers", "", 1, 1, SAME.digest, _pair_prompt, _read_same)
"""The question about a pair, in one order, since the order does not matter for equality."""


def half_of(text: str, repeat: int, votes: Iterable[Vote]) -> PairHalf:
    """The answer of a repeat, with the recorded verdict on its pair."""
    digest = text_digest(text)
    if repeat % 2:
        return PairHalf(repeat, digest)
    # Only judgements of this text: the answer may have changed since.
    pair_votes = [vote for vote in votes if vote.check == PAIR.key and vote.about.partition(".")[0] == digest]
    if not pair_votes or len(text) > LONGEST:
        return PairHalf(repeat, digest)
    # As for checks, votes of two judges are not a verdict.
    outcome = _outcome_of(pair_votes[0]) if len({vote.judge for vote in pair_votes}) == 1 else "unreadable"
    return PairHalf(repeat, digest, pair_votes[0].about.partition(".")[2], outcome)


def _outcome_of(vote: Vote) -> str:
    if vote.failed:
        return "failed"
    try:
        return _OUTCOMES[vote.read(PAIR.read)]
    except Unreadable:
        return "unreadable"


def by_judge(halves: Sequence[PairHalf], share: float, planned: int) -> dict[str, Json]:
    """``by_judge`` of a case: its pairs, the chance that two answers say the same, and the verdict on ``share``.

    A pair without a verdict counts as different in the lower bound, and as the same in the upper one. So no answer can
    change a verdict by preventing a judgement. If the case could stop early, after ``planned`` calls at most, the
    bounds hold at every number of pairs.
    """
    outcomes, unpaired = _count_pairs(halves)
    same, decided, total = outcomes["same"], outcomes["same"] + outcomes["different"], outcomes.total()
    bounds: Callable[[int, int], tuple[float, float]] = rate_sequence if planned else exact_interval
    low = bounds(same, total)[0] if decided else None
    high = bounds(same + total - decided, total)[1] if decided else None
    verdict = "no_repeats" if len(halves) == 1 else "no_data"
    if low is not None and high is not None:
        verdict = "collapsed" if low > share else "diverse" if high < share * share else "inconclusive"
    return {
        "verdict": verdict,
        "pairs": decided,
        "same": same,
        "collision_probability": {"value": same / decided if decided else None, "low": low, "high": high},
        "left_out": {name: outcomes[name] for name in _LEFT_OUT} | {"unpaired": unpaired},
    }


def _count_pairs(halves: Sequence[PairHalf]) -> tuple[Counter[str], int]:
    """The number of pairs by verdict, and of answers without a pair."""
    by_pair: dict[int, tuple[list[PairHalf], Counter[str]]] = {}
    for half in sorted(halves):
        firsts, seconds = by_pair.setdefault(half.repeat // 2, ([], Counter()))
        if half.repeat % 2:
            seconds[half.text] += 1
        else:
            firsts.append(half)
    outcomes, unpaired = Counter[str](), 0
    for firsts, seconds in by_pair.values():
        # Several answers of one repeat are from several inputs, each with its own pairs.
        pairs, judged = min(len(firsts), seconds.total()), 0
        unpaired += len(firsts) + seconds.total() - 2 * pairs
        for half in firsts:
            if half.outcome and seconds[half.other]:
                seconds[half.other] -= 1
                outcomes[half.outcome] += 1
                judged += 1
        outcomes["not_asked"] += pairs - judged
    return outcomes, unpaired


# Marks of answers, to count them by kind.


class AnswerMark(NamedTuple):
    """``text`` is the digest of the normalised text, empty if answers are not counted by kind. ``likeness`` is a sketch
    or a vector to compare it with others, and ``embedder`` the source of the vector.

    ``lacks``: the answer needs a vector and has none. ``half`` is its part in a pair for a judge.
    """

    text: bytes = b""
    likeness: bytes = b""
    embedder: str = ""
    lacks: bool = False
    half: PairHalf | None = None


NOT_COUNTED = AnswerMark()


def mark_of(answer: str, how: Diversity | None, record: Mapping[str, Any]) -> AnswerMark:
    """The mark of an answer in the line ``record``. Raises InvalidField."""
    if how is None:
        return NOT_COUNTED
    normalised = normal(answer)
    text = kind_of_text(normalised)
    if how.by == "near":
        return AnswerMark(text, sketch(normalised, answer))
    if how.by == "text" or not normalised:
        return AnswerMark(text)  # an empty text has no vector, and is a kind by itself
    embedding = _embedding_of(record, text)
    return (
        AnswerMark(text, lacks=True)
        if embedding is None
        else AnswerMark(text, _vector_of(embedding), embedding.embedder)
    )


# The marks of the answers to one case, which chunks merge without loss.

MOST_REPEATS = 1000
"""Only answers of lower repeats are counted by kind, which limits what a case keeps, in any cut."""


class KindCounts(Merging, array_like=True):
    """``texts`` has `WIDTH` bytes for each answer; ``left_out`` is the number of repeats that were too high.

    ``likeness`` has the sketch or vector of each text, by its bytes in hexadecimal, if near texts are one kind.
    ``without`` is the number of answers left out without a vector, ``embedders`` the number of vectors by embedder.
    ``halves`` has the answers that a judge compares in pairs.
    """

    texts: bytearray = msgspec.field(default_factory=bytearray)
    left_out: int = 0
    likeness: dict[str, bytes] = msgspec.field(default_factory=dict)
    without: int = 0
    embedders: dict[str, int] = msgspec.field(default_factory=dict)
    halves: list[PairHalf] = msgspec.field(default_factory=list)

    def add(self, repeat: int, mark: AnswerMark) -> None:
        """Count an answer."""
        if mark.half is not None and repeat < MOST_REPEATS:
            self.halves.append(mark.half)
        if repeat >= MOST_REPEATS:
            self.left_out += 1
        # Not a kind by itself: failures of an embedder would look like different answers.
        elif mark.lacks:
            self.without += 1
        else:
            self.texts += mark.text
            if mark.likeness:
                self._keep(mark.text.hex(), mark.likeness)
            if mark.embedder:
                self.embedders[mark.embedder] = self.embedders.get(mark.embedder, 0) + 1

    def merge(self, later: Self) -> None:
        """Add the answers of later lines."""
        self.texts += later.texts
        self.left_out += later.left_out
        self.without += later.without
        self.halves += later.halves
        for embedder, count in later.embedders.items():
            self.embedders[embedder] = self.embedders.get(embedder, 0) + count
        for text, likeness in later.likeness.items():
            self._keep(text, likeness)

    def sort(self) -> None:
        """Sort the answers, so that their bytes do not depend on the order of merging."""
        self.texts = bytearray(b"".join(sorted(self._each())))
        self.likeness = dict(sorted(self.likeness.items()))
        self.embedders = dict(sorted(self.embedders.items()))
        self.halves.sort()

    def counts(self) -> Counter[bytes]:
        """The number of answers with each text."""
        return Counter(self._each())

    def kinds(self, how: Diversity) -> NearKinds | VectorKinds:
        """The answers by kind."""
        counts = dict(sorted(self.counts().items()))
        likeness = {bytes.fromhex(text): data for text, data in self.likeness.items()}
        if how.by == "embedding":
            return VectorKinds(counts, likeness, how.similarity)
        near = NearKinds(how.similarity)
        for text, count in counts.items():
            near.add(text, likeness.get(text, b""), count)
        return near

    def _keep(self, text: str, likeness: bytes) -> None:
        # Of two vectors for one text, from two embedders, keep the same one in any order.
        self.likeness[text] = min(likeness, self.likeness.get(text, likeness))

    def _each(self) -> list[bytes]:
        whole = bytes(self.texts)
        return [whole[at : at + WIDTH] for at in range(0, len(whole) - WIDTH + 1, WIDTH)]
