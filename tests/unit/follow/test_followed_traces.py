"""Traces that a Collector appends: each is counted once, through rotations, kills and late spans."""

from __future__ import annotations

import json
import os
import random
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from evalq.evalcore.errors import InputError
from evalq.producer.cli import cli
from evalq.producer.follow import traces as followed
from evalq.producer.follow.traces import FollowedTraces
from tests.bench.following import CollectorFile
from tests.unit.checks.test_traces import agent, request, span

CHECKS = "defaults:\n  checks: [{contains: Seoul}]\n"


def _following(folder: Path, path: Path, settle: float = 0.0) -> FollowedTraces:
    (folder / "run").mkdir(exist_ok=True)
    return FollowedTraces(folder / "run", [str(path)], settle, lambda attributes: True)


def _counted(folder: Path) -> list[str]:
    """The traces of all windows that the state knows."""
    state = json.loads((folder / "run" / followed.STATE).read_text())
    paths = [folder / "run" / f"window-{number:06}" / "traces.jsonl" for number in range(1, state["window"] + 1)]
    return [json.loads(line)["case"] for path in paths for line in path.read_text().splitlines()]


def _append(path: Path, spans: list[dict[str, Any]]) -> None:
    with path.open("a") as out:
        out.write(json.dumps(request(spans)) + "\n")


@pytest.mark.parametrize("seed", range(12))
def test_every_trace_is_counted_once(seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Spans come in any order and twice, files are rotated and cut within a line, and processes are killed."""
    chance, path = random.Random(seed), tmp_path / "t.jsonl"
    spans = [each for trace in range(1, 31) for each in agent(trace)]
    chance.shuffle(spans)
    spans += chance.sample(spans, 10)
    store, now = FollowedTraces._store, 0.0

    def killed(self: FollowedTraces) -> None:
        if chance.random() < 0.3:
            raise KeyboardInterrupt
        store(self)

    monkeypatch.setattr(FollowedTraces, "_store", killed)
    written, rest = 0, b""
    while written < len(spans) or rest:
        with path.open("ab") as out:
            out.write(rest)
            rest = b""
            for _ in range(chance.randint(0, 8)):
                piece = spans[written : written + chance.randint(1, 4)]
                written += len(piece)
                if piece:
                    out.write(json.dumps(request(piece)).encode() + b"\n")
            if written < len(spans) and chance.random() < 0.4:
                line = json.dumps(request(spans[written : written + 1])).encode() + b"\n"
                written += 1
                out.write(line[:100])
                rest = line[100:]
        if not rest and chance.random() < 0.3:
            path.rename(tmp_path / f"t-2026-03-01T10-00-{written:03}.jsonl")
        now += 1
        try:
            _following(tmp_path, path, settle=1_000).gather(now)
        except KeyboardInterrupt:
            continue
    for later in (1, 2_000):
        for _ in range(100):
            try:
                _following(tmp_path, path, settle=1_000).gather(now + later)
                break
            except KeyboardInterrupt:
                continue
    monkeypatch.setattr(FollowedTraces, "_store", store)
    assert sorted(_counted(tmp_path)) == [f"{trace:032x}" for trace in range(1, 31)]
    assert _following(tmp_path, path, settle=0).gather(now + 9_000) == 0
    lines = (tmp_path / "run" / "window-000001" / "traces.jsonl").read_text().splitlines()
    assert {json.loads(line)["extra"]["spans"] for line in lines} == {4}


def test_a_trace_waits_for_its_root_and_for_quiet(tmp_path: Path) -> None:
    """Late spans of a counted trace are left out, and said."""
    path, spans = tmp_path / "t.jsonl", agent(1)
    following = _following(tmp_path, path, settle=10)
    _append(path, spans[1:])
    assert [following.gather(now) for now in (0, 11)] == [0, 0]
    _append(path, spans[:1])
    assert [following.gather(now) for now in (12, 21, 22)] == [0, 0, 1]
    _append(path, [span(1, 999, 101, 14)])
    assert following.gather(30) == 0
    assert following.state.late == 1
    assert "after it was counted" in following.news[0]
    _append(path, agent(2)[1:])
    # Without a root it is given up after some time.
    assert [_following(tmp_path, path, settle=10).gather(now) for now in (31, 100, 400)] == [0, 0, 1]


def test_a_rotation_between_a_line_and_its_end_loses_nothing(tmp_path: Path) -> None:
    """A Collector writes both by themselves: the old file ends without a newline, and the new one begins with it."""
    lines = [json.dumps(request(agent(trace))).encode() for trace in (1, 2, 3)]
    collector = CollectorFile(tmp_path / "t.jsonl", len(lines[0]) + 1 + len(lines[1]), 9)
    following = _following(tmp_path, tmp_path / "t.jsonl")
    counts = []
    for line in lines:
        collector.add(line)
        counts.append(following.gather(1))
    (old,) = tmp_path.glob("t-*.jsonl")
    assert old.read_bytes().endswith(b"}")
    assert (tmp_path / "t.jsonl").read_bytes().startswith(b"\n{")
    assert counts == [1, 1, 1]
    assert (following.state.unread, following.state.late) == (0, 0)


def test_half_a_line_waits_for_its_other_half(tmp_path: Path) -> None:
    """Also where the half ends like an object."""
    line = json.dumps(request(agent(1))).encode()
    following = _following(tmp_path, tmp_path / "t.jsonl")
    for cut in [at + 1 for at, byte in enumerate(line[:-1]) if byte == ord("}")][::9]:
        (tmp_path / "t.jsonl").write_bytes(line[:cut])
        assert following.gather(1) == 0
    (tmp_path / "t.jsonl").write_bytes(line)
    assert following.gather(1) == 1
    assert following.state.unread == 0


def test_a_new_file_with_the_number_of_a_removed_one_is_read_from_its_beginning(tmp_path: Path) -> None:
    """Files of one service begin alike, and the file system gives numbers again: the end of what was read tells."""
    first, second = (json.dumps(request(agent(trace), "s" * 300)) + "\n" for trace in (1, 2))
    path = tmp_path / "t.jsonl"
    path.write_text(first)
    following = _following(tmp_path, path)
    assert following.gather(1) == 1
    path.write_text(second + second.replace(f"{2:032x}", f"{3:032x}"))  # in the same inode, with the same head
    assert path.read_bytes()[:256] == first.encode()[:256]
    assert following.gather(1) == 2


def test_a_file_that_is_renamed_while_a_pass_lists_the_folder_is_not_read_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is missing in that pass, and is known in the next."""
    path, away = tmp_path / "t.jsonl", tmp_path / "t-2026-03-01T10-00-00.000.jsonl"
    _append(path, agent(1))
    following = _following(tmp_path, path)
    assert following.gather(1) == 1
    monkeypatch.setattr(FollowedTraces, "_paths", lambda self: [])
    path.rename(away)
    assert following.gather(2) == 0
    monkeypatch.undo()
    _append(away, agent(2))
    assert _following(tmp_path, path).gather(3) == 1
    assert following.state.late == 0


def test_files_that_are_removed_before_they_are_read_are_noted(tmp_path: Path) -> None:
    """Once, also if the file system gives the number again; a file that was read and removed later is none."""
    path = tmp_path / "t.jsonl"
    _append(path, agent(1))
    following = _following(tmp_path, path)
    assert following.gather(1) == 1
    path.rename(tmp_path / "t-1.jsonl")
    _append(path, agent(2))
    assert following.gather(2) == 1
    (tmp_path / "t-1.jsonl").unlink()  # the oldest, which was read
    assert [following.gather(now) for now in (3, 4, 5)] == [0, 0, 0]
    assert following.state.removed == 0
    path.rename(tmp_path / "t-2.jsonl")
    _append(tmp_path / "t-2.jsonl", agent(3))
    (tmp_path / "t-2.jsonl").unlink()
    _append(path, agent(4))
    said = []
    for now in (6, 7, 8):
        following.gather(now)
        said += following.news
    assert [line for line in said if "before evalq read them" in line] == said[:1]
    assert "max_backups" in said[0]
    assert following.state.removed == 1


def test_prune_keeps_the_names_of_what_was_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Windows go by the age of runs, and what a run uses stays; the next pass counts nothing again."""
    monkeypatch.chdir(tmp_path)
    Path("checks.yaml").write_text(CHECKS)
    follow = ["checks", "checks.yaml", "--traces", "t.jsonl", "--follow", "--passes", "1", "--settle", "0"]
    _append(tmp_path / "t.jsonl", agent(1))
    assert CliRunner().invoke(cli, follow).exit_code == 0
    once = CliRunner().invoke(cli, ["checks", "checks.yaml", "--traces", "t.jsonl", "--out", "elsewhere"])
    assert once.exit_code == 0, once.output
    (folder,) = Path("evalq-runs").glob("traces-follow-*")
    window, recorded = folder / "window-000001" / "traces.jsonl", list(Path("evalq-runs/traces").glob("*/traces.jsonl"))
    left = Path("evalq-runs/traces/.traces-x")
    left.mkdir()
    os.utime(left, (1, 1))
    assert window.exists()
    assert len(recorded) == 1
    kept = CliRunner().invoke(cli, ["prune"])
    assert kept.stdout.splitlines() == [f"left by a killed process: {left}"]
    for dry in (True, False):
        done = CliRunner().invoke(cli, ["prune", "--older-than", "0", *(["--dry-run"] if dry else [])])
        assert f"followed traces: {window}" in done.stdout, done.output
        assert f"recorded traces: {recorded[0].parent}" in done.stdout
        assert window.exists() == recorded[0].exists() == dry
    _append(tmp_path / "t.jsonl", [span(1, 999, 101, 14)])
    _append(tmp_path / "t.jsonl", agent(2))
    again = CliRunner().invoke(cli, follow)
    assert "1 new traces" in again.stderr
    assert "after it was counted" in again.stderr
    (run,) = Path("evalq-runs").glob("checks-*/run.json")
    window = folder / "window-000002" / "traces.jsonl"
    os.utime(window, (1, 1))
    os.utime(run, None)
    kept = CliRunner().invoke(cli, ["prune"])  # the run is young and uses it
    assert kept.stdout == ""
    os.utime(folder / "traces.state", (1, 1))
    assert "nobody follows" not in CliRunner().invoke(cli, ["prune"]).stdout
    gone = CliRunner().invoke(cli, ["prune", "--older-than", "0"]).stdout
    assert f"traces that nobody follows any more: {folder}" in gone
    assert not folder.exists()


@pytest.mark.parametrize(
    ("data", "what"),
    [
        (b"\x1f\x8b\x08\x00" + bytes(60), "gzip"),
        (b"PK\x03\x04" + bytes(60), "zip archive"),
        (b"trace,a\n1,2\n", "no JSON lines"),
    ],
)
def test_a_file_that_is_no_file_of_traces_is_named(
    data: bytes, what: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With what it seems to be; no folder is left behind."""
    monkeypatch.chdir(tmp_path)
    Path("checks.yaml").write_text(CHECKS)
    Path("t.jsonl").write_bytes(data)
    done = CliRunner().invoke(cli, ["checks", "checks.yaml", "--traces", "t.jsonl", "--follow", "--passes", "1"])
    assert isinstance(done.exception, InputError)
    assert "t.jsonl has no traces that evalq can follow" in str(done.exception)
    assert what in str(done.exception.faults)
    assert not list(Path("evalq-runs").glob("traces-follow-*"))


def test_a_killed_process_leaves_nothing_behind(tmp_path: Path) -> None:
    """The next one removes what it was reading into."""
    left = tmp_path / "run" / ".reading-abc"
    left.mkdir(parents=True)
    (left / "00").write_text("x")
    _following(tmp_path, tmp_path / "t.jsonl")
    assert not left.exists()


def test_a_line_beyond_a_block_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The block grows up to the longest message."""
    monkeypatch.setattr(followed, "_BLOCK", 100)
    _append(tmp_path / "t.jsonl", agent(1))
    _append(tmp_path / "t.jsonl", agent(2))
    following = _following(tmp_path, tmp_path / "t.jsonl")
    assert following.gather(1) == 2
    monkeypatch.setattr(followed, "MOST_MESSAGE", 500)
    _append(tmp_path / "t.jsonl", agent(3))
    with pytest.raises(InputError, match=r"t\.jsonl is damaged") as fault:
        following.gather(2)
    assert "message 3: it is longer than 500 bytes" in str(fault.value.faults)


def test_what_was_counted_is_counted_once(tmp_path: Path) -> None:
    """Traces, those left out, calls of tools, results, tokens, cost and lag, also by the next process."""
    path = tmp_path / "t.jsonl"
    _append(path, agent(1) + agent(2, route="b"))
    (tmp_path / "run").mkdir()
    following = FollowedTraces(tmp_path / "run", [str(path)], 0, lambda attributes: attributes.get("route") != "b")
    assert following.gather(1) == 1
    results = {"outputs": {"passed": 1, "failed": 0, "errors": 0}, "tokens": {"total": 30.0}, "cost": {"total": None}}
    following.evaluated(1, results, 20.0)
    totals = _following(tmp_path, path).state.totals
    assert (totals.traces, totals.left_out, totals.tool_calls, totals.tool_errors) == (1, 1, 1, 0)
    assert (totals.passed, totals.failed, totals.tokens, totals.cost, totals.lag) == (1, 0, 30.0, 0.0, 6.0)


def test_each_window_is_a_run_of_its_suite(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The command makes a run of what came, goes on where it was, and makes none of nothing."""
    monkeypatch.chdir(tmp_path)
    Path("checks.yaml").write_text(CHECKS)
    command = ["checks", "checks.yaml", "--traces", "t.jsonl", "--follow", "--passes", "1", "--settle", "0"]
    command += ["--suite", "prod", "--by", "route"]
    _append(tmp_path / "t.jsonl", agent(1) + agent(2, route="a"))
    first = CliRunner().invoke(cli, command)
    assert first.exit_code == 0, first.output
    assert "pass rate 100.0 %" in first.stderr
    assert "2 new traces" in first.stderr
    _append(tmp_path / "t.jsonl", agent(3))
    second, third = (CliRunner().invoke(cli, command) for _ in range(2))
    assert "1 new traces" in second.stderr
    assert "0 new traces" in third.stderr
    runs = [json.loads(path.read_text()) for path in Path("evalq-runs").glob("*/run.json")]
    assert sorted((run["suite"], run["tags"]["window"]) for run in runs) == [("prod", "1"), ("prod", "2")]
    # The windows are one series for drift, though none has a case of another.
    history = CliRunner().invoke(cli, ["history", "prod"])
    assert "Nothing to compare yet" not in history.stdout, history.stdout
    assert "No drift" in history.stdout
