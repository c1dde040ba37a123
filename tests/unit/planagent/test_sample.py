"""Made-up data for demonstrations and measurements, and the prompt for a judge."""

from __future__ import annotations

import csv
import io
import json
from collections import Counter
from pathlib import Path

import pytest

from evalq.evalcore.evaluators.planagent import evaluator, judge_prompt, write_rows
from evalq.evalcore.fold import Evaluation, evaluate_files


def _sample(rows: int, seed: int = 1, queries: int | None = None, rounds: tuple[str, ...] = ("1/1", "2/1")) -> str:
    stream = io.StringIO(newline="")
    write_rows(stream, rows, seed, queries, rounds)
    return stream.getvalue()


@pytest.fixture(scope="module")
def sampled(tmp_path_factory: pytest.TempPathFactory) -> Evaluation:
    """A sample of 3,000 rows, evaluated."""
    path = tmp_path_factory.mktemp("sample") / "plan_agent_sample.csv"
    path.write_text(_sample(3000, rounds=("1/1", "2/1", "3/1")), encoding="utf-8", newline="")
    return evaluate_files(evaluator, [path])


def test_the_same_seed_gives_the_same_bytes_and_another_seed_others() -> None:
    """A sample is a function of its arguments."""
    assert _sample(200) == _sample(200)
    assert _sample(200) != _sample(200, seed=2)


def test_rows_are_a_csv_of_the_size_asked_for() -> None:
    """With a BOM, the required columns, quoted newlines, and about 3 KB a row."""
    text = _sample(500)
    assert text.startswith("\ufeff")
    rows = list(csv.DictReader(io.StringIO(text[1:], newline=""), strict=True))
    assert len(rows) == 500
    assert set(evaluator.records.columns) <= set(rows[0])
    assert any("\n" in row["기대결과"] for row in rows)
    assert 2_000 < len(text.encode()) / 500 < 4_500
    raws = [len(row["Raw JSON"].encode()) for row in rows]
    assert 1_200 < sum(raws) / 500 < 3_500


def test_raw_json_has_the_structure_of_a_real_answer() -> None:
    """Nearly all of it parses, with the blocks of execution and worker beside what is scored."""
    rows = csv.DictReader(io.StringIO(_sample(400)[1:], newline=""))
    parsed = []
    for row in rows:
        try:
            parsed.append(json.loads(row["Raw JSON"]))
        except ValueError:
            assert row["Raw JSON"].startswith("{")
    assert 350 < len(parsed) < 400
    assert all({"executionProcesses", "worker", "dataUIList", "assistantMessage"} <= set(raw) for raw in parsed)
    assert any("nodeDataSet" in json.dumps(raw) for raw in parsed)


def test_every_query_has_every_round_once(sampled: Evaluation) -> None:
    """No repeated (Query ID, round), so the mapping is whole."""
    assert sampled.report["faults"] == []
    mapping = sampled.report["results"]["checklist"][0]
    assert (mapping["queries"], mapping["rounds"], mapping["status"]) == (1000, 3, "ok")


def test_every_rule_meets_rows(sampled: Evaluation) -> None:
    """All forms of checks and reasons for zero, unscored rows, missing seconds, LLM scores, every usual score."""
    results = sampled.report["results"]
    assert {check["check"] for check in results["checks"]} == {
        "message",
        "formType",
        "multiSelectAllowYn",
        "actionType",
        "dataKey",
        "buttonKey",
    }
    assert all(results["failures"]["reasons"].values())
    assert sampled.report["records"]["unscored"] > 0
    assert results["set"]["seconds_excluded"] > 0
    assert results["llm"]["pairs"] > 0
    assert results["llm"]["unreadable"] > 0
    counts = results["set"]["score_counts"]
    assert all(counts[score] > 0 for score in "02345")
    reasons = Counter(line["reason"].split(":")[0] for line in sampled.records() if "reason" in line)
    assert set(reasons) == {"error", "unparsable", "empty", "no check can be read from 기대결과"}


def test_rounds_and_queries_can_be_chosen() -> None:
    """Rows go round by round; the last round may be left unfinished."""
    rows = list(csv.DictReader(io.StringIO(_sample(25, queries=10, rounds=("a", "b,c", "d"))[1:], newline="")))
    assert [row["방/반복"] for row in rows] == ["a"] * 10 + ["b,c"] * 10 + ["d"] * 5
    assert [row["Query ID"] for row in rows[:10]] == [row["Query ID"] for row in rows[10:20]]
    assert len({row["Query ID"] for row in rows}) == 10


def test_more_rows_than_queries_and_rounds_allow_are_refused() -> None:
    """They would have to repeat a (Query ID, round)."""
    with pytest.raises(ValueError, match="21 rows are more than 10 queries x 2 rounds"):
        _sample(21, queries=10)


def test_no_rows_are_a_header(tmp_path: Path) -> None:
    """An empty sample is a CSV all the same."""
    assert _sample(0).count("\n") == 1


@pytest.mark.parametrize("lang", ["ko", "en"])
def test_the_prompt_names_what_a_judge_needs(lang: str) -> None:
    """Columns, keys and bands, in both languages, from the installed files."""
    prompt = judge_prompt(lang)
    for word in (
        "Query ID",
        "방/반복",
        "기대결과",
        "assistantMessage",
        "dataUIList",
        "responseTimeSec",
        "error",
        "0.75",
    ):
        assert word in prompt


def test_another_language_has_no_prompt() -> None:
    """The known ones are named."""
    with pytest.raises(ValueError, match="ko, en"):
        judge_prompt("fr")
