"""What an agent did: the order of its calls, their arguments and results, repeats, errors, turns and the end."""

from __future__ import annotations

import itertools
import random
from typing import Any

import pytest

from evalq.evalcore.evaluators.checks.answer import CheckedAnswer, usage_of
from evalq.evalcore.evaluators.checks.check import CheckVerdict, compile_check
from evalq.evalcore.evaluators.checks.score import OutputScorer
from evalq.evalcore.evaluators.checks.vocabulary.declaring import BadCheck
from tests.unit.checks.helpers import params_of

TRIP: list[dict[str, Any]] = [
    {"name": "search", "arguments": {"to": "Seoul", "days": 2}, "error": "timeout"},
    {"name": "search", "arguments": {"to": "Seoul", "days": 2}, "result": '{"flights": [{"id": 7, "price": 99.5}]}'},
    {"name": "book", "arguments": {"id": 7, "price": 99.501}, "result": {"ok": True}},
    {"name": "mail.send", "arguments": {"to": "ada"}, "result": "sent"},
]


def judged(check: dict[str, Any], calls: Any = TRIP, **record: Any) -> CheckVerdict:
    """The verdict of ``check`` on an answer with these ``calls`` and these keys of its record."""
    answer = CheckedAnswer("done", usage=usage_of(record), tool_calls=calls, record=record)
    return compile_check(check).judge(answer)


@pytest.mark.parametrize(
    ("check", "passed"),
    [
        ({"tool-sequence": ["search", "mail.send"]}, True),
        ({"tool-sequence": ["mail.send", "search"]}, False),
        ({"tool-sequence": ["search", "search", "book", "mail.send"], "order": "exact"}, True),
        ({"tool-sequence": ["search", "search"], "order": "prefix"}, True),
        ({"tool-sequence": ["search", "book"], "order": "prefix"}, False),
        ({"tool-sequence": [], "order": "prefix"}, True),
        ({"tool-sequence": ["book", "search", "mail.send", "search"], "order": "unordered"}, True),
        ({"tool-sequence": ["book", "search", "mail.send"], "order": "unordered"}, False),
        ({"tool-calls": ["mail.send", "book"]}, True),
        ({"tool-calls": ["mail*", "*oo*"]}, True),
        ({"tool-calls": ["mail*l"]}, False),
        ({"tool-calls": [{"name": "book", "schema": {"required": ["id"]}}]}, True),
        ({"tool-calls": [{"name": "book", "schema": {"required": ["seat"]}}]}, False),
        ({"tool-calls": [{"name": "book", "arguments": {"price": 99.5}}], "tolerance": 0.01}, True),
        ({"tool-calls": [{"name": "book", "arguments": {"price": 99.5}}]}, False),
        ({"calls-tool": "book", "arguments": {"price": 99.5}, "relative": 0.001}, True),
        ({"calls-tool": "search", "schema": {"properties": {"days": {"maximum": 1}}}}, False),
        ({"tool-args": "search", "arguments": {"to": "Seoul"}}, True),
        ({"tool-args": "search", "arguments": {"to": "Seoul"}, "exact": True}, False),
        ({"tool-args": "book", "schema": {"properties": {"id": {"type": "integer"}}, "required": ["id"]}}, True),
        ({"tool-args": "book", "arguments": {"id": "7"}}, False),
        ({"tool-args": "*", "arguments": {"to": "ada"}, "which": "last"}, True),
        ({"tool-args": "*", "arguments": {"to": "ada"}, "which": "any"}, True),
        ({"tool-args": "*", "arguments": {"to": "ada"}, "which": "first"}, False),
        ({"tool-args": "*", "arguments": {"to": "ada"}}, False),
        ({"tool-args": "*", "arguments": {"id": 7}, "which": 3}, True),
        ({"tool-result": "mail.send"}, True),
        ({"tool-result": "search"}, False),
        ({"tool-result": "search", "which": "last"}, True),
        ({"tool-result": "search", "failed": True, "which": "first"}, True),
        ({"tool-result": "search", "failed": True, "check": {"contains": "time"}, "which": "any"}, True),
        ({"tool-result": "search", "failed": True, "check": {"contains": "denied"}, "which": "any"}, False),
        ({"tool-result": "search", "check": {"contains": "flights"}, "which": "any"}, True),
        ({"tool-result": "search", "check": {"json-schema": {"required": ["flights"]}}, "which": 2}, True),
        ({"tool-result": "search", "check": {"equals": {"flights": [{"price": 99.5, "id": 7.0}]}}, "which": 2}, True),
        ({"tool-result": "search", "check": {"json-path": "$.flights[0].price", "max": 99}, "which": 2}, False),
        ({"tool-result": "search", "check": "is-json", "which": "last"}, True),
        ({"tool-result": "mail.send", "check": {"equals": "sent"}}, True),
        ({"tool-result": "mail.send", "check": {"any": [{"equals": "x"}, {"starts-with": "se"}]}}, True),
        ({"tool-result": "book", "check": {"not-equals": {"ok": 1}}}, True),
        ({"not-tool-result": "book", "check": {"equals": {"ok": True}}}, False),
        ({"forbidden-tools": ["delete_*", "pay"]}, True),
        ({"forbidden-tools": ["mail.*"]}, False),
        ({"no-repeat": True}, False),
        ({"no-repeat": True, "max": 2}, True),
        ({"no-repeat": True, "tools": ["book", "mail*"]}, True),
        ({"recovers": True}, True),
        ({"not-recovers": True}, False),
    ],
    ids=repr,
)
def test_what_the_agent_did(check: dict[str, Any], passed: bool) -> None:
    """Each option decides, and what it found stands in the verdict."""
    verdict = judged(check)
    assert (verdict.passed, verdict.error) == (passed, "")
    assert verdict.found


def test_errors_without_a_later_success() -> None:
    """A success of the same tool, or of any if the check says so, must come after the error, not before it."""
    failed, well, other = (
        {"name": "a", "error": "down"}, {"name": "a", "result": "fine"}, {"name": "b", "result": "fine"},
    )  # fmt: skip
    assert judged({"recovers": True}, [failed, well]).passed is True
    assert judged({"recovers": True}, [well, failed]).passed is False
    assert judged({"recovers": True}, [failed, other]).passed is False
    assert judged({"recovers": True, "by": "any-tool"}, [failed, other]).passed is True
    assert judged({"recovers": True}, [failed, failed, well]).passed is True
    assert judged({"recovers": True}, [well, other]).passed is True
    assert judged({"recovers": True}, []).passed is True


@pytest.mark.parametrize(
    "check",
    [
        {"tool-sequence": ["a"]},
        {"tool-args": "a", "exact": True},
        {"tool-result": "a"},
        {"forbidden-tools": ["a"]},
        {"no-repeat": True},
        {"recovers": True},
        {"max-turns": 3},
        {"first-token": 1},
        {"finish": "stop"},
    ],
    ids=repr,
)
@pytest.mark.parametrize("negation", ["", "not-"])
def test_a_record_that_does_not_say_it_is_no_verdict(check: dict[str, Any], negation: str) -> None:
    """Unknown is never a pass, also not of the opposite."""
    written = {f"{negation}{key}" if at == 0 else key: value for at, (key, value) in enumerate(check.items())}
    verdict = judged(written, None)
    assert verdict.passed is None
    assert "record" in verdict.error


@pytest.mark.parametrize(
    ("check", "calls"),
    [
        ({"tool-result": "a"}, [{"name": "a"}]),
        ({"tool-result": "a"}, [{"name": "a", "result": "x"}, {"name": "a"}]),
        (
            {"tool-result": "a", "check": {"contains": "y"}, "which": "any"},
            [{"name": "a", "result": "x"}, {"name": "a"}],
        ),
        ({"tool-result": "a", "failed": True}, [{"name": "a"}]),
        ({"recovers": True}, [{"name": "a"}]),
        ({"recovers": True}, [{"name": "a", "error": "x"}, {"name": "a"}]),
    ],
    ids=repr,
)
def test_outcomes_that_decide_must_be_known(check: dict[str, Any], calls: Any) -> None:
    """A call without result and error says nothing; a call that decides by itself needs no others."""
    assert judged(check, calls).passed is None
    assert judged({"tool-result": "a"}, [{"name": "a", "error": "x"}, {"name": "a"}]).passed is False
    any_x = {"tool-result": "a", "check": {"contains": "x"}, "which": "any"}
    assert judged(any_x, [{"name": "a", "result": "x"}, {"name": "a"}]).passed is True
    assert judged({"recovers": True}, [{"name": "a"}, {"name": "a", "error": "x"}]).passed is False
    for calls in ([{"name": "a"}, {"name": "a", "result": "y"}], [{"name": "a", "result": "y"}, {"name": "a"}]):
        assert judged({"tool-result": "a", "check": {"contains": "x"}}, calls).passed is False


UNREAD = {"name": "a", "arguments": "{broken"}


@pytest.mark.parametrize(
    ("check", "calls"),
    [
        ({"tool-args": "a", "arguments": {"x": 1}}, [UNREAD]),
        ({"tool-args": "a", "schema": {"required": ["x"]}}, [UNREAD]),
        ({"tool-args": "a", "arguments": {"x": 1}, "which": "any"}, [{"name": "a", "arguments": {"x": 2}}, UNREAD]),
        ({"tool-sequence": [{"name": "a", "schema": {"required": ["x"]}}], "order": "prefix"}, [UNREAD]),
        ({"no-repeat": True}, [UNREAD, {"name": "a", "arguments": {"x": 2}}]),
        ({"no-repeat": True}, [UNREAD, {"name": "a", "arguments": "{other"}]),
        ({"tool-args": "b", "arguments": {"x": 1}}, [UNREAD]),
        ({"tool-result": "b"}, [UNREAD]),
        ({"tool-result": "a", "check": {"json-path": "$.x", "is": 1}}, [{"name": "a", "result": "no JSON"}]),
        ({"tool-args": "a", "arguments": {"x": 1}, "which": 2}, [UNREAD]),
    ],
    ids=repr,
)
def test_nothing_to_look_at_fails_either_way(check: dict[str, Any], calls: Any) -> None:
    """Arguments that cannot be read, and calls that are not there, fail a check and its opposite."""
    name = next(iter(check))
    for written in (check, {f"not-{name}": check[name], **{k: v for k, v in check.items() if k != name}}):
        verdict = judged(written, calls)
        assert (verdict.passed, verdict.looked) == (False, False), verdict


def test_unreadable_arguments_that_do_not_decide() -> None:
    """The same unreadable text twice is a repeat; another call that fits is enough for `any`."""
    assert judged({"no-repeat": True}, [UNREAD, UNREAD]).passed is False
    assert judged({"no-repeat": True}, [UNREAD, {"name": "b", "arguments": {}}]).passed is True
    fits = {"name": "a", "arguments": {"x": 1}}
    assert judged({"tool-args": "a", "arguments": {"x": 1}, "which": "any"}, [UNREAD, fits]).passed is True
    unfit = {"name": "a", "arguments": {"x": 2}}
    verdict = judged({"tool-args": "a", "arguments": {"x": 1}}, [UNREAD, unfit])
    assert (verdict.passed, verdict.looked, verdict.found) == (False, True, 'another x: a({"x":2})')


def test_repeats_are_by_value() -> None:
    """Keys in any order, 2.0 as 2; true is not 1."""
    first = {"name": "a", "arguments": {"x": 2, "y": [1]}}
    assert judged({"no-repeat": True}, [first, {"name": "a", "arguments": {"y": [1.0], "x": 2.0}}]).passed is False
    assert judged({"no-repeat": True}, [first, {"name": "a", "arguments": {"y": [True], "x": 2}}]).passed is True
    assert judged({"no-repeat": True}, [first, {**first, "name": "b"}]).passed is True


def test_turns_time_to_first_token_and_finish() -> None:
    """Turns as recorded, or else the messages of the assistant; limits hold at the limit itself."""
    assert judged({"max-turns": 2}, turns=2).passed is True
    assert judged({"max-turns": 1}, turns=2).passed is False
    spoken = [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]
    assert judged({"max-turns": 1}, messages=spoken).passed is True
    assert judged({"max-turns": 1}, messages=spoken * 2).passed is False
    assert judged({"first-token": 0.5}, first_token_seconds=0.5).passed is True
    assert judged({"not-first-token": 0.4}, first_token_seconds=0.5).passed is True
    assert judged({"finish": "stop"}, finish="stop").passed is True
    assert judged({"finish": ["stop", "tool_calls"]}, finish="length").passed is False


@pytest.mark.parametrize(
    ("call", "error"),
    [
        ({"result": "boom", "isError": True}, "boom"),
        ({"result": "boom", "is_error": 1}, "boom"),
        ({"result": "boom", "status": "error"}, "boom"),
        ({"status": "failed"}, "error"),
        ({"result": {"isError": True, "content": [{"type": "text", "text": "boom"}]}}, "boom"),
        ({"result": "boom", "isError": True, "error": "worse"}, "worse"),
        ({"result": "fine", "isError": False, "is_error": "false", "status": "completed"}, ""),
        ({"result": {"isError": False}}, ""),
        ({"result": {"is_error": True}}, ""),
    ],
    ids=repr,
)
def test_a_call_that_a_record_marks_as_failed_has_failed(call: dict[str, Any], error: str) -> None:
    """By `error`, by a flag or a status beside the result, or by MCP's flag in it."""
    listed = [{"name": "a", "arguments": {}, **call}]
    assert judged({"recovers": True}, listed).passed is (not error)
    assert judged({"tool-result": "a"}, listed).passed is (not error)
    if error:
        assert judged({"tool-result": "a", "failed": True, "check": {"equals": error}}, listed).passed is True


def test_a_part_of_what_a_conversation_took_is_no_sum() -> None:
    """The tokens or the cost of some calls are under every limit; a call that failed may have none."""
    known = {"prompt_tokens": 10, "completion_tokens": 5, "cost": 1.0}
    whole = [known, {"kind": "rate_limit"}, known]
    for check, most in (("max-tokens", 30), ("max-cost", 2.0)):
        assert judged({check: most}, attempts=whole).passed is True
        assert judged({check: most - 1}, attempts=whole).passed is False
        for lacks in ({}, {"prompt_tokens": 10}, {"cost": None, "completion_tokens": 5}):
            verdict = judged({check: most}, attempts=[*whole, lacks])
            assert verdict.passed is None, (check, lacks)
            assert "the record has no" in verdict.error


def test_each_order_is_as_defined() -> None:
    """On 300 made trajectories each order agrees with its definition."""
    made = random.Random(36)
    for _ in range(300):
        calls = [made.choice("abc") for _ in range(made.randrange(6))]
        wanted = [made.choice("abc") for _ in range(made.randrange(5))]
        recorded = [{"name": name} for name in calls]
        holds = {
            order: judged({"tool-calls": wanted, "order": order}, recorded).passed
            for order in ("any", "kept", "exact", "prefix", "unordered")
        }
        subsequences = set(itertools.combinations(calls, len(wanted)))
        assert holds == {
            "any": all(calls.count(name) >= wanted.count(name) for name in wanted),
            "kept": tuple(wanted) in subsequences,
            "exact": calls == wanted,
            "prefix": calls[: len(wanted)] == wanted,
            "unordered": sorted(calls) == sorted(wanted),
        }, (calls, wanted)


def test_any_key_of_the_record_is_reached() -> None:
    """`$record` begins at the whole line, `$` at the answer's JSON; a key called record stays one of the JSON."""
    record = {"extra": {"route": "kr", "hits": [3]}, "messages": [{"role": "user", "content": "hello"}], "output": "x"}
    assert judged({"equals": "kr", "at": "$record.extra.route"}, **record).passed is True
    assert judged({"json-path": "$.hits[0]", "is": 3, "at": "$record.extra"}, **record).passed is True
    assert judged({"contains": "hell", "at": "$record.messages[0].content"}, **record).passed is True
    assert judged({"json-path": "$.output", "is": "x", "at": "$record"}, **record).passed is True
    missing = judged({"not-equals": "kr", "at": "$record.extra.way"}, **record)
    assert (missing.passed, missing.looked, missing.found) == (False, False, "the record has nothing at extra.way")
    answer = CheckedAnswer({"record": {"a": 1}, "$record": 2}, record=record)
    assert compile_check({"equals": 1, "at": "record.a"}).judge(answer).passed is True
    assert compile_check({"equals": 1, "at": "$.record.a"}).judge(answer).passed is True


@pytest.mark.parametrize(
    ("check", "path", "says"),
    [
        ({"tool-args": "a"}, "tool-args", "needs arguments"),
        ({"tool-args": "a", "exact": True, "tolerance": 1}, "tolerance", "numbers in"),
        ({"tool-args": "a", "schema": {"type": 3}}, "schema", "not a JSON Schema"),
        ({"tool-args": "a", "exact": True, "which": 0}, "which", "1"),
        ({"tool-args": "a", "exact": True, "which": "each"}, "which", "each"),
        ({"tool-calls": ["a", {"name": "b", "schema": {"$ref": "http://x"}}]}, "tool-calls[1].schema", "reference"),
        ({"tool-result": "a", "check": {"contain": 1}}, "check.contain", "did you mean contains?"),
        ({"tool-result": "a", "check": {"any": [{"regex": "("}]}}, "check.any[0].regex", "regular expression"),
        ({"tool-result": "a", "check": "equals"}, "check", "without a value"),
        ({"tool-result": "a", "check": {"rubric": "kind"}}, "check", "judge"),
        ({"forbidden-tools": []}, "forbidden-tools", "length >= 1"),
        ({"no-repeat": False}, "no-repeat", "not-"),
        ({"no-repeat": True, "max": 0}, "max", ">= 1"),
        ({"recovers": True, "by": "me"}, "by", "me"),
        ({"max-turns": 0}, "max-turns", ">= 1"),
        ({"first-token": -1}, "first-token", ">= 0"),
        ({"finish": []}, "finish", "length >= 1"),
        ({"equals": 1, "at": "$record.a b["}, "at", "not a path"),
    ],
    ids=repr,
)
def test_what_is_no_check_of_calls(check: dict[str, Any], path: str, says: str) -> None:
    """The message says what is wrong, and where."""
    with pytest.raises(BadCheck) as caught:
        compile_check(check)
    assert (caught.value.path, says in str(caught.value)) == (path, True), str(caught.value)


def test_the_record_is_the_same_for_a_short_line_and_a_long_one() -> None:
    """A line with a text and nothing else is a record, too, also for parts of checks."""
    for check in (
        {"equals": "a", "at": "$record.case"},
        {"any": [{"equals": "a", "at": "$record.case"}]},
        {"not-equals": "b", "at": "$record.case"},
    ):
        scorer = OutputScorer(params_of([{"id": "a", "checks": [check]}]))
        for line in (b'{"case": "a", "output": "x"}', b'{"case": "a", "output": "x", "extra": {}}'):
            assert scorer.test(line).status == "passed", (check, line)
