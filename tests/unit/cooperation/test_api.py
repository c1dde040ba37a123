"""The seed's Python interface."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from evalq.evalcore.contract import plugins
from evalq.evalcore.errors import ConfigError, InputError
from evalq.evalcore.evaluators import cooperation
from evalq.evalcore.evaluators.cooperation import CooperationEvaluator, EvaluationRules, Evaluator, MetricsResult
from tests.unit.cooperation.logs import entry, run
from tests.unit.cooperation.test_metrics import SAMPLE


def test_the_public_names_are_there() -> None:
    """Everything in __all__ exists, and the evaluator is registered under its name."""
    assert all(hasattr(cooperation, name) for name in cooperation.__all__)
    assert Evaluator is CooperationEvaluator
    assert plugins.get("cooperation") is cooperation.evaluator
    assert (cooperation.evaluator.records.format, cooperation.evaluator.records.unit) == ("jsonl", "events")
    assert cooperation.evaluator.version == "3"


def test_the_default_rules_are_the_seeds() -> None:
    """Three fields, sets of words and a resource."""
    assert EvaluationRules() == EvaluationRules(
        cooperative_decisions={"join", "cooperate", "contribute", "support", "assist"},
        betrayal_decisions={"defect", "betray", "steal", "sabotage"},
        resource_key="stone",
    )
    assert EvaluationRules().cooperative_decisions is not EvaluationRules().cooperative_decisions


def test_it_computes_what_the_command_does(tmp_path: Path) -> None:
    """evaluate gives the report's entry, and save writes it as metrics.json."""
    metrics = Evaluator(EvaluationRules()).evaluate(SAMPLE)
    assert isinstance(metrics, MetricsResult)
    expected = entry(run(SAMPLE.read_bytes()))
    expected["metadata"]["log_path"] = str(SAMPLE)
    assert metrics.to_dict() == expected
    Evaluator(EvaluationRules()).save(metrics, tmp_path / "new" / "metrics.json")
    assert json.loads((tmp_path / "new" / "metrics.json").read_text(encoding="utf-8")) == expected
    assert [path.name for path in (tmp_path / "new").iterdir()] == ["metrics.json"]


def test_its_rules_are_obeyed(tmp_path: Path) -> None:
    """Own words and an own resource change the metrics."""
    rules = EvaluationRules({"WAIT"}, set(), "wood")
    metrics = CooperationEvaluator(rules).evaluate(SAMPLE)
    assert metrics.cooperation_rate == 3 / 16
    assert metrics.contributions == {"mina": 0.0, "joon": 4.0, "sora": 1.0}
    assert metrics.average_recovery_time is None


def test_an_empty_log_has_the_metrics_of_no_events(tmp_path: Path) -> None:
    """A rate of 0, no recovery, no agents, and no error."""
    log = tmp_path / "empty.jsonl"
    log.touch()
    metrics = CooperationEvaluator().evaluate(log)
    assert (metrics.cooperation_rate, metrics.average_contribution, metrics.average_recovery_time) == (0.0, 0.0, None)
    assert (metrics.gini_coefficient, metrics.dialogue_entropy, metrics.message_counts) == (0.0, 0.0, {})
    assert (metrics.metadata["total_events"], metrics.metadata["log_path"]) == (0, str(log))


def test_its_errors_are_those_of_the_command(tmp_path: Path) -> None:
    """No file, a folder, bad lines and wrong rules are errors that say so; bad lines can be skipped."""
    bad = tmp_path / "bad.jsonl"
    bad.write_bytes(b"x\n" + SAMPLE.read_bytes())
    with pytest.raises(InputError, match="no such file"):
        CooperationEvaluator().evaluate(tmp_path / "none.jsonl")
    with pytest.raises(InputError, match="a folder"):
        CooperationEvaluator().evaluate(tmp_path)
    with pytest.raises(InputError, match=r"bad\.jsonl:1: bad JSON"):
        CooperationEvaluator().evaluate(bad)
    assert CooperationEvaluator(skip_bad_lines=True).evaluate(bad).metadata["skipped_lines"] == 1
    with pytest.raises(ConfigError, match=r"^rules[^\n]*\n.*rules\.cooperative_decisions"):
        CooperationEvaluator(EvaluationRules(cooperative_decisions="join"))  # type: ignore[arg-type]  # the wrong type is the point
