"""Judges of live and recorded outputs: asked and paid once, recorded, resumed, replayed to the byte."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.agents.server import Agent, marker_in, running_agent
from tests.integration.harness import HAZARDS, Server, evalq, info, running_fleet, start_evalq, wait_until
from tests.integration.midway import killed_with_all

CASES = """
defaults:
  checks:
    - {rubric: The answer is polite., votes: 3}
    - {prefer: "Go away, {{id}}.", weight: 0}
cases:
  - {id: one, input: Say hello to one.}
  - {id: two, input: Say hello to two.}
  - {id: three, input: Say hello to three., checks: [{score: How warm it is., from: 1, to: 10, threshold: 6}]}
"""
REPEAT = 2
OUTPUTS = 3 * REPEAT
VERDICTS = OUTPUTS * (3 + 2) + REPEAT
"""Three votes and two orders for each output, and a score for those of one case."""


def judge(prompt: str) -> str:
    """A polite agent's answers, and what a judge with a bias for what it sees first says of them."""
    if "You judge an answer" in prompt:
        return json.dumps({"marker": marker_in(prompt), "reason": "it greets", "pass": "\nHello" in prompt})
    if "You rate an answer" in prompt:
        return f'```json\n{{"score": 8, "reason": "warm", "marker": "{marker_in(prompt)}"}}\n```'
    if "Two programs were asked" in prompt:
        return json.dumps({"marker": marker_in(prompt), "better": "A"})
    return json.dumps(f"Hello, {prompt.rsplit(' ', 1)[-1]}")


@pytest.fixture
def service(tmp_path: Path) -> Iterator[Agent]:
    """A server that is agent and judge, the cases, and a targets file that has it under both names."""
    with running_agent() as (agent, url):
        agent.answer = judge
        one = {"kind": "openai", "base_url": url, "model": "m", "output": "json", "retries": {"server": {"times": 0}}}
        priced = {**one, "model": "j", "price": {"prompt_per_million": 1, "completion_per_million": 2}}
        (tmp_path / "targets.yaml").write_text(json.dumps({"targets": {"chat": one, "grader": priced}}))
        (tmp_path / "cases.yaml").write_text(CASES)
        yield agent


LIVE = ("checks", "cases.yaml", "--target", "chat", "--judge", "grader", "--repeat", str(REPEAT), "--targets",
        "targets.yaml", "--format", "none", "--out", "run")  # fmt: skip


def asked(agent: Agent, model: str = "j") -> int:
    """How many calls came to the judge, or the agent."""
    return sum(request["body"]["model"] == model for request in agent.requests)


def report(folder: Path) -> dict[str, Any]:
    """report.json."""
    found: dict[str, Any] = json.loads((folder / "report.json").read_text())
    return found


def recorded(folder: Path) -> int:
    """Judgements in the run folder's call logs."""
    logs = (path.read_text() for path in folder.glob("further/*/calls.jsonl"))
    return sum(line.startswith('{"call"') for log in logs for line in log.splitlines())


def held(agent: Agent, folder: Path, enough: int) -> bool:
    """Four calls in flight that get no answer, as more than ``enough`` came, and all that was answered is recorded."""
    return agent.at_once == 4 and recorded(folder) == asked(agent) - 4 > enough - 4


def replayed(folder: Path, run: str = "run", **environment: str) -> None:
    """The recorded judgements give the report again, in this process, to the byte; nobody is asked."""
    done = evalq("checks", "cases.yaml", "--outputs", f"{run}/judged.jsonl", "--inline", "--format", "none", "--out",
                 f"{run}-again", cwd=folder, **environment)  # type: ignore[arg-type]  # fmt: skip  # no key is `seconds`
    assert done.returncode == 0, done.stderr
    for name in ("report.json", "records.jsonl"):
        assert (folder / run / name).read_bytes() == (folder / f"{run}-again" / name).read_bytes()


def test_a_live_agent_is_judged_and_replayed(tmp_path: Path, service: Agent) -> None:
    """Both stages in one command; the judge's cost is not the agent's; recorded outputs are judged alike."""
    done = evalq(*LIVE, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert (asked(service, "m"), asked(service)) == (OUTPUTS, VERDICTS)
    results = report(tmp_path / "run")["results"]
    assert results["outputs"] == {"total": OUTPUTS, "passed": OUTPUTS, "failed": 0, "errors": 0}
    by_check = {entry["check"]: entry["outputs"] for entry in results["by_check"]}
    assert by_check["prefer"] == {"passed": 0, "failed": OUTPUTS, "errors": 0}  # biased: a tie each time
    (one,) = results["judges"]
    assert one["votes"] == {"asked": VERDICTS, "read": VERDICTS, "unreadable": 0, "failed": 0, "lost": 0}
    assert (one["cost"]["count"], results["cost"]["count"]) == (VERDICTS, 0)
    assert not (tmp_path / "run" / "further").exists()
    replayed(tmp_path)
    more = evalq("extend", "run", "--repeat", str(REPEAT + 1), "--targets", "targets.yaml", "--format", "none", "--out",
                 "more", cwd=tmp_path)  # fmt: skip
    assert more.returncode == 0, more.stderr
    added = (OUTPUTS // REPEAT, VERDICTS // REPEAT)
    assert (asked(service, "m"), asked(service)) == (OUTPUTS + added[0], VERDICTS + added[1])
    assert report(tmp_path / "more")["results"]["judges"][0]["votes"]["read"] == VERDICTS + added[1]
    replayed(tmp_path, "more")
    again = evalq("checks", "cases.yaml", "--outputs", "run/outputs.jsonl", "--judge", "grader", "--targets",
                  "targets.yaml", "--format", "none", "--out", "later", cwd=tmp_path)  # fmt: skip
    assert again.returncode == 0, again.stderr
    assert (asked(service, "m"), asked(service)) == (OUTPUTS + added[0], 2 * VERDICTS + added[1])
    message = report(tmp_path / "later")["results"]
    assert message["outputs"] == results["outputs"]
    replayed(tmp_path, "later")


def test_a_killed_judging_pays_again_for_no_more_than_was_in_flight(tmp_path: Path, service: Agent) -> None:
    """Killed in its second stage; resumed, the agent is asked nothing, and the judge at most what was in flight."""
    enough = VERDICTS // 2
    service.ready = lambda: asked(service) <= enough
    running = start_evalq(*LIVE, "--calls", "4", cwd=tmp_path)
    wait_until(lambda: held(service, tmp_path / "run", enough), "judges are asked")
    killed_with_all(running)
    service.ready = lambda: True
    assert info(tmp_path / "run")["state"] == "calling"
    before, targets = asked(service), (tmp_path / "targets.yaml").read_text()
    (tmp_path / "targets.yaml").write_text(targets.replace('"model": "j"', '"model": "j", "options": {"seed": 1}'))
    resume = ("resume", "run", "--targets", "targets.yaml", "--format", "none")
    refused = evalq(*resume, cwd=tmp_path)
    message = "'grader' has other settings than when it gave"
    assert (refused.returncode, message in refused.stderr, "(options.seed: not set then, 1 now)" in refused.stderr) == (
        2,
        True,
        True,
    )
    assert (asked(service), info(tmp_path / "run")["state"]) == (before, "calling")
    (tmp_path / "targets.yaml").write_text(targets)
    done = evalq(*resume, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert asked(service, "m") == OUTPUTS
    assert VERDICTS <= asked(service) <= VERDICTS + 4
    replayed(tmp_path)


@pytest.mark.parametrize("moment", ["first stage", "evaluation"])
def test_a_judged_sweep_is_killed_anywhere(tmp_path: Path, service: Agent, moment: str) -> None:
    """In its first stage, and while it is evaluated: nothing that is recorded is paid again."""
    first, gate = moment == "first stage", tmp_path / "gate"
    patient = {"PYTHONPATH": HAZARDS, "EVALQ_CHECKS": "patient=evalq_hazards:patient"}
    (tmp_path / "cases.yaml").write_text(CASES.replace("checks:", f"checks:\n    - {{patient: {gate}, weight: 0}}", 1))
    gate.touch()
    if first:
        service.ready = lambda: asked(service, "m") < 4
    running = start_evalq(*LIVE, "--calls", "2", cwd=tmp_path, **patient)
    if first:
        wait_until(lambda: service.at_once == 2 and asked(service, "m") >= 4, "calls are in flight")
    else:
        wait_until(lambda: (tmp_path / "run" / "judged.jsonl").exists(), "its judgements are joined")
    killed_with_all(running)
    service.ready = lambda: True
    before = asked(service, "m"), asked(service)
    gate.unlink()
    done = evalq("resume", "run", "--targets", "targets.yaml", "--format", "none", cwd=tmp_path, **patient)  # type: ignore[arg-type]  # no key is `seconds`
    assert done.returncode == 0, done.stderr
    after = asked(service, "m"), asked(service)
    if first:
        assert (before[1], after[1]) == (0, VERDICTS)
        assert after[0] <= OUTPUTS + before[0]
    else:
        assert before == after == (OUTPUTS, VERDICTS)
    replayed(tmp_path, **patient)


def test_what_a_judge_does_not_say_is_no_score_and_can_be_asked_again(tmp_path: Path, service: Agent) -> None:
    """Failed calls and replies that are no verdict are errors by name; a retry asks those alone that failed."""
    garbage, fails = iter(["I would pass it.", '{"pass": "yes"}', "[]"]), iter(range(5))

    def flaky(prompt: str) -> str:
        if "You judge an answer" in prompt and "three" in prompt:
            return next(garbage, None) or judge(prompt)
        return judge(prompt)

    service.answer = flaky
    broken = "\n      - {rubric: Fails., votes: 5}"
    (tmp_path / "cases.yaml").write_text(
        CASES.replace("votes: 3}", "votes: 1}").replace("cases:", "cases:") + broken * 0
    )
    service.dead = lambda: asked(service) >= 14 and next(fails, None) is not None
    done = evalq(*LIVE, "--calls", "1", "--repeat", "4", cwd=tmp_path)
    lost = 5
    assert (done.returncode, f"{lost} call{'s were' if lost > 1 else ' was'} never answered" in done.stderr) == (
        3,
        True,
    ), done.stderr
    results = report(tmp_path / "run")["results"]
    (one,) = results["judges"]
    votes = 12 * 3 + 4
    assert one["votes"] == {"asked": votes, "read": votes - lost - 3, "unreadable": 3, "failed": lost, "lost": lost + 3}
    assert results["outputs"]["errors"] > 0
    assert results["outputs"]["failed"] == 0
    replayed(tmp_path)
    before, targets = asked(service), (tmp_path / "targets.yaml").read_text()
    (tmp_path / "targets.yaml").write_text(targets.replace('"j"', '"k"'))
    refused = evalq("retry", "run", "--errors", "--targets", "targets.yaml", cwd=tmp_path)
    assert (refused.returncode, 'replies (model: "j" then, "k" now)' in refused.stderr) == (2, True), refused.stderr
    assert (asked(service), info(tmp_path / "run")["state"]) == (before, "done")
    (tmp_path / "targets.yaml").write_text(targets)
    done = evalq("retry", "run", "--errors", "--targets", "targets.yaml", "--format", "none", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    # A reply that is no JSON failed its target's contract; one that is JSON, and no verdict, is recorded for good.
    assert asked(service) == before + lost + 1
    again = report(tmp_path / "run")["results"]
    assert again["judges"][0]["votes"] == {"asked": votes, "read": votes - 2, "unreadable": 2, "failed": 0, "lost": 2}
    assert again["outputs"]["errors"] == 2


def test_one_budget_is_for_both_stages(tmp_path: Path, service: Agent) -> None:
    """Calls of the agent and of the judge together; a larger one makes the rest, and pays for nothing twice."""
    most = OUTPUTS + 10
    done = evalq(*LIVE, "--max-calls", str(most), "--calls", "2", cwd=tmp_path)
    assert "to make the others, raise it" in done.stderr, done.stderr
    assert asked(service, "m") + asked(service) <= most
    assert asked(service, "m") == OUTPUTS
    done = evalq("resume", "run", "--max-calls", "1000", "--targets", "targets.yaml", "--format", "none", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert (asked(service, "m"), asked(service)) == (OUTPUTS, VERDICTS)
    replayed(tmp_path)


def test_a_fleet_judges_while_its_callers_die(tmp_path: Path, service: Agent, server: Server) -> None:
    """Paused by another terminal in the second stage, and resumed; a process that calls is killed in it."""
    reached = 8
    service.ready = lambda: asked(service) <= reached
    live = [arg for arg in LIVE if arg not in ("--targets", "targets.yaml")]
    with running_fleet(server.url, tmp_path) as fleet:
        callers = [fleet.add(1, "--calls", "3", "--targets", "targets.yaml") for _ in range(2)]
        running = start_evalq(*live, cwd=tmp_path, EVALQ_BROKER=server.url)
        wait_until(lambda: asked(service) > reached and service.at_once == 6, "judges are asked by both")
        message = json.loads(evalq("status", "run", "--json", cwd=tmp_path, EVALQ_BROKER=server.url).stdout)
        assert message["calls"]["state"] == "open"
        listed = evalq("list", cwd=tmp_path, EVALQ_BROKER=server.url).stdout.splitlines()
        assert len(listed) == 1, "what asks about outputs is no run of its own"
        done = evalq("pause", "run", cwd=tmp_path, EVALQ_BROKER=server.url)
        assert done.returncode == 0, done.stderr
        in_flight = service.at_once
        fleet.kill(callers[0])
        service.ready = lambda: True
        assert running.wait(60) == 130
        assert info(tmp_path / "run")["state"] == "paused"
        before = asked(service)
        assert before < VERDICTS
        refused = evalq(*live, "--out", "other", "--detach", cwd=tmp_path, EVALQ_BROKER=server.url)
        assert (refused.returncode, "goes with no judge" in refused.stderr) == (2, True)
        done = evalq("resume", "run", "--format", "none", cwd=tmp_path, EVALQ_BROKER=server.url)
        assert done.returncode == 0, done.stderr
        assert asked(service, "m") == OUTPUTS
        assert VERDICTS <= asked(service) <= VERDICTS + in_flight
        done = evalq("prune", "run", cwd=tmp_path, EVALQ_BROKER=server.url)
        assert not list(server.client.scan_iter("evalq:sweep:*")), done.stderr


def test_recorded_outputs_are_judged_by_a_suite_and_resumed_without_their_file(tmp_path: Path, service: Agent) -> None:
    """Killed, and its outputs removed: they are in the run folder. Only what is new is asked of a changed file."""
    lines = [
        {"case": case, "repeat": repeat, "output": f"Hello, {case}"} for case in ("one", "two") for repeat in (0, 1)
    ]
    (tmp_path / "given.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    run = {"evaluator": "checks", "name": "run", "cases": "cases.yaml", "outputs": "given.jsonl", "judge": "grader"}
    (tmp_path / "suite.yaml").write_text(json.dumps({"suite": "s", "runs": [run]}))
    service.ready = lambda: asked(service) < 10
    running = start_evalq("run", "suite.yaml", "--targets", "targets.yaml", "--calls", "2", "--out", ".", cwd=tmp_path)
    wait_until(lambda: asked(service) >= 10 and service.at_once == 2, "judges are asked")
    killed_with_all(running)
    service.ready = lambda: True
    (tmp_path / "given.jsonl").unlink()
    done = evalq("resume", "run", "--targets", "targets.yaml", "--format", "none", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert (asked(service, "m"), 20 <= asked(service) <= 22) == (0, True)
    assert report(tmp_path / "run")["results"]["outputs"] == {"total": 4, "passed": 4, "failed": 0, "errors": 0}
    replayed(tmp_path)
    before = asked(service)
    more = [*lines, {"case": "two", "repeat": 2, "output": "Hello again"}]
    (tmp_path / "given.jsonl").write_text("".join(json.dumps(line) + "\n" for line in more))
    done = evalq("checks", "cases.yaml", "--outputs", "given.jsonl", "--judge", "grader", "--reuse", "run", "--targets",
                 "targets.yaml", "--format", "none", "--out", "more", cwd=tmp_path)  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert asked(service) == before + 5
    replayed(tmp_path, "more")


def test_replies_of_a_cancelled_run_are_paid_for(tmp_path: Path, service: Agent) -> None:
    """Cancelled as its judge was asked: another run takes outputs and replies, and asks what is left."""
    enough = VERDICTS // 2
    service.ready = lambda: asked(service) <= enough
    running = start_evalq(*LIVE, "--calls", "4", cwd=tmp_path)
    wait_until(lambda: held(service, tmp_path / "run", enough), "judges are asked")
    had, cancel = recorded(tmp_path / "run"), evalq("cancel", "run", cwd=tmp_path)
    assert cancel.returncode == 0, cancel.stderr
    assert (running.wait(60), info(tmp_path / "run")["state"]) == (3, "cancelled")
    service.ready = lambda: True
    before = asked(service)
    done = evalq(*LIVE, "--reuse", "run", "--out", "next", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert (asked(service, "m"), asked(service) - before) == (OUTPUTS, VERDICTS - had)
    replayed(tmp_path, "next")
    refused = evalq("checks", "cases.yaml", "--outputs", "run/outputs.jsonl", "--judge", "grader", "--reuse", "none",
                    "--targets", "targets.yaml", cwd=tmp_path)  # fmt: skip
    assert (refused.returncode, "none" in refused.stderr) == (2, True)
