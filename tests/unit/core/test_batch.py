"""Decoding one chunk: a record's fields and faults are its own, whatever chunk it comes in."""

from __future__ import annotations

import csv

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from evalq.evalcore.model.manifest import Span
from evalq.evalcore.records import batch as batch_module
from evalq.evalcore.records.batch import Batch
from tests.unit.core.tables import cut_up

COLUMNS = ("a", "b")
Found = list[tuple[int, object]]


def read(data: bytes, first_line: int = 1, columns: tuple[str, ...] = COLUMNS) -> tuple[Found, Found]:
    """The rows and the faults of a chunk, each with its line, in the order they came."""
    faults: Found = []
    rows: Found = list(Batch("t", first_line, data, columns).rows(lambda line, reason: faults.append((line, reason))))
    return rows, faults


def test_rows_come_with_the_line_they_begin_on() -> None:
    """Embedded newlines count as lines, blank rows are skipped, the last row may lack its newline."""
    rows, faults = read(b'1,2\r\n\r\n"x\ny","z\r\n\n"\n\n3,4', first_line=10)
    assert rows == [(10, ["1", "2"]), (12, ["x\ny", "z\r\n\n"]), (17, ["3", "4"])]
    assert faults == []


@pytest.mark.parametrize(
    ("record", "reason"),
    [
        (b"1", "1 fields where the header has 2"),
        (b"1,2,3", "3 fields where the header has 2"),
        (b"1;2", "is the delimiter or the quoting broken?"),
        (b" x", "1 fields where"),
        (b"1,\xff", "not UTF-8: byte 0xff"),
        (b"1,\xc3", "not UTF-8: byte 0xc3"),
        (b"1,\xed\xa0\x80", "not UTF-8: byte 0xed"),
        (b"1,2\r3,4", "not CSV: a lone carriage return outside quotes"),
        (b'"1"\r2,3', "not CSV: "),
    ],
)
@pytest.mark.parametrize("ending", [b"\n", b"\r\n", b""])
def test_a_bad_row_is_a_fault_and_spoils_no_other(record: bytes, reason: str, ending: bytes) -> None:
    """Wrong width, not UTF-8, a lone carriage return: the line and the reason, and the rows around it are read."""
    after = b"5,6" if ending else b""
    rows, faults = read(b"1,2\n" + record + ending + after, first_line=7)
    assert rows == [(7, ["1", "2"]), (9, ["5", "6"])][: 2 if ending else 1]
    ((line, said),) = faults
    assert line == 8
    assert reason in str(said)


@pytest.mark.parametrize("data", [b"1,\x00\n", b"\x00,\n", b'"\x00",1'])
def test_a_nul_byte_is_a_character(data: bytes) -> None:
    """It is legal in UTF-8 and in a field; what to make of it is the evaluator's business."""
    rows, faults = read(data)
    assert [line for line, _ in rows] == [1]
    assert "\x00" in str(rows[0][1]) or "\\x00" in str(rows[0][1])
    assert faults == []


def test_a_byte_that_is_no_utf8_is_found_on_its_own_line() -> None:
    """Inside a record of several lines the fault names the line of the byte, not of the record."""
    assert read(b'1,2\n"a\nb\n\xfe","c"\n3,4\n')[1] == [(4, "not UTF-8: byte 0xfe (save the file as UTF-8)")]


def test_rows_and_faults_come_in_the_order_of_the_file() -> None:
    """One bad byte in a chunk does not move the other faults before the rows."""
    met: list[int] = []
    for line, _ in Batch("t", 1, b"1,2\n\xff,1\n3,4\n5\n6,7\n", COLUMNS).rows(lambda line, _: met.append(-line)):
        met.append(line)
    assert met == [1, -2, 3, -4, 5]


RECORDS = st.sampled_from(
    [b"1,2", b'"x\ny",2', b"1", b"", b"\xff,1", b'"a\n\xe9",2', b"1,2\r3", b"1,2\r", b'"",""', b"\x00,\xc3\xa9", b" "]
)


@settings(max_examples=200, deadline=None)
@given(st.lists(RECORDS, max_size=8), st.sampled_from([b"\n", b"\r\n"]), st.booleans(), st.data())
@example([b"1,2", b"\xff,1"], b"\n", True, None)
def test_rows_and_faults_do_not_depend_on_the_chunk(
    records: list[bytes], newline: bytes, closed: bool, data: st.DataObject | None
) -> None:
    """Read in one piece, record by record, and in pieces of any size: the same rows and faults on the same lines."""
    text = b"".join(record + newline for record in records)
    text = text if closed else text.removesuffix(newline)
    size = data.draw(st.integers(1, 4)) if data else 1
    whole = read(text)
    for spans in (cut_spans(text, 1), cut_spans(text, size)):
        pieces = [read(text[span.start : span.end], span.first_line) for span in spans]
        assert [row for rows, _ in pieces for row in rows] == whole[0]
        assert [fault for _, faults in pieces for fault in faults] == whole[1]


def cut_spans(data: bytes, size: int) -> list[Span]:
    """The spans of a CSV without a header."""
    _, spans, _ = cut_up(b"a,b\n" + data, "csv", size=size)
    return [Span(s.start - 4, s.end - 4, s.first_line - 1, s.records, s.digest) for s in spans]


@given(st.binary(max_size=4))
def test_any_bytes_inside_a_field_are_a_row_or_one_fault(raw: bytes) -> None:
    """Whatever stands between quotes, the row is there or a fault is, and no exception."""
    rows, faults = read(b'"' + raw.replace(b'"', b'""') + b'",1\n')
    assert len(rows) + len(faults) == 1


def test_a_field_may_be_longer_than_the_csv_module_allows_by_itself() -> None:
    """An agent's JSON of some hundred KiB is one field; what is beyond the record limit is a fault."""
    rows, faults = read(b"1," + b"x" * 300_000 + b"\n")
    assert (len(rows), faults) == (1, [])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(batch_module, "MAX_RECORD_BYTES", 100)
        rows, faults = read(b"1,2\n1," + b"x" * 200 + b"\n3,4\n")
    csv.field_size_limit(131_072)
    assert [line for line, _ in rows] == [1, 3]
    assert [line for line, _ in faults] == [2]


def test_the_header_is_the_first_row_that_is_not_blank() -> None:
    """No row, no columns."""
    assert Batch("t", 1, b'\r\n"a\nb",c\r\n1,2\r\n').first_row() == ("a\nb", "c")
    assert Batch("t", 1, b"").first_row() == ()
    assert Batch("t", 1, b"\n\n").first_row() == ()
    with pytest.raises(UnicodeDecodeError):
        Batch("t", 1, b"\xff").first_row()
    with pytest.raises(csv.Error):
        Batch("t", 1, b'"a"b\n').first_row()


def test_lines_skip_what_is_blank_and_keep_the_rest_as_it_is() -> None:
    """Bytes without their newline, whether they are UTF-8 or not; white space alone is blank."""
    data = b'{"a":1}\r\n\n \t\r\n\xff\n\x00\nlast'
    assert list(Batch("t", 5, data).lines()) == [(5, b'{"a":1}\r'), (8, b"\xff"), (9, b"\x00"), (10, b"last")]
    assert list(Batch("t", 1, b"").lines()) == []
