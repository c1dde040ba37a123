"""What a run holds in memory does not grow with its chunks: a plan and its answers lie in files."""

from __future__ import annotations

import os
import tracemalloc
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from evalq.evalcore.contract import plugins
from evalq.evalcore.contract.evaluator import Request
from evalq.evalcore.contract.partial import Partial
from evalq.evalcore.model.canonical import canonical_json
from evalq.evalcore.model.manifest import Chunk, Header, Seal
from evalq.producer.folder import manifest
from evalq.producer.folder.job import Job, RunOptions
from evalq.producer.folder.journal import Journal, KeptAnswers
from evalq.producer.folder.manifest import PAGE, Manifest
from evalq.producer.folder.run_folder import RunFolder
from evalq.producer.run.chunks import Collector, Planner, drive_inline
from tests.portions import portion

HEADER = Header("r", "cooperation", "1", "c", {}, ())


def _peak(work: Callable[[], object]) -> int:
    """Bytes that ``work`` holds at its height."""
    tracemalloc.start()
    try:
        work()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def _chunk(seq: int) -> Chunk:
    return Chunk(seq, 0, seq, seq + 1, seq + 1, 1, f"{seq:064x}")


def _planned(path: Path, count: int) -> Manifest:
    path.mkdir()
    manifest = Manifest(RunFolder(path))
    manifest.start(HEADER)
    for first in range(0, count, 1_000):
        manifest.extend([_chunk(seq) for seq in range(first, first + 1_000)])
    manifest.close(Seal(count, ()))
    return manifest


def test_a_plan_takes_no_more_memory_for_ten_times_the_chunks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of 2,000 and of 20,000 chunks: written, walked through at two places, and written as one document."""
    monkeypatch.setattr(os, "fsync", lambda file: None)

    def work(count: int) -> None:
        manifest = _planned(tmp_path / str(count), count)
        ahead = iter(manifest.chunks[3 * PAGE :])
        for chunk in manifest.chunks[: count : PAGE // 4]:
            next(ahead, None)
            assert chunk.digest == f"{chunk.seq:064x}"
        assert sum(map(len, manifest.document(HEADER))) > 60 * count

    work(1_000)  # what is made once
    few, many = _peak(lambda: work(2_000)), _peak(lambda: work(portion(20_000, of=2)))
    assert many < 1.2 * few, (few, many)


def test_a_plan_reads_back_as_it_was_written(tmp_path: Path) -> None:
    """By number, from the end, as slices of slices, and as one canonical document, which has no digests of chunks."""
    chunks = [_chunk(seq) for seq in range(3 * PAGE + 5)]
    manifest = Manifest(RunFolder(tmp_path))
    manifest.start(HEADER)
    manifest.extend(chunks[:7])
    manifest.extend(chunks[7:])
    manifest.close(Seal(len(chunks), ()))
    plan = manifest.chunks
    assert list(plan) == chunks
    assert [plan[0], plan[-1], plan[PAGE], plan[PAGE - 1]] == [chunks[0], chunks[-1], chunks[PAGE], chunks[PAGE - 1]]
    assert list(plan[5:][PAGE:700:3]) == chunks[5:][PAGE:700:3]
    assert len(plan[len(chunks) :]) == 0
    with pytest.raises(IndexError):
        plan[len(chunks)]
    whole = msgspec.to_builtins({"header": HEADER, "chunks": chunks, "seal": manifest.seal})
    for chunk in whole["chunks"]:
        del chunk["digest"]
    assert b"".join(manifest.document(HEADER)) == canonical_json(whole) + b"\n"


def test_a_run_takes_no_more_memory_for_a_thousand_chunks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same records in one chunk and in a thousand: computed, and resumed from the folder by another process."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(os, "fsync", lambda file: None)
    monkeypatch.setattr(manifest, "PAGE", 16)  # so that a thousand chunks are many pages
    records = 1_000
    (tmp_path / "log.jsonl").write_text('{"turn": 1, "agent": "a", "decision": "join"}\n' * records)

    def work(size: int) -> None:
        asked = RunOptions(chunk_size=size, out=tmp_path / f"run{len(list(tmp_path.iterdir()))}")
        job = Job.start(plugins.get("cooperation"), Request(["log.jsonl"], {}, {}), asked)
        collector = Collector(job)
        drive_inline(job, collector, lambda standing: None)
        collector.close()
        assert [chunk.seq for chunk in job.manifest.chunks] == list(range(records // size))
        again = Job.load(RunFolder(job.folder.path))
        resumed = Collector(again)
        assert resumed.count == resumed.next == records // size
        assert [seq for seq, _ in resumed.digests()] == list(range(records // size))
        assert list(Planner(again).chunks()) == []
        resumed.close()

    work(records)  # what is made once
    few, many = _peak(lambda: work(records)), _peak(lambda: work(1))
    assert many - few < 100 * records, (few, many)


def test_kept_answers_are_found_while_others_are_collected(tmp_path: Path) -> None:
    """Asked for far ahead of what is collected, and once more from the start, as when workers take a run over."""
    folder = RunFolder(tmp_path)
    (tmp_path / "run.json").write_text("{}")
    journal = Journal(folder)
    parts = [Partial(f"{seq:064x}", b"answer %d" % seq) for seq in range(50)]
    for seq, part in enumerate(parts):
        journal.add(seq, part)
    journal.close()
    KeptAnswers.keep_for_retry(folder, {3, 4, 20})
    kept = KeptAnswers(folder)
    wanted = {seq: None if seq in (3, 4, 20) else part for seq, part in enumerate(parts)}
    assert kept.count == 47
    for seq in range(10, 50):
        assert kept.get(seq) == wanted[seq]
        assert kept.collected(seq - 10) == (wanted[seq - 10] is not None)
    assert [kept.get(seq) for seq in range(52)] == [*wanted.values(), None, None]
    assert list(kept.digests(18)) == [(seq, part.digest) for seq, part in enumerate(parts) if seq >= 18 and seq != 20]
