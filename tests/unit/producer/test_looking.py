"""Who only looks at a run changes nothing of it: files that are being written are read as far as they are whole."""

from __future__ import annotations

from pathlib import Path

import pytest

from evalq.evalcore.contract import plugins
from evalq.evalcore.contract.evaluator import Request
from evalq.evalcore.errors import WireError
from evalq.producer.cli import main
from evalq.producer.folder.files import JOURNAL, MANIFEST
from evalq.producer.folder.job import Job, RunOptions
from evalq.producer.folder.run_folder import RunFolder
from evalq.producer.run.backend import Backend
from evalq.producer.run.execute import carry_out, resume
from evalq.workers.settings import Settings
from tests.unit.producer.quiet import QUIET

INLINE = Backend(Settings(), inline=True)


def _bytes(folder: RunFolder) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.path.iterdir() if path.name != "run.lock"}


def _tear(folder: RunFolder) -> None:
    """The driver is in the middle of a line, and of an answer."""
    for name in (MANIFEST, JOURNAL):
        with (folder.path / name).open("ab") as out:
            out.write(b'{"chunk":{"se')


@pytest.mark.parametrize(
    "command",
    [
        ("list",),
        ("status", "run"),
        ("report", "run"),
        ("watch", "run"),
        ("resume", "run"),
        ("retry", "run", "--errors"),
    ],
)
def test_a_run_that_is_driven_is_the_same_byte_for_byte_after_a_look(
    half: RunFolder, command: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever a second command is asked to do with it, and however much of a line is written at that moment."""
    _tear(half)
    before = _bytes(half)
    if command[0] == "watch":
        monkeypatch.setattr(
            "evalq.producer.lifecycle.watch.watch_driver", lambda *_: True
        )  # as if its driver had just been killed
    with half.driving() as mine:
        assert mine
        assert main([*command, *(["--inline"] if command[0] in ("resume", "retry") else [])]) == {
            "list": 0,
            "status": 0,
            "report": 2,
            "watch": 3,
        }.get(command[0], 3)
    assert _bytes(half) == before


def test_loading_a_run_changes_nothing(half: RunFolder) -> None:
    """Neither its plan nor its answers are cut, where the last line is torn."""
    _tear(half)
    before = _bytes(half)
    job = Job.load(half)
    assert len(job.manifest.chunks) == 4
    assert _bytes(half) == before


def test_the_driver_cuts_what_is_torn_and_finishes(half: RunFolder, tmp_path: Path) -> None:
    """A resumed run has the report of an undisturbed one."""
    _tear(half)
    resume(half, INLINE, QUIET)
    whole = Job.start(
        plugins.get("planagent"), Request(["rows.csv"], {}, {}), RunOptions(out=tmp_path / "whole", chunk_size=5)
    )
    carry_out(whole, INLINE, QUIET)
    for name in ("report.json", "records.jsonl", "manifest.json"):
        one, other = (folder.path / name for folder in (half, whole.folder))
        assert one.read_bytes().replace(half.info().run.encode(), b"") == other.read_bytes().replace(
            whole.run.encode(), b""
        )


def test_a_plan_that_lost_chunks_is_named_and_the_answers_stay(half: RunFolder) -> None:
    """It is the manifest that is damaged: nobody is told to remove the journal, and nothing is cut."""
    path = half.path / MANIFEST
    path.write_bytes(b"".join(path.read_bytes().splitlines(keepends=True)[:3]))
    journal = (half.path / JOURNAL).read_bytes()
    with pytest.raises(WireError, match=r"manifest\.jsonl is damaged: it ends after 2 chunks") as message:
        resume(half, INLINE, QUIET)
    assert "remove" not in str(message.value)
    assert (half.path / JOURNAL).read_bytes() == journal
