"""Every check of the vocabulary: what passes it, what fails it, what it cannot say."""

from __future__ import annotations

import time
from typing import Any

import pytest

from evalq.evalcore.evaluators.checks.answer import CheckedAnswer, Usage
from evalq.evalcore.evaluators.checks.check import FOUND_CHARACTERS, WANTED_CHARACTERS, CheckVerdict, compile_check
from evalq.evalcore.evaluators.checks.vocabulary.declaring import BadCheck
from evalq.evalcore.evaluators.checks.vocabulary.registry import VOCABULARY
from evalq.evalcore.evaluators.checks.vocabulary.similar import numbers_in

CALLS = [
    {"name": "search", "arguments": {"query": "weather", "days": 2}},
    {"type": "function", "function": {"name": "book", "arguments": '{"seats": 2}'}},
    {"name": "search", "arguments": {"query": "news"}},
]


def judged(check: dict[str, Any], output: Any, **record: Any) -> CheckVerdict:
    """What becomes of ``check`` on an answer."""
    calls = record.pop("tool_calls", None)
    return compile_check(check).judge(CheckedAnswer(output, record.pop("text", None), Usage(**record), calls))


PASSING: list[tuple[dict[str, Any], Any]] = [
    ({"equals": "Paris"}, "Paris"),
    ({"equals": "paris", "ignore-case": True, "trim": True}, " PARIS\n"),
    ({"equals": {"b": [1, 2.0], "a": None}}, {"a": None, "b": [1.0, 2]}),
    ({"equals": {"a": 1}}, 'Here:\n```json\n{"a": 1}\n```'),
    ({"equals": 5}, "5"),
    ({"contains": "hello"}, "oh hello there"),
    ({"contains": "HELLO", "ignore-case": True}, "hello"),
    ({"contains": '"a":1'}, {"a": 1}),
    ({"icontains": "straße"}, "STRASSE"),
    ({"contains-any": ["x", "y"]}, "my"),
    ({"contains-all": ["x", "y"]}, "xy"),
    ({"starts-with": "Dear"}, "Dear Ada"),
    ({"ends-with": "ADA", "ignore-case": True}, "Dear Ada"),
    ({"regex": r"^\d+$"}, "12345"),
    ({"regex": "a.c", "dotall": True}, "a\nc"),
    ({"regex": "ÄPFEL", "ignore-case": True}, "zwei äpfel"),
    ({"min-length": 3}, "abc"),
    ({"max-length": 3}, "abc"),
    ({"max-length": 2, "unit": "words"}, "two  words\n"),
    ({"max-length": 2, "unit": "lines"}, "a\nb\n"),
    ({"number": 42}, "17 + 25 = 42"),
    ({"number": 1234.5, "which": "only"}, "It is 1,234.50."),
    ({"number": -3, "which": "first"}, "\u22123 then 4"),
    ({"number": 100, "relative": 0.01}, "about 99.2"),
    ({"number": 2}, "1,2"),
    ({"is-json": True}, "[1, 2]"),
    ({"is-json": None}, {"a": 1}),
    ({"contains-json": True}, "See\n```\n[1]\n```\n"),
    ({"json-path": "$.items[0].price", "is": 9.5, "tolerance": 0.01}, {"items": [{"price": 9.505}]}),
    ({"json-path": "n", "min": 2, "max": 5}, '{"n": 5}'),
    ({"json-path": "$.a"}, {"a": None}),
    ({"json-path": "$.a", "is": {"x": [True]}}, {"a": {"x": [True]}}),
    ({"refusal": True}, "I\u2019m sorry, but I can\u2019t help with that."),
    ({"not-refusal": True}, "The capital is Paris." + " It has a long history." * 20 + " I cannot say more."),
    ({"contains": "tea", "at": "$.item"}, {"item": "green tea"}),
    ({"any": [{"contains": "x"}, {"contains": "a"}]}, "a"),
    ({"all": [{"contains": "b"}, {"contains": "a"}]}, "ab"),
    ({"at-least": [{"contains": "a"}, {"contains": "b"}, {"contains": "c"}], "count": 2}, "ac"),
    ({"not-any": [{"contains": "x"}, {"contains": "y"}]}, "a"),
    ({"not-json-path": "$.error"}, {"answer": 1}),
    ({"not-json-path": "$.state", "is": "failed"}, {"answer": 1}),
    ({"not-json-schema": {"type": "object"}}, "[]"),
    ({"not-equals": {"a": 1}}, "prose"),
    ({"not-number": 13}, "no number at all"),
    ({"not-number": 13, "which": "last"}, "13, no, 14"),
    ({"number": 0.3}, "0.30"),
    ({"number": 9007199254740993}, "it is 9,007,199,254,740,993"),
    ({"number": 9007199254740993, "tolerance": 1}, "9007199254740992"),
    ({"number": 3.14159265358979323846}, "3.14159265358979323846"),
    ({"number": 0.3, "tolerance": 0.1}, "0.4"),
    ({"json-path": "$", "is": 9007199254740993, "tolerance": 1}, "9007199254740994"),
    ({"equals": "caf\u00e9", "normalize": "nfc"}, "cafe\u0301"),
    ({"contains": "\ud55c\uae00", "normalize": "nfc"}, "\u1112\u1161\u11ab\u1100\u1173\u11af!"),
    ({"contains-all": ["fi", "2"], "normalize": "nfkc"}, "\ufb01 \u00b2"),
    ({"starts-with": "E\u0301A", "ignore-case": True, "normalize": "nfc"}, "\u00e9a"),
    ({"edit-distance": "\u00e9", "max": 0, "normalize": "nfc"}, "e\u0301"),
    ({"edit-distance": "KITTEN", "max": 0, "ignore-case": True}, "kitten"),
    ({"edit-similarity": "\u00e9", "normalize": "nfc", "threshold": 1.0}, "e\u0301"),
    ({"not-contains": "bye"}, "hello"),
]
FAILING: list[tuple[dict[str, Any], Any]] = [
    ({"equals": "Paris"}, "Paris."),
    ({"equals": True}, "1"),
    ({"equals": {"a": 1}}, {"a": True}),
    ({"equals": {"a": 1}}, "prose"),
    ({"contains": "Hello"}, "hello"),
    ({"contains-any": ["x", "y"]}, "z"),
    ({"contains-all": ["x", "y"]}, "x"),
    ({"starts-with": "a"}, ""),
    ({"regex": r"^\d+$"}, "12345\n"),
    ({"regex": "a.c"}, "a\nc"),
    ({"min-length": 4}, "abc"),
    ({"max-length": 1, "unit": "words"}, "two words"),
    ({"number": 42}, "forty-two"),
    ({"number": 42, "which": "only"}, "42 or 43"),
    ({"number": 42, "which": "last"}, "42 or 43"),
    ({"number": 1}, "1e999"),
    ({"is-json": True}, "```json\n{}\n```"),
    ({"is-json": True}, "{} {}"),
    ({"contains-json": True}, "{} or {}"),
    ({"json-path": "$.a[1]"}, {"a": [1]}),
    ({"json-path": "$.a", "is": 1}, {"a": True}),
    ({"json-path": "$.a", "min": 0}, {"a": "5"}),
    ({"json-path": "$.a", "min": 0}, {"a": True}),
    ({"json-path": "$.a"}, "prose"),
    ({"refusal": True}, "Sure."),
    ({"contains": "tea", "at": "$.item"}, {"other": "tea"}),
    ({"not-contains": "tea", "at": "$.item"}, {"other": "tea"}),
    ({"any": [{"contains": "x"}]}, "a"),
    ({"all": [{"contains": "b"}, {"contains": "a"}]}, "a"),
    ({"at-least": [{"contains": "a"}, {"contains": "b"}], "count": 2}, "a"),
    ({"not-all": [{"contains": "a"}]}, "a"),
    ({"not-json-path": "$.error"}, "Internal error"),
    ({"not-json-schema": {"type": "object"}}, "prose"),
    ({"not-captures": r"answer: (\w)", "is": "B"}, "no such thing"),
    ({"not-number": 13, "which": "last"}, "no number at all"),
    ({"not-number": 13, "which": "only"}, "14 or 15"),
    ({"number": 0.3}, "0.30000000000000004"),
    ({"number": 9007199254740993}, "9007199254740992"),
    ({"number": 9007199254740992}, "9007199254740993"),
    ({"number": 9007199254740992.0}, "9007199254740993"),
    ({"number": 0.2, "tolerance": 0.1}, "0.30000000000000004"),
    ({"json-path": "$", "is": 9007199254740993, "tolerance": 1}, "9007199254740991"),
    ({"equals": "caf\u00e9"}, "cafe\u0301"),
    ({"contains": "\u00b2", "normalize": "nfc"}, "2"),
    ({"edit-distance": "KITTEN", "max": 5}, "kitten"),
    ({"edit-similarity": "KITTEN"}, "kitten"),
    ({"starts-with": "DEAR"}, "Dear Ada"),
    ({"ends-with": "ADA"}, "Dear Ada"),
    ({"captures": "answer: (.)", "is": "B"}, "answer: b"),
    ({"captures": "answer: (.+)", "is": "B"}, "answer: B "),
    ({"equals": "Paris"}, " Paris"),
    ({"edit-distance": "", "max": 99}, []),
    ({"not-edit-distance": "", "max": 99}, {}),
    ({"edit-distance": "", "max": 99}, None),
    ({"not-edit-similarity": "x"}, [1]),
    ({"not-token-f1": "x"}, [1]),
    ({"not-rouge-l": "x"}, [1]),
    ({"not-chrf": "x"}, {"a": 1}),
]


@pytest.mark.parametrize(("check", "output"), PASSING, ids=lambda value: repr(value)[:60])
def test_what_passes(check: dict[str, Any], output: Any) -> None:
    """An answer that is as wanted passes, with a score of 1."""
    verdict = judged(check, output)
    assert (verdict.passed, verdict.error) == (True, ""), verdict
    assert verdict.score is not None
    assert 0.0 < verdict.score <= 1.0


@pytest.mark.parametrize(("check", "output"), FAILING, ids=lambda value: repr(value)[:60])
def test_what_fails(check: dict[str, Any], output: Any) -> None:
    """An answer that is not as wanted fails, and its verdict says what came."""
    verdict = judged(check, output)
    assert (verdict.passed, verdict.error) == (False, ""), verdict
    assert verdict.wanted
    assert verdict.found or output == ""


@pytest.mark.parametrize(
    ("check", "fine"),
    [
        ({"calls-tool": "search"}, True),
        ({"calls-tool": "search", "max": 1}, False),
        ({"calls-tool": "search", "min": 2, "max": 2}, True),
        ({"calls-tool": "search", "arguments": {"query": "weather"}}, True),
        ({"calls-tool": "search", "arguments": {"query": "weather"}, "exact": True}, False),
        ({"calls-tool": "book", "arguments": {"seats": 2.0}}, True),
        ({"not-calls-tool": "delete"}, True),
        ({"tool-calls": ["book", "search"]}, True),
        ({"tool-calls": ["book", "search"], "order": "kept"}, True),
        ({"tool-calls": ["book", "book"]}, False),
        ({"tool-calls": ["search", "search", "book"], "order": "kept"}, False),
        ({"tool-calls": ["search", "book", "search"], "order": "exact"}, True),
        ({"tool-calls": ["search", "book"], "order": "exact"}, False),
        ({"tool-calls": ["search", {"name": "search", "arguments": {"query": "weather"}}]}, True),
        ({"tool-calls": [], "order": "exact"}, False),
        ({"max-tool-calls": 3}, True),
        ({"max-tool-calls": 2}, False),
    ],
    ids=repr,
)
def test_tool_calls(check: dict[str, Any], fine: bool) -> None:
    """Which tools, with what arguments, in which order, how many; both forms of a call are read."""
    assert judged(check, "done", tool_calls=CALLS).passed is fine
    assert judged(check, {"role": "assistant", "tool_calls": CALLS}).passed is fine


def test_what_an_answer_took() -> None:
    """Bounds on cost, seconds and tokens hold at the bound itself."""
    took: dict[str, Any] = {"latency": 2.0, "cost": 0.5, "prompt_tokens": 10, "completion_tokens": 90}
    for check in ({"max-latency": 2}, {"max-cost": 0.5}, {"max-tokens": 100}, {"max-tokens": 90, "of": "completion"}):
        assert judged(check, "a", **took).passed is True
    for check in ({"max-latency": 1.9}, {"max-cost": 0.4}, {"max-tokens": 99}, {"max-tokens": 9, "of": "prompt"}):
        assert judged(check, "a", **took).passed is False


@pytest.mark.parametrize(
    "check",
    [
        {"max-cost": 1},
        {"not-max-latency": 1},
        {"max-tokens": 5},
        {"calls-tool": "search"},
        {"max-tool-calls": 1},
        {"any": [{"contains": "a"}, {"max-cost": 1}]},
        {"not-all": [{"contains": "x"}, {"max-cost": 1}]},
    ],
    ids=repr,
)
def test_what_a_record_lacks_is_no_verdict(check: dict[str, Any]) -> None:
    """Neither passed nor failed, negated or composed, whatever the other parts say: an error that names what lacks."""
    verdict = judged(check, "a")
    assert (verdict.passed, verdict.score) == (None, None)
    assert "record" in verdict.error


def test_broken_tool_calls_are_no_verdict() -> None:
    """A record whose tool calls cannot be read says nothing of them; arguments that are no JSON fit nothing."""
    unreadable: list[Any] = [7, [7], [{"arguments": {}}], [{"name": 3}]]
    for broken in unreadable:
        assert judged({"max-tool-calls": 1}, "a", tool_calls=broken).passed is None
    odd = [{"function": {"name": "search", "arguments": "{broken"}}]
    assert judged({"calls-tool": "search"}, "a", tool_calls=odd).passed is True
    assert judged({"calls-tool": "search", "arguments": {"q": 1}}, "a", tool_calls=odd).passed is False
    # No arguments and nothing else: what came in their place is something else.
    for came, fits in (("{broken", False), ("[1]", False), ([1], False), ("", True), (None, True), ({}, True)):
        made: list[dict[str, Any]] = [{"name": "search", "arguments": came}]
        assert judged({"calls-tool": "search", "exact": True}, "a", tool_calls=made).passed is fits, came


@pytest.mark.parametrize("kind", VOCABULARY.values(), ids=lambda kind: kind.name)
def test_the_example_of_each_check_compiles_and_is_bounded(kind: Any) -> None:
    """What the reference page shows is a check; over a hostile answer its texts stay short, and it takes no time."""
    hostile = ("9," * 100_000) + ("[" * 100_000) + ("```\n" * 50_000) + "\u202e\x1b[31m" + "a" * 200_000
    began = time.process_time()
    for example in (kind.example, {f"not-{key}" if key == kind.name else key: v for key, v in kind.example.items()}):
        compiled = compile_check({key.replace("not-not-", ""): value for key, value in example.items()})
        verdict = compiled.judge(CheckedAnswer(hostile, None, Usage(1, 1, 1, 1), []))
        assert len(verdict.wanted) <= WANTED_CHARACTERS
        assert len(verdict.found) <= FOUND_CHARACTERS
    assert time.process_time() - began < 2.0


@pytest.mark.parametrize(
    ("check", "path", "says"),
    [
        ({"contain": "a"}, "contain", "did you mean contains?"),
        ({"contains": 3}, "contains", "expected str, got int"),
        ({"contains": ""}, "contains", "length >= 1"),
        ({"max-length": 3, "unit": "wods"}, "unit", "wods"),
        ({"contains": "a", "foo": 1}, "foo", "unknown key"),
        ({"any": [{"regex": "(a"}]}, "any[0].regex", "not a regular expression"),
        ({"regex": "(?=a)"}, "regex", "not a regular expression"),
        ({"any": []}, "any", "at least one"),
        ({"any": [{"all": [{"number": "x"}]}]}, "any[0].all[0].number", "expected"),
        ({"contains": "a", "regex": "b"}, "", "2 checks in one mapping"),
        ({"json-path": "$.a", "tolerance": 1}, "tolerance", "needs a number"),
        ({"json-path": "$..a"}, "json-path", "not a path"),
        ({"contains": "a", "at": "a b["}, "at", "not a path"),
        ({"weight": 2}, "", "no check is named"),
        ({"at-least": [{"contains": "a"}], "count": 2}, "count", "from 1 to 1"),
        ({"any": [{"contains": "a"}], "threshold": 0.5}, "threshold", "unknown key"),
        ({"contains": "a", "threshold": 0.5}, "threshold", "holds or does not"),
        ({"contains": "a", "weight": -1}, "weight", "from 0"),
        ({"is-json": False}, "is-json", "not-"),
        ({"equals": {"a": 1}, "trim": True}, "trim", "is only for texts"),
        ({"tool-calls": [{"nam": "x"}]}, "tool-calls[0]", "nam"),
        ({1: 2}, "", "cannot name"),
    ],
    ids=repr,
)
def test_what_is_no_check_is_said_with_its_path(check: dict[Any, Any], path: str, says: str) -> None:
    """The message says what is wrong, the path where, from the check on."""
    with pytest.raises(BadCheck) as caught:
        compile_check(check)
    assert caught.value.path == path
    assert says in str(caught.value)


def test_checks_nest_only_so_deep() -> None:
    """A check of a thousand levels is refused, not computed until the stack ends."""
    deep: dict[str, Any] = {"contains": "a"}
    for _ in range(1000):
        deep = {"any": [deep]}
    with pytest.raises(BadCheck, match="nest more than"):
        compile_check(deep)


@pytest.mark.parametrize("before", ["", "a", "ab"])
def test_a_match_of_any_length_is_found_and_shown_by_its_beginning(before: str) -> None:
    """Wherever its bytes are cut, which may be within a character."""
    verdict = judged({"regex": ".+"}, before + "\u20ac" * 2000)
    assert verdict.passed is True
    assert verdict.found.startswith(f'"{before}\u20ac\u20ac')
    assert {*verdict.found} <= {*before, *'"\u20ac\u2026'}


@pytest.mark.parametrize("weight", [0, 1e-9, 1e9])
def test_a_weight_may_be_either_of_its_bounds(weight: float) -> None:
    """And counts for what it is beside another of 1."""
    parts = [{"contains": "a", "weight": weight}, {"contains": "b"}]
    assert judged({"all": parts}, "a").score == pytest.approx(weight / (weight + 1))


def test_scores_of_composed_checks() -> None:
    """`all` has the mean by weight, `any` the best, `at-least` the share of what it wants; negated it is turned."""
    parts = [{"contains": "a", "weight": 3}, {"contains": "b"}]
    assert judged({"all": parts}, "a").score == pytest.approx(0.75)
    assert judged({"any": parts}, "b").score == 1.0
    assert judged({"at-least": parts, "count": 2}, "a").score == pytest.approx(0.5)
    assert judged({"not-all": parts}, "a").score == pytest.approx(0.25)


def test_numbers_of_a_text() -> None:
    """Signs, thousands, fractions and exponents; what is too large for a number is none."""
    assert list(numbers_in("1,234.5 and -2 and 1e3, 5% of 1,2,3; x9y")) == [1234.5, -2, 1000, 5, 1, 2, 3, 9]
    assert list(numbers_in("1e999 9" + "9" * 400)) == []
    assert list(numbers_in("12,3456")) == [12, 3456]
