"""A chunk's answer comes back from the ledger as it went there, or as a WireError."""

from __future__ import annotations

import tracemalloc
from typing import Any

import msgspec
import pytest
import zstandard
from hypothesis import example, given, settings
from hypothesis import strategies as st

from evalq.evalcore.contract import partial as partial_module
from evalq.evalcore.contract.evaluator import Outcome, Tally
from evalq.evalcore.contract.partial import Partial, decode, encode
from evalq.evalcore.errors import WireError
from evalq.evalcore.model.state import Faults
from evalq.evalcore.records.digests import answer_digest
from evalq.evalcore.statistics.exact import ExactSum
from tests.contract.specimens import Summing, SumState

LINES = st.lists(st.sampled_from([b"{}", b'{"record":"a:1"}', '{"é":"\\n"}'.encode()]), max_size=4)
OUTCOMES = st.builds(
    lambda values, lines, line, reason: Outcome(
        SumState(len(values), ExactSum.of(values)),
        Tally(scored=len(values), listed=Faults(1, [(line, reason)])),
        lines,
    ),
    st.lists(st.floats(-1e9, 1e9), max_size=4),
    LINES,
    st.integers(1, 99),
    st.text(alphabet="a\n\x00é\U0001f600", max_size=4),
)
GOOD = Outcome(SumState(2, ExactSum.of([0.1, 0.2])), Tally(scored=2), [b'{"record":"a:1"}', b'{"record":"a:2"}'])


def packed(plain: bytes) -> Partial:
    """``plain`` packed with its right digest: what only a wrong program would commit."""
    return Partial(answer_digest(plain), zstandard.ZstdCompressor().compress(plain))


def refused(partial: Partial) -> str:
    """The message that ``partial`` is refused with."""
    with pytest.raises(WireError) as caught:
        decode(partial, Summing())
    return str(caught.value)


@given(OUTCOMES)
def test_an_outcome_comes_back_as_it_was(outcome: Outcome[Any]) -> None:
    """State, tally, faults and lines; and encoding it again gives the same bytes and digest."""
    partial = encode(outcome)
    back = decode(partial, Summing())
    assert (back.state, back.tally, back.lines) == (outcome.state, outcome.tally, outcome.lines)
    assert encode(back) == partial
    assert partial.digest == answer_digest(zstandard.ZstdDecompressor().decompress(partial.data))


@given(OUTCOMES, OUTCOMES)
def test_different_answers_have_different_digests(first: Outcome[Any], second: Outcome[Any]) -> None:
    """And equal ones the same."""
    assert (encode(first).digest == encode(second).digest) is (first == second)


@given(st.binary(max_size=60))
@example(b"")
@example(b"\x28\xb5\x2f\xfd")
def test_any_other_bytes_are_a_wire_error(data: bytes) -> None:
    """Not packed at all."""
    refused(Partial(answer_digest(data), data))


@settings(max_examples=200)
@given(st.data())
def test_any_damage_to_the_packed_bytes_is_a_wire_error(data: st.DataObject) -> None:
    """One other byte, a cut, or something behind: never an outcome, never another exception."""
    good = encode(GOOD)
    at = data.draw(st.integers(0, len(good.data) - 1))
    flipped = good.data[:at] + bytes([good.data[at] ^ data.draw(st.integers(1, 255))]) + good.data[at + 1 :]
    for damaged in (flipped, good.data[:at], good.data + b"\x00", good.data + good.data):
        try:
            outcome = decode(Partial(good.digest, damaged), Summing())
        except WireError:
            continue
        # A flipped bit of the frame's header may mean nothing (an unused bit); then the content is the same.
        assert damaged == flipped
        assert outcome == GOOD


@pytest.mark.parametrize(
    "head",
    [
        b"",
        b"[]",
        b"{}",
        b"null",
        b'[{"count":1,"total":["1",0]}]',
        b'[{"count":"1"},{}]',
        b'[{"count":1,"total":["zz",0]},{}]',
        b'[{"count":1},{"scored":"x"}]',
        b'[{"count":1},{"fatal":{"total":1,"first":[["a","b"]]}}]',
        b"[{},{},{}]",
        b"[7,{}]",
        b'["\xff",{}]',
        b'[{},{"fatal":{"total":1,"first":[[1,"\xff"]]}}]',
        b"[" * 100_000,
        b"[" + b"[" * 100_000,
        b'[{"x":' + b"[" * 100_000 + b"]" * 100_000 + b"},{}]",
    ],
)
def test_content_that_is_no_partial_is_a_wire_error(head: bytes) -> None:
    """Though its digest is right: wrong types, missing parts, no UTF-8, nested without end."""
    assert "damaged" in refused(packed(head))
    assert "damaged" in refused(packed(head + b"\n{}"))


def test_a_wrong_digest_is_a_wire_error() -> None:
    """Whatever the bytes say."""
    assert "digest" in refused(Partial(answer_digest(b"something else"), encode(GOOD).data))


def test_a_partial_that_unpacks_to_too_much_does_not_fill_the_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """Announced or not, and if the announcement lies."""
    monkeypatch.setattr(partial_module, "MAX_PARTIAL_BYTES", 1 << 20)
    plain = b"\x00" * (64 << 20)
    announced = zstandard.ZstdCompressor().compress(plain)
    silent = zstandard.ZstdCompressor(write_content_size=False).compress(plain)
    claims = bytearray(zstandard.ZstdCompressor().compress(b"x" * 70_000))
    assert claims[4] & 0xC0 == 0x80  # a content size of four bytes follows
    claims[5:9] = (2**32 - 2).to_bytes(4, "little")
    lies = bytearray(announced)
    lies[5:9] = (1000).to_bytes(4, "little")
    tracemalloc.start()
    try:
        for data in (announced, silent, bytes(claims), bytes(lies)):
            refused(Partial(answer_digest(plain), data))
        assert tracemalloc.get_traced_memory()[1] < 8 << 20
    finally:
        tracemalloc.stop()


def test_a_partial_of_just_the_limit_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """The limit is what is allowed."""
    good = encode(GOOD)
    size = len(zstandard.ZstdDecompressor().decompress(good.data))
    monkeypatch.setattr(partial_module, "MAX_PARTIAL_BYTES", size)
    assert decode(good, Summing()) == GOOD
    monkeypatch.setattr(partial_module, "MAX_PARTIAL_BYTES", size - 1)
    refused(good)


def test_the_lines_are_kept_byte_for_byte() -> None:
    """Their key order and spacing are the evaluator's."""
    lines = [b'{"z": 1, "a":2}', msgspec.json.encode({"record": "x:1"})]
    assert decode(encode(Outcome(SumState(), Tally(), lines)), Summing()).lines == lines
    assert decode(encode(Outcome(SumState(), Tally(), [])), Summing()).lines == []
