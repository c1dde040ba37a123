"""The disk's door: full, read-only or somebody else's, it is a message with a path, and the run goes on afterwards."""

from __future__ import annotations

import contextlib
import json
import os
import resource
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from evalq.evalcore.contract import plugins
from evalq.evalcore.contract.evaluator import Request
from evalq.producer.folder.job import Job, RunOptions
from tests.integration.harness import EVALQ, PATIENCE, clean_environment, evalq, same_answer, short_folder
from tests.portions import some

ROOT = pytest.mark.skipif(
    os.getuid() != 0 and not os.environ.get("CI"), reason="only root may mount a small disk or be another user"
)
NOBODY = 65534


@contextlib.contextmanager
def mounted(folder: Path, options: str) -> Iterator[Path]:
    """A disk in memory at ``folder`` for the length of a block."""
    folder.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", options, "evalq-test", folder], check=True)
    try:
        yield folder
    finally:
        subprocess.run(["umount", folder], check=True)


def remount(folder: Path, options: str) -> None:
    """The same disk, of another size or kind."""
    subprocess.run(["mount", "-o", f"remount,{options}", folder], check=True)


def plain(text: str) -> None:
    """No traceback, and no more than a few lines."""
    assert "Traceback" not in text
    assert "Exception ignored" not in text
    assert len(text.splitlines()) < 6, text


@ROOT
@pytest.mark.parametrize("how", [("--inline",), ("--workers", "1")], ids=["inline", "workers"])
@pytest.mark.parametrize("kib", some([16, 128, 800], of=3))
def test_a_full_disk(data: Path, calm: Path, tmp_path: Path, kib: int, how: tuple[str, ...]) -> None:
    """It fills up at different points of a run: exit 3, no half report, and after there is room the same bytes."""
    with mounted(tmp_path / "disk", f"size={kib}k") as disk:
        run = disk / "run"
        args: list[str | Path] = [
            "planagent",
            "rows.csv",
            *how,
            "--chunk-size",
            "250",
            "--out",
            run,
            "--format",
            "none",
        ]
        done = evalq(*args, cwd=data)
        assert done.returncode == 3, done.stderr
        assert str(disk / "run") in done.stderr
        assert "No space left on device; free some space" in done.stderr
        plain(done.stderr)
        assert not (disk / "run" / "report.json").exists()
        remount(disk, "size=20m")
        if (disk / "run" / "run.json").exists():
            assert f"evalq resume {disk / 'run'}" in done.stderr
            done = evalq("resume", disk / "run", *how, "--format", "none", cwd=data)
        else:
            assert kib == 16, "only a disk that takes not even the plan has nothing to go on with"
            done = evalq(*args, cwd=data)
        assert done.returncode == 0, done.stderr
        same_answer(calm, disk / "run")
        assert not list(disk.rglob("*.partial"))


def test_a_limit_on_file_sizes(data: Path, calm: Path, tmp_path: Path) -> None:
    """The same by a limit of the user's own (ulimit -f), which needs no root."""

    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))

    command = [*EVALQ, "planagent", "rows.csv", "--inline", "--chunk-size", "250", "--out", str(tmp_path / "run")]
    done = subprocess.run(
        command, cwd=data, env=clean_environment(), capture_output=True, text=True, preexec_fn=limit, check=False
    )
    assert done.returncode == 3, done.stderr
    assert "File too large; free some space" in done.stderr
    plain(done.stderr)
    done = evalq("resume", tmp_path / "run", "--inline", "--format", "none", cwd=data)
    assert done.returncode == 0, done.stderr
    same_answer(calm, tmp_path / "run")


@pytest.mark.parametrize(("size", "name"), [(0, "run.lock"), (100, "run.json")])
def test_who_cancels_on_a_full_disk_learns_which_file(data: Path, tmp_path: Path, size: int, name: str) -> None:
    """What a write says names no file; the command does."""
    run = tmp_path / "run"
    Job.start(plugins.get("planagent"), Request([str(data / "rows.csv")], {}, {}), RunOptions(run))

    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))

    command = [*EVALQ, "cancel", str(run)]
    done = subprocess.run(
        command, cwd=data, env=clean_environment(), capture_output=True, text=True, preexec_fn=limit, check=False
    )
    assert (done.returncode, done.stderr.strip()) == (3, f"evalq: {run / name}: File too large")


@ROOT
def test_a_read_only_folder(data: Path, calm: Path, tmp_path: Path) -> None:
    """No run begins there, an earlier one cannot go on, and a finished one is still shown."""
    with mounted(tmp_path / "disk", "size=20m") as disk:
        args = ("planagent", "rows.csv", "--inline", "--chunk-size", "250", "--out")
        assert evalq(*args, disk / "whole", "--format", "none", cwd=data).returncode == 0
        used = sum(path.stat().st_blocks for path in disk.rglob("*")) // 2
        remount(disk, f"size={used + 300}k")
        assert evalq(*args, disk / "half", cwd=data).returncode == 3
        remount(disk, "size=20m,ro")
        begun = evalq(*args, disk / "new", cwd=data)
        resumed = evalq("resume", disk / "half", "--inline", cwd=data)
        shown = evalq("report", disk / "whole", cwd=data)
        written = evalq("report", disk / "whole", "-o", disk / "rows.csv", cwd=data)
        remount(disk, "rw,size=20m")
        assert (begun.returncode, resumed.returncode, shown.returncode, written.returncode) == (2, 3, 0, 3)
        for said in (begun.stderr, resumed.stderr, written.stderr):
            assert "Read-only file system" in said
            plain(said)
        assert f"evalq resume {disk / 'half'} --inline" in resumed.stderr
        assert "evalq report" in written.stderr
        assert evalq("resume", disk / "half", "--inline", "--format", "none", cwd=data).returncode == 0
        same_answer(calm, disk / "half")


@ROOT
def test_a_folder_of_somebody_else(data: Path, tmp_path: Path) -> None:
    """A user who may not write there: an error that names the file, and nothing is changed."""
    folder = short_folder()
    try:
        folder.chmod(0o755)
        rows = folder / "rows.csv"
        rows.write_bytes((data / "rows.csv").read_bytes())
        (folder / "mine").mkdir()
        assert (
            evalq("planagent", "rows.csv", "--inline", "--out", "done", "--format", "none", cwd=folder).returncode == 0
        )
        (folder / "secret.csv").write_bytes(rows.read_bytes())
        (folder / "secret.csv").chmod(0o600)
        before = {path: path.stat().st_mtime_ns for path in folder.rglob("*")}
        *refused, shown = _as_nobody(
            folder,
            ("planagent", "rows.csv", "--inline", "--out", "mine"),
            ("planagent", "rows.csv", "--inline", "--out", "new"),
            ("planagent", "rows.csv", "--inline"),
            ("report", "done", "-o", "new.md"),
            ("planagent", "secret.csv", "--inline", "--out", "/proc/nowhere"),
            ("report", "done"),
        )
        assert [run.returncode for run in refused] == [2, 2, 2, 3, 2], refused
        for run in refused:
            plain(run.stderr)
        assert all("Permission denied" in run.stderr for run in refused[:4])
        assert before == {path: path.stat().st_mtime_ns for path in folder.rglob("*")}
        assert (shown.returncode, shown.stderr.count("Traceback")) == (0, 0)
    finally:
        subprocess.run(["rm", "-rf", folder], check=True)


def test_an_input_that_may_not_be_read(tmp_path: Path) -> None:
    """An unreadable input is the data's fault, with its name; a folder in a file's place is, too."""
    (tmp_path / "rows.csv").mkdir()
    (tmp_path / "rows.csv" / "x.csv").mkdir()
    done = evalq("planagent", "rows.csv/x.csv", "--inline", cwd=tmp_path)
    assert done.returncode == 2
    plain(done.stderr)


@ROOT
def test_a_decision_that_does_not_fit_leaves_none_of_before(tmp_path: Path) -> None:
    """On a full disk, and over a file that is mounted by itself: exit 3, and it no longer says GO beside a NO-GO."""
    rows = [json.dumps({"id": f"t{number}", "actual_output": "Next I will deploy it."}) for number in range(20)]
    (tmp_path / "t.jsonl").write_text("\n".join(rows) + "\n")
    done = evalq("verification", "t.jsonl", "--inline", "--out", "run", "--format", "none", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    (tmp_path / "policy.yaml").write_text("gates: [{metric: verification.pass_rate, min: 0.7}]")
    gate: tuple[str | Path, ...] = ("gate", "run", "--policy", "policy.yaml", "-o")
    with mounted(tmp_path / "disk", "size=16k") as disk:
        (disk / "gate.json").write_text('{"decided": "GO"}')
        with contextlib.suppress(OSError), (disk / "full").open("wb", buffering=0) as out:
            out.write(bytes(1 << 20))
        done = evalq(*gate, disk / "gate.json", cwd=tmp_path)
        assert (done.returncode, "NO-GO" in done.stdout) == (3, True), done.stderr
        assert "No space left on device; free some space, then run evalq gate again" in done.stderr
        assert not (disk / "gate.json").exists()
    alone, source = tmp_path / "gate.json", tmp_path / "source.json"
    alone.touch()
    source.write_text('{"decided": "GO"}')
    subprocess.run(["mount", "--bind", source, alone], check=True)
    try:
        done = evalq(*gate, alone, cwd=tmp_path)
    finally:
        subprocess.run(["umount", alone], check=True)
    assert (done.returncode, source.read_bytes()) == (3, b""), done.stderr


AS_NOBODY = """
import difflib, json, os, sys, tempfile
sys.path[:0] = [path for path in os.environ.get("PYTHONPATH", "").split(":") if path]
import pandas
import evalq.producer.lifecycle.fetch, evalq.producer.run.work, evalq.producer.run.execute, evalq.workers.settings
import evalq.producer.commands._evaluation, evalq.producer.commands.resume, evalq.producer.commands.status
from evalq.evalcore.contract import plugins
from evalq.producer.cli import main

[plugins.get(name) for name in plugins.names()]
os.setgroups([])
os.setgid(int(sys.argv[1]))
os.setuid(int(sys.argv[1]))
ended = []
for words in json.loads(sys.argv[2]):
    streams = [tempfile.TemporaryFile() for _ in range(2)]
    pid = os.fork()
    if not pid:
        os.dup2(streams[0].fileno(), 1)
        os.dup2(streams[1].fileno(), 2)
        sys.exit(main(words))
    code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    for stream in streams:
        stream.seek(0)
    ended.append([code, *(stream.read().decode() for stream in streams)])
print(json.dumps(ended))
"""
"""Commands, one after the other, each a process of a user who may not read where evalq may be installed."""


def _as_nobody(cwd: Path, *commands: tuple[str, ...]) -> list[subprocess.CompletedProcess[str]]:
    """Commands of a user who owns nothing here; the interpreter and the sources must be readable to all."""
    done = subprocess.run(
        [sys.executable, "-c", AS_NOBODY, str(NOBODY), json.dumps(commands)],
        cwd=cwd,
        env=clean_environment(HOME="/nonexistent"),
        capture_output=True,
        text=True,
        check=True,
        timeout=PATIENCE,
    )
    return [
        subprocess.CompletedProcess(words, *ended)
        for words, ended in zip(commands, json.loads(done.stdout), strict=True)
    ]
