"""Computing in this process: a whole job without a queue, or a single chunk that only this process can give."""

from __future__ import annotations

from itertools import chain

from evalq.evalcore.contract.evaluator import Batch
from evalq.evalcore.contract.partial import Partial, encode
from evalq.evalcore.contract.plug_in import unprinted
from evalq.evalcore.errors import InputChanged
from evalq.evalcore.model.canonical import uncollected
from evalq.evalcore.model.manifest import Chunk, location
from evalq.evalcore.records.digests import chunk_digest
from evalq.producer.folder.job import Job, read_source
from evalq.producer.monitor.progress import RunStatus, Watcher
from evalq.producer.runs.collector import Collector
from evalq.producer.runs.planner import Planner

__all__ = ["drive_inline", "evaluate", "read"]


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
        watch(RunStatus(records, done, total))
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


@unprinted()
@uncollected()
def evaluate(job: Job, chunk: Chunk, data: bytes) -> Partial:
    """A chunk's answer, computed in this process."""
    planned = job.header.inputs[chunk.input]
    batch = Batch(planned.name, chunk.first_line, data, planned.columns, chunk.members)
    return encode(job.evaluator.evaluate(batch, job.params), chunk)
