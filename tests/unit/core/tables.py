"""Made-up CSV and JSONL files whose records and lines are known because they were put together here."""

from __future__ import annotations

import csv
import hashlib
import io
from collections.abc import Sequence
from typing import Any
from unittest import mock

import msgspec
from hypothesis import strategies as st

from evalq.evalcore.model.manifest import BOM, Format, Span
from evalq.evalcore.records import cut
from evalq.evalcore.records.cut import Cutter
from tests.samples import KEY

FIELDS = st.text(alphabet='ab ,"\n\ré\U0001f600;\t', max_size=6)
PLAIN = st.text(alphabet="ab é;", max_size=4)


class Known(msgspec.Struct, frozen=True):
    """A file: its bytes, its header's length in bytes, and each record after it as (line, its row or bytes)."""

    data: bytes
    body: int
    units: tuple[tuple[int, Any], ...]

    @property
    def filled(self) -> list[tuple[int, Any]]:
        """The records that are not blank; of a table, in which some cell is not."""
        return [
            (line, value)
            for line, value in self.units
            if ("".join(value).strip() if isinstance(value, list) else value)
        ]


def _row(fields: Sequence[str], quoting: Any) -> bytes:
    out = io.StringIO(newline="")
    csv.writer(out, quoting=quoting, lineterminator="\r\n").writerow(fields)
    return out.getvalue().removesuffix("\r\n").encode()


def _assembled(bom: bool, header: bytes, units: Sequence[tuple[bytes, Any]], newline: bytes, closed: bool) -> Known:
    """The file of ``units`` after ``header``; without ``closed`` its last byte is not a newline."""
    data = (BOM if bom else b"") + header
    body, known = len(data), []
    for raw, value in units:
        known.append((data.count(b"\n") + 1, value))
        data += raw + newline
    if not closed and len(data) > body:
        data = data.removesuffix(newline)
        if known and not units[-1][0]:
            known.pop()  # an empty last line without its newline is no line
    return Known(data, body, tuple(known))


@st.composite
def csv_files(draw: st.DrawFn) -> Known:
    """A legal CSV: any quoting mode and newline, embedded quotes, commas and newlines, blank lines, a mark or none."""
    width = draw(st.integers(1, 3))
    quoting = draw(st.sampled_from([csv.QUOTE_ALL, csv.QUOTE_MINIMAL, csv.QUOTE_NONNUMERIC, csv.QUOTE_NONE]))
    newline = draw(st.sampled_from([b"\n", b"\r\n"]))
    field = PLAIN.filter(bool) if quoting == csv.QUOTE_NONE else FIELDS
    rows = draw(st.lists(st.lists(field, min_size=width, max_size=width), max_size=8))
    units: list[tuple[bytes, Any]] = [(_row(row, quoting), row) for row in rows]
    for at in draw(st.lists(st.integers(0, len(units)), max_size=2)):
        units.insert(at, (b"", []))
    header = _row([f"h{n}" for n in range(width)], quoting) + newline
    return _assembled(draw(st.booleans()), header, units, newline, draw(st.booleans()))


@st.composite
def jsonl_files(draw: st.DrawFn) -> Known:
    """Lines of any bytes (a quote has no meaning here), some blank."""
    newline = draw(st.sampled_from([b"\n", b"\r\n"]))
    line = st.binary(max_size=6).filter(lambda raw: not set(raw) & set(b"\n\r\xef") and not raw.isspace())
    lines = draw(st.lists(line | st.just(b'"'), max_size=10))
    return _assembled(draw(st.booleans()), b"", [(raw, raw) for raw in lines], newline, draw(st.booleans()))


def cut_up(
    data: bytes,
    fmt: Format,
    *,
    block: int = 1 << 16,
    size: int | None = None,
    limit: int | None = None,
    after: Sequence[Span] = (),
) -> tuple[bytes, list[Span], Cutter]:
    """Header, spans and used-up cutter of ``data``, read ``block`` bytes at a time, going on after ``after``."""
    with mock.patch.object(cut, "BLOCK_BYTES", block):
        cutter = Cutter(io.BytesIO(data), fmt, "t", size=size, limit=limit, key=KEY)
        header = cutter.header() if fmt == "csv" else b""
        cutter.resume_after(after)
        return header, list(cutter.spans()), cutter


def sha256(data: bytes) -> str:
    """SHA-256, hexadecimal."""
    return hashlib.sha256(data).hexdigest()
