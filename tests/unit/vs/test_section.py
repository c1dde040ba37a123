"""The report's section: the specified result format, the level tiles, issues and remedies."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from evalq.evalcore.evaluators.vs import evaluator, results_document
from evalq.evalcore.evaluators.vs.score import LOW_SPREAD, REMEDIES
from evalq.evalcore.views.metrics import samples
from tests.unit.vs.helpers import (
    ENHANCED,
    FULL,
    LIGHT,
    PARAMS,
    detail,
    entry,
    evaluated,
    good_output,
    line,
    runs_of,
    with_value,
    without,
)

NO_PHASE_3 = with_value(good_output(), "vs_metadata.phase_executed", [0, 1, 2, 4, 5])


def results(folder: Path, lines: list[bytes], **params: Any) -> dict[str, Any]:
    return dict(evaluated(folder, lines, {**PARAMS, **params}).report["results"])


def test_totals_count_tests_and_errors_apart(tmp_path: Path) -> None:
    """The pass rate is passed over passed and failed; errors, of known cases or not, are beside it.

    So is the case that nothing was recorded of: it is a test without an output, and not one that is passed over.
    """
    lines = [line("F", 0, good_output()), line("F", 1, NO_PHASE_3), line("E", 0, good_output()), line("F", 2, 5), b"{"]
    found = results(tmp_path, lines)
    run = found["test_run"]
    assert (run["total_tests"], run["passed"], run["failed"], run["errors"]) == (6, 2, 1, 3)
    assert found["cases"] == {"total": 3, "answered": 2, "unrecorded": 1}
    assert found["pass_rate"] == 2 / 3
    assert set(run) == {"total_tests", "passed", "failed", "errors", "summary", "detailed_results"}
    beside = {"cases", "pass_rate", "diversity", "collapse_specified", "collapse_nowhere", "mode_collapse"}
    assert set(found) == {"test_run", *beside}


def test_summary_of_levels(tmp_path: Path) -> None:
    """Tiles are shares and means over a level's tests; what does not apply to a level is null."""
    poor = with_value(good_output(), "self_critique", {"weaknesses": [1, 2]})
    lines = [line("F", 0, NO_PHASE_3), line("F", 1, poor), line("E", 0, good_output()), line("L", 0, good_output())]
    summary = results(tmp_path, lines)["test_run"]["summary"]
    assert set(summary) == {"full_vs", "enhanced_vs", "light_vs"}
    full = summary["full_vs"]
    issues = full.pop("issues")
    assert full == {
        "agents_tested": 1,
        "pass_rate": 0.0,
        "avg_t_score_diversity": pytest.approx(0.6),
        "phase_completion": 0.5,
        "avg_self_critique_quality": 0.75,
    }
    assert issues == [
        {"agent": FULL, "issue": "Phase 3 missing", "tests": 1},
        {"agent": FULL, "issue": "Self-critique lacks strengths, improvement suggestions", "tests": 1},
    ]
    assert summary["enhanced_vs"]["avg_self_critique_quality"] is None
    assert summary["light_vs"] == {
        "agents_tested": 1,
        "pass_rate": 1.0,
        "avg_t_score_diversity": None,
        "phase_completion": 1.0,
        "avg_self_critique_quality": None,
        "issues": [],
    }


def test_an_untested_level_has_no_rates(tmp_path: Path) -> None:
    """No agent, no number: null, not zero."""
    summary = results(tmp_path, [line("F", 0, good_output())])["test_run"]["summary"]["light_vs"]
    assert (summary["agents_tested"], summary["pass_rate"], summary["phase_completion"]) == (0, None, None)


def test_a_narrow_spread_is_an_issue_of_its_agent(tmp_path: Path) -> None:
    """Below the least mean spread the agent is named, though every test of it passed; the bound is a parameter."""
    narrow = good_output()
    narrow["vs_metadata"]["t_scores"] = [
        {"option": "a", "score": 0.8, "rationale": "r"},
        {"option": "b", "score": 0.55, "rationale": "r"},
    ]
    lines = [line("F", 0, narrow), line("E", 0, good_output())]
    summary = results(tmp_path, lines)["test_run"]["summary"]
    assert summary["full_vs"]["pass_rate"] == 1.0
    assert summary["full_vs"]["issues"] == [{"agent": FULL, "issue": LOW_SPREAD, "tests": 1}]
    assert summary["enhanced_vs"]["issues"] == []
    narrow["vs_metadata"]["t_scores"][0]["score"] = 0.75
    narrow["vs_metadata"]["t_scores"][1]["score"] = 0.5
    lines[0] = line("F", 0, narrow)
    assert results(tmp_path, lines, min_t_score_spread=0.25)["test_run"]["summary"]["full_vs"]["issues"] == []


def test_spreads_of_impossible_scores_stay_out_of_the_mean(tmp_path: Path) -> None:
    """A score of 1e300 breaks the contract; it must not lift its level's average over the bound."""
    wild = with_value(good_output(), "vs_metadata.t_scores", [{"score": 1e300}, {"score": 0.1}])
    summary = results(tmp_path, [line("F", 0, wild), line("F", 1, good_output())])["test_run"]["summary"]
    assert summary["full_vs"]["avg_t_score_diversity"] == pytest.approx(0.6)


def test_detailed_results_of_cases(tmp_path: Path) -> None:
    """A passed case has metrics alone; a failed one its commonest issues with counts and one remedy."""
    lines = [line("F", n, NO_PHASE_3) for n in range(2)]
    lines += [line("F", 2, without(NO_PHASE_3, "provenance")), line("L", 0, good_output())]
    found = evaluated(tmp_path, lines)
    assert detail(found, "L") == {
        "test_id": "L",
        "agent": LIGHT,
        "status": "PASSED",
        "passes": 1,
        "of": 1,
        "metrics": {
            "vs_phase_score": 1.0,
            "t_score_diversity": None,
            "self_critique_quality": None,
            "provenance_completeness": 1.0,
        },
    }
    failed = detail(found, "F")
    assert (failed["status"], failed["passes"], failed["of"]) == ("FAILED", 0, 3)
    assert failed["metrics"]["vs_phase_score"] == pytest.approx(5 / 6)
    assert failed["metrics"]["provenance_completeness"] == pytest.approx(2 / 3)
    assert failed["metrics"]["self_critique_quality"] == 1.0
    assert failed["metrics"]["t_score_diversity"] == pytest.approx(0.6)
    assert (
        failed["issue"] == "Phase 3 (Low-Typicality Selection) not executed (3 of 3); "
        "Provenance lacks sources, reasoning trace, assumptions (1 of 3)"
    )
    assert failed["remediation"] == REMEDIES["phases"]


def test_a_single_test_needs_no_count(tmp_path: Path) -> None:
    """With one repeat a case's issue reads as in the specification's example."""
    assert (
        detail(evaluated(tmp_path, [line("F", 0, NO_PHASE_3)]), "F")["issue"]
        == "Phase 3 (Low-Typicality Selection) not executed"
    )


def test_two_tests_are_counted(tmp_path: Path) -> None:
    """From two tests on an issue says in how many it was found."""
    found = evaluated(tmp_path, [line("F", 0, NO_PHASE_3), line("F", 1, good_output())])
    assert detail(found, "F")["issue"] == "Phase 3 (Low-Typicality Selection) not executed (1 of 2)"


def test_missing_and_unreadable_t_scores_are_two_issues(tmp_path: Path) -> None:
    """None at all, and some that are no numbers, are distinguished in the summary."""
    none = with_value(good_output(), "vs_metadata.t_scores", [])
    text = with_value(good_output(), "vs_metadata.t_scores", [{"option": "a", "score": "low", "rationale": "r"}])
    lines = [line("E", 0, none), line("E", 1, text), line("E", 2, none)]
    issues = results(tmp_path, lines)["test_run"]["summary"]["enhanced_vs"]["issues"]
    assert {"agent": ENHANCED, "issue": "No T-scores provided", "tests": 2} in issues
    assert {"agent": ENHANCED, "issue": "T-scores unreadable", "tests": 1} in issues


def test_missing_and_unreadable_critiques_are_two_issues(tmp_path: Path) -> None:
    """As with T-scores: an absent self-critique is one issue, one of another kind is another."""
    lines = [line("F", n, without(good_output(), "self_critique")) for n in range(2)]
    lines.append(line("F", 2, with_value(good_output(), "self_critique", "all fine")))
    issues = results(tmp_path, lines)["test_run"]["summary"]["full_vs"]["issues"]
    assert {"agent": FULL, "issue": "No self-critique provided", "tests": 2} in issues
    assert {"agent": FULL, "issue": "Self-critique unreadable", "tests": 1} in issues


def test_cases_without_any_output_are_shown(tmp_path: Path) -> None:
    """A case that was never recorded, and one with unreadable outputs only, are ERROR and have no data."""
    found = evaluated(tmp_path, [line("F", 0, None), line("F", 1, None), line("E", 0, good_output())])
    assert detail(found, "F")["status"] == detail(found, "L")["status"] == "ERROR"
    assert detail(found, "F")["issue"] == "No readable output in 2 runs"
    assert detail(found, "L")["issue"] == "No output was recorded"
    assert detail(found, "L")["remediation"] == REMEDIES["output"]
    assert entry(found, "F")["verdict"] == entry(found, "L")["verdict"] == "no_data"
    assert entry(found, "F")["runs"] == {"total": 2, "valid": 0, "errors": 2}
    assert found.report["results"]["collapse_nowhere"]["verdict"] == "no_repeats"
    summary = found.report["results"]["test_run"]["summary"]
    assert summary["full_vs"]["issues"] == [{"agent": FULL, "issue": "No readable output", "tests": 2}]
    assert summary["light_vs"]["issues"] == [{"agent": LIGHT, "issue": "No output was recorded", "tests": 1}]


def test_an_entry_has_the_documented_keys(tmp_path: Path) -> None:
    """Agent, case, the five specified keys, runs, passes, and the block."""
    options = ["a"] * 47 + ["b"] * 3
    found = entry(evaluated(tmp_path, [*runs_of("F", options), line("F", 50, {})]), "F")
    assert set(found) == {
        "agent",
        "case",
        "unique_recommendations",
        "total_runs",
        "diversity_score",
        "mode_collapse_detected",
        "most_common",
        "runs",
        "passes",
        "of",
        "distinct",
        "mode_share",
        "collision_probability",
        "effective_modes",
        "entropy_bits",
        "coverage",
        "chao1",
        "verdict",
        "p_collapsed",
        "runs_to_decide",
        "fuzzy",
    }
    assert (found["agent"], found["unique_recommendations"], found["total_runs"]) == (FULL, 2, 50)
    assert found["runs"] == {"total": 51, "valid": 50, "errors": 1}
    assert (found["passes"], found["of"]) == (50, 51)
    assert (found["mode_collapse_detected"], found["verdict"]) == (False, "collapsed")
    assert found["most_common"] == [["a", 47], ["b", 3]]


@pytest.mark.parametrize(
    ("options", "detected", "verdict"),
    [
        (["a"] * 47 + ["b"] * 3, False, "collapsed"),
        (["a"] * 47 + ["b"] * 2 + ["c"], True, "collapsed"),
        ([f"option {n}" for n in "abcdefghij"], False, "diverse"),
        (["a"], None, "no_repeats"),
    ],
)
def test_verdicts_from_recorded_outputs(
    tmp_path: Path, options: list[str], detected: bool | None, verdict: str
) -> None:
    """The specified number and the verdict of four telling sets of runs, end to end."""
    found = entry(evaluated(tmp_path, runs_of("F", options)), "F")
    assert (found["mode_collapse_detected"], found["verdict"]) == (detected, verdict)


def test_diversity_is_the_mean_of_the_specified_scores(tmp_path: Path) -> None:
    """Over the cases that have one: here 1 and 0, the third case has no data."""
    found = results(tmp_path, [*runs_of("F", ["a", "b"]), *runs_of("E", ["a", "a"])])
    assert found["diversity"] == 0.5
    assert results(tmp_path, [line("F", 0, None)])["diversity"] is None


def test_thresholds_are_parameters(tmp_path: Path) -> None:
    """Another collapse share, another bound on evenness, more of the most common: the report follows."""
    options = ["a"] * 30 + ["b"] * 10 + ["c"] * 5 + ["d"] * 5
    rule = {"collapse_share": 0.4, "detected_below": 0.9, "most_common": 1}
    found = entry(evaluated(tmp_path, runs_of("F", options), {**PARAMS, "collapse": rule}), "F")
    assert (found["verdict"], found["mode_collapse_detected"], len(found["most_common"])) == ("collapsed", True, 1)
    strict = {**PARAMS, "self_critique": {"strengths": 3, "pass_at": 1.0}, "provenance": {"sources": 2}}
    issue = detail(evaluated(tmp_path, runs_of("F", ["a"]), strict), "F")["issue"]
    assert issue == "Provenance lacks sources; Self-critique lacks strengths"


def test_the_result_document_is_in_the_specified_order(tmp_path: Path) -> None:
    """The timestamp first, which the report itself lacks, then totals, summary and details; nothing is lost."""
    report = evaluated(tmp_path, [line("F", 0, NO_PHASE_3)]).report
    found = report["results"]
    document = results_document(report, "2026-03-02T09:00:00Z")
    run = document["test_run"]
    beside = [key for key in found if key != "test_run"]
    assert list(document) == ["test_run", *beside, "inputs", "records", "faults"]
    assert list(run["summary"]) == ["full_vs", "enhanced_vs", "light_vs"]
    assert list(run["summary"]["full_vs"])[:3] == ["agents_tested", "pass_rate", "avg_t_score_diversity"]
    keys = ["timestamp", "total_tests", "passed", "failed", "errors", "summary", "detailed_results"]
    assert list(run) == keys
    assert list(run["detailed_results"][0]) == [
        "test_id",
        "agent",
        "status",
        "passes",
        "of",
        "metrics",
        "issue",
        "remediation",
    ]
    assert run == {"timestamp": "2026-03-02T09:00:00Z", **found["test_run"]}


def test_one_output_a_case_has_no_repeats_in_either_reading(tmp_path: Path) -> None:
    """Neither the specified flag nor the verdict says that a single run is collapsed, and no diversity is 0 by it."""
    found = evaluated(tmp_path, [line(case, 0, good_output(case)) for case in "FEL"])
    assert {item["verdict"] for item in found.report["results"]["mode_collapse"]} == {"no_repeats"}
    assert found.report["results"]["collapse_specified"] == {"status": "no_repeats", "cases": 0, "detected": []}
    assert found.report["results"]["collapse_nowhere"]["verdict"] == "no_repeats"
    assert found.report["results"]["diversity"] is None
    page = evaluator.views.markdown(found.report, {})
    assert "Mode collapse status: no repeats as specified" in page
    assert "Collapse nowhere: no repeats," in page
    assert f"| F | {FULL} | 1 of 1 | no repeats | no repeats |" in page
    gauges = {sample.metric for sample in samples(evaluator.views.metrics, found.report)}
    assert not gauges & {"evalq_vs_collapse", "evalq_vs_collapse_detected"}


def test_the_specified_flag_and_the_verdict_are_gauges_side_by_side(tmp_path: Path) -> None:
    """47 of one and 3 of another are not detected as specified, and yet collapsed."""
    found = evaluated(tmp_path, runs_of("F", ["a"] * 47 + ["b"] * 3))
    values = {sample.metric: sample.value for sample in samples(evaluator.views.metrics, found.report)}
    assert (values["evalq_vs_collapse_detected"], values["evalq_vs_collapse"]) == (0.0, 1.0)
    assert (values["evalq_vs_cases"], values["evalq_vs_cases_answered"]) == (3.0, 1.0)
    assert f"| F | {FULL} | 50 of 50 | not detected | collapsed |" in evaluator.views.markdown(found.report, {})


@pytest.mark.parametrize(("high", "low", "narrow"), [(0.7, 0.4, False), (0.9, 0.6, False), (0.7, 0.41, True)])
def test_a_spread_is_held_against_its_threshold_as_a_decimal(
    tmp_path: Path, high: float, low: float, narrow: bool
) -> None:
    """0.7 - 0.4 is 0.3, which is not below 0.3, though the difference of the doubles is."""
    output = with_value(good_output(), "vs_metadata.t_scores", [{"option": "u", "score": s} for s in (high, low)])
    issues = results(tmp_path, [line("F", 0, output)])["test_run"]["summary"]["full_vs"]["issues"]
    assert ("T-Score diversity below threshold" in [issue["issue"] for issue in issues]) is narrow


def test_several_missing_phases_are_each_named(tmp_path: Path) -> None:
    """By number and name in the detailed result, in short in the summary."""
    output = with_value(good_output(), "vs_metadata.phase_executed", [0, 1, 4, 5])
    found = evaluated(tmp_path, [line("F", 0, output)])
    named = "Phases 2 (Long-Tail Sampling), 3 (Low-Typicality Selection) not executed"
    assert detail(found, "F")["issue"] == named
    assert next(found.records())["issue"] == named
    issues = found.report["results"]["test_run"]["summary"]["full_vs"]["issues"]
    assert "Phases 2, 3 missing" in [issue["issue"] for issue in issues]


def test_a_single_run_has_no_share_to_draw(tmp_path: Path) -> None:
    """Beside a case with two, which has one, and says in words what it was decided to be."""
    lines = [line("F", 0, good_output()), line("F", 1, good_output()), line("E", 0, good_output())]
    report = evaluated(tmp_path, lines, PARAMS).report
    (drawn,) = (
        chart for chart in evaluator.views.charts if any(mark.note == "inconclusive" for mark in chart.marks(report))
    )
    assert [mark.label for mark in drawn.marks(report)] == ["F"]
