"""Prometheus beside real runs with killed workers: counters are the reports', and every question has an answer."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import pytest

from evalq.evalcore.contract import plugins
from evalq.evalcore.contract.evaluator import Evaluator
from tests.integration.harness import wait_until
from tests.live.prometheus import PROGRAM
from tests.live.questions import SILENT, Question
from tests.live.scene import Scene, playing
from tests.live.stage import EVALUATORS

SUITE = "nightly"


@pytest.fixture(scope="module")
def scene(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    """Two rounds of all five evaluators, a worker killed in each, a sweep of live calls, and a deadly record."""
    if PROGRAM is None:
        missing = "prometheus is not installed: sh tests/programs.sh"
        if os.environ.get("CI"):
            pytest.fail(missing)
        pytest.skip(missing)
    with playing(tmp_path_factory.mktemp("live")) as played:
        played.stage.round(SUITE)
        played.stage.round(SUITE)
        played.stage.sweep("live")
        played.stage.deadly(SUITE)
        played.stage.follow("production")
        played.settle()
        yield played


def test_counters_are_those_of_the_run_folders(scene: Scene) -> None:
    """Records, chunks, dead letters and runs, by evaluator and suite, although workers were killed."""
    assert scene.wrong_counters() == []
    assert scene.stage.truth().dead["hazards", SUITE] == 1
    (again,) = scene.now('sum(evalq_chunks_reconciled_total{reason="lease_died"})')
    assert again.points[0][1] >= 1


def test_a_counter_that_is_one_off_is_noticed(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    """The comparison above can fail."""
    truth = scene.stage.truth()
    truth.records["vs", SUITE] += 1
    monkeypatch.setattr(type(scene.stage), "truth", lambda self: truth)
    assert [line.partition(":")[0] for line in scene.wrong_counters()] == [
        "evalq_records_submitted_total of ('vs', 'nightly')",
        "evalq_records_committed_total of ('vs', 'nightly')",
    ]


def test_every_question_has_an_answer(scene: Scene) -> None:
    """Of each panel, annotation, variable, recording rule and alert; what has none is listed with the reason."""
    assert scene.silent() == []


def test_a_question_without_an_answer_is_noticed(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    """And so is one that is listed as silent and is not, and a listed one that nobody asks."""
    asked = [
        Question("a panel", "evalq_vs_tests", over_time=False),
        Question("another", "evalq_vs_tests > 1e9", over_time=True),
        Question("panel 'Divergent answers'", "evalq_ledger_up", over_time=False),
    ]
    monkeypatch.setattr("tests.live.scene.questions", lambda: asked)
    assert scene.silent() == [
        "another: no answer: evalq_vs_tests > 1e9",
        "panel 'Divergent answers': is answered: evalq_ledger_up",
        *(f"nothing is asked like {pattern}" for pattern in SILENT if "Divergent" not in pattern),
    ]


def test_quality_is_that_of_the_newest_reports(scene: Scene) -> None:
    """Every sample of each report, to the last bit; the run before it stands at position 2."""
    for name, report in scene.stage.reports(SUITE, EVALUATORS).items():
        evaluator: Evaluator[Any, Any] = plugins.get(name)
        for metric in evaluator.views.metrics:
            shown = {
                tuple(series.labels.get(label, "") for label in metric.labels): series.points[0][1]
                for series in scene.now(f'{metric.name}{{suite="{SUITE}"}}')
            }
            assert shown == {sample.labels: sample.value for sample in metric.samples(report)}
            if metric.recent:
                (count,) = scene.now(f"count(count by (position) ({metric.name}_recent))")
                assert count.points[0][1] == 2


def test_the_runs_that_ended_are_known_by_their_ids_and_no_series_has_one(scene: Scene) -> None:
    """Exemplars of the counter: the newest run of each suite that was there at a scrape, at the time it ended."""
    asked = 'evalq_runs_ended_total{state="done"}'
    found = {
        (series["evaluator"], series["suite"], message["run"])
        for series, message, at in scene.prometheus.exemplars(asked, scene.start, scene.end)
        if scene.start - 1 <= at <= scene.end
    }
    assert {(name, SUITE, run) for name, run in scene.stage.newest(SUITE).items()} <= found
    assert not [series for series in scene.now(asked) if "run" in series.labels]


def test_alerts_fire_for_what_happened_and_for_nothing_else(scene: Scene) -> None:
    """A dead letter, and rows that fail for stability; workers that were killed and replaced wake nobody."""

    def firing() -> set[str]:
        return {series.labels["alertname"] for series in scene.prometheus.now('ALERTS{alertstate="firing"}')}

    wait_until(lambda: "EvalqDeadLetters" in firing(), "the dead letter is told")
    assert firing() <= {"EvalqDeadLetters", "EvalqStabilityFailures", "EvalqCollapseDetected", "EvalqThresholdMissed"}
