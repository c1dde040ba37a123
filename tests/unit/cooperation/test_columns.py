"""A chunk read and counted by compiled code: to the byte what Python gives, line by line and row by row."""

from __future__ import annotations

import json
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from evalq.evalcore.evaluators.cooperation import columns
from evalq.evalcore.evaluators.cooperation.columns import (
    chunk_state,
    count,
    count_in_python,
    read_columns,
    read_in_python,
)
from evalq.evalcore.evaluators.cooperation.params import Rules
from evalq.evalcore.evaluators.cooperation.reading import parse_line
from evalq.evalcore.evaluators.cooperation.report import CooperationState
from evalq.evalcore.evaluators.cooperation.score import BETRAYAL, COOPERATIVE, MOST_BLOCKS, AgentState
from evalq.evalcore.native import compiled_log
from evalq.evalcore.records.batch import Batch
from tests.unit.cooperation.logs import as_jsonl, rows
from tests.unit.cooperation.test_faults import BAD, GOOD, pieces, row

ODD = [
    *(line for line, _ in BAD if len(line) < 1000),
    b"",
    b" \t",
    b"\xef\xbb\xbf" + GOOD[:-1],
    GOOD[:-1] + b"\r",
    row(turn="3"),
    row(turn=3.0),
    row(turn=2**62),
    row(turn=-(2**63)),
    row(agent="\u00e9\u2028"),
    row(agent=""),
    row(decision="JOIN\u0130"),
    row(dry_run=True),
    row(dry_run="no"),
    row(resources={}),
    row(resources=[1]),
    row(resources={"stone": -0.0}),
    row(resources={"stone": 2**53 + 1}),
    row(resources={"stone": 10**200, "wood": 1}),
    row(resources={"stone": "0012.50", "a key": 1, 'with " in it': 2, "\ud800": 3}),
    row(resources={"stone": 1, **{f"k{n}": n for n in range(40)}}),
    row().replace(b'"stone"', b'"st\\u006fne"'),
    row().replace(b'"stone": 2', b'"stone": 5, "stone": 2'),
    row().replace(b'"turn": 1', b'"turn": 7, "turn": 1'),
    row(message="x" * 700, more=[[[]]]),
    '{"turn": 4, "agent": "다나", "decision": "돕다", "resources": {"돌": 3}}'.encode(),
]


compiled = pytest.mark.skipif(compiled_log() is None, reason="nothing is compiled here: there is one way only")


def by_rules(data: bytes, rules: Rules) -> tuple[bytes, Any]:
    """The state and the faults of a chunk as Python has them, each line by the rules alone."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(columns, "read_line", parse_line)
        rows, bad = read_in_python(Batch("x", 7, data), rules.resource_key)
    return count_in_python(rows, rules).to_wire(), bad


def by_either(data: bytes, rules: Rules) -> tuple[bytes, Any]:
    """The same by compiled code and what it leaves; also where only one of reading and counting is done by it."""
    batch = Batch("x", 7, data)
    state, bad = chunk_state(batch, rules)
    for reading in (read_columns, read_in_python):
        for counting in (count, count_in_python):
            rows, faults = reading(batch, rules.resource_key)
            assert (counting(rows, rules).to_wire(), faults) == (state.to_wire(), bad)
    return state.to_wire(), bad


@settings(deadline=None, max_examples=250)
@given(
    rows(),
    st.lists(st.tuples(st.integers(0, 40), st.sampled_from(ODD)), max_size=4),
    st.sampled_from(["stone", "돌", '"']),
)
def test_compiled_code_gives_what_lines_and_rows_give(
    log: list[dict[str, Any]], odd: list[tuple[int, bytes]], key: str
) -> None:
    """Whatever the order of turns, the numbers, the odd and broken lines between, and how lines end."""
    lines = as_jsonl(log).split(b"\n")
    for at, line in odd:
        lines.insert(min(at, len(lines)), line)
    rules = Rules(resource_key=key)
    for data in (b"\n".join(lines), b"\n".join(lines).rstrip(b"\n"), b"\r\n".join(lines)):
        assert by_either(data, rules) == by_rules(data, rules)


@settings(deadline=None)
@given(
    st.lists(
        st.tuples(st.integers(-40, 40), st.integers(0, 3), st.one_of(st.none(), st.floats(-1e15, 1e15))), min_size=1
    )
)
def test_sums_of_any_floats_are_exact_either_way(log: list[tuple[int, int, float | None]]) -> None:
    """The sum of drops is exact, whatever digits they have."""
    made = [{"turn": turn, "agent": str(who), "resources": {} if v is None else {"stone": v}} for turn, who, v in log]
    data = as_jsonl(made)
    assert by_either(data, Rules()) == by_rules(data, Rules())


def test_a_state_of_no_rows_is_nothing() -> None:
    """A chunk of bad lines only adds nothing to a log."""
    assert by_either(b"x\n\n", Rules())[0] == CooperationState().to_wire()


NUMBERS = [
    "0",
    "-0",
    "-0.0",
    "1",
    "-12",
    "007",
    "1.50",
    "0.1",
    "0.30000000000000004",
    "123456789012345",
    "4503599627370496",
]
NUMBERS += [
    "1234567890123456789",
    "9223372036854775808",
    "12345678901234.5",
    "1234567890123456.75",
    "1e5",
    "1E-7",
    "1.",
    ".5",
]
NUMBERS += [
    "2.2250738585072014",
    "9007199254740993.0",
    "1" * 64,
    "1" * 64 + ".5",
    "0." + "3" * 70,
    "-",
    "",
    "+1",
    "nan",
    "1e400",
]


@compiled
@pytest.mark.parametrize("number", NUMBERS)
@pytest.mark.parametrize("field", ['"turn": %s', '"resources": {"stone": %s}', '"resources": {"wood": %s}'])
def test_compiled_code_takes_a_number_for_what_the_rules_do(number: str, field: str) -> None:
    """Bare and as a string, as a turn, as the resource that counts and as another: the same, or left to Python."""
    for text in (number, f'"{number}"', f" {number} "):
        line = f'{{"turn": 1, "agent": "a", "x": 1, {field % text}}}'.replace('"turn": 1, ', "", "turn" in field)
        rest = b'\n{"turn": 3, "agent": "a", "resources": {"stone": 0.25}}'
        assert by_either(line.encode() + rest, Rules()) == by_rules(line.encode() + rest, Rules()), line


@compiled
@settings(max_examples=250, deadline=None)
@given(
    st.lists(
        st.tuples(
            st.sampled_from(
                [GOOD[:-1], row(turn="7", x=[1, {}]), row(more={"a": [{"b": "c\\"}]}, dry_run=True), row()]
            ),
            st.integers(0, 90),
            st.integers(0, 6),
            st.lists(pieces, max_size=4),
        ),
        max_size=4,
    )
)
def test_compiled_code_reads_damaged_lines_by_the_rules(damaged: list[tuple[bytes, int, int, list[bytes]]]) -> None:
    """Whatever is put into good lines: the same events, the same faults with the same lines."""
    lines = [line[:at] + b"".join(put) + line[at + cut :] for line, at, cut, put in damaged]
    for data in (b"\n".join(lines), GOOD + b"\n".join(lines) + b"\n"):
        assert by_either(data, Rules()) == by_rules(data, Rules())


@compiled
@pytest.mark.parametrize("usual", [0, 1, 900])
def test_any_number_of_lines_may_be_left_to_python(usual: int) -> None:
    """A log of odd lines only, and one with some among others; each keeps its place."""
    native = compiled_log()
    assert native is not None
    data = b"\n".join([row()] * usual + [row(turn="5")] * 200)
    left = memoryview(native.read_log(data, b"stone")[-1]).cast("q").tolist()
    assert left[::4] == left[1::4] == list(range(usual, usual + 200))
    assert [data[start:end] for start, end in zip(left[2::4], left[3::4], strict=True)] == [row(turn="5")] * 200
    assert by_either(data, Rules()) == by_rules(data, Rules())


@compiled
def test_what_is_left_keeps_its_place() -> None:
    """A dry run, an agent and a large amount of a left line count as if they had been read with the others."""
    lines = [
        row(dry_run=False),
        row(turn="2", dry_run=True, resources={"stone": 2**60}).replace(b'"a"', b'"\\u0041"'),
    ]
    for log in (lines, lines[::-1], [b"bad", *lines], [*lines, b"bad", lines[1]]):
        data = b"\n".join(log)
        assert by_either(data, Rules()) == by_rules(data, Rules())


def test_nothing_is_compiled_is_no_hindrance(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a compiler, or with a module of other sources, Python reads the log."""
    from evalq.evalcore import native

    monkeypatch.setattr(native, "source_digest", lambda: "other")
    assert native.compiled_log.__wrapped__() is None
    monkeypatch.setattr(columns, "compiled_log", lambda: None)
    assert chunk_state(Batch("x", 1, GOOD * 3), Rules())[0].rows == 3


_SPACING = st.sampled_from([(",", ":"), (", ", ": "), (" ,\t", "\t: "), (",\r", " :"), (", " + " " * 20, ":")])
_KEYS = ["turn", "agent", "decision", "resources", "dry_run", "phase", "turns", "a key that is longer than a step", "é"]


_ORDERS = [st.permutations(_KEYS), st.permutations(_KEYS[1:])]
_INNER = st.permutations(["stone", "wood", "food", "stones"])
_FEW = {most: st.integers(1, most) for most in (3, 4)}
_HELD = st.sampled_from([1, 2.5, "3", -0.0, 10**14 + 0.5])
_VALUES = st.fixed_dictionaries(
    {
        "agent": st.sampled_from(["ada", "bo", ""]),
        "decision": st.sampled_from(["join", "steal", None]),
        "resources": st.sampled_from(["held", "held", {}, None]),
        "dry_run": st.sampled_from([None, True]),
        "phase": st.sampled_from(["x" * 20, [1, {"turn": 2}], 1e3]),
    }
)
_MANY, _WRITTEN = st.sampled_from([0, 0, 30]), st.sampled_from(["plain", "plain", "around", "inside"])
_FIRST, _KEPT = st.integers(0, 1), st.integers(3, 9)


@st.composite
def _shaped(draw: st.DrawFn) -> list[bytes]:
    """Lines of a few shapes: keys in some order and with some space between them, the values of each line its own."""
    lines = []
    for _ in range(draw(_FEW[3])):
        keys = draw(_ORDERS[draw(_FIRST)])[: draw(_KEPT)]
        inner = draw(_INNER)[:3]
        spacing, many = draw(_SPACING), draw(_MANY)
        for number in range(draw(_FEW[4])):
            values = {"turn": number, **draw(_VALUES)}
            if values["resources"] == "held":
                values["resources"] = {name: draw(_HELD) for name in inner}
            made = {key: values.get(key, number) for key in keys} | {f"more {n}": n for n in range(many)}
            text = json.dumps(made, ensure_ascii=False, separators=spacing)
            inside = text.replace("{", "{ ").replace("}", " }")
            lines.append({"plain": text, "around": f" {text}\r", "inside": inside}[draw(_WRITTEN)])
    return [line.encode() for line in lines]


@compiled
@settings(max_examples=250, deadline=None)
@given(_shaped(), st.lists(st.tuples(st.integers(0, 12), st.integers(0, 120)), max_size=2), st.randoms())
def test_what_the_line_before_looked_like_decides_nothing(
    lines: list[bytes], cuts: list[tuple[int, int]], random: Random
) -> None:
    """Keys in the same order or another, more or less space, a line in two: each is read as if it stood alone."""
    for at, place in cuts:  # a newline is none of an event's white space
        whole = lines[at % len(lines)]
        lines[at % len(lines)] = whole[:place] + b"\n" + whole[place:]
    random.shuffle(lines)
    data = b"\n".join(lines)
    assert by_either(data, Rules()) == by_rules(data, Rules())


_NEAR, _FAR = st.integers(-3, 5), st.integers(-600, 600)
_ENDS = st.sampled_from([-(2**31), 1 - 2**31, 0, 2**31 - 1, 2**31])
_SMALL = st.one_of(st.none(), st.integers(-9, 9), st.floats(-1e6, 1e6), st.sampled_from([-0.0, 2**52 - 1, 5e-324]))
_DECISIONS = st.sampled_from(["join", "steal", "wait", None])


def _counted(turns: st.SearchStrategy[int], amounts: st.SearchStrategy[Any]) -> st.SearchStrategy[list[Any]]:
    return st.lists(st.tuples(turns, st.sampled_from("abc"), _DECISIONS, amounts), max_size=60)


@compiled
@settings(max_examples=400, deadline=None)
@given(
    st.one_of(
        _counted(_NEAR, _SMALL),
        _counted(_FAR, _SMALL),
        _counted(_ENDS, _SMALL),
        _counted(_NEAR, _SMALL | st.just(2**52)),
    ),
    st.sampled_from([False, False, True]),
)
def test_what_compiled_code_counts_is_what_rows_give(
    log: list[tuple[int, str, str | None, Any]], going_back: bool
) -> None:
    """Waits, recoveries, drops of any digits, turns on either side of zero and at the ends of what is counted there."""
    made = [
        {"turn": turn, "agent": agent, "decision": decision, "resources": {} if amount is None else {"stone": amount}}
        for turn, agent, decision, amount in (log if going_back else sorted(log, key=lambda row: row[0]))
    ]
    assert by_either(as_jsonl(made), Rules()) == by_rules(as_jsonl(made), Rules())


@compiled
@pytest.mark.parametrize("back", [0, 9])
def test_what_is_usual_is_counted_by_compiled_code(monkeypatch: pytest.MonkeyPatch, back: int) -> None:
    """Amounts of any digits, turns that do not go back and turns that do: no row is counted in Python."""

    def refuse(*_: Any) -> Any:
        raise AssertionError("a chunk that compiled code can count was left to Python")

    monkeypatch.setattr(columns, "count_in_python", refuse)
    log = [
        {"turn": n // 3 - 20 - n % 2 * back, "agent": str(n % 3), "resources": {"stone": (n * 7919 % 113) / 10}}
        for n in range(900)
    ]
    state, _ = chunk_state(Batch("x", 1, as_jsonl(log)), Rules())
    assert (state.rows, state.ordered, state.total_turns) == (900, not back, len({row["turn"] for row in log}))


@compiled
@pytest.mark.parametrize("blocks", [MOST_BLOCKS, MOST_BLOCKS + 1])
def test_a_chunk_of_too_many_turns_does_not_know_them(blocks: int) -> None:
    """As many blocks as a set may have are kept; with one more it is full, as in Python."""
    log = as_jsonl([{"turn": n << 8, "agent": "a"} for n in range(blocks)])
    state, _ = chunk_state(Batch("x", 1, log), Rules())
    assert state.to_wire() == by_rules(log, Rules())[0]
    assert (state.turns.full, len(state.turns.blocks)) == (blocks > MOST_BLOCKS, blocks % (MOST_BLOCKS + 1))


def test_the_fields_of_an_agent_are_in_the_order_in_which_they_are_counted() -> None:
    """counts.h gives them by place."""
    assert AgentState.__struct_fields__ == (
        *("rows", "ordered", "first_turn", "last_turn", "first_value", "last_value", "drops", "contributed"),
        *("opening", "pending", "betrayed", "recoveries", "recovery_turns", "repeats", "repeated_turn"),
    )
    assert (COOPERATIVE, BETRAYAL) == (1, 2)


@compiled
def test_columns_that_do_not_fit_together_are_refused() -> None:
    """What is no column of read_log is an error, and nothing is read outside of it."""
    native = compiled_log()
    assert native is not None
    *packed, names, words, _, _, _ = native.read_log(b"\n".join([row(decision="join")] * 3), b"stone")
    with pytest.raises(ValueError, match="different lengths"):
        native.count_log(packed[0][8:], *packed[1:], bytes(len(words) + 1), len(names))
    with pytest.raises(ValueError, match="different lengths"):
        native.count_log(*packed, b"", len(names))
    assert native.count_log(*packed, bytes(1), len(names)) is None
    assert native.count_log(*packed, bytes(len(words) + 1), 0) is None
