"""The pages that lead a newcomer, walked: their commands, with files and agents in place of a reader's own."""

from __future__ import annotations

import re
import shlex
import shutil
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from evalq.evalcore.contract import plugins
from evalq.evalcore.contract.evaluator import Request
from evalq.producer.cli import main
from tests.integration.harness import Server, running_server, start_evalq

TOP = Path(__file__).parents[2]
_SH = re.compile(r"^```sh\n(.*?)^```", re.DOTALL | re.MULTILINE)
_YAML = re.compile(r"^```yaml\n(.*?)^```", re.DOTALL | re.MULTILINE)
_AGENTS = """\
import re


def answer(call):
    return "{}"


def judge(call):
    marker = re.findall(r'"marker": "([0-9a-f]{16})"', call["prompt"])[-1]
    return {"marker": marker, "pass": True, "score": 4, "answer": "first", "comment": "fine"}
"""
MANY = ("local", "chat", "candidate")
NOT_HERE = ("evalq demo", "evalq view", "evalq gate evalq-runs", "evalq init")
"""Commands with a test of their own, and those that show a run which only a reader has."""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A real server, for the commands of a fleet."""
    with running_server(tmp_path_factory.mktemp("server")) as started:
        yield started


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """What the pages take for granted: results, a golden set, recorded outputs, targets, a policy."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("EVALQ_BROKER", raising=False)
    monkeypatch.setenv("GITHUB_SHA", "0123abcd")
    _sample("planagent", tmp_path / "results", 30)
    (csv,) = (tmp_path / "results").rglob("*.csv")
    shutil.copyfile(csv, tmp_path / "results.csv")
    csv.rename(tmp_path / "results" / "plan_agent_1.csv")
    _sample("checks", tmp_path / "evalq-demo" / "data" / "checks", 30)
    _sample("cooperation", tmp_path / "log", 60)
    shutil.copyfile(tmp_path / "log" / "events.jsonl", tmp_path / "events.jsonl")
    shutil.copyfile(_sample("vs", tmp_path / "vs", 60).inputs[0], tmp_path / "golden.yaml")
    for name in ("outputs.jsonl", "recorded.jsonl"):
        shutil.copyfile(next((tmp_path / "vs").rglob("*.jsonl")), tmp_path / name)
    (tmp_path / "agents.py").write_text(_AGENTS)
    targets = {name: {"kind": "python", "function": "agents:answer"} for name in MANY}
    targets["grader"] = {"kind": "python", "function": "agents:judge"}
    (tmp_path / "targets.yaml").write_bytes(msgspec.json.encode({"targets": targets}))
    (tmp_path / "policy.yaml").write_text("gates: [{metric: vs.pass_rate, max_drop: 0.05}]\n")
    return tmp_path


def _sample(name: str, folder: Path, records: int) -> Request:
    sample = plugins.get(name).sample
    assert sample is not None
    folder.mkdir(parents=True)
    return sample.write(folder, records, 3)


def _commands(page: str, server: Server) -> Iterator[list[str]]:
    """The words of each command, for few repeats and with this server's address."""
    text = (TOP / "docs" / page).read_text(encoding="utf-8")
    for line in (line for block in _SH.findall(text) for line in block.splitlines()):
        if line.startswith("evalq ") and not line.startswith(NOT_HERE):
            named = re.sub(r"redis://\w+:6379/0", server.url, line.replace("$GITHUB_SHA", "0123abcd"))
            few = re.sub(r"--repeat \d+", "--repeat 2", named).partition(" > ")[0]
            yield shlex.split(few, comments=True)[1:]


def _walk(page: str, server: Server, folder: Path) -> dict[tuple[str, ...], int]:
    """{command: its exit code}; workers serve until the end."""
    codes, workers = {}, []
    try:
        for words in _commands(page, server):
            if words[0] == "worker":
                quick = ["--calls", "4"] if "--calls" in words else ["--concurrency", "1"]
                kept = [word for word in words if word != "200"]
                if "--calls" in kept:
                    kept.remove("--calls")
                workers.append(start_evalq(*kept, *quick, cwd=folder))
                continue
            if "RUN" in " ".join(words):
                found = max(folder.glob("evalq-runs/*/judged.jsonl")).parent
                words = [word.replace("RUN", str(found)) for word in words]
            if words[:2] == ["vs", "golden.yaml"] and "candidate" in words:  # the baseline's target is called again
                asked = ["--target", "local", "--targets", "targets.yaml", "--repeat", "2", "--out", "live"]
                assert not main(["baseline", "forget", "main"])
                assert not main(["vs", "golden.yaml", *asked])
                assert not main(["baseline", "set", "main", "live"])
            codes[tuple(words)] = main(words) or 0
            if words[:2] == ["baseline", "set"]:  # what follows is of a later pull request
                (folder / "results").rename(folder / "results-of-main")
            if (report := folder / "results" / "vs" / "report.json").is_file():  # as `--format json` prints it
                shutil.copyfile(report, folder / "results.json")
    finally:
        for worker in workers:
            worker.terminate()
        for worker in workers:
            worker.communicate()
    return codes


def _first_yaml(page: str, begins: str) -> str:
    text = (TOP / "docs" / page).read_text(encoding="utf-8")
    blocks: list[str] = _YAML.findall(text)
    return next(block for block in blocks if block.startswith(begins))


def test_the_first_run(folder: Path, server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    """Files, an agent with a judge, a suite and a fleet: each command ends with 0."""
    (folder / "cases.yaml").write_text(_first_yaml("first-run.md", "cases:"))
    (folder / "evalq.yaml").write_text(_first_yaml("first-run.md", "suite:"))
    suite = (folder / "evalq.yaml").read_text().replace("repeat: 50", "repeat: 2")
    (folder / "evalq.yaml").write_text(suite)
    monkeypatch.setenv("EVALQ_TARGETS", "targets.yaml")
    codes = _walk("first-run.md", server, folder)
    assert len(codes) == 5
    assert {*codes.values()} == {0}, codes


def test_the_sweeps_of_live_agents(folder: Path, server: Server) -> None:
    """A try, a dry run, a sweep, a fleet that calls, judges of live and of recorded outputs, a cache."""
    (folder / "cases.yaml").write_text(_first_yaml("how-to/sweep-live-agents.md", "cases:"))
    codes = _walk("how-to/sweep-live-agents.md", server, folder)
    assert len(codes) == 9
    assert {*codes.values()} == {0}, codes


def test_the_gate_of_a_pull_request(folder: Path, server: Server) -> None:
    """A first suite without a baseline, its approval, and what the page does afterwards: no command is misused."""
    (folder / "evalq.yaml").write_text(_first_yaml("how-to/gate-a-pull-request.md", "suite:"))
    codes = _walk("how-to/gate-a-pull-request.md", server, folder)
    assert len(codes) > 6
    assert 2 not in codes.values(), codes


@pytest.mark.parametrize("page", ["how-to/follow-a-growing-log.md"])
def test_a_log_is_followed(page: str, folder: Path, server: Server) -> None:
    """The page's command, for one pass, and the line for cron."""
    text = (TOP / "docs" / page).read_text(encoding="utf-8")
    lines = [line[line.index("evalq ") :] for block in _SH.findall(text) for line in block.splitlines()]
    assert len(lines) == 2
    for line in lines:
        words = shlex.split(line)[1:]
        assert main([*words, *([] if "--passes" in words else ["--passes", "1"])]) in (None, 0)
