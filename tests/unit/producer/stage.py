"""Drivers and a worker in this process over a real server: whole runs with their faults, in milliseconds."""

from __future__ import annotations

import io
import os
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

from evalq.evalcore.contract import plugins
from evalq.evalcore.contract.evaluator import Request
from evalq.evalcore.errors import WireError
from evalq.evalcore.evaluators.planagent.sample import write_rows
from evalq.evalcore.model.canonical import Json
from evalq.evalcore.version import code_version
from evalq.producer.driving.driver import Driver
from evalq.producer.driving.retries import ServerRetry
from evalq.producer.folder.job import Job, RunOptions
from evalq.producer.monitor.progress import ShownProgress
from evalq.producer.run.chunks import Collector, drive_inline
from evalq.producer.run.work import RunWork
from evalq.workers.broker.message import read_hint
from evalq.workers.broker.publisher import Broker
from evalq.workers.ledger.heartbeats import Heartbeats
from evalq.workers.ledger.runs import RunLedger
from evalq.workers.pool.chunk_runner import ChunkRunner
from evalq.workers.settings import Settings
from tests.integration.harness import Server, wait_until

ROWS = 120
Report = dict[str, Json]


@cache
def _rows() -> str:
    """The same for every stage, and to make them takes as long as to evaluate them."""
    out = io.StringIO(newline="")
    write_rows(out, ROWS, seed=7)
    return out.getvalue()


class Stage:
    """A folder with rows.csv, and a worker that computes when it is told to."""

    def __init__(self, server: Server, folder: Path, **settings: Any) -> None:
        self.server = server
        self.folder = folder
        (folder / "rows.csv").write_text(_rows(), encoding="utf-8", newline="")
        times = {"poll_seconds": 0.011, "grace_seconds": 0.02, "lease_seconds": 0.2, "driver_seconds": 0.3}
        self.settings = Settings(broker=server.url, roots=(folder,), window=4, **{**times, **settings})
        self.ledger = RunLedger(server.client, self.settings)
        self.worker = ChunkRunner(self.ledger, self.settings, "w")
        self._beat()
        self.computed = 0

    def job(self, name: str, **asked: Any) -> Job:
        """A job on rows.csv, begun in the folder ``name``."""
        out = RunOptions(out=self.folder / name, **asked)
        return Job.start(plugins.get("planagent"), Request([str(self.folder / "rows.csv")], {}, {}), out)

    def driver(self, job: Job, token: str) -> Run:
        """A process that drives ``job``."""
        return Run(self, job, token)

    def inline(self, name: str, **asked: Any) -> Report:
        """The report of the same evaluation without a queue."""
        job = self.job(name, **asked)
        collector = Collector(job)
        drive_inline(job, collector, lambda standing: None)
        assert job.manifest.seal is not None
        return collector.finish(job.manifest.seal)

    def work(self, most: int = 2) -> int:
        """Take up to ``most`` messages of this code and do what they ask for; returns how many there were."""
        for done in range(most):
            item = self.server.client.rpop(f"evalq.bulk.{code_version()}")
            if item is None:
                return done
            try:
                _, hint = read_hint(item)
            except WireError:
                continue
            self.computed += self.worker.evaluate(hint.run, hint.seq, hint.epoch) == "committed"
        return most

    def launch(self, run: Run) -> None:
        """Leave a run to workers that come later: one that lives is given ten seconds to compute its first chunk."""
        Heartbeats(self.server.client).leave("w")
        run.driver.launch()
        self._beat()

    def _beat(self) -> None:
        Heartbeats(self.server.client).beat("w", {"code": code_version(), "pid": os.getpid()}, 600)

    def key(self, run: str, part: str) -> str:
        """The name of one key of a run."""
        return f"evalq:run:{{{run}}}:{part}"


class Run:
    """One process's driving of a job."""

    def __init__(self, stage: Stage, job: Job, token: str) -> None:
        self._stage = stage
        self.job = job
        self.collector = Collector(job)
        self.ledger = RunLedger(stage.server.client, stage.settings, token)
        self._broker = Broker(stage.settings)
        retry = ServerRetry(stage.settings)
        self.work = RunWork(job, self.collector, self.ledger, self._broker, stage.settings, retry)
        self.driver = Driver(self.work, retry)
        self.looks = 0

    def drive(self, meanwhile: Callable[[int], None] = lambda look: None) -> Report:
        """To the end, with a worker beside; ``meanwhile`` is called at each look, with its number."""

        def watch(standing: ShownProgress) -> None:
            self.looks += 1
            meanwhile(self.looks)
            self._stage.work()

        try:
            self.driver.drive(watch)
        finally:
            self._broker.close()
        assert self.job.manifest.seal is not None
        return self.collector.finish(self.job.manifest.seal)


class StopDriving(Exception):
    """What stands for SIGKILL: the driver gets no further, and tidies nothing up."""


def killed_at(look: int) -> Callable[[int], None]:
    """A driver's end at its ``look``, without a word."""

    def meanwhile(number: int) -> None:
        if number == look:
            raise StopDriving

    return meanwhile


__all__ = ["Report", "Run", "Stage", "StopDriving", "killed_at", "wait_until"]
