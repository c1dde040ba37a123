"""`evalq extend`: a finished sweep asked more often, of another target, or about more cases, and nothing paid twice."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

import evalq as api
from tests.agents.server import Agent, running_agent, write_golden
from tests.integration.harness import evalq, info, start_evalq, wait_until
from tests.integration.midway import killed_with_all

CASES: dict[str, dict[str, Any]] = {f"C{number}": {"share": number / 3} for number in range(3)}
SAME = ("report.json", "outputs.jsonl", "records.jsonl", "report.md")


class Asked(NamedTuple):
    """A folder with a finished sweep in "a", and the server that it asked: ``paid`` calls since."""

    folder: Path
    agent: Agent
    url: str
    before: int

    @property
    def paid(self) -> int:
        return len(self.agent.log) - self.before


@pytest.fixture(scope="module")
def service() -> Iterator[tuple[Agent, str]]:
    with running_agent() as started:
        yield started


@pytest.fixture(scope="module")
def swept(tmp_path_factory: pytest.TempPathFactory, service: tuple[Agent, str]) -> Path:
    """A golden set, two targets at one server, and a sweep of three cases, four times each, in "a"."""
    folder = tmp_path_factory.mktemp("swept")
    write_golden(folder / "golden.json", CASES)
    _targets(folder, service[1])
    _done(folder, "vs", "golden.json", "--target", "chat", "--repeat", "4", "--targets", "targets.yaml", "--out", "a")
    return folder


@pytest.fixture
def here(tmp_path: Path, swept: Path, service: tuple[Agent, str]) -> Asked:
    """A copy of it; which targets file its user named is known by the run's id, and not from the folder."""
    shutil.copytree(swept, tmp_path / "here")
    return Asked(tmp_path / "here", *service, len(service[0].log))


def _targets(folder: Path, url: str, **more: object) -> None:
    chat = {"kind": "openai", "base_url": url, "model": "m", "retries": {"server": {"times": 0}}}
    (folder / "targets.yaml").write_text(json.dumps({"targets": {"chat": chat | more, "other": chat}}))


def _done(folder: Path, *args: str | Path) -> str:
    done = evalq(*args, "--format", "none", cwd=folder)
    assert done.returncode == 0, done.stderr
    return done.stderr


def _digests(folder: Path) -> dict[str, str]:
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in folder.iterdir()}


def test_an_extended_run_is_one_sweep_of_all_its_repeats(here: Asked) -> None:
    """To the byte, paying for the new repeats alone; it says whose outputs it has, and the first run stays."""
    before = _digests(here.folder / "a")
    dry = evalq("extend", "a", "--repeat", "10", "--dry-run", cwd=here.folder).stdout
    assert dry.startswith("3 cases x 10 = 30 calls, 12 of them answered in an earlier run\n")
    said = _done(here.folder, "extend", "a", "--repeat", "10", "--out", "b")
    first = info(here.folder / "a")["run"]
    assert here.paid == 18
    assert f"note: it has 12 outputs of {first}: no fresh evidence for a gate" in said
    assert info(here.folder / "b")["lineage"]["reused"] == {first: 12}
    assert _digests(here.folder / "a") == before
    # One sweep of ten repeats that got the same answers: each of them is taken, none is called.
    one = ("vs", "golden.json", "--target", "chat", "--repeat", "10", "--targets", "targets.yaml")
    _done(here.folder, *one, "--reuse", "b", "--out", "whole")
    assert here.paid == 18
    for name in SAME:
        assert (here.folder / "whole" / name).read_bytes() == (here.folder / "b" / name).read_bytes()
    whole = info(here.folder / "whole")["lineage"]
    assert (whole["akin"], whole["number"]) == (sorted([first, info(here.folder / "b")["run"]]), 2)


def test_extending_again_and_at_once_pays_once(here: Asked) -> None:
    """The same command is the same run: two at one instant, and a third later, from Python."""
    args = ("extend", "a", "--repeat", "6", "--format", "none")
    both = [start_evalq(*args, cwd=here.folder) for _ in range(2)]
    assert [process.wait() for process in both] == [0, 0], [process.communicate() for process in both]
    assert here.paid == 6
    before = Path.cwd()
    os.chdir(here.folder)
    try:
        run = api.extend("a", repeat=6)
        assert (run.done, run.report["records"]["total"], here.paid) == (True, 18, 6)
    finally:
        os.chdir(before)


def test_a_killed_extension_goes_on_where_it_was(here: Asked) -> None:
    """By the same command: at most the calls in flight are paid again, none of the first run's."""
    agent, before, answered = here.agent, here.agent.calls.total(), len(here.agent.log)
    agent.ready = lambda: agent.calls.total() < before + 20  # the others wait
    args = ("extend", "a", "--repeat", "20", "--out", "b", "--format", "none", "--calls", "4")
    process = start_evalq(*args, cwd=here.folder)
    log = here.folder / "b" / "calls.jsonl"

    def only_those_in_flight_are_missing() -> bool:
        taken, message = agent.calls.total() - before, len(agent.log) - answered
        return taken - 4 == message >= 16 and log.exists() and log.read_bytes().count(b'{"call":') == 12 + message

    wait_until(only_those_in_flight_are_missing, "four calls are in flight, and all others are in the folder")
    killed_with_all(process)
    agent.ready = lambda: True
    _done(here.folder, *args[:6], "--calls", "4")
    assert info(here.folder / "b")["calls"]["recorded"] == 60
    assert here.paid <= 48 + 4
    assert info(here.folder / "b")["lineage"]["reused"] == {info(here.folder / "a")["run"]: 12}


def test_other_settings_are_refused_before_anything_is_called(here: Asked) -> None:
    """Their answers are of another agent. Nothing is left behind; another target is asked all of it."""
    _targets(here.folder, here.url, options={"temperature": 1})
    for more in (("--targets", "targets.yaml"), ("--targets", "targets.yaml", "--dry-run")):
        done = evalq("extend", "a", "--repeat", "5", "--out", "b", *more, cwd=here.folder)
        assert (done.returncode, "other settings" in done.stderr) == (2, True), done.stderr
        assert "options.temperature: not set then, 1 now" in done.stderr
    assert not (here.folder / "b").exists()
    assert here.paid == 0
    _done(here.folder, "extend", "a", "--target", "other", "--out", "c", "--targets", "targets.yaml")
    assert here.paid == 12
    assert (info(here.folder / "c")["target"], info(here.folder / "c")["origin"]) == (
        "other",
        info(here.folder / "a")["run"],
    )
    assert "lineage" not in info(here.folder / "c")


def test_cases_may_grow(here: Asked) -> None:
    """A file that changed is refused unless it is named; then new and changed cases are asked, the others not."""
    write_golden(here.folder / "golden.json", {"C1": CASES["C1"], "C2": {"share": 0.9}, "C9": {"share": 0.5}})
    refused = evalq("extend", "a", "--repeat", "5", cwd=here.folder)
    assert (refused.returncode, "golden.json: not what it was" in refused.stderr) == (2, True)
    _done(here.folder, "extend", "a", "--cases", "golden.json", "--out", "b")
    assert here.paid == 8
    assert info(here.folder / "b")["lineage"]["reused"] == {info(here.folder / "a")["run"]: 4}
    lines = [json.loads(line) for line in (here.folder / "b" / "outputs.jsonl").read_text().splitlines()]
    assert [(line["case"], line["repeat"]) for line in lines] == [(c, r) for c in ("C1", "C2", "C9") for r in range(4)]


def test_failures_are_taken_by_what_they_are(tmp_path: Path, service: tuple[Agent, str]) -> None:
    """An extension has all of the run that it extends, and a retry makes it its own; what is reused elsewhere are
    answers and the agent's own failures, since asking those again would flatter it.
    """
    bad = {"do": "said", "content": "no JSON"}
    down = {"do": "raw", "status": 500, "body": "{}", "times": 2}
    asked = Asked(tmp_path, *service, len(service[0].log))
    write_golden(tmp_path / "golden.json", {"good": {"share": 1.0}, "bad": bad, "down": down})
    _targets(tmp_path, service[1])
    args = ("vs", "golden.json", "--target", "chat", "--targets", "targets.yaml", "--format", "none")
    assert evalq(*args, "--repeat", "2", "--out", "a", cwd=tmp_path).returncode == 3
    assert asked.paid == 6
    extended = evalq("extend", "a", "--repeat", "3", "--out", "b", "--format", "none", cwd=tmp_path)
    assert (extended.returncode, asked.paid) == (3, 9), extended.stderr
    _done(tmp_path, "retry", "b", "--errors")
    first = info(tmp_path / "a")["run"]
    assert info(tmp_path / "b")["lineage"]["reused"] == {first: 2}, "the failed calls were made anew"
    before = asked.paid
    _done(tmp_path, *args[:-2], "--repeat", "2", "--reuse", "a", "--out", "c")
    assert (asked.paid - before, info(tmp_path / "c")["lineage"]["reused"]) == (2, {first: 4})
