"""Rows of about 100 bytes, as few bytes as a row with a score can have, made as they are read."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator
from pathlib import Path

from evalq.evalcore.evaluators.planagent.record import COLUMNS

QUERIES = 100_000
"""Most Query IDs."""
BLOCK = 10_000
_CHECK = '1) dataUIList 내 formType 값이 ""SELECT""인 항목이 존재하는가'


def short_rows(rows: int, queries: int = QUERIES) -> Iterator[bytes]:
    """A CSV with ``rows`` rows, in blocks; rounds of all Query IDs in turn."""
    out = io.StringIO()
    csv.writer(out, lineterminator="\n").writerow(COLUMNS)
    yield out.getvalue().encode()
    places = {name: COLUMNS.index(name) for name in ("Query ID", "기대결과", "방/반복", "Raw JSON")}
    order = sorted(places, key=places.__getitem__)
    assert order == ["Query ID", "기대결과", "방/반복", "Raw JSON"], order
    for start in range(0, rows, BLOCK):
        block = range(start, min(start + BLOCK, rows))
        yield "".join([f'r,i,q{n % queries:06},,"{_CHECK}",,{n // queries + 1}/1,,,,,{{}}\n' for n in block]).encode()


def write_short_rows(path: Path, rows: int, queries: int = QUERIES) -> None:
    """The same as a file."""
    with path.open("wb") as out:
        out.writelines(short_rows(rows, queries))
