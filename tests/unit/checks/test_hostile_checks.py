"""Cases files and answers that mean harm: what multiplies, runs away, hides outside or wants to pass by being odd."""

from __future__ import annotations

import json
import time
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from evalq.evalcore.contract.evaluator import Request
from evalq.evalcore.errors import ConfigError, UsageError
from evalq.evalcore.evaluators.checks import load_cases
from evalq.evalcore.evaluators.checks.answer import CheckedAnswer, Usage
from evalq.evalcore.evaluators.checks.check import CheckVerdict, compile_check
from evalq.evalcore.evaluators.checks.inputs import complete_request
from evalq.evalcore.evaluators.checks.params import Threshold
from evalq.evalcore.evaluators.checks.report import Demand
from evalq.evalcore.evaluators.checks.vocabulary import schema, text
from evalq.evalcore.evaluators.checks.vocabulary.declaring import BadCheck
from evalq.evalcore.evaluators.checks.vocabulary.similar import numbers_in
from tests.portions import portion

DRAFT_7 = "http://json-schema.org/draft-07/schema#"


def judged(check: dict[str, Any], output: Any, **took: Any) -> CheckVerdict:
    """What becomes of ``check`` on an answer."""
    return compile_check(check).judge(CheckedAnswer(output, None, Usage(**took)))


@pytest.mark.parametrize(
    "schema",
    [
        {"properties": {"x": {"$schema": DRAFT_7, "pattern": "^(a+)+$"}}},
        {"$schema": DRAFT_7, "pattern": "^(a+)+$", "properties": {"x": {"$ref": "#"}}},
    ],
    ids=repr,
)
def test_no_schema_brings_other_patterns_back(schema: Any) -> None:
    """A $schema further in, or met again by a reference, changes nothing about how long a pattern takes."""
    began = time.process_time()
    assert judged({"json-schema": schema}, {"x": "a" * 10_000 + "!"}).passed is False
    assert time.process_time() - began < 2.0


@pytest.mark.parametrize(
    ("schema", "says"),
    [
        ({"allOf": [{"patternProperties": {"^(a+)+$": True}}], "unevaluatedProperties": False}, "not supported"),
        ({"properties": {"default": {"pattern": "(?=x)"}}}, "not a regular expression"),
        ({"properties": {"enum": {"$ref": "http://127.0.0.1:9/x"}}}, "only those within the schema"),
        ({"const": {"pattern": "^(a+)+$"}, "properties": {"a": {"$ref": "#/const"}}}, "does not lead to a schema"),
        ({"$schema": []}, "must be a text"),
    ],
    ids=repr,
)
def test_schemas_that_hide_something(schema: Any, says: str) -> None:
    """A property may be called like a keyword of data, and what is data is no schema."""
    with pytest.raises(BadCheck, match=says):
        compile_check({"json-schema": schema})


def _doubling(depth: int) -> dict[str, Any]:
    parts: dict[str, Any] = {f"a{at}": {"allOf": [{"$ref": f"#/$defs/a{at + 1}"}] * 2} for at in range(depth)}
    return parts | {f"a{depth}": {"minLength": 1}}


def test_references_do_not_multiply(monkeypatch: pytest.MonkeyPatch) -> None:
    """Forty lines that stand for 2 to the 40 steps are refused, or are no verdict where only an answer leads there."""
    monkeypatch.setattr(schema, "_MOST_STEPS", schema._MOST_STEPS // 10)
    with pytest.raises(BadCheck, match="multiply"):
        compile_check({"json-schema": {"$defs": _doubling(40), "$ref": "#/$defs/a0"}})
    hidden = {"$defs": _doubling(40), "properties": {"x": {"$ref": "#/$defs/a0"}}}
    assert "steps" in judged({"not-json-schema": hidden}, {"x": {}}).error


@pytest.mark.parametrize(
    ("check", "output"),
    [
        ({"json-schema": {"properties": {"a": {"$dynamicRef": "#nope"}}}}, {"a": 1}),
    ],
    ids=repr,
)
def test_what_the_library_trips_over_is_no_verdict(check: dict[str, Any], output: Any) -> None:
    """An error of one output, not the end of a run."""
    assert judged(check, output).passed is None


@pytest.mark.parametrize(
    ("check", "output"),
    [
        ({"edit-similarity": "secret"}, "s" * 200_001),
        ({"edit-distance": "secret", "max": 10**9}, "s" * 200_001),
        ({"json-schema": {}}, "[" * 50 + "]" * 50),
    ],
    ids=lambda value: repr(value)[:40],
)
def test_what_cannot_be_looked_at_passes_no_check(check: dict[str, Any], output: Any) -> None:
    """Neither a check nor a negated one."""
    name = next(iter(check))
    assert judged(check, output).passed is False
    assert judged({f"not-{name}": check[name], **{key: check[key] for key in check if key != name}}, output).passed is (
        False
    )


def test_texts_to_compare_with_are_bounded() -> None:
    """An answer is compared in seconds, however long the cases file makes its reference."""
    for name in ("edit-similarity", "edit-distance", "rouge-l", "token-f1", "chrf"):
        with pytest.raises(BadCheck, match="too long"):
            compile_check({name: "x" * 200_001})
    with pytest.raises(BadCheck, match="the limit is"):
        compile_check({"tool-calls": ["a"] * 201})
    many = [{"name": "a"}] * 2000
    assert compile_check({"tool-calls": ["a"] * 200}).judge(CheckedAnswer("x", None, None, many)).passed is True


def test_tolerance_is_meant_in_decimals() -> None:
    """The bound itself is within it, and no more than that; numbers past floats are compared as they are."""
    assert judged({"number": 1, "tolerance": 0.1}, "1.1").passed is True
    assert judged({"number": 1, "tolerance": 0.1}, "1.1000001").passed is False
    assert judged({"json-path": "$", "is": 0.3, "relative": 0.1}, 0.33).passed is True
    assert judged({"json-path": "$", "is": 1, "tolerance": 1}, 10**400).passed is False


def test_dashes_and_points_before_digits() -> None:
    """A dash between numbers is no sign, and a number may begin with its point."""
    assert list(numbers_in("3-5, 2024-01-05, gpt-4, [1,-2], -.5 and .25, v1.2.3, 5.")) == [
        *(3, 5, 2024, 1, 5, 4, 1, -2, -0.5, 0.25, Decimal("1.2"), 3, 5)
    ]
    assert judged({"number": 1234567}, "1234568").found == "1234568"


def test_half_of_the_tokens_are_not_all() -> None:
    """Their sum is known where both are."""
    assert judged({"max-tokens": 100}, "x", prompt_tokens=10).passed is None
    assert judged({"max-tokens": 100, "of": "prompt"}, "x", prompt_tokens=10).passed is True


def test_a_part_without_weight_decides_nothing() -> None:
    """Within any, all and at-least as beside them."""
    parts = [{"contains": "a", "weight": 0}, {"contains": "b"}]
    assert judged({"all": parts}, "b").passed is True
    assert judged({"any": parts}, "a").passed is False
    assert judged({"all": [{"max-cost": 1, "weight": 0}, {"contains": "b"}]}, "b").passed is True
    with pytest.raises(BadCheck, match="from 1 to 1"):
        compile_check({"at-least": parts, "count": 2})


def _refused(folder: Path, text: str) -> str:
    path = folder / "cases.yaml"
    path.write_text(text)
    with pytest.raises(ConfigError) as caught:
        load_cases([path])
    return str(caught.value)


def test_placeholders_and_layers_do_not_multiply(tmp_path: Path) -> None:
    """A file of a megabyte is refused before it stands for gigabytes."""
    long = "x" * 500_000
    braces = "{{a}}" * 2_000
    assert "more than 256 MiB" in _refused(tmp_path, f"cases: [{{id: c, vars: {{a: {long}}}, expected: '{braces}'}}]")
    cases = "\n".join(f"  - {{id: c{number}}}" for number in range(700))
    assert "more than 256 MiB" in _refused(tmp_path, f"defaults: {{checks: [{{contains: {long}}}]}}\ncases:\n{cases}")


def test_a_file_of_cases_is_not_reached_by_a_link(tmp_path: Path) -> None:
    """What lies outside stays there: a message would show its first line."""
    folder, outside = tmp_path / "in", tmp_path / "secret"
    folder.mkdir()
    outside.write_text("root:x:0\n")
    (folder / "rows.csv").symlink_to(outside)
    for name in ("rows.csv", json.dumps("a\0.csv")):
        assert "must name a .jsonl or .csv file" in _refused(folder, f"cases: [{{file: {name}}}]")


def test_keys_that_are_one_as_texts_are_refused(tmp_path: Path) -> None:
    """One of them would be dropped in silence."""
    said = _refused(tmp_path, "cases: [{id: a, vars: {1: x, '1': y}, expected: '{{1}}'}]")
    assert "'1' occurs twice" in said


def test_weights_are_distinguished(tmp_path: Path) -> None:
    """Those whose squares are nothing would divide by it."""
    assert "from 1e-9" in _refused(tmp_path, "cases: [{id: a, expected: x, weight: 1.0e-200}]")


def test_the_smallest_thresholds_are_decided() -> None:
    """Also past the number of looks that limits are known for."""
    for planned in (0, 20, 10**6):
        assert Demand("a", Threshold(number="pass@3", least=1e-17), 5, 5, planned).verdict == "holds"


def test_the_same_outputs_twice_are_refused(tmp_path: Path) -> None:
    """They would count as twice the evidence."""
    (tmp_path / "cases.yaml").write_text("cases: [{id: a, expected: x}]")
    outputs = (str(tmp_path / "out.jsonl"), f"{tmp_path}/./out.jsonl")
    with pytest.raises(UsageError, match="same file twice"):
        complete_request(Request([str(tmp_path / "cases.yaml")], {}, {"outputs": outputs}))


def test_the_last_match_is_found_in_bounded_time_or_not_at_all(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where every match looks through the rest of a long text, there is no last one: never one of the middle."""
    assert judged({"captures": r"(\d)", "is": "7", "which": "last"}, "1" * 20_000 + "7").passed is True
    monkeypatch.setattr(text, "_MOST_STEPS", portion(text._MOST_STEPS))
    began = time.process_time()
    assert judged({"not-captures": "a(.*Z)?", "is": "b", "which": "last"}, "a" * 400_000).passed is False
    assert time.process_time() - began < 10.0


def test_a_comma_behind_a_number_is_no_part_of_it() -> None:
    """Thousands stay one number before it, and what looks like an exponent behind it is none."""
    assert list(numbers_in("1,234, 2,345,678,e5 or 1,e5")) == [1234, 2345678, 5, 1, 5]
    assert judged({"number": 1234, "which": "only"}, "It costs 1,234, which is much.").passed is True


def test_a_bound_may_be_larger_than_any_answer() -> None:
    """And larger than what a library takes for one."""
    assert judged({"edit-distance": "Paris", "max": 10**20}, "London").passed is True


def test_bounds_at_a_path_keep_every_digit() -> None:
    """A whole number that no float holds is compared as it is written, and the verdict says so."""
    least = {"json-path": "$.id", "min": 2**53 + 1}
    assert judged(least, {"id": 2**53}).passed is False
    assert judged(least, {"id": 2**53 + 1}).passed is True
    assert judged(least, {"id": 1}).wanted == "$.id: at least 9007199254740993"
    assert judged({"json-path": "$.id", "max": 1234567.5}, {"id": 1}).wanted == "$.id: at most 1234567.5"
