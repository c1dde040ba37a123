"""Collecting answers in chunk order, into the fold and into the run folder."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import BinaryIO

from evalq.evalcore.contract.partial import Partial, opened
from evalq.evalcore.contract.plug_in import unprinted
from evalq.evalcore.errors import WireError
from evalq.evalcore.files import open_new
from evalq.evalcore.fold.fold import Fold, InputSummary
from evalq.evalcore.model.canonical import Json, canonical_line, read_again, uncollected
from evalq.evalcore.model.manifest import Chunk, Seal
from evalq.producer.folder.files import RECORDS
from evalq.producer.folder.job import Job, open_source
from evalq.producer.folder.journal import Journal, KeptAnswers
from evalq.producer.folder.run_folder import remove_halves

__all__ = ["Collector"]


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

    @unprinted()
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
        answer = opened(partial, self._job.evaluator, chunk)
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
