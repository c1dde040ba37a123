"""Read a growing log file by file, and fold new lines into the kept state."""

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

# All bytes that were read of a log, as one stream.


def _reopen_segment(segment: Segment, where: Callable[[], Path], settling: Sequence[float]) -> BinaryIO:
    """The file of a segment, at the path of ``where``, which may be out of date during a rotation.

    Raises what ``where`` raises after the pauses of ``settling``.
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

    A file that ends too early may have been replaced, so it is opened again. ``counted`` gets the number of bytes.
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
        """Close the current file."""
        self._close_file()
        super().close()

    def _read(self, index: int, stop: int, *, again: bool = False) -> bytes:
        if again or self._open is None or self._open[0] != index:
            self._close_file()
            self._open = index, self._files[index][0]()
        stream = self._open[1]
        stream.seek(self._at - self._starts[index])
        return stream.read(stop - self._at)

    def _close_file(self) -> None:
        if self._open is not None:
            self._open[1].close()
            self._open = None


KEEP_BLOCKS = 16
"""Blocks between checkpoints, so that a long catch-up can resume after a kill."""
SETTLING_SECONDS = (0.05, 0.2, 0.5)
"""A rotation takes less."""
_ANEW = "begin anew in another --run-dir"
_RENAME = f"Have the log rotated by renaming (logrotate: without copytruncate), and {_ANEW}"


class Follower:
    """One growing log. ``read_on`` evaluates new lines; ``state`` and ``kept`` are the state of all lines.

    ``name`` is the log's name in reports and faults, ``stop`` says whether to end after the current block; ``settling``
    are the pauses before a missing file is an error.
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
        """New bytes read from the log's files."""
        self.again_bytes = 0
        """Bytes read again, to sort or to verify."""
        hashing = RunningSha256.resume(kept.hashing, kept.sha256) if kept.position else RunningSha256()
        self._hash = hashing or self.verify()

    @property
    def waiting(self) -> int:
        """Bytes of the last line, which has no end yet."""
        return len(self.kept.carry)

    @property
    def sha256(self) -> str:
        """The digest of all evaluated bytes."""
        return self._hash.hexdigest()

    @property
    def found(self) -> bool:
        """Whether there is, or was, a log at all."""
        return bool(self.kept.segments)

    def read_on(self) -> bool:
        """Evaluate all new whole lines, and keep the state unless one has a fault; whether there were any.

        Raises InputChanged if bytes already read have changed, or if later ones are missing; InputError for a file that
        cannot be read, or a line that is too long.
        """
        before = self.kept.position
        for pause in (*self._settling, None):
            try:
                self._follow()
                break
            except InputChanged:
                if pause is None:
                    raise
                time.sleep(pause)  # a rotation may be moving files
        self._keep()
        return self.kept.position > before

    def _follow(self) -> None:
        """Read to the end of the log, through all rotated files."""
        self._log = Path(os.path.realpath(self.kept.given))
        if self._stream is None and not self._open():
            return
        while True:
            # Before reading: a writer may add to this file until the next one exists.
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
        """Store the checkpoint, unless there is a fatal fault."""
        if self._unkept and not self.kept.tally.fatal.total:
            if self.kept.sha256 != (found := self._hash.hexdigest()):
                self.kept.mark(found)
            self.kept.hashing = self._hash.state()
            self.kept.state = msgspec.Raw(self.state.to_wire())
            self.kept.store(self._folder)
            self._unkept = False

    def reopen(self) -> BinaryIO:
        """All evaluated bytes as one stream. Raises InputChanged if a part of them is gone."""
        files = []
        for segment in self.kept.segments:
            self._path_of(segment)  # raises if it is missing, before anything is read
            again = partial(_reopen_segment, segment, partial(self._path_of, segment), self._settling)
            files.append((again, segment.length))
        return io.BufferedReader(Whole(files, self.kept.position, self._count_again), BLOCK_BYTES)

    def verify(self) -> RunningSha256:
        """Read everything again, mark by mark. Raises InputChanged with the lines that have changed."""
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
        """Open the file to continue in; False if there is no log yet."""
        if not self.kept.segments:
            beside = log_files.seen_beside(self._log)
            stream = opened(self._log)
            if stream is not None:
                self._enter(stream, self._log, beside)
            return stream is not None
        path = log_files.find(self._log, self._current)
        stream = opened(path) if path else None
        # The inode alone is not enough: numbers of removed files are used again.
        same = stream is not None and self._current.difference(stream) is None
        # If the file is gone, less than a line of it identifies no file.
        known = path is not None or b"\n" in self._current.head
        if not same and known and self._replaced():
            if stream is not None:
                stream.close()
            return True
        if path is not None and stream is not None:
            self._go_on(stream, path)  # if it has changed, `_next` raises
            return True
        if not self._log.exists():
            return False
        reason = f"what was read of it, {self._current.length:,} bytes, is in no file beside the log"
        raise _lost(self.kept, self._name, reason)

    def _next(self) -> tuple[BinaryIO, Path, list[FileSeen]] | None:
        """The next file, its path, and the rotated files beside the log before it was opened; None while there is none.

        A file is complete once the next one is not empty.
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
        # If a rotation went on before it was opened, the current file would have moved.
        if (later is None and not os.fstat(stream.fileno()).st_size) or log_files.find(
            self._log, self._current
        ) != here:
            stream.close()
            return None
        return stream, later or self._log, beside

    def _unlinked(self) -> bool:
        return self._stream is not None and os.fstat(self._stream.fileno()).st_nlink == 0

    def _replaced(self) -> bool:
        """Whether another file with all bytes read has replaced the log (as rsync does); if so, continue in it.

        Raises InputChanged if a new file beside it may also be the next one.
        """
        stream, held, current = opened(self._log), self._stream, self._current
        if stream is None:
            return False
        # It must also have the unread bytes of a file that is still open.
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
        """Raise InputChanged if the log was copied beside itself, since it may have been emptied after that."""
        if other := log_files.came_beside(self._log, self._current, self.kept.segments):
            reason = (
                f"it came beside {self._log}, which is still the same file: the log was copied, and lines are lost if "
                f"it was emptied then. {_RENAME} (if you made this copy, and the log goes on, rename the copy)"
            )
            raise InputChanged("the log was copied, as copytruncate does", [(str(other), reason)])

    def _go_on(self, stream: BinaryIO, path: Path) -> None:
        """Continue the current segment in ``stream``."""
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
        """Read to the end of the current file; False if it was emptied meanwhile, which `_next` refuses."""
        assert self._stream is not None
        file, kept = self._stream.fileno(), self.kept
        while not self._stop() and (block := os.pread(file, BLOCK_BYTES, self._current.length)):
            # Only now is it certain that the file was not emptied before the block.
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
            # For every block, or a log without newlines would fill the memory.
            if len(kept.carry) > MAX_RECORD_BYTES:
                reason = f"a record longer than {MAX_RECORD_BYTES >> 20} MiB; is a newline missing?"
                raise InputError(f"{self._name} cannot be cut", [(f"{self._name}:{kept.line}", reason)])
        return True

    @stdout_to_stderr()
    def _evaluate(self, data: bytes) -> None:
        """Evaluate the next whole lines."""
        kept = self.kept
        batch = Batch(self._name, kept.line, data if kept.position else data.removeprefix(BOM))
        # Encoded and decoded, like a worker's answer.
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
    """The error for a changed ``byte`` of ``stream``, the last file of the log ``name``."""
    current, size = kept.segments[-1], os.fstat(stream.fileno()).st_size
    if size < current.length:
        reason = f"it was cut to {size:,} bytes, where {current.length:,} were read, as copytruncate does. {_RENAME}"
        return InputChanged("the log was emptied", [(f"{name}:{kept.line}", reason)])
    reason = f"byte {byte:,} of {current.path} is not the one that was read: it was changed, or emptied. {_RENAME}"
    where = f"{name}:{current.line_of(byte, kept.line)}"
    return InputChanged("the log changed behind its reader", [(where, reason)])


def _lost(kept: Checkpoint, name: str, reason: str) -> InputChanged:
    """The error for a log whose last file is gone."""
    more = f"unread lines may be lost: {_ANEW}"
    return InputChanged("the log was replaced", [(f"{name}:{kept.line}", f"{reason}; {more}")])
