"""Files that cannot be cut: each kind of fault names its line, the same one however the file is read."""

from __future__ import annotations

import io
import itertools
from collections.abc import Callable
from typing import Any
from unittest import mock

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from evalq.evalcore.errors import InputError
from evalq.evalcore.model.manifest import Format
from evalq.evalcore.native import compiled
from evalq.evalcore.records import cut
from evalq.evalcore.records.cut import Cutter, QuoteFault, python_scan, scan
from tests.unit.core.tables import Known, csv_files, cut_up

INSIDE = "broken quoting: a quote inside a field that does not begin with one"
AFTER = "broken quoting: text after a closing quote (write a quote inside a field twice)"
OPEN = "broken quoting: a quote opened here is never closed"

BLOCKS = st.integers(1, 12) | st.just(1 << 16)


def fault_of(data: bytes, block: int = 1 << 16, size: int | None = None) -> tuple[str, str]:
    """The one (place, reason) that cutting ``data`` as CSV fails with."""
    with pytest.raises(InputError) as caught:
        cut_up(data, "csv", block=block, size=size)
    (fault,) = caught.value.faults
    return fault


@pytest.mark.parametrize(
    ("broken", "line", "reason"),
    [
        (b'x,a"b\n', 0, INSIDE),
        (b'x, "b"\n', 0, INSIDE),
        (b'x,a"b"\n', 0, INSIDE),
        (b'"a\nb",c"d\n', 1, INSIDE),
        (b'x,"a"b\n', 0, AFTER),
        (b'x,"a" \n', 0, AFTER),
        (b'"a\nb\nc" d,e\n', 2, AFTER),
        (b'x,"a"b"c"\n', 0, AFTER),
        (b'x,"a\n', 0, OPEN),
        (b'x,"a', 0, OPEN),
        (b'x,"a""\n', 0, OPEN),
        (b'"a\nb","c\n', 1, OPEN),
    ],
)
def test_broken_quoting_names_its_line(broken: bytes, line: int, reason: str) -> None:
    """The kind and the line (of the quote itself, inside a record of several lines too), whatever the reading."""
    good = b'h,"i"\n1,"2\n3"\n4,5\n'
    for block, size in itertools.product((1, 2, 3, 5, 8, 1 << 16), (None, 1, 3)):
        assert fault_of(good + broken, block, size) == (f"t:{5 + line}", reason)


@settings(max_examples=150, deadline=None)
@given(csv_files(), st.data(), BLOCKS, st.none() | st.integers(1, 4))
def test_a_quote_put_anywhere_is_found_where_a_whole_reading_finds_it(
    known: Known, data: st.DataObject, block: int, size: int | None
) -> None:
    """The fault of a damaged file does not depend on blocks and chunks; a file that stays legal is cut to its end."""
    at = data.draw(st.integers(known.body, len(known.data)))
    damaged = known.data[:at] + b'"' + known.data[at:]
    assert cut_or_fault(damaged, block, size) == cut_or_fault(damaged, 1 << 16, None)


def cut_or_fault(data: bytes, block: int, size: int | None) -> object:
    """How many records there are, or the faults."""
    try:
        return cut_up(data, "csv", block=block, size=size)[2].records
    except InputError as error:
        return error.faults


@pytest.mark.parametrize("block", [1, 4, 16])
def test_a_record_beyond_the_limit_is_refused_without_reading_on(block: int) -> None:
    """The line it begins on, and a hint at the quote; the rest of the stream stays unread."""
    stream = io.BytesIO(b'h,i\n1,2\n3,"' + b"x" * 10_000)
    with (
        mock.patch.multiple(cut, BLOCK_BYTES=block, MAX_CHUNK_BYTES=32, MAX_RECORD_BYTES=64),
        pytest.raises(InputError, match="cannot be cut") as caught,
    ):
        list(Cutter(stream, "csv", "t").spans())
    ((where, reason),) = caught.value.faults
    assert where == "t:3"
    assert "is a quote never closed?" in reason
    assert stream.tell() < 200


def test_a_record_within_the_limit_is_cut() -> None:
    """The limit is about one record, not about a chunk of several."""
    record = b"x" * 60 + b"\n"
    with mock.patch.multiple(cut, MAX_CHUNK_BYTES=32, MAX_RECORD_BYTES=64):
        _, spans, _ = cut_up(record * 50, "jsonl", block=16, size=40)
    assert sum(span.records for span in spans) == 50


@settings(max_examples=100, deadline=None)
@given(st.text(alphabet='a,"\n', max_size=14))
def test_quotes_are_legal_exactly_where_the_grammar_says(text: str) -> None:
    """Against RFC 4180 spelled out by hand: a text ending in a newline is a run of complete records, or faulty."""
    block = (text + "\n").encode()
    for way in (python_scan, scan):
        found = lines_and_ends(way, block, "csv")
        assert (found[1] if isinstance(found[1], list) else found[0]) == by_grammar(text + "\n")


@pytest.mark.skipif(compiled() is None, reason="nothing is compiled here: there is one way only")
@settings(max_examples=200, deadline=None)
@given(st.text(alphabet='a,"\n\r', max_size=20), st.sampled_from(["csv", "jsonl"]))
def test_with_and_without_compiled_code_the_answer_is_one(text: str, fmt: Format) -> None:
    """Newlines, ends of records, and the first fault with its reason, of any bytes, whole records or not."""
    block = bytearray(text.encode())
    assert lines_and_ends(python_scan, memoryview(block), fmt) == lines_and_ends(scan, memoryview(block), fmt)


def lines_and_ends(way: Callable[..., Any], block: bytes | memoryview, fmt: Format) -> tuple[object, object]:
    """(newlines, ends of records), or (the position of the first illegal quote, the reason)."""
    try:
        newlines, ends = way(block, fmt)
    except QuoteFault as fault:
        return fault.position, fault.reason
    return newlines.tolist(), ends.tolist()


def by_grammar(text: str) -> object:
    """Ends of records up to a quote left open, or the position of the first illegal quote of a complete record."""
    ends: list[int] = []
    state, quote, faults = "start", 0, []
    for at, sign in enumerate(text):
        if state == "quoted":
            state, quote = ("closing", at) if sign == '"' else (state, quote)
        elif state == "closing" and sign == '"':
            state = "quoted"
        elif sign == '"' and state == "plain":
            faults.append(at)
            state = "quoted"
        elif sign == '"':
            state = "quoted"
        elif sign in ",\n":
            ends += [at + 1] if sign == "\n" else []
            state = "start"
        else:
            faults += [quote] if state == "closing" else []
            state = "plain"
    complete = ends[-1] if ends else 0
    return faults[0] if faults and faults[0] < complete else ends


@pytest.mark.parametrize("data", [b"", b'"\n', b'a"b\n', b"\x00\xff\n"])
def test_jsonl_has_no_quotes_to_break(data: bytes) -> None:
    """Any line is a line."""
    _, spans, cutter = cut_up(data, "jsonl", block=1)
    assert cutter.records == len(spans) == data.count(b"\n") or cutter.records == 1
