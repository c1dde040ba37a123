"""A fork waits for whatever another thread does with connections and hashes: its locks would be held in the child."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from evalq.workers.pool import main as pool
from evalq.workers.processes import system
from evalq.workers.processes.system import fork_lock
from evalq.workers.settings import Settings


def forked() -> int:
    """Fork a process that looks whether it can begin such a block itself; its exit code."""
    pid = os.fork()
    if not pid:
        at_once = threading.Thread(target=_enter, daemon=True)
        at_once.start()
        at_once.join(60)
        os._exit(int(at_once.is_alive()))
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def _enter() -> None:
    with fork_lock():
        pass


@contextmanager
def in_a_block(last: Callable[[], object]) -> Iterator[None]:
    """Another thread is inside such a block, which ends with ``last``."""
    inside = threading.Event()

    def block() -> None:
        with fork_lock():
            inside.set()
            last()

    thread = threading.Thread(target=block)
    thread.start()
    inside.wait()
    yield
    thread.join()


def test_a_fork_waits_for_the_block_of_another_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    """However long that takes, within its patience; the child is free of it."""
    monkeypatch.setattr(system, "PATIENCE", 600.0)
    order = []

    def last() -> None:
        threading.Event().wait(0.3)  # nobody sets it: the fork is tried meanwhile
        order.append("block")

    with in_a_block(last):
        assert forked() == 0
        order.append("forked")
    assert order == ["block", "forked"]


def test_a_block_that_does_not_end_keeps_nobody_from_forking(monkeypatch: pytest.MonkeyPatch) -> None:
    """After its patience; and the child can begin blocks of its own all the same."""
    monkeypatch.setattr(system, "PATIENCE", 0.05)
    over = threading.Event()
    with in_a_block(over.wait):
        try:
            assert forked() == 0
        finally:
            over.set()
    assert forked() == 0


def test_a_worker_forks_no_process_while_it_connects_beside_its_pool(monkeypatch: pytest.MonkeyPatch) -> None:
    """A process that was forked in a handshake of the attendant's stood still in its first chunk, over TLS."""
    monkeypatch.setattr(system, "PATIENCE", 600.0)
    inside, order = threading.Event(), []

    def connecting(*_: Any) -> Any:
        inside.set()
        threading.Event().wait(0.3)
        order.append("connected")
        attendant._stop.set()
        raise OSError("no server")

    monkeypatch.setattr(pool, "connect", connecting)
    attendant = pool.Attendant(Settings(broker="redis://h"), "w")
    thread = threading.Thread(target=attendant.attend)
    thread.start()
    inside.wait()
    assert forked() == 0
    order.append("forked")
    thread.join()
    assert order == ["connected", "forked"]
