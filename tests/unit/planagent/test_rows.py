"""What one row scores, and the line it leaves in records.jsonl."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest

from evalq.evalcore.contract.evaluator import Batch
from evalq.evalcore.evaluators.planagent import evaluator
from evalq.evalcore.evaluators.planagent.params import PlanParams
from evalq.evalcore.evaluators.planagent.score import ErrorTexts, SpeedScale, is_error
from tests.unit.planagent.helpers import COLUMNS, SELECT_CHECK, TWO_CHECKS, answer, evaluate, row, to_csv


def _line(**given: Any) -> dict[str, Any]:
    (line,) = evaluate([row(**given)]).lines
    found: dict[str, Any] = msgspec.json.decode(line)
    return found


def test_a_line_has_the_specified_keys_in_order() -> None:
    """record, id, round, status, score, checks, seconds."""
    got = evaluate([row(query="q 1", round_="2/1", expected=TWO_CHECKS)]).lines
    checks = b'[{"kind":"formType","want":"SELECT","passed":true},{"kind":"actionType","want":"GO","passed":false}]'
    head = b'{"record":"plan.csv:2","id":"q 1","round":"2/1","status":"scored","score":3'
    assert got == [head + b',"checks":' + checks + b',"seconds":6.0}']


def test_ids_that_need_escaping_stay_what_they_are() -> None:
    """Quotes, newlines and non-ASCII text in an id survive the way through JSON."""
    assert _line(query='a"b\n나\\')["id"] == 'a"b\n나\\'


@pytest.mark.parametrize(
    "error", ["boom", " 0 ", 0, 1.5, True, [None], {"code": 1}, [[]], "null", "false", float("nan")]
)
def test_an_error_in_the_answer_forces_zero(error: Any) -> None:
    """Anything but white space, null, false or an empty container, even beside a perfect answer."""
    got = _line(raw=answer(items=[{"formType": "SELECT"}], error=error))
    assert got["score"] == 0
    assert got["reason"].startswith("error: ")
    assert [check["passed"] for check in got["checks"]] == [None]


@pytest.mark.parametrize("error", ["", " \n\t", None, False, [], {}])
def test_what_counts_as_no_error_changes_nothing(error: Any) -> None:
    """The row is judged as if the key were not there."""
    got = _line(raw=answer(items=[{"formType": "SELECT"}], error=error))
    assert got["score"] == 5
    assert "reason" not in got
    assert not is_error(error)


@pytest.mark.parametrize(("column", "score"), [("", 5), ("  ", 5), ("null", 5), ("False", 5), ("[]", 5), ("실패", 0)])
def test_the_error_column_counts_like_the_answers_error(column: str, score: int) -> None:
    """Its text may spell out null, false or an empty container."""
    assert _line(error=column)["score"] == score


def test_the_columns_error_is_named_before_the_answers() -> None:
    """The column's text is the reason, whatever the answer holds."""
    assert _line(error="열 오류", raw="{")["reason"] == "error: 열 오류"
    assert _line(error="열 오류", raw=answer(error="안 오류"))["reason"] == "error: 열 오류"


@pytest.mark.parametrize(
    ("raw", "reason"),
    [
        ("{", "unparsable"),
        ("", "unparsable"),
        ("[]", "unparsable"),
        ("{}", "empty"),
        (answer(message=""), "empty"),
        (answer(message=" \n"), "empty"),
        (json.dumps({"assistantMessage": 5, "dataUIList": {}}), "empty"),
        ("[" * 100_000, "unparsable"),
    ],
)
def test_nothing_to_judge_forces_zero(raw: str, reason: str) -> None:
    """Unparsable JSON and an answer without message and list score 0 and say so."""
    got = _line(raw=raw)
    assert (got["status"], got["score"], got["reason"]) == ("scored", 0, reason)


def test_a_message_alone_is_judged() -> None:
    """With a message and no list, item checks fail, but the row is not empty."""
    state = evaluate([row(raw=answer("네"))]).state
    assert state.rounds["1/1"].forced == 0
    assert state.kinds == {"formType": [0, 1]}


def test_no_check_means_unscored_and_never_zero() -> None:
    """Even with an error: the row is counted apart, with a reason, and its seconds are in no mean."""
    got = evaluate([row(expected="평가 요소 4가지 ->:\n1) 친절한가", raw="{", error="실패"), row(query="p")])
    line = msgspec.json.decode(got.lines[0])
    assert (line["status"], line["score"], line["checks"]) == ("unscored", None, [])
    assert "기대결과" in line["reason"]
    assert (got.tally.scored, got.tally.unscored, got.tally.errors) == (1, 1, 0)
    assert got.state.rounds["1/1"].points == [0, 0, 0, 0, 1, 0]


@pytest.mark.parametrize(
    ("seconds", "points"),
    [
        (0, 5),
        (5, 5),
        (5.0001, 4),
        (8, 4),
        (8.01, 3),
        (10, 3),
        (10.5, 2),
        (15, 2),
        (15.1, 1),
        (20, 1),
        (20.01, 0),
        (1e300, 0),
    ],
)
def test_speed_bands_include_their_upper_border(seconds: float, points: int) -> None:
    """<=5:5, <=8:4, <=10:3, <=15:2, <=20:1, else 0."""
    assert SpeedScale(PlanParams().speed_bands).points(seconds) == points


def test_rows_without_seconds_are_counted_and_left_out() -> None:
    """A numeric string is no number; the score stays."""
    state = evaluate([row(raw=answer(items=[{"formType": "SELECT"}], seconds="7.5"))]).state
    assert state.rounds["1/1"].scored == 1
    assert state.rounds["1/1"].timed == 0


def test_errors_that_differ_in_numbers_and_ids_are_one_pattern() -> None:
    """Digits and long identifiers are masked, the words stay."""
    texts = ErrorTexts.of(PlanParams())
    first = texts.pattern("Timeout after 30 s in job 0e5fc726-2dce-4f6d-a967-32a791bb78be")
    second = texts.pattern("Timeout after 45 s in job deadbeefdeadbeef0011")
    assert first == second == "Timeout after <n> s in job <id>"


def test_lone_surrogates_in_an_error_reach_the_report_as_replacements() -> None:
    """A text that UTF-8 cannot carry must not stop the line or the state from being written."""
    got = evaluate([row(raw='{"error": "bad \\ud800 text"}')])
    assert b"error: bad ? text" in got.lines[0]
    assert got.state.to_wire()


def test_strange_names_in_an_answer_reach_the_state_as_text() -> None:
    """Lone surrogates in form types and key paths are replaced too."""
    raw = '{"dataUIList": [{"uiValue": {"formType": "\\ud800", "\\udc00": "SELECT", "multiSelectAllowYn": true}}]}'
    state = evaluate([row(expected=SELECT_CHECK, raw=raw)]).state
    assert list(state.forms.counts) == ["SELECT -> ?"]
    assert list(state.found["formType"].counts) == ["?"]
    assert state.to_wire()


def test_a_row_of_another_width_is_a_fatal_fault_with_its_line() -> None:
    """The report must not be made from columns that have slipped."""
    body = to_csv([row(), row(query="p")]).partition("\n")[2].replace("p,", "p;", 1)
    got = evaluator.evaluate(Batch("plan.csv", 2, body.encode(), COLUMNS), PlanParams())
    assert got.tally.errors == 1
    ((line, reason),) = got.tally.fatal.first
    assert line == 3
    assert "11 fields" in reason


def test_each_row_of_another_width_is_counted() -> None:
    """With its line, and whole rows between them are none."""
    body = to_csv([row(query=query) for query in "pqpq"]).partition("\n")[2].replace("p,", "p;")
    got = evaluator.evaluate(Batch("plan.csv", 2, body.encode(), COLUMNS), PlanParams())
    assert got.tally.errors == 2
    assert [line for line, _ in got.tally.fatal.first] == [2, 4]


def test_other_columns_and_another_order_change_nothing() -> None:
    """Columns are found by name; further ones are ignored."""
    columns = ("more", *reversed(COLUMNS))
    body = to_csv([row(query="p") | {"more": "1"}], columns).partition("\n")[2]
    got = evaluator.evaluate(Batch("plan.csv", 2, body.encode(), columns), PlanParams())
    assert got.lines == evaluate([row(query="p")]).lines


def test_white_space_around_ids_and_rounds_is_no_difference() -> None:
    """A stray blank must not make another Query ID or round."""
    got = evaluate([row(query=" q", round_="1/1\n"), row(query="q ", round_=" 2/1")])
    assert set(got.state.rounds) == {"1/1", "2/1"}
    assert set(got.state.queries.rows) == {"q"}
    assert b'"id":"q","round":"1/1"' in got.lines[0]
