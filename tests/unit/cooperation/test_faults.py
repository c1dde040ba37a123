"""Lines that are no events: each is named with its reason, none crashes, and neighbours do not matter."""

from __future__ import annotations

import json
import time
from typing import Any

import msgspec
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from evalq.evalcore.errors import InputError
from evalq.evalcore.evaluators.cooperation import evaluator, reading
from evalq.evalcore.evaluators.cooperation.columns import Faulty
from evalq.evalcore.evaluators.cooperation.reading import MAX_DEPTH, BadLine, Event, parse_line, read_line
from evalq.evalcore.records.batch import Batch
from tests.unit.cooperation.logs import entry, report_bytes, run

GOOD = b'{"turn": 1, "agent": "a", "resources": {"stone": 2}}\n'


def row(**over: Any) -> bytes:
    """A good row with other values for some keys; a value of ... leaves the key out."""
    fields = {"turn": 1, "agent": "a", "decision": "join", "resources": {"stone": 2}} | over
    return json.dumps({key: value for key, value in fields.items() if value is not ...}).encode()


def read(batch: Batch) -> tuple[list[Event], Faulty]:
    """The events of a chunk, and (line, reason) of every line that is none."""
    events, faults = list[Event](), Faulty()
    for line, data in batch.lines():
        try:
            events.append(read_line(data))
        except BadLine as error:
            faults.append((line, str(error)))
    return events, faults


def one(line: bytes) -> Event:
    """The event of a line."""
    (event,), faults = read(Batch("x", 1, line))
    assert not faults
    return event


def deep(levels: int) -> bytes:
    """A good row that is nested so many levels deep."""
    return row(more=...)[:-1] + b', "more": ' + b"[" * (levels - 1) + b"]" * (levels - 1) + b"}"


BAD = [
    (b"{", "bad JSON: Expecting property name enclosed in double quotes at column 2"),
    (b"nonsense", "bad JSON: Expecting value at column 1"),
    (row() + b" {}", "bad JSON: Extra data at column"),
    (row() + row(), "bad JSON: Extra data at column"),
    (row(message="\x01").replace(b"\\u0001", b"\x01"), "bad JSON: Invalid control character"),
    (b"[1]", "not a JSON object but an array"),
    (b"null", "not a JSON object but null"),
    (b"NaN", "not a JSON object but NaN"),
    (b'"x"', 'not a JSON object but the string "x"'),
    (row(message="é").replace(b"\\u00e9", b"\xe9"), "not UTF-8: byte 0xe9 at column"),
    (row(turn=...), "turn is missing"),
    (row(turn=None), "turn is no integer (of 64 bits) but null"),
    (row(turn=True), "turn is no integer (of 64 bits) but true"),
    (row(turn=2.5), "turn is no integer (of 64 bits) but 2.5"),
    (row(turn="2.5"), 'turn is no integer (of 64 bits) but the string "2.5"'),
    (row(turn="one"), 'turn is no integer (of 64 bits) but the string "one"'),
    (row(turn=""), 'turn is no integer (of 64 bits) but the string ""'),
    (row(turn=[1]), "turn is no integer (of 64 bits) but an array"),
    (row(turn=float("nan")), "turn is no integer (of 64 bits) but NaN"),
    (row(turn=2**63), "turn is no integer (of 64 bits) but 9223372036854775808"),
    (row(turn=10**4000), "turn is no integer (of 64 bits) but 1000"),
    (row(turn="1" * 5000), "turn is no integer (of 64 bits) but the string"),
    (row().replace(b'"turn": 1', b'"turn": 1e400'), "turn is no integer (of 64 bits) but 1e400"),
    (row(agent=...), "agent is missing"),
    (row(agent=None), "agent is no string but null"),
    (row(agent=7), "agent is no string but 7"),
    (row(agent=["a"]), "agent is no string but an array"),
    (row(agent="\ud800"), "agent is no Unicode text"),
    (row(resources={"stone": None}), 'resource "stone" is no finite number but null'),
    (row(resources={"wood": None}), 'resource "wood" is no finite number but null'),
    (row(resources={"돌": None}), 'resource "돌" is no finite number but null'),
    (row(turn=-(2**63) - 1), "turn is no integer (of 64 bits) but -9223372036854775809"),
    (row(resources={"stone": float("nan")}), 'resource "stone" is no finite number but NaN'),
    (row(resources={"stone": float("-inf")}), 'resource "stone" is no finite number but -Infinity'),
    (row(resources={"stone": "NaN"}), 'resource "stone" is no finite number but the string "NaN"'),
    (row(resources={"stone": "inf"}), 'resource "stone" is no finite number but the string "inf"'),
    (row(resources={"stone": "1_000"}), 'resource "stone" is no finite number but the string "1_000"'),
    (row(resources={"stone": "1e400"}), 'resource "stone" is infinite or too large to be summed: 1e400'),
    (row(resources={"stone": 10**400}), 'resource "stone" is infinite or too large to be summed: 1000'),
    (row(resources={"stone": "0" * 5000 + "1" * 400}), 'resource "stone" is infinite or too large to be summed: 000'),
    (row(resources={"stone": 1e291}), 'resource "stone" is infinite or too large to be summed: 1e+291'),
    (row(resources={"stone": -1e291}), 'resource "stone" is infinite or too large to be summed: -1e+291'),
    (row().replace(b"2}", b"1e400}"), 'resource "stone" is infinite or too large to be summed: 1e400'),
    (row(resources={"stone": "1" * 300_000 + "x"}), 'resource "stone" is no finite number but the string "111'),
    (row(resources={"stone": " " * 300_000 + "x"}), 'resource "stone" is no finite number but the string "   '),
    (row(turn="1" * 300_000 + " x"), "turn is no integer (of 64 bits) but the string"),
    (row(resources={"stone": True}), 'resource "stone" is no finite number but true'),
    (row(resources={"stone": {}}), 'resource "stone" is no finite number but an object'),
    (row(resources={"\ud800": "\udfff"}), 'resource "\\ud800" is no finite number but the string "\\udfff"'),
    (deep(MAX_DEPTH + 1), f"nested deeper than {MAX_DEPTH} levels"),
    (deep(100_000), f"nested deeper than {MAX_DEPTH} levels"),
    (b"[" * 100_000, f"nested deeper than {MAX_DEPTH} levels"),
]


@pytest.mark.parametrize(("line", "reason"), BAD)
def test_a_bad_line_is_a_fault_with_its_reason(line: bytes, reason: str) -> None:
    """The reason says what was wrong, and the good lines around it are kept."""
    events, faults = read(Batch("x", 10, GOOD + line + b"\n" + GOOD))
    assert len(events) == 2
    assert [at for at, _ in faults] == [11]
    assert faults[0][1].startswith(reason)
    assert len(faults[0][1]) < 140
    msgspec.json.encode(faults)


@pytest.mark.parametrize(
    "line",
    [
        row(turn="1"),
        row(turn=1.0),
        row(turn="1.0"),
        row(turn=" 1 "),
        row(turn="1e0"),
        row(resources={"stone": "2"}),
        row(resources={"stone": " +2 "}),
        row(resources={"stone": "2."}),
        row(resources={"stone": "0" * 5000 + "2"}),
        row(resources={"stone": ".2e1"}),
        row(message="\ud800 half a pair"),
        row(other=float("nan")),
        row().replace(b'"agent"', b'"other": 1e400, "agent"'),
        row().replace(b'"agent"', b'"other": ' + b"9" * 5000 + b', "agent"'),
        row().replace(b'"turn": 1', b'"turn": null, "turn": 1'),
        row().replace(b'"stone": 2', b'"stone": null, "stone": 2'),
        row() + b"\r",
        b"  " + row() + b"\t ",
        deep(MAX_DEPTH),
        row(other=[[]] * 2000, more="[" * 2000),
    ],
)
def test_an_odd_line_that_is_an_event_is_taken(line: bytes) -> None:
    """Numbers as strings, odd values in keys no rule reads, repeated keys (the last counts), space and brackets."""
    event = one(line)
    assert event.turn == 1
    assert type(event.turn) is int
    assert (event.agent, event.decision) == ("a", "join")
    assert event.resources is not None
    assert int(event.resources["stone"]) == 2


@pytest.mark.parametrize("turn", [-(2**63), 2**63 - 1])
def test_a_turn_may_be_any_integer_of_64_bits(turn: int) -> None:
    """As a number or in a string, the first and the last of them."""
    assert (one(row(turn=turn)).turn, one(row(turn=str(turn))).turn) == (turn, turn)


@pytest.mark.parametrize(("given", "known"), [(True, True), (False, False), (None, None), ("yes", None), (1, None)])
def test_an_odd_line_says_whether_its_run_was_dry(given: Any, known: bool | None) -> None:
    """Where it is true or false; anything else is not known."""
    assert one(row(turn="1.0", dry_run=given)).dry_run is known


def test_lines_as_they_should_be_are_decoded_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only an odd line is read by the rules, which gives the same."""
    lines = [GOOD[:-1], b'{"turn": 2, "agent": "b", "resources": {"stone": -1.5, "wood": "3.25"}}\r']
    by_rules = [parse_line(line) for line in lines]
    monkeypatch.setattr(reading, "parse_line", None)
    assert [plain(read_line(line)) for line in lines] == [plain(event) for event in by_rules]


@pytest.mark.parametrize("resources", [..., None, [], 5, "stone", True])
def test_resources_that_are_no_object_are_no_snapshot(resources: Any) -> None:
    """Missing, null or of another type: the row counts, its stone is not known."""
    assert one(row(resources=resources)).resources is None


@pytest.mark.parametrize("decision", [..., None, 5, ["join"], {}])
def test_a_decision_that_is_no_string_is_neither_kind(decision: Any) -> None:
    """The row stays in the denominator."""
    data = row() + b"\n" + row(decision=decision)
    assert entry(run(data))["cooperation_rate"] == 0.5


@pytest.mark.parametrize("before", [0, 65_000, 70_000, 131_000])
def test_depth_is_counted_over_a_long_line(before: int) -> None:
    """Where in a long line the brackets stand makes no difference, and those in strings do not count."""
    more: Any = [[]] * (before // 4), "]" * 300 + "[" * 300
    open_to = b"[" * (MAX_DEPTH - 2) + b"]" * (MAX_DEPTH - 2)
    fits = row(more=more, last="X").replace(b'"X"', b"[" + open_to + b"]")
    assert one(fits).turn == 1
    assert read(Batch("x", 1, fits.replace(open_to, b"[" + open_to + b"]")))[1][0][1].startswith("nested deeper")


def test_values_that_run_over_lines_are_faults() -> None:
    """One object on two lines and two on one are three bad lines, though they are as many values as lines."""
    data = b'{"turn": 1,\n"agent": "a"}\n{"turn": 1, "agent": "b"}{"turn": 1, "agent": "c"}\n'
    two = b'{"turn": 1, "agent": "b"}{"turn": 1, "agent": "c"}\n'
    for whole in (
        data,
        b'{"turn": 1, "x":\n{"a": 1}, "agent": "a"}\n' + two,
        b'{"turn": 1, "x": {}\n, "agent": "a", "y": {}}\n' + two,
    ):
        events, faults = read(Batch("x", 1, whole))
        assert not events
        assert [line for line, _ in faults] == [1, 2, 3]


TOKENS = [
    "{",
    "}",
    "[",
    "]",
    '"',
    "\\",
    ",",
    ":",
    "1",
    "-",
    "0",
    "e9",
    ".5",
    "true",
    "null",
    "NaN",
    "\\ud800",
    " ",
    "\r",
]
KEYS = ['"turn":', '"turn"', '"agent":"a"', '"resources":', '{"stone":', '"2"', "12345678901234567890", "\x00", "é"]
pieces = st.sampled_from([text.encode("latin-1") for text in TOKENS + KEYS])


@settings(max_examples=400, deadline=None)
@given(
    st.sampled_from([GOOD[:-1], row(turn="7", x=[1, {}]), row()]),
    st.integers(0, 60),
    st.integers(0, 6),
    st.lists(pieces, max_size=4),
)
@example(row(), 60, 0, [b"\n", b"\n"])
def test_a_line_reads_the_same_alone_and_among_others(line: bytes, at: int, cut: int, put: list[bytes]) -> None:
    """Damaged lines: the same event or fault whatever else is in the chunk, and the one that the rules give."""
    line = line[:at] + b"".join(put) + line[at + cut :]
    alone = read(Batch("x", 1, line + b"\n"))
    for before in (GOOD, b"broken\n", b"\n"):
        events, faults = read(Batch("x", 1, before + line + b"\n"))
        assert events[len(events) - len(alone[0]) :] == alone[0]
        assert [reason for number, reason in faults if number > 1] == [reason for _, reason in alone[1]]
    if alone[0] and b"\n" not in line:
        assert plain(parse_line(line)) == plain(alone[0][0])


def plain(event: Event) -> tuple[Any, ...]:
    """An event with its numeric strings as numbers, told from floats."""
    held = event.resources
    return event.turn, event.agent, event.decision, held and {k: repr(float(v)) for k, v in held.items()}, event.dry_run


def by_rules(line: bytes) -> list[Event] | list[tuple[int, str]]:
    """What the rules make of a line: its event, or its fault as a chunk's first line."""
    try:
        return [parse_line(line)]
    except BadLine as error:
        return [(1, str(error))]


@given(st.one_of(st.integers(), st.floats(allow_nan=False, allow_infinity=False)))
@example(1e290)
@example(-1e290)
@example(1.1e290)
@example(-1.1e290)
def test_both_readers_take_a_number_for_the_same(value: float) -> None:
    """In bulk and by the rules, a resource is the same int or float, or the same fault."""
    line = row(resources={"stone": value})
    events, faults = read(Batch("x", 1, line))
    assert repr(events or faults) == repr(by_rules(line))


def test_the_first_twenty_faults_and_their_number_fail_the_run() -> None:
    """By default the whole log is read, and the error lists twenty lines and counts all."""
    data = GOOD + b"".join(b'{"turn": "x"}\n' + GOOD for _ in range(250))
    for chunk_size in (None, 7):
        with pytest.raises(InputError) as caught:
            run(data, chunk_size)
        assert caught.value.total == 250
        text = str(caught.value)
        assert "250 faults in the input" in text
        assert "events.jsonl:2: turn is no integer" in text
        assert "events.jsonl:40: turn" in text
        assert "events.jsonl:42: " not in text
        assert "and 230 more" in text


def test_skipped_lines_are_counted_and_listed_in_the_report() -> None:
    """With skip_bad_lines the rest is evaluated as if the bad lines were not there."""
    data = GOOD + b"x\n" + GOOD + b'{"agent": "a"}\n' + GOOD
    evaluation = run(data, skip_bad_lines=True)
    assert report_bytes(run(data, 1, skip_bad_lines=True)) == report_bytes(evaluation)
    got = entry(evaluation)
    assert got["metadata"].pop("skipped_lines") == 2
    clean = entry(run(GOOD * 3))
    assert clean["metadata"].pop("skipped_lines") == 0
    assert got == clean
    assert evaluation.report["faults"] == [
        {"where": "events.jsonl:2", "reason": "bad JSON: Expecting value at column 1"},
        {"where": "events.jsonl:4", "reason": "turn is missing"},
    ]


def test_a_log_of_bad_lines_only_is_a_broken_record() -> None:
    """Skipping every line leaves a log that is counted as an error, with its line in records.jsonl."""
    evaluation = run(b"x\ny\n", skip_bad_lines=True)
    assert evaluation.report["records"] == {"total": 1, "scored": 0, "unscored": 0, "errors": 1, "dead": 0}
    (line,) = evaluation.records()
    assert line == {
        "record": "events.jsonl:1",
        "id": "events.jsonl",
        "status": "error",
        "reason": "no line of the log is an event",
    }


def test_a_chunk_of_bad_lines_keeps_the_first_hundred_reasons() -> None:
    """The tally of a chunk stays small."""
    tally = evaluator.evaluate(Batch("x", 1, b"x\n" * 5000), evaluator.Params()).tally
    assert (tally.fatal.total, len(tally.fatal.first), tally.fatal.first[-1][0]) == (5000, 100, 100)
    assert tally.total == 0


def test_a_line_that_was_cut_within_a_message_is_reported_at_once() -> None:
    """A message may hold JSON of its own; its quotes and brackets are none of the line's, also where it never ends."""
    began = time.process_time()
    cut = b'{"turn":1,"agent":"a","message":"' + b'{\\"a\\":[1,' * 20_000
    (fault,) = read(Batch("x", 1, cut))[1]
    assert fault[1].startswith("bad JSON: Unterminated string")
    assert read(Batch("x", 1, cut + b'"}'))[1] == []
    assert time.process_time() - began < 1
