"""Expectations of a golden set: operators, the lookup table, and what is said when they are not met."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evalq.evalcore.evaluators.vs import VsParams
from evalq.evalcore.evaluators.vs.golden import Unmet, checks_of, t_score_range_check, unmet
from evalq.evalcore.evaluators.vs.params import Expectation, GoldenCase, Op
from tests.unit.vs.helpers import FULL, good_output, with_value, without
from tests.unit.vs.test_validators import json_values

PARAMS = VsParams()


def problem(output: dict[str, Any], key: str, want: Any, op: Op = "==") -> Unmet | None:
    """What is wrong with one expectation of ``output``."""
    case = GoldenCase(id="x", agent=FULL, expected=(Expectation(key=key, op=op, want=want),))
    (check,) = checks_of(case, PARAMS)
    return unmet(check, output)


def main_output(**members: Any) -> dict[str, Any]:
    return with_value(good_output(), "content.main_output", members)


@given(st.sampled_from([">=", ">", "<=", "<", "==", "!="]), st.integers(0, 5), st.integers(0, 5))
def test_operators_compare_the_length_of_a_list(op: Op, length: int, number: int) -> None:
    """Every operator means what it means in arithmetic."""
    relation = {
        ">=": length >= number,
        ">": length > number,
        "<=": length <= number,
        "<": length < number,
        "==": length == number,
        "!=": length != number,
    }
    assert (problem(main_output(things=["x"] * length), "things", number, op) is None) == relation[op]


@pytest.mark.parametrize(
    ("key", "path"),
    [("modal_count", "vs_metadata.modal_identified"), ("critique_count", "content.main_output.critiques")],
)
def test_counts_are_lengths_of_lists(key: str, path: str) -> None:
    """A count is the list's length; anything but a list is no count, and an absent one is not found."""
    assert problem(with_value(good_output(), path, [1, 2, 3]), key, 3, ">=") is None
    short = problem(with_value(good_output(), path, [1]), key, 3, ">=")
    assert short == Unmet(f"{key} is not >= 3", f"{key} is 1, expected >= 3")
    number = problem(with_value(good_output(), path, 3), key, 3, ">=")
    assert number == Unmet(f"{key} is not >= 3", f"{key} is a number, expected >= 3")
    missing = problem(without(with_value(good_output(), path, []), path), key, 0, ">=")
    assert missing == Unmet(f"{key} not found", f"{key} not found (looked at {path})")


@pytest.mark.parametrize(
    ("key", "path"),
    [("has_rebuttals", "content.main_output.rebuttals"), ("has_self_critique", "self_critique")],
)
def test_flags_say_whether_something_is_there(key: str, path: str) -> None:
    """Non-empty is true; empty and absent are both false, so that a golden set can ask for either."""
    full, empty = with_value(good_output(), path, {"a": 1}), with_value(good_output(), path, {})
    absent = without(empty, path)
    assert problem(full, key, True) is None
    assert problem(empty, key, True) == Unmet(f"{key} is not true", f"{key} is false, expected true")
    assert problem(absent, key, False) is None
    assert problem(full, key, False) == Unmet(f"{key} is not false", f"{key} is true, expected false")


def test_alternatives_are_looked_for_in_two_places() -> None:
    """In the self-critique, or failing that in the main output."""
    neither = with_value(main_output(), "self_critique.alternative_perspectives", [])
    assert problem(good_output(), "has_alternatives", True) is None
    assert problem(neither, "has_alternatives", True) is not None
    other = with_value(neither, "content.main_output.alternative_explanations", ["another"])
    assert problem(other, "has_alternatives", True) is None


@pytest.mark.parametrize("key", ["refined_questions", "pico_elements", "code_generated", "modal_awareness"])
def test_listed_values_are_only_looked_for_in_the_main_output(key: str) -> None:
    """The same key at the top level does not count."""
    assert problem(main_output(**{key: ["x"]}), key, True) is None
    found = problem(good_output() | {key: ["x"]}, key, True)
    assert found == Unmet(f"{key} not found", f"{key} not found (looked at content.main_output.{key})")


def test_an_unlisted_key_is_looked_for_in_the_main_output_then_at_the_top() -> None:
    """The main output wins; found nowhere, the message names both places."""
    assert problem(main_output(depth=2) | {"depth": 9}, "depth", 2) is None
    assert problem(good_output() | {"depth": 9}, "depth", 9) is None
    nowhere = problem(good_output(), "depth", 2)
    assert nowhere == Unmet("depth not found", "depth not found (looked at content.main_output.depth and depth)")


@pytest.mark.parametrize(
    ("value", "want", "met"),
    [
        ([], False, True),
        (0, False, True),
        ("no", True, True),
        (None, False, True),
        (3, 3, True),
        (3.0, 3, True),
        ([1, 2], 2, True),
        (True, 1, False),
        ("3", 3, False),
        ({"a": 1}, 1, False),
        ("major", "major", True),
        ("Major", "major", False),
        (3, "3", False),
        (["major"], "major", False),
    ],
)
def test_a_value_is_compared_as_what_is_wanted(value: Any, want: Any, met: bool) -> None:
    """Against a boolean by its truth, against a number as a number or a list's length, against text as that text."""
    assert (problem(main_output(thing=value), "thing", want) is None) == met


@given(json_values, st.sampled_from([True, 0, 1.5, "x"]))
def test_any_value_can_be_looked_at(value: Any, want: Any) -> None:
    """Whatever stands at the place, or in place of the objects above it, there is an answer."""
    problem(main_output(thing=value), "thing", want)
    problem(with_value(good_output(), "content", value), "thing", want)
    problem({"content": value, "vs_metadata": value}, "modal_count", 1)


def test_long_values_are_cut_in_messages() -> None:
    """A message about ten million characters is short."""
    found = problem(main_output(thing="x" * 10_000_000), "thing", "y")
    assert found is not None
    assert len(found.issue) < 200


def test_only_numbers_have_an_order() -> None:
    """An expectation such as ``> true`` cannot be made."""
    with pytest.raises(ValueError, match="> needs a number"):
        Expectation(key="x", op=">", want=True)
    with pytest.raises(ValueError, match="!= needs a number"):
        Expectation(key="x", op="!=", want="y")


def range_problem(output: dict[str, Any], low: float, high: float) -> Unmet | None:
    return t_score_range_check(GoldenCase(id="x", agent=FULL, t_score_range=(low, high)), output)


def test_t_scores_must_lie_within_the_range() -> None:
    """Both bounds belong to it; the message counts the scores outside."""
    assert range_problem(good_output(), 0.3, 0.9) is None
    assert range_problem(good_output(), 0.4, 0.8) == Unmet(
        "T-scores are not within 0.4 to 0.8", "2 of 2 T-scores outside 0.4 to 0.8"
    )
    assert t_score_range_check(GoldenCase(id="x", agent=FULL), good_output()) is None


@pytest.mark.parametrize("value", [None, [], {}, "x", ["x"], [{"score": "0.5"}], [{"score": True}]])
def test_a_range_without_scores_is_not_met(value: Any) -> None:
    """Nothing readable is within no range."""
    found = range_problem(with_value(good_output(), "vs_metadata.t_scores", value), 0, 1)
    assert found is not None
    assert found.issue == "no T-scores, expected some within 0 to 1"
    assert range_problem({"vs_metadata": value}, 0, 1) == found
