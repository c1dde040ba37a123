"""A run under test: its server, its workers and its producer, kept up by a supervisor while faults strike."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import redis

from tests.chaos.clocks import Clock, Clocks
from tests.chaos.ledger_view import LedgerView
from tests.chaos.network import Network
from tests.chaos.processes import ChaosServer, Group, environment, redis_server, spawn
from tests.chaos.recovery import Meter, Observer, View
from tests.chaos.scenario import Scenario
from tests.chaos.subjects import Subject
from tests.integration.harness import EVALQ, info
from tests.integration.rabbitmq import Rabbit

PRODUCER_HOST = "p"
TWIN_SECONDS = 120.0
"""How long a second producer may take to end after the first one has."""
_AWAY = (
    *("no server answers", "is a read-only replica", "is driven by another process"),
    *("Input/output error", "No space left"),
    # By another producer, whose disk failed: it paused the run for all that wait for it.
    "was left paused by",
)
"""What a producer ends with that a user would start again."""


@dataclass
class Twin:
    """A second producer of the run: the same command from a folder of its own."""

    command: list[str]
    out: Path
    log: str
    group: Group


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
        self.twins: list[Twin] = []
        self._clocks: Clocks | None = None
        self._rabbit: Rabbit | None = None
        self._started = 0.0
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

    def give_clocks(self) -> None:
        """The server reads its own from its first start on."""
        if self._clocks is None:
            self._clocks = Clocks(self.folder / "clocks")
            self.server.use(self._clocks.of("server"))

    def use_rabbit(self) -> Rabbit:
        """One node for the whole scenario."""
        self._rabbit = self._rabbit or Rabbit()
        return self._rabbit

    def clock(self, name: str) -> Clock:
        """Of who was started with one."""
        assert self._clocks is not None, "nobody asked for clocks before the start"
        return self._clocks.of(name)

    def arm(self, point: str, role: str, whom: str) -> Callable[[], bool]:
        """By a file that appears whole."""
        armed = self.points / f"{point}@{role}"
        written = armed.with_name("new")
        written.write_text(whom)
        fired = armed.with_name(armed.name + ".fired")
        fired.unlink(missing_ok=True)
        written.replace(armed)
        return fired.exists

    def kill_agent(self) -> None:
        """Only a sweep has one."""
        raise AssertionError("a run over chunks calls nobody")

    def revive_agent(self) -> None:
        """Only a sweep has one."""
        raise AssertionError("a run over chunks calls nobody")

    # -- what the driver does ----------------------------------------------------------------------------

    def hold(self, units: int) -> None:
        """Have no more chunks done than so many, and one a process; 0: as many as there are."""
        held = self.points / "hold"
        if units:
            written = held.with_name("new")
            written.write_text(str(units))
            written.replace(held)
        else:
            held.unlink(missing_ok=True)

    def hold_further(self, missing: int) -> None:
        """Where so many units are ``missing`` until the next fault, and what holds counts others, too."""

    def open(self) -> None:
        """Start everything."""
        self.server.start()
        if self._rabbit is not None:
            self._rabbit.start()
            self._rabbit.wait()
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
        for twin in self.twins:
            self._keep_twin(twin)
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

    def add_twin(self, chunk_size: int = 0) -> None:
        """Start a second producer of the same ``--once`` key; with a ``chunk_size`` it asks for another plan."""
        out, log = self.folder / f"twin-{len(self.twins)}", f"twin-{len(self.twins)}"
        command = [str(out) if part == str(self.out) else part for part in self._first_command()]
        if chunk_size:
            command[command.index("--chunk-size") + 1] = str(chunk_size)
        group = self._group(command, log, PRODUCER_HOST)
        self.twins.append(Twin(command, out, log, group))

    def add_sick_worker(self) -> None:
        """A worker that cannot load the run's evaluator, as on a host where a library is missing."""
        module = f"evalq.evalcore.evaluators.{self.subject.args[0]}"
        sick = self._group(self._worker_command(), "sick", "w0", CHAOS_BROKEN=module, **self._of_worker())
        sick.replaced = True
        self.groups.append(sick)

    def twins_said(self) -> list[str]:
        """What is wrong with the second producers: each must end like the first, with the same report."""
        deadline, wrong = time.monotonic() + TWIN_SECONDS, []
        for twin in self.twins:
            while twin.group.alive and time.monotonic() < deadline:
                time.sleep(0.05)
                self._keep_twin(twin)
            code = twin.group.process.poll()
            if code != 0:
                wrong.append(
                    f"{twin.log}: " + ("did not end" if code is None else f"exit {code}: {self.said(twin.log)}")
                )
            elif _bytes(twin.out / "report.json") != _bytes(self.out / "report.json"):
                wrong.append(f"{twin.log}: another report")
        return wrong

    def computed_in(self) -> Path:
        """The folder of who computed the run: a second producer's where the first gave way to it and took its report.

        One that computed it and lost its records counts as its own.
        """
        if info(self.out).get("progress") or (self.out / "records.jsonl").exists():
            return self.out
        computed = (twin.out for twin in self.twins if info(twin.out).get("progress"))
        return next(computed, self.out)

    def ask_where(self) -> None:
        """Have every process write the stacks of its threads to its log: for a run that hangs."""
        self.release()
        producers = [self._producer] if self._producer else []
        for group in [*self.workers(), *producers, *(twin.group for twin in self.twins if twin.group.alive)]:
            for pid in [*group.children(), group.pid]:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGUSR2)

    def said(self, log: str = "producer") -> str:
        """The last line of the producer's log."""
        lines = (self.folder / f"{log}.log").read_text(errors="replace").split("\n")
        return next((line for line in reversed(lines) if line.strip()), "")

    def close(self) -> None:
        """End every process; nothing else is removed."""
        self.observer.end()
        twins = [twin.group for twin in self.twins]
        for group in [*self.groups, *twins, *([self._producer] if self._producer else [])]:
            group.signal(signal.SIGCONT)
            group.end()
        self.server.end()
        if self._rabbit is not None:
            self._rabbit.end()

    @property
    def _place(self) -> tuple[str, ...]:
        """The options that name broker and ledger."""
        if self._rabbit is None:
            return ("--broker", self.server.url)
        return ("--broker", self._rabbit.url, "--ledger", self.server.url)

    # -- the set-up under test; the naive one has others -------------------------------------------------

    def _look_at(self, client: Any) -> View:
        return LedgerView(client, self.out)

    def _worker_command(self) -> list[str]:
        command = [*EVALQ, "worker", *self._place, "--concurrency", str(self.scenario.concurrency)]
        # A worker that cannot read the input is sent it by the ledger.
        return [*command, "--root", str(self.folder / "nothing")] if self.scenario.elsewhere else command

    def _first_command(self) -> list[str]:
        size = self.subject.chunk_size(self.scenario.chunks)
        return [
            *(*EVALQ, *self.subject.args, *self.subject.flags, *self._place, "--chunk-size", str(size)),
            *("--run-dir", str(self.out), "--once", f"chaos-{self.scenario.seed}", "--format", "none", "-v"),
        ]

    def _again_command(self) -> list[str]:
        return [*EVALQ, "resume", str(self.out), *self.subject.flags, *self._place, "--format", "none", "-v"]

    # -- supervision -------------------------------------------------------------------------------------

    def _add_worker(self, host: str) -> None:
        self.groups.append(self._group(self._worker_command(), f"worker-{len(self.groups)}", host, **self._of_worker()))

    def _of_worker(self) -> dict[str, str]:
        """Variables of a worker alone."""
        return {}

    def _start_producer(self, command: list[str]) -> None:
        self._started = time.monotonic()
        self._producer = self._group(command, "producer", PRODUCER_HOST)

    def _group(self, command: list[str], name: str, host: str, **more: str) -> Group:
        prefix = self.net.prefix(host) if self.net else []
        clock = self._clocks.of(name).environment if self._clocks else {}
        env = environment(self.points, **self.extra, **more, **clock)
        return Group(spawn(command, self.subject.folder, self.folder / f"{name}.log", env, prefix), host, name)

    def _keep_producer(self) -> bool:
        assert self._producer is not None
        code = self._producer.process.poll()
        if code is not None and info(self.out).get("state") == "done":
            return False
        if code == -signal.SIGKILL or (code == 3 and _to_be_tried_again(self.said())):
            if time.monotonic() - self._started > 1.0:  # no faster than a person or a supervisor would
                self.restarts += 1
                self._start_producer(
                    self._again_command() if (self.out / "run.json").exists() else self._first_command()
                )
            return True
        return code is None

    def _keep_twin(self, twin: Twin) -> None:
        """One that found no server, or met a fault that was meant for any producer, is started again."""
        code = twin.group.process.poll()
        if code == -signal.SIGKILL or (code == 3 and _to_be_tried_again(self.said(twin.log))):
            twin.group.process.wait()
            twin.group = self._group(twin.command, twin.log, PRODUCER_HOST)


def _to_be_tried_again(said: str) -> bool:
    return any(words in said for words in _AWAY)


def _bytes(path: Path) -> bytes | None:
    return path.read_bytes() if path.exists() else None


class GuestStage(Stage):
    """evalq in the workers of another Celery application, on kombu's own transport."""

    def _worker_command(self) -> list[str]:
        command = [sys.executable, "-m", "celery", "-A", "tests.integration.shop_with_evalq", "worker"]
        return [*command, "-Q", "celery,evalq", "-l", "warning", "--concurrency", str(self.scenario.concurrency)]

    def _of_worker(self) -> dict[str, str]:
        url = self.server.url if self._rabbit is None else self._rabbit.url
        given = {"SHOP_BROKER": url, "SHOP_LOG": str(self.folder / "shop.log"), "EVALQ_LEDGER": self.server.url}
        return given | ({"EVALQ_ROOTS": str(self.folder / "nothing")} if self.scenario.elsewhere else {})
