"""The metrics of whole logs: by hand, against a slow oracle, and however the log was cut."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import evalq.evalcore.evaluators.cooperation as package
from evalq.evalcore.contract.evaluator import Batch
from evalq.evalcore.evaluators.cooperation import Cooperation, CooperationEvaluator, evaluator
from evalq.evalcore.evaluators.cooperation.params import CooperationParams
from evalq.evalcore.evaluators.cooperation.resort import SortLimits
from evalq.evalcore.fold import evaluate_files
from tests.unit.cooperation.logs import as_jsonl, entry, report_bytes, rows, run
from tests.unit.cooperation.oracle import oracle

SAMPLE = Path(package.__file__).parent / "examples" / "events.sample.jsonl"
CLOSE = {"gini_coefficient", "dialogue_entropy"}


def agrees(got: dict[str, Any], log: list[dict[str, Any]]) -> None:
    """Every number is the oracle's; those that sum rounded terms to the last few bits."""
    flat = {**got, **got["metadata"]}
    for key, value in oracle(log).items():
        if key in CLOSE:
            assert math.isclose(flat[key], value, rel_tol=1e-11, abs_tol=1e-11), key
        else:
            assert flat[key] == value, key


def test_the_sample_log_has_the_metrics_worked_out_by_hand() -> None:
    """The committed sample's numbers, worked out on paper."""
    got = entry(evaluate_files("cooperation", [SAMPLE]))
    # 16 rows; cooperative: mina 1 and 2 ("Contribute") and 4, sora 2, 4 and 6, joon 6.
    assert got["cooperation_rate"] == 7 / 16
    # mina 20 -> 17 -> 17 -> 12: drops 3 and 5. joon 15 -> 18 -> (row without stone) -> 14 -> 14: one drop of 4.
    # sora "12.5" -> 10.25 -> 10.25 -> 9.75 -> 9.75 -> 9.75: drops 2.25 and 0.5. Five drops, 14.75 in all.
    assert got["contributions"] == {"mina": 8.0, "joon": 4.0, "sora": 2.75}
    assert got["average_contribution"] == 14.75 / 5
    # mina steals in 3, supports in 4: 1. joon defects in 2, betrays in 3 (the latest), cooperates in 6: 3.
    # sora sabotages and assists in turn 4: cleared, not counted, so nothing is pending in turn 6.
    assert got["average_recovery_time"] == (1 + 3) / 2
    # 2.75, 4, 8: 2 * (1 * 2.75 + 2 * 4 + 3 * 8) / (3 * 14.75) - 4 / 3 = 69.5 / 44.25 - 4 / 3 = 14 / 59.
    assert got["gini_coefficient"] == pytest.approx(14 / 59, abs=1e-15)
    # mina 5, joon 5, sora 6 rows: 2 * 5/16 * log2(16/5) + 6/16 * log2(16/6).
    assert got["message_counts"] == {"mina": 5, "joon": 5, "sora": 6}
    assert got["dialogue_entropy"] == pytest.approx(0.625 * 1.6780719051 + 0.375 * 1.4150374993, abs=1e-10)
    about = got["metadata"]
    assert (about["total_events"], about["total_turns"], about["agents"]) == (16, 6, ["joon", "mina", "sora"])
    assert (about["dry_run"], about["log_path"], about["out_of_order"]) == (True, str(SAMPLE), False)


@settings(max_examples=250, deadline=None)
@given(rows())
def test_every_metric_is_the_oracles(log: list[dict[str, Any]]) -> None:
    """Ordered or not, with numbers as ints, floats and strings, the metrics are those of the text."""
    agrees(entry(run(as_jsonl(log))), log)


@settings(max_examples=80, deadline=None)
@given(rows(), st.sampled_from([1, 2, 3, 7]))
def test_the_report_does_not_depend_on_how_the_log_is_cut(log: list[dict[str, Any]], chunk_size: int) -> None:
    """The same bytes in one chunk and in chunks of few rows, also when rows must be sorted in many small files."""
    data = as_jsonl(log)
    whole = run(data)
    assert report_bytes(run(data, chunk_size)) == report_bytes(whole)
    narrow = Cooperation(SortLimits(run_rows=2, fan_in=2, block_bytes=80))
    assert report_bytes(run(data, chunk_size, narrow)) == report_bytes(whole)


@pytest.mark.parametrize(
    ("log", "turns", "out_of_order"),
    [
        ([{"turn": 1, "agent": "a"}, {"turn": 1, "agent": "b"}, {"turn": 9, "agent": "a"}], 2, False),
        ([{"turn": 2, "agent": "a"}, {"turn": 1, "agent": "b"}, {"turn": 2, "agent": "b"}], 2, True),
        ([{"turn": 2, "agent": "a"}, {"turn": 1, "agent": "a"}], 2, True),
    ],
)
def test_a_log_that_goes_back_a_turn_is_said_to_be_out_of_order(
    log: list[dict[str, Any]], turns: int, out_of_order: bool
) -> None:
    """Between agents or within one, any turn that decreases shows in the metadata."""
    about = entry(run(as_jsonl(log)))["metadata"]
    assert (about["total_turns"], about["out_of_order"]) == (turns, out_of_order)


@pytest.mark.parametrize(
    ("flag", "logged", "expected"),
    [(None, [], None), (None, [None, True, False], True), (None, ["yes", False], False), (False, [True], False)],
)
def test_dry_run_is_the_parameter_else_the_first_the_log_has(
    flag: bool | None, logged: list[Any], expected: bool | None
) -> None:
    """A flag or configuration comes first, then the first boolean in the log, then null."""
    log = [{"turn": 1, "agent": "a"}, *({"turn": 1, "agent": "a", "dry_run": value} for value in logged)]
    assert entry(run(as_jsonl(log), 1, dry_run=flag))["metadata"]["dry_run"] is expected


def test_rules_change_the_answer_but_the_order_of_their_words_does_not() -> None:
    """The same words in any order and case give the same bytes; other words give other metrics."""
    data = as_jsonl([{"turn": 1, "agent": "a", "decision": "Share"}, {"turn": 2, "agent": "a", "decision": "hide"}])
    one = run(data, rules={"cooperative_decisions": ["SHARE", "give"], "betrayal_decisions": []})
    other = run(data, rules={"cooperative_decisions": ["give", "share", "Give"], "betrayal_decisions": []})
    assert report_bytes(one) == report_bytes(other)
    assert entry(one)["cooperation_rate"] == 0.5
    assert entry(run(data))["cooperation_rate"] == 0.0


def test_a_word_in_both_lists_is_cooperative() -> None:
    """Cooperative is tested before betrayal."""
    log = as_jsonl([{"turn": turn, "agent": "a", "decision": "pact"} for turn in (1, 2)])
    got = entry(run(log, rules={"cooperative_decisions": ["pact"], "betrayal_decisions": ["pact"]}))
    assert (got["cooperation_rate"], got["average_recovery_time"]) == (1.0, None)


def test_sums_are_exact_where_floats_would_round() -> None:
    """A large fall and many tiny ones: the total is the exact one rounded once, whatever the order."""
    values = [1e16, 0.0, *(n / 10 for n in range(10, -1, -1))]
    log = [{"turn": n, "agent": "a", "resources": {"stone": value}} for n, value in enumerate(values)]
    agrees(entry(run(as_jsonl(log), 1)), log)


def test_an_empty_log_is_a_record_of_no_events_alone_and_beside_another(tmp_path: Path) -> None:
    """No rows: a cooperation rate of 0 and null recovery, the same as the Python interface says."""
    empty, full = tmp_path / "empty.jsonl", tmp_path / "full.jsonl"
    empty.write_bytes(b"\n \n")
    full.write_bytes(SAMPLE.read_bytes())
    evaluation = evaluate_files(evaluator, [empty, full])
    assert evaluation.report["results"]["logs"]["empty.jsonl"]["cooperation_rate"] == 0.0
    assert evaluation.report["results"]["logs"]["empty.jsonl"]["average_recovery_time"] is None
    assert evaluation.report["records"]["scored"] == 2
    assert [(line["record"], line["id"], line["status"]) for line in evaluation.records()] == [
        ("empty.jsonl:1", "empty.jsonl", "scored"),
        ("full.jsonl:1", "full.jsonl", "scored"),
    ]
    (alone,) = evaluate_files(evaluator, [empty]).report["results"]["logs"].values()
    assert alone == CooperationEvaluator().evaluate(empty).to_dict() | {"metadata": alone["metadata"]}
    assert (alone["metadata"]["total_events"], alone["cooperation_rate"], alone["contributions"]) == (0, 0.0, {})


def test_a_log_can_be_followed() -> None:
    """It grows while it is read: its record is the whole of it, so no line of it gives one by itself."""
    assert evaluator.whole.follows
    assert not evaluator.evaluate(Batch("a.jsonl", 1, SAMPLE.read_bytes()), CooperationParams()).lines


def test_the_record_line_holds_the_logs_metrics() -> None:
    """records.jsonl has one line a log, with the keys of its entry."""
    evaluation = run(SAMPLE.read_bytes())
    (line,) = evaluation.records()
    assert line == {"record": "events.jsonl:1", "id": "events.jsonl", "status": "scored", **entry(evaluation)}
