"""Where records end and what quoting is broken: compiled code finds what Python finds, on any bytes."""

from __future__ import annotations

import io
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from evalq.evalcore.errors import InputError
from evalq.evalcore.native import compiled
from evalq.evalcore.records import cut
from evalq.evalcore.records.cut import Cutter
from evalq.producer.outputs import cases
from tests.unit.core.tables import cut_up

pytestmark = pytest.mark.skipif(compiled() is None, reason="nothing is compiled here: there is one way only")

_TOKENS = st.sampled_from([b'"', b'""', b",", b"\n", b"\r\n", b"\r", b"a", b"x" * 29, b"\x00", b"\xff", "가".encode()])
_BYTES = st.lists(_TOKENS, max_size=120).map(b"".join)
_FIELDS = st.lists(st.sampled_from([b"a", b"", b'"b"', b'"c,""\n"', b'"' + b"d" * 70 + b'"']), max_size=40)
_RECORDS = st.lists(_FIELDS.map(b",".join), max_size=6).map(b"\n".join)


@settings(max_examples=400)
@given(_BYTES | _RECORDS, st.integers(0, 70))
def test_processors_without_wide_instructions_find_the_same(data: bytes, before: int) -> None:
    """Wherever in a block it stands: 16 bytes at a time, and 32 with parities by multiplication."""
    native = compiled()
    assert native is not None
    data = b"y" * before + b"\n" + data
    assert native.record_ends(data, True) == native.record_ends(data)


def _found(data: bytes, size: int | None, limit: int | None) -> Any:
    try:
        cutter = Cutter(io.BytesIO(data), "csv", "x.csv", size=size, limit=limit)
        return cutter.header(), list(cutter.spans()), cutter.sha256, cutter.records, cutter.line
    except InputError as error:
        return str(error), error.faults


@settings(max_examples=400)
@given(_BYTES | _RECORDS, st.sampled_from([None, 1, 2, 7]), st.sampled_from([None, 0, 1, 5]))
def test_both_ways_cut_alike(data: bytes, size: int | None, limit: int | None) -> None:
    """The same spans with the same lines, or the same fault on the same line."""
    ours = _found(data, size, limit)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(cut, "compiled", lambda: None)
        assert _found(data, size, limit) == ours


@settings(max_examples=300)
@given(_BYTES | _RECORDS, st.integers(0, 70), st.integers(0, 3))
def test_newlines_are_counted_alike(data: bytes, before: int, start: int) -> None:
    """As Python counts them, with wide instructions and without, wherever the bytes begin."""
    native = compiled()
    assert native is not None
    view = memoryview(b"\n" * before + data)[start:]
    expected = bytes(view).count(b"\n")
    assert native.count_newlines(view) == native.count_newlines(view, True) == expected


_BLANKS = st.sampled_from([b" ", b"\t", b"\x0b", b"\x0c", b"\r", b"\n", b"\x1c", b"\x85", b"\xa0"])


@settings(max_examples=300)
@given(st.lists(_TOKENS | _BLANKS | st.binary(max_size=40), max_size=80).map(b"".join))
def test_lines_add_up_alike(data: bytes) -> None:
    """The same number of lines and the same sum, whatever white space is around them."""
    ours = cases._sum_of(data)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(cases, "compiled", lambda: None)
        assert cases._sum_of(data) == ours


@settings(max_examples=300, deadline=None)
@given(_BYTES | _RECORDS, st.integers(1, 12) | st.just(1 << 16))
def test_lines_are_cut_alike_whether_found_or_counted(data: bytes, block: int) -> None:
    """The same spans with the same lines, records and digest, wherever blocks end."""
    _, spans, ours = cut_up(data, "jsonl", block=block)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(cut, "compiled", lambda: None)
        _, expected, theirs = cut_up(data, "jsonl", block=block)
    assert spans == expected
    assert (ours.sha256, ours.records, ours.line, ours.position) == (
        theirs.sha256,
        theirs.records,
        theirs.line,
        theirs.position,
    )


@pytest.mark.parametrize("piece", [b'"', b"\n", b'"\n', b'",', b'""', b'"\r\n', b'"x', b'x"', b"\r"])
def test_at_every_offset_of_a_block(piece: bytes) -> None:
    """A mark in the last byte of a block that is read at once, and its neighbour in the next."""
    data = b'"' + b"y" * 20 + b'",' + b"z" * 110 + b'\n"q"\n'
    for at in range(len(data) + 1):
        changed = data[:at] + piece + data[at:]
        ours = _found(changed, None, None)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(cut, "compiled", lambda: None)
            assert _found(changed, None, None) == ours


def _is_utf8(data: bytes) -> int:
    try:
        data.decode()
    except UnicodeDecodeError:
        return 0
    return 1


def _agrees(data: bytes) -> None:
    native = compiled()
    assert native is not None
    assert native.check_utf8(data) == (_is_utf8(data),) * 2, data


@settings(max_examples=300)
@given(st.lists(st.text(max_size=9).map(lambda text: text.encode("utf-8", "surrogatepass")) | st.binary(max_size=4)))
def test_utf8_is_what_python_decodes(pieces: list[bytes]) -> None:
    """Letters of any length and bytes of no letter, at any offset of a block."""
    _agrees(b"".join(pieces))


def test_every_pair_of_bytes_and_their_neighbours() -> None:
    """Each two bytes, alone, before and behind one and two continuations, and across a block's end."""
    for pair in (bytes((one, two)) for one in range(256) for two in range(256)):
        for behind in (b"", b"\x80", b"\x80\x80"):
            _agrees(pair + behind)
            _agrees(b"a" * 15 + pair + behind + b"a")
    for letter in ("é", "한", "\U0001f600", "\uffff", "\ud7ff", "\ue000", "\u0800", "\x80", "\U00010000", "\U0010ffff"):
        for at in range(150):
            whole = b"a" * at + letter.encode()
            for data in (whole, whole + b"b" * 20, whole[:-1], whole[:-1] + b"b" * 20):
                _agrees(data)
