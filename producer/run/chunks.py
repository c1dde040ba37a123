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
from evalq.evalcore.model.manifest import Chunk, Seal, location
from evalq.evalcore.records.cut import Cutter
from evalq.evalcore.records.digests import chunk_digest
from evalq.producer.folder.files import RECORDS
from evalq.producer.folder.job import Job, open_source, read_source
from evalq.producer.folder.journal import Journal, KeptAnswers
from evalq.producer.folder.run_folder import remove_halves
from evalq.producer.monitor.progress import ShownProgress, Watcher
from evalq.workers import tracing

if TYPE_CHECKING:
    from evalq.workers.ledger.progress import Progress
    from evalq.workers.ledger.runs import RunLedger


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


class PublishedPlan:
    """A job's plan, in its folder first, then in the ledger; ``sealed`` says whether the ledger has the whole of it."""

    def __init__(self, job: Job, collector: Collector, ledger: RunLedger, begun: Planner | None = None) -> None:
        """``begun`` has planned what the folder has already; without it all of that is read again."""
        self._job = job
        self._collector = collector
        self._ledger = ledger
        self._planner = begun or Planner(job)
        self._chunks = self._planner.chunks()
        self._published = 0
        self.sealed = False

    def extend(self, ahead: int) -> bool:
        """Cut and publish a few chunks, unless the plan is more than ``ahead`` in front of what is collected.

        False when there was nothing to do. Raises InputError, InputChanged.
        """
        job = self._job
        if self._behind:
            return self.publish()  # what the server did not take the last time
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
        """Give the ledger the chunks (and the plan's end) that it does not have yet, or ``anew`` all of them.

        False while it lacks some.
        """
        if anew:
            self._published, self.sealed = 0, False
        manifest = self._job.manifest
        fresh = manifest.chunks[self._published :]
        # Not all that was sent: the ledger says how much it has, which is less where it lost some. It is more where
        # another folder has planned further: what is planned here from then on is still held against that.
        there = self._ledger.append(self._job.run, fresh, self._published, manifest.seal)
        self._published = max(0, min(there, len(manifest.chunks)))
        self.sealed = manifest.seal is not None and self._published == manifest.seal.chunks
        return self._published == len(manifest.chunks)

    def lost(self, progress: Progress) -> bool:
        """Whether the server has forgotten some of what it was given."""
        return progress.chunks < self._published or (self.sealed and not progress.sealed)

    @property
    def _behind(self) -> bool:
        """Whether the folder has more of the plan than the ledger was given."""
        manifest = self._job.manifest
        return self._published < len(manifest.chunks) or (manifest.seal is not None and not self.sealed)


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


# Collecting answers in chunk order, into the fold and into the run folder.


class Collector:
    """Takes each chunk's answer exactly once, in order; ``next`` is the chunk it waits for."""

    def __init__(self, job: Job) -> None:
        self._job = job
        remove_halves(job.folder.path)
        self._fold = Fold(job.evaluator, job.params, len(job.sources))
        self._journal = Journal(job.folder)
        # Anew in every process, from the journal: what a killed one left could be torn at any byte.
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
    def held(self) -> int:
        """How many answers the folder has."""
        return self.next + self._ahead

    def digests(self) -> Iterator[tuple[int, str]]:
        """(chunk, digest) of each of them, in order."""
        yield from self._journal.digests(self.next)
        yield from self._kept.digests(self.next)

    def kept(self, seq: int) -> Partial | None:
        """The answer of chunk ``seq`` that a retry keeps."""
        return self._kept.get(seq)

    @uncollected()
    def add(self, chunk: Chunk, partial: Partial) -> None:
        """The answer of the next chunk. Raises WireError when it is damaged; nothing is kept then."""
        # Opened before it is kept: a damaged answer in the journal would stop every resume.
        self._take(chunk, partial)
        self._journal.add(chunk.seq, partial)

    def sync(self) -> None:
        """Make all answers so far safe against a crash of this machine."""
        self._journal.sync()

    @stdout_to_stderr()
    @uncollected()
    def finish(self, seal: Seal) -> dict[str, Json]:
        """The report's content; records.jsonl is in its place after this.

        Raises InputError for fatal faults, NothingEvaluated, InputChanged.
        """
        job = self._job
        summaries = [
            InputSummary(source.name, source.given, sha256, source.members)
            for source, sha256 in zip(job.sources, seal.sha256, strict=True)
        ]
        with TemporaryDirectory(prefix="scratch-", dir=job.folder.path) as scratch:
            report, lines = self._fold.finish(summaries, self._reopen, Path(scratch))
        self._write(lines)
        self._records.close()
        # Renamed only when it is whole: whoever reads the folder never sees a part.
        Path(self._records.name).replace(job.folder.records)
        self._journal.close()
        # By way of its canonical form, so that a report just made and one read from its file are shown alike.
        self.written = canonical_line(report)
        canonical: dict[str, Json] = read_again(self.written)
        return canonical

    def close(self) -> None:
        """Let go of the files of an unfinished run; the journal stays."""
        with contextlib.ExitStack() as stack:  # closing writes what is left, and on a full disk either may fail
            stack.callback(self._records.close)
            self._journal.close()

    def _reopen(self, index: int) -> BinaryIO:
        return open_source(self._job.sources[index])

    def _recall(self, chunk: Chunk, partial: Partial) -> None:
        """An answer from the journal. Raises WireError that says what to do about a damaged one."""
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
    """What to say of a plan that lost chunks whose answers are there: of the two files it is the damaged one."""
    manifest = job.manifest
    return (
        f"{manifest.path} is damaged: it ends after {len(manifest.chunks)} chunks, and {journal.path.name} has answers "
        "to more; put the whole file back (from a backup), or start the run anew: the answers are kept in the journal"
    )


# Computing in this process: a whole job without a queue, or a single chunk that only this process can give.


def drive_inline(job: Job, collector: Collector, watch: Watcher) -> None:
    """Evaluate every chunk in this process: the reference for all the rest."""
    planner, total, done, records = Planner(job), job.total_bytes, 0, 0
    planned = job.manifest.chunks[collector.next :]
    for chunk in chain(planned, planner.chunks()):
        # Those that an earlier process planned are in the manifest already.
        if chunk.seq == len(job.manifest.chunks):
            job.manifest.extend([chunk])
        collector.add(chunk, collector.kept(chunk.seq) or evaluate(job, chunk, read(job, chunk)))
        done, records = done + chunk.end - chunk.start, records + chunk.records
        watch(ShownProgress(records, done, total))
    assert planner.seal is not None  # the planner sets it when its chunks are exhausted
    if job.manifest.seal is None:
        job.manifest.close(planner.seal)


def read(job: Job, chunk: Chunk) -> bytes:
    """The chunk's bytes as this producer reads them. Raises InputChanged."""
    data = read_source(job.sources[chunk.input], chunk.span)
    # Compared also here, where the file was just read: it may have changed since it was planned.
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
