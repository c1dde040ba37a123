"""`--follow` in real processes: killed, stopped, run again from cron, while a real file grows and is rotated."""

from __future__ import annotations

import contextlib
import json
import os
import random
import re
import shutil
import signal
import subprocess
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from evalq.evalcore.evaluators.cooperation.sample import write_events
from evalq.evalcore.model.canonical import digest
from evalq.workers.ledger.history import Entry, History, HistoryKey
from evalq.workers.settings import Settings
from tests.integration.harness import EVALQ, PATIENCE, Server, clean_environment, evalq, info, start_evalq, wait_until
from tests.integration.scraping import running_exporter

LOG = "events.jsonl"
FILES = ("report.json", "records.jsonl", "results.yaml", "report.md")
ONE_PASS = ("cooperation", "--follow", LOG, "--passes", "1", "--run-dir", "run", "--format", "none")


@pytest.fixture(scope="module")
def events(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """About 2.5 MB of a log in order."""
    path = tmp_path_factory.mktemp("events") / LOG
    with path.open("wb") as out:
        write_events(out, 10_000, seed=5)
    return path.read_bytes()


@pytest.fixture(scope="module")
def many(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """About 50 MB of a log in order."""
    path = tmp_path_factory.mktemp("many") / LOG
    with path.open("wb") as out:
        write_events(out, 210_000, seed=5)
    return path


@contextlib.contextmanager
def following(folder: Path, *options: str) -> Iterator[subprocess.Popen[str]]:
    """A follower that looks ten times a second; killed at the end, if it still runs."""
    command = ("cooperation", "--follow", LOG, "--every", "0.1", "--run-dir", "run", "--format", "none", *options)
    process = start_evalq(*command, cwd=folder)
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def append(folder: Path, data: bytes) -> None:
    """What the log's writer does."""
    with (folder / LOG).open("ab") as out:
        out.write(data)


def reached(folder: Path) -> int:
    """How many bytes the last report of the run is about."""
    return int(info(folder / "run").get("progress", {}).get("bytes", 0))


def _beyond(folder: Path, position: int, process: subprocess.Popen[str]) -> bool:
    """Whether there is a report of more than that, or nobody to write it."""
    return reached(folder) > position or process.poll() is not None


def is_report_of(folder: Path, whole: bytes) -> None:
    """Assert that the run folder has the bytes that `evalq cooperation --inline` writes about a copy of ``whole``."""
    copy = folder / "copy"
    shutil.rmtree(copy, ignore_errors=True)
    copy.mkdir()
    (copy / LOG).write_bytes(whole)
    done = evalq("cooperation", LOG, "--inline", "--run-dir", "run", "--format", "none", cwd=copy)
    assert done.returncode == 0, done.stderr
    for name in FILES:
        assert (copy / "run" / name).read_bytes() == (folder / "run" / name).read_bytes(), name


def rotate(folder: Path) -> None:
    """As logrotate does, by renaming."""
    log = folder / LOG
    for number in range(20, 0, -1):
        if (name := folder / f"{LOG}.{number}").exists():
            name.rename(folder / f"{LOG}.{number + 1}")
    log.rename(folder / f"{LOG}.1")


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_kills_at_any_moment_while_the_log_grows_and_is_rotated(seed: int, events: bytes, tmp_path: Path) -> None:
    """Followers are killed one after the other at random moments; the last one's report is that of the whole."""
    rng = random.Random(seed)
    written = 3_000
    append(tmp_path, events[:written])
    assert evalq(*ONE_PASS, cwd=tmp_path).returncode == 0
    kills = rotations = 0
    while written < len(events):
        with following(tmp_path) as process:
            seen = reached(tmp_path)
            wait_until(lambda: info(tmp_path / "run").get("state") == "following", "it has begun")
            for _ in range(rng.randrange(1, 6)):
                size = rng.randrange(1, 200_000)
                append(tmp_path, events[written : written + size])
                written = min(written + size, len(events))
                if rotations < 15 and rng.random() < 0.4:
                    rotate(tmp_path)
                    rotations += 1
                if rng.random() < 0.5:
                    reads = partial(_beyond, tmp_path, seen, process)
                    wait_until(reads, "it reads")
            assert process.poll() is None, process.communicate()
            kills += 1
    assert evalq(*ONE_PASS, cwd=tmp_path).returncode == 0
    is_report_of(tmp_path, events)
    assert kills > 2
    assert rotations


def test_every_report_a_reader_sees_is_that_of_some_whole_lines(events: bytes, tmp_path: Path) -> None:
    """Read at any moment, report.json is complete, and is the report of the log cut where it says."""
    append(tmp_path, events[:10_001])
    seen: dict[str, bytes] = {}
    with following(tmp_path) as process:
        wait_until(lambda: (tmp_path / "run/report.json").exists(), "there is a report")
        for start in range(10_001, 400_000, 13_007):
            append(tmp_path, events[start : start + 13_007])
            before = len(seen)

            def another(before: int = before) -> bool:
                data = (tmp_path / "run/report.json").read_bytes()
                seen[json.loads(data)["inputs"][0]["sha256"]] = data
                return len(seen) > before

            wait_until(another, "the next report")
        process.send_signal(signal.SIGTERM)
        assert process.wait() == 0
    from evalq.evalcore.fold import evaluate_files
    from evalq.evalcore.model.canonical import canonical_json

    ends = [match.end() for match in re.finditer(b"\n", events[:420_000])]
    cuts = {digest(events[:end]): end for end in ends}
    (tmp_path / "copy").mkdir()
    for sha256, data in random.Random(1).sample(sorted(seen.items()), 8):
        with contextlib.chdir(tmp_path / "copy"):
            Path(LOG).write_bytes(events[: cuts[sha256]])
            assert canonical_json(evaluate_files("cooperation", [LOG]).report) + b"\n" == data


@pytest.mark.parametrize(
    ("number", "code", "said"),
    [(signal.SIGINT, 130, "interrupted; resume with"), (signal.SIGTERM, 0, "ended by SIGTERM")],
)
def test_ctrl_c_and_sigterm_end_it_with_all_kept(
    number: int, code: int, said: str, events: bytes, tmp_path: Path
) -> None:
    """130 for a person who stopped it, 0 for a service manager; the next one goes on where it was."""
    append(tmp_path, events[:100_000])
    with following(tmp_path, "--every", "3600") as process:
        wait_until(lambda: reached(tmp_path), "the first pass is over")
        second = evalq(*ONE_PASS, cwd=tmp_path)
        assert second.returncode == 2
        assert "another evalq process is following this log" in second.stderr
        process.send_signal(number)
        stderr = process.communicate(timeout=PATIENCE)[1]
        assert (process.returncode, said in stderr) == (code, True), stderr
    assert info(tmp_path / "run")["state"] == "stopped"
    append(tmp_path, events[100_000:200_000])
    done = evalq(*ONE_PASS, "--json", cwd=tmp_path)
    (found,) = [line for line in map(json.loads, done.stdout.splitlines()) if line["event"] == "pass"]
    assert (found["read"], found["again"]) == (100_000, 0)
    is_report_of(tmp_path, events[: found["position"]])


def read_by(*command: str, cwd: Path) -> int:
    """Bytes that a command read, as Linux counts them: those of waited-for children are in the parent's."""

    def count() -> int:
        return int(re.findall(r"rchar: (\d+)", Path("/proc/self/io").read_text())[0])

    before = count()
    environment = clean_environment(PYTHONDONTWRITEBYTECODE="1")
    done = subprocess.run([*EVALQ, *command], cwd=cwd, env=environment, stdout=subprocess.DEVNULL, check=False)
    assert done.returncode == 0
    return count() - before


@pytest.mark.skipif(not Path("/proc/self/io").exists(), reason="Linux counts a process's reading there")
def test_a_pass_from_cron_reads_only_what_is_new(many: Path, tmp_path: Path) -> None:
    """Counted by the system: of 20 MB that were read before, nothing is read again; with --verify all of it is."""
    with many.open("rb") as stream:
        append(tmp_path, stream.read(20_000_000))
        assert evalq(*ONE_PASS, cwd=tmp_path).returncode == 0
        idle = read_by(*ONE_PASS, cwd=tmp_path)
        append(tmp_path, stream.read(1_000_000))
    busy = read_by(*ONE_PASS, cwd=tmp_path)
    # A pass that counts and writes a report also reads the modules for that, some 100 kB: nothing beside 20 MB.
    assert abs(busy - idle - 1_000_000) < 300_000
    verified = read_by(*ONE_PASS, "--verify", cwd=tmp_path)
    assert abs(verified - idle - 21_000_000) < 300_000


def test_memory_does_not_grow_with_the_log(many: Path, tmp_path: Path) -> None:
    """A follower that catches up with 50 MB takes hardly more than with 5 MB."""
    peaks = []
    for size in (5_000_000, 50_000_000):
        folder = tmp_path / str(size)
        folder.mkdir()
        shutil.copyfile(many, folder / LOG)
        os.truncate(folder / LOG, size)
        process = subprocess.Popen([*EVALQ, *ONE_PASS, "-q"], cwd=folder, env=clean_environment())
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        assert process.returncode == 0
        peaks.append(usage.ru_maxrss)
    assert peaks[1] - peaks[0] < 16 << 10, f"KiB: {peaks}"


def test_a_log_that_comes_later_is_followed_from_its_beginning(events: bytes, tmp_path: Path) -> None:
    """It is waited for, and said so; metrics.json and -o follow each pass too."""
    with following(tmp_path, "--out", "metrics.json", "-o", "copy.json") as process:
        assert process.stderr is not None
        assert process.stderr.readline() == "waiting: events.jsonl is not there yet\n"
        for end in (50_000, 90_000):
            append(tmp_path, events[0 if end == 50_000 else 50_000 : end])
            position = events[:end].rfind(b"\n") + 1

            def in_step(position: int = position) -> bool:
                with contextlib.suppress(OSError):
                    report = (tmp_path / "run/report.json").read_bytes()
                    (entry,) = json.loads(report)["results"]["logs"].values()
                    metrics: Any = json.loads((tmp_path / "metrics.json").read_text())
                    same = (tmp_path / "copy.json").read_bytes() == report and metrics == entry
                    return same and reached(tmp_path) == position
                return False

            wait_until(in_step, "all files are this pass's")


def test_one_pass_ends_as_a_run_of_the_whole_ends(tmp_path: Path) -> None:
    """No log 2, nothing in it 5, a bad line 2 with the same words, and 0 with the bad lines skipped."""
    missing = evalq(*ONE_PASS, cwd=tmp_path)
    assert (missing.returncode, "no such file" in missing.stderr) == (2, True)
    assert list(tmp_path.iterdir()) == []
    append(tmp_path, b"")
    assert evalq(*ONE_PASS, cwd=tmp_path).returncode == 5
    append(tmp_path, b'{"turn":1,"agent":"a"}\n{\n')
    followed = evalq(*ONE_PASS, cwd=tmp_path)
    whole = evalq("cooperation", LOG, "--inline", "--run-dir", "other", cwd=tmp_path)
    assert (followed.returncode, followed.stderr) == (whole.returncode, whole.stderr)
    assert whole.returncode == 2
    skipping = evalq("cooperation", "--follow", LOG, "--passes", "1", "--skip-bad-lines", cwd=tmp_path)
    assert skipping.returncode == 0, skipping.stderr
    assert "2 new lines up to byte 25" in skipping.stderr
    assert "| Bad lines skipped | 1 |" in skipping.stdout


def test_options_it_cannot_keep_are_refused(tmp_path: Path) -> None:
    """Rather than left aside; and its own are refused where nothing is followed."""
    for option in (("--limit", "3"), ("--detach",), ("--workers", "2")):
        done = evalq(*ONE_PASS, *option, cwd=tmp_path)
        assert done.returncode == 2
        assert f"omit {option[0]} (or unset EVALQ_" in done.stderr
    done = evalq(*ONE_PASS, cwd=tmp_path, EVALQ_WORKERS="3")
    assert (done.returncode, "EVALQ_WORKERS" in done.stderr) == (2, True)
    for priority in ("interactive", "bulk"):
        done = evalq(*ONE_PASS, "--priority", priority, cwd=tmp_path)
        assert (done.returncode, "omit --priority" in done.stderr) == (2, True)
    for option in (("--every", "3"), ("--passes", "1"), ("--verify",)):
        done = evalq("cooperation", LOG, *option, cwd=tmp_path)
        assert (done.returncode, f"{option[0]} goes with --follow" in done.stderr) == (2, True)
    assert list(tmp_path.iterdir()) == []


def test_a_priority_for_other_runs_is_left_aside(events: bytes, tmp_path: Path) -> None:
    """Its variable says nothing about a log that is followed."""
    (tmp_path / LOG).write_bytes(events)
    assert evalq(*ONE_PASS, cwd=tmp_path, EVALQ_PRIORITY="interactive").returncode == 0


def entries(server: Server) -> list[Entry]:
    """What the history has of the village's logs."""
    return History(server.client, Settings()).entries(HistoryKey("cooperation", "village"))


def test_the_history_has_the_last_answer_of_a_followed_log(events: bytes, server: Server, tmp_path: Path) -> None:
    """One entry a follower, of its last report: two hosts with a log of the same path have one each."""
    options = (*ONE_PASS, "--suite", "village", "--tag", "site=east")
    append(tmp_path, events[:50_000])
    done = evalq(*options, cwd=tmp_path, EVALQ_BROKER=server.url)
    assert done.returncode == 0, done.stderr
    (first,) = entries(server)
    assert evalq(*options, cwd=tmp_path, EVALQ_BROKER=server.url).returncode == 0
    assert entries(server) == [first], "nothing was new"
    append(tmp_path, events[50_000:90_000])
    assert evalq(*options, cwd=tmp_path, EVALQ_BROKER=server.url).returncode == 0
    report = (tmp_path / "run/report.json").read_bytes()
    (last,) = entries(server)
    assert (last.run, last.tags, last.digest) == (first.run, {"site": "east"}, digest(report.rstrip(b"\n")))
    assert last.ended > first.ended
    other = [option if option != "run" else "other" for option in options]
    assert evalq(*other, cwd=tmp_path, EVALQ_BROKER=server.url).returncode == 0
    assert {entry.run for entry in entries(server)} > {first.run}
    with running_exporter(server.url, tmp_path) as exporter:
        labels = {"suite": "village", "target": "", "input": LOG}
        rate = json.loads(report)["results"]["logs"][LOG]["cooperation_rate"]
        assert exporter.value("evalq_cooperation_rate", **labels) == pytest.approx(rate)


def test_a_history_that_is_away_is_reported_once_and_caught_up_with(
    events: bytes, server: Server, tmp_path: Path
) -> None:
    """The log is followed all the same, and the entry made when the server is back, without a new line."""
    append(tmp_path, events[:50_000])
    server.kill()
    try:
        with following(tmp_path, "--suite", "village", "--broker", server.url, "--passes", "100000") as process:
            assert process.stderr is not None
            said = [process.stderr.readline() for _ in range(2)]
            assert "not in the history of its suite" in "".join(said)
            assert "each pass tries again" in "".join(said)
            append(tmp_path, events[50_000:90_000])
            wait_until(lambda: reached(tmp_path) > 50_000, "it follows")
            server.start()
            wait_until(lambda: bool(entries(server)), "the entry is there")
            report = (tmp_path / "run/report.json").read_bytes()
            assert entries(server)[0].digest == digest(report.rstrip(b"\n"))
            process.send_signal(signal.SIGTERM)
            assert process.communicate()[1].count("not in the history") == 0
    finally:
        server.kill()


def test_commands_about_runs_know_a_run_that_follows(events: bytes, tmp_path: Path) -> None:
    """It is listed and shown, is not resumed, and can be ended for good."""
    append(tmp_path, events[:10_000])
    command = ("cooperation", "--follow", LOG, "--passes", "1", "--format", "none")
    assert evalq(*command, cwd=tmp_path).returncode == 0
    (run,) = (tmp_path / "evalq-runs").iterdir()
    name = info(run)["run"]
    assert name in evalq("list", cwd=tmp_path).stdout
    assert "Cooperation rate" in evalq("report", name, cwd=tmp_path).stdout
    assert "stopped" in evalq("status", cwd=tmp_path).stdout
    assert "Cooperation rate" in evalq("report", cwd=tmp_path).stdout
    refused = evalq("resume", run, cwd=tmp_path)
    assert (refused.returncode, "resume it with the command that began it" in refused.stderr) == (2, True)
    assert evalq("cancel", run, cwd=tmp_path).returncode == 0
    assert name in evalq("prune", "--older-than", "0", cwd=tmp_path).stdout
    assert not run.exists()
