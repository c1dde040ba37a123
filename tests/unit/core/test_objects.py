"""A broken line is reported with the path of what is wrong, and nothing an agent writes gets past that."""

from __future__ import annotations

import json
from typing import Any, TypedDict

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from evalq.evalcore.contract.evaluator import Batch, Tally
from evalq.evalcore.records.json_values import MAX_DEPTH, RecordFault, deeper_than, read_lines, read_object, typed

BROKEN = {
    b'{"a": "\xff"}': "$: not UTF-8: byte 0xff at 7",
    b'{"a": 1': "$: not JSON: Expecting ',' delimiter at 7",
    b"": "$: not JSON: Expecting value at 0",
    b"[1]": "$: expected an object, got an array",
    b'"x"': "$: expected an object, got a string",
    b"true": "$: expected an object, got a boolean",
    b"1.5": "$: expected an object, got a number",
    b"null": "$: expected an object, got null",
    b'{"a": NaN}': "$: not JSON: NaN, an infinity",
    b'{"a": ' + b"1" * 5000 + b"}": "$: not JSON: NaN, an infinity, or a number of thousands of digits",
    b'{"a": 1, "b": 2, "a": 3}': "$.a: the key occurs twice",
    b'{"a": [{"b": {"c": 1, "c": 1}}]}': "$.a[0].b.c: the key occurs twice",
    b'{"a": "\\ud800"}': "$.a: half of a surrogate pair",
    b'{"a": [1, {"\\udc00": 1}]}': "$.a[1]: half of a surrogate pair",
    b'{"\\ud800": 1, "\\ud800": 2}': "$.?: the key occurs twice",
    b'{"a": {"b": 1, "b": 2}, ': "$: not JSON: Expecting property name enclosed in double quotes at 24",
    b'{"a": {"b": 1, "b": 2}, "c": NaN}': "$: not JSON: NaN",
    b'{"a": {"b": 1, "b": 2}, "c": ' + b"[" * 150 + b"]" * 150 + b"}": f"$: nested more than {MAX_DEPTH} deep",
    b'{"a": "' + b"[{" * 150 + b'\\"[[", "a": 1}': "$.a: the key occurs twice",
    b'{"a": "' + b"[{" * 150 + b'\\"[[", "a": ': "$: not JSON: Expecting value",
    b"[" * 150 + b"]" * 150: f"$: nested more than {MAX_DEPTH} deep",
    b"[" * 150 + b"x": f"$: nested more than {MAX_DEPTH} deep",
    b'{"a":' * 3000: f"$: nested more than {MAX_DEPTH} deep",
    b'{"a":' * (MAX_DEPTH + 1) + b"1" + b"}" * (MAX_DEPTH + 1): f"$: nested more than {MAX_DEPTH} deep",
}


@pytest.mark.parametrize(("line", "reason"), BROKEN.items(), ids=range(len(BROKEN)))
def test_a_broken_line_is_reported_with_its_path(line: bytes, reason: str) -> None:
    """Every way of being no record, and the exact place."""
    with pytest.raises(RecordFault) as caught:
        read_object(line)
    assert str(caught.value).startswith(reason)
    msgspec.json.encode(str(caught.value))


Json = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text() | st.floats(allow_nan=False, allow_infinity=False),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=6), inner, max_size=4),
    max_leaves=20,
)


@given(st.dictionaries(st.text(max_size=6), Json, max_size=5), st.booleans())
def test_whole_objects_come_back_as_they_are(value: dict[str, Any], escaped: bool) -> None:
    """Any JSON object, with its characters escaped or plain, and pairs of surrogates as one character."""
    line = json.dumps(value, ensure_ascii=escaped).encode()
    assert read_object(line) == value


@pytest.mark.parametrize("limit", [1, 3, 200])
def test_only_nesting_outside_strings_is_depth(limit: int) -> None:
    """Also in what is no JSON: neither brackets side by side, nor in a string that is never closed, are nested."""
    assert deeper_than(limit, b"[" * (limit + 1))
    assert deeper_than(limit, b'{"a":' * (limit + 1))
    assert not deeper_than(limit, b"[" * limit + b"]" * limit)
    assert not deeper_than(limit, b"[]" * 300 + b"]" * 300)
    for end in (b'"', b"", b"\\", b'\\"'):
        assert not deeper_than(limit, b'["' + b"[" * 300 + end)


@pytest.mark.parametrize("depth", [1, MAX_DEPTH - 1, MAX_DEPTH])
def test_nesting_up_to_the_limit_is_read(depth: int) -> None:
    """The limit itself is still inside, in short lines and in long ones."""
    deep = b'{"a":' * depth + b"1" + b"}" * depth
    assert read_object(deep)
    assert read_object(b'{"pad":"' + b"x" * 70_000 + b'","a":' + deep[5 : len(deep) - 1] + b"}")


def test_a_long_line_is_looked_at_as_closely_as_a_short_one() -> None:
    """Surrogates, depth and repeated keys behind 70,000 characters."""
    pad = b'{"pad":"' + b"x" * 70_000 + b'",'
    for rest, reason in (
        (b'"a":"\\ud800"}', "half of"),
        (b'"pad":1}', "twice"),
        (b'"a":' + b"[" * 200 + b"]" * 200 + b"}", "nested"),
    ):
        with pytest.raises(RecordFault, match=reason):
            read_object(pad + rest)


class _Item(TypedDict):
    name: str


class _Kind(msgspec.Struct):
    items: list[_Item] = []


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        ({"items": 3}, "$.items: expected `array`, got `int`"),
        ({"items": [{"name": "a"}, {"name": 1}]}, "$.items[1].name: expected `str`, got `int`"),
        ({"items": [{}]}, "$.items[0].name: missing"),
        (7, "$: expected `object`, got `int`"),
    ],
)
def test_a_wrong_type_is_reported_with_its_path(value: Any, reason: str) -> None:
    """What was expected, what was there, and where."""
    with pytest.raises(RecordFault) as caught:
        typed(value, _Kind)
    assert str(caught.value) == reason


def test_a_repeated_key_among_very_many_is_found() -> None:
    """In time linear in their number, wherever it stands."""
    keys = [*range(100_000), 99_999]
    line = ("{" + ",".join(f'"{key}":0' for key in keys) + "}").encode()
    with pytest.raises(RecordFault, match=r"^\$\.99999: the key occurs twice$"):
        read_object(line)


def test_lines_carry_their_place_and_an_id() -> None:
    """The record's own id as a string, else its line number; blank lines count as lines but are no records."""
    data = b'{"id": "x"}\n\n{"id": 7}\n{"id": true}\n{}\n[\n{"id": "late", "bad": 1}\n'
    tally = Tally()

    def read(given: dict[str, Any]) -> dict[str, Any]:
        if "bad" in given:
            raise RecordFault("$.bad", "not wanted")
        return given

    lines = list(read_lines(Batch("f.jsonl", 10, data), read, tally))
    assert [(line.where, line.id) for line in lines] == [
        ("f.jsonl:10", "x"),
        ("f.jsonl:12", "7"),
        ("f.jsonl:13", "13"),
        ("f.jsonl:14", "14"),
        ("f.jsonl:15", "15"),
        ("f.jsonl:16", "late"),
    ]
    assert [line.record is None for line in lines] == [False, False, False, False, True, True]
    assert tally.errors == 2
    assert [line for line, _ in tally.listed.first] == [15, 16]
    assert json.loads(lines[-1].broken()) == {
        "record": "f.jsonl:16",
        "id": "late",
        "status": "error",
        "reason": "$.bad: not wanted",
    }
