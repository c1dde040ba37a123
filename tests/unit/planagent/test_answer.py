"""Reading Raw JSON: whatever stands there, no row can stop a run."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evalq.evalcore.evaluators.planagent.record import MAX_DEPTH, PlanAnswer, plain_text, read_answer, shortened
from tests.unit.planagent.strategies import json_values


def _read(**fields: Any) -> PlanAnswer:
    found = read_answer(json.dumps(fields))
    assert found is not None
    return found


@pytest.mark.parametrize(
    "text",
    ["", " ", "{", "nonsense", "[]", "null", '"text"', "12", '{"a": 1} x', "{'a': 1}", '{"dataUIList": [}', "\x00"],
)
def test_what_is_no_json_object_is_unparsable(text: str) -> None:
    """Broken JSON, and JSON that is no object, are no answer."""
    assert read_answer(text) is None


@pytest.mark.parametrize(
    "text",
    [
        '{"assistantMessage": "a", "responseTimeSec": NaN}',
        '{"assistantMessage": "a", "responseTimeSec": -Infinity}',
        '{"assistantMessage": "a", "responseTimeSec": 1e999}',
        '{"assistantMessage": "a", "responseTimeSec": ' + "9" * 5000 + "}",
        '{"assistantMessage": "a", "worker": "\\ud800"}',
    ],
)
def test_what_common_writers_let_through_is_read_without_its_number(text: str) -> None:
    """NaN, infinity, a number beyond any range and a lone surrogate leave the rest of the answer readable."""
    found = read_answer(text)
    assert found is not None
    assert (found.message, found.seconds) == ("a", None)


@pytest.mark.parametrize("opening", ["[", '{"a":', '[{"a":'])
def test_nesting_is_bounded_at_a_fixed_depth(opening: str) -> None:
    """A depth bomb is unparsable, and so is anything beyond MAX_DEPTH, independent of the stack."""
    closing = {"[": "]", '{"a":': "}", '[{"a":': "}]"}[opening]
    deepest = (MAX_DEPTH - 1) // len(closing)
    for levels, readable in ((deepest, True), (deepest + 1, False), (200_000, False)):
        inner = opening * levels + "1" + closing * levels
        assert (read_answer('{"worker":' + inner + "}") is not None) is readable


def test_brackets_in_strings_are_no_nesting() -> None:
    """A message full of brackets and escaped quotes is flat."""
    found = _read(assistantMessage='[{"\\' * 1000, worker=[{"k": ['"[']}])
    assert found.message == '[{"\\' * 1000


def test_wide_answers_are_no_deep_ones() -> None:
    """More brackets than MAX_DEPTH side by side are fine, deep down too."""
    assert len(_read(dataUIList=[{"uiValue": {}}] * 1000).values) == 1000
    wide: Any = [[], {}] * 1000
    for _ in range(MAX_DEPTH - 3):
        wide = {"a": wide}
    assert _read(worker=wide, assistantMessage="x").message == "x"


def test_an_unclosed_string_of_brackets_is_unparsable_in_linear_time() -> None:
    """A megabyte of escapes and brackets in a string that never ends does not take long."""
    assert read_answer('{"a": "' + '\\"[' * 300_000) is None


@pytest.mark.parametrize(
    "seconds", [True, False, None, "7", "", [], {}, -0.001, -1, float("nan"), float("inf"), 10**400]
)
def test_seconds_that_are_no_number_from_zero_on_are_none(seconds: Any) -> None:
    """Strings and booleans are no numbers; negative, NaN and infinite times are no times."""
    assert _read(responseTimeSec=seconds).seconds is None


@pytest.mark.parametrize(
    ("given_", "wanted"), [(0, 0.0), (0.0, 0.0), (7, 7.0), (7.25, 7.25), (1e-300, 1e-300), (10**30, 1e30)]
)
def test_seconds_are_floats(given_: float, wanted: float) -> None:
    """Integers and floats alike."""
    got = _read(responseTimeSec=given_).seconds
    assert got == wanted
    assert type(got) is float


@pytest.mark.parametrize("items", [None, {}, "x", 3, True])
def test_a_list_that_is_no_list_is_empty(items: Any) -> None:
    """Then the message alone decides whether the answer is empty."""
    found = _read(dataUIList=items, assistantMessage=" \n")
    assert found.items == []
    assert found.empty


@pytest.mark.parametrize("message", [None, 3, ["x"], {"text": "x"}, ""])
def test_a_message_that_is_no_text_is_empty(message: Any) -> None:
    """With an item beside it, the answer is not."""
    found = _read(assistantMessage=message, dataUIList=[None])
    assert found.message == ""
    assert not found.empty


def test_only_objects_count_as_values() -> None:
    """Items that are no objects, or whose uiValue is none, are items without anything to find."""
    found = _read(
        dataUIList=[None, 1, "x", [], {}, {"uiValue": "x"}, {"uiValue": None}, {"uiValue": {"formType": "A"}}]
    )
    assert len(found.items) == 8
    assert found.values == [{"formType": "A"}]


@given(st.fixed_dictionaries({}, optional=dict.fromkeys(PlanAnswer.__struct_fields__, json_values)) | json_values)
def test_an_answer_is_an_object_whatever_it_holds(value: Any) -> None:
    """Exactly JSON objects are answers."""
    assert (read_answer(json.dumps(value)) is not None) is isinstance(value, dict)


@given(st.text(max_size=60))
def test_any_text_is_an_answer_or_none(text: str) -> None:
    """No text makes reading fail."""
    assert read_answer(text.encode("utf-8", "replace").decode()) is None or "{" in text


@pytest.mark.parametrize(
    ("values", "forms"),
    [
        ([], ""),
        ([{"formType": "A"}], "A"),
        ([{"formType": 1}], ""),
        ([{"formType": "B"}, {"formType": "A"}, {"formType": "B"}, {"formType": None}], "A+B"),
    ],
)
def test_forms_name_each_form_type_once(values: list[dict[str, Any]], forms: str) -> None:
    """In alphabetical order, so that the order of items makes no new pattern."""
    assert _read(dataUIList=[{"uiValue": value} for value in values]).forms == forms


def test_plain_text_can_always_be_written() -> None:
    """Lone surrogates are replaced, objects become JSON."""
    assert plain_text("a\ud800b") == "a?b"
    assert plain_text({"b": 1, "a": "가"}) == '{"a": "가", "b": 1}'


def test_shortened_text_is_one_line_of_at_most_the_limit() -> None:
    """White space collapses, and a cut is marked."""
    assert shortened(" a \n b ", 10) == "a b"
    assert shortened("x" * 11, 10) == "x" * 9 + "…"
