"""A server and workers of both codes, whose computing is counted with everybody else's."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
from collections.abc import Iterator

from tests.chaos.processes import spawn
from tests.chaos.rounds.crowd import witnessed
from tests.chaos.rounds.rounds import Arena
from tests.integration.harness import EVALQ, Server, running_server, wait_until


@contextlib.contextmanager
def running_workers(arena: Arena) -> Iterator[Server]:
    """For the length of a block, from when they wait at their queues."""
    at = arena.folder / "server"
    at.mkdir()
    with running_server(at) as server, contextlib.ExitStack() as stack:
        trees = ("", str(arena.other_tree))
        for number, tree in enumerate(trees):
            command = [*EVALQ, "worker", "--broker", server.url, "--concurrency", "1"]
            log = arena.folder / f"worker-{number}.log"
            stack.callback(_end, spawn(command, arena.data, log, witnessed(arena.witness, tree)))
        wait_until(lambda: _waiting(server) >= len(trees), "the workers wait at their queues")
        yield server


def _waiting(server: Server) -> int:
    return sum(client["cmd"] == "brpop" for client in server.client.client_list())


def _end(worker: subprocess.Popen[bytes]) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(worker.pid, signal.SIGKILL)
    worker.wait()
