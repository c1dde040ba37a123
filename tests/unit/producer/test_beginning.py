"""A run folder is there as a whole or not at all, and whoever begins one removes nothing but its own."""

from __future__ import annotations

import contextlib
import errno
import itertools
import json
import multiprocessing
import os
import shutil
import signal
import stat
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from evalq.evalcore.contract import plugins
from evalq.evalcore.contract.evaluator import Request
from evalq.evalcore.errors import AlreadyRunning, StorageError, UsageError
from evalq.producer.folder import job
from evalq.producer.folder.documents import SCHEMA
from evalq.producer.folder.job import Job, RunExistsError, RunOptions
from evalq.producer.folder.lock import RunLock, holder
from evalq.producer.folder.run_folder import RunFolder, is_private, run_folders
from evalq.producer.lifecycle.prune import prune
from evalq.producer.run.backend import Backend, hold_folder
from evalq.workers.settings import Settings
from tests.folders import begun, facts
from tests.portions import some
from tests.unit.vs.helpers import PARAMS, good_output

FORK = multiprocessing.get_context("fork")
TOUCHING = {"open", "os.mkdir", "os.rename", "os.remove", "os.rmdir", "os.truncate", "fcntl.flock", "os.listdir"}


def _in_child(work: Callable[[], None]) -> int:
    """The exit code of a process that did ``work``: 0, 1 after an exception, -9 where it was killed."""

    def main() -> None:
        try:
            work()
        except BaseException:
            traceback.print_exc()
            os._exit(1)  # by which the parent is told
        os._exit(0)

    process = FORK.Process(target=main)
    process.start()
    process.join()
    assert process.exitcode is not None
    return process.exitcode


def _killing(number: int, within: Path) -> None:
    """SIGKILL to this process at its ``number``-th call of the file system in ``within``."""
    left = itertools.count(number - 1, -1)

    def strike(*_: Any) -> None:
        if next(left) == 0:
            os.kill(os.getpid(), signal.SIGKILL)

    def audit(event: str, args: tuple[Any, ...]) -> None:
        if event in TOUCHING and (not isinstance(args[0], str) or str(within) in args[0]):
            strike()

    real = os.fsync

    def fsync(fd: Any) -> None:
        strike()
        real(fd)

    os.fsync = fsync
    sys.addaudithook(audit)


@pytest.fixture
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with one input, which is the current one."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "outputs").mkdir()
    for repeat in range(3):
        (tmp_path / "outputs" / f"F.{repeat}.json").write_text(json.dumps(good_output()))
    plugins.get("vs")  # loaded once, before any child
    return tmp_path


def _start(out: Path) -> Job:
    return Job.start(plugins.get("vs"), Request(["outputs"], PARAMS, {}), RunOptions(out=out, once="k"))


@pytest.mark.parametrize("there", [False, True], ids=["new", "empty and there"])
def test_a_kill_at_any_call_of_the_file_system_blocks_no_key(data: Path, *, there: bool) -> None:
    """However far a killed process came, the same key finds a whole run or begins one, and nothing else stays."""
    runs = data / "runs"
    kept: set[str] = set()
    for number in some(range(1, 10_000), of=3):
        runs.mkdir()
        if there:
            (runs / "run").mkdir()

        def killed(number: int = number) -> None:
            _killing(number, runs)
            _start(runs / "run")

        def again() -> None:
            try:
                _start(runs / "run")
            except RunExistsError as earlier:
                Job.load(RunFolder(earlier.path))

        code = _in_child(killed)
        assert code in (0, -signal.SIGKILL)
        assert [info.state for _, info in run_folders(runs, pytest.fail)] in ([], ["open"])
        for left in runs.glob(".*"):
            os.utime(left, (0, 0))  # one without a lock is left alone while it is young
        assert _in_child(again) == 0, f"blocked after a kill at call {number}"
        assert {path.name for path in runs.iterdir()} == {"run"}
        names = {path.name for path in (runs / "run").iterdir()}
        assert names == {"run.json", "manifest.jsonl", "chunks.key", "spool", "run.lock"}
        shutil.rmtree(runs)
        kept.add(str(code))
        if code == 0:
            break
    assert number > 15, "the run was begun in fewer calls than it takes"
    assert kept == {"0", "-9"}


def test_a_link_that_leads_nowhere_is_refused(data: Path) -> None:
    """In place of evalq-runs or above it: named at once, instead of trying for ever."""
    (data / "runs").symlink_to(data / "nowhere")
    for out in (data / "runs" / "run", data / "runs" / "deeper" / "run"):
        with pytest.raises(UsageError, match="a link that leads nowhere is in the way; name another with --out"):
            _start(out)
    assert not (data / "nowhere").exists()


@pytest.mark.parametrize("what", ["a file", "a pipe", "a link"])
def test_what_is_no_folder_is_refused(data: Path, what: str) -> None:
    """Where the run folder is to be: named at once, and left as it is."""
    out = data / "runs"
    if what == "a link":
        out.symlink_to("nowhere")
    else:
        os.mknod(out, stat.S_IFREG if what == "a file" else stat.S_IFIFO)
    before = os.lstat(out)

    def start() -> None:
        signal.alarm(10)  # it tried for ever
        with pytest.raises(UsageError, match="something that is not a folder is in the way; name another with --out"):
            _start(out)

    assert _in_child(start) == 0
    assert os.lstat(out).st_ino == before.st_ino
    assert {path.name for path in data.iterdir()} == {"outputs", "runs"}


@pytest.mark.parametrize(
    ("number", "kind", "mend"),
    [
        (errno.ENOSPC, StorageError, "free some space"),
        (errno.EIO, StorageError, "check the disk"),
        (errno.ESTALE, StorageError, "check the disk"),
        (errno.EROFS, UsageError, "name another with --out"),
    ],
    ids=["full", "broken", "server of the file system gone", "read-only"],
)
def test_a_folder_that_cannot_be_locked_leaves_nothing(
    data: Path, monkeypatch: pytest.MonkeyPatch, number: int, kind: type[Exception], mend: str
) -> None:
    """A disk that takes the folder and no byte more: told as a full disk, which may pass, with no leftover."""

    def refused(*_: Any) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, "truncate", refused)
    with pytest.raises(kind, match=mend):
        _start(data / "made" / "run")
    assert not (data / "made").exists()


@pytest.mark.parametrize("number", [errno.EIO, errno.ENXIO, errno.ETIMEDOUT], ids=errno.errorcode.get)
@pytest.mark.parametrize("where", ["folder", "input"])
def test_a_disk_that_fails_while_a_run_begins_is_no_mistake_of_its_user(
    data: Path, monkeypatch: pytest.MonkeyPatch, where: str, number: int
) -> None:
    """Exit 3, which a job may try again, and not 2: nothing is wrong with the name of the folder or of the input."""

    def fails(*given: Any) -> None:
        raise OSError(number, os.strerror(number), given[1].path if where == "input" else None)

    monkeypatch.setattr(*((os, "fsync") if where == "folder" else (job, "plain_input")), fails)
    with pytest.raises(StorageError, match=f"{os.strerror(number)}; check the disk"):
        _start(data / "run")
    assert not (data / "run").exists()


def test_one_of_many_begins_and_the_others_are_informed(data: Path) -> None:
    """Twenty processes at one instant: one makes the folder, nineteen find its run, and all of it is readable."""
    gate = FORK.Event()
    (data / "made").mkdir()

    def start() -> None:
        gate.wait()
        try:
            _start(data / "made" / "run")
        except RunExistsError as earlier:
            os._exit(7 if RunFolder(earlier.path).info().state == "open" else 8)
        os._exit(0)

    processes = [FORK.Process(target=start) for _ in range(20)]
    for process in processes:
        process.start()
    gate.set()
    for process in processes:
        process.join()
    assert sorted(process.exitcode or 0 for process in processes) == [0] + [7] * 19
    assert [path.name for path in (data / "made").iterdir()] == ["run"]


def test_nobody_sees_a_folder_before_it_is_whole(tmp_path: Path) -> None:
    """In the block it has a private name, which is no run's; behind it it has its own, and is held."""
    with RunFolder.begin(tmp_path / "runs" / "run") as folder:
        folder.note(**facts("run", "open"))
        assert not (tmp_path / "runs" / "run").exists()
        (private,) = (tmp_path / "runs").iterdir()
        assert is_private(private.name, "run")
        assert run_folders(tmp_path / "runs", pytest.fail) == []
    assert [info.run for _, info in run_folders(tmp_path / "runs", pytest.fail)] == ["run"]
    assert folder.path == tmp_path / "runs" / "run"
    assert RunFolder(folder.path).driver().endswith(str(os.getpid()))


def test_what_fails_takes_only_its_own_away(tmp_path: Path) -> None:
    """The folders that this process made go, also the ones above; those that were there stay, empty or not."""
    (tmp_path / "results").mkdir()
    (tmp_path / "results" / "mine").mkdir()
    for path in ("results/run", "results/mine", "new/deep/run"):
        with contextlib.suppress(RuntimeError), RunFolder.begin(tmp_path / path) as folder:
            folder.note(**facts("run", "open"))
            raise RuntimeError
    assert sorted(str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*")) == ["results", "results/mine"]
    other = begun(tmp_path / "results" / "theirs")
    other.discard()
    assert other.begun, "begun by somebody else"


def test_the_second_of_two_with_other_runs_is_refused(tmp_path: Path) -> None:
    """A folder that somebody else filled meanwhile is not taken, and not touched."""
    begun(tmp_path / "run")
    with pytest.raises(UsageError, match="not empty"), RunFolder.begin(tmp_path / "run"):
        pass
    assert RunFolder(tmp_path / "run").info().run == "run"


def test_leftovers_of_killed_processes_are_nobodys_runs_and_are_pruned(tmp_path: Path) -> None:
    """A private name without a living lock is passed over by lists and removed by prune; one that is held stays."""
    with RunFolder.begin(tmp_path / "living") as living:
        dead = tmp_path / ".run.0123456789ab"
        dead.mkdir()
        (dead / "run.lock").touch()
        RunFolder(dead).note(**facts("dead", "done"))
        living.note(**facts("living", "open"))
        assert run_folders(tmp_path, pytest.fail) == []
        said = list(prune(tmp_path, None, None, 0, everyone=False, dry_run=False, warn=pytest.fail))
        assert said == [f"left by a killed process: {dead}"]
        assert not dead.exists()
    assert living.info().run == "living"


@pytest.mark.parametrize("later", [False, True])
def test_what_another_process_removes_is_nothing_to_prune(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, later: bool
) -> None:
    """Before its age is seen, or when it is about to be removed: the others go all the same."""
    for name in ("a", "b", "c"):
        begun(tmp_path / name, "done")
    said = prune(tmp_path, None, None, 0, everyone=False, dry_run=False, warn=pytest.fail)
    assert next(said) == f"a: {tmp_path / 'a'}"
    taken = RunLock.take

    def take(path: Path) -> RunLock | None:
        if path.parent.name == "b":
            shutil.rmtree(tmp_path / "b")
        return taken(path)

    if later:
        monkeypatch.setattr(RunLock, "take", take)
    else:
        shutil.rmtree(tmp_path / "b")
    assert list(said) == [f"c: {tmp_path / 'c'}"]
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "text", [b"", b"{", b"[]", b'{"run": "r"}', b'{"run": 1}', b'{"schema": 99}', b'{"state": "odd"}', b"\xff"]
)
def test_an_unreadable_folder_is_reported_and_passed_over(tmp_path: Path, text: bytes) -> None:
    """Listing and pruning say which one it is, and go on with the others; the unreadable one stays."""
    begun(tmp_path / "ended", "done")
    (tmp_path / "odd").mkdir()
    (tmp_path / "odd" / "run.json").write_bytes(text)
    said: list[str] = []
    assert [info.run for _, info in run_folders(tmp_path, said.append)] == ["ended"]
    assert [f"{tmp_path / 'odd'} is skipped" in line for line in said] == [True]
    assert len(list(prune(tmp_path, None, None, 0, everyone=False, dry_run=False, warn=said.append))) == 1
    assert [path.name for path in tmp_path.iterdir()] == ["odd"]


def test_facts_of_a_later_evalq_stay(tmp_path: Path) -> None:
    """What this one does not know is kept beside what it notes; None removes a fact; the form has its number."""
    folder = begun(tmp_path / "run")
    folder.note(colour="blue", retry={"1": 2})
    folder.note(state="interrupted", retry=None)
    message = folder.facts()
    assert (message["colour"], message["state"], message["schema"], "retry" in message) == (
        "blue",
        "interrupted",
        SCHEMA,
        False,
    )


def test_a_lock_counts_only_under_its_name(tmp_path: Path) -> None:
    """Whoever waited at a lock that was removed meanwhile holds nothing by it: two never hold it at once."""
    first = RunLock.take(tmp_path / "run.lock")
    assert first is not None
    assert RunLock.take(tmp_path / "run.lock") is None
    first.release(remove=True)
    second, third = RunLock.take(tmp_path / "run.lock"), RunLock.take(tmp_path / "run.lock")
    assert second is not None
    assert third is None
    assert holder(tmp_path / "run.lock").endswith(str(os.getpid()))


def test_many_who_take_and_remove_a_lock_never_hold_it_together(tmp_path: Path) -> None:
    """Eight processes take and remove it a hundred times each: what only the holder makes is never there."""
    path, mark = tmp_path / "run.lock", tmp_path / "mark"

    def work() -> None:
        done = 0
        while done < 100:
            lock = RunLock.take(path)
            if lock is not None:
                mark.mkdir()  # raises where another holds the lock, too
                mark.rmdir()
                lock.release(remove=True)
                done += 1

    def all_of_them() -> None:
        processes = [FORK.Process(target=lambda: os._exit(_in_child(work))) for _ in range(8)]
        for process in processes:
            process.start()
        for process in processes:
            process.join()
        assert [process.exitcode for process in processes] == [0] * 8

    all_of_them()


def test_looking_leaves_no_file_behind(tmp_path: Path) -> None:
    """Asking who drives a run, and holding one that is over for a moment, adds nothing to its folder."""
    folder = begun(tmp_path / "run", "done")
    before = sorted(path.name for path in folder.path.iterdir())
    assert folder.driver() == ""
    with folder.driving() as mine:
        assert mine
    assert sorted(path.name for path in folder.path.iterdir()) == before == ["run.json"]


def test_what_is_driven_is_refused_in_one_way(tmp_path: Path) -> None:
    """The error names the process, and exits with 3."""
    folder = begun(tmp_path / "run")
    second = hold_folder(RunFolder(folder.path), Backend(Settings()))
    with folder.driving(), pytest.raises(AlreadyRunning, match=str(os.getpid())) as message, second:
        pass
    assert message.value.exit_code == 3


def test_a_run_that_appears_after_it_was_looked_for_is_found(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another process renames its folder into place between the look and the making: it is that run, and no fault."""
    _start(data / "run")
    looked = iter([data / "run"])
    monkeypatch.setattr("evalq.producer.folder.job.new_path", lambda *_: next(looked))
    with pytest.raises(RunExistsError):
        _start(data / "run")
