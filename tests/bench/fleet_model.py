"""A discrete simulation of one run over a fleet: producer, ledger and workers as they take turns with each chunk."""

from __future__ import annotations

import heapq
from collections import deque
from itertools import count

import msgspec

from evalq.workers.settings import TIMINGS

_FETCH, _PLAN = 8, 4
_IDLE_SECONDS, _LOOK_SECONDS = 0.02, 1.0
_PUBLISH, _CLAIM, _COMMIT, _COLLECT = 0.25, 0.25, 0.3, 0.2
"""How the server's time for a chunk is shared by its four visits: where the sum is the limit, it does not matter."""


class Model(msgspec.Struct, frozen=True):
    """CPU seconds (a chunk, a record) of each process, of the ``kernel`` a record, of the server for a heartbeat, for a
    ``look``, and for each chunk in ``flight`` at it.
    """

    producer: tuple[float, float]
    worker: tuple[float, float]
    server: tuple[float, float]
    kernel: float
    records: float
    beat: float = 0.0
    look: float = 0.0
    flight: float = 0.0

    def chunk(self, name: str) -> float:
        """Seconds of a whole chunk."""
        per_chunk, per_record = getattr(self, name)
        found: float = per_chunk + self.records * (per_record + (self.kernel if name == "worker" else 0.0))
        return found


class Simulated(msgspec.Struct, frozen=True):
    """What a fleet does: shares are of the time that the producer, the ledger and a worker are busy."""

    records_a_second: float
    producer: float
    server: float
    worker: float
    limit: str


class _Cores:
    """So many tasks at once, in the order that they come; None: as many as there are."""

    def __init__(self, cores: int | None) -> None:
        self.few = bool(cores)
        self._free = [0.0] * cores if cores else None

    def end(self, begin: float, seconds: float) -> float:
        if self._free is None:
            return begin + seconds
        ended = max(begin, heapq.heappop(self._free)) + seconds
        heapq.heappush(self._free, ended)
        return ended


class _Fleet:
    def __init__(self, model: Model, workers: int, window: int, delay: float, cores: int | None, chunks: int) -> None:
        self.model, self.window, self.delay, self.chunks = model, window, delay, chunks
        self.cores = _Cores(cores)
        self.workers = workers
        self.idle = deque(range(workers))
        self.queue: deque[int] = deque()
        self.done: set[int] = set()
        self.planned = self.published = self.committed = self.collected = 0
        self.server_free = self.server_busy = self.producer_busy = self.worker_busy = 0.0
        self.events: list[tuple[float, int, str, int]] = []
        self.order = count()
        self.full = 0.0

    def at(self, when: float, what: str, seq: int = 0) -> None:
        heapq.heappush(self.events, (when, next(self.order), what, seq))

    def serve(self, now: float, seconds: float) -> float:
        """A visit to the ledger: when it is over there."""
        self.server_free = self.cores.end(max(now, self.server_free), seconds)
        self.server_busy += seconds
        return self.server_free

    def _after(self, now: float, took: float, visits: float) -> float:
        """When a step of the producer is over that waits for its visits to the ledger."""
        if self.cores.few:  # one after the other on one core: no core stands reserved for what comes later
            self.server_busy += visits
            return self.cores.end(now, took + visits)
        return self.serve(now + took, visits)

    def run(self) -> float:
        """The seconds that it takes."""
        self.at(0.0, "produce")
        self.at(TIMINGS.beat, "beat")
        now = 0.0
        while self.collected < self.chunks:
            now, _, what, seq = heapq.heappop(self.events)
            getattr(self, f"_{what}")(now, seq)
        return now

    def _produce(self, now: float, _: int) -> None:
        """One step of the producer: it plans, or collects what is next in order, and publishes what has room."""
        took, visits = 0.0, 0.0
        whole, mine = self.model.chunk("producer"), self.model.chunk("server")
        if self.planned < self.chunks and self.planned - self.collected <= 2 * self.window:
            some = min(_PLAN, self.chunks - self.planned)
            self.planned += some
            took += 0.6 * whole * some
        fetched = 0
        while fetched < _FETCH and self.collected in self.done:
            self.done.remove(self.collected)
            self.collected += 1
            fetched += 1
        took += 0.4 * whole * fetched
        visits += _COLLECT * mine * fetched
        room = min(self.planned, self.window + self.committed) - self.published
        visits += _PUBLISH * mine * room
        self.producer_busy += took
        ended = self._after(now, took, visits) + (2 * self.delay if visits else 0.0)
        for _ in range(room):
            self.at(ended, "arrive", self.published)
            self.published += 1
        self.at(ended if took else ended + _IDLE_SECONDS, "produce")

    def _arrive(self, now: float, seq: int) -> None:
        self.queue.append(seq)
        self._hand_out(now)

    def _hand_out(self, now: float) -> None:
        while self.queue and self.idle:
            self.idle.popleft()
            seq = self.queue.popleft()
            begin = self.serve(now + self.delay, _CLAIM * self.model.chunk("server")) + 2 * self.delay
            self.at(begin, "compute", seq)

    def _compute(self, now: float, seq: int) -> None:
        took = self.model.chunk("worker")
        self.worker_busy += took
        self.at(self.cores.end(now, took) + self.delay, "commit", seq)

    def _commit(self, now: float, seq: int) -> None:
        self.at(self.serve(now, _COMMIT * self.model.chunk("server")) + self.delay, "free", seq)

    def _free(self, now: float, seq: int) -> None:
        self.done.add(seq)
        self.committed += 1
        self.idle.append(0)
        self._hand_out(now)

    def _beat(self, now: float, _: int) -> None:
        """What goes on whatever is computed: heartbeats, and looks of the producer and of the worker that tends."""
        looks = TIMINGS.beat / _LOOK_SECONDS + 1
        flying = self.published - self.committed
        self.serve(now, self.workers * self.model.beat + looks * (self.model.look + flying * self.model.flight))
        self.at(now + TIMINGS.beat, "beat")


def simulate(
    model: Model, workers: int, *, window: int = 64, delay: float = 0.001, cores: int | None = None
) -> Simulated:
    """One run over so many ``workers`` with a process each: on ``cores`` that all share, or each with its own.

    ``delay`` is the seconds of one way over the network, ``window`` the setting of that name.
    """
    chunks = 600 + 10 * workers
    fleet = _Fleet(model, workers, window, delay, cores, chunks)
    seconds = fleet.run()
    producer, server = fleet.producer_busy / seconds, fleet.server_busy / seconds
    worker = fleet.worker_busy / seconds / workers
    busiest = {"producer": producer, "ledger": server, "workers": worker}
    name = max(busiest, key=busiest.__getitem__)
    limit = name if busiest[name] > 0.85 else ("window" if workers > window else "none is full")
    if cores:
        limit = "cores"
    return Simulated(chunks * model.records / seconds, producer, server, worker, limit)
