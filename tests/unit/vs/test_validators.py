"""The four validators, against oracles written from the specification's words, on any output and on hostile ones."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evalq.evalcore.evaluators.vs import (
    validate_provenance,
    validate_self_critique,
    validate_t_score_distribution,
    validate_vs_phases,
)
from evalq.evalcore.evaluators.vs.params import VsParams
from evalq.evalcore.evaluators.vs.score import t_score_finding
from evalq.evalcore.evaluators.vs.validators import CritiqueResult, PhaseResult, ProvenanceResult, TScoreResult
from tests.unit.vs.helpers import good_output, with_value, without

REQUIRED = {"Full": {0, 1, 2, 3, 4, 5}, "Enhanced": {0, 1, 2, 4}, "Light": {0, 1, 4}}
VALIDATORS = (
    lambda output: validate_vs_phases(output, "Full"),
    validate_t_score_distribution,
    validate_self_critique,
    validate_provenance,
)


def maybe(key: str, values: st.SearchStrategy[Any]) -> st.SearchStrategy[dict[str, Any]]:
    """Objects that hold ``key``, or do not."""
    return st.one_of(st.just({}), st.fixed_dictionaries({key: values}))


def objects(**keys: st.SearchStrategy[Any]) -> st.SearchStrategy[dict[str, Any]]:
    """Objects with any subset of ``keys``."""
    return st.fixed_dictionaries({}, optional=keys)


score = st.one_of(st.floats(-1, 2), st.integers(0, 1))
texts = st.lists(st.text(max_size=3), max_size=4)
json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)


@given(
    maybe("vs_metadata", objects(phase_executed=st.lists(st.integers(-1, 7), max_size=9))),
    st.sampled_from(list(REQUIRED)),
)
def test_phases_follow_the_specification(output: dict[str, Any], level: str) -> None:
    """Missing are the required phases never executed, extra the executed ones never required, both in order."""
    done = output.get("vs_metadata", {}).get("phase_executed", [])
    missing = [phase for phase in range(6) if phase in REQUIRED[level] and phase not in done]
    extra = [phase for phase in range(-1, 8) if phase in done and phase not in REQUIRED[level]]
    result = validate_vs_phases(output, level)
    assert result.score == pytest.approx(1 - len(missing) / len(REQUIRED[level]))
    assert (result.passed, result.missing_phases, result.extra_phases) == (not missing, missing, extra)


@given(
    maybe(
        "vs_metadata",
        objects(
            t_scores=st.lists(st.fixed_dictionaries({"score": score}), max_size=5),
            final_selection=objects(t_score=score),
        ),
    )
)
def test_t_scores_follow_the_specification(output: dict[str, Any]) -> None:
    """Diverse when the least score is under .6, collapsed when it is over .8, modal when the selection is over .8."""
    metadata = output.get("vs_metadata", {})
    ordered = sorted(entry["score"] for entry in metadata.get("t_scores", []))
    result = validate_t_score_distribution(output)
    if not ordered:
        assert result == TScoreResult(passed=False, reason="No T-scores provided")
        return
    chosen = metadata.get("final_selection", {}).get("t_score")
    assert result.passed == (ordered[0] < 0.6 and chosen is not None and chosen <= 0.8)
    assert result.modal_collapse_detected == (ordered[0] > 0.8)
    assert result.has_diversity == (ordered[0] < 0.6)
    assert result.diversity_score == pytest.approx(1 - (ordered[-1] - ordered[0]))
    assert result.t_score_spread == pytest.approx(ordered[-1] - ordered[0])
    assert result.final_selection_t_score == chosen


@given(
    maybe(
        "self_critique",
        objects(strengths=texts, weaknesses=texts, improvement_suggestions=texts, alternative_perspectives=json_values),
    )
)
def test_self_critique_follows_the_specification(output: dict[str, Any]) -> None:
    """Three of four kinds of remark are enough; a weakness stands in for alternatives; an empty critique is none."""
    critique = output.get("self_critique")
    result = validate_self_critique(output)
    if not critique:
        assert result == CritiqueResult(passed=False, reason="No self-critique provided")
        return
    weak = critique.get("weaknesses", [])
    held = [
        len(critique.get("strengths", [])) > 1,
        len(weak) > 1,
        len(critique.get("improvement_suggestions", [])) > 0,
        len(weak) > 0 or "alternative_perspectives" in critique,
    ]
    names = ["has_strengths", "has_weaknesses", "has_improvements", "has_alternatives"]
    assert result.checks == dict(zip(names, held, strict=True))
    assert result.quality_score == held.count(True) / 4
    assert result.passed == (held.count(True) >= 3)


@given(maybe("provenance", objects(sources=texts, reasoning_trace=texts, assumptions=json_values)))
def test_provenance_follows_the_specification(output: dict[str, Any]) -> None:
    """Sources and reasoning must not be empty, assumptions must be stated, even as null; completeness is their mean."""
    given_keys = output.get("provenance", {})
    held = [bool(given_keys.get("sources")), bool(given_keys.get("reasoning_trace")), "assumptions" in given_keys]
    result = validate_provenance(output)
    assert list(result.checks.values()) == held
    assert list(result.checks) == ["has_sources", "has_reasoning", "has_assumptions"]
    assert result.passed == (held == [True] * 3)
    assert result.provenance_completeness == pytest.approx(sum(held) / 3)


def test_a_good_output_passes_all_four() -> None:
    """The output the other tests start from has nothing wrong."""
    assert all(validator(good_output()).passed for validator in VALIDATORS)


def test_scores_outside_their_range_are_computed_as_specified() -> None:
    """A score of 1.5 makes a spread of 1.2 and a diversity of -0.2, whatever the contract says of it."""
    result = validate_t_score_distribution(
        with_value(good_output(), "vs_metadata.t_scores", [{"score": 1.5}, {"score": 0.3}])
    )
    assert result.diversity_score == pytest.approx(-0.2)
    assert result.t_score_spread == pytest.approx(1.2)
    assert result.passed


def test_thresholds_are_strict_where_the_specification_is() -> None:
    """.6 is not low, .8 is not modal: both comparisons are strict."""
    entries = [{"score": 0.6}, {"score": 0.8}]
    result = validate_t_score_distribution({"vs_metadata": {"t_scores": entries, "final_selection": {"t_score": 0.8}}})
    assert (result.has_diversity, result.modal_collapse_detected, result.passed) == (False, False, False)
    entries = [{"score": 0.59}, {"score": 0.81}]
    result = validate_t_score_distribution({"vs_metadata": {"t_scores": entries, "final_selection": {"t_score": 0.8}}})
    assert result.passed
    result = validate_t_score_distribution({"vs_metadata": {"t_scores": entries, "final_selection": {"t_score": 0.81}}})
    assert not result.passed


@pytest.mark.parametrize("final", [{}, {"t_score": None}])
def test_a_selection_without_a_score_counts_as_modal(final: dict[str, Any]) -> None:
    """Diverse scores do not pass when nothing shows what was selected."""
    result = validate_t_score_distribution({"vs_metadata": {"t_scores": [{"score": 0.1}], "final_selection": final}})
    assert result == TScoreResult(passed=False, has_diversity=True, diversity_score=1.0, t_score_spread=0.0)


def test_phases_of_other_kinds_are_extra_and_sorted() -> None:
    """A phase "0" is not phase 0; numbers come first, in order, then all else by its text."""
    output = {"vs_metadata": {"phase_executed": ["b", 7, "0", 0, -1, 10**400, 6.5]}}
    result = validate_vs_phases(output, "Light")
    assert result.missing_phases == [1, 4]
    assert result.extra_phases == [-1, 6.5, 7, 10**400, "0", "b"]
    assert result.score == pytest.approx(1 / 3)


def test_another_level_is_the_callers_mistake() -> None:
    """A level that does not exist is a ValueError that names those that do."""
    with pytest.raises(ValueError, match="no level 'full'; there are Full, Enhanced, Light"):
        validate_vs_phases({}, "full")


@given(json_values, st.sampled_from(["vs_metadata", "self_critique", "provenance"]))
def test_no_value_makes_a_validator_raise(value: Any, key: str) -> None:
    """Whatever stands where the objects should, there is a result; and one that cannot be read has a reason."""
    for validator in VALIDATORS:
        validator({key: value})
        validator(value)


@pytest.mark.parametrize(
    ("path", "value", "reason"),
    [
        ("vs_metadata", None, "vs_metadata is null, not an object"),
        ("vs_metadata.phase_executed", 5, "vs_metadata.phase_executed is no list of phases"),
        ("vs_metadata.phase_executed", [[0]], "vs_metadata.phase_executed is no list of phases"),
    ],
)
def test_unreadable_phases_say_why(path: str, value: Any, reason: str) -> None:
    """All required phases are missing, the score is 0, and the reason names the value."""
    result = validate_vs_phases(with_value(good_output(), path, value), "Light")
    assert result == PhaseResult(passed=False, reason=reason, missing_phases=[0, 1, 4], extra_phases=[], score=0.0)


@pytest.mark.parametrize(
    ("path", "value", "reason"),
    [
        ("vs_metadata", [], "vs_metadata is a list, not an object"),
        ("vs_metadata.t_scores", "high", "vs_metadata.t_scores is a string, not a list"),
        ("vs_metadata.t_scores", [0.5], "vs_metadata.t_scores[0] is a number, not an object"),
        ("vs_metadata.t_scores", [{"score": 0.2}, {}], "vs_metadata.t_scores[1].score is missing"),
        ("vs_metadata.t_scores", [{"score": "0.2"}], "vs_metadata.t_scores[0].score is a string, not a number"),
        ("vs_metadata.t_scores", [{"score": None}], "vs_metadata.t_scores[0].score is null, not a number"),
        (
            "vs_metadata.t_scores",
            [{"score": 0.5}, {"score": 10**400}],
            "vs_metadata.t_scores holds a score too large for a number",
        ),
    ],
)
def test_unreadable_t_scores_say_why(path: str, value: Any, reason: str) -> None:
    """No number is made up, and the reason names the value."""
    assert validate_t_score_distribution(with_value(good_output(), path, value)) == TScoreResult(
        passed=False, reason=reason
    )


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        ("usual", "vs_metadata.final_selection is a string, not an object"),
        ({"t_score": "low"}, "vs_metadata.final_selection.t_score is a string, not a number"),
    ],
)
def test_an_unreadable_selection_leaves_the_other_numbers(value: Any, reason: str) -> None:
    """The spread is still there; the selection counts as modal, with the reason."""
    result = validate_t_score_distribution(with_value(good_output(), "vs_metadata.final_selection", value))
    assert (result.passed, result.reason) == (False, reason)
    assert result.t_score_spread == pytest.approx(0.6)


@pytest.mark.parametrize(
    ("path", "value", "reason"),
    [
        ("self_critique", ["fine"], "self_critique is a list, not an object"),
        ("self_critique.strengths", 3, "self_critique.strengths is a number, not a list"),
        ("self_critique.weaknesses", None, "self_critique.weaknesses is null, not a list"),
    ],
)
def test_an_unreadable_critique_says_why(path: str, value: Any, reason: str) -> None:
    """The quality is 0 and the reason names the value."""
    assert validate_self_critique(with_value(good_output(), path, value)) == CritiqueResult(
        passed=False, reason=reason, checks={}, quality_score=0.0
    )


@pytest.mark.parametrize(
    ("path", "value", "reason"),
    [
        ("provenance", 1.5, "provenance is a number, not an object"),
        ("provenance.sources", True, "provenance.sources is a boolean, not a list"),
    ],
)
def test_an_unreadable_provenance_says_why(path: str, value: Any, reason: str) -> None:
    """The completeness is 0 and the reason names the value."""
    assert validate_provenance(with_value(good_output(), path, value)) == ProvenanceResult(
        passed=False, reason=reason, checks={}, provenance_completeness=0.0
    )


@pytest.mark.parametrize("path", ["vs_metadata", "self_critique", "provenance", "vs_metadata.t_scores"])
def test_absence_is_a_failure_not_an_error(path: str) -> None:
    """A key that is not there fails the validator that looks for it."""
    assert not all(validator(without(good_output(), path)).passed for validator in VALIDATORS)


def test_text_has_a_length_as_in_the_specification() -> None:
    """A string of two characters counts as two strengths: the specification's code takes any length."""
    assert validate_self_critique(with_value(good_output(), "self_critique.strengths", "ab")).checks["has_strengths"]


def test_a_selection_beyond_all_floats_is_reported() -> None:
    """Whole numbers of JSON may be so large; such an output fails as others do, and ends no run."""
    chosen = {"t_scores": [{"score": 0.2}, {"score": 0.9}], "final_selection": {"t_score": 10**400}}
    result = validate_t_score_distribution({"vs_metadata": chosen})
    issue = t_score_finding(result, VsParams()).issue
    assert issue.startswith("T-scores: the final selection is modal (T-score 1000")
    assert len(issue) < 200
