"""A chunk read block by block and counted by columns: to the byte what line by line and row by row give."""

from __future__ import annotations

import json
from random import Random
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from evalq.evalcore.evaluators.cooperation import chunk, fast, reading
from evalq.evalcore.evaluators.cooperation.agents import BETRAYAL, COOPERATIVE, AgentState
from evalq.evalcore.evaluators.cooperation.chunk import chunk_state
from evalq.evalcore.evaluators.cooperation.columns import Gatherer
from evalq.evalcore.evaluators.cooperation.counting import count, count_by_rows
from evalq.evalcore.evaluators.cooperation.params import Rules
from evalq.evalcore.evaluators.cooperation.reading import read_columns
from evalq.evalcore.evaluators.cooperation.turns import MOST_BLOCKS
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
    """The state and the faults of a chunk, each line read by itself, each row counted by itself."""
    events, bad = reading._line_by_line(Batch("x", 7, data))
    rows = Gatherer(rules)
    rows.add(events)
    return count_by_rows(rows.columns()).to_wire(), bad


def in_python(data: bytes, rules: Rules) -> tuple[bytes, Any]:
    """The same as a chunk is evaluated where nothing is compiled."""
    columns, bad = read_columns(Batch("x", 7, data), rules)
    return count(columns).to_wire(), bad


def in_c(data: bytes, rules: Rules) -> tuple[bytes, Any]:
    """The same by compiled code and what it leaves."""
    batch = Batch("x", 7, data)
    state, bad = chunk_state(batch, rules)
    columns, faults = fast.read_chunk(batch, rules)
    assert (count(columns).to_wire(), faults) == (state.to_wire(), bad)
    return state.to_wire(), bad


@pytest.mark.parametrize("block", [1, 150, 1 << 18])
@settings(deadline=None, max_examples=120)
@given(
    rows(),
    st.lists(st.tuples(st.integers(0, 40), st.sampled_from(ODD)), max_size=4),
    st.sampled_from(["stone", "돌", '"']),
)
def test_blocks_and_columns_give_what_lines_and_rows_give(
    block: int, log: list[dict[str, Any]], odd: list[tuple[int, bytes]], key: str
) -> None:
    """Whatever the order of turns, the numbers, the odd and broken lines between, and where blocks end."""
    lines = as_jsonl(log).split(b"\n")
    for at, line in odd:
        lines.insert(min(at, len(lines)), line)
    rules = Rules(resource_key=key)
    for data in (b"\n".join(lines), b"\n".join(lines).rstrip(b"\n"), b"\r\n".join(lines)):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(reading, "_BLOCK_BYTES", block)
            expected = by_rules(data, rules)
            assert in_python(data, rules) == expected
            assert in_c(data, rules) == expected


@settings(deadline=None)
@given(
    st.lists(
        st.tuples(st.integers(-40, 40), st.integers(0, 3), st.one_of(st.none(), st.floats(-1e15, 1e15))), min_size=1
    )
)
def test_sums_of_any_floats_are_exact_either_way(log: list[tuple[int, int, float | None]]) -> None:
    """Columns give the exact sum of drops, whatever digits they have."""
    made = [{"turn": turn, "agent": str(who), "resources": {} if v is None else {"stone": v}} for turn, who, v in log]
    data = as_jsonl(made)
    assert in_python(data, Rules()) == in_c(data, Rules()) == by_rules(data, Rules())


def test_one_bad_line_leaves_the_other_blocks_to_the_fast_way(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only the block with the bad line is read line by line, and the line's number is that of the file."""
    lines = [json.dumps({"turn": n, "agent": "a", "resources": {"stone": n}}).encode() for n in range(100)]
    lines[70] = b"no event"
    slow: list[int] = []
    by_line = reading._line_by_line

    def counted(batch: Batch) -> Any:
        slow.append(batch.data.count(b"\n"))
        return by_line(batch)

    monkeypatch.setattr(reading, "_BLOCK_BYTES", 500)
    monkeypatch.setattr(reading, "_line_by_line", counted)
    columns, bad = read_columns(Batch("x", 1, b"\n".join(lines) + b"\n"), Rules())
    assert bad == [(71, "bad JSON: Expecting value at column 1")]
    assert len(columns.turns) == 99
    assert len(slow) == 1
    assert slow[0] < 20


def test_a_resource_that_comes_later_is_learnt(monkeypatch: pytest.MonkeyPatch) -> None:
    """A key that the first lines do not have costs one block another way, not all that follow."""
    early = [row(resources={"stone": 1}) for _ in range(30)]
    late = [row(resources={"stone": 1, "gold": 2}) for _ in range(300)]
    monkeypatch.setattr(reading, "_BLOCK_BYTES", 1000)
    asked: list[int] = []
    read = reading.read

    def counted(batch: Batch) -> Any:
        asked.append(1)
        return read(batch)

    monkeypatch.setattr(reading, "read", counted)
    columns, bad = read_columns(Batch("x", 1, b"\n".join(early + late)), Rules())
    assert (len(columns.turns), bad, len(asked)) == (330, [], 1)


def test_a_state_of_no_rows_is_nothing() -> None:
    """A chunk of bad lines only adds nothing to a log."""
    assert in_python(b"x\n\n", Rules())[0] == msgspec.json.encode(
        count(Gatherer(Rules()).columns()), order="deterministic"
    )
    assert count(Gatherer(Rules()).columns()).rows == 0


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
        assert in_c(line.encode() + rest, Rules()) == by_rules(line.encode() + rest, Rules()), line


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
        assert in_c(data, Rules()) == by_rules(data, Rules())


@compiled
def test_a_log_of_odd_lines_is_left_to_python_as_a_whole() -> None:
    """Where compiled code would hand over most lines it gives up, and the log is read in blocks."""
    native = compiled_log()
    assert native is not None
    odd = b"\n".join([row(turn="5")] * 200)
    assert native.read_log(odd, b"stone") is None
    columns, bad = fast.read_chunk(Batch("x", 1, odd), Rules())
    assert (len(columns.turns), bad) == (200, [])
    assert native.read_log(b"\n".join([row()] * 900 + [row(turn="5")] * 64), b"stone") is not None
    assert in_c(odd, Rules()) == by_rules(odd, Rules())


@compiled
def test_what_is_left_keeps_its_place() -> None:
    """A dry run, an agent and a large amount of a left line count as if they had been read with the others."""
    lines = [
        row(dry_run=False),
        row(turn="2", dry_run=True, resources={"stone": 2**60}).replace(b'"a"', b'"\\u0041"'),
    ]
    for log in (lines, lines[::-1], [b"bad", *lines], [*lines, b"bad", lines[1]]):
        data = b"\n".join(log)
        assert in_c(data, Rules()) == by_rules(data, Rules())


def test_nothing_is_compiled_is_no_hindrance(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a compiler, or with a module of other sources, Python reads the log."""
    from evalq.evalcore import native

    monkeypatch.setattr(native, "source_digest", lambda: "other")
    assert native.compiled_log.__wrapped__() is None
    for module in (fast, chunk):
        monkeypatch.setattr(module, "compiled_log", lambda: None)
    columns, bad = fast.read_chunk(Batch("x", 1, GOOD * 3), Rules())
    assert (columns.turns.tolist(), bad) == ([1, 1, 1], [])
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
    assert in_c(data, Rules()) == by_rules(data, Rules())


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
    assert in_c(as_jsonl(made), Rules()) == by_rules(as_jsonl(made), Rules())


@compiled
def test_what_is_usual_is_counted_without_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    """Turns that do not go back and amounts of any digits: no row is counted in Python."""

    def refuse(*_: Any) -> Any:
        raise AssertionError("a chunk that compiled code can count was left to Python")

    monkeypatch.setattr(chunk, "_by_columns", refuse)
    log = [
        {"turn": n // 3 - 20, "agent": str(n % 3), "resources": {"stone": (n * 7919 % 113) / 10}} for n in range(900)
    ]
    state, _ = chunk_state(Batch("x", 1, as_jsonl(log)), Rules())
    assert (state.rows, state.distinct, len(state.turns.blocks)) == (900, 300, 3)


@compiled
@pytest.mark.parametrize("blocks", [MOST_BLOCKS, MOST_BLOCKS + 1])
def test_a_chunk_of_too_many_turns_does_not_know_them(blocks: int) -> None:
    """As many blocks as a set may have are kept; with one more it is full, as by columns."""
    log = as_jsonl([{"turn": n << 8, "agent": "a"} for n in range(blocks)])
    state, _ = chunk_state(Batch("x", 1, log), Rules())
    assert state.to_wire() == in_python(log, Rules())[0]
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
