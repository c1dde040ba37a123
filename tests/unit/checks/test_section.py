"""The report of checks: rates by case, tag and check, thresholds, stopping, what is left out and what is missing."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from evalq.evalcore.errors import ConfigError, UsageError
from evalq.evalcore.evaluators.checks import evaluator
from evalq.evalcore.evaluators.checks.inputs import stopping_for
from evalq.evalcore.fold import evaluate_files
from evalq.evalcore.statistics.rates import exact_interval
from tests.unit.checks.helpers import evaluated, line, params_of, stop_mark


def results(folder: Path, lines: list[bytes], **params: Any) -> dict[str, Any]:
    """``results`` of a run over ``lines``."""
    found: dict[str, Any] = evaluated(folder, lines, params_of(**params)).report["results"]
    return found


def test_rates_are_means_over_cases_by_their_weights(tmp_path: Path) -> None:
    """Not over outputs: a case that was asked more often counts no more."""
    found = results(tmp_path, [*(line("a", r) for r in range(8)), line("b", 0, "no"), line("b", 1)])
    assert found["outputs"] == {"total": 10, "passed": 9, "failed": 1, "errors": 0}
    assert found["cases"] == {"total": 3, "answered": 2, "unrecorded": 1}
    assert found["pass_rate"] == pytest.approx((1 * 1.0 + 3 * 0.5) / 4)
    tags = {entry["tag"]: entry for entry in found["by_tag"]}
    assert tags["y"]["pass_rate"] == 0.5
    assert (tags["y"]["low"], tags["y"]["high"]) == exact_interval(1, 2)
    assert tags["x"]["outputs"] == {"passed": 9, "failed": 1, "errors": 0}
    checks = {entry["check"]: entry for entry in found["by_check"]}
    assert checks["contains"]["outputs"] == {"passed": 9, "failed": 1, "errors": 0}
    assert checks["not-contains"]["pass_rate"] == 0.5


def test_a_case_has_exact_intervals_of_all_three_numbers(tmp_path: Path) -> None:
    """The unbiased estimate, and what the bounds of the pass rate come to."""
    found = results(tmp_path, [line("a", r, "yes" if r < 8 else "no") for r in range(10)], ks=[1, 3])
    entry = found["by_case"][0]
    low, high = exact_interval(8, 10)
    assert entry["pass_rate"] == {"value": 0.8, "low": low, "high": high}
    at, hat = entry["pass_at"][1], entry["pass_hat"][1]
    assert (at["k"], at["value"], at["low"]) == (3, 1.0, pytest.approx(1 - (1 - low) ** 3))
    assert (hat["value"], hat["high"]) == (pytest.approx(56 / 120), pytest.approx(high**3))


def test_thresholds_hold_fail_or_are_undecided(tmp_path: Path) -> None:
    """Each by its exact interval; together by Holm, and only where all do."""

    def case(name: str, **rates: float) -> dict[str, Any]:
        return {
            "id": name,
            "checks": [{"contains": "yes"}],
            "thresholds": {"rates": [{"number": number.replace("_", "-"), "least": r} for number, r in rates.items()]},
        }

    cases = [case("good", pass_rate=0.5), case("bad", pass_rate=0.9), case("thin", pass_rate=0.5), case("none")]
    cases += [case("hat", **{"pass^2": 0.9}), case("never", pass_rate=1.0), case("silent", pass_rate=0.1)]
    lines = [line("good", r) for r in range(20)] + [line("bad", r, "no") for r in range(20)]
    lines += [line("thin", 0), line("hat", 0), line("never", 0), line("never", 1, "no")]
    found = results(tmp_path, lines, cases=cases)
    said = {entry["case"]: [each["verdict"] for each in entry["thresholds"]] for entry in found["by_case"]}
    assert said == {
        "good": ["holds"],
        "bad": ["fails"],
        "thin": ["inconclusive"],
        "none": [],
        "hat": ["inconclusive"],
        "never": ["fails"],
        "silent": ["no_data"],
    }
    assert found["thresholds"]["verdict"] == "fails"
    assert found["thresholds"]["failed"] == ["never", "bad"]
    everywhere = results(tmp_path, [line("good", r) for r in range(20)], cases=cases[:1])
    assert everywhere["thresholds"]["verdict"] == "holds"
    assert results(tmp_path, lines[-1:], cases=cases[3:4] + cases[5:6], pass_rate=0.5)["thresholds"]["total"] == 2


def test_the_first_of_several_outputs_of_a_repeat_counts(tmp_path: Path) -> None:
    """As in a live sweep; the others are listed, and counted nowhere."""
    run = evaluated(tmp_path, [line("a", 0, "no"), line("a", 0, "yes"), line("a", 1, "yes", cost=1)])
    found = run.report["results"]
    assert found["by_case"][0]["outputs"] == {"passed": 1, "failed": 1, "errors": 0}
    assert run.report["records"] == {"total": 3, "scored": 2, "unscored": 1, "errors": 0, "dead": 0}
    assert found["cost"]["count"] == 1
    assert any("came before; left out" in fault["reason"] for fault in run.report["faults"])
    (notice,) = [each for each in evaluator.views.notices(run.report) if "came before" in each]
    assert notice.startswith("1 of 3 outputs are not counted")
    assert "its own number in `repeat`" in notice
    once = evaluated(tmp_path, [line("a", 0, "yes"), line("a", 1, "yes")])
    assert not any("came before" in each for each in evaluator.views.notices(once.report))


def test_errors_are_in_no_rate(tmp_path: Path) -> None:
    """An output without a verdict lowers nothing and raises nothing."""
    found = results(tmp_path, [line("a", 0), b'{"case": "a", "repeat": 1, "error": "timeout"}', b"{", line("?", 0)])
    assert found["outputs"] == {"total": 4, "passed": 1, "failed": 0, "errors": 3}
    assert found["pass_rate"] == 1.0


def test_what_stopping_saved_is_shown_where_a_line_says_so(tmp_path: Path) -> None:
    """The verdict spends its error over the calls planned; the rate has a confidence sequence."""
    cases = [
        {"id": "c", "checks": [{"contains": "yes"}], "thresholds": {"rates": [{"number": "pass-rate", "least": 0.5}]}}
    ]
    lines = [line("c", r, **stop_mark(100)) for r in range(20)]
    found = results(tmp_path, lines, cases=cases)
    assert found["stopping"] == {
        "rule": "when-decided",
        "alpha": 0.025,
        "cases": 1,
        "decided": 1,
        "undecided": 0,
        "calls_planned": 100,
        "calls_made": 20,
        "calls_saved": 80,
    }
    entry = found["by_case"][0]
    assert entry["stop"] == {"rule": "when-decided", "of": 100}
    assert entry["pass_rate"]["low"] < exact_interval(20, 20).low
    assert "stopping" not in results(tmp_path, [line("c", 0)], cases=cases)


def test_cases_that_were_asked_less_often_than_planned_are_known_to_a_comparison(tmp_path: Path) -> None:
    """Since they were decided: how often depends on what they answered. Neither all calls nor no plan is that."""
    cases = [{"id": name, "checks": [{"contains": "yes"}]} for name in ("early", "whole", "free")]
    lines = [line("early", repeat, **stop_mark(9)) for repeat in range(4)]
    lines += [line("whole", repeat, **stop_mark(4)) for repeat in range(4)]
    lines += [line("free", repeat) for repeat in range(4)]
    report = evaluated(tmp_path, lines, params_of(cases)).report
    assert evaluator.measures is not None
    assert evaluator.measures.stopped(report) == ["early"]


def test_what_is_said_on_the_way_is_the_verdict_of_the_report(tmp_path: Path) -> None:
    """After every line: decided exactly where the report of the lines so far has its verdicts."""
    rates = [{"number": "pass-rate", "least": 0.4}, {"number": "pass@2", "least": 0.6}]
    checks = [{"contains": "yes"}]
    cases: list[dict[str, Any]] = [
        {"id": "c", "checks": checks, "thresholds": {"rates": rates}},
        {"id": "d", "checks": checks},
    ]
    params = params_of(cases)
    stopping, lines = stopping_for(params), list[bytes]()
    for number in range(40):
        lines.append(line("c", number // 2 * 2, "yes" if number % 14 else "no", **stop_mark(30)))
        lines.append(line("d", number, **stop_mark(30)))
        stopping.add(lines[-1])
        ended = stopping.add(lines[-2])
        report = evaluated(tmp_path, lines, params).report["results"]["by_case"][0]
        settled = all(each["verdict"] in ("holds", "fails") for each in report["thresholds"])
        assert stopping.decided("c") is settled
        assert ended in (None, "c")
    assert stopping.decided("c")
    assert not stopping.decided("d")


def test_a_selection_needs_a_case_and_outputs_a_cases_file(tmp_path: Path) -> None:
    """What cannot be evaluated is said before anything is."""
    cases = tmp_path / "cases.yaml"
    cases.write_text("cases: [{id: a, expected: x, tags: [t]}]")
    outputs = tmp_path / "o.jsonl"
    outputs.write_bytes(line("a", 0, "x"))
    with pytest.raises(UsageError, match="no case has the tag 'u'"):
        evaluate_files("checks", [cases], options={"outputs": [outputs], "case_tag": "u"})
    with pytest.raises(UsageError, match="needs recorded outputs or a target"):
        evaluate_files("checks", [cases])
    with pytest.raises(ConfigError, match="pass_rate"):
        evaluate_files("checks", [cases], options={"outputs": [outputs], "pass_rate": 2.0})
    run = evaluate_files("checks", [cases], options={"outputs": [outputs], "case_tag": "t", "pass_rate": 0.01})
    assert run.report["results"]["thresholds"]["verdict"] == "holds"
