"""Taking apart a chunk that kills its process: ranges run in separate processes and are halved down to one record.

Splitting is free, since ranges folded in order give the same result as the whole chunk; so one death halves a range. A
single record is dead only after it killed its process DEATHS times, or LOSSES whole workers.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NoReturn

import msgspec

from evalq.evalcore.contract.evaluator import Batch, Evaluator, Outcome, Params, dead_outcome
from evalq.evalcore.contract.partial import Partial, decode, encode
from evalq.evalcore.errors import InfrastructureError
from evalq.workers.processes.system import bound_memory, die_with_parent, leave_group, signal_name
from evalq.workers.settings import Settings

DEATHS = 3
"""Deaths of a chunk's process before it is taken apart, and of a single record's process before it is dead."""
LOSSES = 8
"""The same for deaths of whole workers, which are seldom the record's fault."""
MAX_DEAD = 100
"""With more dead records in one chunk, the evaluator or its limits are at fault, and the run fails."""
# A short range needs time to start, too: with less it would be halved for being slow.
_LEAST_SHARE = 1 / 16
_DIGEST = 64
_POLL_MS = 100


class ChunkLimits(msgspec.Struct, frozen=True):
    """Limits of a chunk: ``seconds`` of time, and ``bytes`` of memory beyond its process's own."""

    seconds: float
    bytes: int

    @classmethod
    def of(cls, settings: Settings) -> ChunkLimits:
        """The limits in a worker's settings."""
        return cls(settings.chunk_seconds, settings.chunk_megabytes << 20)

    def bound_memory(self) -> None:
        """Let allocations of this process fail beyond the limit; no effect if its present use is unknown."""
        bound_memory(self.bytes)

    @contextlib.contextmanager
    def bounding_time(self) -> Iterator[None]:
        """Let the kernel end this process if the block takes too long: a hanging block runs no Python handler."""
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.setitimer(signal.ITIMER_REAL, self.seconds)
        try:
            yield
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)

    def dies_of(self, action: Callable[[], object]) -> str:
        """Run ``action`` in a forked process within these limits; returns what killed the process, or "".

        An exception of ``action`` is no death.
        """
        pid = os.fork()
        if pid == 0:
            try:
                die_with_parent()
                with contextlib.suppress(BaseException), self.bounding_time():
                    action()
            finally:
                # Not Python's own shutdown, which would run the parent's handlers and flush its buffers again.
                os._exit(0)
        _, status = os.waitpid(pid, 0)
        return self.death(status)

    def death(self, status: int) -> str:
        """How a process ended, by the ``status`` of os.waitpid; empty for exit code 0."""
        if os.WIFSIGNALED(status):
            number = os.WTERMSIG(status)
            if number == signal.SIGALRM:
                return f"took longer than {self.seconds:g} s"
            return f"killed its process by {signal_name(number)}"
        return f"ended its process with exit code {os.WEXITSTATUS(status)}" if os.WEXITSTATUS(status) else ""


class Isolation:
    """One chunk that is being taken apart."""

    def __init__(
        self,
        evaluator: Evaluator[Any, Any],
        params: Params,
        batch: Batch,
        limits: ChunkLimits,
        crashes_by_piece: Mapping[str, int],
        trying: Callable[[str], None],
    ) -> None:
        """``crashes_by_piece`` counts workers that died trying a piece; ``trying`` is called before each piece."""
        self._evaluator = evaluator
        self._params = params
        self._batch = batch
        self._limits = limits
        self._crashes_by_piece = crashes_by_piece
        self._trying = trying
        self._ends = batch.ends(evaluator.records.format)
        self._dead = 0

    def outcome(self) -> Outcome[Any]:
        """The chunk's outcome, with dead records. Raises InfrastructureError for more than MAX_DEAD of them."""
        return self._piece(0, len(self._ends))

    def _piece(self, first: int, last: int) -> Outcome[Any]:
        """The outcome of records ``first`` to ``last`` (exclusive)."""
        alone = last - first <= 1
        piece, name, reason = self._batch.part(self._ends, first, last), f"{first}-{last}", ""
        # One death is enough for a range, since halving costs nothing; a dead record loses its result.
        for _ in range(DEATHS if alone else 1):
            if self._crashes_by_piece.get(name, 0) >= (LOSSES if alone else 1):
                reason = "whole workers died with it"
                break
            # Noted before the trial: if the range kills this whole worker, the next one halves it at once.
            self._trying(name)
            answer = self._trial(piece, self._seconds(last - first))
            if not isinstance(answer, str):
                return answer
            reason = answer
        if not alone:
            middle = (first + last) // 2
            return _folded(self._piece(first, middle), self._piece(middle, last))
        self._dead += 1
        if self._dead > MAX_DEAD:
            raise InfrastructureError(f"over {MAX_DEAD} records of one chunk killed their process: {reason}")
        return dead_outcome(self._evaluator, piece, self._params, reason)

    def _seconds(self, records: int) -> float:
        """The time for a range: its share of the chunk's time; for a single record, all of it."""
        share = 1.0 if records <= 1 else max(records / len(self._ends), _LEAST_SHARE)
        return self._limits.seconds * share

    def _trial(self, piece: Batch, seconds: float) -> Outcome[Any] | str:
        """The piece's outcome from a forked process, or what killed that process."""
        reader, writer = os.pipe()
        pid = os.fork()
        if pid == 0:
            os.close(reader)
            self._answer(piece, seconds, writer)
        # The parent's copy too: as long as one is open, the read below has no end.
        os.close(writer)
        try:
            answer, status = _answer_of(reader, pid)
        finally:
            os.close(reader)
        return self._read(answer, status)

    def _answer(self, piece: Batch, seconds: float, writer: int) -> NoReturn:
        """In the child: evaluate, write the answer to the pipe, and end without the parent's clean-up."""
        try:
            # A record that kills its process group must not reach this worker.
            leave_group()
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
            self._limits.bound_memory()
            try:
                with ChunkLimits(seconds, self._limits.bytes).bounding_time():
                    partial = encode(self._evaluator.evaluate(piece, self._params))
                answer = b"+" + partial.digest.encode() + partial.data
            except MemoryError:
                answer = b"m"
            except Exception as error:  # sent to the parent, which fails the chunk
                answer = b"!" + f"{type(error).__name__}: {error}".encode(errors="backslashreplace")
            with os.fdopen(writer, "wb") as out:
                out.write(answer)
            os._exit(0)
        finally:
            os._exit(1)

    def _read(self, answer: bytes, status: int) -> Outcome[Any] | str:
        kind, rest = answer[:1], answer[1:]
        # Before reading the answer: a process that was killed while it wrote has left only a part.
        if os.WIFSIGNALED(status):
            return self._limits.death(status)
        if kind == b"+" and os.WEXITSTATUS(status) == 0:
            return decode(Partial(rest[:_DIGEST].decode(), rest[_DIGEST:]), self._evaluator)
        if kind == b"m":
            return f"needed more than {self._limits.bytes >> 20} MB of memory"
        if kind == b"!":
            raise RuntimeError(rest.decode(errors="replace"))
        return f"ended its process with exit code {os.WEXITSTATUS(status)}"


def _answer_of(reader: int, pid: int) -> tuple[bytes, int]:
    """The output of a process, and its exit status.

    The end of the pipe is not enough: processes that it has started may keep the pipe open.
    """
    os.set_blocking(reader, False)
    ready, parts, status = select.poll(), list[bytes](), None
    ready.register(reader, select.POLLIN)
    while status is None:
        ready.poll(_POLL_MS)
        # Check for its end before reading, so that all its output is there. Do not wait for the end: a process with a
        # long answer ends only after somebody reads it.
        ended, code = os.waitpid(pid, os.WNOHANG)
        status = code if ended else None
        with contextlib.suppress(BlockingIOError):
            while part := os.read(reader, 1 << 20):
                parts.append(part)
            status = os.waitpid(pid, 0)[1] if status is None else status
    return b"".join(parts), status


def _folded(left: Outcome[Any], right: Outcome[Any]) -> Outcome[Any]:
    left.state.merge(right.state)
    left.tally.merge(right.tally)
    return Outcome(left.state, left.tally, left.lines + right.lines)
