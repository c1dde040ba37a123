"""What a verdict says in words: what was wanted, what came instead, and what a check needs to know."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml

from evalq.evalcore.evaluators.checks.answer import CheckedAnswer, Usage
from evalq.evalcore.evaluators.checks.check import compile_check
from evalq.evalcore.evaluators.checks.vocabulary.declaring import BadCheck
from evalq.evalcore.evaluators.checks.vocabulary.registry import VOCABULARY
from evalq.evalcore.evaluators.checks.vocabulary.text import PHRASES

CALL = [{"type": "function", "function": {"name": "book", "arguments": '{"seats": 2}'}}]
AB: list[dict[str, Any]] = [{"contains": "a"}, {"contains": "b"}]
PAGE = Path(__file__).parents[3] / "docs" / "reference" / "checks.md"
NO_JSON = "not JSON: invalid character (byte 0)"


def judged(check: dict[str, Any], output: Any, **took: Any) -> Any:
    """What becomes of ``check`` on an answer."""
    calls = took.pop("calls", None)
    return compile_check(check).judge(CheckedAnswer(output, None, Usage(**took), calls))


@pytest.mark.parametrize(
    ("check", "output", "wanted", "found"),
    [
        ({"equals": "a"}, "b", '"a"', "b"),
        ({"equals": {"a": 1}}, "b", '{"a":1}', NO_JSON),
        ({"contains-any": ["a", "c"]}, "b", 'any of "a", "c"', "b"),
        ({"contains-all": ["a", "b"]}, "b", 'all of "a", "b"', 'without "a": b'),
        ({"contains-all": ["a", "b"]}, "ab", 'all of "a", "b"', "ab"),
        ({"regex": r"\d+"}, "a 12", r"\d+", '"12"'),
        ({"min-length": 3, "unit": "words"}, "a b", "at least 3 words", "2 words"),
        ({"max-length": 1}, "ab", "at most 1 characters", "2 characters"),
        ({"number": 4}, "1, 2", "a number 4", "1, 2"),
        ({"number": 4, "which": "first", "tolerance": 1}, "1, 2", "the first number about 4", "1"),
        ({"number": 4, "which": "last", "relative": 0.5}, "1, 2", "the last number about 4", "2"),
        ({"number": 4, "which": "only"}, "1, 2", "the only number 4", "2 numbers: 1, 2"),
        ({"number": 4}, "none", "a number 4", "no number: none"),
        ({"number": 4}, "1 2 3 5 6 7 8 9 10 11", "a number 4", "1, 2, 3, 5, 6, 7, 8, 9, 10, 11"),
        ({"number": 4}, "1 2 3 5 6 7 8 9 10 11 12", "a number 4", "1, 2, 3, 5, 6, 7, 8, 9, 10, 11, ..."),
        ({"is-json": True}, "{}", "JSON and nothing else", "an object"),
        ({"is-json": True}, "x", "JSON and nothing else", f"{NO_JSON}: x"),
        ({"contains-json": True}, "```\n[1]\n```", "JSON, alone or in one fenced block", "a list"),
        ({"json-path": "$.a"}, "{}", "$.a: something", "the answer has nothing at a"),
        ({"json-path": "$.a", "is": 5, "tolerance": 1}, {"a": 9}, "$.a: about 5", "9"),
        ({"json-path": "$.a", "is": [1]}, {"a": [2]}, "$.a: [1]", "[2]"),
        ({"json-path": "$.a", "min": 2, "max": 5.5}, {"a": 9}, "$.a: at least 2, at most 5.5", "9"),
        ({"json-schema": {"type": "object"}}, "{}", '{"type":"object"}', "valid"),
        ({"json-schema": {"type": "object"}}, "[]", '{"type":"object"}', "$: [] is not of type 'object'"),
        (
            {"json-schema": {"additionalProperties": False}},
            dict.fromkeys("abcdef", 1),
            '{"additionalProperties":false}',
            "$: additional properties: 'a', 'b', 'c', 'd', 'e'",
        ),
        ({"refusal": True}, "I cannot do it", "a refusal", '"i cannot": I cannot do it'),
        ({"captures": r"(\w)-(\w)", "is": ["x", "y"]}, "a-b", r'"x" or "y" by (\w)-(\w)', '"a", "b"'),
        ({"captures": ["q", r"\w-\w"], "is": "x"}, "a-b", '"x" by q', '"a-b"'),
        ({"captures": "q", "is": "x"}, "a-b", '"x" by q', "the pattern does not occur: a-b"),
        ({"edit-similarity": "kitten"}, "sitten", '"kitten"', "0.833: sitten"),
        ({"edit-distance": "kitten", "max": 3}, "sitten", '"kitten", at most 3 edits', "1 edits: sitten"),
        ({"edit-distance": "kitten", "max": 1}, "sitting", '"kitten", at most 1 edits', "over 1 edits: sitting"),
        ({"rouge-l": "a cat"}, "cat", '"a cat"', "0.667: cat"),
        ({"any": AB}, "c", "any of 2 checks", "0 of 2 hold"),
        ({"all": AB}, "a", "all of 2 checks", "1 of 2 hold"),
        ({"at-least": AB, "count": 2}, "a", "2 of 2 checks", "1 of 2 hold"),
        ({"not-any": AB}, "a", "not: any of 2 checks", "1 of 2 hold"),
        ({"not-contains": "a"}, "a", 'not: "a"', "a"),
        ({"contains": "a", "at": "$.x"}, "{}", '"a"', "the answer has nothing at x"),
        ({"any": [{"contains": "a", "at": "$.x"}, AB[1]]}, "c", "any of 2 checks",
         "0 of 2 hold, 1 found nothing to look at"),
    ],
    ids=lambda value: repr(value)[:50],
)  # fmt: skip
def test_a_verdict_says_what_was_wanted_and_what_came(
    check: dict[str, Any], output: Any, wanted: str, found: str
) -> None:
    """In the report these two are all that a reader has."""
    verdict = judged(check, output)
    assert (verdict.wanted, verdict.found, verdict.error) == (wanted, found, "")


@pytest.mark.parametrize(
    ("check", "took", "wanted", "found"),
    [
        ({"calls-tool": "book", "arguments": {"q": 1}, "max": 2}, {"calls": CALL}, 'book({"q":1}) 1 to 2 times',
         'book({"seats":2})'),
        ({"calls-tool": "search", "min": 3}, {"calls": []}, "search() at least 3 times", "no calls"),
        ({"calls-tool": "search"}, {"calls": []}, "search()", "no calls"),
        ({"tool-calls": ["a", {"name": "b", "arguments": {"c": 1}}]}, {"calls": []}, 'a(), b({"c":1}) (in any order)',
         "no calls"),
        ({"tool-calls": ["a"], "order": "kept"}, {"calls": CALL * 2}, "a() (in this order, others between)",
         'book({"seats":2}), book({"seats":2})'),
        ({"tool-calls": ["a"], "order": "exact"}, {"calls": [{"name": "n"}] * 22}, "a() (these and no others)",
         ", ".join(["n()"] * 20) + ", and 2 more"),
        ({"max-tool-calls": 0}, {"calls": CALL}, "at most 0 calls", "1 calls"),
        ({"max-cost": 1}, {"cost": 2.5}, "at most 1", "2.5"),
        ({"max-latency": 1.5}, {"latency": 2.5}, "at most 1.5 s", "2.5 s"),
        ({"max-tokens": 1}, {"prompt_tokens": 2, "completion_tokens": 3}, "at most 1 tokens", "5 tokens"),
    ],
    ids=lambda value: repr(value)[:50],
)  # fmt: skip
def test_so_does_one_about_calls_and_what_was_taken(
    check: dict[str, Any], took: dict[str, Any], wanted: str, found: str
) -> None:
    """Tools with their arguments, money, seconds, tokens."""
    verdict = judged(check, "x", **took)
    assert (verdict.passed, verdict.wanted, verdict.found) == (False, wanted, found)


@pytest.mark.parametrize(
    ("check", "lacking"),
    [
        ({"max-cost": 1}, "the record has no cost"),
        ({"max-latency": 1}, "the record has no latency_seconds"),
        ({"max-tokens": 1}, "the record has no prompt_tokens or completion_tokens"),
        ({"max-tokens": 1, "of": "prompt"}, "the record has no prompt_tokens"),
        ({"max-tokens": 1, "of": "completion"}, "the record has no completion_tokens"),
        ({"max-tool-calls": 0}, "the record says nothing of tool calls: its line, or its output, needs tool_calls"),
    ],
    ids=repr,
)
def test_what_a_record_lacks_is_named(check: dict[str, Any], lacking: str) -> None:
    """By the key that whoever writes the records has to add."""
    verdict = judged(check, "x")
    assert (verdict.passed, verdict.error, verdict.found) == (None, lacking, "")


@pytest.mark.parametrize("phrase", PHRASES)
def test_each_phrase_of_the_list_is_a_refusal(phrase: str) -> None:
    """In upper case and with the curly apostrophe, too; further behind than 200 characters it is none."""
    for said in (phrase, phrase.upper(), phrase.replace("'", "\u2019"), f"Well. {phrase} help with that."):
        assert judged({"refusal": True}, said).passed is True
    assert judged({"refusal": True}, f"{'word ' * 40}{phrase}").passed is False


def test_phrases_of_refusals_are_those_that_people_know() -> None:
    """English ones with each verb in both spellings, and Korean ones."""
    for said in (
        "I cannot do that.",
        "I can't do that.",
        "I can not do that.",
        "I am unable to do that.",
        "I'm unable to do that.",
        "I am not able to do that.",
        "I'm not able to do that.",
        "I won't do that.",
        "I will not do that.",
        "I must decline.",
        "I have to decline.",
        "I'm sorry, but no.",
        "I am sorry, but no.",
        "I apologize, but no.",
        "Sorry, I can only talk of tea.",
        "As an AI, no.",
        "It would be inappropriate.",
        "That goes against my rules.",
        "죄송하지만 안 됩니다.",
        "그 일은 도와드릴 수 없습니다.",
        "그 질문에는 답변할 수 없습니다.",
        "Sorry, I cant do that.",
    ):
        assert judged({"refusal": True}, said).passed is True
    for said in ("Sorry, I can see how that was confusing: it is Paris.", "Sorry, I canceled it, as you asked."):
        assert judged({"refusal": True}, said).passed is False


@pytest.mark.parametrize("kind", VOCABULARY.values(), ids=lambda kind: kind.name)
def test_the_page_of_checks_shows_each_example(kind: Any) -> None:
    """As a cases file has it: what a reader copies is what is tested here."""
    blocks = re.findall(r"```yaml\n(- .*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    shown = [check for block in blocks for check in yaml.safe_load(block)]
    assert kind.example in shown


@pytest.mark.parametrize("kind", VOCABULARY.values(), ids=lambda kind: kind.name)
def test_the_page_of_checks_tells_what_holds_where_an_option_is_omitted(kind: Any) -> None:
    """For each option that a file can give."""
    section = PAGE.read_text(encoding="utf-8").partition(f"\n## {kind.name}\n")[2].partition("\n## ")[0]
    rows = [[cell.strip() for cell in row.split(" | ")] for row in section.split("\n") if row.startswith("| ")]
    documented = {row[0].removeprefix("| "): row[2] for row in rows[2:]}
    fields = msgspec.structs.fields(kind.options)
    assert set(documented) == {field.encode_name for field in fields}
    empty: tuple[Any, ...] = ("", None, {}, [], msgspec.UNSET, msgspec.NODEFAULT)
    for field in fields:
        default = field.default if field.default_factory is msgspec.NODEFAULT else field.default_factory()
        known = "-" if default in empty else str(default).lower()
        assert documented[field.encode_name] == known, field.encode_name


@pytest.mark.parametrize(
    ("check", "path", "says"),
    [
        ({"contains-any": []}, "contains-any", "length >= 1"),
        ({"contains-any": ["a", ""]}, "contains-any[1]", "length >= 1"),
        ({"captures": [], "is": "x"}, "captures", "length >= 1"),
        ({"captures": "", "is": "x"}, "captures", "length >= 1"),
        ({"captures": ["x", ""], "is": "x"}, "captures[1]", "length >= 1"),
        ({"captures": "x", "is": []}, "is", "the pattern has to capture"),
        ({"captures": "x", "is": [1]}, "is", "the pattern has to capture"),
        ({"calls-tool": ""}, "calls-tool", "length >= 1"),
        ({"max-tool-calls": -1}, "max-tool-calls", ">= 0"),
        ({"max-cost": -1}, "max-cost", ">= 0"),
        ({"number": 1, "tolerance": -1}, "tolerance", ">= 0"),
        ({"number": 1, "relative": -1}, "relative", ">= 0"),
        ({"json-path": "$", "is": 1, "relative": -1}, "relative", ">= 0"),
        ({"json-path": "$", "is": True, "relative": 1}, "relative", "needs a number as `is`"),
        ({"equals": 1, "ignore-case": True}, "ignore-case", "is only for texts"),
        ({"equals": 1, "normalize": "nfc"}, "normalize", "is only for texts"),
        ({"contains": "a", "weight": 1.1e9}, "weight", "from 0 to 1e9"),
        ({"chrf": "a", "threshold": 1.1}, "threshold", "from 0 to 1"),
        ({"contains": "a", "regex": "b"}, "", "2 checks in one mapping (contains, regex): write a list item for each"),
        (
            {"contains": "a", "zeal": 1},
            "zeal",
            "unknown key (known here: about, at, contains, ignore-case, name, normalize",
        ),
        ({"any": [AB[0]], "zeal": 1}, "zeal", "unknown key (known here: about, any, at, name, weight)"),
        ({"at-least": AB, "zeal": 1}, "zeal", "unknown key (known here: about, at, at-least, count, name, weight)"),
        ({"contain": "a", "weight": 1}, "contain", "there is no check 'contain'; did you mean contains?"),
        ({"quite different": "a"}, "quite different", "; there are: "),
        ({"any": [{"at-least": [{"contains": "a"}], "count": 0}]}, "any[0].count", "from 1 to 1"),
        ({"any": [5]}, "any[0]", "a number where a check is wanted, such as {contains: hello}"),
        ({"rubric": "", "votes": 1}, "rubric", "length >= 1"),
        ({"factual": None}, "factual", "text is wanted"),
        ({"prefer": False}, "prefer", "must be a text, or true for the answers of --against"),
        ({"rubric": "x", "votes": 101}, "votes", "<= 99"),
        ({"rubric": "x", "votes": 2}, "votes", "must be odd, so that there is a majority"),
        ({"score": "x", "from": 2, "to": 1}, "to", "the scale must rise by a finite width: from 2 to 1"),
        ({"rubric": "x", "prompt": "y"}, "prompt", "(placeholders: {answer}, {criterion}, {input})"),
        ({"factual": "x", "prompt": "y"}, "prompt", "(placeholders: {answer}, {reference}, {input})"),
        ({"score": "x", "prompt": "y"}, "prompt", "(placeholders: {answer}, {criterion}, {input}, {from}, {to})"),
        (
            {"prefer": "x", "prompt": "{first}"},
            "prompt",
            "needs the placeholder {second} for the answer (placeholders: {f",
        ),
        ({"score": "x", "threshold": 9}, "threshold", "must be on the scale, from 1 to 5"),
    ],
    ids=repr,
)
def test_what_is_wrong_with_a_check_is_said_where_it_is(check: dict[str, Any], path: str, says: str) -> None:
    """The bound, or what belongs there."""
    with pytest.raises(BadCheck) as caught:
        compile_check(check)
    assert (caught.value.path, says in str(caught.value)) == (path, True), str(caught.value)
