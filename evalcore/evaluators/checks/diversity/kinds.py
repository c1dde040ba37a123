"""Answers of a case by kind: by their text, by an embedder's vectors, by a judge of pairs."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Annotated, Any, NamedTuple, Self

import msgspec

from evalq.evalcore.evaluators.checks.answer import LONGEST, Misplaced, Unreadable, Vote, about
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


def _embedding_of(record: Mapping[str, Any], text: bytes) -> Embedding | None:
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


def _vector_of(found: Embedding) -> bytes:
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


# Kinds of answers by a judge: of pairs of a case's answers, repeats 0 and 1, 2 and 3, it says whether both are one.
# No answer is in two pairs, so pairs are independent, and the share that says the same is the chance P that two
# answers are of one kind. With m the share of the commonest kind, m^2 <= P <= m: m^2 is what this kind alone adds to
# P, and the sum of p_k^2 is at most m times the sum of p_k. So a bound of P is one of m, exact for any number of
# pairs, up to what the judge gets wrong.

_LEFT_OUT = ("undecided", "unreadable", "failed", "not_asked")
_SAID = {True: "same", False: "different", None: "undecided"}


class PairHalf(NamedTuple):
    """One answer of a pair. ``text`` stands for it, ``other`` for the text that it was compared with, where it was.

    ``said`` is what the judge found: same, different, undecided, unreadable or failed; empty where none was asked, and
    for the second answer of a pair, whose record says nothing of it.
    """

    repeat: int
    text: str
    other: str = ""
    said: str = ""


def about_pair(text: str, other: str) -> str:
    """The digests of both texts of a pair."""
    return f"{about(text)}.{about(other)}"


def _prompt(asked: str | None, answer: str, other: str, order: int) -> Asked:
    texts = {"first": answer, "second": other}
    return written(SAME, texts if asked is None else {**texts, "input": asked})


def _same_of(reply: dict[str, Any]) -> bool | None:
    same = reply.get("same", "")
    if same is not None and not isinstance(same, bool):
        raise Unreadable('no "same" that is true, false or null')
    return same


PAIR = JudgeQuestion("same-answers", "", 1, 1, SAME.digest, _prompt, _same_of)
"""What is asked about a pair. Once: that two texts say the same does not go by which is read first."""


def half_of(text: str, repeat: int, votes: Iterable[Vote]) -> PairHalf:
    """The answer of a repeat with what was recorded of its pair."""
    own = about(text)
    if repeat % 2:
        return PairHalf(repeat, own)
    # Of this very text: what was said of an answer that was changed since says nothing of this one.
    found = [vote for vote in votes if vote.check == PAIR.key and vote.about.partition(".")[0] == own]
    if not found or len(text) > LONGEST:
        return PairHalf(repeat, own)
    # As for checks: votes of two judges are no verdict.
    said = _said(found[0]) if len({vote.judge for vote in found}) == 1 else "unreadable"
    return PairHalf(repeat, own, found[0].about.partition(".")[2], said)


def _said(vote: Vote) -> str:
    if vote.failed:
        return "failed"
    try:
        return _SAID[vote.read(PAIR.read)]
    except Unreadable:
        return "unreadable"


def by_judge(halves: Sequence[PairHalf], share: float, planned: int) -> dict[str, Json]:
    """``by_judge`` of a case: its pairs, the chance that two answers say the same, the verdict on ``share`` by that.

    A pair without a verdict counts against either: in the lower bound as different, in the upper one as the same. So no
    answer can turn a verdict by what it keeps its judge from saying. Where the case could stop early (``planned`` calls
    being the most) the bounds hold at every number of pairs.
    """
    said, unpaired = _counted(halves)
    same, read, every = said["same"], said["same"] + said["different"], said.total()
    bounds: Callable[[int, int], tuple[float, float]] = rate_sequence if planned else exact_interval
    low = bounds(same, every)[0] if read else None
    high = bounds(same + every - read, every)[1] if read else None
    verdict = "no_repeats" if len(halves) == 1 else "no_data"
    if low is not None and high is not None:
        verdict = "collapsed" if low > share else "diverse" if high < share * share else "inconclusive"
    return {
        "verdict": verdict,
        "pairs": read,
        "same": same,
        "collision_probability": {"value": same / read if read else None, "low": low, "high": high},
        "left_out": {name: said[name] for name in _LEFT_OUT} | {"unpaired": unpaired},
    }


def _counted(halves: Sequence[PairHalf]) -> tuple[Counter[str], int]:
    """How many pairs have which verdict, and how many answers have no other."""
    places: dict[int, tuple[list[PairHalf], Counter[str]]] = {}
    for half in sorted(halves):
        firsts, seconds = places.setdefault(half.repeat // 2, ([], Counter()))
        if half.repeat % 2:
            seconds[half.text] += 1
        else:
            firsts.append(half)
    said, unpaired = Counter[str](), 0
    for firsts, seconds in places.values():
        # Several of one repeat come of several inputs, each with pairs of its own.
        pairs, known = min(len(firsts), seconds.total()), 0
        unpaired += len(firsts) + seconds.total() - 2 * pairs
        for half in firsts:
            if half.said and seconds[half.other]:
                seconds[half.other] -= 1
                said[half.said] += 1
                known += 1
        said["not_asked"] += pairs - known
    return said, unpaired


# What stands for an answer where answers are counted by kind.


class AnswerMark(NamedTuple):
    """``text`` stands for the normalised text, empty where answers are not counted by kind; ``likeness`` is what tells
    how near it is to others (a sketch, a vector), where that is asked. ``embedder`` is whose vector it is.

    ``lacks``: by its vector, and there is none. ``half`` is what a judge of pairs is to say of it, or said.
    """

    text: bytes = b""
    likeness: bytes = b""
    embedder: str = ""
    lacks: bool = False
    half: PairHalf | None = None


NOT_COUNTED = AnswerMark()


def mark_of(answer: str, how: Diversity | None, record: Mapping[str, Any]) -> AnswerMark:
    """What stands for the text of an answer, ``record`` being the line that it is in. Raises Misplaced."""
    if how is None:
        return NOT_COUNTED
    whole = normal(answer)
    text = kind_of_text(whole)
    if how.by == "near":
        return AnswerMark(text, sketch(whole, answer))
    if how.by == "text" or not whole:
        return AnswerMark(text)  # nobody has a vector for nothing: it is a kind by itself
    found = _embedding_of(record, text)
    return AnswerMark(text, lacks=True) if found is None else AnswerMark(text, _vector_of(found), found.embedder)


# The answers to one case as they are counted by kind: what a chunk keeps of them, merged without loss.

MOST_REPEATS = 1000
"""Answers of the repeats from 0 below this are counted by kind: so a case keeps no more than so many, in any cut."""


class KindCounts(Merging, array_like=True):
    """``texts`` has `WIDTH` bytes an answer, one behind the other; ``left_out`` is how many repeats were too high.

    ``likeness`` has what tells how near texts are (a sketch, a vector), by their bytes in hexadecimal, where near ones
    are one kind; ``without`` is how many answers are not counted since they have no vector,
    ``embedders`` how many vectors are whose. ``halves`` has the answers of which a judge compares pairs.
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
        # Not a kind of its own: answers that an embedder failed on would look like so many different ones.
        elif mark.lacks:
            self.without += 1
        else:
            self.texts += mark.text
            if mark.likeness:
                self._keep(mark.text.hex(), mark.likeness)
            if mark.embedder:
                self.embedders[mark.embedder] = self.embedders.get(mark.embedder, 0) + 1

    def merge(self, later: Self) -> None:
        """Take in the answers of later lines."""
        self.texts += later.texts
        self.left_out += later.left_out
        self.without += later.without
        self.halves += later.halves
        for embedder, count in later.embedders.items():
            self.embedders[embedder] = self.embedders.get(embedder, 0) + count
        for text, likeness in later.likeness.items():
            self._keep(text, likeness)

    def sort(self) -> None:
        """Bring the answers into the one order of their bytes, whatever order they came in."""
        self.texts = bytearray(b"".join(sorted(self._each())))
        self.likeness = dict(sorted(self.likeness.items()))
        self.embedders = dict(sorted(self.embedders.items()))
        self.halves.sort()

    def counts(self) -> Counter[bytes]:
        """How often each text came."""
        return Counter(self._each())

    def kinds(self, how: Diversity) -> NearKinds | VectorKinds:
        """The answers by kind, near texts being one."""
        counts = dict(sorted(self.counts().items()))
        likeness = {bytes.fromhex(text): data for text, data in self.likeness.items()}
        if how.by == "embedding":
            return VectorKinds(counts, likeness, how.similarity)
        found = NearKinds(how.similarity)
        for text, count in counts.items():
            found.add(text, likeness.get(text, b""), count)
        return found

    def _keep(self, text: str, likeness: bytes) -> None:
        # Of two for one text, as two embedders give, the order must not decide.
        self.likeness[text] = min(likeness, self.likeness.get(text, likeness))

    def _each(self) -> list[bytes]:
        whole = bytes(self.texts)
        return [whole[at : at + WIDTH] for at in range(0, len(whole) - WIDTH + 1, WIDTH)]
