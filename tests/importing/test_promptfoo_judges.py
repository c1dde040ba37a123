"""Assertions that a model grades become checks that evalq's judge decides, with a note; transforms become options."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from evalq.evalcore.evaluators.checks.answer import CheckedAnswer
from evalq.evalcore.evaluators.checks.check import compile_check
from evalq.producer.importing import sources
from evalq.producer.importing.imported import Imported, ImportRequest, agreement
from tests.importing.judged import judged


def _imported(folder: Path, *asserts: Any, **more: Any) -> Imported:
    variables = {"context": "Delivery takes two days.", "query": "How long?", "name": "Kim"}
    config = {"prompts": ["{{query}}"], "tests": [{"vars": variables, "assert": list(asserts)}], **more}
    (folder / "promptfooconfig.json").write_text(json.dumps(config))
    return sources.read("promptfoo", folder / "promptfooconfig.json", ImportRequest())


def _scale(text: str, threshold: float, most: int = 1) -> dict[str, Any]:
    return {"score": text, "from": 0, "to": most, "threshold": threshold}


@pytest.mark.parametrize(
    ("assertion", "check"),
    [
        ({"type": "llm-rubric", "value": "greets {{name}}"}, {"rubric": "greets Kim"}),
        ({"type": "llm-rubric", "value": {"tone": "kind"}}, {"rubric": '{"tone":"kind"}'}),
        ({"type": "llm-rubric", "value": "kind", "threshold": 0.8}, _scale("kind", 0.8)),
        ({"type": "not-llm-rubric", "value": "is rude"}, {"not-rubric": "is rude"}),
        ({"type": "llm-rubric", "value": "kind", "weight": 3, "metric": "Tone"},
         {"rubric": "kind", "weight": 3, "name": "Tone"}),
        ({"type": "search-rubric", "value": "names the year"}, {"rubric": "names the year"}),
        ({"type": "model-graded-closedqa", "value": "is short"}, {"rubric": "is short"}),
        ({"type": "factuality", "value": "Two days."}, {"factual": "Two days."}),
        ({"type": "model-graded-factuality", "value": "Two days."}, {"factual": "Two days."}),
        ({"type": "g-eval", "value": "coherent"}, _scale("coherent", 7, 10)),
        ({"type": "g-eval", "value": ["coherent", "kind"], "threshold": 0.85}, _scale("coherent\nkind", 8.5, 10)),
        ({"type": "pi", "value": "Is it kind?", "threshold": 0.9}, _scale("Is it kind?", 0.9)),
        ({"type": "assert-set", "assert": [{"type": "llm-rubric", "value": "kind"}, {"type": "regex", "value": "x"}]},
         {"all": [{"rubric": "kind"}, {"regex": "x"}]}),
    ],
)  # fmt: skip
def test_a_graded_assertion_is_a_check_of_a_judge(assertion: Any, check: Any, tmp_path: Path) -> None:
    """With its text, its threshold in the units of the scale, its weight and its name; and noted."""
    found = _imported(tmp_path, assertion)
    assert found.cases[0]["checks"] == [check]
    assert {note.kind for note in found.notes} == {"differs"}
    assert all("--judge" in note.why for note in found.notes)
    assert list(compile_check(check).judge_questions())


@pytest.mark.parametrize(
    ("kind", "threshold"), [("answer-relevance", 0.5), ("conversation-relevance", 0.5), ("context-faithfulness", 0.5)]
)
def test_measures_of_relevance_are_scores_with_promptfoos_threshold(
    kind: str, threshold: float, tmp_path: Path
) -> None:
    """Faithfulness names the context that it is to."""
    (check,) = _imported(tmp_path, {"type": kind}).cases[0]["checks"]
    assert (check["from"], check["to"], check["threshold"]) == (0, 1, threshold)
    assert ("Delivery takes two days." in check["score"]) == (kind == "context-faithfulness")
    (check,) = _imported(tmp_path, {"type": kind, "threshold": 0.9}).cases[0]["checks"]
    assert check["threshold"] == 0.9


@pytest.mark.parametrize(
    ("assertion", "kind"),
    [
        ({"type": "llm-rubric"}, "none"),
        ({"type": "llm-rubric", "value": "kind", "threshold": 7}, "none"),
        ({"type": "llm-rubric", "value": "file://rubric.js"}, "none"),
        ({"type": "context-faithfulness", "contextTransform": "output.context"}, "none"),
        ({"type": "context-recall", "value": "Two days."}, "none"),
        ({"type": "context-relevance"}, "none"),
        ({"type": "agent-rubric", "value": "made the file"}, "none"),
        ({"type": "select-best", "value": "the kindest"}, "none"),
        ({"type": "trajectory:goal-success", "value": {"goal": " "}}, "none"),
        ({"type": "similar", "value": "Two days."}, "later"),
    ],
)
def test_what_no_judge_of_an_answer_can_decide_is_listed(assertion: Any, kind: str, tmp_path: Path) -> None:
    """By its name."""
    found = _imported(tmp_path, assertion)
    assert not found.cases
    assert (kind, assertion["type"]) in {(note.kind, note.what) for note in found.notes}


def test_who_grades_is_noted_and_a_test_of_many_is_one_line(tmp_path: Path) -> None:
    """Beside the assertion and in the options of all tests."""
    graded = [{"type": "llm-rubric", "value": f"point {n}", "provider": "openai:gpt-4o"} for n in range(40)]
    options = {"provider": "openai:gpt-4o", "rubricPrompt": "Grade it."}
    found = _imported(tmp_path, *graded, defaultTest={"options": options})
    messages = {omission.what: (kind, omission.count) for kind, omission in found.summary()}
    assert messages == {
        "options.provider": ("differs", 1),
        "options.rubricPrompt": ("differs", 1),
        "llm-rubric": ("differs", 40),
        "llm-rubric: provider": ("differs", 40),
    }


def test_no_verdict_of_a_grader_is_held_against_a_judge_that_was_not_asked(tmp_path: Path) -> None:
    """Recorded results: the agreement is over the checks that need nobody, those in a set included."""
    plain, rubric = {"type": "contains", "value": "x"}, {"type": "llm-rubric", "value": "kind"}
    both = {"type": "assert-set", "assert": [plain, rubric]}
    parts = [
        {"pass": True, "assertion": plain},
        {"pass": True, "assertion": rubric},
        {"pass": True, "assertion": both, "metadata": {"assertionSet": True}},
        {"pass": True, "assertion": plain},
        {"pass": True, "assertion": rubric},
    ]
    row = {
        "prompt": {"raw": "?"},
        "vars": {},
        "response": {"output": "x"},
        "success": True,
        "testCase": {"assert": [plain, rubric, both]},
        "gradingResult": {"componentResults": parts},
    }
    path = tmp_path / "results.json"
    path.write_text(json.dumps({"results": {"results": [row]}}))
    imported, (judgement,) = judged("promptfoo", path, tmp_path / "e")
    assert list(imported.verdicts.values()) == [[True, None, None]]
    assert [verdict.passed for verdict in judgement.checks] == [True, None, None]
    found = agreement(imported, tmp_path / "e" / "cases.yaml")
    assert (found.agreed, found.compared) == (1, 1)


PART = "JSON.parse(output).a.b[0]"


@pytest.mark.parametrize(
    ("assertion", "transform", "answer", "passes"),
    [
        ({"type": "contains", "value": "x"}, PART, '{"a": {"b": ["xy"]}}', True),
        ({"type": "contains", "value": "x"}, PART, '{"a": {"b": ["y"]}, "x": 1}', False),
        ({"type": "not-contains", "value": "x"}, PART, '{"a": {"b": ["y"]}, "x": 1}', True),
        ({"type": "not-contains", "value": "x"}, PART, '{"a": {"b": [null]}}', False),
        ({"type": "not-contains", "value": "x"}, PART, '{"a": 1}', False),
        ({"type": "not-contains", "value": "x"}, PART, "no JSON", False),
        ({"type": "contains", "value": "x"}, PART, '```json\n{"a": {"b": ["x"]}}\n```', False),
        ({"type": "equals", "value": "7"}, f"return {PART};", '{"a": {"b": [7]}}', True),
        ({"type": "equals", "value": "x"}, "output.trim()", "  x\n", True),
        ({"type": "not-equals", "value": "x"}, "output.trim()", "  x\n", False),
        ({"type": "equals", "value": "x y"}, "output.toLowerCase().trim()", " X Y", True),
        ({"type": "contains-all", "value": ["x", "y"]}, "output.toLowerCase()", "Y and X", True),
        ({"type": "contains", "value": "x"}, "output.trim()", " yxy ", True),
    ],
)
def test_a_transform_that_takes_a_part_or_changes_letters_is_an_option_of_the_check(
    assertion: Any, transform: str, answer: str, passes: bool, tmp_path: Path
) -> None:
    """Beside the assertion, and in the options of the test."""
    beside = _imported(tmp_path, {**assertion, "transform": transform})
    around = _imported(tmp_path, assertion, defaultTest={"options": {"transform": transform}})
    assert beside.cases[0]["checks"] == around.cases[0]["checks"]
    assert compile_check(beside.cases[0]["checks"][0]).judge(CheckedAnswer(answer)).passed is passes


@pytest.mark.parametrize(
    ("assertion", "transform"),
    [
        ({"type": "contains", "value": "x"}, "output.split(',')[0]"),
        ({"type": "contains", "value": "x"}, "file://shorten.js"),
        ({"type": "contains", "value": "x"}, "JSON.parse(output).length"),
        ({"type": "contains", "value": "X"}, "output.toLowerCase()"),
        ({"type": "equals", "value": " x"}, "output.trim()"),
        ({"type": "starts-with", "value": "x"}, "output.trim()"),
        ({"type": "regex", "value": "^x"}, "output.trim()"),
        ({"type": "llm-rubric", "value": "x"}, "output.toLowerCase()"),
    ],
)
def test_any_other_transform_is_listed(assertion: Any, transform: str, tmp_path: Path) -> None:
    """Nothing near it is taken."""
    for found in (
        _imported(tmp_path, {**assertion, "transform": transform}),
        _imported(tmp_path, assertion, defaultTest={"options": {"transform": transform}}),
    ):
        assert not found.cases
        assert assertion["type"] in {note.what for note in found.notes if note.kind == "none"}


@pytest.mark.parametrize(
    ("prompt", "given"),
    [
        ("Hello {{user.name}}, {{ items[1] }}!", "Hello Kim, two!"),
        ("a {{- query -}}  b {{ missing.part }}", "aHow long?b "),
        ('[{"role": "user", "content": {{ query | dump }}}]', [{"role": "user", "content": "How long?"}]),
        ("- role: system\n  content: Be brief.\n- role: user\n  content: '{{query}}'\n",
         [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "How long?"}]),
        ('{"q": "{{query}}"}', '{\n  "q": "How long?"\n}'),
    ],
)  # fmt: skip
def test_prompts_with_parts_of_variables_and_chats_are_filled_as_promptfoo_fills_them(
    prompt: str, given: Any, tmp_path: Path
) -> None:
    """Members, elements, JSON, white space that goes, and chats in JSON or YAML."""
    variables = {"user": {"name": "Kim"}, "items": [1, "two"], "query": "How long?"}
    asserts = [{"type": "contains", "value": "x"}]
    found = _imported(tmp_path, prompts=[prompt], tests=[{"vars": variables, "assert": asserts}])
    assert found.cases[0]["input"] == given
