"""Reading on in a log that grows, file by file, and folding its new lines into what is kept of the old ones."""

from __future__ import annotations

import contextlib
import io
import os
import time
from bisect import bisect_right
from collections.abc import Callable, Sequence
from functools import partial
from itertools import accumulate
from pathlib import Path
from typing import Any, BinaryIO

import msgspec

from evalq.evalcore.contract.evaluator import Batch, Evaluator, Params, State
from evalq.evalcore.contract.partial import decode, encode
from evalq.evalcore.contract.plugins import stdout_to_stderr
from evalq.evalcore.errors import InputChanged, InputError
from evalq.evalcore.files import open_raw
from evalq.evalcore.model.manifest import BLOCK_BYTES, BOM, MAX_RECORD_BYTES
from evalq.producer.follow import log_files
from evalq.producer.follow.checkpoint import Checkpoint, RunningSha256
from evalq.producer.follow.log_files import FileSeen, Segment, begins_with, opened

# All that was read of a followed log, once more, as one stream.


def _reopened(segment: Segment, where: Callable[[], Path], settling: Sequence[float]) -> BinaryIO:
    """The file of a segment, wherever a rotation has it by now: ``where`` says that, and may say so a moment too early.

    Raises what ``where`` raises when it is still so after the pauses of ``settling``.
    """
    for pause in settling:
        with contextlib.suppress(InputChanged, FileNotFoundError):
            stream = open_raw(where())
            if segment.difference(stream) is None:
                return stream
            stream.close()
        time.sleep(pause)
    return open_raw(where())


class Whole(io.RawIOBase):
    """The first ``end`` bytes of ``files``, each given as (how it is opened, how many bytes count), in order.

    One that ends too early is opened again: it may be replaced. ``counted`` is told of all bytes read.
    """

    def __init__(
        self, files: Sequence[tuple[Callable[[], BinaryIO], int]], end: int, counted: Callable[[int], None]
    ) -> None:
        self._files = list(files)
        self._starts = [0, *accumulate(length for _, length in files)]
        self._end = min(end, self._starts[-1])
        self._at = 0
        self._open: tuple[int, BinaryIO] | None = None
        self._counted = counted

    def readable(self) -> bool:
        """It is."""
        return True

    def seekable(self) -> bool:
        """It is."""
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        """Go to a byte."""
        self._at = {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self._end}[whence] + offset
        return self._at

    def readinto(self, buffer: Any) -> int:
        """The next bytes, of one file at a time; 0 at the end, or where a file has become shorter."""
        if self._at >= self._end:
            return 0
        index = bisect_right(self._starts, self._at) - 1
        stop = min(self._end, self._starts[index + 1], self._at + len(buffer))
        data = self._read(index, stop) or self._read(index, stop, again=True)
        buffer[: len(data)] = data
        self._at += len(data)
        self._counted(len(data))
        return len(data)

    def close(self) -> None:
        """Let go of the file at hand."""
        self._let_go()
        super().close()

    def _read(self, index: int, stop: int, *, again: bool = False) -> bytes:
        if again or self._open is None or self._open[0] != index:
            self._let_go()
            self._open = index, self._files[index][0]()
        stream = self._open[1]
        stream.seek(self._at - self._starts[index])
        return stream.read(stop - self._at)

    def _let_go(self) -> None:
        if self._open is not None:
            self._open[1].close()
            self._open = None


KEEP_BLOCKS = 16
"""Blocks that are evaluated before they are kept, so that a long catching-up goes on where it was killed."""
SETTLING_SECONDS = (0.05, 0.2, 0.5)
"""A rotation takes less."""
_ANEW = "begin anew in another --run-dir"
_RENAME = f"Have the log rotated by renaming (logrotate: without copytruncate), and {_ANEW}"


class Follower:
    """One log that grows. ``read_on`` evaluates what is new, ``state`` and ``kept`` are what all of it adds up to.

    ``name`` is what the log is called in reports and faults, ``stop`` says whether to end after the block at hand;
    ``settling`` are the pauses before a file that cannot be found is missed.
    """

    def __init__(
        self,
        evaluator: Evaluator[Any, Any],
        params: Params,
        name: str,
        kept: Checkpoint,
        folder: Path,
        stop: Callable[[], bool] = lambda: False,
        settling: Sequence[float] = SETTLING_SECONDS,
    ) -> None:
        self._evaluator, self._params, self._name, self._folder, self._stop = evaluator, params, name, folder, stop
        self._settling = settling
        self._log = Path(os.path.realpath(kept.given))
        self._stream: BinaryIO | None = None
        self._blocks, self._unkept = 0, False
        self.kept = kept
        self.state: State = evaluator.State.from_wire(bytes(kept.state))
        self.read_bytes = 0
        """Bytes read on from the log's files."""
        self.again_bytes = 0
        """Bytes read a second time: for a sort, or to see that they are the same."""
        hashing = RunningSha256.resume(kept.hashing, kept.sha256) if kept.position else RunningSha256()
        self._hash = hashing or self.verify()

    @property
    def waiting(self) -> int:
        """Bytes of the last line, which has no end yet."""
        return len(self.kept.carry)

    @property
    def sha256(self) -> str:
        """The digest of all that was evaluated."""
        return self._hash.hexdigest()

    @property
    def found(self) -> bool:
        """Whether there is, or was, a log at all."""
        return bool(self.kept.segments)

    def read_on(self) -> bool:
        """Evaluate all whole lines behind those known; whether there were any. They are kept unless one is at fault.

        Raises InputChanged where the bytes already read are not what they were, or where some that came behind them
        are missing; InputError for a file that cannot be read, or a line that is too long.
        """
        before = self.kept.position
        for pause in (*self._settling, None):
            try:
                self._follow()
                break
            except InputChanged:
                if pause is None:
                    raise
                time.sleep(pause)  # a rotation moves one file after another, and may be at it
        self._keep()
        return self.kept.position > before

    def _follow(self) -> None:
        """To the end of the log, through all files that it was rotated away to."""
        self._log = Path(os.path.realpath(self.kept.given))
        if self._stream is None and not self._open():
            return
        while True:
            # Looked for before reading on, so that nothing written before the next file was begun is missed.
            following = self._next()
            done = self._read()
            if done and following is not None and not self._stop():
                self._enter(*following)
                continue
            if following is not None:
                following[0].close()
            if done:
                return

    def _keep(self) -> None:
        """Make safe what is new, unless there is a fault in it that no report can stand."""
        if self._unkept and not self.kept.tally.fatal.total:
            if self.kept.sha256 != (found := self._hash.hexdigest()):
                self.kept.mark(found)
            self.kept.hashing = self._hash.state()
            self.kept.state = msgspec.Raw(self.state.to_wire())
            self.kept.store(self._folder)
            self._unkept = False

    def reopen(self) -> BinaryIO:
        """All that was evaluated, as one stream. Raises InputChanged where a part of it is gone."""
        files = []
        for segment in self.kept.segments:
            self._path_of(segment)  # what is missing is told before anything is read
            again = partial(_reopened, segment, partial(self._path_of, segment), self._settling)
            files.append((again, segment.length))
        return io.BufferedReader(Whole(files, self.kept.position, self._count_again), BLOCK_BYTES)

    def verify(self) -> RunningSha256:
        """Read again all that was read, mark by mark. Raises InputChanged that names the lines that are others."""
        running, line, at = RunningSha256(), 1, 0
        with self.reopen() as stream:
            for mark in self.kept.marks:
                while data := stream.read(min(BLOCK_BYTES, mark.position - at)):
                    running.update(data)
                    at += len(data)
                if running.hexdigest() != mark.sha256:
                    lines = f"not the bytes that were read: the change is in lines {line} to {mark.line - 1}"
                    raise InputChanged("the log changed behind its reader", [(f"{self._name}:{line}", lines)])
                line = mark.line
        return running

    @property
    def _current(self) -> Segment:
        return self.kept.segments[-1]

    def _open(self) -> bool:
        """Open the file to read on in; False where there is no log yet."""
        if not self.kept.segments:
            beside = log_files.seen_beside(self._log)
            stream = opened(self._log)
            if stream is not None:
                self._enter(stream, self._log, beside)
            return stream is not None
        path = log_files.find(self._log, self._current)
        stream = opened(path) if path else None
        # By its number alone it may be another file: those of removed ones are given again, as to what rsync leaves.
        same = stream is not None and self._current.difference(stream) is None
        # Where the file itself is gone, every file may begin with less than a line as it did.
        told = path is not None or b"\n" in self._current.head
        if not same and told and self._replaced():
            if stream is not None:
                stream.close()
            return True
        if path is not None and stream is not None:
            self._go_on(stream, path)  # where it is not what was read, this is told when more is looked for
            return True
        if not self._log.exists():
            return False
        reason = f"what was read of it, {self._current.length:,} bytes, is in no file beside it"
        raise _lost(self.kept, self._name, reason)

    def _next(self) -> tuple[BinaryIO, Path, list[FileSeen]] | None:
        """The file to read behind the current one, once there is something in it; None while there is none.

        With it, what rotation had left beside the log before it was opened. Whoever writes the log has done with a file
        when there is something in the next.
        """
        assert self._stream is not None
        if self._unlinked() and self._replaced():
            return None
        if (different := self._current.difference(self._stream)) is not None:
            raise _altered(self.kept, self._name, self._stream, different)
        if self._current.is_file(log_files.stat(self._log)):
            self._refuse_copied()
            return None
        here = log_files.find(self._log, self._current)
        if here is None:
            log_files.refuse_passed_over(self._log, os.fstat(self._stream.fileno()).st_mtime_ns, self.kept.segments)
        later, beside = log_files.rotated_later(self._log, here) if here else None, log_files.seen_beside(self._log)
        stream = opened(later or self._log)
        if stream is None:
            return None
        # Had the names moved on before it was opened, the current file would have another by now.
        if (later is None and not os.fstat(stream.fileno()).st_size) or log_files.find(
            self._log, self._current
        ) != here:
            stream.close()
            return None
        return stream, later or self._log, beside

    def _unlinked(self) -> bool:
        return self._stream is not None and os.fstat(self._stream.fileno()).st_nlink == 0

    def _replaced(self) -> bool:
        """Whether the log is another file that holds all that was read (as rsync leaves it); if so, go on in it.

        Raises InputChanged where a file that came beside it may be what came next as well.
        """
        stream, held, current = opened(self._log), self._stream, self._current
        if stream is None:
            return False
        # Of a file that is held it must have what is unread, too.
        unread = held is not None and current.difference(held) is None and not begins_with(stream, held)
        if unread or current.difference(stream) is not None:
            stream.close()
            return False
        if other := log_files.came_beside(self._log, current, self.kept.segments):
            stream.close()
            reason = f"it and {self._log} came after {current.path}, which is gone; which comes first cannot be known"
            raise InputChanged("the log was replaced", [(str(other), f"{reason}: {_ANEW}")])
        self._go_on(stream, self._log)
        return True

    def _refuse_copied(self) -> None:
        """Raise InputChanged where the log was copied beside itself: it may have been emptied behind its reader."""
        if other := log_files.came_beside(self._log, self._current, self.kept.segments):
            reason = (
                f"it came beside {self._log}, which is still the same file: the log was copied, and lines are lost if "
                f"it was emptied then. {_RENAME} (if you made this copy, and the log goes on, rename the copy)"
            )
            raise InputChanged("the log was copied, as copytruncate does", [(str(other), reason)])

    def _go_on(self, stream: BinaryIO, path: Path) -> None:
        """Read the current segment on from ``stream``."""
        self._switch(stream)
        self._current.become(stream, path)

    def _enter(self, stream: BinaryIO, path: Path, beside: list[FileSeen]) -> None:
        self._switch(stream)
        if self.kept.segments:
            self._current.beside = None
        self.kept.segments.append(Segment.of(stream, path, self.kept.line, beside))

    def _switch(self, stream: BinaryIO) -> None:
        if self._stream is not None:
            self._stream.close()
        self._stream, self._unkept = stream, True

    def _read(self) -> bool:
        """To the end of the file at hand; False where it was emptied meanwhile, which the next look at it refuses."""
        assert self._stream is not None
        file, kept = self._stream.fileno(), self.kept
        while not self._stop() and (block := os.pread(file, BLOCK_BYTES, self._current.length)):
            # Only now is it known that the block came behind what was read, and not behind an emptying.
            if self._current.difference(self._stream) is not None:
                return False
            if self._current.is_file(log_files.stat(self._log)):
                self._refuse_copied()
            self._current.take(block)
            self.read_bytes += len(block)
            self._unkept = True
            cut = block.rfind(b"\n") + 1
            whole, kept.carry = (kept.carry + block[:cut], block[cut:]) if cut else (b"", kept.carry + block)
            if whole:
                self._evaluate(whole)
            # Checked for every block: a log without newlines would otherwise be gathered in memory to its end.
            if len(kept.carry) > MAX_RECORD_BYTES:
                reason = f"a record longer than {MAX_RECORD_BYTES >> 20} MiB; is a newline missing?"
                raise InputError(f"{self._name} cannot be cut", [(f"{self._name}:{kept.line}", reason)])
        return True

    @stdout_to_stderr()
    def _evaluate(self, data: bytes) -> None:
        """The next whole lines."""
        kept = self.kept
        batch = Batch(self._name, kept.line, data if kept.position else data.removeprefix(BOM))
        # By way of the wire, as a worker's answer comes, and as it is kept.
        outcome = decode(encode(self._evaluator.evaluate(batch, self._params)), self._evaluator)
        if outcome.lines:
            raise TypeError(f"{self._evaluator.name} gives lines for its records: it cannot be followed")
        self.state.merge(outcome.state)
        kept.tally.merge(outcome.tally)
        self._hash.update(data)
        kept.position += len(data)
        kept.line += data.count(b"\n")
        self._blocks += 1
        if self._blocks % KEEP_BLOCKS == 0:
            self._keep()

    def _count_again(self, count: int) -> None:
        self.again_bytes += count

    def _path_of(self, segment: Segment) -> Path:
        path = log_files.locate(self._log, segment)
        if path is None:
            reason = f"{segment.path} is gone, and all of the log must be read again (to sort it, or to verify it)"
            raise InputChanged("a part of the log is missing", [(f"{self._name}:{segment.first_line}", reason)])
        if segment is not self._current and path.stat().st_size > segment.length:
            where = f"{self._name}:{segment.first_line}"
            raise InputChanged("the log changed behind its reader", [(where, f"{path} grew after the next was begun")])
        return path


def _altered(kept: Checkpoint, name: str, stream: BinaryIO, byte: int) -> InputChanged:
    """``byte`` of ``stream``, the file read last of the log called ``name``, is not the one that was read."""
    current, size = kept.segments[-1], os.fstat(stream.fileno()).st_size
    if size < current.length:
        reason = f"it was cut to {size:,} bytes, where {current.length:,} were read, as copytruncate does. {_RENAME}"
        return InputChanged("the log was emptied", [(f"{name}:{kept.line}", reason)])
    reason = f"byte {byte:,} of {current.path} is not the one that was read: it was changed, or emptied. {_RENAME}"
    where = f"{name}:{current.line_of(byte, kept.line)}"
    return InputChanged("the log changed behind its reader", [(where, reason)])


def _lost(kept: Checkpoint, name: str, reason: str) -> InputChanged:
    """The file read last is gone, for ``reason``."""
    more = f"whether lines came behind it that nobody read cannot be known: {_ANEW}"
    return InputChanged("the log was replaced", [(f"{name}:{kept.line}", f"{reason}; {more}")])
