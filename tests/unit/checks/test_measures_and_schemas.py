"""Checks that measure likeness, and JSON Schemas: known answers, bounds, and what they refuse."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evalq.evalcore.evaluators.checks.answer import CheckedAnswer
from evalq.evalcore.evaluators.checks.check import CheckVerdict, compile_check
from evalq.evalcore.evaluators.checks.vocabulary.declaring import BadCheck
from evalq.evalcore.evaluators.checks.vocabulary.similar import rouge_l, token_f1

SCHEMA: dict[str, Any] = {
    "type": "object",
    "required": ["n"],
    "properties": {
        "n": {"type": "integer", "minimum": 0},
        "code": {"pattern": "^[a-z]+$"},
        "list": {"uniqueItems": True},
        "kids": {"type": "array", "items": {"$ref": "#"}},
    },
    "patternProperties": {"^x-": {"type": "string"}},
    "additionalProperties": False,
}


def judged(check: dict[str, Any], output: Any) -> CheckVerdict:
    """What becomes of ``check`` on an answer."""
    return compile_check(check).judge(CheckedAnswer(output))


# As computed with rouge-score 0.1.2 (rougeL, without stemming); the F1 by hand, from its definition.
@pytest.mark.parametrize(
    ("text", "wanted", "rouge", "f1"),
    [
        ("the cat was found under the bed", "the cat was under the bed", 12 / 13, 8 / 9),
        ("The quick brown fox!", "quick, brown THE", 4 / 7, 0.8),
        ("a b c", "x y z", 0.0, 0.0),
        ("", "x", 0.0, 0.0),
        ("the", "a", 0.0, 1.0),
    ],
)
def test_known_measures(text: str, wanted: str, rouge: float, f1: float) -> None:
    """The values of the published definitions."""
    assert rouge_l(text, wanted) == pytest.approx(rouge)
    assert token_f1(text, wanted) == pytest.approx(f1)


def test_measures_pass_from_their_threshold_on() -> None:
    """Three quarters where a file does not say; negated they pass below it."""
    assert judged({"edit-similarity": "kitten"}, "sitten").passed is True
    assert judged({"edit-similarity": "kitten", "threshold": 0.9}, "sitten").passed is False
    assert judged({"edit-similarity": "KITTEN", "ignore-case": True, "threshold": 1.0}, "kitten").passed is True
    assert judged({"not-token-f1": "kitten"}, "dog").passed is True
    assert judged({"edit-distance": "kitten", "max": 3}, "sitting").passed is True
    assert judged({"edit-distance": "kitten", "max": 2}, "sitting").found.startswith("over 2 edits")
    assert judged({"chrf": "the cat sat", "threshold": 0.45}, "A sitting cat sat").score == pytest.approx(
        0.4540510, abs=1e-6
    )


def test_a_similarity_on_its_threshold_passes() -> None:
    """As decimals: 8 edits of 25 characters leave .68, and a little less in floats."""
    wanted, text = "a" * 25, "a" * 17 + "b" * 8
    verdict = judged({"edit-similarity": wanted, "threshold": 0.68}, text)
    assert verdict.score == 1 - 8 / 25 < 0.68
    assert verdict.passed is True
    assert judged({"not-edit-similarity": wanted, "threshold": 0.68}, text).passed is False
    assert judged({"edit-similarity": wanted, "threshold": 0.681}, text).passed is False


@given(st.text(max_size=40), st.text(min_size=1, max_size=40))
def test_measures_are_shares_and_one_for_the_text_itself(text: str, wanted: str) -> None:
    """From 0 to 1, whatever the texts."""
    for name in ("edit-similarity", "token-f1", "rouge-l"):
        score = judged({name: wanted}, text).score
        assert score is not None
        assert 0.0 <= score <= 1.0
    assert judged({"edit-similarity": wanted}, wanted).score == 1.0
    assert judged({"token-f1": wanted}, wanted).score == 1.0


def test_long_answers_are_not_measured() -> None:
    """An answer of megabytes scores nothing, in no time."""
    began = time.process_time()
    for name in ("edit-similarity", "token-f1", "rouge-l", "chrf"):
        verdict = judged({name: "short"}, "ab " * 1_000_000)
        assert (verdict.passed, verdict.score) == (False, 0.0)
        assert "too long" in verdict.found
    assert judged({"edit-distance": "short"}, "ab " * 1_000_000).passed is False
    assert time.process_time() - began < 2.0


def test_what_needs_an_extra_says_which(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where it is not installed the file is refused, not the outputs."""
    monkeypatch.setitem(sys.modules, "sacrebleu.metrics.chrf", None)
    with pytest.raises(BadCheck, match=r"pip install 'evalq\[chrf\]'"):
        compile_check({"chrf": "a"})


@pytest.mark.parametrize(
    ("output", "found"),
    [
        ({"n": 1, "code": "ab", "list": [1, 2], "x-a": "b"}, ""),
        ('```json\n{"n": 1}\n```', ""),
        ({"n": 1, "kids": [{"n": 2, "kids": []}]}, ""),
        ("prose", "not JSON"),
        ({"n": -1}, "$.n: -1 is less than"),
        ({"n": 1, "code": "aB"}, "$.code: 'aB' does not match"),
        ({"n": 1, "list": [1, 1.0]}, "$.list: the items are not unique"),
        ({"n": 1, "x-a": 5}, "$['x-a']: 5 is not of type 'string'"),
        ({"n": 1, "y": 5}, "$: additional properties: 'y'"),
        ({"n": 1, "kids": [{"n": 2}, {}]}, "$.kids[1]: 'n' is a required property"),
    ],
    ids=repr,
)
def test_schemas(output: Any, found: str) -> None:
    """The first thing that is not valid, with its path."""
    verdict = judged({"json-schema": SCHEMA}, output)
    assert verdict.passed is (not found)
    assert verdict.found.startswith(found)


@pytest.mark.parametrize(
    ("schema", "says"),
    [
        ({"type": "foo"}, "not a JSON Schema: $.type"),
        ({"$ref": "http://127.0.0.1:9/x"}, "only those within the schema"),
        ({"properties": {"a": {"$ref": "file:///etc/passwd"}}}, "only those within the schema"),
        ({"$ref": "#/definitions/x"}, "the reference '#/definitions/x' leads nowhere"),
        ({"$dynamicRef": "#nope"}, "a $dynamicRef or $recursiveRef leads nowhere"),
        ({"$ref": "#/$defs/a", "$defs": {"a": {"$dynamicRef": "#b"}}}, "a $dynamicRef or $recursiveRef leads nowhere"),
        ({"$ref": "#"}, "refers to itself without end"),
        ({"pattern": "(?=a)"}, "not a regular expression"),
        ({"patternProperties": {"(a+)+(?!b)": {}}}, "not a regular expression"),
        ({"unevaluatedProperties": False, "patternProperties": {"a": {}}}, "not supported"),
        (5, "expected"),
    ],
    ids=repr,
)
def test_schemas_that_are_refused(schema: Any, says: str) -> None:
    """Nothing is fetched, and no pattern takes longer than linear time."""
    with pytest.raises(BadCheck) as caught:
        compile_check({"json-schema": schema})
    assert says in str(caught.value)
    assert caught.value.path == "json-schema"


def test_hostile_answers_to_schemas() -> None:
    """Patterns, unique items and deep nesting stay within bounds of time and stack."""
    began = time.process_time()
    assert judged({"json-schema": {"pattern": "^(a+)+$"}}, {"a": 1}).passed is True
    assert (
        judged({"json-schema": {"type": "array", "items": {"pattern": "^(a+)+$"}}}, ["a" * 100_000 + "!"]).passed
        is False
    )
    assert judged({"json-schema": {"uniqueItems": True}}, [*range(50_000), {"a": [1]}, 0]).passed is False
    deep: Any = {"n": 1}
    for _ in range(150):
        deep = {"n": 1, "kids": [deep]}
    assert judged({"json-schema": SCHEMA}, deep).found == "nested deeper than 40 levels"
    assert time.process_time() - began < 3.0


def _below(calls: int, deed: Callable[[], Any]) -> Any:
    """What ``deed`` returns, called by so many calls more."""
    return _below(calls - 1, deed) if calls else deed()


def test_a_schema_says_the_same_however_much_of_the_stack_is_taken() -> None:
    """A worker's callers take more than a command's; with either a recursive schema ended elsewhere."""
    again: Any = {"properties": {"a": {"$ref": "#/$defs/again"}}}
    for _ in range(14):
        again = {"allOf": [again]}
    check = compile_check({"json-schema": {"$ref": "#/$defs/again", "$defs": {"again": again}}})
    answers: list[Any] = [{}]
    for _ in range(39):
        answers.append({"a": answers[-1]})
    reasons = [
        [_below(calls, partial(check.judge, CheckedAnswer(answer))).error for calls in (0, 200)] for answer in answers
    ]
    assert [near for near, far in reasons if near != far] == []
    assert {near for near, _ in reasons} == {"", "the schema refers to itself without end"}


def test_keys_that_are_called_like_keywords_are_keys() -> None:
    """A property may be called pattern or $ref."""
    schema = {"properties": {"pattern": {"type": "string"}, "$ref": {"type": "string"}}, "enum": [{"$ref": "x"}]}
    assert judged({"json-schema": schema}, {"$ref": "x"}).passed is True


@pytest.mark.parametrize(
    ("value", "of", "fine"),
    [
        *((19.99, 0.01, True), (0.07, 0.01, True), (0.075, 0.01, False), (-4.35, 0.01, True), (1e308, 0.01, True)),
        *((7, 7, True), (8, 7, False), (7.5, 2.5, True), (10**400, 3, False), (10**400, 0.5, True), (True, 0.5, True)),
    ],
)
def test_multiples_are_of_numbers_as_they_are_written(value: Any, of: float, fine: bool) -> None:
    """A price has two decimals, whatever floats make of it; what is no number is a multiple of nothing, nor asked."""
    assert judged({"json-schema": {"multipleOf": of}}, value).passed is fine


def test_each_draft_has_its_own_name_for_multiples() -> None:
    """What is a keyword of another draft alone says nothing."""
    third = {"$schema": "http://json-schema.org/draft-03/schema#"}
    assert judged({"json-schema": {**third, "divisibleBy": 0.01}}, 0.07).passed is True
    assert judged({"json-schema": {**third, "divisibleBy": 0.01}}, 0.075).passed is False
    assert judged({"json-schema": {**third, "multipleOf": 2}}, 3).passed is True


def test_unevaluated_members_are_looked_for_among_some_thousand() -> None:
    """Each is looked up among all others; where there are too many an answer fails, and a negated check, too."""
    schema = {"allOf": [{"additionalProperties": True}], "unevaluatedProperties": False}
    assert judged({"json-schema": schema}, {f"k{at}": at for at in range(1_000)}).passed is True
    many: Any = {"a": [{f"k{at}": at for at in range(60_000)}]}
    began = time.process_time()
    assert "more than 10000 members" in judged({"json-schema": schema}, many).found
    assert judged({"not-json-schema": {"unevaluatedItems": False}}, [*range(60_000)]).passed is False
    assert judged({"json-schema": {"items": True}}, [*range(60_000)]).passed is True
    assert time.process_time() - began < 2
