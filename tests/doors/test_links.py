"""The file system's door: links and pipes in a folder that somebody else filled lead evalq to no other file, and hold
up no command."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from evalq.evalcore.contract import plugins
from evalq.evalcore.contract.evaluator import Request
from evalq.evalcore.evaluators.planagent.sample import write_rows
from evalq.evalcore.files import open_appending, open_input, open_new, replacing, write_atomic
from evalq.producer.folder.job import Job, RunOptions
from evalq.producer.folder.run_folder import RunFolder
from evalq.producer.lifecycle.prune import prune
from tests.folders import facts
from tests.integration.harness import evalq

SECRET = b"what the link leads to"
SECONDS = 60


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder, an untrusted checkout with results.csv; `victim` lies outside."""
    folder = tmp_path / "checkout"
    folder.mkdir()
    with (folder / "results.csv").open("w", encoding="utf-8", newline="") as out:
        write_rows(out, 60, seed=3)
    (tmp_path / "victim").write_bytes(SECRET)
    monkeypatch.chdir(folder)
    return folder


def victim(here: Path) -> Path:
    """The file that links lead to, and that nothing may change."""
    return here.parent / "victim"


def begun(here: Path) -> RunFolder:
    """The folder of a run that is planned and can be resumed."""
    return Job.start(
        plugins.get("planagent"), Request([str(here / "results.csv")], {}, {}), RunOptions(here / "run")
    ).folder


@pytest.mark.parametrize("suffix", [".json", ".yaml", ".md", ".jsonl", ".csv", ".parquet"])
def test_an_output_is_written_through_no_link(here: Path, suffix: str) -> None:
    """Neither by the name that was asked for, nor by the name that it has while it is written."""
    assert evalq("planagent", "results.csv", "--inline", "--out", "run", cwd=here).returncode == 0
    for name in (f"out{suffix}", f"out{suffix}.partial"):
        (here / name).symlink_to(victim(here))
    done = evalq("report", "run", "-o", f"out{suffix}", "--format", "none", cwd=here)
    assert done.returncode == 0, done.stderr
    assert victim(here).read_bytes() == SECRET
    assert not (here / f"out{suffix}").is_symlink()
    assert (here / f"out{suffix}").stat().st_size > 0


def test_a_run_is_resumed_through_no_link(here: Path) -> None:
    """A folder that came with the checkout: links stand where files are written for the time of the run."""
    folder = begun(here).path
    names = ("report.json", "report.md", "results.yaml", "manifest.json", "run.json", "records.jsonl", "parts.kept")
    for name in names:
        (folder / f"{name}.partial").symlink_to(victim(here))
    for name in ("report.html", "report.json", "report.md", "records.jsonl"):
        (folder / name).symlink_to(victim(here))
    done = evalq("resume", "run", "--inline", "--format", "none", cwd=here)
    assert victim(here).read_bytes() == SECRET
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("name", ["manifest.jsonl", "parts.journal", "run.lock", "chunks.key"])
def test_a_working_file_that_is_a_link_is_refused(here: Path, name: str) -> None:
    """What a run appends to must be its own file: exit 3 and the file's name, and the link's end is as it was."""
    folder = begun(here).path
    target = victim(here)
    if name == "manifest.jsonl":
        target.write_bytes((folder / name).read_bytes() + b'{"torn')
    before = target.read_bytes()
    (folder / name).unlink(missing_ok=True)
    (folder / name).symlink_to(target)
    done = evalq("resume", "run", "--inline", "--format", "none", cwd=here)
    assert target.read_bytes() == before
    assert done.returncode == 3
    assert f"{name}: a link, and evalq writes through no link" in done.stderr or "is damaged" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_name_that_was_made_beforehand_is_not_taken(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Even who guesses the temporary name gets nothing written: the file must be new."""
    monkeypatch.setattr("secrets.token_hex", lambda _: "0")
    (here / ".0.partial").symlink_to(victim(here))
    with pytest.raises(FileExistsError):
        write_atomic(here / "x", b"y")
    assert victim(here).read_bytes() == SECRET


def test_two_writers_of_one_file_do_not_meet(here: Path) -> None:
    """Each has a file of its own until its end; the later end counts."""
    with replacing(here / "x") as one, replacing(here / "x") as other:
        one.write(b"first" * 1000)
        other.write(b"second")
    assert (here / "x").read_bytes() == b"first" * 1000
    assert not list(here.glob(".*"))


def test_a_file_begun_anew_replaces_a_link(here: Path) -> None:
    """The link goes, its end stays."""
    (here / "x").symlink_to(victim(here))
    with open_new(here / "x") as out:
        out.write(b"mine")
    assert (victim(here).read_bytes(), (here / "x").read_bytes()) == (SECRET, b"mine")


def test_what_is_no_plain_file_is_opened_by_nobody(here: Path) -> None:
    """A pipe without another end, a device and a folder raise at once; a link to a file is read, not appended to."""
    os.mkfifo(here / "pipe")
    for path in (here / "pipe", Path("/dev/zero"), here):
        with pytest.raises(OSError, match="not a plain file"):
            open_input(path)
    with pytest.raises(OSError):  # noqa: PT011 - what is said of a pipe without a reader is the system's
        open_appending(here / "pipe")
    (here / "x").symlink_to(victim(here))
    with open_input(here / "x") as stream:
        assert stream.read() == SECRET
    with pytest.raises(OSError, match="a link"):
        open_appending(here / "x")


def _pipe(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


def _zeros(path: Path) -> None:
    path.unlink()
    path.symlink_to("/dev/zero")


CHANGES: dict[str, tuple[Callable[[Path], None], str]] = {
    "a pipe": (_pipe, "it can no longer be read: not a plain file"),
    "a device": (_zeros, "it can no longer be read: not a plain file"),
    "gone": (Path.unlink, "it is gone since the run was planned"),
}


@pytest.mark.parametrize("how", [("--inline",), ("--workers", "1")], ids=["inline", "workers"])
@pytest.mark.parametrize("change", CHANGES)
def test_an_input_that_is_no_file_any_more_ends_the_run(here: Path, change: str, how: tuple[str, ...]) -> None:
    """Exit 2 with the input's name and what became of it, at once."""
    begun(here)
    become, said = CHANGES[change]
    become(here / "results.csv")
    done = evalq("resume", "run", *how, cwd=here, seconds=SECONDS)
    assert (done.returncode, "results.csv: " + said in done.stderr) == (2, True), done.stderr


@pytest.mark.parametrize("name", ["results.csv", "folder", "results.csv.gz"])
def test_an_input_that_is_a_pipe_is_refused(here: Path, name: str) -> None:
    """Named as it is, in a folder, or packed: exit 2, and no wait for somebody to write."""
    (here / "folder").mkdir()
    os.mkfifo(here / "folder" / "x.csv")
    (here / "results.csv").unlink()
    for path in ("results.csv", "results.csv.gz"):
        os.mkfifo(here / path)
    done = evalq("planagent", name, "--inline", cwd=here, seconds=SECONDS)
    assert done.returncode == 2, done.stderr
    assert not (here / "evalq-runs").exists()


VIEWED = """
from evalq.producer.servers import Servers
from evalq.producer.viewing.viewer import Viewer
from evalq.workers.settings import Settings
with Servers(Settings()) as servers:
    print([known.trouble for known in Viewer((), servers).catalogue.runs()])
"""


def test_a_pipe_in_place_of_a_run_folder_s_file_keeps_nobody_waiting(here: Path) -> None:
    """The viewer shows the others and says what is wrong with this one, and so does resume, at once."""
    (here / "evalq-runs" / "x").mkdir(parents=True)
    os.mkfifo(here / "evalq-runs" / "x" / "run.json")
    command = [sys.executable, "-c", VIEWED]
    viewed = subprocess.run(command, cwd=here, capture_output=True, text=True, timeout=SECONDS, check=True)
    assert viewed.stdout.count("not a plain file") == 1
    run = begun(here).path
    _pipe(run / "manifest.jsonl")
    done = evalq("resume", "run", "--inline", cwd=here, seconds=SECONDS)
    assert (done.returncode, "manifest.jsonl is damaged" in done.stderr) == (3, True), done.stderr


@pytest.fixture
def runs(here: Path) -> Path:
    """evalq-runs with an ended run, and a link to another person's ended run between."""
    folder = here / "evalq-runs"
    for path in (folder / "b", here.parent / "elsewhere"):
        path.mkdir(parents=True)
        RunFolder(path).note(**facts(path.name, "done"))
    (folder / "a").symlink_to(here.parent / "elsewhere")
    return folder


def test_prune_leaves_links_and_what_they_lead_to(runs: Path) -> None:
    """It says so of each link, and removes the others' folders."""
    said = list(prune(runs, None, None, 0, everyone=False, dry_run=False, warn=pytest.fail))
    assert said == [f"{runs / 'a'}: a link, left alone: what it leads to is not in {runs}", f"b: {runs / 'b'}"]
    assert [path.name for path in runs.iterdir()] == ["a"]
    assert (runs / "a" / "run.json").is_file()


def test_the_demo_writes_through_no_link(here: Path) -> None:
    """Neither for its data nor for a report: exit 2, and the link is named."""
    data = here / "evalq-demo" / "data" / "planagent"
    data.mkdir(parents=True)
    (data / "plan_agent_results.csv").symlink_to(victim(here))
    done = evalq("demo", "--only", "planagent", "--data-only", cwd=here)
    assert (done.returncode, "plan_agent_results.csv: a link" in done.stderr) == (2, True), done.stderr
    assert victim(here).read_bytes() == SECRET
