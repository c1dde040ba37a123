"""A chunk's digest: the same wherever it is taken, and another one for any bytes that are not those planned."""

from __future__ import annotations

import random

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from evalq.evalcore.errors import WireError
from evalq.evalcore.records.digests import answer_digest, chunk_digest, new_key
from tests.samples import KEY

_BLOCK = 1024
"""BLAKE3 takes so many bytes at once."""
_LENGTHS = st.integers(0, 9) | st.integers(_BLOCK - 9, _BLOCK + 9) | st.integers(0, 3 * _BLOCK)


def _data(length: int, seed: int) -> bytes:
    return random.Random(seed).randbytes(length)


def test_digests_are_those_of_the_specification() -> None:
    """By the published test vectors of BLAKE3: 1,025 bytes that count up to 250, without a key and with one."""
    data = bytes(n % 251 for n in range(1025))
    key = b"whats the Elvish word for friend".hex()
    assert answer_digest(data) == "d00278ae47eb27b34faecf67b4fe263f82d5412916c1ffd97c8cb7fb814b8444"
    assert chunk_digest(data, key) == "357dc55de0c7e382c900fd6e320acc04146be01db6a8ce7210b7189bd664ea69"
    assert answer_digest(memoryview(bytearray(data))) == answer_digest(data)


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
            other += bytes(drawn.draw(st.integers(1, 2 * _BLOCK)))
        case "swap":
            size = drawn.draw(st.sampled_from([4, 8, 512, _BLOCK]))
            other[:size], other[size : 2 * size] = other[size : 2 * size], other[:size]
        case "shift":
            other = other[1:] + other[:1]
    assume(bytes(other) != data)
    assert answer_digest(other) != answer_digest(data)
    assert chunk_digest(other, KEY) != chunk_digest(data, KEY)


def test_each_key_has_digests_of_its_own() -> None:
    """Of the same bytes, empty ones too; and what is no key is refused without being shown."""
    keys = [new_key() for _ in range(100)]
    assert len({chunk_digest(data, key) for key in keys for data in (b"", b"x")}) == 200
    for bad in ("", KEY[:-1], KEY + "0", KEY.upper(), "g" * 64, KEY + "\n"):
        with pytest.raises(WireError, match=r"a run's key is not what evalq writes$"):
            chunk_digest(b"x", bad)
