"""A command forked from what has imported evalq behaves as one that was started from nothing."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from evalq.producer import commands
from tests.integration.harness import (
    HAZARDS,
    Server,
    children_of,
    clean_environment,
    evalq,
    launch,
    new_interpreters,
    start_evalq,
    wait_until,
)
from tests.integration.midway import hold
from tests.integration.preloaded import Preloaded, startable
from tests.portions import some

WAYS: dict[str, Callable[[], contextlib.AbstractContextManager[None]]] = {
    "forked": contextlib.nullcontext,
    "new": new_interpreters,
}

FOLLOWER = ("cooperation", "--follow", "events.jsonl", "--every", "0.1", "--run-dir", "run")


@pytest.fixture(params=sorted(WAYS))
def way(request: pytest.FixtureRequest) -> Iterator[str]:
    """Every test here is also one of a new interpreter: what they say of one is what holds for the other."""
    with WAYS[request.param]():
        yield request.param


def test_streams_folder_environment_and_exit_code(way: str, tmp_path: Path) -> None:
    """Each stream is its own pipe, the folder and the variables are those given, and the code is the command's."""
    done = evalq("planagent", "nowhere.csv", cwd=tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    assert "nowhere.csv" in done.stderr
    assert "hazards" in evalq("--help", cwd=tmp_path, PYTHONPATH=HAZARDS).stdout
    assert "hazards" not in evalq("--help", cwd=tmp_path).stdout
    (tmp_path / "rows.csv").write_text("")
    done = evalq("planagent", "rows.csv", cwd=tmp_path, EVALQ_DRY_RUN="1")
    assert (done.returncode, done.stderr) == (0, ""), done
    assert done.stdout.startswith("1 input, ")
    assert "Usage: evalq planagent" in evalq("planagent", "--no-such-option", cwd=tmp_path).stderr


def test_standard_input(way: str, tmp_path: Path) -> None:
    """It is read from what was given, to its end."""
    how = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    command = ("planagent", "-", "--inline", "--out", tmp_path / "run")
    process = launch(command, cwd=tmp_path, env=clean_environment(), **how)
    _, said = process.communicate("no,columns\n", timeout=60)
    assert process.returncode == 2, said
    assert "stdin" in said


@pytest.mark.parametrize(("sent", "code"), [(signal.SIGKILL, -9), (signal.SIGTERM, 0), (signal.SIGINT, 130)])
def test_signals_reach_its_group(way: str, tmp_path: Path, sent: int, code: int) -> None:
    """It leads a session of its own from the moment its number is known, and ends as signals end it."""
    process = start_evalq(*FOLLOWER, cwd=tmp_path)
    assert os.getpgid(process.pid) == os.getsid(process.pid) == process.pid
    assert process.poll() is None
    assert process.stderr is not None
    assert process.stderr.readline().startswith("waiting: events.jsonl is not there yet")
    os.killpg(process.pid, sent)
    process.communicate(timeout=60)
    assert process.wait() == process.poll() == process.returncode == code


def test_a_reader_that_has_enough(way: str, tmp_path: Path) -> None:
    """A closed pipe at standard output ends a command with 3: click's 1 is what a policy answers for NO-GO."""
    here, there = os.pipe()
    os.close(here)
    process = launch(["--help"], cwd=tmp_path, env=clean_environment(), stdout=there, stderr=subprocess.DEVNULL)
    os.close(there)
    assert process.wait(timeout=60) == 3


def test_nothing_is_left_open(tmp_path: Path) -> None:
    """It has as many descriptors as if it had been started from nothing, though another command runs beside it."""
    counts = [_open_in(tmp_path / name, way) for name, way in WAYS.items()]
    with start_evalq(*FOLLOWER, cwd=tmp_path) as beside:
        counts.append(_open_in(tmp_path / "beside", WAYS["forked"]))
        beside.kill()
    assert len(set(counts)) == 1, counts


def test_what_it_starts_is_its_own(way: str, tmp_path: Path) -> None:
    """Its worker behind a guard, and that one's pool, are children of who started them, and end with it."""
    args = (*hold(tmp_path).command, "--workers", "1", "--out", "run")
    with start_evalq(*args, cwd=tmp_path, PYTHONPATH=HAZARDS) as command:
        worker = wait_until(lambda: _worker_of(command.pid), "it has a worker")
        below = wait_until(lambda: children_of(worker), "the worker has a pool")
        assert os.getpgid(worker) in children_of(command.pid)
        # A pool process leaves for a group of its own with its first chunk.
        assert all(os.getpgid(pid) in (pid, os.getpgid(worker)) for pid in below)
        assert ("tests.integration.preloaded" in _line(worker)) == (way == "forked")
        os.kill(worker, signal.SIGKILL)
        assert command.stderr is not None
        said = iter(command.stderr.readline, "")
        assert any("the local worker ended (SIGKILL); it is started again (1 of 3)" in line for line in said)
        again = wait_until(lambda: _worker_of(command.pid), "it is started again")
        command.kill()
    wait_until(lambda: not any(Path(f"/proc/{pid}").exists() for pid in (worker, again, *below)), "all of it has ended")


def test_what_pythonpath_adds_is_there_for_what_it_starts(way: str, tmp_path: Path) -> None:
    """An evaluator of a plug-in is known to the worker at its first start."""
    (tmp_path / "in.jsonl").write_text('{"id": "r0", "value": 0}\n')
    done = evalq("hazards", "in.jsonl", "--workers", "1", "--format", "none", cwd=tmp_path, PYTHONPATH=HAZARDS)
    assert (done.returncode, "started again" in done.stderr) == (0, False), done.stderr


def test_a_worker_s_callers_end_with_it(way: str, server: Server, tmp_path: Path) -> None:
    """The process that calls knows when its worker is gone, and ends."""
    (tmp_path / "targets.yaml").write_text("targets: {one: {kind: command, argv: [cat]}}\n")
    calls = ("--calls", "1", "--targets", "targets.yaml")
    args = ("worker", "--broker", server.url, "--concurrency", "1", *calls)
    worker = launch(args, cwd=tmp_path, env=clean_environment(), start_new_session=True)
    try:
        wait_until(lambda: server.client.keys("evalq:caller:*"), "it lives")
        wait_until(lambda: len(children_of(worker.pid)) == 2, "its pool's process lives, too")
        below = children_of(worker.pid)
        assert sum("tests.integration.preloaded" in _line(pid) for pid in below) == 2 * (way == "forked")
    finally:
        worker.kill()
        worker.wait()
    wait_until(lambda: not any(Path(f"/proc/{pid}").exists() for pid in below), "nothing of it is left")


def _worker_of(command: int) -> int | None:
    behind = [pid for guard in children_of(command) for pid in children_of(guard)]
    return next((pid for pid in behind if _line(pid).startswith(sys.executable)), None)


def _line(pid: int) -> str:
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/cmdline").read_text().replace("\0", " ")
    return ""


def _open_in(folder: Path, way: Callable[[], contextlib.AbstractContextManager[None]]) -> int:
    folder.mkdir()
    with way(), start_evalq(*FOLLOWER, "--every", "3600", cwd=folder) as process:
        assert process.stderr is not None
        process.stderr.readline()
        stat = Path(f"/proc/{process.pid}/stat")
        wait_until(lambda: stat.read_text().rpartition(")")[2].split()[0] == "S", "it sleeps until its next look")
        count = len(list(Path(f"/proc/{process.pid}/fd").iterdir()))
        process.kill()
    return count


def test_what_shapes_an_interpreter_needs_a_new_one(tmp_path: Path) -> None:
    """Python's own variables are read when it starts; a folder that is not there is reported as by any start."""
    assert startable(clean_environment(), HAZARDS)
    assert startable(clean_environment(PYTHONPATH=HAZARDS), HAZARDS)
    for name in ("PYTHONPATH", "PYTHONDONTWRITEBYTECODE", "LANG", "TZ", "OMP_NUM_THREADS"):
        assert not startable(clean_environment(**{name: "3"}), HAZARDS)
    assert isinstance(start_evalq("list", cwd=tmp_path), Preloaded)
    with pytest.raises(OSError, match="no-folder"):
        evalq("list", cwd=tmp_path / "no-folder")


@pytest.mark.parametrize("name", some(sorted(commands.names()), of=3))
def test_every_command_starts_from_nothing(name: str, tmp_path: Path) -> None:
    """No command needs a module that only another has imported: each explains itself in an interpreter of its own."""
    with new_interpreters():
        done = evalq(name, "--help", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(f"Usage: evalq {name}")
