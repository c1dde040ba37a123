"""A run under test: its server, its workers and its producer, kept up by a supervisor while faults strike."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import redis

from tests.chaos.ledger_view import LedgerView
from tests.chaos.network import Network
from tests.chaos.processes import ChaosServer, Group, environment, redis_server, spawn
from tests.chaos.recovery import Meter, Observer, View
from tests.chaos.scenario import Scenario
from tests.chaos.subjects import Subject
from tests.integration.harness import EVALQ, info

__all__ = ["Stage", "hosts_of"]

PRODUCER_HOST = "p"


def hosts_of(scenario: Scenario) -> list[str]:
    """The hosts a scenario with a network has."""
    return [PRODUCER_HOST, *(f"w{number}" for number in range(scenario.workers))]


class Stage:
    """evalq under test. Whatever dies is started again at once, as systemd or Kubernetes would.

    So is a producer that was started while the server was away: it says so and exits with 3, to be started again.
    """

    def __init__(self, scenario: Scenario, subject: Subject, folder: Path, net: Network | None) -> None:
        self.scenario, self.subject, self.folder, self.net = scenario, subject, folder, net
        self.extra: dict[str, str] = {}
        self.out = folder / "run"
        self.points = folder / "points"
        for made in (self.points, folder / "server", folder / "nothing"):
            made.mkdir(parents=True)
        program = redis_server() if scenario.redis else None
        self.server = ChaosServer(folder / "server", program, scenario.aof, net)
        self.view: View = self._look_at(self.server.client)
        self.observer = Observer(self._look_at(self.server.watcher()))
        self.groups: list[Group] = []
        self.restarts = 0
        self._producer: Group | None = None
        self._later: list[tuple[Callable[[], bool], Callable[[], Any], bool]] = []

    # -- what faults may do (the protocol in tests/chaos/faults/base.py) ---------------------------------

    @property
    def lease_seconds(self) -> float:
        """evalq's default."""
        return 5.0

    def workers(self) -> list[Group]:
        """Those that run."""
        return [group for group in self.groups if not group.stopped and group.alive]

    def producer(self) -> Group | None:
        """While it lives."""
        return self._producer if self._producer is not None and self._producer.alive else None

    def hurt(self, fault: str, held: set[int] | None = None) -> Meter:
        """Begin to measure."""
        meter = Meter(fault, held or set())
        self.observer.meters.append(meter)
        return meter

    def later(self, condition: Callable[[], bool], action: Callable[[], Any], *, at_the_end: bool = True) -> None:
        """Keep it for `tick` and `release`."""
        self._later.append((condition, action, at_the_end))

    def arm(self, point: str, role: str, whom: str) -> Callable[[], bool]:
        """By a file that appears whole."""
        armed = self.points / f"{point}@{role}"
        written = armed.with_name("new")
        written.write_text(whom)
        fired = armed.with_name(armed.name + ".fired")
        fired.unlink(missing_ok=True)
        written.replace(armed)
        return fired.exists

    # -- what the driver does ----------------------------------------------------------------------------

    def open(self) -> None:
        """Start everything."""
        self.server.start()
        self.begin()

    def begin(self) -> None:
        """Start all but the server."""
        self.observer.start()
        for number in range(self.scenario.workers):
            self._add_worker(f"w{number}")
        self._start_producer(self._first_command())

    def tick(self) -> bool:
        """Replace what died and do what is due; False when the producer has ended by itself."""
        for group in [group for group in self.groups if not group.replaced and not group.alive]:
            group.replaced = True
            self._add_worker(group.host)
        for item in list(self._later):
            condition, action, _ = item
            with contextlib.suppress(redis.RedisError):
                if condition():
                    self._later.remove(item)
                    action()
        return self._keep_producer()

    def release(self) -> None:
        """Heal, wake and start again what is still cut, stopped or down."""
        for _, action, at_the_end in self._later:
            if at_the_end:
                action()
        self._later.clear()

    def exit_code(self) -> int | None:
        """The producer's, once it has ended; one that was killed when all was done has done all."""
        code = None if self._producer is None else self._producer.process.poll()
        return 0 if code == -signal.SIGKILL and info(self.out).get("state") == "done" else code

    def ask_where(self) -> None:
        """Have every process write the stacks of its threads to its log: for a run that hangs."""
        self.release()
        for group in [*self.workers(), *([self._producer] if self._producer else [])]:
            for pid in [*group.children(), group.pid]:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGUSR2)

    def said(self) -> str:
        """The last line of the producer's log."""
        lines = (self.folder / "producer.log").read_text(errors="replace").split("\n")
        return next((line for line in reversed(lines) if line.strip()), "")

    def close(self) -> None:
        """End every process; nothing else is removed."""
        self.observer.end()
        for group in [*self.groups, *([self._producer] if self._producer else [])]:
            group.signal(signal.SIGCONT)
            group.end()
        with contextlib.suppress(AssertionError):
            self.server.kill()

    # -- the set-up under test; the naive one has others -------------------------------------------------

    def _look_at(self, client: Any) -> View:
        return LedgerView(client, self.out)

    def _worker_command(self) -> list[str]:
        command = [*EVALQ, "worker", "--broker", self.server.url, "--concurrency", str(self.scenario.concurrency)]
        # A worker that cannot read the input is sent it by the ledger.
        return [*command, "--root", str(self.folder / "nothing")] if self.scenario.elsewhere else command

    def _first_command(self) -> list[str]:
        size = self.subject.chunk_size(self.scenario.chunks)
        return [
            *(*EVALQ, *self.subject.args, *self.subject.flags, "--broker", self.server.url, "--chunk-size", str(size)),
            *("--run-dir", str(self.out), "--format", "none", "-v"),
        ]

    def _again_command(self) -> list[str]:
        command = [*EVALQ, "resume", str(self.out), *self.subject.flags]
        return [*command, "--broker", self.server.url, "--format", "none", "-v"]

    # -- supervision -------------------------------------------------------------------------------------

    def _add_worker(self, host: str) -> None:
        self.groups.append(Group(self._spawn(self._worker_command(), f"worker-{len(self.groups)}", host), host))

    def _start_producer(self, command: list[str]) -> None:
        self._producer = Group(self._spawn(command, "producer", PRODUCER_HOST), PRODUCER_HOST)

    def _spawn(self, command: list[str], name: str, host: str) -> Any:
        prefix = self.net.prefix(host) if self.net else []
        env = environment(self.points, **self.extra)
        return spawn(command, self.subject.folder, self.folder / f"{name}.log", env, prefix)

    def _keep_producer(self) -> bool:
        assert self._producer is not None
        code = self._producer.process.poll()
        if code is not None and info(self.out).get("state") == "done":
            return False
        if code == -signal.SIGKILL or (code == 3 and "no server answers" in self.said()):
            self.restarts += 1
            self._start_producer(self._again_command())
            return True
        return code is None
