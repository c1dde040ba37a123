"""How long it takes to go on: an observer that polls the ledger beside the faults, and a meter for each of them."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable
from typing import Any, NamedTuple, Protocol

import redis

POLL_SECONDS = 0.01
UNHURRIED_SECONDS = 0.03
"""Between two looks where a run is held up until a fault has struck, so that none is missed, and nobody measures."""


class Sample(NamedTuple):
    """How a run stands: chunks ``committed`` (restored ones too) and ``computed`` by workers; ``done`` at its end."""

    committed: int
    computed: int
    epoch: int
    done: bool


class View(Protocol):
    """What can be seen of a run from outside: evalq's ledger, or the naive set-up's counters."""

    def sample(self) -> Sample:
        """How the run stands now. Raises redis.RedisError while the server is away."""

    def uncommitted(self, seqs: Iterable[int]) -> set[int]:
        """Those of ``seqs`` that have no answer yet."""

    def held(self, pid: int) -> set[int]:
        """Chunks that processes of the worker with main process ``pid`` are known to be computing."""

    def queue(self) -> str:
        """The queue's key in the server."""


class Meter:
    """From a fault to the next commit by a living worker (``seconds``), and until the victim's chunks are committed."""

    def __init__(self, fault: str, held: set[int]) -> None:
        self.fault = fault
        self.began = time.monotonic()
        self.seconds: float | None = None
        self.held_seconds: float | None = None
        self._held = held
        self._lowest: int | None = None

    @property
    def open(self) -> bool:
        """Whether it still waits for something."""
        return self.seconds is None or bool(self._held)

    def feed(self, sample: Sample, view: View) -> None:
        """Take one look into account. A counter that falls (a server rolled back) counts from there."""
        passed = time.monotonic() - self.began
        lowest = sample.computed if self._lowest is None else min(self._lowest, sample.computed)
        if self.seconds is None and (sample.computed > lowest or sample.done):
            self.seconds = passed
        self._lowest = lowest
        if self._held:
            self._held = set() if sample.done else view.uncommitted(self._held)
            if not self._held:
                self.held_seconds = passed

    def line(self) -> dict[str, Any]:
        """For the results file; None where it never recovered."""
        rounded = [None if value is None else round(value, 2) for value in (self.seconds, self.held_seconds)]
        return {"fault": self.fault, "seconds": rounded[0], "held": rounded[1]}


class Observer(threading.Thread):
    """Polls a view in the background; ``latest`` is the last look while the server answered."""

    def __init__(self, view: View) -> None:
        super().__init__(name="chaos-observer", daemon=True)
        self._view = view
        self._ended = threading.Event()
        self.pause = POLL_SECONDS
        self.latest = Sample(0, 0, 0, False)
        self.meters: list[Meter] = []

    def run(self) -> None:
        """Until `end`."""
        while not self._ended.wait(self.pause):
            began = time.monotonic()
            try:
                sample = self._view.sample()
                # One that was begun before a fault may show less than there was when it struck.
                for meter in [meter for meter in self.meters if meter.open and meter.began <= began]:
                    meter.feed(sample, self._view)
            except redis.RedisError:
                continue
            self.latest = sample

    def end(self) -> None:
        """Stop polling."""
        self._ended.set()
        if self.is_alive():
            self.join()
