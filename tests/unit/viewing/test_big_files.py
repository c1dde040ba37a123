"""Files of any size: what is shown is read, what is noted of them is small, and what changed is read anew."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from evalq.evalcore.views.charts import generic_rows
from evalq.producer.page.answers import LONGEST
from evalq.producer.viewing.records import LineIndex, LineIndexes, RecordFilter, RecordReader

REPORT: dict[str, Any] = {"results": {}, "params": {}}


def lines_of(path: Path, known: LineIndexes, first: int) -> list[tuple[int, bytes]]:
    """All of them from one on."""
    stream, lines = known.open(path)
    with stream:
        return list(lines.read(stream, first))


@settings(max_examples=60, deadline=None)
@given(
    lengths=st.lists(st.integers(0, 40), max_size=900),
    ending=st.booleans(),
    asked=st.lists(st.integers(0, 1_000), min_size=1, max_size=6),
)
def test_a_line_is_the_line_of_its_number(
    lengths: list[int], ending: bool, asked: list[int], tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Whatever was asked for before, in whatever order."""
    lines = [b"x" * length + b"\n" for length in lengths]
    if lines and not ending:
        lines[-1] = lines[-1][:-1] or b"x"
    path = tmp_path_factory.mktemp("lines") / "file"
    path.write_bytes(b"".join(lines))
    known = LineIndexes()
    for first in asked:
        assert lines_of(path, known, first) == list(enumerate(lines))[first:]


def test_a_file_that_was_written_anew_is_another(tmp_path: Path) -> None:
    """Its lines begin elsewhere."""
    path, known = tmp_path / "file", LineIndexes()
    path.write_bytes(b"a\n" * 1_000)
    assert lines_of(path, known, 999) == [(999, b"a\n")]
    (tmp_path / "new").write_bytes(b"bbb\n" * 600)
    (tmp_path / "new").rename(path)
    assert lines_of(path, known, 599) == [(599, b"bbb\n")]
    with path.open("ab") as more:
        more.write(b"c\n")
    assert lines_of(path, known, 599) == [(599, b"bbb\n"), (600, b"c\n")]


def test_a_line_without_end_is_cut_and_passed_over(tmp_path: Path) -> None:
    """Those behind it keep their numbers."""
    path = tmp_path / "file"
    path.write_bytes(b"a\n" + b"x" * (3 * LONGEST) + b"\nb\n" + b"y" * LONGEST + b"\n")
    found = lines_of(path, LineIndexes(), 0)
    assert [(number, len(line)) for number, line in found] == [(0, 2), (1, LONGEST), (2, 2), (3, LONGEST)]


def test_a_search_stops_after_a_while_and_goes_on_where_it_stopped(tmp_path: Path) -> None:
    """Nothing is left out between, and nothing is found twice."""
    path = tmp_path / "records.jsonl"
    path.write_bytes(b"".join(b'{"record":"a:%d","status":"%s"}\n' % (n, b"failed" if n % 97 == 0 else b"passed")
                              for n in range(2_000)))  # fmt: skip
    records = RecordReader(path, LineIndexes(), generic_rows, REPORT)
    at, found, looks = 0, [], 0
    while True:
        looked = records.search(at, RecordFilter(failed=True), seconds=0.0)
        found += [each.number for each in looked.found]
        looks += 1
        assert looked.end > at
        at = looked.end
        if not looked.more:
            break
    assert found == list(range(0, 2_000, 97))
    assert looks > 10


_CHILD = """
import re, sys, time
from pathlib import Path
from evalq.evalcore.views.charts import generic_rows
from evalq.producer.viewing.records import LineIndexes, RecordFilter, RecordReader
records = RecordReader(Path(sys.argv[1]), LineIndexes(), generic_rows, {"results": {}, "params": {}})
def memory(kind):
    return int(re.search(kind + r":\\s+(\\d+) kB", Path("/proc/self/status").read_text())[1]) * 1024
before = memory("VmRSS")
began = time.process_time(); first = records.search(0, RecordFilter()); opened = time.process_time() - began
last = records.search(999_950, RecordFilter())
began = time.process_time(); again = records.search(500_000, RecordFilter()); turned = time.process_time() - began
assert [each.number for each in first.found] == list(range(100))
assert [each.number for each in last.found] == list(range(999_950, 1_000_000))
assert again.found[0].row.record == "a:500000"
print(opened, turned, memory("VmHWM") - before)
"""


def test_a_million_records_are_opened_at_once_in_little_memory(tmp_path: Path) -> None:
    """The first page of them, the last, and one between."""
    path = tmp_path / "records.jsonl"
    padding = b"x" * 200
    with path.open("wb") as out:
        for start in range(0, 1_000_000, 10_000):
            out.write(b"".join(b'{"record":"a:%d","status":"passed","reason":"%s"}\n' % (n, padding)
                               for n in range(start, start + 10_000)))  # fmt: skip
    done = subprocess.run([sys.executable, "-c", _CHILD, str(path)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    opened, turned, grown = map(float, done.stdout.split())
    assert opened < 0.2
    assert turned < 0.2
    assert grown < 8_000_000
    path.unlink()


def test_what_is_noted_of_a_file_is_small() -> None:
    """Eight bytes for 256 lines."""
    began, lines = time.process_time(), LineIndex()
    for number in range(256, 1_000_000, 256):
        lines._mark(number, number * 250)
    assert lines._marks.buffer_info()[1] * lines._marks.itemsize < 40_000
    assert time.process_time() - began < 5
