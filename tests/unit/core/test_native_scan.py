"""Where records end and what quoting is broken: compiled code finds what numpy finds, on any bytes."""

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

pytestmark = pytest.mark.skipif(compiled() is None, reason="nothing is compiled here: there is one way only")

_TOKENS = st.sampled_from([b'"', b'""', b",", b"\n", b"\r\n", b"\r", b"a", b"x" * 29, b"\x00", b"\xff", "가".encode()])
_BYTES = st.lists(_TOKENS, max_size=120).map(b"".join)
_FIELDS = st.lists(st.sampled_from([b"a", b"", b'"b"', b'"c,""\n"', b'"' + b"d" * 70 + b'"']), max_size=40)
_RECORDS = st.lists(_FIELDS.map(b",".join), max_size=6).map(b"\n".join)


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
