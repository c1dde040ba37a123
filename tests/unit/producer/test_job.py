"""A job from its request to its plan, and again from its folder."""

from __future__ import annotations

import errno
import json
import os
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

import pytest

from evalq.evalcore.contract import plugins
from evalq.evalcore.contract.evaluator import Request
from evalq.evalcore.errors import InfrastructureError, InputChanged, StorageError
from evalq.evalcore.model.manifest import Chunk, from_wire, to_wire
from evalq.producer.folder.job import Job, RunOptions
from evalq.producer.folder.manifest import Manifest
from evalq.producer.folder.run_folder import RunFolder
from evalq.producer.run.backend import Backend, hold_folder
from evalq.producer.run.chunks import Planner
from evalq.producer.run.execute import carry_out, resume
from evalq.producer.sweep.head import in_calls
from evalq.producer.sweep.options import SweepOptions
from evalq.producer.sweep.sweep import Sweep
from evalq.workers.settings import Settings
from tests.agents.server import write_golden
from tests.unit.producer.quiet import QUIET
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
    begun = Job.start(plugins.get("vs"), Request(["outputs"], PARAMS, {}), RunOptions(chunk_size=2))
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
    begun = Job.start(plugins.get("cooperation"), Request(names, {}, {}), RunOptions(chunk_size=1))
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


def _logs(counts: dict[str, int]) -> Request:
    for name, count in counts.items():
        Path(name).write_text('{"turn": 1, "agent": "a", "decision": "join"}\n' * count)
    return Request(list(counts), {}, {})


@pytest.mark.parametrize("first", [0, 4])
def test_an_input_that_grew_before_others_were_planned_is_not_gone_on_with(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, first: int
) -> None:
    """Its new records would have the numbers of later chunks: InputChanged at the first of them, also in a file that
    was empty."""
    monkeypatch.chdir(tmp_path)
    begun = Job.start(plugins.get("cooperation"), _logs({"a.jsonl": first, "b.jsonl": 4}), RunOptions(chunk_size=2))
    begun.manifest.extend(list(islice(Planner(begun).chunks(), first // 2 + 1)))
    _logs({"a.jsonl": first + 1})
    again = Job.load(RunFolder(begun.folder.path))
    with pytest.raises(InputChanged) as caught:
        list(Planner(again).chunks())
    assert caught.value.faults == ((f"a.jsonl:{first + 1}", "it has more records than were planned"),)


def test_what_an_input_has_more_since_all_was_planned_is_no_part_of_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However the run is gone on with: its report names the digests of what was planned."""
    monkeypatch.chdir(tmp_path)
    backend, asked = Backend(Settings(), inline=True), _logs({"a.jsonl": 4})
    carry_out(Job.start(plugins.get("cooperation"), asked, RunOptions(out=Path("whole"))), backend, QUIET)
    begun = Job.start(plugins.get("cooperation"), asked, RunOptions(chunk_size=2))
    planner = Planner(begun)
    begun.manifest.extend(list(planner.chunks()))
    assert planner.seal is not None
    begun.manifest.close(planner.seal)
    _logs({"a.jsonl": 9})
    again = Job.load(RunFolder(begun.folder.path))
    told = Planner(again)
    assert list(told.chunks()) == []
    assert told.seal == planner.seal
    resume(begun.folder, backend, QUIET)
    assert begun.folder.report() == RunFolder(Path("whole")).report()


def test_a_sweep_is_in_its_calls_until_its_evaluation_has_a_plan(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was paid for is gone on with where the disk is full just then, or a kill comes; and the message says so."""
    request = Request([str(write_golden(tmp_path / "golden.json", {"A": {}}))], {}, {})
    sweep = Sweep.start(plugins.get("vs"), request, SweepOptions("own"), RunOptions(out=tmp_path / "run"))
    sweep.write_outputs()
    sweep.folder.note(state="calling")
    sweep.folder.note(state="called")
    backend = Backend(Settings())
    with monkeypatch.context() as full:
        full.setattr(Manifest, "start", _no_room)
        with pytest.raises(StorageError, match="then resume with: evalq resume"), hold_folder(sweep.folder, backend):
            sweep.job()
    again = RunFolder(sweep.folder.path)
    assert in_calls(again)
    again.note(state="calling")
    again.note(state="called")
    sweep.job()
    assert not in_calls(again)
    assert again.info().state == "open"


def _no_room(*_anything: object) -> None:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (MemoryError(), "there is no memory left; raise its limit"),
        (RuntimeError("can't start new thread"), "no thread can be started; raise the limits on processes and memory"),
        (OSError(errno.EAGAIN, "Resource temporarily unavailable"), "no process can be started: Resource temporarily"),
    ],
    ids=["memory", "thread", "process"],
)
def test_what_a_machine_lacks_is_no_error_of_evalq_s_and_none_of_its_folder(
    tmp_path: Path, error: Exception, told: str
) -> None:
    """It is reported as that, with how to go on; any other RuntimeError is what it was."""
    folder = RunFolder(tmp_path)
    with (
        pytest.raises(InfrastructureError, match=f"^{told}.*, then resume with: ") as raised,
        hold_folder(folder, Backend(Settings())),
    ):
        raise error
    assert "may write there" not in str(raised.value)
    with pytest.raises(RuntimeError, match="a bug"), hold_folder(folder, Backend(Settings())):
        raise RuntimeError("a bug")
