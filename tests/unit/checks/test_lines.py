"""Lines of recorded outputs: what of them passes, fails, and is no verdict at all."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest

from evalq.evalcore.errors import ConfigError
from evalq.evalcore.evaluators.checks.evaluator import record_line
from evalq.evalcore.evaluators.checks.score import OutputScorer, ScoredOutput
from tests.unit.checks.helpers import CASES, line, params_of, stop_mark


def judged(data: bytes | dict[str, Any], **more: Any) -> ScoredOutput:
    """The judgement of one line."""
    return OutputScorer(params_of(**more)).test(data if isinstance(data, bytes) else json.dumps(data).encode())


def test_an_output_passes_when_all_its_checks_do() -> None:
    """A check of weight 0 is shown, and decides nothing."""
    test = judged(line("a", 3, "yes" * 10))
    assert (test.status, test.repeat, test.score) == ("passed", 3, 1.0)
    assert [verdict.passed for verdict in test.checks] == [True, False]
    failed = judged(line("b", 0, "no"))
    assert (failed.status, failed.score) == ("failed", 0.0)
    assert failed.reason == 'contains: wanted "yes", found no (and 1 more)'


@pytest.mark.parametrize(
    ("name", "case", "repeat"),
    [("v1.5", "v1.5", 0), ("v1.6", "v1", 6), ("v1#5", "v1", 5), ("v1.5.2", "v1.5", 2), ("v1", "v1", 0), ("a", "a", 0)],
)
def test_the_name_of_a_file_is_a_case_before_it_is_a_repeat(name: str, case: str, repeat: int) -> None:
    """A case's id may end in a number; otherwise the last one says the repeat."""
    cases = [{"id": identity, "checks": [{"contains": "x"}]} for identity in ("v1", "v1.5", "a")]
    test = judged({"named": name, "output": "x"}, cases=cases)
    assert test.plan is not None
    assert (test.status, test.plan.case.id, test.repeat) == ("passed", case, repeat)
    # Whoever names the case means that one.
    assert judged({"case": "a", "named": "v1.5", "output": "x"}, cases=cases).plan != test.plan or case == "a"


def test_a_file_that_is_named_like_no_case_is_an_error() -> None:
    """It says what was looked for, and what to do."""
    assert judged({"named": "z.7", "output": "x"}).reason.startswith("named: no case has the id 'z.7' nor 'z'")
    assert "ID.REPEAT.txt" in judged({"named": "z", "output": "x"}).reason


def test_an_output_of_null_is_no_text() -> None:
    """An agent that only called tools said nothing: it meets no length, and is like nothing, not even nothing."""
    for check in ({"min-length": 1}, {"contains": "null"}, {"regex": "."}, {"edit-distance": ""}):
        cases = [{"id": "n", "checks": [check]}]
        assert judged({"case": "n", "output": None}, cases=cases).status == "failed"
    cases = [{"id": "n", "checks": [{"calls-tool": "search"}, {"not-contains": "x"}]}]
    assert judged({"case": "n", "output": None, "tool_calls": [{"name": "search"}]}, cases=cases).status == "passed"


@pytest.mark.parametrize(
    "check",
    [
        *({"not-contains": "x"}, {"not-icontains": "x"}, {"not-contains-any": ["x"]}, {"not-regex": "x"}),
        *({"not-refusal": True}, {"max-length": 9}, {"not-equals": "x"}, {"not-starts-with": "x"}, {"not-number": 4}),
        *({"is-json": True}, {"not-is-json": True}, {"not-json-path": "$.x"}, {"not-contains-json": True}),
        *({"not-equals": "x", "normalize": "nfc"}, {"all": [{"not-contains": "x"}]}, {"not-any": [{"contains": "x"}]}),
        *({"not-captures": "x", "is": "x"}, {"not-contains": "x", "at": "$.x"}, {"not-edit-similarity": "x"}),
        {"not-json-schema": {"type": "object"}},
    ],
)
def test_an_answer_of_tool_calls_alone_passes_no_check_of_its_text(check: dict[str, Any]) -> None:
    """A check that only forbids something would pass every answer of an agent that says nothing."""
    cases = [{"id": "n", "checks": [check, {"max-tool-calls": 9}]}]
    call = {"name": "search", "arguments": {}}
    messages = [{"role": "assistant", "content": "", "tool_calls": [{"id": "1", **call}]}]
    for more in (
        *({"tool_calls": [call]}, {"tool_calls": [], "finish": "tool_calls"}, {"messages": messages}),
        *({"output": "", "tool_calls": [call]}, {"output": " ", "messages": messages}),
    ):
        test = judged({"case": "n", "output": None, **more}, cases=cases)
        assert (test.status, test.checks[0].looked) == ("failed", False), more
    # An empty text without calls is an answer.
    assert judged({"case": "n", "output": "", "tool_calls": []}, cases=cases).status in ("passed", "failed")


@pytest.mark.parametrize(
    ("wanting", "passes"),
    [
        *(({"calls-tool": "search"}, True), ({"calls-tool": "search", "min": 0}, False)),
        *(({"tool-sequence": ["search"]}, True), ({"tool-args": "search", "schema": {}}, True)),
        *(({"any": [{"contains": "x"}, {"calls-tool": "search"}]}, True), ({"not-calls-tool": "book"}, False)),
        *(({"forbidden-tools": ["book"]}, False), ({"no-repeat": True}, False), ({"max-tool-calls": 2}, False)),
        *(({"finish": "tool_calls"}, True), ({"finish": ["stop"]}, False)),
        *(({"calls-tool": "search", "weight": 0}, False), ({"equals": 1, "at": "$record.extra.n"}, False)),
        *(({"max-length": 9, "at": "$record.tool_calls[0].name"}, True), ({"max-length": 99, "about": "user"}, False)),
    ],
)
def test_beside_a_check_that_wants_calls_an_answer_may_have_no_text(wanting: dict[str, Any], passes: bool) -> None:
    """Its author expects calls: there no text is an empty text."""
    said = [{"role": "user", "content": "x?"}]
    record = {"case": "n", "output": None, "finish": "tool_calls", "tool_calls": [{"name": "search"}], "messages": said}
    cases = [{"id": "n", "checks": [wanting, {"not-contains": "x"}, {"not-refusal": True}]}]
    assert (judged({**record, "extra": {"n": 1}}, cases=cases).status == "passed") == passes


@pytest.mark.parametrize("check", [{"not-contains": "x"}, {"not-refusal": True}, {"max-length": 5}, {"not-regex": "x"}])
def test_null_passes_no_check_of_text_and_is_json(check: dict[str, Any]) -> None:
    """Null is no answer in words; as data it is a value, and a part of an answer may be null."""
    assert judged({"case": "n", "output": None}, cases=[{"id": "n", "checks": [check]}]).status == "failed"
    for passing in ({"equals": None}, {"is-json": True}):
        assert judged({"case": "n", "output": None}, cases=[{"id": "n", "checks": [passing]}]).status == "passed"
    part = {"case": "n", "output": {"x": None}}
    assert judged(part, cases=[{"id": "n", "checks": [{**check, "at": "$.x"}]}]).status == "passed"


def test_a_score_threshold_decides_in_place_of_all_checks() -> None:
    """The weighted mean at the threshold passes, as decimals."""
    checks = [{"contains": "a", "weight": 0.1}, {"contains": "b", "weight": 0.2}, {"contains": "c", "weight": 0.7}]
    for least, status in ((0.3, "passed"), (0.31, "failed")):
        cases = [{"id": "s", "checks": checks, "thresholds": {"score": least}}]
        assert judged(line("s", 0, "ab"), cases=cases).status == status


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (b"{", "not JSON"),
        (b"\xff", "not UTF-8"),
        (b"[" * 5000, "nested deeper"),
        (b"7", "a number, not an object"),
        ({"repeat": 0, "output": "x"}, "case: missing"),
        ({"case": 5, "output": "x"}, "case: 5 where the id"),
        ({"case": "?", "output": "x"}, "case: '?' is none of the cases"),
        ({"case": "a", "repeat": -1, "output": "x"}, "repeat: -1"),
        ({"case": "a", "repeat": True, "output": "x"}, "repeat: true"),
        ({"case": "a", "repeat": 0}, "output: missing"),
        ({"case": "a", "repeat": 0, "error": "timeout"}, "no output: timeout"),
        ({"case": "a", "repeat": 0, "error": 5, "output": "yes"}, "error: a number where"),
        ({"case": "a", "output": "x", "text": 5}, "text: a number"),
        ({"case": "a", "output": "x", "cost": "1"}, "cost: a string where a number from 0"),
        ({"case": "a", "output": "x", "cost": -1}, "cost: -1"),
        ({"case": "a", "output": "x", "latency_seconds": True}, "latency_seconds: true"),
        ({"case": "a", "output": "x", "prompt_tokens": 1.5}, "prompt_tokens: 1.5"),
        ({"case": "a", "output": "x", "attempts": 5}, "attempts: a number"),
        ({"case": "a", "output": "x", "attempts": [{"cost": "x"}]}, "attempts[0].cost: a string"),
        ({"case": "a", "output": "x", "stop": {"rule": "soon"}}, "stop.rule"),
        (b'{"case": "a", "output": "yes", "output": "no"}', "output: the key is given more than once"),
        (b'{"case": "a", "cost": 1, "cost": 2, "output": "yes"}', "cost: the key is given more than once"),
        (b'{"case": "a", "output": "\\ud800"}', "not JSON"),
        ({"case": "a", "repeat": 2**53, "output": "x"}, "repeat: 9007199254740992 where a whole number from 0"),
        ({"case": "a", "output": "x", "cost": 1e15}, "cost: 1000000000000000"),
        ({"case": "a", "output": "x", "prompt_tokens": -1}, "prompt_tokens: -1 where a whole number from 0"),
        ({"case": "a", "output": "x", "completion_tokens": 10**15}, "completion_tokens: 1000000000000000"),
        ({"case": "a", "output": "x", "attempts": [5]}, "attempts[0]: a number where an object is wanted"),
        ({"case": "a", "output": "x", "attempts": [{}, {"prompt_tokens": "1"}]}, "attempts[1].prompt_tokens: a string"),
        ({"case": "a", "output": "x", "labels": 5}, "labels: a number where an object of checks is wanted"),
        ({"case": "a", "output": "x", "labels": {"contains": 1}}, "labels, contains: a number where true or false is"),
        (b'{"case": "a", "output": "x", "labels": {"contains": true, "contains": true}}', "labelled more than once"),
    ],
    ids=lambda value: repr(value)[:50],
)
def test_what_cannot_be_read_is_no_verdict(data: Any, says: str) -> None:
    """An error with its reason, and never a score."""
    test = judged(data)
    assert (test.status, test.score) == ("error", None)
    assert says in test.reason
    record = msgspec.json.decode(record_line("f:1", test))
    assert (record["passed"], record["score"], record["status"]) == (None, None, "error")


@pytest.mark.parametrize(
    "key",
    [
        *("case", "repeat", "named", "output", "error", "text", "tool_calls", "attempts", "judgements", "labels"),
        *("stop", "latency_seconds", "cost", "prompt_tokens", "completion_tokens"),
    ],
)
def test_what_is_given_twice_says_nothing(key: str) -> None:
    """Of any key that an evaluation reads: decoders differ in which of the two they keep."""
    plain = {"case": "a", "repeat": 0, "output": "yes", **stop_mark(5)}
    value = json.dumps(plain.get(key))
    twice = "".join(f'"{key}": {value}, ' for _ in range(2 - (key in plain)))
    test = judged(("{" + twice + json.dumps(plain)[1:]).encode())
    assert (test.status, test.reason) == ("error", f"{key}: the key is given more than once")


@pytest.mark.parametrize(("key", "value"), [("rule", '"when-decided"'), ("of", "5")])
def test_so_does_a_part_of_the_plan_of_a_sweep(key: str, value: str) -> None:
    """Its rule, and how many calls there were to be."""
    data = json.dumps({"case": "a", "output": "yes", **stop_mark(5)})
    test = judged(data.replace('"stop": {', f'"stop": {{"{key}": {value}, ').encode())
    assert (test.status, test.reason) == ("error", f"stop.{key}: the key is given more than once")


def test_what_an_output_is_about_is_known_without_judging_it() -> None:
    """By its case or the name of its file; of a line that is skipped, broken or of no case nothing is."""
    judge = OutputScorer(params_of(tag="x"))
    about = [judge.case(json.dumps(each).encode()) for each in ({"case": "a"}, {"named": "b.7"}, {"case": "c"}, 5)]
    assert about == ["a", "b", "", ""]
    assert judge.case(b"{") == ""
    answer = judge.answer(line("a", 3, {"n": 1}, text="whole"))
    assert answer is not None
    assert answer == ("a", 3, "whole")
    for nothing in (b"{", b'{"case": "a", "error": "lost"}', line("a", 0, text=5), line("c", 0), line("?", 0)):
        assert judge.answer(nothing) is None


def test_what_an_output_took_is_read_from_its_attempts() -> None:
    """Cost and tokens of all attempts, the seconds of the last; the line's own keys come first."""
    attempts = [
        {"kind": "timeout", "latency_seconds": 9, "prompt_tokens": 5, "cost": 0.25},
        {"latency_seconds": 2, "prompt_tokens": 5, "completion_tokens": 7, "cost": 0.5},
    ]
    usage = judged(line("a", 0, attempts=attempts)).usage
    assert (usage.latency, usage.cost, usage.prompt_tokens, usage.completion_tokens) == (2.0, 0.75, 10, 7)
    assert usage.tokens == 17
    assert judged(line("a", 0, attempts=attempts, cost=3, latency_seconds=1)).usage[:2] == (1.0, 3.0)


def test_what_a_record_lacks_is_an_error_whatever_else_passes() -> None:
    """An output without its cost is in no rate; of a check with weight 0 it only says so."""
    assert judged(line("c", 0)).reason == "max-cost: the record has no cost"
    assert judged(line("c", 0, cost=2)).status == "failed"
    cases = [{"id": "z", "checks": [{"max-cost": 1, "weight": 0}, {"contains": "yes"}]}]
    assert judged(line("z", 0), cases=cases).status == "passed"


def test_what_attempts_cost_together_may_be_the_bound() -> None:
    """In decimals: .1 and .2 are at most .3, though the sum of their floats is a little more."""
    cases = [{"id": "z", "checks": [{"max-cost": 0.3}]}]
    attempts = [{"cost": 0.1}, {"cost": 0.2}]
    assert judged(line("z", 0, attempts=attempts), cases=cases).status == "passed"
    assert judged(line("z", 0, attempts=[*attempts, {"cost": 1e-9}]), cases=cases).status == "failed"


def test_the_whole_answer_is_looked_at_where_the_output_is_the_json_in_it() -> None:
    """Text checks see `text`, JSON checks `output`."""
    cases = [{"id": "t", "checks": [{"starts-with": "Here"}, {"json-path": "$.a", "is": 1}]}]
    assert judged(line("t", 0, {"a": 1}, text='Here: ```json\n{"a": 1}\n```'), cases=cases).status == "passed"


def test_outputs_of_other_tags_are_skipped() -> None:
    """Even where they are broken; their lines say of which case and repeat they are."""
    left_out = judged(line("a", 3, cost="x"), tag="y")
    assert left_out.status == "skipped"
    record = msgspec.json.decode(record_line("f:1", left_out))
    assert (record["id"], record["repeat"], record["passed"]) == ("a", 3, None)
    assert judged(line("b", 0), tag="y").status == "passed"


def test_a_record_line_has_every_check_within_bounds() -> None:
    """Case, repeat, verdict, and what was wanted and found; of a failed one the answer's beginning."""
    record = msgspec.json.decode(record_line("f:7", judged(line("b", 2, "no " * 10_000))))
    assert (record["record"], record["id"], record["repeat"], record["passed"]) == ("f:7", "b", 2, False)
    assert [(each["name"], each["passed"], each["wanted"]) for each in record["checks"]] == [
        ("contains", False, '"yes"'),
        ("not-contains", False, 'not: "no"'),
    ]
    assert len(json.dumps(record)) < 2000


def test_the_same_line_gives_the_same_record_whatever_order_params_have() -> None:
    """A header sorts the keys of params, a command line does not: no message may show which it was."""
    one = {"calls-tool": "f", "arguments": {"b": 1, "a": 2}}
    other = {"arguments": {"a": 2, "b": 1}, "calls-tool": "f"}
    lines = [
        record_line("f:1", judged(line("k", 0, tool_calls=[]), cases=[{"id": "k", "checks": [check]}]))
        for check in (one, other)
    ]
    assert lines[0] == lines[1]


def test_params_hash_by_their_digest() -> None:
    """Equal params are one key, others another, so that what is compiled is kept."""
    assert hash(params_of()) == hash(params_of())
    assert params_of() == params_of()
    assert params_of() != params_of(CASES[:2])
    assert params_of() != params_of(tag="x")


def test_a_case_that_no_answer_could_fail_is_refused() -> None:
    """Also where params bring the cases, from Python or another file."""
    with pytest.raises(ConfigError, match=r"cases\.0\.checks: .*all checks have weight 0"):
        params_of([{"id": "a", "checks": [{"contains": "x", "weight": 0}, {"regex": "y", "weight": 0.0}]}])
