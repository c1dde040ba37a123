"""Planning: cutting the inputs of a job into chunks, from where an earlier plan ended, and telling the ledger."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from io import BufferedIOBase
from itertools import groupby, islice
from typing import TYPE_CHECKING

from evalq.evalcore.errors import InputChanged, InputError
from evalq.evalcore.model.manifest import Chunk, Seal
from evalq.evalcore.records.cut import Cutter
from evalq.producer.folder.job import Job, open_source
from evalq.workers import tracing

if TYPE_CHECKING:
    from evalq.producer.runs.collector import Collector
    from evalq.workers.ledger.progress import Progress
    from evalq.workers.ledger.runs import RunLedger

__all__ = ["Planner", "ToldPlan"]

# Few, since nothing is collected while a step plans.
PLAN_STEP = 4
_LONGER = "it has more records than were planned"


class Planner:
    """Yields a job's chunks; when it is exhausted, ``seal`` is set and ``sha256`` holds each input's digest."""

    def __init__(self, job: Job) -> None:
        self._job = job
        self._sha256: list[str] = []
        self._cut = self._planned()
        self.seal: Seal | None = None

    def chunks(self) -> Iterator[Chunk]:
        """All chunks that the manifest does not have yet, each once. Raises InputError, InputChanged."""
        return self._cut

    def _planned(self) -> Iterator[Chunk]:
        job, seq, left = self._job, 0, self._job.header.limit
        if job.manifest.seal is not None:  # all of it is planned: what an input has more since is no part of the run
            self.seal = job.manifest.seal
            return
        earlier = groupby(job.manifest.chunks, key=lambda chunk: chunk.input)
        group = next(earlier, None)
        for index in range(len(job.sources)):
            with open_source(job.sources[index]) as stream, _telling_change(stream):
                cutter = self._cutter(index, stream, left)
                if group is not None and group[0] == index:
                    # Read again and compared, not skipped: the chunks behind belong to those very bytes, and the seal
                    # has the digest of all.
                    seq += cutter.resume_after(chunk.span for chunk in group[1])
                    group = next(earlier, None)
                for span in cutter.spans():
                    if group is not None:  # inputs behind it are planned already
                        where = f"{job.sources[index].name}:{span.first_line}"
                        raise InputChanged("an input changed since its run began", [(where, _LONGER)])
                    yield Chunk.of(seq, index, span, job.sources[index].members)
                    seq += 1
            self._sha256.append(cutter.sha256)
            left = None if left is None else left - cutter.records
        self.seal = Seal(seq, tuple(self._sha256))

    def _cutter(self, index: int, stream: BufferedIOBase, left: int | None) -> Cutter:
        job, source = self._job, self._job.sources[index]
        records, header = job.evaluator.records, job.header
        how = {"size": header.chunk_size, "limit": left}
        cutter = Cutter(stream, records.format, source.name, records.columns, **how, key=job.key)
        if cutter.columns != header.inputs[index].columns:
            raise InputChanged("an input changed since its run began", [(f"{source.name}:1", "another header")])
        return cutter


class ToldPlan:
    """A job's plan, in its folder first, then in the ledger; ``sealed`` says whether the ledger has the whole of it."""

    def __init__(self, job: Job, collector: Collector, ledger: RunLedger, begun: Planner | None = None) -> None:
        """``begun`` has planned what the folder has already; without it all of that is read again."""
        self._job = job
        self._collector = collector
        self._ledger = ledger
        self._planner = begun or Planner(job)
        self._chunks = self._planner.chunks()
        self._told = 0
        self.sealed = False

    def extend(self, ahead: int) -> bool:
        """Cut and tell a few chunks, unless the plan is more than ``ahead`` in front of what is collected.

        False when there was nothing to do. Raises InputError, InputChanged.
        """
        job = self._job
        if self._behind:
            return self.tell()  # what the server did not take the last time
        if job.manifest.seal is not None or len(job.manifest.chunks) - self._collector.next > ahead:
            return False
        with tracing.span("plan", job.run, first=len(job.manifest.chunks)) as span:
            chunks = list(islice(self._chunks, PLAN_STEP))
            span.set_attribute("evalq.chunks", len(chunks))
        # Into the folder before the ledger: an answer to a chunk that only the ledger knew could not be collected.
        if chunks:
            job.manifest.extend(chunks)
        elif self._planner.seal is not None:
            job.manifest.close(self._planner.seal)
        return self.tell()

    def tell(self, *, anew: bool = False) -> bool:
        """Tell the ledger of chunks (and the plan's end) that it has not been told of, or ``anew`` of all of them.

        False while it lacks some.
        """
        if anew:
            self._told, self.sealed = 0, False
        manifest = self._job.manifest
        fresh = manifest.chunks[self._told :]
        # Not all that was sent: the ledger says how much it has, which is less where it lost some. It is more where
        # another folder has planned further: what is planned here from then on is still held against that.
        there = self._ledger.append(self._job.run, fresh, self._told, manifest.seal)
        self._told = max(0, min(there, len(manifest.chunks)))
        self.sealed = manifest.seal is not None and self._told == manifest.seal.chunks
        return self._told == len(manifest.chunks)

    def lost(self, progress: Progress) -> bool:
        """Whether the server has forgotten some of what it was told."""
        return progress.chunks < self._told or (self.sealed and not progress.sealed)

    @property
    def _behind(self) -> bool:
        """Whether the folder has more of the plan than the ledger has been told."""
        manifest = self._job.manifest
        return self._told < len(manifest.chunks) or (manifest.seal is not None and not self.sealed)


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
