"""`planagent --judge NAME`: a model's scores beside ours, from a real server, cached like any call."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from evalq.evalcore.evaluators.planagent.sample import write_rows
from tests.agents.server import Agent, marker_in, running_agent
from tests.integration.harness import evalq

ROWS = 60


@pytest.fixture
def service() -> Iterator[tuple[Agent, str]]:
    """A server that answers as configured."""
    with running_agent() as started:
        yield started


@pytest.fixture
def rows(tmp_path: Path, service: tuple[Agent, str]) -> Path:
    """Made rows in a file, and beside it the judge's targets file."""
    quick = {"server": {"times": 0}}
    targets = {"chat": {"kind": "openai", "base_url": service[1], "model": "m", "retries": quick}}
    (tmp_path / "targets.yaml").write_text(json.dumps({"targets": targets}))
    path = tmp_path / "rows.csv"
    with path.open("w", encoding="utf-8", newline="") as out:
        write_rows(out, ROWS, seed=5)
    return path


def _judge(folder: Path, *args: str | Path) -> dict[str, Any]:
    done = evalq("planagent", *args, "--targets", "targets.yaml", "--format", "json", cwd=folder)
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def _ours(folder: Path, rows: Path) -> dict[tuple[str, str], int]:
    """{(query, round): our score} of the rows that have one."""
    assert evalq("planagent", rows, "--inline", "--out", "ours", "--format", "none", cwd=folder).returncode == 0
    lines = [json.loads(line) for line in (folder / "ours" / "records.jsonl").read_text().splitlines()]
    return {(line["id"], line["round"]): line["score"] for line in lines if line["score"] is not None}


def test_the_judge_is_asked_once_a_row_and_agrees_as_it_does(
    tmp_path: Path, service: tuple[Agent, str], rows: Path
) -> None:
    """One point less than ours for every odd score: the agreement says exactly that; a second run asks nobody."""
    agent, _ = service
    ours = _ours(tmp_path, rows)

    def answer(prompt: str) -> str:
        row = json.loads(prompt.strip().splitlines()[-2])
        score = ours.get((row["Query ID"].strip(), row["방/반복"].strip()), 0)
        return json.dumps({"marker": marker_in(prompt), "score": score - score % 2, "comment": f"의견 {score}"})

    agent.answer = answer
    report = _judge(tmp_path, rows, "--judge", "chat", "--cache", "calls.sqlite", "--out", "run")
    assert sum(agent.calls.values()) == ROWS
    assert report["records"]["total"] == ROWS
    llm = report["results"]["llm"]
    assert llm["pairs"] == len(ours)
    assert llm["exact"] == pytest.approx(sum(score % 2 == 0 for score in ours.values()) / len(ours))
    lines = [json.loads(line) for line in (tmp_path / "run" / "records.jsonl").read_text().splitlines()]
    judged = [line for line in lines if "llm_score" in line]
    assert len(judged) == ROWS
    assert all(line["llm_score"]["comment"].startswith("의견") for line in judged)
    again = _judge(tmp_path, rows, "--judge", "chat", "--cache", "calls.sqlite", "--out", "again")
    assert sum(agent.calls.values()) == ROWS
    assert again == report
    replay = _judge(tmp_path, tmp_path / "run" / "answers" / "rows.csv", "--inline", "--out", "replay")
    assert replay == report


def test_what_the_judge_did_not_score_is_no_score(tmp_path: Path, service: tuple[Agent, str], rows: Path) -> None:
    """A reply without a score from 0 to 5, or without its prompt's marker, is unreadable; lines keep numbers."""
    agent, _ = service
    texts = iter([{"score": 7}, {"comment": "none"}, [1], "no json", {"score": 5, "marker": "0" * 16}])
    agent.answer = lambda prompt: _marked(next(texts, {"score": 3, "comment": "c"}), marker_in(prompt))
    report = _judge(tmp_path, rows, "--judge", "chat", "--calls", "1", "--out", "run")
    assert report["results"]["llm"]["unreadable"] == 5
    plain = json.loads(evalq("planagent", rows, "--inline", "--out", "plain", "--format", "json", cwd=tmp_path).stdout)
    ours = [json.loads(line) for line in (tmp_path / "plain" / "records.jsonl").read_text().splitlines()]
    judged = [json.loads(line) for line in (tmp_path / "run" / "records.jsonl").read_text().splitlines()]
    assert [line | {"llm_score": None} for line in judged] == [line | {"llm_score": None} for line in ours]
    assert plain["records"] == report["records"]


def _marked(message: Any, marker: str) -> str:
    if isinstance(message, str):
        return message
    return json.dumps({"marker": marker, **message} if isinstance(message, dict) else message)


def test_rows_that_cannot_be_read_are_reported_before_anything_is_asked(
    tmp_path: Path, service: tuple[Agent, str], rows: Path
) -> None:
    """A row of another width: exit 2, its line, and no call."""
    with rows.open("a", encoding="utf-8", newline="") as out:
        csv.writer(out, lineterminator="\n").writerow(["too", "short"])
    done = evalq("planagent", rows, "--judge", "chat", "--targets", "targets.yaml", "--out", "run", cwd=tmp_path)
    assert done.returncode == 2
    assert "2 fields where the header has 16" in done.stderr
    assert sum(service[0].calls.values()) == 0
    assert not (tmp_path / "run").exists()
