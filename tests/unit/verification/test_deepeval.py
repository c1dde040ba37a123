"""The metrics inside DeepEval itself, without a network; and what is said where DeepEval is not installed."""

from __future__ import annotations

import asyncio
import importlib
import importlib.util
import os
import socket
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from evalq.evalcore.evaluators.verification import score_verification

# Read by deepeval when it is imported.
os.environ["DEEPEVAL_TELEMETRY_OPT_OUT"] = "YES"

MODULE = "evalq.evalcore.evaluators.verification.deepeval"
GOOD = (
    "Edit a.py, Read a.py: line 3 is new.\n```py\nx = 1\n```\nOutput: `ok`\n"
    "pytest: 3 passed; mypy, ruff, coverage. Verified, confirmed."
)
BAD = "I think it should work. Edit."
INSTALLED = importlib.util.find_spec("deepeval") is not None

needs_deepeval = pytest.mark.skipif(not INSTALLED, reason="deepeval is not installed (pip install 'evalq[deepeval]')")


@pytest.fixture
def offline(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[list[Any]]:
    """No connection succeeds; those that were tried. DeepEval's own files go to a temporary folder."""
    tried: list[Any] = []

    def refuse(self: socket.socket, address: Any) -> None:
        tried.append(address)
        raise OSError("no network here")

    monkeypatch.setattr(socket.socket, "connect", refuse)
    monkeypatch.chdir(tmp_path)
    yield tried
    assert tried == []


@pytest.fixture(autouse=True)
def nothing_left() -> Iterator[None]:
    """No test leaves the made-up package to those that run later, in whatever order they do."""
    yield
    left = sys.modules.get(MODULE)
    assert left is None or left.LLMTestCase is not SimpleNamespace


@pytest.fixture(params=["real", "bare"])
def metrics(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Any:
    """The module with the metrics: on the real package, and on the least of a base class that they need."""
    if request.param == "real":
        if not INSTALLED:
            pytest.skip("deepeval is not installed (pip install 'evalq[deepeval]')")
        return importlib.import_module(MODULE)
    package, base, cases = ModuleType("deepeval"), ModuleType("deepeval.metrics"), ModuleType("deepeval.test_case")
    base.BaseMetric = type("BaseMetric", (), {"success": None, "error": None})  # type: ignore[attr-defined]  # made up
    cases.LLMTestCase = SimpleNamespace  # type: ignore[attr-defined]  # made up
    for module in (package, base, cases):
        monkeypatch.setitem(sys.modules, module.__name__, module)
    monkeypatch.delitem(sys.modules, MODULE, raising=False)
    made = importlib.import_module(MODULE)
    # Not by monkeypatch, which would put this one back, for tests that run later and want the real one.
    del sys.modules[MODULE]
    return made


def _case(metrics: Any, output: str | None) -> Any:
    return metrics.LLMTestCase(input="x", actual_output=output)


@pytest.mark.parametrize("text", [GOOD, BAD])
def test_a_metric_gives_the_score_of_the_text(metrics: Any, text: str) -> None:
    """Score, reason, success and components are those of score_verification, plain, strict and with another set."""
    for metric, strict, patterns in (
        (metrics.VerificationComplianceMetric(), False, "default"),
        (metrics.VerificationComplianceMetric(patterns="hardened"), False, "hardened"),
        (metrics.StrictVerificationComplianceMetric(), True, "default"),
    ):
        expected = score_verification(text, strict=strict, patterns=patterns)
        assert not metric.is_successful()
        for measured in (metric.measure(_case(metrics, text)), asyncio.run(metric.a_measure(_case(metrics, text)))):
            assert measured == metric.score == expected.score
        assert metric.reason == expected.reason
        assert metric.success is metric.is_successful() is expected.success
        assert metric.threshold == expected.threshold
        assert metric.score_breakdown["tool_verification"] == expected.components.tool_verification


def test_the_threshold_is_the_metrics_own(metrics: Any) -> None:
    """A lower one lets a middling text pass; the strict metric keeps to 1 whatever it is given."""
    middling = GOOD + " I think."
    assert metrics.VerificationComplianceMetric(threshold=0.9).measure(_case(metrics, middling)) == 0.925
    for threshold, success in ((0.925, True), (0.93, False)):
        metric = metrics.VerificationComplianceMetric(threshold=threshold)
        metric.measure(_case(metrics, middling))
        assert metric.is_successful() is success
    assert metrics.StrictVerificationComplianceMetric(threshold=0.1).threshold == 1.0


def test_metrics_have_names_of_their_own(metrics: Any) -> None:
    """DeepEval tells them apart by these."""
    assert metrics.VerificationComplianceMetric().__name__ == "Verification Compliance"
    assert metrics.StrictVerificationComplianceMetric().__name__ == "Strict Verification Compliance"


def test_a_case_without_output_is_an_error(metrics: Any) -> None:
    """It is not a score of 0."""
    with pytest.raises(ValueError, match="needs a test case with an actual_output"):
        metrics.VerificationComplianceMetric().measure(_case(metrics, None))


def test_an_error_is_no_success(metrics: Any) -> None:
    """DeepEval notes an error on the metric, and asks it afterwards."""
    metric = metrics.VerificationComplianceMetric()
    metric.measure(_case(metrics, GOOD))
    metric.error = "broken"
    assert not metric.is_successful()


@needs_deepeval
def test_evaluate_runs_them_without_a_network(offline: list[Any]) -> None:
    """DeepEval's own `evaluate`, with copies of the metrics and its own event loop."""
    deepeval = importlib.import_module("deepeval")
    metrics = importlib.import_module(MODULE)
    ours = [metrics.VerificationComplianceMetric(), metrics.StrictVerificationComplianceMetric()]
    results = deepeval.evaluate([_case(metrics, GOOD), _case(metrics, BAD)], ours).test_results
    by_text = {
        result.actual_output: [(m.score, m.threshold, m.success) for m in result.metrics_data] for result in results
    }
    assert by_text == {GOOD: [(1.0, 0.9, True), (1.0, 1.0, True)], BAD: [(0.12, 0.9, False), (0.0, 1.0, False)]}


@needs_deepeval
@pytest.mark.parametrize("run_async", [True, False])
def test_assert_test_passes_and_fails_by_them(offline: list[Any], run_async: bool) -> None:
    """DeepEval's own `assert_test`, with an event loop and without."""
    deepeval = importlib.import_module("deepeval")
    metrics = importlib.import_module(MODULE)
    deepeval.assert_test(_case(metrics, GOOD), [metrics.StrictVerificationComplianceMetric()], run_async=run_async)
    with pytest.raises(AssertionError, match="Verification Compliance"):
        deepeval.assert_test(_case(metrics, BAD), [metrics.VerificationComplianceMetric()], run_async=run_async)


def test_without_deepeval_the_import_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    """The rest of the evaluator does not need it."""
    monkeypatch.delitem(sys.modules, MODULE, raising=False)
    for name in ("deepeval", "deepeval.metrics", "deepeval.test_case"):
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(ImportError, match=r"pip install 'evalq\[deepeval\]'"):
        importlib.import_module(MODULE)
