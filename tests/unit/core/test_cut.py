"""Cutting legal files: every record once, in order, on its line, wherever blocks and chunks end."""

from __future__ import annotations

import csv
import io
from itertools import pairwise
from pathlib import Path
from unittest import mock

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from evalq.evalcore.errors import InputChanged
from evalq.evalcore.model.manifest import BOM, Format, Span, read_span
from evalq.evalcore.records import cut
from evalq.evalcore.records.batch import Batch
from evalq.evalcore.records.cut import Cutter, record_ends
from evalq.evalcore.records.digests import chunk_digest
from tests.samples import KEY
from tests.unit.core.tables import Known, csv_files, cut_up, jsonl_files, sha256

BLOCKS = st.integers(1, 12) | st.just(1 << 16)
SIZES = st.none() | st.integers(1, 6)


def no_fault(line: int, reason: str) -> None:
    raise AssertionError(f"{line}: {reason}")


def rows_of(known: Known, spans: list[Span], width: int) -> list[tuple[int, list[str]]]:
    """The rows of all spans, with their lines, each span read by itself."""
    columns = tuple(f"h{n}" for n in range(width))
    batches = [Batch("t", span.first_line, known.data[span.start : span.end], columns) for span in spans]
    return [pair for batch in batches for pair in batch.rows(no_fault)]


def assert_exact(known: Known, spans: list[Span], cutter: Cutter) -> None:
    """Spans join up from the header to the end, and their lines, counts and digests are what the bytes say."""
    edges = [known.body, *(span.end for span in spans)]
    assert [span.start for span in spans] == edges[:-1]
    assert edges[-1] == cutter.position == len(known.data)
    lines = [line for line, _ in known.units]
    done = 0
    for span in spans:
        assert span.records > 0
        assert span.first_line == lines[done]
        assert span.digest == chunk_digest(known.data[span.start : span.end], KEY)
        done += span.records
    assert done == cutter.records == len(lines)
    assert cutter.sha256 == sha256(known.data)


@settings(max_examples=250, deadline=None)
@given(csv_files(), BLOCKS, SIZES)
def test_the_rows_of_all_chunks_are_the_rows_of_the_file(known: Known, block: int, size: int | None) -> None:
    """Row by row and line by line, whatever the block size, the chunk size, the quoting and the newlines."""
    header, spans, cutter = cut_up(known.data, "csv", block=block, size=size)
    width = len(Batch("t", 1, header).first_row())
    assert_exact(known, spans, cutter)
    assert rows_of(known, spans, width) == known.filled
    if size is not None:
        assert [span.records for span in spans[:-1]] == [size] * (len(spans) - 1)


@settings(max_examples=100, deadline=None)
@given(csv_files())
def test_known_rows_are_what_the_standard_reader_reads(known: Known) -> None:
    """The tables of these tests say what the csv module says."""
    text = known.data[known.body :].decode()
    rows = [row for row in csv.reader(io.StringIO(text, newline=""), strict=True) if "".join(row).strip()]
    assert rows == [row for _, row in known.filled]


@settings(max_examples=250, deadline=None)
@given(jsonl_files(), BLOCKS, SIZES)
def test_the_lines_of_all_chunks_are_the_lines_of_the_file(known: Known, block: int, size: int | None) -> None:
    """Quotes mean nothing in JSONL; blank lines count as records and hold none."""
    _, spans, cutter = cut_up(known.data, "jsonl", block=block, size=size)
    assert_exact(known, spans, cutter)
    batches = [Batch("t", span.first_line, known.data[span.start : span.end]) for span in spans]
    got = [(line, raw.removesuffix(b"\r")) for batch in batches for line, raw in batch.lines()]
    assert got == known.filled


@settings(max_examples=100, deadline=None)
@given(csv_files(), BLOCKS, BLOCKS, st.integers(1, 4), st.data())
def test_a_cut_goes_on_exactly_where_it_stopped(
    known: Known, block: int, other: int, size: int, data: st.DataObject
) -> None:
    """After any of its spans, with any block size, the rest of the spans and the digest of the whole are the same."""
    _, spans, cutter = cut_up(known.data, "csv", block=block, size=size)
    done = data.draw(st.integers(0, len(spans)))
    _, rest, resumed = cut_up(known.data, "csv", block=other, size=size, after=spans[:done])
    assert rest == spans[done:]
    assert (resumed.sha256, resumed.records, resumed.line) == (cutter.sha256, cutter.records, cutter.line)


@settings(max_examples=60, deadline=None)
@given(jsonl_files(), BLOCKS, st.data())
def test_an_altered_file_is_not_gone_on_with(known: Known, block: int, data: st.DataObject) -> None:
    """One other byte in a chunk that was planned, or a shorter file, is InputChanged at that chunk's line."""
    _, spans, _ = cut_up(known.data, "jsonl", size=1)
    at = data.draw(st.integers(known.body, len(known.data)))
    hit = next((span for span in spans if span.start <= at < span.end), None)
    assume(hit is not None)
    assert hit is not None
    flipped = known.data[:at] + bytes([known.data[at] ^ 1]) + known.data[at + 1 :]
    for altered in (flipped, known.data[:at]):
        with pytest.raises(InputChanged) as caught:
            cut_up(altered, "jsonl", block=block, size=1, after=spans)
        assert caught.value.faults == ((f"t:{hit.first_line}", "not the bytes that were planned"),)


@pytest.mark.parametrize("more", [b"\n", b"2\n", b"\n2"])
def test_a_last_record_that_became_longer_is_not_gone_on_with(more: bytes) -> None:
    """What a file has more since then begins in the midst of a record, where it ended without a newline."""
    _, spans, _ = cut_up(b"1\n1", "jsonl")
    assert cut_up(b"1\n1", "jsonl", after=spans)[1] == []
    with pytest.raises(InputChanged, match="t:2: its last record has become longer"):
        cut_up(b"1\n1" + more, "jsonl", after=spans)
    _, spans, _ = cut_up(b"1\n", "jsonl")
    assert len(cut_up(b"1\n1" + more, "jsonl", after=spans)[1]) == 1


@settings(max_examples=100, deadline=None)
@given(csv_files(), BLOCKS, SIZES, st.integers(0, 12))
def test_a_limit_takes_the_first_records(known: Known, block: int, size: int | None, limit: int) -> None:
    """Exactly that many records, the first ones, and nothing after them."""
    header, spans, cutter = cut_up(known.data, "csv", block=block, size=size, limit=limit)
    wanted = known.units[:limit]
    assert cutter.records == sum(span.records for span in spans) == len(wanted)
    width = len(Batch("t", 1, header).first_row())
    assert rows_of(known, spans, width) == [unit for unit in wanted if unit in known.filled]
    assert cutter.sha256 == sha256(known.data[: cutter.position])


@pytest.mark.parametrize("fmt", ["csv", "jsonl"])
def test_without_a_size_chunks_are_about_a_block(fmt: Format) -> None:
    """Chunks of about BLOCK_BYTES, or of MAX_CHUNK_BYTES where more records are asked for than fit."""
    data = b"".join(b"%06d\n" % n for n in range(1000))
    _, spans, _ = cut_up(data, fmt, block=700)
    assert all(525 <= span.end - span.start <= 1400 for span in spans[:-1])
    with mock.patch.object(cut, "MAX_CHUNK_BYTES", 1400):
        _, spans, _ = cut_up(data, fmt, block=700, size=10_000)
    assert all(1393 <= span.end - span.start <= 2100 for span in spans[:-1])
    assert spans[-1].end == len(data)


def test_long_records_make_longer_chunks_further_on_the_same_ones_when_resumed() -> None:
    """Up to MAX_CHUNK_BYTES and no more than MANY_RECORDS, by what stands before: a resumed cut has the same chunks."""
    data = b"".join(b"%06d\n" % n for n in range(20_000))
    with mock.patch.multiple(cut, MANY_RECORDS=10_000, BLOCK_BYTES=700, MAX_CHUNK_BYTES=7_000):
        cutter = Cutter(io.BufferedReader(io.BytesIO(data)), "jsonl", "t")
        spans = list(cutter.spans())
        for done in range(0, len(spans), 3):
            again = Cutter(io.BufferedReader(io.BytesIO(data)), "jsonl", "t")
            again.resume_after(spans[:done])
            assert list(again.spans()) == spans[done:]
    lengths = [span.end - span.start for span in spans[:-1]]
    assert max(lengths[:5]) <= 1400, "an input of a few blocks keeps all processes busy"
    assert 6_300 <= lengths[-1] == max(lengths) <= 7_000
    with mock.patch.multiple(cut, MANY_RECORDS=300, BLOCK_BYTES=700, MAX_CHUNK_BYTES=7_000):
        spans = list(Cutter(io.BufferedReader(io.BytesIO(data)), "jsonl", "t").spans())
    assert 300 <= max(span.records for span in spans) <= 400


def test_an_empty_file_and_a_bare_mark_have_no_chunk() -> None:
    """No header, no span, and the digest of what is there."""
    for data in (b"", BOM):
        header, spans, cutter = cut_up(data, "csv", block=1)
        assert (header, spans, cutter.records) == (b"", [], 0)
        assert cutter.sha256 == sha256(data)


@given(st.sampled_from([b"", b"\xef", b"\xef\xbb", b"\xef\xbbx\n", b"\xbf\n", BOM + BOM + b"x\n"]), BLOCKS)
def test_only_a_whole_mark_is_skipped_and_only_once(data: bytes, block: int) -> None:
    """Half a byte-order mark is data; a mark after the mark is too."""
    _, spans, cutter = cut_up(data, "jsonl", block=block)
    body = data[3:] if data.startswith(BOM) else data
    assert b"".join(data[span.start : span.end] for span in spans) == body
    assert cutter.sha256 == sha256(data)


def test_a_header_may_span_lines_and_lack_its_newline() -> None:
    """The header is a record like others: quoted newlines are inside it, and the next record's line counts them."""
    header, spans, _ = cut_up(b'"a\nb",c\r\n1,2\n', "csv", block=3)
    assert header == b'"a\nb",c\r\n'
    assert spans[0].first_line == 3
    assert cut_up(b"a,b", "csv", block=1)[0] == b"a,b"


def test_a_span_is_read_back_from_the_file(tmp_path: Path) -> None:
    """read_span gives the span's bytes; fewer, and no error, when the file has become shorter: the digest tells."""
    path = tmp_path / "t"
    path.write_bytes(BOM + b'h\nabc\n"d\ne"\nf')
    with path.open("rb") as stream:
        cutter = Cutter(stream, "csv", "t", size=1, key=KEY)
        cutter.header()
        spans = list(cutter.spans())
    assert [read_span(path, span) for span in spans] == [b"abc\n", b'"d\ne"\n', b"f"]
    assert all(chunk_digest(read_span(path, span), KEY) == span.digest for span in spans)
    path.write_bytes(b"abc\nd")
    assert read_span(path, Span(4, 8, 2, 1, "")) == b"d"


@settings(max_examples=100, deadline=None)
@given(csv_files())
def test_ends_of_records_are_ends_of_complete_records_only(known: Known) -> None:
    """Any prefix of a legal file has the ends that lie in it, and none else."""
    body = known.data[known.body :]
    every = record_ends(body, "csv").tolist()
    assert all(body[end - 1 : end] == b"\n" for end in every)
    assert all(first < second for first, second in pairwise(every))
    for stop in range(len(body)):
        assert record_ends(body[:stop], "csv").tolist() == [end for end in every if end <= stop]
