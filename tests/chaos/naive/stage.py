"""The naive set-up as a stage: the same server, supervision and faults, another producer and other workers."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from typing import Any

import msgspec
import redis

from tests.chaos.recovery import Sample, View
from tests.chaos.stage import Stage
from tests.chaos.subjects import record_keys
from tests.chaos.verdict import Verdict, count

ROWS, DONE = "naive:rows", "naive:done"


class NaiveView:
    """Its counter of chunks."""

    def __init__(self, client: Any) -> None:
        self._client = client

    def sample(self) -> Sample:
        """Chunks counted so far, doubles included."""
        done = int(self._client.get(DONE) or 0)
        return Sample(done, done, 0, False)

    def uncommitted(self, seqs: Iterable[int]) -> set[int]:
        """Not known."""
        return set()

    def held(self, pid: int) -> set[int]:
        """Not known; a busy worker is any that has started."""
        return {0} if self.sample().committed else set()

    def queue(self) -> str:
        """Celery's default."""
        return "celery"


class NaiveStage(Stage):
    """A hand-made Celery application instead of evalq."""

    def _look_at(self, client: Any) -> View:
        return NaiveView(client)

    def _worker_command(self) -> list[str]:
        command = [sys.executable, "-m", "celery", "-A", "tests.chaos.naive.tasks", "worker", "--loglevel", "warning"]
        return [*command, "--concurrency", str(self.scenario.concurrency)]

    def _first_command(self) -> list[str]:
        size = str(self.subject.chunk_size(self.scenario.chunks))
        return [sys.executable, "-m", "tests.chaos.naive.produce", self.subject.args[1], size]

    def _again_command(self) -> list[str]:
        return [*self._first_command(), "wait"]

    def open(self) -> None:
        """With the variables that the application is made by."""
        self.extra |= {"NAIVE_BROKER": self.server.url, "NAIVE_ACKS": self.scenario.naive}
        super().open()

    def verdict(self) -> Verdict:
        """Rows in the server's list against those of the calm run; what is missing now is lost."""
        wanted = record_keys(self.subject.calm / "records.jsonl")
        try:
            found = [msgspec.json.decode(line)["record"] for line in self.server.client.lrange(ROWS, 0, -1)]
        except redis.RedisError:
            found = []
        lost, doubled = count(found, wanted)
        why = "" if not (lost or doubled) else f"{lost} lost, {doubled} doubled of {len(wanted)} rows"
        return Verdict(not why, lost, doubled, 0, why)
