"""Planning: cutting the inputs of a job into chunks, one after another, from where an earlier plan ended."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from io import BufferedIOBase

from evalq.evalcore.errors import InputChanged, InputError
from evalq.evalcore.model.manifest import Chunk, Seal
from evalq.evalcore.records.cut import Cutter
from evalq.producer.folder.job import Job
from evalq.producer.folder.sources import open_source

__all__ = ["Planner"]


class Planner:
    """Yields a job's chunks; when it is exhausted, ``seal`` is set and ``sha256`` holds each input's digest."""

    def __init__(self, job: Job) -> None:
        self._job = job
        self._sha256: list[str] = []
        self.seal: Seal | None = None

    def chunks(self) -> Iterator[Chunk]:
        """All chunks that the manifest does not have yet. Raises InputError, InputChanged."""
        job, seq, left = self._job, 0, self._job.header.limit
        earlier: dict[int, list[Chunk]] = {}
        for chunk in job.manifest.chunks:
            earlier.setdefault(chunk.input, []).append(chunk)
        for index in range(len(job.sources)):
            old = earlier.pop(index, [])
            with open_source(job.sources[index]) as stream, _telling_change(stream):
                cutter = self._cutter(index, stream, left)
                cutter.resume_after([chunk.span for chunk in old])
                seq += len(old)
                for span in cutter.spans():
                    yield Chunk.of(seq, index, span, job.sources[index].members)
                    seq += 1
            self._sha256.append(cutter.sha256)
            left = None if left is None else left - cutter.records
        self.seal = Seal(seq, tuple(self._sha256))

    def _cutter(self, index: int, stream: BufferedIOBase, left: int | None) -> Cutter:
        job, source = self._job, self._job.sources[index]
        records, header = job.evaluator.records, job.header
        cutter = Cutter(stream, records.format, source.name, records.columns, size=header.chunk_size, limit=left)
        if cutter.columns != header.inputs[index].columns:
            raise InputChanged("an input changed since its run began", [(f"{source.name}:1", "another header")])
        return cutter


@contextlib.contextmanager
def _telling_change(stream: BufferedIOBase) -> Iterator[None]:
    """A fault found in a file that was written to while it was read is a change of the input, and is said so."""
    before = os.fstat(stream.fileno())
    try:
        yield
    except InputError as error:
        after = os.fstat(stream.fileno())
        if (before.st_size, before.st_mtime_ns) == (after.st_size, after.st_mtime_ns):
            raise
        raise InputChanged("an input changed while the run was reading it", error.faults) from error
