"""When two answers are the same text or nearly the same, and how many kinds that makes."""

from __future__ import annotations

import hashlib
import re
import struct
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

from evalq.evalcore.words import EMPTY_WORDS, against, denials, sides, words_of

if TYPE_CHECKING:
    from numpy import uint32, uint64
    from numpy.typing import NDArray
import bisect
import json
import math
from collections import Counter
from collections.abc import Mapping
from decimal import Decimal
from itertools import combinations
from typing import Any

from evalq.evalcore.records.json_values import NoJson, extract
from evalq.evalcore.words import folded, is_punctuation

# What is kept of a text to tell how near it is to others: facts, words, words that exclude others, and shingles.

SHINGLE = 4
"""Characters of a shingle: any so many that stand next to one another in a text, with a space at either end of it."""
KEPT = 64
"""Hashes that are kept of a text's shingles, the smallest: of shorter texts they are all."""
WORDS = 40
"""Words that are kept of a text, in their order; of a longer one the `WORDS` smallest hashes."""
_SIDES = 24
"""Hashes that are kept of the opposites of a text's words."""
_WHOLE = 1 << 32
_PIECE = 1 << 16
_DIGIT = re.compile(r"\d")
_NUMBER_RUN = re.compile(r"[!-~]*\d[!-~]*")
_PRIME = 0x9E3779B97F4A7C15
_HEAD = struct.Struct("<4s4sHBBB")
# An option's letter, which is none where it is an article or a pronoun: "A" that begins a sentence, and "I".
_LETTER = re.compile(r"(?<![\w'\u2019])(?:[B-HJ-Z]|(?<![.!?]\s)(?<!^)A)(?![\w'\u2019])")
_SIGN = re.compile(r"(?<=\s)[^\w\s]+(?=\s)|^[^\w\s]+(?=\s)|(?<=\s)[^\w\s]+$")


class Sketch(NamedTuple):
    """``numbers`` and ``facts`` stand for what must be equal in near texts: numbers; negations, signs and letters.

    ``words`` are hashes of those that say something, all of them in order where ``whole``; ``sides`` of words within
    others that exclude some, ``against`` of what excludes a word. ``hashes`` are all of the text's shingles' below
    ``limit``, in order.
    """

    numbers: bytes
    facts: bytes
    total: int
    words: tuple[int, ...]
    sides: tuple[int, ...]
    against: tuple[int, ...]
    hashes: tuple[int, ...]
    limit: int

    @property
    def whole(self) -> bool:
        """Whether all of its words are there, in their order."""
        return self.total <= WORDS

    @property
    def numbered(self) -> bool:
        """Whether it has a number."""
        return self.numbers != _digest("")


def sketch(text: str, written: str | None = None) -> bytes:
    """What stands for a normalised text where near ones are one kind; ``written`` is how it was before."""
    words = words_of(text)
    telling = [word for word in words if word not in EMPTY_WORDS]
    kept = [_hash(word) for word in telling]
    if len(kept) > WORDS:
        kept = sorted(set(kept))[:WORDS]
    within = sides(text)
    excluding = {_hash(other) for word in (*telling, *within) for other in against(word)}
    found = [_hash(word) for word in dict.fromkeys(within)][:_SIDES]
    others = sorted(excluding)[:_SIDES]
    # Their ASCII part alone: what Korean joins to a number is a particle, and wording.
    numbers = _NUMBER_RUN.findall(text) if _DIGIT.search(text) else []
    letters = _LETTER.findall(written or "")
    facts = [str(denials(text, text.split(" "))), *_SIGN.findall(text), "", *letters]
    head = _HEAD.pack(
        _digest("\n".join(numbers)),
        _digest("\n".join(facts)),
        min(len(telling), 65535),
        len(kept),
        len(found),
        len(others),
    )
    hashes = kept + found + others
    return head + struct.pack(f"<{len(hashes)}I", *hashes) + _shingles(text)


def _open_sketch(data: bytes) -> Sketch:
    """A sketch that was packed."""
    numbers, facts, total, kept, found, others = _HEAD.unpack_from(data)
    values = struct.unpack(f"<{(len(data) - _HEAD.size) // 4}I", data[_HEAD.size :])
    at = kept + found
    hashes = values[at + others :]
    limit = hashes[KEPT] if len(hashes) > KEPT else _WHOLE
    return Sketch(numbers, facts, total, values[:kept], values[kept:at], values[at : at + others], hashes[:KEPT], limit)


def _digest(text: str) -> bytes:
    return hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=4).digest()


@lru_cache(maxsize=65536)
def _hash(word: str) -> int:
    # Of Korean words the first two syllables: behind these come particles and endings.
    return int.from_bytes(_digest(word[:2] if "\uac00" <= word[:1] <= "\ud7a3" else word), "little")


def _shingles(text: str) -> bytes:
    import numpy as np

    padded = f" {text} "
    width = min(SHINGLE, len(padded))
    least = np.empty(0, np.uint32)
    # Piece by piece, each with what its last shingles need: a long answer must not take forty times its room.
    for start in range(0, len(padded) - width + 1, _PIECE):
        piece = padded[start : start + _PIECE + width - 1].encode("utf-32-le", "surrogatepass")
        hashes = np.sort(np.concatenate((least, _hashes(np.frombuffer(piece, "<u4").astype(np.uint64), width))))
        new = np.concatenate(([True], hashes[1:] != hashes[:-1]))
        least = hashes[new][: KEPT + 1]
    return bytes(least.astype("<u4").tobytes())


def _hashes(codes: NDArray[uint64], width: int) -> NDArray[uint32]:
    """32 bits of each run of ``width`` characters."""
    import numpy as np

    count = len(codes) - width + 1
    mixed = codes[:count]
    for at in range(1, width):
        mixed = mixed * np.uint64(_PRIME) + codes[at : at + count]
    # The finaliser of SplitMix64 (Steele, Lea and Flood 2014): sums of products alone would not be spread evenly.
    mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return (mixed >> np.uint64(32)).astype(np.uint32)


_FEW = 64
"""Texts that are compared with one another without an index of their hashes, which takes ten times their room."""
_FRAME = 0.9
"""A word that so many answers have belongs to their frame, and tells none of them from the others."""
_SLOT = 3
"""Words that an answer may have of its own within a frame that all have."""
_BARE = 2
"""Words of an answer that is no more than a name, without a frame."""
_SHARED = 0.5
"""A word that so many answers have makes it possible that they say one thing."""
_UNRELATED = 0.1
"""Texts of one language that have nothing to do with one another share fewer of their shingles on average."""


def similarity(one: bytes, other: bytes) -> float:
    """The share that two sketched texts have in common of all shingles of either (Jaccard 1901): exact where neither
    has more than `KEPT`, else estimated from those below the least hash that one of them does not keep.

    0 where their facts differ, or one has a word that excludes one of the other.
    """
    mine = _open_sketch(one)
    shared, either = _overlap(mine, frozenset(mine.hashes), _open_sketch(other))
    return shared / either if either else 0.0


def _overlap(one: Sketch, inside: frozenset[int], other: Sketch) -> tuple[int, int]:
    """How many shingles they share, and how many either has, of those below both limits; ``inside`` are ``one``'s."""
    if one.numbers != other.numbers or one.facts != other.facts or _opposed(one, other):
        return 0, 0
    return _shared(one, inside, other)


def _shared(one: Sketch, inside: frozenset[int], other: Sketch) -> tuple[int, int]:
    limit = min(one.limit, other.limit)
    shared = len(inside.intersection(other.hashes))  # what both have is below both limits
    either = bisect.bisect_left(one.hashes, limit) + bisect.bisect_left(other.hashes, limit) - shared
    return shared, either


def _opposed(one: Sketch, other: Sketch) -> bool:
    """Whether one has a word that excludes a word of the other, and not that word as well."""
    if not (one.against or other.against):
        return False
    mine, its = {*one.words, *one.sides}, {*other.words, *other.sides}
    return not (its - mine).isdisjoint(one.against) or not (mine - its).isdisjoint(other.against)


class Residue(NamedTuple):
    """What is left of answers without the words that nearly all have: how many are of the commonest kind.

    ``telling``: whether kinds that differ are surely different answers, and no other wordings of one.
    """

    mode: int
    telling: bool


def _without_frame(sketches: Mapping[bytes, bytes], counts: Mapping[bytes, int]) -> Residue:
    """The answers, whose texts are sketched and came so often, without their frame.

    Two are of one kind where all words are the same that are not in nearly all of them, and so are their facts. An
    answer of frame alone is of the commonest kind with its facts: it says less, and nothing else.
    """
    texts = {text: _open_sketch(sketches[text]) for text in counts if sketches.get(text)}
    answers = sum(counts.values())
    having: Counter[int] = Counter()
    for text, own in texts.items():
        for word in set(own.words):
            having[word] += counts[text]
    frame = {word for word, count in having.items() if count >= _FRAME * answers}
    sizes: Counter[tuple[bytes, bytes, tuple[int, ...]]] = Counter()
    bare: Counter[tuple[bytes, bytes]] = Counter()
    for text, own in texts.items():
        left = tuple(word for word in own.words if word not in frame)
        if left:
            sizes[own.numbers, own.facts, left] += counts[text]
        else:
            bare[own.numbers, own.facts] += counts[text]
    for facts, count in bare.items():
        most = max((key for key in sizes if key[:2] == facts), key=lambda key: (sizes[key], key), default=(*facts, ()))
        sizes[most] += count
    return Residue(max(sizes.values(), default=0), _telling(texts, counts, frame, having))


def _telling(
    texts: Mapping[bytes, Sketch], counts: Mapping[bytes, int], frame: set[int], having: Mapping[int, int]
) -> bool:
    answers = sum(counts.values())
    # One frame around a few words, such as "The answer is ..."; or nothing but these words.
    frames: Counter[tuple[tuple[int, ...], int, int]] = Counter()
    for text, own in texts.items():
        rest = tuple(word for word in own.words if word in frame)
        if own.whole and len(own.words) - len(rest) <= (_SLOT if rest else _BARE):
            # With the place of what is not of the frame: wordings of one thing have it here and there.
            before = next((at for at, word in enumerate(own.words) if word not in frame), len(rest))
            behind = next((at for at, word in enumerate(reversed(own.words)) if word not in frame), len(rest))
            frames[(rest, before, behind) if len(rest) < len(own.words) else (rest, -1, -1)] += counts[text]
    # One of frame alone fits wherever the others have theirs: an option's letter may look like an article.
    bare = {key[0]: count for key, count in frames.items() if key[1] < 0}
    fitting = (count + (bare.get(key[0], 0) if key[1] >= 0 else 0) for key, count in frames.items())
    if max(fitting, default=0) >= _FRAME * answers:
        return True
    # Each has a number, and not the same: 3 days are not 5 days, however one says it.
    numbers: Counter[bytes] = Counter()
    for text, own in texts.items():
        numbers[own.numbers] += counts[text] if own.numbered else answers
    if max(numbers.values(), default=answers) <= answers // 2:
        return True
    # They share no word, and hardly a shingle: what says one thing twice has some of its words twice.
    if max(having.values(), default=0) >= _SHARED * answers:
        return False
    some = [texts[text] for text in sorted(texts)[:_FEW]]
    shares = []
    for one, other in combinations(some, 2):
        shared, either = _shared(one, frozenset(one.hashes), other)
        shares.append(shared / either if either else 1.0)
    return math.fsum(shares) < _UNRELATED * len(shares)


class NearKinds:
    """Answers to one case, counted by kind: texts at least ``alike`` are of one kind, and all that such steps connect.

    So the order in which answers come cannot matter, and another answer can join kinds but never part them. Texts
    without a sketch are kinds by themselves.
    """

    def __init__(self, alike: float) -> None:
        self._alike = alike
        self._sketches: dict[bytes, bytes] = {}
        self._count: Counter[bytes] = Counter()
        self._kind: dict[bytes, bytes] = {}
        self._size: Counter[bytes] = Counter()
        self._having: dict[int, list[bytes]] | None = None
        self.answers = self.mode = 0
        """How many answers there are, and how many are of the commonest kind."""

    def add(self, text: bytes, sketched: bytes, count: int = 1) -> None:
        """Count answers of the text that ``text`` stands for."""
        if text not in self._kind:
            self._enter(text, sketched)
        self._count[text] += count
        self.answers += count
        root = self._root(text)
        self._size[root] += count
        self.mode = max(self.mode, self._size[root])

    def counts(self) -> list[int]:
        """How often each kind came."""
        return list(self._size.values())

    def least_alike(self) -> float | None:
        """How alike the commonest text of the commonest kind is to that of the same kind that is least like it.

        Far below what makes two texts near where steps led from one to the other. None without any answer.
        """
        largest = [text for text in self._kind if self._size[self._root(text)] == self.mode]
        if not largest:
            return None
        first = min(largest, key=lambda text: (-self._count[text], text))
        own = [text for text in largest if self._root(text) == self._root(first) and text != first]
        return min((similarity(self._sketches[first], self._sketches[text]) for text in own), default=1.0)

    def without_frame(self) -> Residue:
        """The same answers without the words that nearly all have."""
        return _without_frame(self._sketches, self._count)

    def _enter(self, text: bytes, sketched: bytes) -> None:
        self._kind[text], self._sketches[text], self._size[text] = text, sketched, 0
        if not sketched:
            return
        mine = _open_sketch(sketched)
        inside = frozenset(mine.hashes)
        for other in self._candidates(text, mine):
            root, own = self._root(other), self._root(text)
            if root == own:
                continue
            shared, either = _overlap(mine, inside, _open_sketch(self._sketches[other]))
            # Rounded: in floats .55 of 100 is a little more than 55, which 55 would not reach.
            if shared and shared >= round(self._alike * either, 9):
                self._kind[own] = root
                self._size[root] += self._size.pop(own)
                self.mode = max(self.mode, self._size[root])

    def _candidates(self, text: bytes, mine: Sketch) -> list[bytes]:
        """Texts that may be near: all, where they are few, else those that have one of the first few hashes, too."""
        if self._having is None:
            if len(self._sketches) <= _FEW:
                return [other for other in self._sketches if other != text]
            self._having = {}
            for other, sketched in self._sketches.items():
                if other != text:
                    self._note(other, _open_sketch(sketched))
        found = {other: None for value in self._first(mine) for other in self._having.get(value, ())}
        self._note(text, mine)
        return list(found)

    def _note(self, text: bytes, found: Sketch) -> None:
        if self._having is not None:
            for value in self._first(found):
                self._having.setdefault(value, []).append(text)

    def _first(self, found: Sketch) -> tuple[int, ...]:
        """Of two sets that share so much, one of these is in both: else too few in order were left."""
        many = len(found.hashes)
        return found.hashes[: many - math.ceil(round(self._alike * many, 9)) + 1]

    def _root(self, text: bytes) -> bytes:
        while self._kind[text] != text:
            # Shortened on the way (path halving): thousands of texts may be connected one by one.
            self._kind[text] = self._kind[self._kind[text]]
            text = self._kind[text]
        return text


# When two answers are the same text: what stands for an answer where kinds of answers are counted.

WIDTH = 8
"""Bytes that stand for a text: of a thousand different ones two are taken for one with a chance of 3 in 10^14."""
_SIGNS = frozenset("-.")
_KEPT_BEHIND, _KEPT_BEFORE = frozenset("#%]}"), frozenset("%[{")
# Between words they are punctuation of a sentence, which French sets apart, and which some write as dashes.
_OF_SENTENCES = frozenset(".,;:!?\u2026\u3001\u3002\"'`\u00ab\u00bb\u2018\u2019\u201c\u201d\u201e()\u2022\u00b7")
_DASHES = frozenset("-\u2010\u2011\u2012\u2013\u2014\u2212")
_SHORT = 40
_PLANES = 0x20000
"""Unicode has no punctuation beyond its first two planes."""
# A number by itself, or with signs around it; 007 and 1.2.3 are names, and so is what has letters before it.
_NUMERAL = re.compile(
    r"(?<![\w.,])(?P<whole>0|[1-9]\d{0,2}(?:,\d{3})+|[1-9]\d*)(?P<part>\.\d+)?(?:e(?P<power>[-+]?\d{1,2}))?(?![\d.,]*\d)"
)


def normal(text: str) -> str:
    """NFKC, casefolded, white space collapsed, and no punctuation around words; unless there is nothing else.

    Punctuation inside a word stays (3.5, don't), and so do the sign or point before a number (-5, .5), # and % behind a
    word (C# is not C, and 5% is not 5), and square and curly brackets ([a] is not a). So does what stands by itself and
    is no punctuation of sentences: 10 - 2, 10 * 2 and 10 / 2 are three. A backtick is taken for a quotation mark, a
    curly apostrophe for a straight one. Numbers are by value (1,000.0 is 1000), and so is JSON, its keys in any order.
    """
    if text.strip()[:1] in ("{", "[") and (plain := _plain_json(text)) is not None:
        return plain
    # What begins an item of a list or a heading.
    whole = folded(_BULLET.sub("", text)).replace("\N{RIGHT SINGLE QUOTATION MARK}", "'")
    given = whole.split()
    # Most words come again and again; long ones are not kept, as they may be as long as the answer.
    words = [_bare(word) if len(word) <= _SHORT else _stripped(word) for word in given]
    for at, word in enumerate(words):
        if not word and not _is_sentence(given, at):
            words[at] = given[at]
    said = " ".join(filter(None, words)) or whole
    return _NUMERAL.sub(_by_value, said)


_BULLET = re.compile(r"^[ \t]*(?:[-*+\u2022\u2013]|#{1,6})(?=[ \t])", re.MULTILINE)


def _is_sentence(words: list[str], at: int) -> bool:
    """Whether a word of punctuation alone is a sentence's; a dash is an operator beside a number."""
    if all(sign in _OF_SENTENCES for sign in words[at]):
        return True
    if not all(sign in _DASHES for sign in words[at]):
        return False
    beside = words[max(0, at - 1) : at] + words[at + 1 : at + 2]
    return not any(any(map(str.isdigit, word)) or len(word) == 1 for word in beside)


def _by_value(found: re.Match[str]) -> str:
    whole, part, power = found["whole"].replace(",", ""), found["part"] or "", found["power"]
    if power is not None:
        return f"{Decimal(f'{whole}{part}e{power}').normalize():f}"
    part = part.rstrip("0")
    return whole + ("" if part == "." else part)


def _plain_json(text: str) -> str | None:
    """What stands for text that is a JSON object or list; None where it is none."""
    try:
        value = extract(text)
    except NoJson:
        return None
    return (
        json.dumps(_plain_value(value), ensure_ascii=False, sort_keys=True) if isinstance(value, dict | list) else None
    )


def _plain_value(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _plain_value(held) for key, held in value.items()}
    if isinstance(value, list):
        return [_plain_value(held) for held in value]
    if isinstance(value, str):
        return normal(value)
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _stripped(word: str) -> str:
    """A word without the punctuation around it."""
    marks = _marks()
    start, end = 0, len(word)
    while end and word[end - 1] in marks and word[end - 1] not in _KEPT_BEHIND:
        end -= 1
    while start < end and word[start] in marks and word[start] not in _KEPT_BEFORE:
        start += 1
    if start and start < end and word[start].isdigit() and word[start - 1] in _SIGNS:
        start -= 1
    bare = word[start:end]
    return "" if all(sign in marks for sign in bare) and all(sign not in "[]{}" for sign in bare) else bare


_bare = lru_cache(maxsize=65536)(_stripped)


def kind_of_text(text: str) -> bytes:
    """What stands for a normalised text: the first `WIDTH` bytes of its BLAKE2b."""
    return hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=WIDTH).digest()


@lru_cache(maxsize=1)
def _marks() -> frozenset[str]:
    return frozenset(filter(is_punctuation, map(chr, range(_PLANES)))) | {"`"}
