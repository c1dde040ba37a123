"""The contract of an answer, templates and paths, and what headers tell: pure functions."""

from __future__ import annotations

import contextlib
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evalq.evalcore.records.json_values import NoJson, NothingThere, extract, find_at, parse_path
from evalq.workers.targets.answers import Quota
from evalq.workers.targets.http import fill
from evalq.workers.targets.web import rate_limits, retry_after

PLAIN: Any = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text(st.characters(exclude_categories=["Cs"])),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text("abc", min_size=1), inner, max_size=3),
    max_leaves=6,
)
PROSE = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="`"))


@given(PLAIN, PROSE, PROSE, st.sampled_from(["", "json", "JSON"]))
def test_json_is_found_by_itself_and_fenced(value: Any, before: str, after: str, kind: str) -> None:
    """Any value comes back from its text, and from a fence within any prose."""
    text = json.dumps(value)
    assert extract(f" {text}\n") == value
    assert extract(f"Answer ({before}) is:\n```{kind}\n{text}\n```\n{after}") == value


@given(st.text())
def test_any_text_is_an_answer_or_a_fault(text: str) -> None:
    """Nothing else is raised, whatever a model writes."""
    with contextlib.suppress(NoJson):
        extract(text)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "empty"),
        ("I think so.", "not JSON"),
        ('Sure: {"a": 1}', "not JSON"),
        ('```json\n{"a": \n```', "in the fenced block: not JSON"),
        ("```json\n1\n```\n```json\n2\n```", "2 fenced JSON blocks"),
        ("```python\nprint()\n```", "not JSON"),
        ("[" * 300 + "]" * 300, "nested deeper"),
        ('{"a": "\ud800"}', "not"),
    ],
)
def test_what_is_no_answer_says_why(text: str, said: str) -> None:
    """Nothing is guessed."""
    with pytest.raises(NoJson, match=said):
        extract(text)


def test_a_template_is_filled_once() -> None:
    """Placeholders in a value are text; a lone placeholder keeps its type; other braces stay."""
    values = {"prompt": "say {agent}", "agent": "a", "case": "c", "repeat": 3}
    template = {"q": "<{prompt}>", "n": "{repeat}", "list": ["{case}-{repeat}", 1, None], "x": "{other} {}"}
    assert fill(template, values) == {"q": "<say {agent}>", "n": 3, "list": ["c-3", 1, None], "x": "{other} {}"}


def test_what_is_no_text_stands_in_a_text_as_json() -> None:
    """A chat in the middle of a text, and what a parameter may be; numbers as they are written."""
    values = {"messages": [{"role": "user", "content": "it's"}], "strict": True, "none": None, "n": 3, "t": 0.25}
    filled = fill("{messages} {strict} {none} {n} {t}", values)
    assert filled == '[{"role":"user","content":"it\'s"}] true null 3 0.25'


def test_paths() -> None:
    """Keys, indices and quoted keys; what is missing is reported as far as it leads."""
    reply = {"choices": [{"message": {"content": "x", "a.b": 1}}]}
    for path in ("choices[0].message.content", "$.choices[0].message.content", "['choices'][0]['message'].content"):
        assert find_at(reply, parse_path(path)) == "x"
    assert find_at(reply, parse_path("choices[0].message['a.b']")) == 1
    assert find_at(reply, parse_path("")) == find_at(reply, parse_path("$")) == reply
    for path, said in (("choices[1].x", r"choices\[1\]"), ("choice.x", "choice$"), ("choices.x", "choices.x$")):
        with pytest.raises(NothingThere, match=said):
            find_at(reply, parse_path(path))
    for wrong in ("a..b", "a[", "a[x]", "a.b]", "a b["):
        with pytest.raises(ValueError, match="not a path at character"):
            parse_path(wrong)


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({}, None),
        ({"retry-after": "2"}, 2.0),
        ({"retry-after": "0.5"}, 0.5),
        ({"retry-after-ms": "1500", "retry-after": "9"}, 1.5),
        ({"retry-after": "Wed, 21 Oct 2015 07:28:10 GMT", "date": "Wed, 21 Oct 2015 07:28:00 GMT"}, 10.0),
        ({"retry-after": "Wed, 21 Oct 2015 07:27:00 GMT", "date": "Wed, 21 Oct 2015 07:28:00 GMT"}, 0.0),
        ({"retry-after": "Wed, 21 Oct 2015 07:27:00 GMT"}, 0.0),
        ({"retry-after": "soon"}, None),
        ({"retry-after": "Mon, 01 Jan 99999999999999999999 00:00:00 GMT"}, None),
        ({"retry-after": "-1"}, None),
        ({"retry-after": "nan"}, None),
    ],
)
def test_retry_after_in_both_forms(headers: dict[str, str], seconds: float | None) -> None:
    """Seconds, or a date held against the server's own clock."""
    assert retry_after(headers) == seconds


def test_rate_limit_headers() -> None:
    """Limits, what remains, and resets as durations, seconds or points in time."""
    message = rate_limits(
        {
            "x-ratelimit-limit-requests": "60",
            "x-ratelimit-remaining-requests": "0",
            "x-ratelimit-reset-requests": "1m0.5s",
            "x-ratelimit-limit-tokens": "150000",
            "x-ratelimit-remaining-tokens": "149984",
            "x-ratelimit-reset-tokens": "6ms",
        }
    )
    assert message.requests == Quota(60, 0, 60.5)
    assert message.tokens == Quota(150000, 149984, 0.006)
    assert message.spent
    plain = rate_limits({"x-ratelimit-remaining": "5", "x-ratelimit-reset": "1445412490",
                         "date": "Wed, 21 Oct 2015 07:28:00 GMT"})  # fmt: skip
    assert plain.requests == Quota(None, 5, 10.0)
    assert not plain.spent
    assert rate_limits({"x-ratelimit-reset": "1x", "x-ratelimit-limit": "many"}).requests == Quota()
