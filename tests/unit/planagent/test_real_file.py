"""The published result of a real test run, number by number."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from evalq.evalcore.evaluators.planagent import evaluator
from evalq.evalcore.fold import Evaluation, evaluate_files

DATA = Path(__file__).parents[4] / "shared" / "data" / "plan_agent_260224.csv"
PUBLISHED = {"speed": "mean_of_points", "stability": "error_or_empty"}


@pytest.fixture(scope="module")
def real() -> Evaluation:
    """The real file, evaluated with the default readings."""
    if not DATA.exists():
        pytest.skip(f"the real file is not beside the repository: {DATA.name}")
    return evaluate_files(evaluator, [DATA])


@pytest.mark.parametrize(
    ("part", "intent", "scores", "seconds", "points", "speeds"),
    [
        ("1/1", 2.3130, (34, 0, 30, 40, 12, 15), 9.694, 2.85, (1, 1, 44, 56, 29, 0)),
        ("2/1", 2.5344, (26, 0, 30, 47, 9, 19), 9.418, 3.05, (2, 2, 24, 63, 39, 1)),
        ("set", 2.4237, (60, 0, 60, 87, 21, 34), 9.556, 2.95, (3, 3, 68, 119, 68, 1)),
    ],
)
def test_every_published_number_of_a_round_is_met(
    real: Evaluation,
    part: str,
    intent: float,
    scores: tuple[int, ...],
    seconds: float,
    points: float,
    speeds: tuple[int, ...],
) -> None:
    """Intent, accuracy, seconds, points and both distributions, per round and for the set."""
    results = real.report["results"]
    got = results["set"] if part == "set" else results["rounds"][part]
    assert round(got["intent"], 4) == intent
    assert got["accuracy"] == got["intent"]
    assert tuple(got["score_counts"].values()) == scores
    assert round(got["speed"]["mean_seconds"], 3) == seconds
    assert round(got["speed"]["mean_points"], 2) == points
    assert got["speed"]["points_of_mean"] == 3
    assert tuple(got["speed_counts"].values()) == speeds
    assert got["stability"]["error_or_empty"] == 5.0


def test_consistency_and_stability_of_the_set_are_met(real: Evaluation) -> None:
    """53 both pass, 42 both fail, 95 of 131 make 3.63; stability as specified is 3.855."""
    results = real.report["results"]
    got = results["consistency"]
    assert (got["both_pass"], got["both_fail"], got["queries"]) == (53, 42, 131)
    assert got["score"] == 5 * 95 / 131
    assert round(results["set"]["stability"]["score_zero"], 3) == 3.855


def test_the_diagnostic_finds_the_nested_data_key(real: Evaluation) -> None:
    """All 146 dataKey checks fail, and 78 would pass one level deeper; no other kind of check is suspect."""
    (got,) = real.report["results"]["diagnostics"]
    assert (got["check"], got["passed"], got["of"]) == ("dataKey", 0, 146)
    assert (got["found_at"], got["would_pass"]) == ("value.nodeDataSet.dataKey", 78)


def test_check_sets_are_those_of_the_file(real: Evaluation) -> None:
    """116, 108 and 38 rows ask for the three sets of checks, and every row is scored."""
    rows = {group["name"]: group["rows"] for group in real.report["results"]["check_sets"]}
    assert sorted(rows.values()) == [38, 108, 116]
    assert real.report["records"] == {"total": 262, "scored": 262, "unscored": 0, "errors": 0, "dead": 0}


def test_the_published_table_is_printed_under_the_published_readings(real: Evaluation) -> None:
    """The Korean table shows the numbers that a person had published."""
    report: dict[str, Any] = evaluate_files(evaluator, [DATA], {"rules": PUBLISHED}).report
    page = evaluator.views.markdown(report, {})
    assert "1) 의도 충족 — 1/1: 2.31, 2/1: 2.53, 세트: 2.42\n" in page
    assert "2) 정확성 — 1/1: 2.31, 2/1: 2.53, 세트: 2.42\n" in page
    assert "3) 일관성 — 3.63\n" in page
    assert "4) 응답 속도 (단일) — 1/1: 9.69초 / 2.85, 2/1: 9.42초 / 3.05, 세트: 9.56초 / 2.95\n" in page
    assert "5) 안정성 — 5.00\n" in page
    assert report["results"]["rounds"] == real.report["results"]["rounds"]


def test_the_default_readings_print_bands_and_zero_scores(real: Evaluation) -> None:
    """As specified, speed is the band of the mean and stability counts zero scores."""
    page = evaluator.views.markdown(real.report, {"lang": "ko"})
    assert "4) 응답 속도 (단일) — 1/1: 9.69초 / 3, 2/1: 9.42초 / 3, 세트: 9.56초 / 3\n" in page
    assert "5) 안정성 — 3.85\n" in page


def test_the_answer_does_not_depend_on_the_cuts(real: Evaluation) -> None:
    """One chunk or many, the same report and the same record lines."""
    cut = evaluate_files(evaluator, [DATA], chunk_size=7)
    assert cut.report == real.report
    assert cut.lines == real.lines
