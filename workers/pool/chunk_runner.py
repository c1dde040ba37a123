"""The one task: claim a chunk, evaluate it, commit its answer."""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache, partial
from pathlib import Path
from typing import Any, assert_never

import msgspec
import redis
from billiard.common import terminate_handler_fired

from evalq.evalcore.contract import plugins
from evalq.evalcore.contract.evaluator import Batch, Evaluator, Outcome, Params
from evalq.evalcore.contract.params import validate
from evalq.evalcore.contract.partial import Partial, encode
from evalq.evalcore.contract.plugins import brief
from evalq.evalcore.errors import UnknownEvaluator, WireError
from evalq.evalcore.model.canonical import uncollected
from evalq.evalcore.model.manifest import Chunk, Header
from evalq.evalcore.version import code_version
from evalq.workers import inputs as reading
from evalq.workers import tracing
from evalq.workers.ledger.failures import REASON_CHARACTERS, Failures, Kind, server_is_away
from evalq.workers.ledger.heartbeats import Heartbeats
from evalq.workers.ledger.runs import Lease, RunLedger
from evalq.workers.pool.isolation import DEATHS, LOSSES, ChunkLimits, Isolation
from evalq.workers.processes import identity, system
from evalq.workers.processes.identity import CodeVersionGuard
from evalq.workers.settings import Settings

log = logging.getLogger("evalq.worker")

REST_SECONDS = 2.0
"""The longest wait of a process after a failure, short enough for a worker that has to stop."""


class ChunkRunner:
    """A pool process at work: its ledger, its folders and its name (the worker's name, which siblings share).

    The process should wait ``rest`` seconds before it takes the next chunk. It is 0, or longer with each failure.
    Otherwise a host that fails at once would take every chunk before the others do.
    """

    def __init__(self, ledger: RunLedger, settings: Settings, name: str, host: str = "") -> None:
        self._ledger = ledger
        self._name = name
        self._host = host or identity.host()
        self._roots = [Path(root) for root in settings.roots] or [Path.cwd()]
        # One renewal may be late or lost, and the lease still holds.
        self._pulse = settings.lease_seconds / 3
        self._limits = ChunkLimits.of(settings)
        self._failures = Failures(ledger)
        self._heartbeats = Heartbeats(ledger.client)
        self._committed_in: float | None = None
        self._loaded: set[str] = set()
        self._params: tuple[Header, Params] | None = None
        self._code = CodeVersionGuard()
        self._streak = 0

    @property
    def rest(self) -> float:
        return min(REST_SECONDS, 2.0 ** (self._streak - 3)) if self._streak else 0.0

    def evaluate(self, run: str, seq: int, epoch: int) -> str:
        """Compute one chunk, if it is still wanted; return what outcome of it.

        The ledger counts every failure, and evalq offers the chunk again. Raises redis.RedisError if the ledger is
        away. The broker then delivers the message again, or evalq publishes the chunk again.
        """
        with tracing.span("chunk", run, seq=seq, epoch=epoch) as span:
            outcome = self._counted(run, seq, epoch)
            span.set_attribute("evalq.outcome", outcome)
            return outcome

    def _counted(self, run: str, seq: int, epoch: int) -> str:
        try:
            outcome = self._evaluate(run, seq, epoch)
        except _ChunkFailed as failed:
            return self._fail(run, seq, epoch, failed.kind, failed.reason)
        except (WireError, UnknownEvaluator) as error:  # the ledger holds data that no producer wrote
            log.warning("chunk %s of run %s: %s", seq, run, error)
            self._ledger.close(run, "failed", str(error)[:REASON_CHARACTERS])
            return "failed"
        except Exception as error:
            if server_is_away(error):
                raise
            log.exception("chunk %s of run %s failed", seq, run)
            return self._fail(run, seq, epoch, _kind_of(error), f"chunk {seq}: {brief(error)}")
        # Only a commit proves that this host can compute: "held" and "stale" are answers before it tried.
        if outcome == "committed":
            self._streak = 0
        return outcome

    def _fail(self, run: str, seq: int, epoch: int, kind: Kind, reason: str) -> str:
        if self._failures.count(run, seq, epoch, self._name, self._host, kind, reason):
            log.warning("chunk %s of run %s failed here: %s", seq, run, reason)
            # Count only failures that the ledger counts. If the producer will send the bytes, say, this host is not at
            # fault.
            self._streak += 1
        return "failed"

    def _evaluate(self, run: str, seq: int, epoch: int) -> str:
        with tracing.span("claim", run, seq=seq):
            lease = self._claim(run, seq, epoch)
        _check(lease, run, seq)
        match lease.status:
            case "leased":
                assert lease.chunk, "a lease comes with its chunk"
                assert lease.header, "and with its run's header"
                with self._renewing(run, seq):
                    return self._compute(lease, lease.header, lease.chunk, epoch)
            case "other":
                theirs, ours = lease.code, code_version()
                log.warning("chunk %s of run %s is left alone: it is for code %s, this is %s", seq, run, theirs, ours)
                return lease.status
            case "held" | "committed" | "closed" | "stale" | "gone":
                return lease.status
            case _:
                assert_never(lease.status)

    def _claim(self, run: str, seq: int, epoch: int) -> Lease:
        mine = (run, seq, epoch, self._name, os.getpid())
        lease = self._ledger.claim(*mine, code=code_version())
        if lease.status == "held" and lease.holder == self._name and not _alive(lease.holder_pid):
            # A sibling died with the chunk, and the main process had the message delivered again: there is no need to
            # wait.
            lease = self._ledger.claim(*mine, dead_pid=lease.holder_pid, code=code_version())
        return lease

    def _compute(self, lease: Lease, header: Header, chunk: Chunk, epoch: int) -> str:
        evaluator = self._evaluator(lease, header.evaluator)
        began = time.monotonic()
        planned = header.inputs[chunk.input]
        if lease.blob:
            data = reading.unpack_blob(lease.blob, chunk, lease.key)
        else:
            data = reading.read(planned, chunk, self._roots, lease.key)
        if isinstance(data, str):
            # Refuse first: a producer that attends the run sends the bytes, and then nothing has failed.
            self._ledger.refuse(header.run, chunk.seq, epoch, data, self._name)
            self._fail(header.run, chunk.seq, epoch, "input", self._unread(planned.given, data))
            return data
        batch = Batch(planned.name, chunk.first_line, data, planned.columns, chunk.members)
        answer, dead = self._answer(evaluator, lease, header, chunk, batch)
        done = time.monotonic()
        took = {"queue_wait": lease.waited, "chunk_duration": done - began}
        if self._committed_in is not None:  # a commit can report only the duration of the one before it
            took["commit_duration"] = self._committed_in
        with tracing.span("commit", header.run, seq=chunk.seq):
            outcome = self._ledger.commit(header, chunk, epoch, answer, dead, took)
        self._committed_in = time.monotonic() - done
        return outcome

    def _answer(
        self, evaluator: Evaluator[Any, Any], lease: Lease, header: Header, chunk: Chunk, batch: Batch
    ) -> tuple[Partial, int]:
        """The chunk's answer, and the number of its dead records. Raises _ChunkFailed if the evaluator raises."""
        try:
            params = self._params_of(header)
            with tracing.span("evaluate", header.run, seq=chunk.seq, evaluator=header.evaluator, records=chunk.records):
                outcome = None if _suspicious(lease) else self._whole(evaluator, params, batch)
                if apart := outcome is None:
                    outcome = self._by_pieces(evaluator, params, batch, header.run, chunk.seq)
                self._of_one_code(header.evaluator, elsewhere=apart)
                return encode(outcome, chunk), outcome.tally.dead
        # The ledger failed while noting pieces, or this host failed. The evaluator did not.
        except (redis.RedisError, _ChunkFailed):
            raise
        # An evaluator that calls sys.exit() fails its chunk; it does not end the process of the pool.
        except (Exception, SystemExit) as error:
            _raise_if_stopping(error)
            self._of_one_code(header.evaluator)
            log.exception("chunk %s of run %s cannot be evaluated", chunk.seq, header.run)
            raise _ChunkFailed(_kind_of(error), f"{batch.where(chunk.first_line)}: {brief(error)}") from error

    def _params_of(self, header: Header) -> Params:
        # Keep one object for all chunks of a run: to find it by its bytes, evalq would write 24 MB anew for 100,000
        # cases.
        if self._params is None or self._params[0] is not header:
            self._params = header, _params(header.evaluator, msgspec.json.encode(header.params))
        return self._params[1]

    def _evaluator(self, lease: Lease, name: str) -> Evaluator[Any, Any]:
        """The evaluator of that name. If it cannot be loaded here, this worker's heartbeat says so.

        Raises _ChunkFailed. Raises UnknownEvaluator for a name that no producer of this code version can have written.
        """
        if name in self._loaded and not _suspicious(lease):
            self._of_one_code(name)
            return plugins.get(name)
        unhealthy = self._heartbeats.is_unhealthy(self._name, name)
        try:
            # An import may also kill its process. After such deaths, try it in another process first.
            if (unhealthy or _suspicious(lease)) and (died := self._limits.dies_of(partial(plugins.get, name))):
                raise ImportError(died)
            evaluator = plugins.get(name)
        except UnknownEvaluator:  # not this host's fault: its code version says which evaluators are registered
            raise
        except (Exception, SystemExit) as error:  # a plug-in's import may raise anything
            _raise_if_stopping(error)
            self._of_one_code(name, elsewhere=True)  # modules of two code versions seldom fit together
            raise self._unable(name, brief(error)) from error
        self._of_one_code(name)
        # Say so only if the heartbeat said otherwise before: most workers load every evaluator and need no message.
        if unhealthy:
            self._heartbeats.mark_healthy(self._name, name)
        self._loaded.add(name)
        return evaluator

    def _of_one_code(self, name: str, *, elsewhere: bool = False) -> None:
        """Raise _ChunkFailed if evaluator ``name`` computes with other code than this worker's."""
        if changed := self._code.changed(elsewhere=elsewhere):
            raise self._unable(name, changed)

    def _unable(self, name: str, why: str) -> _ChunkFailed:
        """Say in this worker's heartbeat that it cannot load the evaluator; return the failure."""
        self._heartbeats.mark_unhealthy(self._name, name, why)
        return _ChunkFailed("load", f"cannot load {name}: {why}")

    def _unread(self, given: str, why: str) -> str:
        if why == reading.UNREADABLE:
            return f"{given} is under none of its folders ({', '.join(map(str, self._roots))}): give it --root"
        return f"{given} has other bytes there than were planned, or may not be read"

    def _whole(self, evaluator: Evaluator[Any, Any], params: Params, batch: Batch) -> Outcome[Any] | None:
        """The chunk's outcome; None if it needs more memory than allowed."""
        try:
            with self._limits.bounding_time(), uncollected():
                return evaluator.evaluate(batch, params)
        # Perhaps a single record does not fit. Taken apart, the other records still get their results.
        except MemoryError:
            return None

    def _by_pieces(
        self, evaluator: Evaluator[Any, Any], params: Params, batch: Batch, run: str, seq: int
    ) -> Outcome[Any]:
        """The chunk's outcome without the records that kill their process."""
        log.warning("chunk %s of run %s is taken apart: it killed the processes it was evaluated in", seq, run)
        crashes, trying = self._ledger.crashes_by_piece(run, seq), partial(self._ledger.trying, run, seq)
        return Isolation(evaluator, params, batch, self._limits, crashes, trying).outcome()

    @contextmanager
    def _renewing(self, run: str, seq: int) -> Iterator[None]:
        """Keep the lease alive while the block evaluates."""
        done = threading.Event()

        def beat() -> None:
            while not done.wait(self._pulse):
                try:
                    with system.fork_lock():  # taking a chunk apart forks
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


# Validate the params once for each run, not for each chunk. The key is their bytes: runs of one evaluator differ in
# them.
@lru_cache(maxsize=64)
def _params(evaluator: str, data: bytes) -> Params:
    params: Params = validate(plugins.get(evaluator).Params, msgspec.json.decode(data), "manifest")
    return params


def _check(lease: Lease, run: str, seq: int) -> None:
    """Check that a lease is for the chunk asked for. Raises WireError."""
    if lease.chunk is None or lease.header is None:
        return
    if (lease.header.run, lease.chunk.seq) != (run, seq) or lease.chunk.input >= len(lease.header.inputs):
        raise WireError("a chunk in the ledger is another's, or of an input that is not there: not what evalq writes")
    if lease.header.code_version != code_version():
        raise WireError(f"its header is of code {lease.header.code_version}, its messages of {code_version()}")


def _alive(pid: int) -> bool:
    """Whether another process with this number runs. If it is this process itself, it has given its chunk up."""
    return pid != os.getpid() and identity.is_running(pid)


# -- why a chunk failed, in the ledger's kinds -----------------------------------------------------


class _ChunkFailed(Exception):
    """A chunk failed here, for a reason that is known."""

    def __init__(self, kind: Kind, reason: str) -> None:
        super().__init__(reason)
        self.kind = kind
        self.reason = reason


def _raise_if_stopping(error: BaseException) -> None:
    """Raise a SystemExit again if this process's signal handler raised it: nothing failed, the worker is draining."""
    if isinstance(error, SystemExit) and terminate_handler_fired():
        raise error


def _kind_of(error: BaseException) -> Kind:
    if isinstance(error, redis.RedisError):
        return "ledger"
    return "environment" if isinstance(error, (OSError, MemoryError)) else "evaluator"
