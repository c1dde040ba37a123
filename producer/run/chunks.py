"""A job's chunks in one process: planned, computed, and collected in order into the run folder."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from io import BufferedIOBase
from itertools import chain, groupby, islice
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, BinaryIO

from evalq.evalcore.contract.evaluator import Batch
from evalq.evalcore.contract.partial import Partial, encode, unpack_answer
from evalq.evalcore.contract.plugins import stdout_to_stderr
from evalq.evalcore.errors import InputChanged, InputError, WireError
from evalq.evalcore.files import open_new
from evalq.evalcore.fold import Fold, InputSummary
from evalq.evalcore.model.canonical import Json, canonical_line, read_again, uncollected
from evalq.evalcore.model.lines import set_apart, with_lines
from evalq.evalcore.model.manifest import BLOCK_BYTES, Chunk, Seal, location
from evalq.evalcore.records.cut import MANY_RECORDS, Cutter
from evalq.evalcore.records.digests import chunk_digest
from evalq.evalcore.records.inputs import Source
from evalq.producer.folder.files import RECORDS
from evalq.producer.folder.job import Job, open_source, read_source
from evalq.producer.folder.journal import Journal, KeptAnswers
from evalq.producer.folder.run_folder import remove_halves
from evalq.producer.monitor.progress import ShownProgress, Watcher
from evalq.workers import tracing

if TYPE_CHECKING:
    from evalq.workers.ledger.progress import Progress
    from evalq.workers.ledger.runs import RunLedger


# Few chunks, since planning delays collecting.
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
        if job.manifest.seal is not None:  # all is planned: records added since are not part of the run
            self.seal = job.manifest.seal
            return
        earlier = groupby(job.manifest.chunks, key=lambda chunk: chunk.input)
        group = next(earlier, None)
        for index in range(len(job.sources)):
            with open_source(job.sources[index]) as stream, _report_change(stream):
                cutter = self._cutter(index, stream, left)
                if group is not None and group[0] == index:
                    # Read and compare again, do not skip: later chunks belong to these very bytes, and the seal needs
                    # the digest of all.
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
        block = block_bytes(source)
        cutter = Cutter(stream, records.format, source.name, records.columns, **how, key=job.key, block=block)
        if cutter.columns != header.inputs[index].columns:
            raise InputChanged("an input changed since its run began", [(f"{source.name}:1", "another header")])
        return cutter


_LEAST_BLOCK = 512 << 10
_HEAD = 64 << 10


def block_bytes(source: Source) -> int:
    """The bytes of a chunk of ``source``: less than usual for short records, which take long for their bytes."""
    with open_source(source) as stream:
        head = stream.read(_HEAD)
    lines = max(1, head.count(b"\n"))
    return max(_LEAST_BLOCK, min(BLOCK_BYTES, MANY_RECORDS * len(head) // lines))


class PublishedPlan:
    """A job's plan, first in its folder, then in the ledger; ``sealed``: the ledger has the whole plan."""

    def __init__(self, job: Job, collector: Collector, ledger: RunLedger, begun: Planner | None = None) -> None:
        """``begun`` is the planner of the folder's present chunks; without it, their input is read again."""
        self._job = job
        self._collector = collector
        self._ledger = ledger
        self._planner = begun or Planner(job)
        self._chunks = self._planner.chunks()
        self._published = 0
        self.sealed = False

    def extend(self, ahead: int) -> bool:
        """Cut and publish a few chunks, unless the plan is more than ``ahead`` chunks in front of the collector.

        Returns False if there was nothing to do. Raises InputError, InputChanged.
        """
        job = self._job
        if self._behind:
            return self.publish()  # chunks that the server did not take last time
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
        return self.publish()

    def publish(self, *, anew: bool = False) -> bool:
        """Send the ledger the chunks (and the seal) that it does not have yet, or ``anew`` all of them.

        Returns False while the ledger lacks some.
        """
        if anew:
            self._published, self.sealed = 0, False
        manifest = self._job.manifest
        fresh = manifest.chunks[self._published :]
        # The ledger returns how many it has: fewer if it lost some; more if another folder has planned further. Chunks
        # planned here later are still compared with those.
        count = self._ledger.append(self._job.run, fresh, self._published, manifest.seal)
        self._published = max(0, min(count, len(manifest.chunks)))
        self.sealed = manifest.seal is not None and self._published == manifest.seal.chunks
        return self._published == len(manifest.chunks)

    def lost(self, progress: Progress) -> bool:
        """Whether the server has lost part of the published plan."""
        return progress.chunks < self._published or (self.sealed and not progress.sealed)

    @property
    def _behind(self) -> bool:
        """Whether the folder has more of the plan than was published."""
        manifest = self._job.manifest
        return self._published < len(manifest.chunks) or (manifest.seal is not None and not self.sealed)


@contextlib.contextmanager
def _report_change(stream: BufferedIOBase) -> Iterator[None]:
    """Raise InputChanged for a fault in a file that was written to while it was read."""
    before = os.fstat(stream.fileno())
    try:
        yield
    except InputError as error:
        after = os.fstat(stream.fileno())
        if (before.st_size, before.st_mtime_ns) == (after.st_size, after.st_mtime_ns):
            raise
        raise InputChanged("an input changed while the run was reading it", error.faults) from error


# -- collecting answers in chunk order, into the fold and the run folder ---------------------------


class Collector:
    """Takes each chunk's answer exactly once, in order; ``next`` is the chunk it waits for."""

    def __init__(self, job: Job) -> None:
        self._job = job
        remove_halves(job.folder.path)
        self._fold = Fold(job.evaluator, job.params, len(job.sources))
        self._journal = Journal(job.folder)
        # Written anew in every process, from the journal: a killed process may have left half a line.
        self._records = open_new(job.folder.path / (RECORDS + ".partial"))
        self._kept = KeptAnswers(job.folder)
        self.next = 0
        self.written = b""
        """The content of report.json, once there is one."""
        self._ahead = self._kept.count
        try:
            for partial in self._journal.replay():
                if self.next == len(job.manifest.chunks):
                    raise WireError(_shorter(job, self._journal))
                self._recall(job.manifest.chunks[self.next], partial)
        except BaseException:
            self._records.close()
            raise

    @property
    def count(self) -> int:
        """The number of answers in the folder."""
        return self.next + self._ahead

    def digests(self) -> Iterator[tuple[int, str]]:
        """(chunk, digest) of each answer, in order."""
        yield from self._journal.digests(self.next)
        yield from self._kept.digests(self.next)

    def kept(self, seq: int) -> Partial | None:
        """The answer of chunk ``seq`` kept from before a retry; None if there is none."""
        return self._kept.get(seq)

    @uncollected()
    def add(self, chunk: Chunk, partial: Partial) -> None:
        """Add the answer of the next chunk. Raises WireError if it is damaged; then nothing is kept."""
        # Decode before journaling: a damaged answer in the journal would stop every resume.
        self._take(chunk, partial)
        self._journal.add(chunk.seq, partial)

    def sync(self) -> None:
        """Sync all answers so far to disk."""
        self._journal.sync()

    @stdout_to_stderr()
    @uncollected()
    def finish(self, seal: Seal) -> dict[str, Json]:
        """Fold the answers to the report's content, and put records.jsonl in place.

        Raises InputError for fatal faults, NothingEvaluated, InputChanged.
        """
        job = self._job
        summaries = [
            # The digest of the file that was given, also if another one was cut.
            InputSummary(source.name, source.given, source.sha256 or sha256, source.members)
            for source, sha256 in zip(job.sources, seal.sha256, strict=True)
        ]
        with TemporaryDirectory(prefix="scratch-", dir=job.folder.path) as scratch:
            report, lines = self._fold.finish(summaries, self._reopen, Path(scratch))
        self._write(lines)
        self._records.close()
        # Renamed only when complete: readers of the folder never see a part.
        Path(self._records.name).replace(job.folder.records)
        self._journal.close()
        report = set_apart(report, job.folder.path)
        # Through its canonical form, so that a new report and one read from its file look the same.
        self.written = canonical_line(report)
        del report  # with many cases, two of them and the state are most of the memory
        del self._fold
        canonical: dict[str, Json] = with_lines(read_again(self.written), job.folder.path)
        return canonical

    def close(self) -> None:
        """Close the files of an unfinished run; the journal stays."""
        with contextlib.ExitStack() as stack:  # closing flushes, and on a full disk either may fail
            stack.callback(self._records.close)
            self._journal.close()

    def _reopen(self, index: int) -> BinaryIO:
        return open_source(self._job.sources[index])

    def _recall(self, chunk: Chunk, partial: Partial) -> None:
        """Add an answer from the journal. Raises WireError with a remedy if it is damaged."""
        try:
            self._take(chunk, partial)
        except WireError as error:
            how = "remove that file to have its answers computed again"
            raise WireError(f"{self._journal.path} is damaged at answer {self.next}: {error}; {how}") from error

    def _take(self, chunk: Chunk, partial: Partial) -> None:
        answer = unpack_answer(partial, self._job.evaluator, chunk)
        self._fold.add(chunk.input, answer)
        if answer.text:
            self._records.write(answer.text)
            self._records.write(b"\n")
        self._ahead -= self._kept.collected(chunk.seq)
        self.next += 1

    def _write(self, lines: list[bytes]) -> None:
        if lines:
            self._records.write(b"\n".join(lines) + b"\n")


def _shorter(job: Job, journal: Journal) -> str:
    """The message for a plan that lost chunks whose answers are in the journal."""
    manifest = job.manifest
    return (
        f"{manifest.path} is damaged: it ends after {len(manifest.chunks)} chunks, and {journal.path.name} has answers "
        "to more; put the whole file back (from a backup), or start the run anew: the answers are kept in the journal"
    )


# -- computing in this process: a whole job without a queue, or a single chunk ---------------------


def drive_inline(job: Job, collector: Collector, watch: Watcher) -> None:
    """Evaluate every chunk in this process: the reference for all other backends."""
    planner, total, done, records = Planner(job), job.total_bytes, 0, 0
    planned = job.manifest.chunks[collector.next :]
    for chunk in chain(planned, planner.chunks()):
        # Chunks planned by an earlier process are in the manifest already.
        if chunk.seq == len(job.manifest.chunks):
            job.manifest.extend([chunk])
        collector.add(chunk, collector.kept(chunk.seq) or evaluate(job, chunk, read(job, chunk)))
        done, records = done + chunk.end - chunk.start, records + chunk.records
        watch(ShownProgress(records, done, total))
    assert planner.seal is not None  # the planner sets it when its chunks are exhausted
    if job.manifest.seal is None:
        job.manifest.close(planner.seal)


def read(job: Job, chunk: Chunk) -> bytes:
    """Read the chunk's bytes. Raises InputChanged."""
    data = read_source(job.sources[chunk.input], chunk.span)
    # Compare even right after planning: the file may have changed since.
    if chunk_digest(data, job.key) != chunk.digest:
        where = location(job.sources[chunk.input].name, chunk.first_line, chunk.members, chunk.first_line)
        reason = "not the bytes that were planned"
        raise InputChanged("an input changed while the run was reading it", [(where, reason)])
    return data


@stdout_to_stderr()
@uncollected()
def evaluate(job: Job, chunk: Chunk, data: bytes) -> Partial:
    """A chunk's answer, computed in this process."""
    planned = job.header.inputs[chunk.input]
    batch = Batch(planned.name, chunk.first_line, data, planned.columns, chunk.members)
    return encode(job.evaluator.evaluate(batch, job.params), chunk)
