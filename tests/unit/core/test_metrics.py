"""Declarations of what is watched: reading values out of reports, and telling what does not fit together."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from evalq.evalcore.contract import plugins
from evalq.evalcore.contract.evaluator import Evaluator
from evalq.evalcore.fold import evaluate_files
from evalq.evalcore.views.metrics import LABELS, Metric, MetricSample, Panel, Plot, Threshold, panel_faults, samples
from tests.samples import sampled

ROOT = Path(__file__).resolve().parents[3]
REPORT: dict[str, Any] = {
    "results": {
        "rate": 0.25,
        "ok": True,
        "none": None,
        "verdict": "diverse",
        "levels": {"full": {"rate": 1}, "light": {"rate": None}, "odd": {}},
        "cases": [{"agent": "a", "case": "c2", "n": 3}, {"agent": "a", "case": "c1", "n": 5}],
    }
}


def _values(path: str, *labels: str, **more: Any) -> list[tuple[tuple[str, ...], float]]:
    metric = Metric("evalq_x_y", "Help.", more.pop("unit", "number"), path, labels, **more)
    return [(sample.labels, sample.value) for sample in metric.samples(REPORT)]


def test_a_path_leads_to_one_value_and_what_is_missing_has_none() -> None:
    """Keys and dots; true is 1; null, a missing key and text without a state have no sample."""
    assert _values("rate") == [((), 0.25)]
    assert _values("ok") == [((), 1.0)]
    for path in ("none", "missing", "rate.deeper", "verdict", "missing.{level}", "missing[case].n"):
        assert _values(path, *re.findall(r"[{\[](\w+)", path)) == []


def test_braces_and_brackets_give_a_sample_for_each_label() -> None:
    """Objects by key, lists by the keys of their elements, sorted by labels; a null leaves only its own out."""
    assert _values("levels.{level}.rate", "level") == [(("full",), 1.0)]
    assert _values("cases[agent,case].n", "agent", "case") == [(("a", "c1"), 5.0), (("a", "c2"), 3.0)]
    assert _values("cases[agent,case].n", "case", "agent") == [(("c1", "a"), 5.0), (("c2", "a"), 3.0)]


def test_of_too_many_the_highest_are_kept() -> None:
    """``most`` bounds how many samples a report can give."""
    assert _values("cases[agent,case].n", "agent", "case", most=1) == [(("a", "c1"), 5.0)]


def test_states_turn_words_into_numbers() -> None:
    """A text that is among the states has its number."""
    assert _values("verdict", unit="state", states=(("diverse", 0.0), ("collapsed", 1.0))) == [((), 0.0)]


@pytest.mark.parametrize(
    "wrong",
    [
        {"name": "vs_pass"},
        {"name": "evalq_Vs"},
        {"labels": ("run",)},
        {"unit": "state"},
        {"states": (("a", 1.0),)},
    ],
)
def test_a_declaration_that_cannot_be_exported_is_refused(wrong: dict[str, Any]) -> None:
    """Names in Prometheus' form, labels from the bounded list, states with the unit state only."""
    with pytest.raises(ValueError, match="metric"):
        Metric(**{"name": "evalq_x", "help": "Help.", "unit": "number", "path": "rate", **wrong})


def test_a_wrong_path_is_reported() -> None:
    """A step of no known form is an error, not an empty answer."""
    with pytest.raises(ValueError, match="no step of a path"):
        _values("levels.{level}x", "level")


PANEL = Panel("Rate", "A rate.", "share", "stat", (Plot("evalq_x_rate", ("level",)),))
METRIC = Metric("evalq_x_rate", "Help.", "share", "levels.{level}.rate", ("level",))


def _panel(**changed: Any) -> Panel:
    given = {field: getattr(PANEL, field) for field in PANEL.__struct_fields__}
    return Panel(**{**given, **changed})


@pytest.mark.parametrize(
    ("panel", "said"),
    [
        (PANEL, ""),
        (_panel(title=""), "needs a title"),
        (_panel(description=""), "needs a title"),
        (_panel(width=25), "a width of 1 to 24"),
        (_panel(unit="count"), "its unit is count, that of evalq_x_rate is share"),
        (_panel(unit="count", plots=(Plot("evalq_x_rate", legend="n", thresholds=(Threshold(None, "good"),)),)), ""),
        (_panel(plots=(Plot("evalq_x_rate", thresholds=(Threshold(1, "good"),)),)), "thresholds begin with one from"),
        (_panel(plots=(Plot("evalq_x_rat"),)), "no metric evalq_x_rat"),
        (_panel(plots=(Plot("evalq_x_rate", ("agent",)),)), "has no label agent"),
        (_panel(plots=(Plot("evalq_x_rate", ("suite", "target")),)), ""),
        (_panel(plots=(Plot("evalq_x_rate", where=(("case", "1"),)),)), "has no label case"),
        (_panel(plots=(Plot("evalq_x_rate", recent=True),)), "not kept for the last runs"),
        (_panel(plots=(Plot("evalq_x_rate", ("suite",), beside="evalq_x_rate"),)), ""),
        (_panel(plots=(Plot("evalq_x_rate", ("suite",), beside="evalq_x_other"),)), "evalq_x_other is not there"),
        (_panel(words=((1, "yes"),)), "words for numbers that are no state"),
        (_panel(thresholds=(Threshold(0.5, "good"),)), "thresholds begin with one from None"),
        (_panel(thresholds=(Threshold(None, "bad"), Threshold(0.5, "good"), Threshold(0.2, "good"))), "and rise"),
    ],
)
def test_what_does_not_fit_together_is_reported(panel: Panel, said: str) -> None:
    """Each fault is a sentence; a panel that fits gives none."""
    faults = list(panel_faults("x", [METRIC], [panel]))
    assert bool(faults) == bool(said), faults
    assert said in " ".join(faults)


def test_names_are_of_the_evaluator_and_unique() -> None:
    """A metric carries its evaluator's name, and neither a metric nor a title comes twice."""
    assert "evalq_x_rate does not begin with evalq_yy_" in list(panel_faults("yy", [METRIC], []))
    assert "evalq_x_rate is declared twice" in list(panel_faults("x", [METRIC, METRIC], []))
    assert "panel 'Rate' is declared twice" in list(panel_faults("x", [METRIC], [PANEL, PANEL]))


JUDGED = {"checks": {"evalq_checks_judge_votes_lost", "evalq_checks_judge_cost", "evalq_checks_plain_pass_rate"}}
"""Of judges, whom no check of the sample asks: tests/unit/checks/test_judged.py holds these."""


@pytest.mark.parametrize("name", plugins.built_in())
def test_every_declared_metric_has_values_in_a_sample_report(name: str, tmp_path: Any) -> None:
    """No path of evalq's own evaluators leads nowhere, and each metric is drawn by a panel."""
    evaluator: Evaluator[Any, Any] = plugins.get(name)
    request = evaluator.command.request(sampled(evaluator, tmp_path, 300))
    report = evaluate_files(evaluator, request.inputs, request.params).report
    shown = {sample.metric for sample in samples(evaluator.views.metrics, report)} | JUDGED.get(name, set())
    assert shown == {metric.name for metric in evaluator.views.metrics}
    drawn = {plot.metric for panel in evaluator.views.panels for plot in panel.plots}
    # The dashboard of followed traces draws the intervals.
    traces = set(re.findall(r"evalq_\w+", (ROOT / "grafana/dashboards/traces.json").read_text()))
    assert drawn <= shown <= drawn | traces
    recent = {metric.name for metric in evaluator.views.metrics if metric.recent}
    assert recent == {plot.metric for panel in evaluator.views.panels for plot in panel.plots if plot.recent}
    assert any(panel.overview for panel in evaluator.views.panels)
    for metric in evaluator.views.metrics:
        assert set(metric.labels) <= set(LABELS)


def test_plan_agent_files_are_distinguished_by_input(tmp_path: Any) -> None:
    """One file and several give the same metrics, labelled with the file's name."""
    evaluator: Evaluator[Any, Any] = plugins.get("planagent")
    sampled(evaluator, tmp_path, 40)
    first, second = (tmp_path / "plan_agent_sample.csv").rename(tmp_path / "a.csv"), tmp_path / "b.csv"
    second.write_bytes(first.read_bytes())
    metric = evaluator.views.metrics[0]
    one = metric.samples(evaluate_files(evaluator, [str(first)]).report)
    both = metric.samples(evaluate_files(evaluator, [str(first), str(second)]).report)
    assert [sample.labels for sample in both] == [("a.csv",), ("b.csv",)]
    assert one == [MetricSample(metric.name, ("a.csv",), both[0].value)]
