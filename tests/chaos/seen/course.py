"""The run that is looked at: workers that talk, a fault after the other in an order that the seed draws, marks."""

from __future__ import annotations

import contextlib
import json
import random
import shutil
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path

import redis

from tests.chaos.faults import FAULTS
from tests.chaos.network import Network
from tests.chaos.processes import Group
from tests.chaos.scenario import Scenario
from tests.chaos.seen.talking import JOURNAL
from tests.chaos.seen.truth import Look, Truth, read_lines
from tests.chaos.stage import Stage
from tests.chaos.subjects import Subject
from tests.integration.harness import HAZARDS

RECORDS_A_CHUNK, CHUNK_PAUSE, WORKERS = 10, 0.5, 3
DOWN_SECONDS, STOP_SECONDS, CUT_SECONDS, AWAY_SECONDS, REST_SECONDS = 32.0, 15.0, 8.0, 8.0, 5.0
TURN_SECONDS, PATIENCE_SECONDS = 0.1, 300.0


def scenario_of(seed: int, chunks: int) -> Scenario:
    """Three workers of one process; the seed draws how durable the server is."""
    aof = random.Random(seed).choice(("no", "everysec", "always"))
    program = shutil.which("redis-server") is not None
    return Scenario(seed, "hazards", chunks, WORKERS, 1, aof, program, False, ())


def make_subject(folder: Path, chunks: int, seed: int, pause: float = CHUNK_PAUSE) -> Subject:
    """``chunks`` of ten records that take ``pause`` seconds each and no processor; one record kills its process."""
    folder.mkdir()
    records = chunks * RECORDS_A_CHUNK
    victim = random.Random(seed).randrange(records // 10, records // 2)
    rows = [{"id": f"r{n}", "value": n} | ({"do": "kill"} if n == victim else {}) for n in range(records)]
    (folder / "in.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (folder / "params.json").write_text(json.dumps({"pause": pause}))
    args = ("hazards", str(folder / "in.jsonl"), "--params", str(folder / "params.json"))
    return Subject("hazards", args, folder, folder, records, ("--allow-dead", "1"))


class Course(Stage):
    """A stage whose processes talk, with marks at the moments when something had been done to them."""

    def __init__(self, scenario: Scenario, subject: Subject, folder: Path, net: Network | None) -> None:
        super().__init__(scenario, subject, folder, net)
        self._journal = folder / "journal.jsonl"
        self.extra = {"PYTHONPATH": HAZARDS, JOURNAL: str(self._journal)}
        self._rng = random.Random(scenario.seed)
        self._looks: list[Look] = []
        self.marks: dict[str, float] = {}
        self.struck: list[str] = []

    def truth(self) -> Truth:
        """What was true so far."""
        return Truth(read_lines(self._journal), self._looks)

    def play(self) -> None:
        """All faults, then the rest of the run. Raises AssertionError when the run ends before the faults do."""
        self._pass_until(lambda: self.observer.latest.committed >= 30, "the first chunks are committed")
        self._pass(REST_SECONDS)
        self.mark("calm")
        self._pass(REST_SECONDS)
        acts = [self._kill_process, self._kill_worker, self._stop_worker, self._restart_server]
        if self.net is not None:
            acts.append(self._cut_worker)
        self._rng.shuffle(acts)
        for act in acts:
            act()
            self._pass(REST_SECONDS)
        assert self.tick(), "the run ended before the faults did: give it more chunks"
        self.finish()
        self.mark("end")

    def finish(self) -> None:
        """Until the producer has ended well."""
        self._pass_until(lambda: not self.tick(), "the run ends", PATIENCE_SECONDS)
        assert self.exit_code() == 0, self.said()

    def mark(self, name: str) -> None:
        """This moment gets a name; what is done next leaves observers time for a scrape."""
        self._look()
        self.marks[name] = time.time()

    def watch(self, seconds: float) -> None:
        """Look on after the run's end."""
        self._pass(seconds, at_work=False)

    # -- what is done to it ------------------------------------------------------------------------------

    def _kill_process(self) -> None:
        self.struck.append("a pool process killed")
        self._pass_until(lambda: FAULTS["kill pool process"].strike(self, self._rng), "a pool process is there")

    def _kill_worker(self) -> None:
        """The whole group, as a host that goes down; it comes back when the fleet has been one short for a while."""
        self.struck.append(f"a worker killed, for {DOWN_SECONDS:g} s")
        victim = self._rng.choice(self.workers())
        victim.replaced = True
        victim.kill()
        self.mark("killed")
        self._pass(DOWN_SECONDS)
        self.mark("killed long ago")
        self._pass(REST_SECONDS)
        self._add_worker(victim.host)

    def _stop_worker(self) -> None:
        self.struck.append(f"a worker stopped (SIGSTOP) for {STOP_SECONDS:g} s")
        victim = self._busy()
        victim.stopped = True
        victim.signal(signal.SIGSTOP)
        self._pass(STOP_SECONDS)
        self.mark("stopped")
        self._pass(REST_SECONDS)
        victim.stopped = False
        victim.signal(signal.SIGCONT)

    def _cut_worker(self) -> None:
        assert self.net is not None
        self.struck.append(f"a worker's link cut for {CUT_SECONDS:g} s")
        victim = self._busy()
        self.net.cut(victim.host)
        self._pass(CUT_SECONDS)
        self.net.heal(victim.host)

    def _restart_server(self) -> None:
        kept = "lost" if self.scenario.aof == "no" else "kept"
        self.struck.append(f"the server killed, back after {AWAY_SECONDS:g} s with its data {kept}")
        self.server.kill()
        self.mark("server away")
        self._pass(AWAY_SECONDS)
        self.server.start()
        self._pass(3 * REST_SECONDS)
        self.mark("server back")
        self._pass(REST_SECONDS)

    def _busy(self) -> Group:
        """A worker that holds a chunk."""
        found: list[Group] = []

        def some() -> bool:
            found[:] = [worker for worker in self.workers() if self.view.held(worker.pid)]
            return bool(found)

        self._pass_until(some, "a worker holds a chunk")
        return self._rng.choice(found)

    # -- time passes -------------------------------------------------------------------------------------

    def _pass(self, seconds: float, *, at_work: bool = True) -> None:
        ends = time.monotonic() + seconds
        while time.monotonic() < ends:
            if at_work:
                self.tick()
            self._look()
            time.sleep(TURN_SECONDS)

    def _pass_until(self, condition: Callable[[], bool], what: str, seconds: float = 60.0) -> None:
        ends = time.monotonic() + seconds
        while not condition():
            assert time.monotonic() < ends, f"waited {seconds:g} s in vain: {what} ({self.said()})"
            self._pass(TURN_SECONDS)

    def _look(self) -> None:
        queue = None
        with contextlib.suppress(redis.RedisError):
            queue = int(self.server.client.llen(self.view.queue()))
        living = [group for group in self.groups if group.alive]
        running = sum(not group.stopped for group in living)
        self._looks.append(Look(time.time(), queue, len(living), running))

    # -- processes that talk -----------------------------------------------------------------------------

    def _worker_command(self) -> list[str]:
        return _talking(super()._worker_command())

    def _first_command(self) -> list[str]:
        return _talking(super()._first_command())

    def _again_command(self) -> list[str]:
        return _talking(super()._again_command())


def _talking(command: list[str]) -> list[str]:
    """An evalq command by way of `tests.chaos.seen.talking`."""
    python, module, _, *words = command
    assert (python, module) == (sys.executable, "-m")
    return [python, module, "tests.chaos.seen.talking", *words]
