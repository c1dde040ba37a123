"""A chunk's digest: the same by each of three ways, and another one for any bytes that are not those planned."""

from __future__ import annotations

import hashlib
import random
import struct
import sys

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from evalq.evalcore.native import compiled
from evalq.evalcore.records import digests
from evalq.evalcore.records.digests import LEAF_BYTES, leaf_digest, leaf_sums, plainly, quickly

_LENGTHS = st.integers(0, 9) | st.integers(LEAF_BYTES - 9, LEAF_BYTES + 9) | st.integers(0, 3 * LEAF_BYTES)


def _data(length: int, seed: int) -> bytes:
    return random.Random(seed).randbytes(length)


@settings(max_examples=150)
@given(_LENGTHS, st.integers(0, 1 << 32))
def test_three_ways_have_the_same_sums(length: int, seed: int) -> None:
    """Compiled code, numpy and Python alone, whatever the length is to a leaf's."""
    data = _data(length, seed)
    assert leaf_sums(data) == quickly(data) == plainly(data)
    assert leaf_sums(memoryview(bytearray(data))) == plainly(data)
    if (native := compiled()) is not None:
        assert native.leaf_sums(digests._key(), data, True) == plainly(data)


@pytest.mark.parametrize("byte", [0, 255])
def test_the_ends_of_what_a_word_can_be(byte: int) -> None:
    """Sums that wrap around as often as they can, over more leaves than numpy takes at once."""
    data = bytes([byte]) * (1025 * LEAF_BYTES + 1)
    assert leaf_sums(data) == quickly(data)
    assert leaf_sums(data[: 2 * LEAF_BYTES]) == plainly(data[: 2 * LEAF_BYTES])


def test_a_digest_is_what_its_description_says() -> None:
    """Written down once more, from the words of the docstring."""
    data = b"Query ID\r\nQ1\r\n" * 300
    numbers = struct.unpack("<1024Q", hashlib.shake_128(b"evalq leaf digest, 1").digest(8192))
    padded, sums = data + bytes(-len(data) % 2048), b""
    for start in range(0, len(padded), 2048):
        words = struct.unpack("<512I", padded[start : start + 2048])
        for key in (numbers[:512], numbers[512:]):
            sums += (sum(w * k for w, k in zip(words, key, strict=True)) % 2**64).to_bytes(8, "little")
    assert leaf_digest(data) == hashlib.sha256(sums + len(data).to_bytes(8, "little")).hexdigest()
    assert leaf_digest(b"") == hashlib.sha256(bytes(8)).hexdigest()


def test_without_compiled_code(monkeypatch: pytest.MonkeyPatch) -> None:
    """The same digests, of a short chunk and of one that is long enough for numpy."""
    short, long = _data(5000, 1), _data(digests.PLAIN_BYTES + 1, 2)
    before = leaf_digest(short), leaf_digest(long)
    monkeypatch.setattr(digests, "compiled", lambda: None)
    assert (leaf_digest(short), leaf_digest(long)) == before
    monkeypatch.delitem(sys.modules, "numpy", raising=False)
    assert leaf_digest(short) == before[0]


@settings(max_examples=300)
@given(_LENGTHS, st.integers(0, 1 << 32), st.data())
def test_other_bytes_have_another_digest(length: int, seed: int, drawn: st.DataObject) -> None:
    """Bits that flipped, an end that is missing or zeros, bytes more, pieces that changed places."""
    data = _data(length, seed)
    other = bytearray(data)
    match drawn.draw(st.sampled_from(["flip", "cut", "blank", "grow", "swap", "shift"])):
        case "flip":
            for at in drawn.draw(st.lists(st.integers(0, max(0, length - 1)), max_size=4)):
                other[at : at + 1] = bytes(b ^ 1 << drawn.draw(st.integers(0, 7)) for b in other[at : at + 1])
        case "cut":
            del other[drawn.draw(st.integers(0, length)) :]
        case "blank":
            start = drawn.draw(st.integers(0, length))
            other[start:] = bytes(length - start)
        case "grow":
            other += bytes(drawn.draw(st.integers(1, 2 * LEAF_BYTES)))
        case "swap":
            size = drawn.draw(st.sampled_from([4, 8, 512, LEAF_BYTES]))
            other[:size], other[size : 2 * size] = other[size : 2 * size], other[:size]
        case "shift":
            other = other[1:] + other[:1]
    assume(bytes(other) != data)
    assert leaf_digest(other) != leaf_digest(data)


def test_pairs_of_high_bits_do_not_cancel() -> None:
    """Where two words of a leaf change by the same bit, as in text of another alphabet: all pairs, all bits."""
    leaf = bytearray(_data(LEAF_BYTES, 3))
    seen = {leaf_sums(leaf)}
    for bit in range(32):
        for first in range(0, 512, 37):
            for second in range(first + 1, 512, 41):
                changed = bytearray(leaf)
                for word in (first, second):
                    changed[4 * word + bit // 8] ^= 1 << bit % 8
                seen.add(leaf_sums(changed))
    pairs = sum(1 for first in range(0, 512, 37) for _ in range(first + 1, 512, 41))
    assert len(seen) == 1 + 32 * pairs


def test_a_key_of_another_length_is_refused() -> None:
    """Compiled code reads no further than it was given."""
    native = compiled()
    if native is None:
        pytest.skip("nothing is compiled here")
    with pytest.raises(ValueError, match="a key of another length"):
        native.leaf_sums(b"x" * 8191, b"")
