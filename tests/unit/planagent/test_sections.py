"""Rounds, set, consistency, diagnostics and the operating checklist in the report."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from evalq.evalcore.errors import InputError, NothingEvaluated
from evalq.evalcore.evaluators.planagent import evaluator
from evalq.evalcore.evaluators.planagent.report import round_order
from evalq.evalcore.fold import evaluate_files
from tests.unit.planagent.helpers import COLUMNS, TWO_CHECKS, Row, answer, evaluate, evaluation, row, to_csv

GOOD = answer(items=[{"formType": "SELECT"}], seconds=4)
BAD = answer(items=[{"formType": "OTHER"}], seconds=12)


def _results(folder: Path, rows: list[Row], **params: Any) -> dict[str, Any]:
    found: dict[str, Any] = evaluation(folder, rows, params).report["results"]
    return found


def _pair(query: str, *raws: str) -> list[Row]:
    return [row(query, f"{at}/1", raw=raw) for at, raw in enumerate(raws, start=1)]


def test_consistency_counts_both_pass_and_both_fail(tmp_path: Path) -> None:
    """One of each kind: 5 x 2 / 3."""
    rows = _pair("a", GOOD, GOOD) + _pair("b", BAD, BAD) + _pair("c", GOOD, BAD)
    got = _results(tmp_path, rows)["consistency"]
    assert (got["both_pass"], got["both_fail"], got["mixed"], got["queries"]) == (1, 1, 1, 3)
    assert got["score"] == 10 / 3


def test_a_score_of_three_is_a_pass(tmp_path: Path) -> None:
    """The border of consistency: half of the checks make 3 points, which is a pass."""
    rows = [row("a", "1/1", TWO_CHECKS, GOOD), row("a", "2/1", raw=GOOD)]
    assert _results(tmp_path, rows)["consistency"]["both_pass"] == 1


def test_over_three_rounds_all_must_agree(tmp_path: Path) -> None:
    """Two passes and a failure are neither; two rounds present of three are compared as they are."""
    rows = _pair("a", GOOD, GOOD, GOOD) + _pair("b", GOOD, GOOD, BAD) + _pair("c", BAD, BAD, BAD) + _pair("d", BAD, BAD)
    got = _results(tmp_path, rows)
    assert (got["consistency"]["both_pass"], got["consistency"]["both_fail"]) == (1, 2)
    assert got["consistency"]["queries"] == 4
    mapping = got["checklist"][0]
    assert (mapping["item"], mapping["status"]) == ("mapping", "failed")
    assert mapping["incomplete"] == {"count": 1, "ids": ["d"]}


def test_a_query_with_one_round_is_listed_and_left_out(tmp_path: Path) -> None:
    """So is one whose other round could not be scored."""
    rows = [*_pair("a", GOOD, GOOD), row("b", "1/1"), row("c", "1/1"), row("c", "2/1", expected="?")]
    got = _results(tmp_path, rows)["consistency"]
    assert got["queries"] == 1
    assert got["excluded"]["fewer_than_two_rounds"] == {"count": 2, "ids": ["b", "c"]}


def test_one_round_only_has_no_consistency(tmp_path: Path) -> None:
    """With nothing to compare the score is null, not zero, and says why; the precondition of two rounds has failed."""
    got = _results(tmp_path, [row("a"), row("b")])
    assert got["consistency"]["score"] is None
    assert got["consistency"]["reason"] == "no Query ID has scored rows in two rounds"
    mapping = got["checklist"][0]
    assert (mapping["status"], mapping["incomplete"]) == ("failed", {"count": 2, "ids": ["a", "b"]})
    page = evaluator.views.markdown(evaluation(tmp_path, [row("a"), row("b")]).report, {"lang": "en"})
    assert "Consistency — - (no Query ID has scored rows in two rounds; left out: 2)\n" in page
    assert "[ ] Query IDs to rounds: 2 Query IDs, 1 rounds, 2 Query IDs lack a round" in page
    assert got["consistency"]["queries"] == 0
    assert got["set"]["intent"] == got["rounds"]["1/1"]["intent"] == 5.0


@pytest.mark.parametrize("size", [None, 1, 2])
def test_a_repeated_round_is_a_fault_that_names_both_lines(tmp_path: Path, size: int | None) -> None:
    """The query is left out of consistency, its rows count, and the chunking does not matter."""
    rows = [*_pair("a", GOOD, GOOD), *_pair("b", GOOD, GOOD), row("a", "2/1", raw=BAD)]
    got = evaluation(tmp_path, rows, chunk_size=size).report
    lines = [2, 3, 4, 5, 6]  # the sample rows have no newline in a field
    assert got["faults"] == [
        {"where": f"plan.csv:{lines[4]}", "reason": f'Query ID "a" repeats round "2/1" of line {lines[1]}'}
    ]
    assert got["results"]["consistency"]["queries"] == 1
    assert got["results"]["consistency"]["excluded"]["repeated"] == {"count": 1, "ids": ["a"]}
    assert got["results"]["rounds"]["2/1"]["score_counts"]["5"] == 2
    assert got["results"]["rounds"]["2/1"]["score_counts"]["0"] == 1


def test_the_set_is_the_mean_of_the_round_means(tmp_path: Path) -> None:
    """Rounds of unequal size weigh the same, in scores as in seconds."""
    rows = [row("a", raw=GOOD), row("b", raw=GOOD), row("c", raw=GOOD), row("a", "2/1", raw=BAD)]
    got = _results(tmp_path, rows)["set"]
    assert got["intent"] == 2.5
    assert got["speed"] == {"mean_seconds": 8.0, "points_of_mean": 4, "mean_points": 3.5}
    assert got["stability"] == {"score_zero": 2.5, "error_or_empty": 5.0}
    assert got["records"] == 4


def test_a_mean_of_decimals_on_a_limit_is_within_it(tmp_path: Path) -> None:
    """Four times that are 5 s on average earn 5 points, though the mean of their doubles is 5.000000000000001."""
    times = [1.219, 0.46, 0.808, 17.513]
    assert sum(map(Decimal, map(str, times))) / len(times) == 5
    rows = [row(f"q{at}", raw=answer("ok", seconds=seconds)) for at, seconds in enumerate(times)]
    got = _results(tmp_path, rows)["set"]["speed"]
    assert (got["mean_seconds"], got["points_of_mean"]) == (5.000000000000001, 5)


def test_a_round_of_unscored_rows_is_null_and_weighs_nothing(tmp_path: Path) -> None:
    """Its records are counted, its means do not exist."""
    got = _results(tmp_path, [row("a", raw=GOOD), row("a", "2/1", expected="없음")])
    assert got["rounds"]["2/1"]["intent"] is None
    assert got["rounds"]["2/1"]["speed"]["points_of_mean"] is None
    assert (got["rounds"]["2/1"]["records"], got["rounds"]["2/1"]["unscored"]) == (1, 1)
    assert got["set"]["intent"] == 5.0


def test_both_readings_are_reported_whatever_is_printed(tmp_path: Path) -> None:
    """The rules choose what the table shows, not what the JSON holds."""
    rows = [row("a", raw=BAD), row("b", raw="{")]
    given = _results(tmp_path, rows)
    other = _results(tmp_path, rows, rules={"speed": "mean_of_points", "stability": "error_or_empty"})
    assert given["rounds"] == other["rounds"]
    assert given["set"]["stability"] == {"score_zero": 0.0, "error_or_empty": 2.5}


def test_several_files_are_one_result_each(tmp_path: Path) -> None:
    """Under ``files``, with the keys a single file has; Query IDs of different files are not compared."""
    for name, raw in (("one.csv", GOOD), ("two.csv", BAD)):
        (tmp_path / name).write_text("\ufeff" + to_csv([row("a", raw=raw)]), encoding="utf-8", newline="")
    report = evaluate_files(evaluator, [tmp_path]).report
    assert list(report["results"]) == ["files"]
    files = report["results"]["files"]
    assert {name: part["set"]["intent"] for name, part in files.items()} == {"one.csv": 5.0, "two.csv": 0.0}
    assert set(files["one.csv"]) == set(evaluate_files(evaluator, [tmp_path / "one.csv"]).report["results"])
    page = evaluator.views.markdown(report, {})
    assert page.count("# 실행 에이전트 스코어링 리포트\n") == 2
    assert page.index("- 데이터: one.csv") < page.index("- 데이터: two.csv")


def test_an_empty_file_among_others_has_no_numbers(tmp_path: Path) -> None:
    """It is reported and printed with its zero records, and fails nothing."""
    (tmp_path / "one.csv").write_text(to_csv([row("a")]), encoding="utf-8", newline="")
    (tmp_path / "two.csv").write_text(to_csv([]), encoding="utf-8", newline="")
    report = evaluate_files(evaluator, [tmp_path]).report
    part = report["results"]["files"]["two.csv"]
    assert (part["rounds"], part["set"]["records"], part["set"]["intent"]) == ({}, 0, None)
    assert "3) 일관성 — - (두 회차의 점수가 있는 Query ID가 없음, 제외된 Query ID: 0)\n" in evaluator.views.markdown(
        report, {}
    )


def test_a_missing_column_is_named(tmp_path: Path) -> None:
    """Every one of the seed's twelve columns is required."""
    for missing in COLUMNS:
        kept = [column for column in COLUMNS if column != missing]
        path = tmp_path / "plan.csv"
        path.write_text(",".join(kept) + "\n", encoding="utf-8")
        with pytest.raises(InputError, match="missing column") as caught:
            evaluate_files(evaluator, [path])
        assert missing in str(caught.value)


def test_a_file_without_rows_is_nothing_evaluated(tmp_path: Path) -> None:
    """A header alone is no result."""
    with pytest.raises(NothingEvaluated):
        evaluation(tmp_path, [])


def test_an_encoding_fault_names_the_line(tmp_path: Path) -> None:
    """A row that is not UTF-8 fails the run, with its line."""
    path = tmp_path / "plan.csv"
    path.write_bytes(to_csv([row(), row("p", category="가나")]).encode().replace("가".encode(), b"\xb0\xa1"))
    with pytest.raises(InputError, match=r"plan\.csv:3: not UTF-8"):
        evaluate_files(evaluator, [path])


def test_rounds_are_in_natural_order() -> None:
    """10/1 comes behind 2/1, names without numbers behind them, and equal values differ by their text."""
    names = ["10/1", "b", "2/1", "2/10", "02/1", "2/9", "", "1/1", "9" * 5000 + "/1"]
    ordered = sorted(names, key=round_order)
    assert ordered[:6] == ["", "1/1", "02/1", "2/1", "2/9", "2/10"]
    assert ordered.index("10/1") < ordered.index("9" * 5000 + "/1")


def test_stability_failures_of_one_percent_warn(tmp_path: Path) -> None:
    """Exactly 1 of 100 is enough; 1 of 101 is not."""
    rows = [row(f"q{i}", raw=GOOD) for i in range(99)] + [row("bad", raw="{")]
    assert _results(tmp_path, rows)["checklist"][4]["status"] == "warning"
    assert _results(tmp_path, [*rows, row("one more", raw=GOOD)])["checklist"][4]["status"] == "ok"


def test_patterns_among_low_and_slow_rows_are_counted(tmp_path: Path) -> None:
    """Which sets, categories and wanted values the low rows have, and the slow ones."""
    rows = [
        row("a", raw=BAD, category="빠른 길"),
        row("b", raw=GOOD, category="빠른 길"),
        row("c", raw=BAD, category="x"),
    ]
    got = _results(tmp_path, rows)
    low, slow = got["low_scores"], got["slow"]
    assert "  - 0~2점: 2행 (66.7%)\n" in evaluator.views.markdown(evaluation(tmp_path, rows).report, {})
    assert (low["up_to"], low["rows"], low["share"]) == (2, 2, 2 / 3)
    assert low["missed"] == {"top": [{"name": "formType = SELECT", "rows": 2}], "other": 0}
    assert low["forms"]["top"] == [{"name": "SELECT -> OTHER", "rows": 2}]
    assert slow["categories"]["top"] == [{"name": "x", "rows": 1}, {"name": "빠른 길", "rows": 1}]
    assert got["checks"] == [{"check": "formType", "passed": 1, "of": 3, "failure_rate": 2 / 3}]
    category = {group["name"]: group for group in got["categories"]}["빠른 길"]
    assert (category["rows"], category["low"], category["failed"], category["of"]) == (2, 1, 1, 2)


def test_two_points_are_low_and_three_are_not(tmp_path: Path) -> None:
    """A third of the checks makes 2 points, a half 3; the border can be moved."""
    third = TWO_CHECKS + '\n3) 해당 항목의 actionType 값이 "NO"인가'
    rows = [row("a", expected=third), row("b", expected=TWO_CHECKS)]
    assert _results(tmp_path, rows)["low_scores"]["rows"] == 1
    assert _results(tmp_path, rows, low_score=3)["low_scores"]["rows"] == 2


def test_failures_are_grouped_by_reason_and_text(tmp_path: Path) -> None:
    """The most frequent error texts are named, the rest is counted as other."""
    rows = [row(f"q{i}", error=f"시간 초과 {i}초") for i in range(5)]
    rows += [row("a", error="끊김"), row("b", raw="{"), row("c", raw="{}")]
    got = _results(tmp_path, rows, top=1)["failures"]
    assert got["reasons"] == {"error": 6, "unparsable": 1, "empty": 1}
    assert got["errors"] == {"top": [{"name": "시간 초과 <n>초", "rows": 5}], "other": 1}
    assert got["rows"] == 8


def test_forms_that_were_not_asked_for_or_not_given_are_dashes() -> None:
    """A row without a check of the form type, and an answer without one."""
    expected = '1) assistantMessage에 "네"와 관련된 내용이 언급되어 있는가'
    state = evaluate([row(expected=expected, raw=answer(items=[{"formType": "SELECT"}])), row("b", raw=answer())]).state
    assert list(state.forms.counts) == ["- -> SELECT", "SELECT -> -"]


def test_failures_are_never_none_above_a_checklist_that_counts_some(tmp_path: Path) -> None:
    """Rows of 0 points because no check passed fail for stability as specified: they are a pattern of their own."""
    done = evaluation(tmp_path, [row("a", raw=GOOD), row("b", raw=BAD), row("c", raw=BAD)])
    assert done.report["results"]["failures"]["rows"] == 0
    assert done.report["results"]["failures"]["no_check_passed"] == 2
    assert done.report["results"]["checklist"][4]["failures"] == 2
    page = evaluator.views.markdown(done.report, {"lang": "en"})
    assert (
        "- Stability failures (errors)\n\n| pattern | count |\n| --- | ---: |\n| no check passed (0 points) | 2 |\n"
        in page
    )
    other = evaluation(tmp_path, [row("b", raw=BAD)], {"rules": {"stability": "error_or_empty"}})
    assert "- Stability failures (errors)\n  - none\n" in evaluator.views.markdown(other.report, {"lang": "en"})
