"""Processes forked from a command: they answer, they hold nothing of it, and they are gone when it is."""

from __future__ import annotations

import fcntl
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import repeat
from pathlib import Path

import pytest

from evalq.evalcore.errors import InfrastructureError
from evalq.producer.local.forks import ForkLost, Forks, forked
from evalq.workers.processes.identity import is_running
from evalq.workers.processes.system import die_with_parent
from tests.integration.harness import wait_until


@contextmanager
def forks(count: int, answer: Callable[[bytes], bytes]) -> Iterator[Forks]:
    with forked(count, answer, lambda: None) as found:
        yield found


def all_answers(found: Forks) -> dict[int, bytes]:
    """Every answer that is to come, by its order's number."""
    answers: dict[int, bytes] = {}
    while found.busy:
        answers.update(found.answers(10.0))
    return answers


def test_orders_are_answered_under_their_numbers_by_all_processes() -> None:
    """Whatever their size; and no more is taken than each has room for."""
    with forks(2, lambda order: order * 2 + b"%d" % os.getpid()) as found:
        orders = {number: bytes([number]) * size for number, size in enumerate((0, 1, 70_000, 3_000_000))}
        for number, order in orders.items():
            assert found.room
            found.order(number, order)
        assert not found.room
        answers = all_answers(found)
    pids = {answers[number].removeprefix(order * 2) for number, order in orders.items()}
    assert len(pids) == 2
    assert b"%d" % os.getpid() not in pids


def test_long_orders_and_long_answers_do_not_wait_for_each_other() -> None:
    """More than a socket takes, both ways at once."""
    with forks(1, lambda order: order + order) as found:
        orders = {number: bytes([number]) * 3_000_000 for number in range(2)}
        for number, order in orders.items():
            found.order(number, order)
        assert all_answers(found) == {number: order * 2 for number, order in orders.items()}


def test_a_process_that_is_stopped_in_an_answer_holds_nobody_up() -> None:
    """What it has begun to say is waited for as long as asked; when it goes on its answer is whole."""
    with forks(1, lambda order: order * 3_000_000) as found:
        (fork,) = found._forks
        found.order(0, b"x")
        assert select.select([fork], [], [], 10.0)[0], "it has begun to answer"
        os.kill(fork.pid, signal.SIGSTOP)
        # At once only where it waits: else it goes on saying as long as there is room, which reading makes.
        wait_until(lambda: _state(fork.pid) == "T", "it stands still")
        assert found.answers(0.1) == []
        os.kill(fork.pid, signal.SIGCONT)
        assert all_answers(found) == {0: b"x" * 3_000_000}


def _state(pid: int) -> str:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]


def test_a_program_with_many_open_files_has_them_too() -> None:
    """Numbers above 1023, which select does not take."""
    script = """
import os, resource
resource.setrlimit(resource.RLIMIT_NOFILE, (2048, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
held = [os.open(os.devnull, os.O_RDONLY) for _ in range(1100)]
from evalq.producer.lifecycle.follow import _Stop
from evalq.producer.local.forks import forked
with forked(2, lambda order: order * 3_000_000, lambda: None) as forks:
    for number in range(4):
        forks.order(number, b"x")
    found = {}
    while forks.busy:
        found.update(forks.answers(10.0))
assert found == dict.fromkeys(range(4), b"x" * 3_000_000)
_Stop().wait(0.01)
"""
    subprocess.run([sys.executable, "-c", script], check=True, timeout=60)


def test_nothing_to_wait_for_is_not_waited_for() -> None:
    """Without an order there is no answer, at once."""
    with forks(1, bytes) as found:
        assert found.answers(3600.0) == []


def _die(order: bytes) -> bytes:
    if order == b"kill":
        os.kill(os.getpid(), signal.SIGKILL)
    if order == b"group":
        os.killpg(os.getpgid(0), signal.SIGKILL)
    if order == b"leave":
        os._exit(7)
    raise ValueError(order)


@pytest.mark.parametrize(
    ("order", "said"),
    [
        ("kill", "a process was killed by SIGKILL"),
        ("group", "a process was killed by SIGKILL"),
        ("leave", "a process ended with exit code 7"),
        ("raise", "a process ended with exit code 1"),
    ],
)
def test_the_end_of_a_process_is_reported(order: str, said: str) -> None:
    """By whoever waits for its answer, or gives it another order; and this process lives on."""
    with forks(1, _die) as found:
        found.order(0, order.encode())
        with pytest.raises(ForkLost, match=said):
            found.answers(10.0)


def test_a_lock_of_this_process_is_not_held_by_others(tmp_path: Path) -> None:
    """Once it is let go here it is free, while they live."""
    with (tmp_path / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        with forks(2, lambda order: order) as found:
            for number in range(2):
                found.order(number, b"x")
            assert len(all_answers(found)) == 2, "both have begun"
            lock.close()
            with (tmp_path / "lock").open() as other:
                fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)


def test_interrupts_are_not_theirs_to_answer() -> None:
    """Ctrl-C reaches them, too, where somebody sends it to each process: they go on."""
    with forks(1, lambda order: b"%d" % os.getpid()) as found:
        found.order(0, b"")
        pid = int(all_answers(found)[0])
        os.kill(pid, signal.SIGINT)
        found.order(1, b"")
        assert int(all_answers(found)[1]) == pid


_PARENT = """
import os, signal, sys, time
from evalq.producer.local.forks import forked
from evalq.workers.processes.system import die_with_parent
with forked(2, lambda order: time.sleep(3600) or b"", die_with_parent) as forks:
    forks.order(0, b"")
    print(*(fork.pid for fork in forks._forks), flush=True)
    sys.stdin.read()
"""


@pytest.mark.parametrize("killed", [False, True], ids=["its block ends", "it is killed"])
def test_they_are_gone_with_their_parent(killed: bool) -> None:
    """The one that waits for orders and the one at work, as their block ends, or as the parent is killed."""
    with subprocess.Popen([sys.executable, "-c", _PARENT], stdin=-1, stdout=-1, text=True) as parent:
        assert parent.stdin is not None
        assert parent.stdout is not None
        pids = [int(word) for word in parent.stdout.readline().split()]
        if killed:
            parent.kill()
        else:
            parent.stdin.close()
        parent.wait()
        wait_until(lambda: not any(map(is_running, pids)), "both are gone")
    assert len(pids) == 2


def test_who_asks_only_when_its_parent_is_gone_is_gone_too() -> None:
    """A parent that is killed right after the fork: nobody else ends a process that is about to compute for an hour."""
    alive, lives = os.pipe()
    parent = os.fork()
    if not parent:
        middle = os.getpid()
        if not os.fork():
            while os.getppid() == middle:
                time.sleep(0.001)
            die_with_parent()
            os.write(lives, b"it lives")
        os._exit(0)
    os.close(lives)
    os.waitpid(parent, 0)
    assert os.read(alive, 100) == b""
    os.close(alive)


@pytest.mark.parametrize("given", [0, 1])
def test_fewer_processes_than_asked_for_do_and_none_is_said(monkeypatch: pytest.MonkeyPatch, given: int) -> None:
    """Where this user may have no more processes: the reason, and what to do."""
    real, left = os.fork, iter(repeat(None, given))

    def fork() -> int:
        if next(left, 0) == 0:
            raise BlockingIOError(11, "Resource temporarily unavailable")
        return real()

    monkeypatch.setattr(os, "fork", fork)
    if given:
        with forks(2, lambda order: order * 2) as found:
            found.order(7, b"a")
            assert all_answers(found) == {7: b"aa"}
    else:
        with pytest.raises(InfrastructureError, match=r"Resource temporarily unavailable; raise .* --inline"):
            forks(2, lambda order: order).__enter__()


def test_a_process_that_is_gone_is_not_ended_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its number may be another process's by then."""
    killed: list[int] = []
    with forks(1, lambda order: os._exit(3)) as found:
        found.order(1, b"")
        with pytest.raises(ForkLost):
            all_answers(found)
        monkeypatch.setattr(os, "kill", lambda pid, number: killed.append(pid))
    assert not killed


@pytest.mark.parametrize("size", [1, 3_000_000], ids=["while it answers", "while it is told"])
def test_a_death_is_seen_whatever_the_process_has_left_behind(size: int) -> None:
    """What it started (a pool of its own, say) has its line open, for as long as that runs: that could be for ever."""

    def part(order: bytes) -> bytes:
        if os.fork() == 0:
            signal.signal(signal.SIGALRM, signal.SIG_DFL)
            signal.alarm(20)  # for the test's sake
            signal.pause()
        os._exit(9)

    began = time.monotonic()
    with forks(1, part) as found, pytest.raises(ForkLost, match="exit code 9"):  # noqa: PT012 - either may see it
        found.order(0, b"x")
        found.order(1, bytes(size))
        while found.busy:
            found.answers(0.01)
    assert time.monotonic() - began < 15.0
