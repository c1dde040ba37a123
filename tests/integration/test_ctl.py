"""`evalq ctl`: calls in flight, cases that are held, released or cancelled, and limits that change in mid-run."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.agents.server import Agent, running_agent
from tests.integration.harness import Server, evalq, running_fleet, running_server, start_evalq, wait_until

CHECKS = ("checks", "cases.json", "--target", "chat", "--quiet", "--format", "none", "--out", "run")


@pytest.fixture
def service() -> Iterator[tuple[Agent, str]]:
    """A server that echoes."""
    with running_agent() as (agent, url):
        agent.answer = lambda prompt: f"You asked: {prompt}"
        yield agent, url


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    """A server of this test's own."""
    with running_server(tmp_path) as started:
        yield started


def write(folder: Path, url: str, cases: int = 4, **more: Any) -> None:
    """Cases, and the target ``chat``."""
    listed = [{"id": f"c{n}", "input": f"say {n}", "checks": [{"contains": "say"}]} for n in range(cases)]
    (folder / "cases.json").write_text(json.dumps({"cases": listed}))
    entry = {"kind": "openai", "base_url": url, "model": "m", "output": "text", **more}
    (folder / "targets.yaml").write_text(json.dumps({"targets": {"chat": entry}}))


def ctl(folder: Path, server: Server, *words: str) -> subprocess.CompletedProcess[str]:
    """Run the command from another folder, as another host does."""
    other = folder / "elsewhere"
    other.mkdir(exist_ok=True)
    run = json.loads((folder / "run/run.json").read_text())["run"]
    return evalq("ctl", run, *words, cwd=other, EVALQ_BROKER=server.url)


def facts(folder: Path, server: Server) -> Any:
    """What it lists."""
    done = ctl(folder, server, "--json")
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_a_held_case_is_skipped_and_goes_on_when_it_is_released(
    service: tuple[Agent, str], server: Server, tmp_path: Path
) -> None:
    """The run waits for it, with all other cases made; its calls that waited for their turn go back."""
    agent, url = service
    write(tmp_path, url, max_concurrency=1)
    agent.ready = lambda: False
    with running_fleet(server.url, tmp_path) as workers:
        workers.add(1, "--calls", "4", "--targets", "targets.yaml")
        process = start_evalq(*CHECKS, "--repeat", "2", cwd=tmp_path, EVALQ_BROKER=server.url)
        wait_until(lambda: agent.at_once == 1, "the first call hangs")
        held = ctl(tmp_path, server, "--hold", "c2", "--hold", "c3")
        assert held.returncode == 0, held.stderr
        assert "c2: held back" in held.stderr
        agent.ready = lambda: True
        wait_until(lambda: agent.calls.total() == 4, "all others are made")

        def quiet() -> Any:
            found = facts(tmp_path, server)
            return not found["calls"] and found

        seen = wait_until(quiet, "no call is in flight", pause=0.3)
        assert seen["held"] == ["c2", "c3"]
        assert process.poll() is None
        assert (agent.calls["say 2"], agent.calls["say 3"]) == (0, 0)
        assert ctl(tmp_path, server, "--release", "c2", "--release", "c3").returncode == 0
        _, said = process.communicate()
    assert process.returncode == 0, said
    assert agent.calls.total() == 8


def test_a_case_in_flight_is_listed_and_can_be_given_up(
    service: tuple[Agent, str], server: Server, tmp_path: Path
) -> None:
    """With its age and its tries; once it is cancelled, the run ends without waiting for it, and names it as lost."""
    agent, url = service
    write(tmp_path, url)
    agent.most = 3
    with running_fleet(server.url, tmp_path) as workers:
        workers.add(1, "--calls", "4", "--targets", "targets.yaml")
        process = start_evalq(*CHECKS, cwd=tmp_path, EVALQ_BROKER=server.url)

        def alone() -> Any:
            calls = facts(tmp_path, server)["calls"]
            return len(calls) == 1 and calls[0]["tries"] and calls  # it may have a lane and wait for its turn

        wait_until(lambda: len(agent.log) == 3, "three calls are answered")
        (call,) = wait_until(alone, "one call hangs", pause=0.3)
        assert (call["tries"], call["repeat"], call["target"]) == (1, 0, "chat")
        assert 0 <= call["seconds"] < 60
        shown = ctl(tmp_path, server)
        assert call["case"] in shown.stdout
        assert ctl(tmp_path, server, "--cancel", call["case"]).returncode == 0
        _, said = process.communicate()
        assert process.returncode == 3, said
        assert "1 call was never answered (1 server)" in said
        again = ctl(tmp_path, server, "--cancel", call["case"])
        assert (again.returncode, "its calls are over" in again.stderr) == (2, True)
    errors = [json.loads(line).get("error") for line in (tmp_path / "run/outputs.jsonl").read_text().splitlines()]
    assert [error for error in errors if error] == ["server: evalq ctl cancelled this case"]


def test_a_call_that_hangs_is_made_again_when_it_is_queued_again(
    service: tuple[Agent, str], server: Server, tmp_path: Path
) -> None:
    """Without waiting for its time limit: the try that hangs is dropped and counts as lost, the next is recorded."""
    agent, url = service
    hangs = json.dumps({"do": "hang", "times": 1})
    write(tmp_path, url)
    cases = json.loads((tmp_path / "cases.json").read_text())
    cases["cases"][1]["input"] = hangs
    (tmp_path / "cases.json").write_text(json.dumps(cases))
    with running_fleet(server.url, tmp_path) as workers:
        workers.add(1, "--calls", "4", "--targets", "targets.yaml")
        process = start_evalq(*CHECKS, cwd=tmp_path, EVALQ_BROKER=server.url)
        wait_until(lambda: agent.calls.total() == 4 and agent.at_once == 1, "one call hangs")
        wait_until(lambda: len(facts(tmp_path, server)["calls"]) == 1, "the others are recorded", pause=0.3)
        done = ctl(tmp_path, server, "--requeue", "c1")
        assert (done.returncode, "c1: 1 call in flight made again" in done.stderr) == (0, True), done.stderr
        _, said = process.communicate()
    assert process.returncode == 0, said
    assert agent.calls[hangs] == 2
    calls = json.loads((tmp_path / "run/run.json").read_text())["calls"]
    assert (calls["recorded"], calls["errors"], calls["lost"], calls["attempts"]) == (4, 0, 1, 5)


def test_another_rate_holds_on_all_callers_within_two_seconds(
    service: tuple[Agent, str], server: Server, tmp_path: Path
) -> None:
    """Two processes wait ten seconds for the next call; with another limit, the next one comes at once."""
    agent, url = service
    write(tmp_path, url, 30, requests_per_minute=2)
    with running_fleet(server.url, tmp_path) as workers:
        for _ in range(2):
            workers.add(1, "--calls", "4", "--targets", "targets.yaml")
        wait_until(lambda: server.client.scard("evalq:callers") == 2, "both can call")
        process = start_evalq(*CHECKS, cwd=tmp_path, EVALQ_BROKER=server.url)
        wait_until(lambda: len(agent.log) == 1, "the first call is made")
        done = ctl(tmp_path, server, "--rate", "chat=6000", "--in-flight", "chat=5")
        assert done.returncode == 0, done.stderr
        assert facts(tmp_path, server)["limits"] == {"chat": {"rate": 6000.0, "in_flight": 5}}
        began = server.client.time()
        wait_until(lambda: len(agent.log) > 1, "the next call is made", 10)
        now = server.client.time()
        assert now[0] - began[0] <= 2
        _, said = process.communicate()
        assert process.returncode == 0, said
        assert agent.busiest <= 5
        assert ctl(tmp_path, server, "--rate", "chat=file", "--in-flight", "chat=file").returncode == 0
        assert facts(tmp_path, server)["limits"] == {"chat": {"rate": None, "in_flight": None}}


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (("--hold", "nobody"), "no case 'nobody' in this run"),
        (("--rate", "other=5"), "this run calls no target 'other' (it calls: chat)"),
        (("--rate", "chat=fast"), "--rate chat=fast: write TARGET=N"),
        (("--rate", "chat=-1"), "--rate chat=-1: write TARGET=N"),
        (("--in-flight", "chat=1.5"), "--in-flight chat=1.5: write TARGET=N"),
    ],
)
def test_wrong_words_change_nothing(words: tuple[str, ...], expected: str, ended: tuple[Path, Server]) -> None:
    """Each says what is wrong, before anything is changed."""
    folder, server = ended
    done = ctl(folder, server, *words)
    assert (done.returncode, expected in done.stderr) == (2, True), done.stderr
    assert facts(folder, server) == {"calls": [], "held": [], "limits": {"chat": {"rate": None, "in_flight": None}}}


@pytest.fixture(scope="module")
def ended(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, Server]]:
    """A folder with a run that is over, and its server."""
    folder = tmp_path_factory.mktemp("ended")
    with running_server(folder) as server, running_agent() as (agent, url), running_fleet(server.url, folder) as fleet:
        agent.answer = lambda prompt: f"You asked: {prompt}"
        write(folder, url)
        fleet.add(1, "--calls", "4", "--targets", "targets.yaml")
        assert evalq(*CHECKS, cwd=folder, EVALQ_BROKER=server.url).returncode == 0
        yield folder, server


def test_a_run_without_a_server_cannot_be_steered(service: tuple[Agent, str], tmp_path: Path) -> None:
    """It says what can be done instead; and of a run that never was, that there is none."""
    _, url = service
    write(tmp_path, url)
    assert evalq(*CHECKS, "--targets", "targets.yaml", cwd=tmp_path).returncode == 0
    done = evalq("ctl", "run", cwd=tmp_path)
    assert (done.returncode, "name its server with --broker URL" in done.stderr) == (2, True)
