"""The parts of following: a digest that goes on, one stream of many files, and the names that rotation gives."""

from __future__ import annotations

import hashlib
import io
import tempfile
from functools import partial
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from evalq.evalcore.errors import InputChanged
from evalq.evalcore.files import open_raw
from evalq.producer.follow import checkpoint as running_module
from evalq.producer.follow.checkpoint import RunningSha256
from evalq.producer.follow.follower import Whole
from evalq.producer.follow.log_files import PRINT_BYTES, Segment, find, locate, rotated_later
from tests.unit.follow.stage import Stage


@settings(deadline=None)
@given(st.lists(st.binary(max_size=200), max_size=12))
def test_a_digest_goes_on_from_its_state_after_any_piece(pieces: list[bytes]) -> None:
    """Kept and taken up again between all pieces, it is the digest of all the bytes."""
    found = RunningSha256()
    for piece in pieces:
        found.update(piece)
        again = RunningSha256.resume(found.state(), found.hexdigest())
        assert again is not None
        found = again
    assert found.hexdigest() == hashlib.sha256(b"".join(pieces)).hexdigest()


def test_a_state_that_is_none_is_not_gone_on_from() -> None:
    """Nothing, garbage, and the state of other bytes: they have to be read again."""
    found, other = RunningSha256(), RunningSha256()
    found.update(b"x" * 100)
    other.update(b"y" * 100)
    for state in (b"", b"garbage", other.state()):
        assert RunningSha256.resume(state, found.hexdigest()) is None


def test_without_a_state_what_was_read_is_read_again_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the package that keeps states is missing, a restart costs a reading, and the bytes are the same."""
    monkeypatch.setattr(running_module, "PySha256", None)
    with Stage(tmp_path).entered() as stage:
        stage.append(b'{"turn":1,"agent":"a"}\n' * 9)
        stage.look()
        stage.append(b'{"turn":1,"agent":"b"}\n' * 9)
        stage.look()
        stage.forget()
        found = stage.run()
        assert found._follower.again_bytes == len(stage.whole)
        stage.look()
        stage.agrees()


@given(
    sizes=st.lists(st.integers(0, 30), max_size=6),
    beyond=st.integers(0, 9),
    end=st.integers(0, 100),
    hint=st.integers(1, 40),
)
def test_files_behind_each_other_are_one_stream(sizes: list[int], beyond: int, end: int, hint: int) -> None:
    """Only the bytes that count of each, read in any steps, from the beginning and again."""
    with tempfile.TemporaryDirectory() as folder:
        files, expected = [], b""
        for number, size in enumerate(sizes):
            path = Path(folder) / str(number)
            path.write_bytes(bytes([65 + number]) * size + b"-" * beyond)
            files.append((partial(open_raw, path), size))
            expected += bytes([65 + number]) * size
        counted: list[int] = []
        with io.BufferedReader(Whole(files, end, counted.append), 16) as stream:
            for _ in range(2):
                stream.seek(0)
                found = b""
                while piece := stream.read(hint):
                    found += piece
                assert found == expected[:end]
        assert sum(counted) >= len(expected[:end])


def read_part(path: Path, size: int) -> Segment:
    """A file of which the first ``size`` bytes were read."""
    with path.open("rb") as stream:
        segment = Segment.of(stream, path, 1)
        segment.take(stream.read(size))
    return segment


@given(st.lists(st.binary(min_size=1, max_size=900), min_size=1, max_size=6))
def test_a_file_is_known_by_its_first_and_last_bytes(pieces: list[bytes]) -> None:
    """However it was read."""
    segment = Segment(0, 0, "")
    for piece in pieces:
        segment.take(piece)
    data = b"".join(pieces)
    assert (segment.length, segment.head, segment.tail) == (len(data), data[:PRINT_BYTES], data[-PRINT_BYTES:])


def test_a_file_is_found_by_itself_and_never_by_its_content(tmp_path: Path) -> None:
    """Under any name where it is the file; a copy, under rotation's names or others, is not it."""
    log = tmp_path / "log"
    log.write_bytes(b"abcdef")
    segment = read_part(log, 4)
    log.rename(tmp_path / "anything")
    log.write_bytes(b"other")
    assert find(log, segment) == tmp_path / "anything"
    (tmp_path / "anything").rename(tmp_path / "log.1")
    copies = {"log.bak": b"abcd", "log.2": b"abcX", "log.3": b"abc", "log.4": b"abcdefgh"}
    for name, content in copies.items():
        (tmp_path / name).write_bytes(content)
    (tmp_path / "log.1").unlink()
    assert find(log, segment) is None
    assert locate(log, segment) is None


@pytest.mark.parametrize(
    ("there", "after", "expected"),
    [
        (["log.1", "log.2", "log.3"], "log.3", "log.2"),
        (["log.1"], "log.1", None),
        (["log.0", "log.1"], "log.1", "log.0"),
        (["log.10", "log.9"], "log.10", "log.9"),
        (["log-20260101", "log-20260103", "log-20260102"], "log-20260101", "log-20260102"),
        (["log.2026-01-01", "log.2026-02-01"], "log.2026-01-01", "log.2026-02-01"),
        (["log-20260101", "log-20260102", "log-20260102.gz"], "log-20260101", "log-20260102"),
        (["log-20260102"], "log-20260102", None),
        (["log.bak", "log.1x", "logbook.1", "log.1"], "log.bak", None),
    ],
)
def test_the_next_file_is_known_by_its_number_or_date(
    there: list[str], after: str, expected: str | None, tmp_path: Path
) -> None:
    """Numbers fall and dates rise towards the log itself. A link that leads to itself is no file."""
    (tmp_path / "ring").symlink_to(tmp_path / "ring")
    for name in there:
        (tmp_path / name).touch()
    found = rotated_later(tmp_path / "log", tmp_path / after)
    assert found == (tmp_path / expected if expected else None)


@pytest.mark.parametrize("there", [["log.2"], ["log.2", "log.1.gz"], ["log-20260101", "log-20260102.zst"]])
def test_a_next_file_that_is_gone_or_packed_is_an_error(there: list[str], tmp_path: Path) -> None:
    """It is never left out."""
    for name in there:
        (tmp_path / name).touch()
    with pytest.raises(InputChanged, match="packed or removed"):
        rotated_later(tmp_path / "log", tmp_path / there[0])
