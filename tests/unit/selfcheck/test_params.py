"""Lists by name or of one's own, from plain data; what cannot be used is refused with its key path."""

from __future__ import annotations

import json
from typing import Any

import pytest

from evalq.evalcore.contract.evaluator import Batch
from evalq.evalcore.contract.params import validate
from evalq.evalcore.errors import ConfigError
from evalq.evalcore.evaluators.selfcheck import (
    CALIBRATED_DANGER_SIGNALS,
    DANGER_SIGNALS,
    EXTENDED_DANGER_SIGNALS,
    SelfCheckParams,
    evaluator,
)

SIGNAL = {"pattern": "maybe", "severity": "error", "message": "m"}


def _results(params: dict[str, Any], record: dict[str, Any]) -> dict[str, Any]:
    batch = Batch("f", 1, json.dumps(record).encode())
    outcome = evaluator.evaluate(batch, validate(SelfCheckParams, params, "params"))
    result: dict[str, Any] = json.loads(outcome.lines[0])["result"]
    return result


@pytest.mark.parametrize(
    ("name", "signals"),
    [("default", DANGER_SIGNALS), ("extended", EXTENDED_DANGER_SIGNALS), ("calibrated", CALIBRATED_DANGER_SIGNALS)],
)
def test_a_list_is_known_by_its_name(name: str, signals: object) -> None:
    """The name stands for the list, and the report shows the name again."""
    params = validate(SelfCheckParams, {"signals": name, "questions": "default"}, "params")
    assert params.signals == signals
    assert params.model_dump(mode="json")["signals"] == name
    assert params.model_dump(mode="json")["questions"] == "default"


def test_params_survive_being_shown() -> None:
    """What the report shows of params makes the same params again, names and lists alike."""
    for given in ({}, {"signals": "extended"}, {"signals": [SIGNAL], "context": 3, "targets": {"confidence": 0.9}}):
        params = validate(SelfCheckParams, given, "params")
        assert validate(SelfCheckParams, params.model_dump(mode="json"), "params") == params


def test_signals_of_ones_own_replace_the_list() -> None:
    """Found by pattern, told by message, with as much context as asked for."""
    signals = [SIGNAL, {"pattern": r"\bAB\b", "severity": "warning", "message": "n", "ignore_case": False}]
    result = _results({"signals": signals, "context": 2}, {"testOutput": "xx Maybe yy ab"})
    assert result["dangerSignals"] == [
        {"signal": "m", "found": True, "context": "...x Maybe y..."},
        {"signal": "n", "found": False},
    ]
    assert not result["passed"]


@pytest.mark.parametrize(
    ("question", "record", "passed"),
    [
        ({"check": "tests_pass"}, {"testOutput": "", "testsPassed": True}, True),
        ({"check": "evidence_exists"}, {}, False),
        ({"key": "testOutput"}, {"testOutput": ""}, False),
        ({"key": "testOutput"}, {"testOutput": "x"}, True),
        ({"key": "testOutput", "pattern": r"\d+% coverage"}, {"testOutput": "91% COVERAGE"}, True),
        ({"key": "testOutput", "pattern": r"\d+% coverage"}, {"testOutput": "covered"}, False),
        ({"key": "codeChanges", "pattern": r"test_.*\.py"}, {"codeChanges": [{"file": "test_a.py", "diff": ""}]}, True),
        ({"key": "assumptions", "pattern": "api"}, {}, False),
    ],
)
def test_questions_of_ones_own_replace_the_list(question: dict[str, Any], record: dict[str, Any], passed: bool) -> None:
    """Built-in checks, and text that has to be there or to match."""
    result = _results({"questions": [{"id": "q", "question": "?", **question}]}, record)
    assert [q["passed"] for q in result["questions"]] == [passed]
    assert result["passed"] is passed


@pytest.mark.parametrize(
    ("params", "path", "reason"),
    [
        ({"signals": "seven"}, "signals:", "no such name (there are: default, extended, calibrated"),
        ({"signals": 7}, "signals:", "valid array"),
        ({"signals": [SIGNAL, {**SIGNAL, "pattern": r"(a)\1"}]}, "signals.1.pattern:", "a reference back to a group"),
        ({"signals": [{**SIGNAL, "pattern": ""}]}, "signals.0.pattern:", "at least 1 character"),
        ({"signals": [{**SIGNAL, "severity": "fatal"}]}, "signals.0.severity:", "'warning' or 'error'"),
        ({"signals": [SIGNAL, SIGNAL]}, "signals:", "the same message twice: m (the report lists results by message)"),
        (
            {"signals": [{**SIGNAL, "message": message} for message in ("b", "one", "a", "b", "a")]},
            "signals:",
            "the same message twice: a, b (the report",
        ),
        ({"signals": [{**SIGNAL, "flags": "i"}]}, "signals.0.flags:", "unknown key"),
        ({"questions": "five"}, "questions:", "no such name"),
        ({"questions": [{"id": "q", "question": "?"}]}, "questions.0:", "give either 'check'"),
        (
            {"questions": [{"id": "q", "question": "?", "check": "tests_pass", "key": "evidence"}]},
            "questions.0:",
            "give either 'check'",
        ),
        (
            {"questions": [{"id": "q", "question": "?", "check": "tests_pass", "pattern": "x"}]},
            "questions.0:",
            "'pattern' needs a 'key'",
        ),
        (
            {"questions": [{"id": "q", "question": "?", "key": "evidence", "pattern": "(?=x)"}]},
            "questions.0.pattern:",
            "a look-ahead",
        ),
        (
            {"questions": [{"id": "q", "question": "?", "check": "tests_pass"}] * 2},
            "questions:",
            "the same id twice: q (the report lists results by id)",
        ),
        ({"context": -1}, "context:", "greater than or equal to 0"),
        ({"targets": {"tpr": 0.5}}, "targets.tpr:", "unknown key"),
        ({"targets": {"true_positive_rate": 1.1}}, "targets.true_positive_rate:", "less than or equal to 1"),
        ({"targets": {"false_positive_rate": 1.1}}, "targets.false_positive_rate:", "less than or equal to 1"),
        ({"targets": {"confidence": 1}}, "targets.confidence:", "less than 1"),
    ],
)
def test_what_cannot_be_used_is_refused_with_its_path(params: dict[str, Any], path: str, reason: str) -> None:
    """The key path first, then what is wrong with it."""
    with pytest.raises(ConfigError) as caught:
        validate(SelfCheckParams, params, "params")
    lines = str(caught.value).split("\n")
    assert any(line.strip().startswith(path) and reason in line for line in lines), lines
