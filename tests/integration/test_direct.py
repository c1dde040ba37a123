"""A small sweep is made by its command alone: no server, no second process, and exact under kills and budgets."""

from __future__ import annotations

import contextlib
import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.agents.server import Agent, running_agent
from tests.integration.harness import children_of, clean_environment, evalq, info, start_evalq, wait_until

CASES = 30


@pytest.fixture
def service() -> Iterator[tuple[Agent, str]]:
    """A server that says something else to each prompt."""
    with running_agent() as (agent, url):
        agent.answer = lambda prompt: f"You asked: {prompt}"
        yield agent, url


def write(folder: Path, url: str, cases: int = CASES, **more: Any) -> None:
    """Cases of which every third fails, and the target ``chat``."""
    listed = [
        {
            "id": f"c{n}",
            "input": f"question {n}",
            "checks": [{"contains": f"question {n}" if n % 3 else "no such text"}],
        }
        for n in range(cases)
    ]
    (folder / "cases.json").write_text(json.dumps({"cases": listed}))
    entry = {"kind": "openai", "base_url": url, "model": "m", **more}
    (folder / "targets.yaml").write_text(json.dumps({"targets": {"chat": entry}}))


CHECKS = ("checks", "cases.json", "--target", "chat", "--targets", "targets.yaml", "--quiet")


def run_code(code: str, folder: Path, *more: str) -> subprocess.CompletedProcess[str]:
    """Run Python that changes something of evalq and then calls its command."""
    words = [sys.executable, "-c", code, *CHECKS, "--out", "run", *more]
    return subprocess.run(
        words, cwd=folder, env=clean_environment(), capture_output=True, text=True, check=False, timeout=60
    )


def report(folder: Path) -> Any:
    """What a run's report says, without the run's name."""
    found = json.loads((folder / "report.json").read_bytes())
    return {key: value for key, value in found.items() if key not in ("run", "started")}


def outputs(folder: Path) -> list[Any]:
    """Cases, repeats and answers that a run recorded."""
    lines = map(json.loads, (folder / "outputs.jsonl").read_text().splitlines())
    return [(line["case"], line["repeat"], line.get("output")) for line in lines]


def test_nothing_is_started_and_the_report_is_that_of_a_server(service: tuple[Agent, str], tmp_path: Path) -> None:
    agent, url = service
    write(tmp_path, url)
    agent.latency = 0.3
    process = start_evalq(*CHECKS, "--out", "alone", cwd=tmp_path, PATH="")
    children: set[int] = set()
    while process.poll() is None:
        if agent.calls.total() and agent.calls.total() < CASES + 1:
            children |= {*children_of(process.pid)}
        time.sleep(0.02)
    # Evaluation happens in a fork of the command, after the calls: it starts no program.
    assert process.returncode == 0, process.communicate()
    agent.latency = 0.0
    assert len(children) <= (os.cpu_count() or 1)
    done = evalq(*CHECKS, "--out", "served", "--workers", "1", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert outputs(tmp_path / "alone") == outputs(tmp_path / "served")
    mine, theirs = report(tmp_path / "alone"), report(tmp_path / "served")
    for each in (mine, theirs):
        each.pop("inputs")
        each["results"].pop("took", None)
    assert mine["records"] == theirs["records"]
    assert mine["results"]["pass_rate"] == theirs["results"]["pass_rate"]


def test_no_library_of_a_server_is_imported(service: tuple[Agent, str], tmp_path: Path) -> None:
    _, url = service
    write(tmp_path, url, 5)
    code = (
        "import sys\nfrom evalq.producer.cli import main\nsys.argv = ['evalq', *sys.argv[1:]]\n"
        "try:\n    main()\nexcept SystemExit:\n    pass\n"
        "print(sorted({'redis', 'celery', 'kombu'} & {*sys.modules}), file=sys.stderr)"
    )
    done = run_code(code, tmp_path, "--format", "none")
    assert done.stderr.splitlines()[-1] == "[]", done.stderr
    assert (tmp_path / "run/report.json").is_file()


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT])
def test_a_run_that_was_stopped_goes_on_and_pays_again_only_for_calls_in_flight(
    number: int, service: tuple[Agent, str], tmp_path: Path
) -> None:
    agent, url = service
    write(tmp_path, url)
    plain = evalq(*CHECKS, "--repeat", "4", "--out", "plain", cwd=tmp_path)
    assert plain.returncode == 0, plain.stderr
    agent.latency, seed = 0.05, random.randrange(1 << 32)
    print("seed", seed)  # noqa: T201 - to repeat a failure
    chosen = random.Random(seed)
    total, rounds = 4 * CASES, 0
    before = agent.calls.total()
    words: tuple[str, ...] = (*CHECKS, "--repeat", "4", "--out", "run")
    while True:
        process = start_evalq(*words, cwd=tmp_path, EVALQ_CALLS="7")
        rounds += 1
        if rounds <= 3:
            goal = agent.calls.total() + chosen.randrange(1, 25)
            wait_until(lambda: agent.calls.total() >= goal or process.poll() is not None, "calls")  # noqa: B023 - before the next round
            os.killpg(process.pid, number)
        _, said = process.communicate()
        if (tmp_path / "run/report.json").is_file():
            break
        assert rounds < 10, said
        if rounds == 1:
            shown = json.loads(evalq("status", "run", "--json", cwd=tmp_path).stdout)["calls"]
            assert shown["planned"] == total
            assert 0 <= shown["recorded"] <= agent.calls.total() - before
        words = ("resume", "run", "--quiet")
    paid = agent.calls.total() - before
    calls = info(tmp_path / "run")["calls"]
    assert total <= paid <= total + 7 * (rounds - 1)
    assert (calls["recorded"], calls["ended"]) == (total, "done")
    # A call that was begun, and killed before it was sent, counts as well.
    assert paid <= calls["attempts"] <= total + 7 * (rounds - 1)
    assert calls["attempts"] == total + calls["lost"]
    assert outputs(tmp_path / "run") == outputs(tmp_path / "plain")
    assert report(tmp_path / "run")["results"]["pass_rate"] == report(tmp_path / "plain")["results"]["pass_rate"]


def test_a_budget_of_calls_is_kept_over_a_kill_and_a_larger_one_makes_the_rest(
    service: tuple[Agent, str], tmp_path: Path
) -> None:
    agent, url = service
    write(tmp_path, url)
    agent.latency = 0.05
    process = start_evalq(*CHECKS, "--max-calls", "20", "--calls", "3", "--out", "run", cwd=tmp_path)
    wait_until(lambda: agent.calls.total() >= 8, "calls")
    os.killpg(process.pid, signal.SIGKILL)
    process.communicate()
    done = evalq("resume", "run", cwd=tmp_path)
    assert agent.calls.total() <= 20
    calls = info(tmp_path / "run")["calls"]
    assert (calls["ended"], calls["attempts"]) == ("spent", 20), done.stderr
    assert calls["recorded"] == 20 - calls["lost"]
    done = evalq("resume", "run", "--max-calls", "100", cwd=tmp_path)
    assert info(tmp_path / "run")["calls"]["recorded"] == CASES, done.stderr


def test_a_budget_of_money_asks_one_call_first_and_stops_in_time(service: tuple[Agent, str], tmp_path: Path) -> None:
    _, url = service
    write(tmp_path, url, price={"prompt_per_million": 1_000_000, "completion_per_million": 1_000_000})
    done = evalq(*CHECKS, "--max-cost", "60", "--out", "run", cwd=tmp_path)
    calls = info(tmp_path / "run")["calls"]
    assert calls["ended"] == "spent", done.stderr
    mean = calls["cost"] / calls["recorded"]
    assert 60 - mean - 1e-6 <= calls["cost"] <= 60 + mean


def test_a_key_that_is_refused_ends_the_run_after_one_call(service: tuple[Agent, str], tmp_path: Path) -> None:
    agent, url = service
    write(tmp_path, url)
    listed = [
        {"id": f"c{n}", "input": json.dumps({"do": "raw", "status": 401, "body": "{}"}), "checks": ["not-refusal"]}
        for n in range(30)
    ]
    (tmp_path / "cases.json").write_text(json.dumps({"cases": listed}))
    # On a busy machine a reply may take longer than the first call goes alone.
    code = (
        "import sys, evalq.workers.callers.call_loop as loop; loop._ALONE_SECONDS = 60.0; "
        "from evalq.producer.cli import main; sys.argv = ['evalq', *sys.argv[1:]]; sys.exit(main())"
    )
    done = run_code(code, tmp_path, "--calls", "5")
    assert done.returncode == 3, done.stderr
    assert "api_key_env" in done.stderr
    assert "resume" in done.stderr
    assert agent.calls.total() == 1


def test_a_first_connection_that_is_refused_ends_the_command_at_once(tmp_path: Path) -> None:
    write(tmp_path, "http://127.0.0.1:9/v1")
    began = time.monotonic()
    done = evalq(*CHECKS, "--out", "run", cwd=tmp_path)
    assert done.returncode == 3
    for words in ("cannot connect", "http://127.0.0.1:9/v1", "resume"):
        assert words in done.stderr
    assert time.monotonic() - began < 30
    calls = info(tmp_path / "run").get("calls")
    assert calls is None


def test_a_program_that_is_not_there_ends_the_command_at_once(tmp_path: Path) -> None:
    write(tmp_path, "http://127.0.0.1:9/v1")
    (tmp_path / "targets.yaml").write_text(
        json.dumps({"targets": {"chat": {"kind": "command", "argv": ["./no-such"]}}})
    )
    done = evalq(*CHECKS, "--out", "run", cwd=tmp_path)
    assert done.returncode in (2, 3)
    assert "cannot be started" in done.stderr or "no-such" in done.stderr


def test_a_target_that_leaves_and_comes_back_costs_no_case(service: tuple[Agent, str], tmp_path: Path) -> None:
    agent, url = service
    write(tmp_path, url)
    agent.latency = 0.02
    gone = {"from": 10, "cut": 12}
    agent.dead = lambda: agent.calls.total() >= gone["from"] and agent.cut < gone["cut"]
    done = evalq(*CHECKS, "--calls", "4", "--out", "run", cwd=tmp_path)
    calls = info(tmp_path / "run")["calls"]
    assert (calls["recorded"], calls["errors"]) == (CASES, 0), done.stderr


def test_decided_cases_are_asked_no_more(service: tuple[Agent, str], tmp_path: Path) -> None:
    agent, url = service
    write(tmp_path, url, 6)
    words = ("--repeat", "60", "--stop", "when-decided", "--calls", "4")
    listed = [
        {
            "id": f"c{n}",
            "input": f"question {n}",
            "thresholds": {"pass-rate": 0.5},
            "checks": [{"contains": "question"}],
        }
        for n in range(6)
    ]
    (tmp_path / "cases.json").write_text(json.dumps({"cases": listed}))
    done = evalq(*CHECKS, *words, "--out", "run", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert info(tmp_path / "run")["calls"]["ended"] == "done"
    assert agent.calls.total() < 6 * 60


def test_a_cache_is_asked_first(service: tuple[Agent, str], tmp_path: Path) -> None:
    agent, url = service
    write(tmp_path, url)
    first = evalq(*CHECKS, "--cache", "cache.db", "--out", "one", cwd=tmp_path)
    assert first.returncode == 0, first.stderr
    paid = agent.calls.total()
    evalq(*CHECKS, "--cache", "cache.db", "--out", "two", cwd=tmp_path)
    evalq(*CHECKS, "--reuse", "one", "--out", "three", cwd=tmp_path)
    assert agent.calls.total() == paid == CASES
    assert outputs(tmp_path / "one") == outputs(tmp_path / "two") == outputs(tmp_path / "three")


def test_a_judge_is_asked_by_the_command_alone(service: tuple[Agent, str], tmp_path: Path) -> None:
    agent, url = service
    write(tmp_path, url, 4)
    with running_agent() as (judge, where):
        judge.judges = True
        _judged(agent, where, tmp_path)


def _judged(agent: Agent, where: str, tmp_path: Path) -> None:
    targets = json.loads((tmp_path / "targets.yaml").read_text())
    targets["targets"]["grader"] = {**targets["targets"]["chat"], "base_url": where}
    (tmp_path / "targets.yaml").write_text(json.dumps(targets))
    listed = [{"id": f"c{n}", "input": f"question {n}", "checks": [{"rubric": "is polite"}]} for n in range(4)]
    (tmp_path / "cases.json").write_text(json.dumps({"cases": listed}))
    done = evalq(*CHECKS, "--judge", "grader", "--out", "run", cwd=tmp_path, PATH="")
    assert done.returncode in (0, 1), done.stderr
    assert (tmp_path / "run/judged.jsonl").is_file()
    again = evalq("checks", "cases.json", "--outputs", "run/outputs.jsonl", "--judge", "grader", "--targets",
                  "targets.yaml", "--out", "again", "--quiet", cwd=tmp_path, PATH="")  # fmt: skip
    assert again.returncode == done.returncode, again.stderr


def test_a_full_disk_ends_it_and_what_was_paid_is_counted(service: tuple[Agent, str], tmp_path: Path) -> None:
    agent, url = service
    write(tmp_path, url)
    agent.latency = 0.05
    code = (
        "import errno, os, sys\nfrom evalq.producer.folder import files\nfrom evalq.producer.cli import main\n"
        "append, count = files.AppendedFile.append, [0]\n"
        "def full(self, data, *, sync=True):\n"
        "    count[0] += sync\n"
        "    if count[0] > 6 and sync and b'\"case\"' in data: raise OSError(errno.ENOSPC, 'No space left on device')\n"
        "    return append(self, data, sync=sync)\n"
        "files.AppendedFile.append = full\nsys.argv = ['evalq', *sys.argv[1:]]\nsys.exit(main())"
    )
    done = run_code(code, tmp_path, "--calls", "3")
    assert done.returncode == 3, done.stderr
    assert "No space left" in done.stderr
    with contextlib.suppress(OSError):
        assert not (tmp_path / "run/report.json").exists()
    paid = agent.calls.total()
    done = evalq("resume", "run", "--quiet", cwd=tmp_path)
    calls = info(tmp_path / "run")["calls"]
    assert (calls["recorded"], calls["ended"]) == (CASES, "done"), done.stderr
    # What was begun and cut off before it was sent counts as lost, too.
    assert agent.calls.total() <= calls["attempts"] <= agent.calls.total() + 3
    assert calls["attempts"] - calls["lost"] == CASES
    assert paid <= calls["attempts"]


def test_a_target_that_never_answers_gives_errors_and_an_end(service: tuple[Agent, str], tmp_path: Path) -> None:
    agent, url = service
    write(tmp_path, url, 3, timeout_seconds=0.3, retries={"timeout": {"times": 0}})
    agent.ready = lambda: False
    done = evalq(*CHECKS, "--out", "run", cwd=tmp_path)
    assert done.returncode == 3, done.stderr
    assert "3 calls were never answered (3 timeout)" in done.stderr


def test_a_disk_that_takes_no_note_ends_it_before_a_call_is_paid(service: tuple[Agent, str], tmp_path: Path) -> None:
    agent, url = service
    write(tmp_path, url)
    code = (
        "import errno, sys\nfrom evalq.producer.folder import files\nfrom evalq.producer.cli import main\n"
        "append = files.AppendedFile.append\n"
        "def full(self, data, *, sync=True):\n"
        "    if data.startswith(b'{\"begun\":') and not data.startswith(b'{\"begun\":0'):\n"
        "        raise OSError(errno.ENOSPC, 'No space left on device')\n"
        "    return append(self, data, sync=sync)\n"
        "files.AppendedFile.append = full\nsys.argv = ['evalq', *sys.argv[1:]]\nsys.exit(main())"
    )
    done = run_code(code, tmp_path)
    assert (done.returncode, "No space left" in done.stderr) == (3, True), done.stderr
    assert agent.calls.total() == 0


@pytest.mark.parametrize("most", [22, 25, 31])
def test_retries_that_wait_count_against_the_budget(most: int, service: tuple[Agent, str], tmp_path: Path) -> None:
    agent, url = service
    write(tmp_path, url)
    order = {"do": "raw", "status": 500, "body": "{}"}
    listed = [{"id": f"c{n}", "input": json.dumps(order | {"n": n}), "checks": ["not-refusal"]} for n in range(20)]
    (tmp_path / "cases.json").write_text(json.dumps({"cases": listed}))
    evalq(*CHECKS, "--max-calls", str(most), "--out", "run", cwd=tmp_path)
    assert agent.calls.total() == most
    assert info(tmp_path / "run")["calls"]["attempts"] == most
