"""A job from its request to its plan, and again from its folder."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from evalq.evalcore.contract import registry
from evalq.evalcore.contract.evaluator import Request
from evalq.evalcore.model.manifest import Chunk, from_wire, to_wire
from evalq.producer.folder.job import Job, RunOptions
from evalq.producer.folder.run_folder import RunFolder
from evalq.producer.runs.planner import Planner
from tests.unit.vs.helpers import PARAMS, good_output


def test_a_job_on_a_folder_of_files_is_planned_alike_when_it_is_gone_on_with(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each chunk names its own files, over the wire too; the folder itself is not read a second time."""
    monkeypatch.chdir(tmp_path)
    outputs = tmp_path / "outputs"
    outputs.mkdir()
    for repeat in range(5):
        (outputs / f"F.{repeat}.json").write_text(json.dumps(good_output(), indent=1))
    begun = Job.start(registry.get("vs"), Request(["outputs"], PARAMS, {}), RunOptions(chunk_size=2))
    chunks = list(Planner(begun).chunks())
    (outputs / "F.0.json").unlink()
    again = Job.load(RunFolder(begun.folder.path))
    assert list(Planner(again).chunks()) == chunks == [from_wire(to_wire(chunk), Chunk) for chunk in chunks]
    assert [chunk.members for chunk in chunks] == [
        ("F.0.json", "F.1.json"),
        ("F.2.json", "F.3.json"),
        ("F.4.json",),
    ]


def test_a_plan_is_resumed_in_one_pass_over_its_chunks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """However many inputs there are: what was planned of each is not looked for among all chunks, input by input."""
    monkeypatch.chdir(tmp_path)
    for number in range(20):
        (tmp_path / f"log{number}.jsonl").write_text('{"turn": 1, "agent": "a", "decision": "join"}\n' * 3)
    names = [f"log{number}.jsonl" for number in range(20)]
    begun = Job.start(registry.get("cooperation"), Request(names, {}, {}), RunOptions(chunk_size=1))
    chunks = list(Planner(begun).chunks())
    begun.manifest.extend(chunks[:40])
    again = Job.load(RunFolder(begun.folder.path))
    passes = []

    class Counting(list[Chunk]):
        def __iter__(self) -> Iterator[Chunk]:
            passes.append(1)
            return super().__iter__()

    again.manifest.chunks = Counting(again.manifest.chunks)
    assert list(Planner(again).chunks()) == chunks[40:]
    assert len(passes) == 1
