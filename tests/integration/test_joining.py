"""One --once key, many commands at one instant: one computes, the others wait for it, and all show its report."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from pathlib import Path

import pytest

from evalq.producer.cli import main
from evalq.producer.folder.run_folder import RunFolder
from evalq.producer.run.chunks import PublishedPlan
from tests.integration.harness import (
    HAZARDS,
    PATIENCE,
    Server,
    evalq,
    info,
    running_fleet,
    start_evalq,
    wait_until,
)

MANY = 10
GATE = "gate"


def _ends(process: subprocess.Popen[str]) -> tuple[int, str, str]:
    out, said = process.communicate(timeout=PATIENCE)
    return process.returncode, out, said


@pytest.mark.parametrize("how", [("--inline",), (), ("--workers", "1")], ids=["inline", "here", "embedded"])
def test_of_many_at_one_instant_one_computes(data: Path, tmp_path: Path, how: tuple[str, ...]) -> None:
    """Ten commands: ten exits 0 with the same report, one folder; one says nothing of a run before it."""
    args: tuple[str | Path, ...] = ("planagent", data / "small.csv", "--once", "k", "--chunk-size", "200", *how)
    started = [start_evalq(*args, "--format", "json", cwd=tmp_path) for _ in range(MANY)]
    ended = [_ends(process) for process in started]
    assert [code for code, _, _ in ended] == [0] * MANY, "\n".join(said for _, _, said in ended)
    assert len({out for _, out, _ in ended}) == 1
    assert [("begun before" in said) for _, _, said in ended].count(False) == 1
    (folder,) = (tmp_path / "evalq-runs").iterdir()
    assert ended[0][1].encode() == (folder / "report.json").read_bytes()


@pytest.fixture
def slow(tmp_path: Path) -> tuple[str | Path, ...]:
    """A command over three records, the last two of which wait until the gate is gone."""
    rows = [{"id": f"r{number}", "value": number, "waits": number > 0} for number in range(3)]
    (tmp_path / "in.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (tmp_path / "params.json").write_text(json.dumps({"gate": str(tmp_path / GATE)}))
    (tmp_path / GATE).touch()
    return ("hazards", "in.jsonl", "--params", "params.json", "--once", "k", "--chunk-size", "1", "--out", "run")


def _driven(folder: Path) -> bool:
    return bool(info(folder)) and (folder / "run.lock").stat().st_size > 0


@pytest.mark.parametrize("sent", [signal.SIGKILL, signal.SIGINT])
def test_who_waits_takes_over_from_a_driver_that_ends(
    tmp_path: Path, slow: tuple[str | Path, ...], sent: signal.Signals
) -> None:
    """Killed or interrupted: one of those that wait computes the rest, and all of them end with the report."""
    driver = start_evalq(*slow, "--inline", cwd=tmp_path, PYTHONPATH=HAZARDS)
    wait_until(lambda: _driven(tmp_path / "run"), "the run is driven")
    waiting = [start_evalq(*slow, "--inline", "--format", "json", cwd=tmp_path, PYTHONPATH=HAZARDS) for _ in range(3)]
    wait_until(lambda: (tmp_path / "run" / "parts.journal").exists(), "it has an answer")
    for process in waiting:
        _says(process, "waiting for its report")
    driver.send_signal(sent)
    (tmp_path / GATE).unlink()
    driver.communicate(timeout=PATIENCE)
    assert driver.returncode != 0, "it had not done all"
    ended = [_ends(process) for process in waiting]
    assert [code for code, _, _ in ended] == [0, 0, 0], ended
    assert {out.encode() for _, out, _ in ended} == {(tmp_path / "run" / "report.json").read_bytes()}


def test_watching_a_driven_run_ends_with_its_report_and_leaves_it_alone(
    tmp_path: Path, slow: tuple[str | Path, ...]
) -> None:
    """Ctrl-C of one watch disturbs nobody; another ends with the driver's report and exit code."""
    driver = start_evalq(*slow, "--inline", "--format", "json", cwd=tmp_path, PYTHONPATH=HAZARDS)
    wait_until(lambda: _driven(tmp_path / "run"), "the run is driven")
    first, second = (
        start_evalq("watch", "run", "--format", "json", cwd=tmp_path, PYTHONPATH=HAZARDS) for _ in range(2)
    )
    for process in (first, second):
        _says(process, f"driven by {os.uname().nodename} {driver.pid}")
    first.send_signal(signal.SIGINT)
    code, _, said = _ends(first)
    assert (code, "the run goes on" in said) == (130, True)
    (tmp_path / GATE).unlink()
    code, out, said = _ends(driver)
    assert code == 0, said
    assert _ends(second)[:2] == (0, out)


@pytest.mark.parametrize("driven", [True, False], ids=["driven", "interrupted"])
def test_a_run_on_a_server_is_cancelled_for_good(
    server: Server, tmp_path: Path, slow: tuple[str | Path, ...], *, driven: bool
) -> None:
    """In the ledger and in the folder, whoever drives it; its command ends with 3, and the same key stays refused."""
    here = (*slow, "--broker", server.url)
    with running_fleet(server.url, tmp_path, PYTHONPATH=HAZARDS) as fleet:
        fleet.add(1)
        driver = start_evalq(*here, cwd=tmp_path, PYTHONPATH=HAZARDS)
        run = str(
            wait_until(lambda: info(tmp_path / "run").get("progress") and info(tmp_path / "run")["run"], "it goes")
        )
        if not driven:
            driver.send_signal(signal.SIGINT)
            assert _ends(driver)[0] == 130
        done = evalq("cancel", "run", "--broker", server.url, cwd=tmp_path, PYTHONPATH=HAZARDS)
        assert done.returncode == 0, done.stderr
        if driven:
            code, _, said = _ends(driver)
            assert (code, "was cancelled by evalq cancel" in said) == (3, True), said
        assert info(tmp_path / "run")["state"] == "cancelled"
        assert server.client.hget(f"evalq:run:{{{run}}}:meta", "state") == b"cancelled"
        for command in (("resume", "run", "--broker", server.url), here):
            refused = evalq(*command, cwd=tmp_path, PYTHONPATH=HAZARDS)
            assert (refused.returncode, "cancelled for good" in refused.stderr) == (3, True), refused.stderr
        elsewhere = evalq(*here[:-3], "other", *here[-2:], cwd=tmp_path, PYTHONPATH=HAZARDS)
        assert (elsewhere.returncode, "was cancelled" in elsewhere.stderr) == (3, True), elsewhere.stderr
        assert evalq("prune", "run", "--broker", server.url, cwd=tmp_path, PYTHONPATH=HAZARDS).returncode == 0
        (tmp_path / GATE).unlink()
        assert evalq(*here, cwd=tmp_path, PYTHONPATH=HAZARDS).returncode == 0, "the key is free again"


@pytest.mark.parametrize("how", [("--inline",), (), ("--workers", "1")], ids=["inline", "here", "embedded"])
def test_a_run_that_another_terminal_drives_is_cancelled(
    tmp_path: Path, slow: tuple[str | Path, ...], how: tuple[str, ...]
) -> None:
    """Its command ends, so does one that waits to take it over, and the run is cancelled for good."""
    (tmp_path / "params.json").write_text('{"pause": 3600}')
    driver = start_evalq(*slow, *how, cwd=tmp_path, PYTHONPATH=HAZARDS)
    wait_until(lambda: _driven(tmp_path / "run"), "it is driven")
    waiting = start_evalq(*slow, *how, cwd=tmp_path, PYTHONPATH=HAZARDS)
    _says(waiting, "waiting for its report")
    done = evalq("cancel", "run", cwd=tmp_path, PYTHONPATH=HAZARDS)
    assert (done.returncode, "cancelled" in done.stderr) == (0, True), done.stderr
    code, _, message = _ends(driver)
    assert (code, "was cancelled by evalq cancel" in message, "evalq resume" in message) == (3, True, False), message
    assert _ends(waiting)[0] == 3
    assert info(tmp_path / "run")["state"] == "cancelled"
    refused = evalq("resume", "run", *how, cwd=tmp_path, PYTHONPATH=HAZARDS)
    assert (refused.returncode, "cancelled for good" in refused.stderr) == (3, True), refused.stderr


def test_a_command_that_waits_for_a_driver_elsewhere_is_seen(
    server: Server, tmp_path: Path, slow: tuple[str | Path, ...]
) -> None:
    """`list` and `status` name the process that waits; when it is gone, they say that nobody is there."""
    (tmp_path / "params.json").write_text('{"pause": 3600}')
    here = (*slow[:-1], "evalq-runs/other", "--broker", server.url)
    with running_fleet(server.url, tmp_path, PYTHONPATH=HAZARDS) as fleet:
        fleet.add(1)
        driver = start_evalq(*slow[:-1], "evalq-runs/one", *here[-2:], cwd=tmp_path, PYTHONPATH=HAZARDS)
        wait_until(lambda: info(tmp_path / "evalq-runs" / "one").get("epoch"), "the first drives")
        waits = start_evalq(*here, cwd=tmp_path, PYTHONPATH=HAZARDS)
        assert waits.stderr is not None
        said = waits.stderr
        wait_until(lambda: "waiting for its report" in said.readline(), "the second waits")
        seen = f"{os.uname().nodename} {waits.pid} waits here for its report"
        for command in (("list",), ("status", "evalq-runs/other")):

            def message(command: tuple[str, ...] = command) -> bool:  # every now and then it looks whether it may drive
                text = evalq(*command, cwd=tmp_path, PYTHONPATH=HAZARDS).stdout
                assert "no process drives it here" not in text
                return seen in text

            wait_until(message, "it is seen")
        waits.send_signal(signal.SIGINT)
        assert _ends(waits)[0] == 130
        assert "no process drives it here" in evalq("list", cwd=tmp_path, PYTHONPATH=HAZARDS).stdout
        done = evalq("cancel", "evalq-runs/one", *here[-2:], cwd=tmp_path, PYTHONPATH=HAZARDS)
        assert done.returncode == 0, done.stderr
        assert _ends(driver)[0] == 3


def test_an_interrupted_detach_says_how_to_resume(
    server: Server, data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Ctrl-C while the plan is made: 130 and a command, and it is halted in the ledger and in the folder."""
    extend, steps = PublishedPlan.extend, iter(range(1000))

    def interrupted(plan: PublishedPlan, ahead: int) -> bool:
        if next(steps) == 5:  # another process could be done with all of it before it has to stop
            signal.raise_signal(signal.SIGINT)
        return extend(plan, ahead)

    monkeypatch.setattr(PublishedPlan, "extend", interrupted)
    monkeypatch.chdir(data)
    code = main(["planagent", "rows.csv", "--broker", server.url, "--chunk-size", "4", "--detach", "--out",
                 str(tmp_path / "run")])  # fmt: skip
    said = capsys.readouterr().err
    assert (code, f"evalq resume {tmp_path / 'run'}" in said) == (130, True), said
    assert info(tmp_path / "run")["state"] == "interrupted"
    run = info(tmp_path / "run")["run"]
    assert int(server.client.llen(f"evalq:run:{{{run}}}:chunks")) > 0, "a part of the plan is there"
    assert server.client.hget(f"evalq:run:{{{run}}}:meta", "state") == b"paused"


def test_the_broker_of_the_settings_is_asked(server: Server, data: Path, tmp_path: Path) -> None:
    """`report` finds a detached run's report by --settings or EVALQ_BROKER; `list` shows what is only in the ledger."""
    settings = tmp_path / "settings.yaml"
    settings.write_text(json.dumps({"broker": server.url}))
    with running_fleet(server.url, data) as fleet:
        fleet.add(1)
        left = evalq(
            "planagent", data / "small.csv", "--detach", "--out", tmp_path / "a", "--settings", settings, cwd=data
        )
        assert left.returncode == 0, left.stderr
        run = left.stdout.strip()
        wait_until(lambda: server.client.hget(f"evalq:run:{{{run}}}:final", "report"), "it is finalised")

    def asked(name: str, *args: str, cwd: Path) -> subprocess.CompletedProcess[str]:
        if name == "settings":
            return evalq(*args, "--settings", settings, cwd=cwd)
        return evalq(*args, cwd=cwd, EVALQ_BROKER=server.url)

    for name in ("settings", "variable"):
        folder = tmp_path / name
        folder.mkdir()
        listed = asked(name, "list", cwd=folder)
        assert f"{run} " in listed.stdout, listed.stderr
        shown = asked(name, "report", run, "--format", "json", cwd=folder)
        assert shown.returncode == 0, shown.stderr
        assert shown.stdout.encode() == server.client.hget(f"evalq:run:{{{run}}}:final", "report")


def test_two_folders_of_one_key_share_one_run(server: Server, tmp_path: Path, slow: tuple[str | Path, ...]) -> None:
    """On one fleet: the second waits for the first's report, which comes into its folder; nothing is computed twice."""
    here = (*slow[:-1], "--broker", server.url)
    with running_fleet(server.url, tmp_path, PYTHONPATH=HAZARDS) as fleet:
        fleet.add(1)
        first = start_evalq(*here[:-2], "one", *here[-2:], cwd=tmp_path, PYTHONPATH=HAZARDS)
        wait_until(lambda: info(tmp_path / "one").get("epoch"), "the first drives")
        second = start_evalq(*here[:-2], "other", *here[-2:], cwd=tmp_path, PYTHONPATH=HAZARDS)
        _says(second, "waiting for its report")
        RunFolder(tmp_path / "other").note(progress={"state": "open", "chunks": 3})  # as if it had driven before
        (tmp_path / GATE).unlink()
        (code, _, _), (waited, _, said) = _ends(first), _ends(second)
    assert (code, waited, "its report is here, its records are there" in said) == (0, 0, True), said
    assert (tmp_path / "one" / "report.json").read_bytes() == (tmp_path / "other" / "report.json").read_bytes()
    assert info(tmp_path / "one")["progress"]["computed"] == 3
    other = info(tmp_path / "other")
    assert (other["state"], "progress" in other) == ("done", False), "what was counted is the other's to say"
    left = {path.name for path in (tmp_path / "other").iterdir()}
    assert not left & {"manifest.jsonl", "parts.journal", "records.jsonl.partial"}


@pytest.fixture
def durable(server: Server) -> Server:
    """A server that comes back with all it had."""
    server.client.config_set("appendonly", "yes")
    server.client.config_set("appendfsync", "always")
    return server


def test_who_waits_for_a_driver_waits_out_a_restart_of_the_server_too(
    durable: Server, tmp_path: Path, slow: tuple[str | Path, ...]
) -> None:
    """As the driver does, and aloud: both end with the same report."""
    here = (*slow[:-1], "--broker", durable.url)
    with running_fleet(durable.url, tmp_path, PYTHONPATH=HAZARDS) as fleet:
        first = start_evalq(*here[:-2], "one", *here[-2:], cwd=tmp_path, PYTHONPATH=HAZARDS)
        wait_until(lambda: info(tmp_path / "one").get("epoch"), "the first drives")
        second = start_evalq(*here[:-2], "other", *here[-2:], cwd=tmp_path, PYTHONPATH=HAZARDS)
        _says(second, "waiting for its report")
        durable.kill()
        _says(second, "waiting: no server answers")
        durable.start()
        (tmp_path / GATE).unlink()
        fleet.add(1)
        assert [_ends(process)[0] for process in (first, second)] == [0, 0]
    assert (tmp_path / "one" / "report.json").read_bytes() == (tmp_path / "other" / "report.json").read_bytes()


def test_who_waits_for_a_fleet_waits_out_a_restart_of_the_server_too(
    durable: Server, tmp_path: Path, slow: tuple[str | Path, ...]
) -> None:
    """Aloud, and then for the workers that were not there yet."""
    here = (*slow, "--broker", durable.url)
    assert evalq(*here, "--detach", cwd=tmp_path, PYTHONPATH=HAZARDS).returncode == 0
    watch = start_evalq("watch", "run", *here[-2:], "--format", "json", cwd=tmp_path, PYTHONPATH=HAZARDS)
    _says(watch, "no worker is there for it")
    durable.kill()
    _says(watch, "waiting: no server answers")
    durable.start()
    (tmp_path / GATE).unlink()
    with running_fleet(durable.url, tmp_path, PYTHONPATH=HAZARDS) as fleet:
        fleet.add(1)
        code, shown, said = _ends(watch)
    assert (code, shown.encode()) == (0, (tmp_path / "run" / "report.json").read_bytes()), said


def _says(process: subprocess.Popen[str], words: str) -> None:
    """Wait for a line with these words."""
    assert process.stderr is not None
    for line in process.stderr:
        if words in line:
            return
    pytest.fail(f"it ended and never said {words!r}")


def test_a_later_command_elsewhere_gets_the_report_that_is_there(
    server: Server, tmp_path: Path, slow: tuple[str | Path, ...]
) -> None:
    """No worker is left, and none is needed: the first's bytes, also for --detach; records are said to be there."""
    here = (*slow[:-1], "--broker", server.url)
    (tmp_path / GATE).unlink()
    with running_fleet(server.url, tmp_path, PYTHONPATH=HAZARDS) as fleet:
        fleet.add(1)
        first = evalq(*here[:-2], "one", *here[-2:], cwd=tmp_path, PYTHONPATH=HAZARDS)
        assert first.returncode == 0, first.stderr
    later = evalq(*here[:-2], "other", *here[-2:], "--format", "json", cwd=tmp_path, PYTHONPATH=HAZARDS)
    assert later.returncode == 0, later.stderr
    assert later.stdout.encode() == (tmp_path / "one" / "report.json").read_bytes()
    left = evalq(*here[:-2], "third", *here[-2:], "--detach", cwd=tmp_path, PYTHONPATH=HAZARDS)
    assert (left.returncode, left.stdout.strip()) == (0, info(tmp_path / "one")["run"]), left.stderr
    assert sorted(path.name for path in (tmp_path / "third").iterdir()) == [
        "report.html",
        "report.json",
        "report.md",
        "results.yaml",
        "run.json",
    ]
    table = evalq("report", "other", "-o", "rows.csv", cwd=tmp_path, PYTHONPATH=HAZARDS)
    assert (table.returncode, "only the report is here" in table.stderr) == (2, True), table.stderr
    assert server.client.hget(f"evalq:run:{{{info(tmp_path / 'one')['run']}}}:meta", "epoch") == b"1"
