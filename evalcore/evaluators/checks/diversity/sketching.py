"""What is kept of a text to tell how near it is to others: facts, words, words that exclude others, and shingles."""

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

__all__ = ["KEPT", "SHINGLE", "WORDS", "Sketch", "opened", "sketch"]

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
_NUMBER = re.compile(r"[!-~]*\d[!-~]*")
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
    numbers = _NUMBER.findall(text) if _DIGIT.search(text) else []
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


def opened(data: bytes) -> Sketch:
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
