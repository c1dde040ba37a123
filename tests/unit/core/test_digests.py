"""A chunk's digest: the same by each of three ways, and another one for any bytes that are not those planned."""

from __future__ import annotations

import hashlib
import random
import struct
import sys
from collections.abc import Sequence
from fractions import Fraction
from operator import mul
from typing import Any

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from evalq.evalcore.errors import WireError
from evalq.evalcore.native import compiled
from evalq.evalcore.records import digests
from evalq.evalcore.records.digests import (
    LEAF_BYTES,
    chunk_digest,
    leaf_digest,
    leaf_sums,
    new_key,
    plainly,
    public,
    quickly,
)
from tests.samples import KEY

_LENGTHS = st.integers(0, 9) | st.integers(LEAF_BYTES - 9, LEAF_BYTES + 9) | st.integers(0, 3 * LEAF_BYTES)


def _data(length: int, seed: int) -> bytes:
    return random.Random(seed).randbytes(length)


@settings(max_examples=150)
@given(_LENGTHS, st.integers(0, 1 << 32))
def test_three_ways_have_the_same_sums(length: int, seed: int) -> None:
    """Compiled code, numpy and Python alone, whatever the length is to a leaf's."""
    data, drawn = _data(length, seed), _data(len(public()), seed + 1)
    for multipliers in (public(), drawn):
        plain = plainly(data, multipliers)
        assert leaf_sums(data, multipliers) == quickly(data, multipliers) == plain
        assert leaf_sums(memoryview(bytearray(data)), multipliers) == plain
        if (native := compiled()) is not None:
            assert native.leaf_sums(multipliers, data, True) == plain


@pytest.mark.parametrize("multipliers", [public(), b"\xff" * len(public())], ids=["public", "largest"])
@pytest.mark.parametrize("byte", [0, 255])
def test_the_ends_of_what_a_word_can_be(byte: int, multipliers: bytes) -> None:
    """Sums that wrap around as often as they can, over more leaves than numpy takes at once."""
    data = bytes([byte]) * (1025 * LEAF_BYTES + 1)
    assert leaf_sums(data, multipliers) == quickly(data, multipliers)
    assert leaf_sums(data[: 2 * LEAF_BYTES], multipliers) == plainly(data[: 2 * LEAF_BYTES], multipliers)


def test_a_digest_is_what_its_description_says() -> None:
    """Written down once more, from the words of the docstring."""
    data = b"Query ID\r\nQ1\r\n" * 300
    length = len(data).to_bytes(8, "little")
    sums = _sums(data, hashlib.shake_128(b"evalq leaf digest, 1").digest(8192))
    assert leaf_digest(data) == hashlib.sha256(sums + length).hexdigest()
    assert leaf_digest(b"") == hashlib.sha256(bytes(8)).hexdigest()
    drawn = hashlib.shake_256(b"evalq chunk digest, 1" + bytes.fromhex(KEY)).digest(8192 + 32)
    sums, outer = _sums(data, drawn[:8192]), drawn[8192:]
    assert chunk_digest(data, KEY) == hashlib.blake2b(sums + length, key=outer, digest_size=32).hexdigest()
    assert chunk_digest(b"", KEY) == hashlib.blake2b(bytes(8), key=outer, digest_size=32).hexdigest()


def _sums(data: bytes, multipliers: bytes) -> bytes:
    numbers = struct.unpack("<1024Q", multipliers)
    padded, sums = data + bytes(-len(data) % 2048), b""
    for start in range(0, len(padded), 2048):
        words = struct.unpack("<512I", padded[start : start + 2048])
        for key in (numbers[:512], numbers[512:]):
            sums += (sum(w * k for w, k in zip(words, key, strict=True)) % 2**64).to_bytes(8, "little")
    return sums


def test_without_compiled_code(monkeypatch: pytest.MonkeyPatch) -> None:
    """The same digests, of a short chunk and of one that is long enough for numpy."""
    short, long = _data(5000, 1), _data(digests.PLAIN_BYTES + 1, 2)
    before = _digests(short), _digests(long)
    monkeypatch.setattr(digests, "compiled", lambda: None)
    assert (_digests(short), _digests(long)) == before
    monkeypatch.delitem(sys.modules, "numpy", raising=False)
    assert _digests(short) == before[0]


def _digests(data: bytes) -> tuple[str, str]:
    return leaf_digest(data), chunk_digest(data, KEY)


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
    assert chunk_digest(other, KEY) != chunk_digest(data, KEY)


def test_pairs_of_high_bits_do_not_cancel() -> None:
    """Where two words of a leaf change by the same bit, as in text of another alphabet: all pairs, all bits."""
    leaf = bytearray(_data(LEAF_BYTES, 3))
    seen = {leaf_sums(leaf, public())}
    for bit in range(32):
        for first in range(0, 512, 37):
            for second in range(first + 1, 512, 41):
                changed = bytearray(leaf)
                for word in (first, second):
                    changed[4 * word + bit // 8] ^= 1 << bit % 8
                seen.add(leaf_sums(changed, public()))
    pairs = sum(1 for first in range(0, 512, 37) for _ in range(first + 1, 512, 41))
    assert len(seen) == 1 + 32 * pairs


def test_a_key_of_another_length_is_refused() -> None:
    """Compiled code reads no further than it was given."""
    native = compiled()
    if native is None:
        pytest.skip("nothing is compiled here")
    with pytest.raises(ValueError, match="a key of another length"):
        native.leaf_sums(b"x" * 8191, b"")


def test_who_does_not_know_the_key_cannot_choose_other_bytes() -> None:
    """Bytes that arithmetic gave the same digest under multipliers that are known have different ones under keys."""
    one, other = _alike(public())
    assert one != other
    assert leaf_digest(one) == leaf_digest(other)
    for key in (new_key() for _ in range(200)):
        assert chunk_digest(one, key) != chunk_digest(other, key)


def _alike(multipliers: bytes) -> tuple[bytes, bytes]:
    """Two leaves of equal sums under known ``multipliers``: their difference is a short vector of a lattice."""
    count, huge, modulus = 5, 1 << 40, 1 << 64
    numbers = struct.unpack("<1024Q", multipliers)
    basis = [
        [*(int(at == own) for at in range(count)), huge * numbers[own], huge * numbers[512 + own]]
        for own in range(count)
    ]
    basis += [[0] * count + [huge * modulus, 0], [0] * count + [0, huge * modulus]]
    difference = next(row for row in _reduced(basis) if row[count:] == [0, 0])[:count]
    assert any(difference)
    one = [max(word, 0) for word in difference]
    other = [max(-word, 0) for word in difference]
    return struct.pack("<5I", *one), struct.pack("<5I", *other)


def _reduced(basis: list[list[int]]) -> list[list[int]]:
    """Rows that span the same lattice and are short (Lenstra, Lenstra and Lovász 1982)."""
    at = 1
    while at < len(basis):
        for before in reversed(range(at)):
            lead, _ = _projected(basis, before)
            by = round(_dot(basis[at], lead) / _dot(lead, lead))
            basis[at] = [a - by * b for a, b in zip(basis[at], basis[before], strict=True)]
        lead, _ = _projected(basis, at - 1)
        rest, onto = _projected(basis, at)
        if _dot(rest, rest) >= (Fraction(3, 4) - onto**2) * _dot(lead, lead):
            at += 1
        else:
            basis[at - 1 : at + 1] = basis[at], basis[at - 1]
            at = max(1, at - 1)
    return basis


def _projected(basis: list[list[int]], at: int) -> tuple[list[Fraction], Fraction]:
    """What of row ``at`` is at right angles to those before it, and its share of the last of those."""
    found: list[list[Fraction]] = []
    share = Fraction(0)
    for row in basis[: at + 1]:
        rest = [Fraction(value) for value in row]
        for lead in found:
            share = _dot(row, lead) / _dot(lead, lead)
            rest = [a - share * b for a, b in zip(rest, lead, strict=True)]
        found.append(rest)
    return found[-1], share


def _dot(one: Sequence[Any], other: Sequence[Any]) -> Fraction:
    return Fraction(sum(map(mul, one, other)))


def test_each_key_has_digests_of_its_own() -> None:
    """Of the same bytes, empty ones too; and what is no key is refused without being shown."""
    keys = [new_key() for _ in range(100)]
    assert len({chunk_digest(data, key) for key in keys for data in (b"", b"x")}) == 200
    for bad in ("", KEY[:-1], KEY + "0", KEY.upper(), "g" * 64, KEY + "\n"):
        with pytest.raises(WireError, match=r"a run's key is not what evalq writes$"):
            chunk_digest(b"x", bad)
