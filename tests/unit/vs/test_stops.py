"""Sweeps that could stop: the key ``stop`` of a line, and what the report makes of it."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from evalq.evalcore.contract.evaluator import Batch
from evalq.evalcore.evaluators.vs import evaluator
from evalq.evalcore.model.canonical import canonical_json
from evalq.evalcore.records.json_values import stop_of
from evalq.evalcore.statistics.mode_share import mode_share_interval, spending_p_value
from evalq.evalcore.statistics.sequences import mode_share_sequence
from tests.unit.vs.helpers import PARAMS, entry, evaluated, good_output, line, make_params, marked, runs_of, stop_mark


@pytest.mark.parametrize(
    ("stop", "issue"),
    [
        (None, "stop: null where an object with rule and of is wanted"),
        ([], "stop: a list where an object with rule and of is wanted"),
        (True, "stop: a boolean where an object with rule and of is wanted"),
        ({}, "stop.rule: missing where 'when-decided' is wanted"),
        ({"rule": "soon", "of": 3}, "stop.rule: 'soon' where 'when-decided' is wanted"),
        ({"rule": 7, "of": 3}, "stop.rule: 7 where 'when-decided' is wanted"),
        ({"rule": ["when-decided"], "of": 3}, "stop.rule: a list where 'when-decided' is wanted"),
        ({"rule": "when-decided"}, "stop.of: missing where a whole number from 1 is wanted"),
        ({"rule": "when-decided", "of": 0}, "stop.of: 0 where a whole number from 1 is wanted"),
        ({"rule": "when-decided", "of": True}, "stop.of: true where a whole number from 1 is wanted"),
        ({"rule": "when-decided", "of": 9.0}, "stop.of: 9.0 where a whole number from 1 is wanted"),
        ({"rule": "when-decided", "of": "9"}, "stop.of: a string where a whole number from 1 is wanted"),
        ({"rule": "when-decided", "of": 2**53}, f"stop.of: {2**53} where a whole number from 1 is wanted"),
        ({"rule": "when-decided", "of": 9, "at": 3}, "stop.at: no such key; there are rule and of"),
    ],
)
def test_a_wrong_stop_is_a_fault_that_names_the_key(tmp_path: Path, stop: Any, issue: str) -> None:
    """The line is an error, its case is not one that could stop, and the fault is in the report."""
    assert stop_of({"stop": stop}) == (0, issue)
    broken = json.dumps({"case": "F", "repeat": 1, "output": good_output(), "stop": stop}).encode()
    found = json.loads(evaluator.evaluate(Batch("o", 1, broken), make_params()).lines[0])
    assert (found["status"], found["case"], found["repeat"], found["issue"]) == ("ERROR", "F", 1, issue)
    report = evaluated(tmp_path, [line("F", 0, good_output()), broken]).report
    assert report["faults"] == [{"where": "outputs.jsonl:2", "reason": issue}]
    assert "stopping" not in report["results"]


@pytest.mark.parametrize("calls", [1, 100, 2**53 - 1])
def test_what_the_driver_writes_is_read_back(calls: int) -> None:
    """As many calls planned, and nothing wrong; without the key none."""
    assert stop_of({"stop": stop_mark(calls)}) == (calls, "")
    assert stop_of({"case": "F"}) == (0, "")


@pytest.mark.parametrize(
    ("stop", "key"),
    [
        (b'{"rule": "when-decided", "of": 3}, "stop": {"rule": "when-decided", "of": 4}', "stop"),
        (b'{"rule": "when-decided", "of": 3, "of": 4}', "stop.of"),
        (b'{"rule": "soon", "rule": "when-decided", "of": 4}', "stop.rule"),
    ],
)
def test_a_stop_given_twice_is_a_fault(stop: bytes, key: str) -> None:
    """As with the other keys of a line: nobody can know which was meant."""
    data = b'{"case": "F", "repeat": 0, "output": {}, "stop": ' + stop + b"}"
    found = json.loads(evaluator.evaluate(Batch("o", 1, data), make_params()).lines[0])
    assert (found["status"], found["issue"]) == ("ERROR", f"{key}: the key is given more than once")


def test_a_case_that_could_stop_is_judged_by_what_its_plan_allows(tmp_path: Path) -> None:
    """One line with the key is enough for its case, an error's line too; other cases stay with the fixed interval."""
    options = ["a"] * 12
    failed = json.dumps({"case": "F", "repeat": 12, "error": "timeout", "stop": stop_mark(30)}).encode()
    found = evaluated(tmp_path, [*runs_of("F", options), failed, *runs_of("E", options)])
    stopped, fixed = entry(found, "F"), entry(found, "E")
    assert (stopped["verdict"], fixed["verdict"]) == ("inconclusive", "collapsed")
    assert (stopped["runs_to_decide"], fixed["runs_to_decide"]) == (2, 0)
    low, high = mode_share_sequence(12, 12)
    assert stopped["mode_share"] == {"value": 1.0, "low": low, "high": high}
    low, high = mode_share_interval(12, 12)
    assert fixed["mode_share"] == {"value": 1.0, "low": low, "high": high}
    assert stopped["stop"] == {"rule": "when-decided", "of": 30}
    assert "stop" not in fixed


def test_the_section_says_what_was_saved(tmp_path: Path) -> None:
    """Cases decided and not, calls planned, made and saved; a case over its plan takes nothing from the others."""
    lines = [marked(data, stop_mark(40)) for data in runs_of("F", ["a"] * 16)]
    lines += [marked(data, stop_mark(5)) for data in runs_of("E", "abcdefg")]
    lines.append(marked(line("E", 7, good_output("h")), stop_mark(4)))
    lines += [marked(data, stop_mark(9)) for data in runs_of("L", ["a"] * 3)]
    lines += runs_of("M", ["a"] * 3)
    cases = [*PARAMS["cases"], {**PARAMS["cases"][2], "id": "M"}]
    assert evaluated(tmp_path, lines, {**PARAMS, "cases": cases}).report["results"]["stopping"] == {
        "rule": "when-decided",
        "alpha": 0.025,
        "cases": 3,
        "decided": 2,
        "undecided": 1,
        "calls_planned": 54,
        "calls_made": 27,
        "calls_saved": 24,
    }


def test_a_case_with_errors_alone_is_undecided(tmp_path: Path) -> None:
    """It was planned and called, has no data, and what it lacks is not saved."""
    failed = [json.dumps({"case": "F", "repeat": n, "error": "x", "stop": stop_mark(9)}).encode() for n in range(3)]
    found = evaluated(tmp_path, [*failed, line("E", 0, good_output())]).report["results"]
    assert (found["stopping"]["decided"], found["stopping"]["undecided"]) == (0, 1)
    assert (found["stopping"]["calls_made"], found["stopping"]["calls_saved"]) == (3, 0)
    assert found["mode_collapse"][0]["verdict"] == "no_data"


def test_nothing_changes_where_no_line_has_a_stop(tmp_path: Path) -> None:
    """Neither section, entry nor Markdown has a word of it."""
    found = evaluated(tmp_path, runs_of("F", ["a"] * 20))
    assert b"stop" not in canonical_json(found.report)
    assert "topping" not in evaluator.views.markdown(found.report, {})


def test_the_statement_over_all_cases_allows_for_looking(tmp_path: Path) -> None:
    """The p-value of a case that could stop is that of its plan, which is larger than the fixed one."""
    lines = runs_of("F", ["a"] * 20)
    plain = evaluated(tmp_path, lines).report["results"]["collapse_nowhere"]
    stopped = evaluated(tmp_path, [marked(data, stop_mark(100)) for data in lines]).report["results"][
        "collapse_nowhere"
    ]
    assert plain["collapsed"] == [{"case": "F", "p": pytest.approx(0.7**20 + 0.3**20)}]
    assert stopped["collapsed"] == [{"case": "F", "p": spending_p_value(20, 20, 0.7, 100)}]
    assert 0.7**20 < spending_p_value(20, 20, 0.7, 100) < 0.025


def test_the_dashboard_shows_stopping(tmp_path: Path) -> None:
    """One line: the rule, the cases decided, the calls, and where the verdicts come from."""
    lines = [marked(data, stop_mark(4000)) for data in runs_of("F", ["a"] * 20)]
    text = evaluator.views.markdown(evaluated(tmp_path, lines).report, {})
    assert (
        "Stopping when-decided: 1 of 1 cases decided, 0 undecided; 20 of 4,000 calls made, 3,980 saved. Verdicts "
        "of these cases spend their error, at most 2.5% on either side, over the calls planned; shares are a "
        "confidence sequence. Both hold however often they were looked at"
    ) in text


@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.integers(0, 60), min_size=2, max_size=14), st.integers(1, 5), st.randoms(use_true_random=False))
def test_cuts_and_order_change_nothing(tmp_path: Path, plans: list[int], size: int, rng: random.Random) -> None:
    """Lines with and without the key, in any chunks and order: the same section, and the largest plan counts."""
    lines = [
        marked(data, stop_mark(plan)) if plan else data
        for data, plan in zip(runs_of("F", ["a"] * len(plans)), plans, strict=True)
    ]
    whole = evaluated(tmp_path, lines)
    assert entry(whole, "F").get("stop", {"of": 0})["of"] == max(plans)
    assert canonical_json(evaluated(tmp_path, lines, chunk_size=size).report) == canonical_json(whole.report)
    mixed = rng.sample(lines, len(lines))
    assert evaluated(tmp_path, mixed, PARAMS, size).report["results"] == whole.report["results"]
