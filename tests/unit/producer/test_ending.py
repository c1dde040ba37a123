"""What commands make of each state of a run: cancelled is for good, watching only watches, every hint runs."""

from __future__ import annotations

import json
import os
import shlex
import socket
import subprocess
from pathlib import Path

import pytest

from evalq.evalcore.errors import BrokerUnreachable, InputError, UsageError
from evalq.evalcore.model.canonical import Json
from evalq.evalcore.model.life import NEXT, RunState, may_follow, next_step
from evalq.evalcore.version import code_version
from evalq.producer.cli import main
from evalq.producer.commands import cancel
from evalq.producer.folder.lock import interrupt_holder
from evalq.producer.folder.run_folder import RunFolder
from evalq.producer.run.backend import Backend
from evalq.producer.run.execute import resume
from evalq.workers.settings import Settings
from tests.folders import begun
from tests.unit.producer.quiet import QUIET

HALTED: list[RunState] = ["open", "interrupted", "paused", "stopped", "failed"]
ONCE = ("planagent", "rows.csv", "--inline", "--once", "k", "--chunk-size", "5", "--out", "evalq-runs/run")


def _left(folder: RunFolder, state: RunState) -> None:
    """The run was left in ``state``."""
    path = folder.path / "run.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "state": state}))


@pytest.mark.parametrize("state", [*HALTED, "detached"])
def test_a_cancelled_run_is_over_for_every_command(
    half: RunFolder, state: RunState, capsys: pytest.CaptureFixture[str]
) -> None:
    """From whatever state it was cancelled: resume, retry, watch and --once refuse it, and say what can be done."""
    _left(half, state)
    assert main(["cancel", "run"]) == 0
    assert half.info().state == "cancelled"
    assert main(["cancel", "run"]) == 0, "again, it is what was asked for"
    capsys.readouterr()
    refused = {("resume", "run", "--inline"): 3, ("retry", "run", "--errors"): 2, ("watch", "run"): 3, ONCE: 3}
    for command, code in refused.items():
        assert main(list(command)) == code, command
        said = capsys.readouterr()
        assert "evalq prune evalq-runs/run" in said.err, command
        assert not said.out
    assert not half.reported
    assert main(["prune", "evalq-runs/run"]) == 0
    assert main(list(ONCE)) == 0, "the key is free again"
    assert half.info().state == "done"


@pytest.mark.parametrize("state", HALTED)
def test_watching_what_nobody_drives_says_how_to_resume_it(
    half: RunFolder, state: RunState, capsys: pytest.CaptureFixture[str]
) -> None:
    """It ends with 3 and computes nothing; the command that it names does, and then watch shows the report."""
    _left(half, state)
    before = (half.path / "parts.journal").read_bytes()
    assert main(["watch", "run"]) == 3
    said = capsys.readouterr()
    assert f"this run is {state}, and no process drives it" in said.err
    assert not said.out
    assert (half.path / "parts.journal").read_bytes() == before
    hint = said.err.strip().rpartition("resume it with: evalq ")[2]
    assert main([*shlex.split(hint), "--inline", "--format", "none"]) == 0
    assert main(["watch", "run"]) == 0
    assert capsys.readouterr().out == (half.path / "report.md").read_text()


@pytest.mark.parametrize("state", HALTED)
def test_the_same_key_resumes_what_was_left(half: RunFolder, state: RunState) -> None:
    """--once drives on what nobody drives, however it was left, but what was cancelled."""
    _left(half, state)
    assert main(list(ONCE)) == 0
    assert half.info().state == "done"


def test_every_state_has_a_next_step_that_is_a_command() -> None:
    """Of evalq's own, about this run; what follows a log is resumed by the command that began it."""
    for state in NEXT:
        step = next_step(state, Path("evalq-runs/run"))
        assert state == "following" or step.endswith(" evalq-runs/run"), step
        command = step.partition("evalq ")[2].split(" ")[0]
        assert state == "following" or command in ("resume", "watch", "report", "prune")


def test_a_done_run_is_neither_resumed_nor_cancelled(half: RunFolder, capsys: pytest.CaptureFixture[str]) -> None:
    """Both name the command that shows its report."""
    assert main(["resume", "run", "--inline"]) == 0
    for command in (["resume", "run", "--inline"], ["cancel", "run"]):
        capsys.readouterr()
        assert main(command) == 2
        assert "see it with: evalq report evalq-runs/run" in capsys.readouterr().err
    assert half.info().state == "done"


def test_what_a_driver_that_was_killed_as_its_run_was_done_left_goes_with_the_next_prune(
    half: RunFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Plan, answers and key, which nobody needs any more; those of a run with dead records are for a retry."""
    with monkeypatch.context() as patch:
        patch.setattr(RunFolder, "drop_working_files", lambda self: self.spool.mkdir())
        assert main(["resume", "run", "--inline", "--format", "none"]) == 0
    working = [half.path / name for name in ("manifest.jsonl", "parts.journal", "chunks.key", "spool")]
    report = half.path / "report.json"
    whole = report.read_bytes()
    # Or of one whose report somebody replaced: it keeps no other run from being looked at.
    for other in ({"records": {"dead": 1}}, {"records": 3}, {}):
        report.write_text(json.dumps(other))
        assert main(["prune"]) == 0
        assert all(path.exists() for path in working)
    report.write_bytes(whole)
    assert main(["prune", "--dry-run"]) == 0
    assert all(path.exists() for path in working)
    assert main(["prune"]) == 0
    assert not any(path.exists() for path in (*working, half.path / "run.lock"))
    assert main(["report", "run", "--format", "none"]) == 0


def test_what_a_killed_driver_left_half_written_goes_when_the_run_goes_on(half: RunFolder) -> None:
    """Sorted logs and half files, which nobody would come back to; not what may be being written, nor a user's."""
    scratch, old, young, mine = (
        half.path / name for name in ("scratch-0a_cdefg", f".{0:016x}.partial", f".{1:016x}.partial", "scratch-of-mine")
    )
    for folder in (scratch, mine):
        folder.mkdir()
        (folder / "sorted").touch()
    for file in (old, young):
        file.touch()
    os.utime(old, (0, 0))
    assert main(["resume", "run", "--inline", "--format", "none"]) == 0
    assert [path.exists() for path in (scratch, old, young, mine)] == [False, False, True, True]


def test_a_folder_that_is_called_like_an_option_can_be_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Hints name it so that their commands take it for the folder."""
    monkeypatch.chdir(tmp_path)
    begun(Path("-x"), "stopped")
    assert main(["watch", "./-x"]) == 3
    assert "evalq resume ./-x" in capsys.readouterr().err
    assert main(["cancel", *shlex.split(RunFolder(Path("-x")).named())]) == 0


def test_a_run_that_is_done_at_its_server_is_brought_here_before_it_can_be_removed(
    half: RunFolder, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """As a detached one whose report was fetched: prune names cancel, and that the command which collects it."""
    _left(half, "detached")
    monkeypatch.setattr(cancel, "close", lambda *of: "done")
    assert main(["prune", "run"]) == 2
    assert "end it first: evalq cancel" in capsys.readouterr().err
    assert main(["cancel", "run"]) == 2
    assert "it is done; wait for its report with: evalq watch evalq-runs/run" in capsys.readouterr().err


def test_no_command_notes_a_state_that_may_not_follow(tmp_path: Path) -> None:
    """Every pair of states: the folder takes what the table allows, and refuses the rest with what can be done."""
    for before in NEXT:
        for after in NEXT:
            folder = begun(tmp_path / f"{before}-{after}", before)
            if may_follow(after, before):
                folder.note(state=after)
            else:
                with pytest.raises(UsageError, match=f"this run is {before}, and cannot become {after}"):
                    folder.note(state=after)
            assert folder.info().state == (after if may_follow(after, before) else before)


def test_what_another_command_began_is_not_removed_for_a_fault(half: RunFolder) -> None:
    """An input that changed fails the resumed run; its answers stay, and with the input back it can be resumed."""
    rows = Path("rows.csv").read_bytes()
    Path("rows.csv").write_bytes(rows.replace(b"1", b"2"))
    with pytest.raises(InputError):
        resume(half, Backend(Settings(), inline=True), QUIET)
    assert half.info().state == "failed"
    Path("rows.csv").write_bytes(rows)
    resume(half, Backend(Settings(), inline=True), QUIET)
    assert half.info().state == "done"


def test_faulty_input_of_a_new_run_leaves_what_the_user_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An empty folder above the run's, or in its place, stays after a fault and after a dry run."""
    monkeypatch.chdir(tmp_path)
    Path("faulty.csv").write_text("nothing,of,use\n1,2,3\n")
    Path("rows.csv").write_text("")
    for there in ("results", "results/run"):
        Path(there).mkdir()
        for command in (["planagent", "faulty.csv", "--inline"], ["planagent", "rows.csv", "--dry-run"]):
            main([*command, "--out", "results/run"])
            assert Path(there).is_dir(), command
            assert not list(Path(there).iterdir()), command


def test_a_dry_run_of_a_key_drives_nothing(half: RunFolder, capsys: pytest.CaptureFixture[str]) -> None:
    """It says that the run was begun before."""
    before = half.facts()
    assert main([*ONCE, "--dry-run"]) == 0
    assert "begun before, in evalq-runs/run" in capsys.readouterr().err
    assert half.facts() == before


@pytest.mark.parametrize("text", ["", '{"run": "odd"}'])
def test_a_damaged_folder_ends_no_command(half: RunFolder, text: str, capsys: pytest.CaptureFixture[str]) -> None:
    """list, status and prune name it in a warning and go on with the others."""
    odd = Path("evalq-runs/odd")
    odd.mkdir()
    (odd / "run.json").write_text(text)
    for command in (["list"], ["list", "--json"], ["status"], ["prune", "--older-than", "0"]):
        capsys.readouterr()
        assert main(command) == 0, command
        said = capsys.readouterr()
        assert "evalq-runs/odd is skipped" in said.err
        assert "Traceback" not in said.err
    assert main(["status", "odd"]) == 3
    assert "run.json is damaged" in capsys.readouterr().err


@pytest.mark.usefixtures("half")
def test_an_empty_folder_of_the_users_is_taken() -> None:
    """--out names one that is there: it is filled, and stays the same folder, so whoever is in it sees the run."""
    Path("mine").mkdir()
    before = Path("mine").stat().st_ino
    assert main(["planagent", "rows.csv", "--inline", "--out", "mine", "--format", "none"]) == 0
    assert Path("mine").stat().st_ino == before
    assert (Path("mine") / "report.json").is_file()


@pytest.mark.parametrize("state", ["open", "calling", "retrying"])
def test_a_run_that_says_it_goes_and_that_nobody_drives_is_reported_as_that(
    half: RunFolder, state: RunState, capsys: pytest.CaptureFixture[str]
) -> None:
    """One that was killed could not note its end: list and status say so, not of a driven one."""
    _left(half, state)
    for command in ("list", "status"):
        assert main([command]) == 0
        assert "no process drives it here; resume it with: evalq resume evalq-runs/run" in capsys.readouterr().out
        with half.driving():
            assert main([command]) == 0
            assert "no process drives it" not in capsys.readouterr().out
    _left(half, "interrupted")
    assert main(["list"]) == 0
    assert "no process drives it" not in capsys.readouterr().out


def test_only_the_process_that_holds_a_run_is_interrupted(half: RunFolder) -> None:
    """What the lock says of its holder is not enough: the process must have the very file open, and be of this host."""
    lock = half.path / "run.lock"
    other = subprocess.Popen(["sleep", "600"])
    try:
        with half.driving():
            for text in (f"{socket.gethostname()} {other.pid}", f"elsewhere {os.getpid()}", "", "x y"):
                lock.write_text(text)
                assert not interrupt_holder(lock), text
        assert other.poll() is None
        assert not interrupt_holder(lock), "nobody holds it"
    finally:
        other.kill()
        other.wait()


def test_a_report_that_a_process_is_about_to_make_is_waited_for(
    half: RunFolder, capsys: pytest.CaptureFixture[str]
) -> None:
    """While it is driven nobody is told to resume it; a path is named as it was given."""
    with half.driving():
        assert main(["report", "run"]) == 2
    said = capsys.readouterr().err
    assert "drives it: wait for it with evalq watch evalq-runs/run" in said
    assert "resume" not in said
    for given, named in (("evalq-runs/file", "evalq-runs/file"), ("./file", "file"), ("file", "evalq-runs/file")):
        assert main(["status", given]) == 2
        assert capsys.readouterr().err.startswith(f"evalq: {named}: not a run folder")


def test_a_run_of_another_code_is_not_said_to_be_resumable(
    half: RunFolder, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """By this one, that is: watch, status and list name the code that can."""
    half.note(state="open")  # as a killed process leaves it
    monkeypatch.setattr("evalq.producer.folder.manifest.code_version", lambda: "0" * 12)
    for command, code in ((["watch", "run"], 3), (["status", "run"], 0), (["list"], 0)):
        assert main(command) == code
        said = "".join(capsys.readouterr())
        assert f"begun by evalq code {code_version()}, this is {'0' * 12}: resume it with that version" in said
        assert "evalq resume" not in said


def test_a_report_of_another_form_is_no_error_of_evalq_itself(
    half: RunFolder, capsys: pytest.CaptureFixture[str]
) -> None:
    """As another version wrote it, or somebody else did: it was a traceback that asked to be reported."""
    assert main(["resume", "run", "--inline", "--format", "none"]) == 0
    path = half.path / "report.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "results": {"as": "once"}}))
    capsys.readouterr()
    assert main(["report", "run"]) == 3
    said = capsys.readouterr().err
    assert said.startswith("evalq: evalq-runs/run: its report is not of the form that this version of planagent shows")
    assert "Traceback" not in said


@pytest.mark.parametrize(
    "change",
    [
        {"schema": "evalq.report/2"},
        {"evaluator": None},
        {"records": {"total": 12}},
        {"records": []},
        {"results": "as it was once"},
        {"params": 7},
        {"faults": ["once"]},
    ],
)
def test_a_report_without_the_frame_of_one_is_named(
    half: RunFolder, change: dict[str, Json], capsys: pytest.CaptureFixture[str]
) -> None:
    """With the file and what to do, by each command that reads it: it was a traceback that asked to be reported."""
    assert main(["resume", "run", "--inline", "--format", "none"]) == 0
    path = half.path / "report.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **change}))
    for command in (["report", "run"], ["compare", "run", "run"], ["watch", "run"]):
        capsys.readouterr()
        assert main(command) == 3, command
        said = capsys.readouterr().err
        assert said.startswith("evalq: evalq-runs/run/report.json ")
        assert said.endswith("use the evalq that wrote it (evalq --version), or evaluate again\n")
        assert "Traceback" not in said


def test_numbers_that_have_another_form_are_no_error_of_evalq_itself(
    half: RunFolder, capsys: pytest.CaptureFixture[str]
) -> None:
    """Words where numbers are to be written out: a ValueError was taken for a fault of evalq."""
    assert main(["resume", "run", "--inline", "--format", "none"]) == 0
    path = half.path / "report.json"
    report = json.loads(path.read_text())
    results = json.loads(json.dumps(report["results"]), parse_int=str, parse_float=str)
    path.write_text(json.dumps({**report, "results": results}))
    capsys.readouterr()
    assert main(["report", "run"]) == 3
    said = capsys.readouterr().err
    assert said.startswith("evalq: evalq-runs/run: its report is not of the form")
    assert "Traceback" not in said


def test_a_report_of_nothing_says_so_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every record is broken: the command, a watch and the report end with 5."""
    monkeypatch.chdir(tmp_path)
    Path("broken.jsonl").write_text('{"id": 1\n')
    for command in (["selfcheck", "broken.jsonl", "--inline", "--out", "run"], ["watch", "run"], ["report", "run"]):
        assert main([*command, "--format", "none"]) == 5, command


def test_a_hint_has_one_full_stop_at_most(tmp_path: Path) -> None:
    """An error that ends with one is continued without it."""
    error = Backend(Settings(), inline=True).resumable(BrokerUnreachable("refused."), RunFolder(tmp_path))
    assert (type(error), str(error)) == (
        BrokerUnreachable,
        f"refused; resume with: evalq resume {tmp_path} --inline",
    )
