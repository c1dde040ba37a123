"""Normalise answers, sketch them, and group near ones to kinds."""

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

# The sketch of a text, to compare it with others: facts, words, words that exclude others, and shingles.

SHINGLE = 4
"""Characters of a shingle: every run of this length in a text with a space at either end."""
KEPT = 64
"""The smallest hashes of shingles that a sketch keeps; short texts keep all."""
WORDS = 40
"""Words that a sketch keeps in order; of a longer text, the `WORDS` smallest hashes."""
_SIDES = 24
"""Hashes that a sketch keeps of the opposites of words."""
_WHOLE = 1 << 32
_PIECE = 1 << 16
_DIGIT = re.compile(r"\d")
_NUMBER_RUN = re.compile(r"[!-~]*\d[!-~]*")
_PRIME = 0x9E3779B97F4A7C15
_HEAD = struct.Struct("<4s4sHBBB")
# The letter of an option; not an article or a pronoun: "A" at the start of a sentence, and "I".
_LETTER = re.compile(r"(?<![\w'\u2019])(?:[B-HJ-Z]|(?<![.!?]\s)(?<!^)A)(?![\w'\u2019])")
_SIGN = re.compile(r"(?<=\s)[^\w\s]+(?=\s)|^[^\w\s]+(?=\s)|(?<=\s)[^\w\s]+$")


class Sketch(NamedTuple):
    """``numbers`` and ``facts`` are digests that must be equal in near texts: numbers; negations, signs and letters.

    ``words`` are hashes of content words, all of them in order if ``whole``; ``sides`` those of words inside others
    that exclude some, ``against`` those of words that exclude a word. ``hashes`` are those of all shingles below
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
        """Whether the sketch has all words, in order."""
        return self.total <= WORDS

    @property
    def numbered(self) -> bool:
        """Whether the text has a number."""
        return self.numbers != _digest("")


def sketch(text: str, written: str | None = None) -> bytes:
    """The sketch of a normalised text; ``written`` is the text before normalisation."""
    words = words_of(text)
    telling = [word for word in words if word not in EMPTY_WORDS]
    word_hashes = [_hash(word) for word in telling]
    if len(word_hashes) > WORDS:
        word_hashes = sorted(set(word_hashes))[:WORDS]
    side_words = sides(text)
    excluding = {_hash(other) for word in (*telling, *side_words) for other in against(word)}
    side_hashes = [_hash(word) for word in dict.fromkeys(side_words)][:_SIDES]
    excluding_hashes = sorted(excluding)[:_SIDES]
    # Only the ASCII part: Korean joins particles to a number, which are wording.
    numbers = _NUMBER_RUN.findall(text) if _DIGIT.search(text) else []
    letters = _LETTER.findall(written or "")
    facts = [str(denials(text, text.split(" "))), *_SIGN.findall(text), "", *letters]
    head = _HEAD.pack(
        _digest("\n".join(numbers)),
        _digest("\n".join(facts)),
        min(len(telling), 65535),
        len(word_hashes),
        len(side_hashes),
        len(excluding_hashes),
    )
    hashes = word_hashes + side_hashes + excluding_hashes
    return head + struct.pack(f"<{len(hashes)}I", *hashes) + _shingles(text)


def _unpack_sketch(data: bytes) -> Sketch:
    """The sketch from its packed bytes."""
    numbers, facts, total, kept, sides, excluding = _HEAD.unpack_from(data)
    values = struct.unpack(f"<{(len(data) - _HEAD.size) // 4}I", data[_HEAD.size :])
    at = kept + sides
    hashes = values[at + excluding :]
    limit = hashes[KEPT] if len(hashes) > KEPT else _WHOLE
    return Sketch(
        numbers, facts, total, values[:kept], values[kept:at], values[at : at + excluding], hashes[:KEPT], limit
    )


def _digest(text: str) -> bytes:
    return hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=4).digest()


@lru_cache(maxsize=65536)
def _hash(word: str) -> int:
    # The first two syllables of Korean words: particles and endings follow.
    return int.from_bytes(_digest(word[:2] if "\uac00" <= word[:1] <= "\ud7a3" else word), "little")


def _shingles(text: str) -> bytes:
    import numpy as np

    padded = f" {text} "
    width = min(SHINGLE, len(padded))
    least = np.empty(0, np.uint32)
    # In overlapping pieces, since all at once would take forty times the memory of a long answer.
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
    # The finaliser of SplitMix64 (Steele, Lea and Flood 2014) spreads the sums of products evenly.
    mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return (mixed >> np.uint64(32)).astype(np.uint32)


_COMPARE_ALL = 64
"""Up to this many texts are compared without an index of hashes, which takes ten times their memory."""
_FRAME = 0.9
"""The share of answers with a word from which on the word belongs to their frame."""
_FRAME_SLOT = 3
"""The most words of an answer inside of a shared frame."""
_NAME_WORDS = 2
"""The most words of an answer that is only a name, without a frame."""
_SHARED = 0.5
"""The share of answers with a word from which on they may say the same thing."""
_UNRELATED = 0.1
"""Unrelated texts of one language share less of their shingles than this, on average."""


def similarity(one: bytes, other: bytes) -> float:
    """The share of shingles that two sketched texts have in common (Jaccard 1901). It is exact if neither has more than
    `KEPT`, else estimated from those below the lowest hash that one of them does not keep.

    It is 0 if their facts differ, or a word of one excludes a word of the other.
    """
    sketch_of_one = _unpack_sketch(one)
    shared, either = _overlap(sketch_of_one, frozenset(sketch_of_one.hashes), _unpack_sketch(other))
    return shared / either if either else 0.0


def _overlap(one: Sketch, inside: frozenset[int], other: Sketch) -> tuple[int, int]:
    """The numbers of shared shingles and of all, below both limits; ``inside`` are ``one``'s. 0 for other facts."""
    if one.numbers != other.numbers or one.facts != other.facts or _exclude_each_other(one, other):
        return 0, 0
    return _shared(one, inside, other)


def _shared(one: Sketch, inside: frozenset[int], other: Sketch) -> tuple[int, int]:
    limit = min(one.limit, other.limit)
    shared = len(inside.intersection(other.hashes))  # shared hashes are below both limits
    either = bisect.bisect_left(one.hashes, limit) + bisect.bisect_left(other.hashes, limit) - shared
    return shared, either


def _exclude_each_other(one: Sketch, other: Sketch) -> bool:
    """Whether a word of one, which does not have both, excludes a word of the other."""
    if not (one.against or other.against):
        return False
    of_one, of_other = {*one.words, *one.sides}, {*other.words, *other.sides}
    return not (of_other - of_one).isdisjoint(one.against) or not (of_one - of_other).isdisjoint(other.against)


class Residue(NamedTuple):
    """Answers without the words that nearly all have: ``mode`` is the number of answers of the commonest kind.

    ``telling``: whether different kinds are certainly different answers, not wordings of one.
    """

    mode: int
    telling: bool


def _without_frame(sketches: Mapping[bytes, bytes], counts: Mapping[bytes, int]) -> Residue:
    """The answers, with the sketch and the count of each text, without their frame.

    Two are of one kind if their facts and all words outside of the frame are equal. An answer without other words
    belongs to the commonest kind with its facts.
    """
    texts = {text: _unpack_sketch(sketches[text]) for text in counts if sketches.get(text)}
    answers = sum(counts.values())
    having: Counter[int] = Counter()
    for text, sketched in texts.items():
        for word in set(sketched.words):
            having[word] += counts[text]
    frame = {word for word, count in having.items() if count >= _FRAME * answers}
    sizes: Counter[tuple[bytes, bytes, tuple[int, ...]]] = Counter()
    frame_only: Counter[tuple[bytes, bytes]] = Counter()
    for text, sketched in texts.items():
        remaining = tuple(word for word in sketched.words if word not in frame)
        if remaining:
            sizes[sketched.numbers, sketched.facts, remaining] += counts[text]
        else:
            frame_only[sketched.numbers, sketched.facts] += counts[text]
    for facts, count in frame_only.items():
        most = max((key for key in sizes if key[:2] == facts), key=lambda key: (sizes[key], key), default=(*facts, ()))
        sizes[most] += count
    return Residue(max(sizes.values(), default=0), _is_telling(texts, counts, frame, having))


def _is_telling(
    texts: Mapping[bytes, Sketch], counts: Mapping[bytes, int], frame: set[int], having: Mapping[int, int]
) -> bool:
    answers = sum(counts.values())
    # First: one frame around a few words, such as "The answer is ...", or only these words.
    frames: Counter[tuple[tuple[int, ...], int, int]] = Counter()
    for text, sketched in texts.items():
        rest = tuple(word for word in sketched.words if word in frame)
        if sketched.whole and len(sketched.words) - len(rest) <= (_FRAME_SLOT if rest else _NAME_WORDS):
            # With the position of the other words: wordings of one statement have them in different positions.
            before = next((at for at, word in enumerate(sketched.words) if word not in frame), len(rest))
            behind = next((at for at, word in enumerate(reversed(sketched.words)) if word not in frame), len(rest))
            frames[(rest, before, behind) if len(rest) < len(sketched.words) else (rest, -1, -1)] += counts[text]
    # An answer of only the frame fits any position: the letter of an option may look like an article.
    frame_only = {key[0]: count for key, count in frames.items() if key[1] < 0}
    fitting = (count + (frame_only.get(key[0], 0) if key[1] >= 0 else 0) for key, count in frames.items())
    if max(fitting, default=0) >= _FRAME * answers:
        return True
    # Second: each has a number, and they differ: 3 days are not 5 days in any wording.
    numbers: Counter[bytes] = Counter()
    for text, sketched in texts.items():
        numbers[sketched.numbers] += counts[text] if sketched.numbered else answers
    if max(numbers.values(), default=answers) <= answers // 2:
        return True
    # Third: they share no word, and few shingles: two wordings of one statement share some words.
    if max(having.values(), default=0) >= _SHARED * answers:
        return False
    sample = [texts[text] for text in sorted(texts)[:_COMPARE_ALL]]
    shares = []
    for one, other in combinations(sample, 2):
        shared, either = _shared(one, frozenset(one.hashes), other)
        shares.append(shared / either if either else 1.0)
    return math.fsum(shares) < _UNRELATED * len(shares)


class NearKinds:
    """Answers to one case by kind: texts at least ``alike`` are of one kind, also through others.

    So the order of answers does not matter, and another answer can join kinds but never split them. A text without a
    sketch is a kind by itself.
    """

    def __init__(self, alike: float) -> None:
        self._alike = alike
        self._sketches: dict[bytes, bytes] = {}
        self._count: Counter[bytes] = Counter()
        self._kind: dict[bytes, bytes] = {}
        self._size: Counter[bytes] = Counter()
        self._having: dict[int, list[bytes]] | None = None
        self.answers = self.mode = 0
        """The number of answers, and of those of the commonest kind."""

    def add(self, text: bytes, sketched: bytes, count: int = 1) -> None:
        """Count answers of the text with digest ``text``."""
        if text not in self._kind:
            self._add_text(text, sketched)
        self._count[text] += count
        self.answers += count
        root = self._root(text)
        self._size[root] += count
        self.mode = max(self.mode, self._size[root])

    def counts(self) -> list[int]:
        """The number of answers of each kind."""
        return list(self._size.values())

    def least_alike(self) -> float | None:
        """The lowest similarity of the commonest text to others of the commonest kind; None without answers.

        It is far below ``alike`` if the kind is a chain of near texts.
        """
        largest = [text for text in self._kind if self._size[self._root(text)] == self.mode]
        if not largest:
            return None
        first = min(largest, key=lambda text: (-self._count[text], text))
        others = [text for text in largest if self._root(text) == self._root(first) and text != first]
        return min((similarity(self._sketches[first], self._sketches[text]) for text in others), default=1.0)

    def without_frame(self) -> Residue:
        """The answers without the words that nearly all have."""
        return _without_frame(self._sketches, self._count)

    def _add_text(self, text: bytes, sketched: bytes) -> None:
        self._kind[text], self._sketches[text], self._size[text] = text, sketched, 0
        if not sketched:
            return
        mine = _unpack_sketch(sketched)
        inside = frozenset(mine.hashes)
        for other in self._candidates(text, mine):
            root, text_root = self._root(other), self._root(text)
            if root == text_root:
                continue
            shared, either = _overlap(mine, inside, _unpack_sketch(self._sketches[other]))
            # Rounded: in floats, .55 of 100 is a little more than 55.
            if shared and shared >= round(self._alike * either, 9):
                self._kind[text_root] = root
                self._size[root] += self._size.pop(text_root)
                self.mode = max(self.mode, self._size[root])

    def _candidates(self, text: bytes, mine: Sketch) -> list[bytes]:
        """Texts that may be near: all if they are few, else those that share one of the first hashes."""
        if self._having is None:
            if len(self._sketches) <= _COMPARE_ALL:
                return [other for other in self._sketches if other != text]
            self._having = {}
            for other, sketched in self._sketches.items():
                if other != text:
                    self._index_text(other, _unpack_sketch(sketched))
        candidates = {other: None for value in self._first(mine) for other in self._having.get(value, ())}
        self._index_text(text, mine)
        return list(candidates)

    def _index_text(self, text: bytes, sketched: Sketch) -> None:
        if self._having is not None:
            for value in self._first(sketched):
                self._having.setdefault(value, []).append(text)

    def _first(self, sketched: Sketch) -> tuple[int, ...]:
        """The first hashes; of two near texts, at least one is in both, or too few would be left to share."""
        many = len(sketched.hashes)
        return sketched.hashes[: many - math.ceil(round(self._alike * many, 9)) + 1]

    def _root(self, text: bytes) -> bytes:
        while self._kind[text] != text:
            # Path halving, since thousands of texts may form a chain.
            self._kind[text] = self._kind[self._kind[text]]
            text = self._kind[text]
        return text


# Normalising an answer, and the digest of the result.

WIDTH = 8
"""Bytes of a digest: among a thousand texts, the chance that two share one is 3 in 10^14."""
_SIGNS = frozenset("-.")
_KEPT_AFTER, _KEPT_BEFORE = frozenset("#%]}"), frozenset("%[{")
# Punctuation of a sentence between words; French has spaces around it.
_OF_SENTENCES = frozenset(".,;:!?\u2026\u3001\u3002\"'`\u00ab\u00bb\u2018\u2019\u201c\u201d\u201e()\u2022\u00b7")
_DASHES = frozenset("-\u2010\u2011\u2012\u2013\u2014\u2212")
_SHORT = 40
_PLANES = 0x20000
"""Unicode has no punctuation beyond its first two planes."""
# A number by itself, or with signs around it; 007, 1.2.3 and words with letters before digits are names.
_NUMERAL = re.compile(
    r"(?<![\w.,])(?P<whole>0|[1-9]\d{0,2}(?:,\d{3})+|[1-9]\d*)(?P<part>\.\d+)?(?:e(?P<power>[-+]?\d{1,2}))?(?![\d.,]*\d)"
)


def normal(text: str) -> str:
    """NFKC, casefolded, white space collapsed, and no punctuation around words; unless there is nothing else.

    These stay: punctuation inside a word (3.5, don't), the sign or point before a number (-5, .5), # and % after a word
    (C# is not C, and 5% is not 5), square and curly brackets ([a] is not a), and single signs that do not punctuate a
    sentence (10 - 2, 10 * 2 and 10 / 2 differ). A backtick counts as a quotation mark, a curly apostrophe as a straight
    one. Numbers are by value (1,000.0 is 1000), and so is JSON, with keys in any order.
    """
    if text.strip()[:1] in ("{", "[") and (normal_json := _normal_json(text)) is not None:
        return normal_json
    # Without the marks of list items and headings.
    text_folded = folded(_BULLET.sub("", text)).replace("\N{RIGHT SINGLE QUOTATION MARK}", "'")
    written = text_folded.split()
    # Most words repeat, so short ones are cached; a long one may be as long as the answer.
    words = [_strip_cached(word) if len(word) <= _SHORT else _strip(word) for word in written]
    for at, word in enumerate(words):
        if not word and not _is_sentence_sign(written, at):
            words[at] = written[at]
    joined = " ".join(filter(None, words)) or text_folded
    return _NUMERAL.sub(_format_value, joined)


_BULLET = re.compile(r"^[ \t]*(?:[-*+\u2022\u2013]|#{1,6})(?=[ \t])", re.MULTILINE)


def _is_sentence_sign(words: list[str], at: int) -> bool:
    """Whether a word of only punctuation belongs to a sentence; a dash next to a number is an operator."""
    if all(sign in _OF_SENTENCES for sign in words[at]):
        return True
    if not all(sign in _DASHES for sign in words[at]):
        return False
    beside = words[max(0, at - 1) : at] + words[at + 1 : at + 2]
    return not any(any(map(str.isdigit, word)) or len(word) == 1 for word in beside)


def _format_value(match: re.Match[str]) -> str:
    whole, part, power = match["whole"].replace(",", ""), match["part"] or "", match["power"]
    if power is not None:
        return f"{Decimal(f'{whole}{part}e{power}').normalize():f}"
    part = part.rstrip("0")
    return whole + ("" if part == "." else part)


def _normal_json(text: str) -> str | None:
    """The normal form of a text that is a JSON object or list; None for other texts."""
    try:
        value = extract(text)
    except NoJson:
        return None
    return (
        json.dumps(_normal_value(value), ensure_ascii=False, sort_keys=True) if isinstance(value, dict | list) else None
    )


def _normal_value(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _normal_value(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [_normal_value(inner) for inner in value]
    if isinstance(value, str):
        return normal(value)
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _strip(word: str) -> str:
    """A word without the punctuation around it."""
    marks = _marks()
    start, end = 0, len(word)
    while end and word[end - 1] in marks and word[end - 1] not in _KEPT_AFTER:
        end -= 1
    while start < end and word[start] in marks and word[start] not in _KEPT_BEFORE:
        start += 1
    if start and start < end and word[start].isdigit() and word[start - 1] in _SIGNS:
        start -= 1
    stripped = word[start:end]
    return "" if all(sign in marks for sign in stripped) and all(sign not in "[]{}" for sign in stripped) else stripped


_strip_cached = lru_cache(maxsize=65536)(_strip)


def kind_of_text(text: str) -> bytes:
    """The digest of a normalised text: `WIDTH` bytes of BLAKE2b."""
    return hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=WIDTH).digest()


@lru_cache(maxsize=1)
def _marks() -> frozenset[str]:
    return frozenset(filter(is_punctuation, map(chr, range(_PLANES)))) | {"`"}
