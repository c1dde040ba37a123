"""The run folder survives a crash at any byte."""

from __future__ import annotations

import errno
import os
import resource
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from evalq.evalcore.contract.partial import Partial
from evalq.evalcore.errors import StorageError, UsageError
from evalq.evalcore.files import write_atomic
from evalq.evalcore.model.manifest import Chunk, Header, PlannedInput, Seal
from evalq.evalcore.records.inputs import Source
from evalq.producer.folder.job import open_source
from evalq.producer.folder.journal import Journal
from evalq.producer.folder.lock import LOCK, RunLock
from evalq.producer.folder.manifest import Manifest
from evalq.producer.folder.run_folder import RunFolder, clean_up, private_name

PARTIALS = [Partial(f"{n:064}", bytes([n]) * (n * 7)) for n in range(5)]
HEADER = Header("r", "planagent", "1", "c", {"a": [1]}, (PlannedInput("i", "i", "i"),))
ADVICE = r"Too many open files; raise the limit on open files \(ulimit -n\), then"
CHUNKS = [Chunk(n, 0, n, n + 1, 1, 1, f"{n:064}") for n in range(4)]


def _folder(path: Path, name: str = "run") -> RunFolder:
    with RunFolder.begin(path / name) as folder:
        pass
    with folder.driving():
        return folder


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(cut=st.integers(0, 600))
def test_a_torn_journal_keeps_its_whole_entries(tmp_path_factory: pytest.TempPathFactory, cut: int) -> None:
    """Cut at any byte, a journal gives the entries before the cut, and can be added to."""
    folder = _folder(tmp_path_factory.mktemp("torn"))
    journal = Journal(folder)
    ends = []
    for seq, partial in enumerate(PARTIALS):
        journal.add(seq, partial)
        journal.sync()
        ends.append((folder.path / "parts.journal").stat().st_size)
    journal.close()
    path = folder.path / "parts.journal"
    path.write_bytes(path.read_bytes()[:cut])
    whole = sum(end <= cut for end in ends)
    again = Journal(folder)
    assert list(again.replay()) == PARTIALS[:whole]
    if whole < len(PARTIALS):
        again.add(whole, PARTIALS[whole])
    again.close()
    assert list(Journal(folder).replay()) == PARTIALS[: whole + 1]


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(cut=st.integers(0, 200))
def test_a_torn_manifest_keeps_its_whole_lines(tmp_path_factory: pytest.TempPathFactory, cut: int) -> None:
    """A manifest cut behind its header by a crash loads the chunks whose lines are whole, and goes on from there."""
    folder = _folder(tmp_path_factory.mktemp("torn"))
    manifest = Manifest(folder)
    manifest.start(HEADER)
    manifest.extend(CHUNKS)
    manifest.close(Seal(4, ("s",)))
    path = folder.path / "manifest.jsonl"
    data = path.read_bytes()
    kept = data[: max(data.index(b"\n") + 1, len(data) - cut)]
    path.write_bytes(kept)
    again = Manifest(folder)
    assert again.load() == HEADER
    lines = kept.count(b"\n")
    assert list(again.chunks) == CHUNKS[: min(4, lines - 1)]
    assert (again.seal is not None) == (lines == 6)
    again.extend([Chunk(9, 0, 0, 1, 1, 1, "d")])
    assert path.read_bytes().endswith(b"\n")
    assert path.read_bytes().count(b"\n") == lines + 1


def test_a_file_is_whole_or_not_there(tmp_path: Path) -> None:
    """A write that fails leaves the old file and nothing beside it."""
    path = tmp_path / "report.json"
    write_atomic(path, b"old")
    with pytest.raises(TypeError):
        write_atomic(path, "not bytes")  # type: ignore[arg-type]  # the failure is the point
    assert path.read_bytes() == b"old"
    assert [entry.name for entry in tmp_path.iterdir()] == ["report.json"]


def test_a_used_folder_is_not_taken(tmp_path: Path) -> None:
    """A folder with something in it is refused, and left as it is."""
    (tmp_path / "mine").write_text("x")
    with pytest.raises(UsageError, match="not empty"), RunFolder.begin(tmp_path):
        pass
    assert [path.name for path in tmp_path.iterdir()] == ["mine"]


def test_only_one_process_drives(tmp_path: Path) -> None:
    """While one holds the folder another learns that; afterwards it is free."""
    folder = _folder(tmp_path)
    with folder.driving() as first, RunFolder(folder.path).driving() as second:
        assert (first, second) == (True, False)
    with folder.driving() as third:
        assert third


def test_who_begins_a_run_where_one_is_just_removed_drives_it_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As of two commands of one ``--once`` key on faulty input: the first lets go of its own lock, and of no other."""
    path, remove, next_one = tmp_path / "run", shutil.rmtree, []
    with RunFolder.begin(path) as first:
        pass

    def removed(gone: Path) -> None:
        remove(gone)
        with RunFolder.begin(path) as second:
            next_one.append(second)

    monkeypatch.setattr(shutil, "rmtree", removed)
    first.discard()
    assert next_one
    assert RunLock.take(path / LOCK) is None


def test_a_manifest_goes_on_under_its_folder_s_name_after_a_failed_write(tmp_path: Path) -> None:
    """Begun while the folder had its private name; a file that had to be let go of is opened where it is now."""
    with RunFolder.begin(tmp_path / "run") as folder:
        manifest = Manifest(folder)
        manifest.start(HEADER)
        manifest.extend(CHUNKS[:1])
    assert manifest._file._out is not None
    os.close(manifest._file._out.fileno())
    with pytest.raises(OSError, match="Bad file descriptor"):
        manifest.extend(CHUNKS[1:2])
    assert list(manifest.chunks) == CHUNKS[:1]
    manifest.extend(CHUNKS[1:3])
    again = Manifest(folder)
    assert again.load() == HEADER
    assert list(again.chunks) == CHUNKS[:3]


def test_a_manifest_has_its_header_or_is_not_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """On a disk without room: a folder with a plan that lacks its header could not be gone on with."""
    folder = _folder(tmp_path)
    manifest = Manifest(folder)
    with monkeypatch.context() as full:
        full.setattr(os, "fsync", _no_room)
        with pytest.raises(OSError, match="No space left"):
            manifest.start(HEADER)
    assert [path.name for path in folder.path.iterdir()] == []
    manifest.start(HEADER)
    manifest.extend(CHUNKS)
    assert Manifest(folder).load() == HEADER


def _no_room(_descriptor: int) -> None:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


@contextmanager
def _no_more_files() -> Iterator[None]:
    """This process may open none, as one that has reached its limit."""
    free = os.open(os.devnull, os.O_RDONLY)
    os.close(free)
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (free, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)


def test_too_many_open_files_are_no_damage_and_no_change_of_an_input(tmp_path: Path) -> None:
    """The limit is named, and neither run.json nor an input that is as it was; nor is the folder said to be refused."""
    folder = _folder(tmp_path)
    (folder.path / "run.json").write_text("{}")
    rows = tmp_path / "rows.csv"
    rows.touch()
    with _no_more_files():
        with pytest.raises(StorageError, match=rf"run\.json: {ADVICE} run the command again"):
            folder.facts()
        with pytest.raises(OSError, match="Too many open files") as message:
            open_source(Source("rows.csv", "rows.csv", str(rows)))
        assert StorageError.of(message.value, folder.path, "resume").args[0].startswith(f"{rows}: Too many open files")
        with (
            pytest.raises(StorageError, match=f"cannot be made: {ADVICE} run the command again"),
            RunFolder.begin(tmp_path / "new"),
        ):
            pass
    assert not (tmp_path / "new").exists()


def test_what_somebody_else_took_meanwhile_is_not_reported_as_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between the look at who holds a folder and its removal."""
    left, taken = (private_name(tmp_path / name) for name in ("left", "taken"))
    for path in (left, taken):
        path.mkdir()
        (path / LOCK).touch()
    lock = RunLock.take(taken / LOCK)
    assert lock is not None
    monkeypatch.setattr("evalq.producer.folder.run_folder.holder", lambda path: "")
    assert clean_up(tmp_path) == [left]
    assert (left.exists(), taken.exists()) == (False, True)
    lock.release()
