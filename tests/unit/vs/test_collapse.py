"""Mode collapse: the specified numbers against an oracle, and the robust block's verdicts where those mislead."""

from __future__ import annotations

import math
import time
from dataclasses import FrozenInstanceError
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evalq.evalcore.evaluators.vs import ModeCollapseReport, detect_mode_collapse
from evalq.evalcore.evaluators.vs.collapse import robust_block, specified
from evalq.evalcore.evaluators.vs.params import CollapseRule
from evalq.evalcore.statistics.mode_share import FIXED_RUNS, CaseDiversity, collapse_nowhere

RULE = CollapseRule()


def output(option: Any) -> dict[str, Any]:
    return {"vs_metadata": {"final_selection": {"option": option}}}


def counts(*numbers: int) -> dict[str, int]:
    """Options "a", "b", ... counted so often."""
    return {chr(ord("a") + index): number for index, number in enumerate(numbers)}


@given(st.lists(st.sampled_from("abcde"), min_size=1, max_size=40))
def test_detection_follows_the_specification(options: list[str]) -> None:
    """Evenness is entropy over its maximum, collapse is evenness under .3, ties go to who came first."""
    kinds = sorted(set(options), key=options.index)
    shares = [options.count(kind) / len(options) for kind in kinds]
    entropy = sum(share * math.log(1 / share) for share in shares)
    evenness = entropy / math.log(len(kinds)) if len(kinds) > 1 else 0.0
    report = detect_mode_collapse([output(option) for option in options])
    assert report.unique_recommendations == len(kinds)
    assert report.total_runs == len(options)
    assert report.diversity_score == pytest.approx(evenness)
    if abs(evenness - 0.3) > 1e-9:
        assert report.mode_collapse_detected == (evenness < 0.3)
    ranked = [(kind, options.count(kind)) for kind in kinds]
    ranked.sort(key=lambda pair: pair[1], reverse=True)
    assert report.most_common == ranked[:3]
    assert report.errors == 0


@pytest.mark.parametrize(
    ("numbers", "evenness", "detected"),
    [
        ((5, 5), 1.0, False),
        ((1,) * 10, 1.0, False),
        ((47, 3), 0.32744, False),
        ((47, 2, 1), 0.24136, True),
        ((9,), 0.0, True),
    ],
)
def test_the_specified_number_stays_as_it_is(numbers: tuple[int, ...], evenness: float, detected: bool) -> None:
    """Two even modes and ten read alike, 47:3 reads not collapsed and 47:2:1 collapsed: as specified."""
    report = specified(counts(*numbers), RULE)
    assert report.diversity_score == pytest.approx(evenness, abs=5e-5)
    assert report.mode_collapse_detected is detected


@pytest.mark.parametrize(
    "broken",
    [
        None,
        [],
        {},
        {"vs_metadata": None},
        {"vs_metadata": {"final_selection": "x"}},
        output(None),
        output(["a"]),
        output({}),
    ],
)
def test_a_run_without_an_option_is_counted_and_left_out(broken: Any) -> None:
    """Such a run changes nothing but the number of errors."""
    report = detect_mode_collapse([output("a"), broken, output("b")])
    assert (report.total_runs, report.unique_recommendations, report.errors) == (2, 2, 1)


@pytest.mark.parametrize("outputs", [[], [{}], [output(None), {"vs_metadata": []}]])
def test_nothing_to_count_says_nothing(outputs: list[dict[str, Any]]) -> None:
    """Without any option there is neither a score nor a detection."""
    assert detect_mode_collapse(outputs) == ModeCollapseReport(
        unique_recommendations=0,
        total_runs=0,
        diversity_score=None,
        mode_collapse_detected=None,
        most_common=[],
        errors=len(outputs),
    )


def test_an_evenness_at_its_limit_is_no_collapse() -> None:
    """Only below it is one, as the specification says "less than"."""
    assert specified(counts(5, 5), CollapseRule(detected_below=1.0)).mode_collapse_detected is False
    assert specified(counts(5), CollapseRule(detected_below=0.0)).mode_collapse_detected is False


def test_a_report_is_a_value_and_has_the_errors_it_was_given() -> None:
    """None unless some were; nobody changes it afterwards."""
    report = specified(counts(1), RULE)
    assert (report.errors, specified({}, RULE).errors, specified({}, RULE, errors=2).errors) == (0, 0, 2)
    with pytest.raises(FrozenInstanceError):
        report.errors = 1  # type: ignore[misc]  # that is the point


def test_options_that_are_no_text_are_counted_by_value() -> None:
    """The function takes any option that can be counted, as the specification's code does."""
    report = detect_mode_collapse([output(1), output(1), output("1")])
    assert report.most_common == [(1, 2), ("1", 1)]


@pytest.mark.parametrize(
    ("numbers", "verdict", "more"),
    [
        ((47, 3), "collapsed", 0),
        ((47, 2, 1), "collapsed", 0),
        ((1,) * 10, "diverse", 0),
        ((5, 5), "inconclusive", 18),
        ((1,), "inconclusive", 10),
        ((11,), "collapsed", 0),
    ],
)
def test_the_verdict_looks_at_the_share_of_the_mode(numbers: tuple[int, ...], verdict: str, more: int) -> None:
    """47:3 and 47:2:1 are both collapsed, ten of ten diverse, one run undecided, whatever the evenness."""
    block = robust_block(counts(*numbers), RULE)
    assert (block["verdict"], block["runs_to_decide"]) == (verdict, more)


def test_the_block_counts_normalised_options() -> None:
    """Case, spaces and a full stop do not make another answer: three spellings of one are one mode."""
    block = robust_block({"A plan": 4, "a  plan.": 3, "Ａ plan": 2, "another": 1, "anothr": 1}, RULE)
    assert block["distinct"] == {"exact": 5, "normalized": 3, "fuzzy": 2}
    assert block["mode_share"]["value"] == pytest.approx(9 / 11)
    assert block["coverage"] == pytest.approx(9 / 11)
    assert block["chao1"] == 4.0


def test_the_block_of_reference_counts() -> None:
    """Counts 4, 3, 2, 1 give the reference values under their keys."""
    block = robust_block(counts(4, 3, 2, 1), RULE)
    assert block["effective_modes"] == pytest.approx({"q1": 3.59612, "q2": 10 / 3}, abs=5e-6)
    assert block["entropy_bits"] == pytest.approx({"plugin": 1.84644, "chao_wang_jost": 2.13435}, abs=5e-6)
    assert block["collision_probability"]["value"] == pytest.approx(20 / 90)
    assert block["collision_probability"]["low"] < 20 / 90 < block["collision_probability"]["high"]
    assert (block["coverage"], block["chao1"]) == (0.9, 4.0)


def test_one_run_has_no_collision_probability() -> None:
    """Two runs are needed to agree; the value and both bounds are null."""
    assert robust_block({"a": 1}, RULE)["collision_probability"] == {"value": None, "low": None, "high": None}


def test_no_data_has_the_same_keys() -> None:
    """A case without any option has every key, null, and its own verdict."""
    empty, full = robust_block({}, RULE), robust_block({"a": 2}, RULE)
    assert empty.keys() == full.keys()
    assert empty["verdict"] == "no_data"
    assert empty["distinct"] == {"exact": 0, "normalized": 0, "fuzzy": 0}
    assert {key: value.keys() for key, value in empty.items() if isinstance(value, dict)} == {
        key: value.keys() for key, value in full.items() if isinstance(value, dict)
    }


def test_a_case_of_a_hundred_thousand_runs_is_fast() -> None:
    """With five thousand distinct options the block takes tens of milliseconds; the bound leaves room."""
    options = {f"option number {index}": 20 for index in range(5000)}
    began = time.process_time()
    robust_block(options, RULE)
    assert time.process_time() - began < 0.5


def case(name: str, mode: int, runs: int, verdict: str) -> CaseDiversity:
    return CaseDiversity(name, FIXED_RUNS.p_value(mode, runs, RULE.collapse_share) if runs else None, verdict)


def test_one_collapsed_case_fails_the_statement() -> None:
    """A mode of 50 in 50 stands after the correction, and is named with its adjusted p-value."""
    found = collapse_nowhere([case("x", 50, 50, "collapsed"), case("y", 3, 50, "diverse")])
    assert found["verdict"] == "fails"
    assert [item["case"] for item in found["collapsed"]] == ["x"]
    assert found["collapsed"][0]["p"] == pytest.approx(2 * 0.7**50, rel=1e-6)
    assert (found["cases"], found["correction"], found["alpha"]) == (2, "Fisher and Holm", 0.025)


def test_what_is_significant_alone_may_not_be_among_many() -> None:
    """Eleven of eleven is collapsed by itself (p = .0198); among forty cases it proves nothing, nor does it hold."""
    alone = collapse_nowhere([case("x", 11, 11, "collapsed")])
    many = collapse_nowhere([case("x", 11, 11, "collapsed"), *(case(f"{n}", 1, 50, "diverse") for n in range(39))])
    assert alone["verdict"] == "fails"
    assert many["verdict"] == "inconclusive"


def test_it_holds_only_when_every_case_is_diverse() -> None:
    """One undecided case, one without data, or no case at all leave it open."""
    diverse = case("x", 1, 50, "diverse")
    assert collapse_nowhere([diverse])["verdict"] == "holds"
    assert collapse_nowhere([diverse, case("y", 1, 1, "inconclusive")])["verdict"] == "inconclusive"
    assert collapse_nowhere([diverse, case("y", 0, 0, "no_data")])["verdict"] == "inconclusive"
    assert collapse_nowhere([])["verdict"] == "inconclusive"


def test_one_answer_in_two_wordings_is_not_called_diverse() -> None:
    """A mode of nine in ten, half of it with another ending: diverse as counted, collapsed with near-duplicates as one.

    The statement over all cases takes neither side.
    """
    options = {"a threshold model of care": 45, "a threshold model of caring": 45, "something else": 10}
    block = robust_block(options, CollapseRule())
    assert (block["verdict"], block["fuzzy"]["verdict"]) == ("diverse", "collapsed")
    assert (block["mode_share"]["value"], block["fuzzy"]["mode_share"]["value"]) == (0.45, 0.9)
    plain = CaseDiversity("one", 1.0, "diverse", "diverse")
    unsure = CaseDiversity("two", 1.0, block["verdict"], block["fuzzy"]["verdict"])
    assert collapse_nowhere([plain])["verdict"] == "holds"
    assert collapse_nowhere([plain, unsure])["verdict"] == "inconclusive"


def test_more_options_than_are_compared_have_no_second_verdict() -> None:
    """Share and verdict by near-duplicates are null, and the case is judged by the other ones."""
    block = robust_block({f"option number {n}": 1 for n in range(6)}, CollapseRule(fuzzy_most=5))
    assert block["fuzzy"] == {"mode_share": {"value": None, "low": None, "high": None}, "verdict": None}
    assert CaseDiversity("one", 1.0, "diverse", None).surely_diverse


@pytest.mark.parametrize("options", [10, 13, 57])
def test_even_options_have_an_evenness_of_one(options: int) -> None:
    """And no more, where the quotient of floats is."""
    assert specified(dict.fromkeys(range(options), 3), CollapseRule()).diversity_score == 1.0
