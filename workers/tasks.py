"""The one task: claim a chunk, evaluate it, commit its answer."""

from __future__ import annotations

import logging
import os
import threading
import time
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

import msgspec
import redis

from evalcore import registry
from evalcore.errors import EvalqError, WireError
from evalcore.evaluator import Batch, Evaluator, Outcome, Params
from evalcore.params import validate
from evalcore.partial import encode
from evalcore.plan import Chunk, Header
from evalcore.version import code_version
from workers import reading, tracing
from workers.isolation import DEATHS, LOSSES, Isolation, Limits
from workers.ledger import Lease, Ledger
from workers.settings import Settings

__all__ = ["Worker"]

log = logging.getLogger("evalq.worker")

REASON_CHARACTERS = 1000
"""The longest reason a run is closed with: it may quote what somebody put into the ledger."""


class Worker:
    """What a pool process computes with: its ledger, its roots, and its name (the worker's, shared by siblings)."""

    def __init__(self, ledger: Ledger, settings: Settings, name: str) -> None:
        self._ledger = ledger
        self._name = name
        self._roots = [Path(root) for root in settings.roots] or [Path.cwd()]
        self._pulse = settings.lease_seconds / 3
        self._limits = Limits.of(settings)
        self._committed_in: float | None = None

    def evaluate(self, run: str, seq: int, epoch: int) -> str:
        """Compute one chunk, if it is still wanted; returns what became of it.

        Raises redis.RedisError when the ledger is lost: the message is then delivered again, or the chunk
        published again.
        """
        with tracing.span("chunk", run, seq=seq, epoch=epoch) as span:
            became = self._evaluate(run, seq, epoch)
            span.set_attribute("evalq.outcome", became)
            return became

    def _evaluate(self, run: str, seq: int, epoch: int) -> str:
        try:
            with tracing.span("claim", run, seq=seq):
                lease = self._claim(run, seq, epoch)
            _check(lease, run, seq)
        except WireError as error:  # what stands in the ledger is not what a producer wrote there
            log.warning("chunk %s of run %s: %s", seq, run, error)
            self._ledger.close(run, "failed", str(error)[:REASON_CHARACTERS])
            return "failed"
        if lease.status == "other":
            log.warning(
                "chunk %s of run %s is left alone: it is for code %s, this is %s", seq, run, lease.code, code_version()
            )
        if lease.chunk is None or lease.header is None:
            return lease.status
        with self._renewing(run, seq):
            return self._compute(lease, lease.header, lease.chunk, epoch)

    def _claim(self, run: str, seq: int, epoch: int) -> Lease:
        mine = (run, seq, epoch, self._name, os.getpid())
        lease = self._ledger.claim(*mine, code=code_version())
        if lease.status == "held" and lease.holder == self._name and not _alive(lease.holder_pid):
            # A sibling died with it, and the main process had the message delivered again: no need to wait.
            lease = self._ledger.claim(*mine, dead_pid=lease.holder_pid, code=code_version())
        return lease

    def _compute(self, lease: Lease, header: Header, chunk: Chunk, epoch: int) -> str:
        began = time.monotonic()
        planned = header.inputs[chunk.input]
        data = reading.unpack(lease.blob, chunk) if lease.blob else reading.read(planned, chunk, self._roots)
        if isinstance(data, str):
            self._ledger.refuse(header.run, chunk.seq, epoch, data)
            return data
        batch = Batch(planned.name, chunk.first_line, data, planned.columns, chunk.members)
        try:
            evaluator = registry.get(header.evaluator)
            params = _params(header.evaluator, msgspec.json.encode(header.params))
            with tracing.span("evaluate", header.run, seq=chunk.seq, evaluator=header.evaluator, records=chunk.records):
                outcome = None if _suspicious(lease) else self._whole(evaluator, params, batch)
                if outcome is None:
                    outcome = self._by_pieces(evaluator, params, batch, header.run, chunk.seq)
                answer, dead = encode(outcome, chunk), outcome.tally.dead
        except redis.RedisError:
            raise
        except Exception as error:  # a bug in an evaluator must end the run with a reason, not circle in the queue
            log.exception("chunk %s of run %s cannot be evaluated", chunk.seq, header.run)
            self._ledger.close(
                header.run, "failed", f"{batch.where(chunk.first_line)}: {_brief(error)}"[:REASON_CHARACTERS]
            )
            return "failed"
        done = time.monotonic()
        took = {"queue_wait": lease.waited, "chunk_duration": done - began}
        if self._committed_in is not None:  # a commit can only tell how long the one before it took
            took["commit_duration"] = self._committed_in
        with tracing.span("commit", header.run, seq=chunk.seq):
            became = self._ledger.commit(header, chunk, epoch, answer, dead, took)
        self._committed_in = time.monotonic() - done
        return became

    def _whole(self, evaluator: Evaluator[Any, Any], params: Params, batch: Batch) -> Outcome[Any] | None:
        """The chunk's outcome; None where it needs more memory than it may have."""
        try:
            with self._limits.bounding_time():
                return evaluator.evaluate(batch, params)
        except MemoryError:
            return None

    def _by_pieces(
        self, evaluator: Evaluator[Any, Any], params: Params, batch: Batch, run: str, seq: int
    ) -> Outcome[Any]:
        """The chunk's outcome without the records that kill."""
        log.warning("chunk %s of run %s is taken apart: it killed the processes it was evaluated in", seq, run)
        fallen = self._ledger.fallen(run, seq)
        trying = partial(self._ledger.trying, run, seq)
        return Isolation(evaluator, params, batch, self._limits, fallen, trying).outcome()

    @contextmanager
    def _renewing(self, run: str, seq: int) -> Iterator[None]:
        """Keep the lease alive beside the evaluation."""
        done = threading.Event()

        def beat() -> None:
            while not done.wait(self._pulse):
                try:
                    if not self._ledger.renew(run, seq, self._name, os.getpid()):
                        return
                except Exception as error:  # a lease only saves work; the commit decides
                    log.warning("lease of chunk %s of run %s not renewed: %s", seq, run, error)

        thread = threading.Thread(target=beat, name="evalq-lease", daemon=True)
        thread.start()
        try:
            yield
        finally:
            done.set()
            thread.join()


def _suspicious(lease: Lease) -> bool:
    return lease.attempts >= DEATHS or lease.losses >= LOSSES


@lru_cache(maxsize=64)
def _params(evaluator: str, data: bytes) -> Params:
    params: Params = validate(registry.get(evaluator).Params, msgspec.json.decode(data), "manifest")
    return params


def _check(lease: Lease, run: str, seq: int) -> None:
    """That a lease is of the chunk asked for. Raises WireError."""
    if lease.chunk is None or lease.header is None:
        return
    if (lease.header.run, lease.chunk.seq) != (run, seq) or lease.chunk.input >= len(lease.header.inputs):
        raise WireError("a chunk in the ledger is another's, or of an input that is not there: not what evalq writes")
    if lease.header.code_version != code_version():
        raise WireError(f"its header is of code {lease.header.code_version}, its messages of {code_version()}")


def _alive(pid: int) -> bool:
    """Whether another process of that number runs; this one asking about itself has given its chunk up."""
    if pid == os.getpid():
        return False
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def _brief(error: Exception) -> str:
    if isinstance(error, EvalqError):
        return str(error)
    last = traceback.extract_tb(error.__traceback__)[-1]
    return f"{type(error).__name__}: {error} (in {Path(last.filename).name}:{last.lineno}, {last.name})"
