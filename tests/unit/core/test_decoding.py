"""Decoding lines that anyone may have written: bounded, and blind to nothing."""

from __future__ import annotations

import contextlib
import json
import time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evalq.evalcore.records.json_values import MAX_ANSWER_DEPTH, Malformed, decode, repeated_keys
from tests.unit.vs.test_validators import json_values


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"{", "not JSON: Input data was truncated"),
        (b'{"a": nan}', "not JSON: invalid character"),
        (b'{"a": 1e999}', "not JSON: Number out of range"),
        (b'{"a": ' + b"1" * 5000 + b"}", "not JSON: Integer value out of range"),
        (b'{"a": "\xea\xb0\x80\xff"}', r"not UTF-8: 0xff \(byte 10\)"),
        (b"\xff", r"not UTF-8: 0xff \(byte 0\)"),
        (b'{"a": "\\ud800"}', "not JSON"),
        (b"\xef\xbb\xbf{}", "not JSON: invalid character"),
        (b"[" * (MAX_ANSWER_DEPTH + 1) + b"]" * (MAX_ANSWER_DEPTH + 1), "nested deeper than 200 levels"),
        (b'{"a":' * 10_000, "nested deeper than 200 levels"),
    ],
)
def test_what_cannot_be_read_says_why(data: bytes, reason: str) -> None:
    """Bad syntax, bad UTF-8, numbers out of range and deep nesting are all the same error, with a reason."""
    with pytest.raises(Malformed, match=reason):
        decode(data)


@pytest.mark.parametrize(
    "value",
    [
        "[" * 300 + "{" * 300 + '"',
        [[]] * 300,
        ["\\" * 51 + "[" * 300] * 3,
        json.loads("[" * MAX_ANSWER_DEPTH + "]" * MAX_ANSWER_DEPTH),
        [json.loads("[" * (MAX_ANSWER_DEPTH - 1) + "]" * (MAX_ANSWER_DEPTH - 1)), [], {}],
    ],
)
def test_only_real_nesting_counts_as_deep(value: Any) -> None:
    """Brackets in strings, and many beside one another, are no depth; MAX_DEPTH itself is allowed."""
    assert decode(json.dumps(value).encode()) == value


@given(st.binary(max_size=60))
def test_any_bytes_decode_or_are_malformed(data: bytes) -> None:
    """No other exception comes out, and what comes out can be asked for repeated keys."""
    try:
        value = decode(data)
    except Malformed:
        return
    assert isinstance(repeated_keys(data, value), list)


@given(json_values, st.sampled_from([None, 1]), st.booleans())
def test_unique_keys_are_never_called_repeated(value: Any, indent: int | None, ascii_only: bool) -> None:
    """However a value is written, with spaces, escapes or colons in its strings, it has no repeated key."""
    data = json.dumps(value, indent=indent, ensure_ascii=ascii_only, separators=(" , ", " : ") if indent else None)
    try:
        decoded = decode(data.encode("utf-8", "surrogatepass"))
    except Malformed:
        return
    assert repeated_keys(data.encode(), decoded) == []


@pytest.mark.parametrize(
    ("data", "paths"),
    [
        (b'{"a":1,"a":2}', ["a"]),
        (b'{"a" :1,"a":2}', ["a"]),
        (b'{"a" :1, "b":{"a":2}, "a"\t: 3}', ["a"]),
        (b'{"x":[{"k":1},{"k":1,"k":1,"k":2}],"x2":{"y":1,"y":{"z":1,"z":2}}}', ["x[1].k", "x2.y", "x2.y.z"]),
        (b'{"a":"\\u0022:","b":1,"b":1}', ["b"]),
        (b'{"a":"\\"\\u003a","b":1,"b":1}', ["b"]),
        (b'{"a":"\\":","b":1,"\\u0062":1}', ["b"]),
        (b'{"a":1,"a":1,"b":"x\\" :"}', ["a"]),
        (b'{"n":' + b"9" * 4000 + b',"n":1}', ["n"]),
    ],
)
def test_repeated_keys_are_found_wherever_they_are(data: bytes, paths: list[str]) -> None:
    """At the top, in lists, three times, written with escapes, or beside strings that look like keys."""
    assert repeated_keys(data, decode(data)) == paths


@given(st.lists(st.sampled_from(["a", "b", "c", '":', "\u00e9"]), min_size=1, max_size=6), st.booleans())
def test_an_object_repeats_what_it_repeats(keys: list[str], ascii_only: bool) -> None:
    """Exactly the keys written more than once are named."""
    members = ",".join(f"{json.dumps(key, ensure_ascii=ascii_only)}:{index}" for index, key in enumerate(keys))
    data = ("{" + members + "}").encode()
    expected = {key for key in keys if keys.count(key) > 1}
    assert set(repeated_keys(data, decode(data))) == expected


@pytest.mark.parametrize(
    "data",
    [
        b'{"a":"' + b'\\"' * 2_000_000,
        b"[" * 4_000_000,
        b'"' * 4_000_000 + b"[" * 300,
        b'{"a":"' + b" " * 4_000_000 + b'"}',
    ],
)
def test_hostile_lines_take_linear_time(data: bytes) -> None:
    """Four megabytes of escapes, brackets, quotes or spaces take well under a second."""
    began = time.process_time()
    with contextlib.suppress(Malformed):
        repeated_keys(data, decode(data))
    assert time.process_time() - began < 1.0
