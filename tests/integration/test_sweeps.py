"""Live sweeps against a real chat-completions server: recorded once, replayed to the same bytes, exact under fire."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from evalq.producer.folder.run_folder import RunFolder
from evalq.producer.outputs.cases import cases_of, decode_cases
from evalq.workers.ledger.detached import Reports
from evalq.workers.ledger.history import History, HistoryKey
from evalq.workers.ledger.keys import RunKeys, SweepKeys
from evalq.workers.ledger.runs import RunLedger
from evalq.workers.ledger.sweeps import SweepLedger
from evalq.workers.recovery.unattended import UnattendedSweeps
from evalq.workers.settings import Settings
from tests.agents.server import Agent, running_agent, write_golden
from tests.integration.harness import (
    PATIENCE,
    Fleet,
    Server,
    clean_environment,
    evalq,
    info,
    launch,
    running_fleet,
    serves,
    start_evalq,
    wait_until,
)
from tests.integration.scraping import running_exporter

CASES: dict[str, dict[str, Any]] = {f"C{number}": {"share": number / 5, "fenced": number % 2} for number in range(6)}


@pytest.fixture
def service() -> Iterator[tuple[Agent, str]]:
    """A server that obeys."""
    with running_agent() as started:
        yield started


def write_targets(folder: Path, url: str, **more: Any) -> Path:
    """A targets file with the target `chat`, which tries again soon and seldom."""
    quick = {kind: {"times": 2, "wait_seconds": 0.01} for kind in ("server", "rate_limit")}
    chat = {"kind": "openai", "base_url": url, "model": "m", "retries": quick, **more}
    path = folder / "targets.yaml"
    path.write_text(json.dumps({"targets": {"chat": chat}}))
    return path


def sweep(folder: Path, *args: str | Path, **environment: str) -> subprocess.CompletedProcess[str]:
    """A sweep of golden.json in ``folder`` by its own targets file, unless another is given."""
    targets = () if environment else ("--targets", "targets.yaml")
    command = ("vs", "golden.json", "--target", "chat", "--format", "none", *targets, *args)
    return evalq(*command, cwd=folder, **environment)  # type: ignore[arg-type]  # no key is `seconds`


def outputs(run: Path) -> list[dict[str, Any]]:
    """Lines of outputs.jsonl."""
    return [json.loads(line) for line in (run / "outputs.jsonl").read_text().splitlines()]


def replays(folder: Path, run: Path) -> None:
    """The evaluation of what was recorded gives the sweep's own report."""
    again = run.with_name(f"{run.name}-replay")
    args = ("--outputs", run / "outputs.jsonl", "--inline", "--out", again, "--format", "none")
    done = evalq("vs", "golden.json", *args, cwd=folder)
    assert done.returncode == 0, done.stderr
    for name in ("report.json", "records.jsonl"):
        assert (again / name).read_bytes() == (run / name).read_bytes()
    # Behind that stands what a server knows of earlier runs.
    text = (run / "report.md").read_text(encoding="utf-8").partition("\n## The last runs of the suite")[0]
    assert (again / "report.md").read_text(encoding="utf-8") == text


def test_every_call_is_made_once_recorded_and_replayed(tmp_path: Path, service: tuple[Agent, str]) -> None:
    """With no server of one's own: one call a (case, repeat), in order, and the same report from its outputs."""
    agent, url = service
    write_golden(tmp_path / "golden.json", CASES)
    write_targets(tmp_path, url)
    done = sweep(tmp_path, "--repeat", "15", "--out", "run")
    assert done.returncode == 0, done.stderr
    run = tmp_path / "run"
    assert [(line["case"], line["repeat"]) for line in outputs(run)] == [(c, r) for c in CASES for r in range(15)]
    assert len(agent.log) == 90
    assert set(agent.calls.values()) == {15}
    assert {path.name for path in run.iterdir()} == {
        "asked.json", "manifest.json", "outputs.jsonl", "prompts.jsonl", "records.jsonl", "report.html", "report.json",
        "report.md", "results.yaml", "run.json",
    }  # fmt: skip
    assert info(run)["calls"] | {"cost": 0} == {
        "target": "chat", "planned": 90, "recorded": 90, "errors": 0, "attempts": 90, "repaid": 0, "lost": 0, "cost": 0,
        "ended": "done", "reason": "",
    }  # fmt: skip
    replays(tmp_path, run)


STOPPING: dict[str, dict[str, Any]] = {
    "quota": {"do": "raw", "status": 402, "body": "{}"},
    "auth": {"do": "raw", "status": 401, "body": "{}"},
}


@pytest.mark.parametrize("kind", STOPPING)
def test_a_failure_that_every_call_would_meet_stops_the_sweep(
    tmp_path: Path, service: tuple[Agent, str], kind: str
) -> None:
    """It is reported with its kind and how to go on, it is no output of any case, and there is no report."""
    write_golden(tmp_path / "golden.json", {"good": {"share": 1.0}, "bad": STOPPING[kind]})
    write_targets(tmp_path, service[1])
    done = sweep(tmp_path, "--repeat", "2", "--out", "run")
    assert done.returncode == 3, done.stderr
    assert f"the calls stopped at chat: {kind}: " in done.stderr
    assert all(line["case"] == "good" for line in outputs(tmp_path / "run"))
    assert "evalq resume" in done.stderr
    assert info(tmp_path / "run")["state"] == "stopped"
    assert not (tmp_path / "run" / "report.json").exists()


UNANSWERED: dict[str, tuple[dict[str, Any], str]] = {
    "429": ({"do": "raw", "status": 429, "body": "{}"}, "rate_limit"),
    "500": ({"do": "raw", "status": 500, "body": "{}"}, "server"),
    "cut": ({"do": "cut"}, "server"),
    "half": ({"do": "half"}, "server"),
}
SILENT: dict[str, tuple[dict[str, Any], str]] = {"hang": ({"do": "hang"}, "timeout")}
ANSWERED: dict[str, tuple[dict[str, Any], str]] = {
    "404": ({"do": "raw", "status": 404, "body": "{}"}, "refused"),
    "said": ({"do": "said", "content": "no", "refusal": "I must not"}, "refused"),
    "broken": ({"do": "said", "content": "It is {broken"}, "bad_output"),
}
TOLD: list[tuple[dict[str, tuple[dict[str, Any], str]], int, tuple[str, ...]]] = [
    (UNANSWERED, 3, ("never answered (2 rate_limit, 6 server)",)),
    (SILENT, 3, ("never answered (2 timeout)",)),
    (ANSWERED, 0, ("no output: refused: ", "the model refuses: I must not", "no output: bad_output: not JSON")),
]


@pytest.mark.parametrize(("bad", "code", "said"), TOLD, ids=["unanswered", "silent", "answered"])
def test_each_kind_of_failure_is_reported(
    tmp_path: Path,
    service: tuple[Agent, str],
    bad: dict[str, tuple[dict[str, Any], str]],
    code: int,
    said: tuple[str, ...],
) -> None:
    """What the user sees, what is recorded of each case, and that an error is neither a mode nor a score."""
    orders = {case: order for case, (order, _) in bad.items()}
    write_golden(tmp_path / "golden.json", {"good": {"share": 1.0}} | orders)
    retries = {name: {"times": 1, "wait_seconds": 0.01} for name in ("server", "rate_limit", "timeout")}
    # Where no answer is waited for in vain, the time-out is not what is tested, and no busy machine may reach it.
    write_targets(tmp_path, service[1], timeout_seconds=3 if bad is SILENT else 60, retries=retries)
    done = sweep(tmp_path, "--repeat", "2", "--out", "run")
    assert done.returncode == code, done.stderr
    assert [words for words in said if words not in done.stderr] == [], done.stderr
    run = tmp_path / "run"
    errors = [line for line in outputs(run) if line["case"] != "good"]
    found = [(line["case"], line["error"].partition(":")[0]) for line in errors]
    assert sorted(found) == sorted((case, kind) for case, (_, kind) in bad.items() for _ in range(2))
    assert all("output" not in line for line in errors)
    assert {line["text"] for line in errors if line["case"] == "broken"} <= {"It is {broken"}
    counts = {"total": 2 + len(errors), "scored": 2, "unscored": 0, "errors": len(errors), "dead": 0}
    assert json.loads((run / "report.json").read_text())["records"] == counts
    replays(tmp_path, run)
    if code == 3:
        allowed = ("--out", "run2", "--allow-dead", str(len(errors)))
        assert sweep(tmp_path, "--repeat", "2", *allowed).returncode == 0


def test_a_spent_quota_stops_all_and_what_was_paid_is_kept(tmp_path: Path, service: tuple[Agent, str]) -> None:
    """No further call once the account is spent; when it is filled, the sweep goes on and pays for nothing twice."""
    agent, url = service
    agent.latency = 0.02
    write_golden(tmp_path / "golden.json", CASES)
    write_targets(tmp_path, url, max_concurrency=4)
    agent.quota = 40
    done = sweep(tmp_path, "--repeat", "20", "--out", "run")
    assert done.returncode == 3
    assert "quota" in done.stderr
    kept = len(outputs(tmp_path / "run"))
    assert kept == 40
    assert len(agent.log) <= 40 + 4, "those in flight when the first refusal was read"
    agent.quota = 0
    done = evalq("resume", "run", "--format", "none", cwd=tmp_path)
    assert done.returncode == 0, f"its targets file is known: {done.stderr}"
    assert len(outputs(tmp_path / "run")) == 120
    assert sum(status == 200 for _, status in agent.log) == 120
    replays(tmp_path, tmp_path / "run")


@pytest.fixture
def callers(server: Server, tmp_path: Path) -> Iterator[Fleet]:
    """Processes that call, and one that evaluates."""
    with running_fleet(server.url, tmp_path) as fleet:
        yield fleet


def served(agent: Agent) -> int:
    """Calls that were answered."""
    return sum(status == 200 for _, status in agent.log)


def test_killed_callers_and_producers_pay_again_for_no_more_than_was_in_flight(
    tmp_path: Path, server: Server, callers: Fleet, service: tuple[Agent, str]
) -> None:
    """SIGKILL of both processes that call, then of the producer: after resume, one output each, and a bounded bill.

    In flight is what a process has taken and not yet recorded: what ended a moment before the kill, too.
    """
    agent, url = service
    agent.most = 100
    agent.keep_requests = False
    write_golden(tmp_path / "golden.json", CASES)
    write_targets(tmp_path, url)
    options = ("--calls", "20", "--targets", "targets.yaml")
    first, second = callers.add(0, *options), callers.add(0, *options)
    callers.add(1)
    command = ["vs", "golden.json", "--target", "chat", "--repeat", "100", "--out", "run", "--format", "none"]
    producer = launch(command, cwd=tmp_path, env=clean_environment(EVALQ_BROKER=server.url), start_new_session=True)
    in_flight = 0
    for victim in (first, second):
        in_flight += kill_in_flight(server, callers, victim, 15)
        callers.add(0, *options)
        agent.most += 100
    wait_until(lambda: served(agent) >= agent.most, "half is done")
    os.killpg(producer.pid, signal.SIGKILL)
    producer.wait()
    agent.most = 0
    done = evalq("resume", "run", "--format", "none", cwd=tmp_path, EVALQ_BROKER=server.url)
    assert done.returncode == 0, done.stderr
    lines = outputs(tmp_path / "run")
    assert Counter((line["case"], line["repeat"]) for line in lines) == Counter(
        (c, r) for c in CASES for r in range(100)
    )
    paid_again = sum(agent.calls.values()) - 600
    assert paid_again <= in_flight
    replays(tmp_path, tmp_path / "run")


def kill_in_flight(server: Server, callers: Fleet, victim: subprocess.Popen[bytes], least: int) -> int:
    """SIGKILL to a process that calls when it has ``least`` calls in flight; returns how many it had."""
    killed = 0

    def found() -> int:
        nonlocal killed
        with callers.stopped(victim):
            server.client.ping()  # whatever it sent before it stood still is done behind this
            held = [name for key in server.client.scan_iter("evalq:sweep:*:held") for name in server.client.hvals(key)]
            in_flight = sum(f"-{victim.pid}-".encode() in name for name in held)
            if in_flight >= least:
                killed = in_flight
                callers.kill(victim)
        return killed

    wait_until(found, f"{least} calls are in flight")
    return killed


SLOW_TO_RECORD = (
    "from evalq.workers.callers import in_flight, main; in_flight._GATHER_SECONDS = 0.5; raise SystemExit(main.main())"
)


def test_what_the_ledger_offers_before_it_knows_of_a_spent_quota_is_not_called(
    tmp_path: Path, server: Server, callers: Fleet, service: tuple[Agent, str]
) -> None:
    """Between a fatal answer and its record, half a second here, the process takes no call of that sweep."""
    agent, url = service
    agent.quota = 12
    write_golden(tmp_path / "golden.json", CASES)
    write_targets(tmp_path, url, max_concurrency=4)
    callers.add(1)
    settings = {"EVALQ_BROKER": server.url, "EVALQ_TARGETS": str(tmp_path / "targets.yaml"), "EVALQ_CALLS": "4"}
    process = subprocess.Popen([sys.executable, "-c", SLOW_TO_RECORD], cwd=tmp_path, env=clean_environment(**settings))
    try:
        done = sweep(tmp_path, "--repeat", "20", "--out", "run", EVALQ_BROKER=server.url)
        assert done.returncode == 3
        assert len(outputs(tmp_path / "run")) == 12
        assert len(agent.log) <= 12 + 4, "those in flight when the first refusal was read"
        agent.quota = 0
        done = evalq("resume", "run", "--format", "none", cwd=tmp_path, EVALQ_BROKER=server.url)
        assert done.returncode == 0, done.stderr
        assert served(agent) == len(outputs(tmp_path / "run")) == 120
    finally:
        process.terminate()
        process.wait()
    replays(tmp_path, tmp_path / "run")


def test_a_server_that_loses_everything_costs_no_more_than_what_was_under_way(
    tmp_path: Path, server: Server, callers: Fleet, service: tuple[Agent, str]
) -> None:
    """The ledger's server is killed and comes back empty: recorded outputs stay, the rest is called."""
    agent, url = service
    agent.most = 150
    write_golden(tmp_path / "golden.json", CASES)
    write_targets(tmp_path, url)
    callers.add(1, "--calls", "10", "--targets", "targets.yaml")
    command = ["vs", "golden.json", "--target", "chat", "--repeat", "60", "--out", "run", "--format", "none"]
    producer = launch(command, cwd=tmp_path, env=clean_environment(EVALQ_BROKER=server.url))
    calls = tmp_path / "run" / "calls.jsonl"

    def safe() -> int:
        return calls.read_bytes().count(b'{"call":') if calls.exists() else 0

    wait_until(lambda: safe() > 100, "some are safe in the folder")
    server.kill()
    agent.most = 0
    wait_until(lambda: agent.at_once == 0, "what was in flight has ended")
    under_way = sum(agent.calls.values()) - safe()
    server.start()
    assert producer.wait(timeout=PATIENCE) == 0
    lines = outputs(tmp_path / "run")
    assert len({(line["case"], line["repeat"]) for line in lines}) == len(lines) == 360
    # Recorded by the server and not collected yet, or made when nobody could record it; and what was taken already.
    assert sum(agent.calls.values()) <= 360 + under_way + 10
    replays(tmp_path, tmp_path / "run")


def test_a_cache_pays_for_new_repeats_only(tmp_path: Path, service: tuple[Agent, str]) -> None:
    """Raising N calls the rest; another model is another agent, whose answers are not in it."""
    agent, url = service
    write_golden(tmp_path / "golden.json", CASES)
    write_targets(tmp_path, url)
    assert sweep(tmp_path, "--repeat", "5", "--cache", "c/calls.sqlite", "--out", "five").returncode == 0
    assert sum(agent.calls.values()) == 30
    dry = sweep(tmp_path, "--repeat", "8", "--cache", "c/calls.sqlite", "--dry-run")
    assert "6 cases x 8 = 48 calls, 30 of them cached" in dry.stdout
    assert sweep(tmp_path, "--repeat", "8", "--cache", "c/calls.sqlite", "--out", "eight").returncode == 0
    assert sum(agent.calls.values()) == 48
    five = {(line["case"], line["repeat"]): line for line in outputs(tmp_path / "five")}
    eight = {(line["case"], line["repeat"]): line for line in outputs(tmp_path / "eight")}
    assert five.items() <= eight.items()
    replays(tmp_path, tmp_path / "eight")
    write_targets(tmp_path, url, model="another")
    assert sweep(tmp_path, "--repeat", "5", "--cache", "c/calls.sqlite", "--out", "other").returncode == 0
    assert sum(agent.calls.values()) == 78


def test_budgets_stop_the_calls_clean_and_balanced(tmp_path: Path, service: tuple[Agent, str]) -> None:
    """So many calls, or so much money; every case has its share, and the report is of what there is."""
    agent, url = service
    write_golden(tmp_path / "golden.json", CASES)
    write_targets(tmp_path, url, price={"prompt_per_million": 1000, "completion_per_million": 3000})
    done = sweep(tmp_path, "--repeat", "50", "--max-calls", "40", "--out", "calls")
    assert done.returncode == 0, done.stderr
    said = "the budget is spent: 40 of 300 calls are recorded; to make the others, raise it: "
    assert f"{said}evalq resume calls --targets targets.yaml --max-calls N" in done.stderr
    assert sum(agent.calls.values()) == 40
    counts = Counter(line["case"] for line in outputs(tmp_path / "calls"))
    assert set(counts.values()) == {6, 7}
    replays(tmp_path, tmp_path / "calls")
    here = ("--targets", "targets.yaml", "--format", "none")
    done = evalq("resume", "calls", "--max-calls", "100", *here, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert sum(agent.calls.values()) == len(outputs(tmp_path / "calls")) == 100, "nothing is paid twice"
    shutil.rmtree(tmp_path / "calls-replay")
    replays(tmp_path, tmp_path / "calls")
    done = evalq("resume", "calls", "--max-calls", "300", *here, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert sum(agent.calls.values()) == len(outputs(tmp_path / "calls")) == 300
    assert "this run is done" in evalq("resume", "calls", "--max-calls", "400", *here, cwd=tmp_path).stderr
    agent.calls.clear()
    done = sweep(tmp_path, "--repeat", "50", "--max-cost", "2", "--out", "cost")  # a call costs .04
    assert done.returncode == 0, done.stderr
    assert sum(agent.calls.values()) == 50
    assert info(tmp_path / "cost")["calls"]["cost"] == pytest.approx(2.0)
    write_targets(tmp_path, url)
    done = sweep(tmp_path, "--max-cost", "2", "--out", "free")
    assert done.returncode == 2
    assert "target 'chat' has no price" in done.stderr
    messages = {"kind": "command", "argv": ["cat"], "price": {"prompt_per_million": 1}}
    (tmp_path / "targets.yaml").write_text(json.dumps({"targets": {"chat": messages}}))
    done = sweep(tmp_path, "--repeat", "9", "--max-cost", "2", "--out", "untold")
    assert "the target reports no tokens, so its cost is not known: 10 of 54 calls" in done.stderr


def test_decided_cases_are_called_no_more(
    tmp_path: Path, server: Server, callers: Fleet, service: tuple[Agent, str]
) -> None:
    """Clear cases stop early, one at the threshold is called to the end; a kill in between changes no verdict."""
    agent, url = service
    agent.latency, agent.most = 0.05, 24
    cases = {"clear": {"share": 1.0}, "varied": {"share": 0.1}, "doubtful": {"share": 0.7}}
    write_golden(tmp_path / "golden.json", cases)
    write_targets(tmp_path, url)
    callers.add(1, "--calls", "4", "--targets", "targets.yaml")
    args = ("vs", "golden.json", "--target", "chat", "--repeat", "300", "--stop", "when-decided", "--out", "run")
    producer = launch(args, cwd=tmp_path, env=clean_environment(EVALQ_BROKER=server.url))
    wait_until(lambda: sum(agent.calls.values()) > 20, "calls are made")
    producer.kill()
    producer.wait()
    driver = driver_of(server, tmp_path / "run")
    resumed = start_evalq("resume", "run", cwd=tmp_path, EVALQ_BROKER=server.url)
    wait_until(lambda: driver_of(server, tmp_path / "run") != driver, "it is driven again")
    agent.most = 0
    _, said = resumed.communicate(timeout=PATIENCE)
    assert resumed.returncode == 0, said
    counts = Counter(line["case"] for line in outputs(tmp_path / "run"))
    report = json.loads((tmp_path / "run" / "report.json").read_text())
    stopping = report["results"]["stopping"]
    assert stopping["calls_planned"] == 900
    assert stopping["calls_made"] == counts.total() < 800, "what is decided is called no more"
    verdicts = {entry["case"]: entry["verdict"] for entry in report["results"]["mode_collapse"]}
    assert (verdicts["clear"], verdicts["varied"]) == ("collapsed", "diverse")
    assert counts["clear"] >= 13, "nothing is decided before 13 of 13"
    replays(tmp_path, tmp_path / "run")
    for wrong in ("--detach", "--inline"):
        assert sweep(tmp_path, "--stop", "when-decided", "--out", "x", wrong, EVALQ_BROKER=server.url).returncode == 2


def driver_of(server: Server, folder: Path) -> bytes:
    """Who drives the sweep in ``folder``, as the ledger knows."""
    return bytes(server.client.hget(SweepKeys.of(info(folder)["run"]).meta, "driver") or b"")


def test_retried_errors_keep_every_attempt(
    tmp_path: Path, server: Server, callers: Fleet, service: tuple[Agent, str]
) -> None:
    """What failed is called again, what succeeded is not, and all attempts stay in outputs.jsonl."""
    agent, url = service
    write_golden(
        tmp_path / "golden.json",
        {"good": {"share": 1.0}, "bad": {"do": "raw", "status": 500, "body": "{}", "times": 9}},
    )
    write_targets(tmp_path, url)
    callers.add(1, "--calls", "10", "--targets", "targets.yaml")
    done = sweep(tmp_path, "--repeat", "3", "--out", "run", EVALQ_BROKER=server.url)
    assert done.returncode == 3
    assert "evalq retry run --errors" in done.stderr
    assert sum(agent.calls.values()) == 3 + 9
    done = evalq("retry", "run", "--errors", "--format", "none", cwd=tmp_path, EVALQ_BROKER=server.url)
    assert sum(agent.calls.values()) == 3 + 9 + 3, done.stderr
    assert done.returncode == 0, done.stderr
    bad = [line for line in outputs(tmp_path / "run") if line["case"] == "bad"]
    assert [[attempt.get("kind", "") for attempt in line["attempts"]] for line in bad] == [["server"] * 3 + [""]] * 3
    replays(tmp_path, tmp_path / "run")
    done = evalq("retry", "run", "--errors", cwd=tmp_path, EVALQ_BROKER=server.url)
    assert "nothing to retry" in done.stderr


def detached(folder: Path, server: Server, *args: str | Path) -> str:
    """A sweep of golden.json that is left to the fleet; returns its run."""
    done = sweep(folder, "--repeat", "10", "--suite", "night", "--detach", *args, EVALQ_BROKER=server.url)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_a_detached_sweep_is_called_and_evaluated_by_the_fleet(
    tmp_path: Path, server: Server, callers: Fleet, service: tuple[Agent, str]
) -> None:
    """Its report waits in the ledger, with its entry in the history; watching counts nothing twice."""
    agent, url = service
    write_golden(tmp_path / "golden.json", CASES)
    write_targets(tmp_path, url)
    callers.add(1, "--calls", "10", "--targets", "targets.yaml")
    run = detached(tmp_path, server, "--out", "run", "--tag", "by=cron")
    assert not (tmp_path / "run" / "outputs.jsonl").exists()
    reports = Reports(RunLedger(server.client, Settings()), Settings())
    report = wait_until(lambda: reports.report(run), "the report is in the ledger")
    assert sum(agent.calls.values()) == 60
    (entry,) = wait_until(
        lambda: History(server.client, Settings()).entries(HistoryKey("vs", "night", "chat")), "an entry"
    )
    assert (entry.run, entry.tags, entry.records["total"]) == (run, {"by": "cron"}, 60)
    cases = decode_cases(reports.cases(run) or b"", run)
    shown = evalq("report", run, "--format", "json", cwd=tmp_path, EVALQ_BROKER=server.url)
    assert json.loads(shown.stdout)["mode_collapse"] == json.loads(report)["results"]["mode_collapse"]
    assert "calls recorded  60" in evalq("status", "run", cwd=tmp_path, EVALQ_BROKER=server.url).stdout
    wait_until(lambda: not server.client.hlen("evalq:sweeps:left"), "nothing is left")
    done = evalq("watch", "run", "--format", "none", cwd=tmp_path, EVALQ_BROKER=server.url)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "run" / "report.json").read_bytes() == report
    assert sum(agent.calls.values()) == 60
    assert History(server.client, Settings()).entries(HistoryKey("vs", "night", "chat")) == [entry]
    found = cases_of(RunFolder.existing(tmp_path / "run"))
    for name in found.__struct_fields__:
        assert getattr(cases, name) == getattr(found, name), name
    assert cases == found
    assert found.usage is not None
    assert found.usage.outputs == 60
    with running_exporter(server.url, tmp_path) as exporter:
        assert exporter.value("evalq_records_committed_total", evaluator="vs", suite="night") == 60
    replays(tmp_path, tmp_path / "run")


def test_a_detached_sweep_is_taken_back_by_whoever_watches_it(
    tmp_path: Path, server: Server, callers: Fleet, service: tuple[Agent, str]
) -> None:
    """Before its calls are over, and after the fleet was killed in the middle: the same report in the end."""
    agent, url = service
    agent.most = 30
    write_golden(tmp_path / "golden.json", CASES)
    write_targets(tmp_path, url)
    options = ("--calls", "4", "--targets", "targets.yaml")
    first = callers.add(0, *options)
    callers.add(1)
    detached(tmp_path, server, "--out", "run")
    wait_until(lambda: served(agent) > 20, "a third is called")
    killed = kill_in_flight(server, callers, first, 2)
    callers.add(0, *options)
    watch = start_evalq("watch", "run", "--json", cwd=tmp_path, EVALQ_BROKER=server.url)
    assert watch.stdout is not None
    assert any('"event":"progress"' in line for line in watch.stdout), "it watches"
    agent.most = 0
    _, said = watch.communicate(timeout=PATIENCE)
    assert watch.returncode == 0, said
    assert not server.client.hlen("evalq:sweeps:left")
    assert sum(agent.calls.values()) <= 60 + killed
    replays(tmp_path, tmp_path / "run")


class Killed(Exception):
    """The end of a process."""


class Mortal(RunLedger):
    """A ledger that is spoken to by a process which dies after so many ``steps``."""

    steps = 0

    def step(self, script: str, run: str, *args: Any) -> Any:
        if not self.steps:
            raise Killed
        self.steps -= 1
        return super().step(script, run, *args)


def test_what_is_left_survives_the_death_of_the_worker_that_evaluates_it(
    tmp_path: Path, server: Server, service: tuple[Agent, str]
) -> None:
    """Killed between any two of its steps, another one goes on: a run that is there in part is completed."""
    _, url = service
    write_golden(tmp_path / "golden.json", CASES)
    write_targets(tmp_path, url)
    with running_fleet(server.url, tmp_path) as callers:
        callers.add(0, "--calls", "10", "--targets", "targets.yaml")
        run = detached(tmp_path, server, "--out", "run", "--chunk-size", "7")
        ledger, calls = RunLedger(server.client, Settings()), SweepLedger(server.client, Settings())
        left = UnattendedSweeps(calls, Settings())
        wait_until(lambda: left.over() == [run], "its calls are over")
    for step in range(1, 4):  # three tries are all it gets, and one more that ends well
        mortal = Mortal(server.client, Settings())
        mortal.steps = step
        with pytest.raises(Killed):
            left.evaluate(run, mortal)
        assert left.over() == [run]
    server.client.hdel(SweepKeys.of(run).left, "tries")
    assert left.evaluate(run, ledger)
    assert left.over() == []
    with running_fleet(server.url, tmp_path) as workers:
        workers.add(1)
        reports = Reports(ledger, Settings())
        report = wait_until(lambda: reports.report(run), "the report is in the ledger")
        done = evalq("watch", "run", "--format", "none", cwd=tmp_path, EVALQ_BROKER=server.url)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "run" / "report.json").read_bytes() == report


class Late(RunLedger):
    """A ledger in which somebody ends the sweep just before one of the steps that evaluate it."""

    before = ""
    end: Callable[[], object]

    def step(self, script: str, run: str, *args: Any) -> Any:
        if script == self.before:
            self.before = ""
            self.end()
        return super().step(script, run, *args)


@pytest.mark.parametrize("command", ["cancel", "pause"])
def test_what_is_ended_while_a_worker_begins_to_evaluate_it_has_no_report(
    tmp_path: Path, server: Server, service: tuple[Agent, str], command: str
) -> None:
    """Folder, calls and evaluation are told the same, whenever it comes; what was paused goes on and pays nothing."""
    agent, url = service
    write_golden(tmp_path / "golden.json", CASES)
    write_targets(tmp_path, url)
    folders = {name: tmp_path / f"run-{name}" for name in ("first", "open", "append", "supply")}
    with running_fleet(server.url, tmp_path) as fleet:
        fleet.add(0, "--calls", "10", "--targets", "targets.yaml")
        for before, folder in folders.items():
            ends_at(server, folder, command, before)
        fleet.add(1)
        wait_until(lambda: serves(server), "a worker could evaluate what it finds")
        for folder in folders.values() if command == "pause" else ():
            done = evalq("resume", folder.name, "--format", "none", cwd=tmp_path, EVALQ_BROKER=server.url)
            assert done.returncode == 0, done.stderr
            replays(tmp_path, folder)
    assert sum(agent.calls.values()) == 60 * len(folders)
    assert {(folder / "report.json").exists() for folder in folders.values()} == {command == "pause"}


def ends_at(server: Server, folder: Path, command: str, before: str) -> None:
    """A detached sweep that is ended just before that step of its evaluation, or before the first."""
    run = detached(folder.parent, server, "--out", folder.name)
    calls = SweepLedger(server.client, Settings())
    left, late = UnattendedSweeps(calls, Settings()), Late(server.client, Settings())
    wait_until(lambda: left.over() == [run], "its calls are over")

    def end() -> None:
        done = evalq(command, folder.name, cwd=folder.parent, EVALQ_BROKER=server.url)
        assert done.returncode == 0, done.stderr

    late.before, late.end = before, end
    if before == "first":
        end()
    assert not left.evaluate(run, late)
    state = {"cancel": "cancelled", "pause": "paused"}[command]
    assert info(folder)["state"] == state
    look = calls.poll(run)
    assert look is not None
    assert look.state == state
    assert server.client.hget(RunKeys.of(run).meta, "state") in (None, state.encode())
    assert left.over() == []


def test_the_exporter_counts_what_was_called(
    tmp_path: Path, server: Server, callers: Fleet, service: tuple[Agent, str]
) -> None:
    """Answers, failures by kind, tokens, cost and latencies of a target; quality by target."""
    _, url = service
    cases: dict[str, dict[str, Any]] = {"good": {"share": 1.0}, "bad": {"do": "said", "content": "none"}}
    write_golden(tmp_path / "golden.json", cases)
    write_targets(tmp_path, url, price={"prompt_per_million": 1000, "completion_per_million": 3000})
    callers.add(1, "--calls", "10", "--targets", "targets.yaml")
    done = sweep(tmp_path, "--repeat", "10", "--out", "run", "--suite", "live", EVALQ_BROKER=server.url)
    assert done.returncode == 0, done.stderr
    with running_exporter(server.url, tmp_path) as exporter:
        assert exporter.value("evalq_calls_total", target="chat", outcome="answered") == 10
        assert exporter.value("evalq_calls_total", target="chat", outcome="failed") == 10
        assert exporter.value("evalq_call_failures_total", target="chat", kind="bad_output") == 10
        assert exporter.value("evalq_call_tokens_total", target="chat", kind="prompt") == 200
        assert exporter.value("evalq_call_cost_total", target="chat") == pytest.approx(20 * 0.04)
        assert exporter.value("evalq_call_seconds_count", target="chat") == 20
        of_run = {"evaluator": "vs", "suite": "live", "target": "chat", "outcome": "errors"}
        assert exporter.value("evalq_last_run_records", **of_run) == 10


def test_pausing_stops_the_calls(tmp_path: Path, server: Server, callers: Fleet, service: tuple[Agent, str]) -> None:
    """`evalq pause` from elsewhere: nothing new is called, and resuming calls the rest once."""
    agent, url = service
    paused = False
    agent.ready = lambda: paused or sum(agent.calls.values()) <= 25
    run = tmp_path / "evalq-runs" / "run"
    write_golden(tmp_path / "golden.json", CASES)
    write_targets(tmp_path, url)
    callers.add(1, "--calls", "5", "--targets", "targets.yaml")
    command = [
        "vs",
        "golden.json",
        "--target",
        "chat",
        "--repeat",
        "40",
        "--out",
        "evalq-runs/run",
        "--format",
        "none",
    ]
    producer = launch(command, cwd=tmp_path, env=clean_environment(EVALQ_BROKER=server.url))
    wait_until(lambda: served(agent) > 15, "calls are made")
    assert evalq("pause", "evalq-runs/run", cwd=tmp_path, EVALQ_BROKER=server.url).returncode == 0
    paused = True
    assert producer.wait(timeout=PATIENCE) == 130
    wait_until(lambda: agent.at_once == 0, "calls in flight end")
    assert sum(agent.calls.values()) <= 25 + 5, "as many as were in flight"
    done = evalq("resume", "evalq-runs/run", "--format", "none", cwd=tmp_path, EVALQ_BROKER=server.url)
    assert done.returncode == 0, done.stderr
    assert sum(agent.calls.values()) == 240
    replays(tmp_path, run)
    assert list(server.client.scan_iter("evalq:sweep:*"))
    done = evalq("prune", "--older-than", "0", cwd=tmp_path, EVALQ_BROKER=server.url)
    assert done.returncode == 0, done.stderr
    assert not list(server.client.scan_iter("evalq:sweep:*"))
    assert not run.exists()


def test_a_suite_sweeps_live_agents(tmp_path: Path, service: tuple[Agent, str]) -> None:
    """`target` and `repeat` in a suite file; what does not belong there is reported by its key."""
    agent, url = service
    write_golden(tmp_path / "golden.json", CASES)
    write_targets(tmp_path, url)
    live = {"evaluator": "vs", "golden": ["golden.json"], "target": "chat", "repeat": 4}
    recorded = {"evaluator": "vs", "golden": ["golden.json"], "outputs": ["out/vs/outputs.jsonl"]}
    (tmp_path / "suite.yaml").write_text(json.dumps({"suite": "s", "runs": [live]}))
    done = evalq("run", "suite.yaml", "--targets", "targets.yaml", "--out", "out", "--format", "none", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert sum(agent.calls.values()) == 24
    replays(tmp_path, tmp_path / "out" / "vs")
    for wrong, said in (
        (live | {"repeat": 0}, "runs.0.repeat: Input should be greater than or equal to 1, got 0"),
        (live | {"stop": "soon"}, "runs.0.stop: Input should be 'when-decided'"),
        (recorded | {"repeat": 3}, "runs.0.repeat: goes with target only"),
        ({"evaluator": "selfcheck", "target": "chat"}, "runs.0.target: unknown key"),
    ):
        (tmp_path / "suite.yaml").write_text(json.dumps({"runs": [wrong]}))
        done = evalq("run", "suite.yaml", "--targets", "targets.yaml", cwd=tmp_path)
        assert (done.returncode, said in done.stderr) == (2, True), done.stderr


def test_wrong_requests_are_reported_before_anything_is_called(
    tmp_path: Path, server: Server, callers: Fleet, service: tuple[Agent, str]
) -> None:
    """A target nobody knows, outputs beside a target, a case without input, --inline, no targets file."""
    _, url = service
    write_golden(tmp_path / "golden.json", CASES)
    write_targets(tmp_path, url)
    (tmp_path / "mute.json").write_text(
        json.dumps({"test_cases": {"full_vs_tests": [{"id": "M", "agent": "02-theoretical-framework-architect"}]}})
    )
    callers.add(0, "--calls", "5", "--targets", "targets.yaml")
    messages = {
        (
            "golden.json",
            "--target",
            "dog",
            "--broker",
            server.url,
        ): "no calling process knows a target 'dog' (known: chat)",
        ("golden.json", "--target", "chat", "--outputs", "golden.json"): "give only one of them",
        ("mute.json", "--target", "chat", "--targets", "targets.yaml"): "test_cases.full_vs_tests[0].input: missing",
        ("golden.json", "--target", "chat", "--inline"): "live calls from here need a targets file",
        ("golden.json", "--target", "chat"): "live calls from here need a targets file: name yours with --targets FILE",
    }
    for args, said in messages.items():
        done = evalq("vs", *args, "--out", "run", cwd=tmp_path)
        assert done.returncode == 2, (args, done.stderr)
        assert said in done.stderr


def test_a_sweep_that_nobody_calls_for_is_seen(server: Server, tmp_path: Path, service: tuple[Agent, str]) -> None:
    """By the exporter, `status` and `doctor`, from anywhere, until a process calls its target."""
    agent, url = service
    seen = threading.Event()
    agent.ready = seen.is_set
    write_golden(tmp_path / "golden.json", CASES)
    write_targets(tmp_path, url)
    (tmp_path / "home").mkdir()
    run = start_evalq("vs", "golden.json", "--target", "chat", "--repeat", "20", "--broker", server.url, "--format",
                      "none", "--out", "run", cwd=tmp_path)  # fmt: skip
    place = ("--broker", server.url)
    with running_exporter(server.url, tmp_path) as exporter, running_fleet(server.url, tmp_path) as fleet:

        def shown(name: str) -> float | None:
            return exporter.value(name, target="chat")

        wait_until(lambda: shown("evalq_sweeps_uncalled") == 1, "the exporter sees that nobody calls")
        name = info(tmp_path / "run")["run"]
        doctor = evalq("doctor", *place, cwd=tmp_path / "home")
        assert (doctor.returncode, f"sweep {name} waits: no process of code" in doctor.stdout) == (3, True)
        assert f"waiting   {name}" in evalq("status", *place, cwd=tmp_path / "home").stdout
        assert "state     open\nfolder    elsewhere" in evalq("status", name, *place, cwd=tmp_path / "home").stdout
        fleet.add(0, "--calls", "4", "--targets", "targets.yaml")
        wait_until(lambda: shown("evalq_sweeps_uncalled") == 0 and shown("evalq_sweeps") == 1, "its calls are made")
        assert exporter.value("evalq_callers_alive") == 1
        seen.set()
        wait_until(lambda: shown("evalq_sweeps") == 0, "all calls are made")
        fleet.add(1)
        _, said = run.communicate(timeout=60)
        assert run.returncode == 0, said


@pytest.mark.parametrize(
    ("command", "state", "ends"), [("cancel", "cancelled", "was cancelled"), ("pause", "paused", "evalq resume run")]
)
def test_a_sweep_that_waits_for_callers_can_be_ended(
    server: Server, tmp_path: Path, command: str, state: str, ends: str
) -> None:
    """From anywhere: its producer does not wait on for somebody to call."""
    write_golden(tmp_path / "golden.json", CASES)
    run = start_evalq("vs", "golden.json", "--target", "chat", "--broker", server.url, "--out", "run", cwd=tmp_path)
    wait_until(lambda: server.client.hlen("evalq:sweeps"), "the sweep is open")
    (tmp_path / "home").mkdir()
    name, place = info(tmp_path / "run")["run"], ("--broker", server.url)
    done = evalq(command, name, *place, cwd=tmp_path / "home")
    assert done.returncode == 0
    assert done.stderr.startswith(f"{name}: {state}; its folder is elsewhere\n")
    _, said = run.communicate(timeout=30)
    assert ends in said
    assert run.returncode in (3, 130)
