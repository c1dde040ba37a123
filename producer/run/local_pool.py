"""Begin a job in processes forked from this one: a small job ends there, a long one goes on over a queue.

A server and workers take more than a second to start, and most jobs need less in all. So forked processes, which are
there at once, compute the first chunks. Their pace shows how long the rest takes: if it is long, a server and workers
start meanwhile, and take over with the next chunk once they wait for one. If a chunk kills or fails in a forked
process, the job goes to the workers at once: they can take a chunk apart.
"""

from __future__ import annotations

import contextlib
import gc
import threading
import time
from collections.abc import Iterator
from itertools import chain

import msgspec

from evalq.evalcore.contract.partial import Partial
from evalq.evalcore.errors import InfrastructureError
from evalq.evalcore.model.manifest import Chunk
from evalq.producer.folder.job import Job, total_bytes
from evalq.producer.local.forks import ForkLost, Forks, forked
from evalq.producer.local.processes import workers_wait
from evalq.producer.monitor.progress import Reporter, ShownProgress, Watcher
from evalq.producer.run.backend import LazyBackend
from evalq.producer.run.chunks import Collector, Planner, block_bytes, evaluate, read
from evalq.workers.pool.isolation import ChunkLimits
from evalq.workers.processes.system import die_with_parent, usable_cpus
from evalq.workers.settings import Settings

LONG_SECONDS = 6.0
"""A job with so much left is worth starting a server and workers: these take 1.3 CPU seconds, a tenth of it with two
cores."""
_PARAMS_A_SECOND = 1_000_000
"""Bytes of parameters that a worker reads in a second, at least; forked processes have them already."""
_PACE_SECONDS = 0.5
"""The pace counts from so long after the first answer, which may have waited for imports."""
_POLL_SECONDS = 0.05
_DRAIN_SECONDS = 1.0
_AHEAD = 64
"""Most answers that wait for an earlier one."""
_DIGEST = 64
_ANSWERED, _FAILED = b"+", b"!"


@contextlib.contextmanager
def forks_for(job: Job, settings: Settings) -> Iterator[Forks]:
    """Processes that compute chunks of ``job``, one per core but no more than its chunks, within a worker's limits."""
    limits = ChunkLimits.of(settings)
    # With a chunk size in records, the number of chunks is unknown; each has at least one byte.
    chunks = job.total_bytes
    if job.header.chunk_size is None:
        chunks = 1 + job.total_bytes // block_bytes(job.sources[0])

    def begin() -> None:
        gc.freeze()  # do not scan the parent's objects, so that their pages stay shared
        die_with_parent()
        limits.bound_memory()

    def answer(order: bytes) -> bytes:
        with limits.bounding_time():
            return _answer(job, msgspec.json.decode(order, type=Chunk))

    with forked(max(1, min(usable_cpus(), chunks)), answer, begin) as forks:
        yield forks


def _answer(job: Job, chunk: Chunk) -> bytes:
    try:
        partial = evaluate(job, chunk, read(job, chunk))
    except Exception as error:  # the workers will meet it again, and count and report it
        return _FAILED + f"{type(error).__name__}: {error}".encode(errors="replace")
    return _ANSWERED + partial.digest.encode() + partial.data


class LocalPool:
    """One job, begun with ``forks``. ``records`` and ``done_bytes`` count collected answers; ``planner`` goes on after
    the last chunk of the manifest."""

    def __init__(self, job: Job, collector: Collector, forks: Forks, later: LazyBackend, reporter: Reporter) -> None:
        self._job = job
        self._collector = collector
        self._forks = forks
        self._later: LazyBackend | None = later
        # A worker would read the cases again, which takes longer than evaluating them where they are.
        self._long_seconds = LONG_SECONDS + job.manifest.size // _PARAMS_A_SECOND
        self._reporter = reporter
        self._began = time.monotonic()
        self._held_bytes = _collected_bytes(job, collector.next)
        self._fresh_bytes = 0
        self._paced: tuple[float, int] | None = None
        self._heard = self._began
        self._importing: threading.Thread | None = None
        self._answers: dict[int, Partial] = {}
        self.planner = Planner(job)
        self._chunks = chain(job.manifest.chunks[collector.next :], self.planner.chunks())
        self.records = self.done_bytes = 0

    def drive(self, watch: Watcher) -> bool:
        """Compute until all is collected; False if the rest is left to the backend, which has been started.

        Raises InputError, InputChanged, and InfrastructureError if the backend is needed and cannot start.
        """
        try:
            self._order()
            while self._forks.busy:
                self._take(watch)
                if self._workers_wait():
                    self._drain(watch)
                    return False
                self._order()
        except ForkLost as lost:
            self._leave(str(lost))
            return False
        # Last, since a sealed plan is never extended.
        if self._job.manifest.seal is None:
            assert self.planner.seal is not None  # the planner sets it when its chunks are exhausted
            self._job.manifest.close(self.planner.seal)
        return True

    def _order(self) -> None:
        """Send chunks as long as a process will soon take them. Raises ForkLost."""
        while self._forks.room and len(self._answers) < _AHEAD:
            chunk = next(self._chunks, None)
            if chunk is None:
                return
            # Chunks planned by an earlier process are in the manifest already.
            if chunk.seq == len(self._job.manifest.chunks):
                self._job.manifest.extend([chunk])
            kept = self._collector.kept(chunk.seq)
            if kept is None:
                self._forks.order(chunk.seq, msgspec.json.encode(chunk))
            else:
                self._answers[chunk.seq] = kept
                self._collect()

    def _take(self, watch: Watcher) -> None:
        """Take answers in, and collect those that come next. Raises ForkLost."""
        before = self._collector.next
        for seq, answer in self._forks.answers(_POLL_SECONDS):
            self._note(seq, answer)
        self._collect()
        if self._collector.next > before:
            watch(ShownProgress(self.records, self.done_bytes, self._job.total_bytes))

    def _drain(self, watch: Watcher) -> None:
        """Take in answers that come soon, so that they need not be computed twice."""
        # A bound, since a chunk may take as long as its evaluator likes, and the workers are waiting.
        until = time.monotonic() + _DRAIN_SECONDS
        while self._forks.busy and time.monotonic() < until:
            self._take(watch)
        self._collector.sync()

    def _note(self, seq: int, answer: bytes) -> None:
        """Note an answer. Raises ForkLost if the chunk could not be computed."""
        if not answer.startswith(_ANSWERED):
            raise ForkLost(answer[1:].decode(errors="replace"))
        self._answers[seq] = Partial(answer[1 : 1 + _DIGEST].decode(), answer[1 + _DIGEST :])
        self._fresh_bytes += _size(self._job.manifest.chunks[seq])
        self._heard = time.monotonic()
        if self._paced is None:
            self._paced = self._heard, self._fresh_bytes

    def _collect(self) -> None:
        """Collect all answers that come next."""
        while self._collector.next in self._answers:
            chunk = self._job.manifest.chunks[self._collector.next]
            self._collector.add(chunk, self._answers.pop(chunk.seq))
            self.records += chunk.records
            self.done_bytes += _size(chunk)

    def _workers_wait(self) -> bool:
        """Whether workers wait for the rest of a long job; starts them once the job proves to be long."""
        if self._later is None or self._left() < self._long_seconds:
            return False
        if self._later.started is None:
            self._start(self._later)
        # Not during the import: no driver can take over from these processes before.
        elif self._importing is None or not self._importing.is_alive():
            self._later.started.check()
            return workers_wait(self._later.started.settings.broker)
        return False

    def _start(self, later: LazyBackend) -> None:
        try:
            later.backend()
        except (InfrastructureError, OSError) as error:  # no program, no room, no more files or processes
            self._reporter.say(f"this command's own processes compute all of it: {error}")
            self._later = None
            return
        # In a thread, since this process has answers to take in while the libraries load.
        self._importing = threading.Thread(target=_import_driver, name="evalq-import", daemon=True)
        self._importing.start()

    def _leave(self, reason: str) -> None:
        self._reporter.detail(f"{reason}; workers take over")
        # They come after the missing chunk, and the journal needs answers in order: workers compute them again.
        self._answers.clear()
        if self._later is None:
            raise InfrastructureError(f"{reason}, and there are no workers to find the record that caused it")
        self._later.backend()

    def _left(self) -> float:
        """The seconds that the rest takes, at the pace since the first answer; 0 if it is too early to know.

        At least the seconds since the last answer, since a process may hang. With one answer only: the seconds so far.
        """
        now = time.monotonic()
        if self._paced is None:
            return now - self._began
        began, before = self._paced
        gone, fresh = now - began, self._fresh_bytes - before
        if not fresh:
            return gone
        if gone < _PACE_SECONDS:
            return 0.0
        left = self._job.total_bytes - self._held_bytes - self.done_bytes
        seconds = gone * left / fresh
        limit = self._job.header.limit
        if limit is not None and self.records:
            # With a limit only some of the bytes are ever read, so what is left of them would say too much.
            seconds = min(seconds, gone * (limit - self.records) / self.records)
        return max(seconds, now - self._heard)


def _collected_bytes(job: Job, chunks: int) -> int:
    """Bytes of input up to the end of the first ``chunks`` chunks, including headers."""
    if not chunks:
        return 0
    last = job.manifest.chunks[chunks - 1]
    return total_bytes(job.sources[: last.input]) + last.end


def _size(chunk: Chunk) -> int:
    return chunk.end - chunk.start


def _import_driver() -> None:
    import evalq.producer.run.work  # noqa: F401 - and with it all that a driver needs
