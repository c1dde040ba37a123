"""Compiled code gives what Python gives, byte for byte: states, tallies, faults with their lines, and record lines."""

from __future__ import annotations

import io
import random
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from evalq.evalcore.contract.evaluator import Batch
from evalq.evalcore.contract.partial import encode
from evalq.evalcore.evaluators.planagent import PlanParams
from evalq.evalcore.evaluators.planagent import compiled as compiled_rows
from evalq.evalcore.evaluators.planagent.chunk import ChunkScores, RowText, score_rows
from evalq.evalcore.evaluators.planagent.record import READ
from evalq.evalcore.evaluators.planagent.sample import write_rows
from evalq.evalcore.native import compiled
from tests.portions import some
from tests.unit.planagent.helpers import COLUMNS, TWO_CHECKS, Row, answer, row
from tests.unit.planagent.strategies import csv_rows

pytestmark = pytest.mark.skipif(compiled() is None, reason="nothing is compiled here: there is one way only")
PARAMS = PlanParams()


def same(data: bytes, columns: Sequence[str] = COLUMNS, first_line: int = 2, params: PlanParams = PARAMS) -> None:
    """Both ways give one answer to ``data``."""
    batch = Batch("plan.csv", first_line, data, tuple(columns))
    ours, reference = compiled_rows.evaluate_batch(batch, params), score_rows(batch, params)
    assert ours.lines == reference.lines
    assert ours.state.to_wire() == reference.state.to_wire()
    assert encode(ours) == encode(reference)


def left_to_python(data: bytes, columns: Sequence[str] = COLUMNS) -> int | None:
    """How many rows compiled code leaves to Python; None: the whole of ``data``."""
    native, batch = compiled(), Batch("plan.csv", 2, data, tuple(columns))
    assert native is not None
    chunk = _Counting(batch, PARAMS)
    return chunk.left if compiled_rows.add_rows(native, chunk, batch) else None


class _Counting(ChunkScores):
    left = 0

    def add(self, line: int, row: RowText) -> None:
        """Count it."""
        self.left += 1


def one(**given: Any) -> bytes:
    """One row, every field in quotes."""
    return written([row(**given)])


def written(rows: Sequence[Row], newline: str = "\n", columns: Sequence[str] = COLUMNS) -> bytes:
    """The rows as a CSV without a header, every field in quotes."""
    lines = [",".join('"' + line[name].replace('"', '""') + '"' for name in columns) for line in rows]
    return "".join(line + newline for line in lines).encode("utf-8", "surrogatepass")


# Strategies are made once: where each example makes its own, that takes as long as what is tested.
_ORDERS = st.permutations([*COLUMNS, 'more, and "more"', "응답"])
_ROWS = st.lists(csv_rows, max_size=6)
_ENDS = st.sampled_from(["\n", "\n", "\r\n", "\n\n", "\r\n\r\n"])
_FILLS = st.sampled_from(["", "a\r\nb", 'x"y', ",", "\r", "\x00", "가"])
_EITHER = st.booleans()


@st.composite
def dialects(draw: st.DrawFn) -> tuple[bytes, tuple[str, ...]]:
    """Rows as some program may write them: columns in any order and more of them, quotes where needed or everywhere,
    either newline, blank lines, and a last row without its newline.
    """
    columns = draw(_ORDERS)
    out = io.StringIO()
    for line in draw(_ROWS):
        end, everywhere = draw(_ENDS), draw(_EITHER)
        texts = [line[name] if name in line else draw(_FILLS) for name in columns]
        for at, text in enumerate(texts):
            quoted = everywhere or any(mark in text for mark in '",\r\n')
            out.write(("," if at else "") + ('"' + text.replace('"', '""') + '"' if quoted else text))
        out.write(end)
    text = out.getvalue()
    if draw(_EITHER):
        text = text.rstrip("\r\n")
    return text.encode(), tuple(columns)


@settings(max_examples=300)
@given(dialects(), st.integers(1, 1 << 33))
def test_any_dialect(made: tuple[bytes, tuple[str, ...]], first_line: int) -> None:
    """Whatever a legal file looks like."""
    same(*made, first_line)


_PIECES = [
    *(b'"', b'""', b",", b"\n", b"\r", b"\r\n", b"\x00", b"\xff", b"\xed\xa0\x80", b"\xf4\x90\x80\x80", b"\xc0\xaf"),
    *(b"\xef\xbb\xbf", b"\\", b"\\ud83d", b"\\ude00", b"\\u0041", b"[", b"]", b"{", b"}", b":", b" ", b"\xe3\x80\x80"),
    *(b"\xc2\x85", b"1e999", b"-0", b"9" * 400, b"NaN", b"0", b".", b"true", b"formType", b'""uiValue"":', b"[" * 300),
    *(b'""error"":""x"",', b'""error"":{""a"":1},', b'""dataUIList"":[', b"\x1f", b"\x7f"),
]


@settings(max_examples=500)
@given(dialects(), st.lists(st.tuples(st.floats(0, 1), st.integers(0, 6), st.sampled_from(_PIECES)), max_size=5))
def test_any_bytes(made: tuple[bytes, tuple[str, ...]], edits: list[tuple[float, int, bytes]]) -> None:
    """Whatever a file has become: broken quoting, broken text, broken JSON, another number of fields."""
    data, columns = made
    for where, length, piece in edits:
        at = int(where * len(data))
        data = data[:at] + piece + data[at + length :]
    same(data, columns)


@pytest.mark.parametrize("newline", [b"\r\n", b"\r", b"\n", b'"', b'""', b",", b"\x00", b"\xed\x95\x9c"])
def test_every_offset(newline: bytes) -> None:
    """A newline of two bytes, and all else that has a meaning, at each offset of the blocks that are read at once."""
    data = written([row(query="a" * 30, raw=answer("가 나", [{"formType": "SELECT"}])), row(query="b")], "\r\n")
    for at in some(range(len(data) + 1), of=3):  # by three, blocks are met at every offset, too
        same(data[:at] + newline + data[at:])
    for size in some(range(130), of=3):
        same(b"x" * size + data)


@pytest.mark.parametrize("seed", range(6))
def test_sample_rows(seed: int) -> None:
    """The rows that the figures in docs/reference/benchmarks.md are of; and hardly any of them takes the slow way."""
    out = io.StringIO()
    write_rows(out, 400, seed, queries=40, rounds=[f"{n}/1" for n in range(1, 11)])
    head, _, body = out.getvalue().removeprefix("\ufeff").partition("\n")
    same(body.encode(), head.split(","))
    left = left_to_python(body.encode(), head.split(","))
    assert left is not None
    assert left < 40


def test_rows_with_answers_of_their_own_are_read_by_compiled_code() -> None:
    """Whether rows repeat does not matter: each of these is unlike any other, and Python reads none."""
    rng = random.Random(1)
    rows = [
        row(
            query=f"q{i}",
            expected=TWO_CHECKS,
            raw=answer(f"{rng.random()} 네", [{"formType": "SELECT", "x": i}], 0.5 + i),
        )
        for i in range(50)
    ]
    assert left_to_python(written(rows)) == 0
    same(written(rows))


@pytest.mark.parametrize(
    "raw",
    [
        '{"assistantMessage": "\\ud800", "dataUIList": [1]}',
        '{"worker": "\\ud800", "error": {"code": 5}, "dataUIList": [1]}',
        '{"worker": 1e999, "error": {"code": 5}, "dataUIList": [1]}',
        '{"worker": [1' + "0" * 400 + '], "error": [5], "dataUIList": [1]}',
        '{"dataUIList": [{"uiValue": {"formType": "A", "formType": "SELECT"}}]}',
        '{"dataUIList": [{"uiValue": {"form\\u0054ype": "SELECT"}}]}',
        '{"dataUIList": [{"uiValue": {"formType": "\\u0053ELECT"}}]}',
        '{"dataUIList": [{"uiValue": {"": "SELECT", "a": {"": {"": "SELECT"}}}}]}',
        '{"dataUIList": [{"": "SELECT", "uiValue": ["SELECT", {"": "SELECT"}]}, "SELECT", ["SELECT"]]}',
        '{"dataUIList": [{"uiValue": {"x": "\\u0053ELECT"}}]}',
        '{"assistantMessage": "네", "dataUIList": null, "dataUIList": [2]}',
        '{"dataUIList": [], "assistantMessage": " \\u3000\\u00a0\\n"}',
        '{"dataUIList": [], "assistantMessage": "\\u200b"}',
        '{"dataUIList": [{"uiValue": ' + "[" * 250 + "]" * 250 + "}]}",
        '{"dataUIList": [' + '{"uiValue": {"formType": "B"}},' * 70 + "1]}",
        '{"dataUIList": [{"uiValue": {' + ",".join(f'"k{i}": "SELECT"' for i in range(60)) + "}}]}",
        '{"dataUIList": [{"uiValue": {' + ",".join(f'"k{i}": "SELECT"' for i in range(40)) + "}}]}",
        '{"dataUIList": [{"uiValue": {"x": ' + '{"a": ' * 14 + '"SELECT"' + "}" * 14 + "}}]}",
        '{"dataUIList": [{"uiValue": {"' + "k" * 2000 + '": "SELECT"}}]}',
        '{"dataUIList": [{"uiValue": [' + '"SELECT",' * 6000 + "1]}]}",
        '{"dataUIList": [1], "responseTimeSec": 123456789.1234567}',
        '{"dataUIList": [1], "responseTimeSec": 0.000000000000001}',
        '{"dataUIList": [1], "responseTimeSec": 1234567890123456789012}',
        '{"dataUIList": [1], "responseTimeSec": 1e3}',
        '{"dataUIList": [1], "responseTimeSec": -0.0}',
        '{"dataUIList": [1], "responseTimeSec": 00.5}',
        ' \n{"dataUIList": [1]}\r\n ',
        '\ufeff{"dataUIList": [1]}',
        '{"dataUIList": [1]} x',
        '{"dataUIList": [1],}',
        '{"dataUIList": [1,]}',
        '{"dataUIList": [tru]}',
        '{"dataUIList": [01]}',
        '{"dataUIList": [1.]}',
        '{"dataUIList": ["\x1f"]}',
        '{"dataUIList": ["\x7f\\/\\b\\f\\n\\r\\t\\"\\\\"]}',
    ],
)
@pytest.mark.parametrize("expected", [TWO_CHECKS, "no checks"])
def test_json_at_its_borders(raw: str, expected: str) -> None:
    """Answers that one decoder takes and another does not, or in which something is too long, too deep or repeated."""
    same(one(raw=raw, expected=expected))
    same(one(raw=raw, expected=expected, error="null", llm="3"))


@pytest.mark.parametrize("count", [59, 60, 61, 70])
def test_many_checks(count: int) -> None:
    """More checks than a machine word has bits."""
    expected = "\n".join(f'{i}. 해당 항목의 actionType 값이 "{i}"인가' for i in range(count))
    same(one(expected=expected, raw=answer(items=[{"actionType": str(i)} for i in range(0, 59, 3)])))


@pytest.mark.parametrize("width", [4095, 4096, 4097, 5000])
def test_many_columns(width: int) -> None:
    """More columns than compiled code has room for: Python reads them all."""
    columns = (*COLUMNS, *(f"more {n}" for n in range(width - len(COLUMNS))))
    lines = [row(query=query, expected=TWO_CHECKS) | dict.fromkeys(columns[len(COLUMNS) :], "x") for query in "ab"]
    data = written(lines, columns=columns)
    batch = Batch("plan.csv", 2, data, columns)
    ours, reference = compiled_rows.evaluate_batch(batch, PARAMS), score_rows(batch, PARAMS)
    assert encode(ours) == encode(reference)


_ERRORS = ["", "x", "null", "  ", 'say "no", then \\ "seconds":null', "a\x00b", "a" * 700, "\u200b", "오류 12"]


def test_errors_of_any_text() -> None:
    """In the column, in the answer as text or as JSON, together and alone; and none of these rows is left to Python."""
    answers: list[Any] = [None, "", False, 0, [], {}, {"code": 'a"b'}, [None], 1.5, *_ERRORS]
    rows = [
        row(query=f"q{n}", error=text, expected=expected, raw=answer("네", [{"formType": "SELECT"}], error=error))
        for n, (text, error) in enumerate((text, error) for text in _ERRORS for error in answers)
        for expected in (TWO_CHECKS, "no checks")
    ]
    assert left_to_python(written(rows)) == 0
    rows += [row(error=text, expected=TWO_CHECKS, raw=raw, llm="4") for text in _ERRORS for raw in ("", "{", "[]")]
    same(written(rows))


def test_many_errors_of_their_own() -> None:
    """More texts than there was room for at first, each met twice."""
    rows = [row(query=str(n), error=f"failed after {n % 150} s", expected=TWO_CHECKS) for n in range(300)]
    same(written(rows))


def test_queries_of_any_text() -> None:
    """An id that JSON has to escape, that begins with white space of any alphabet, or that repeats."""
    for query in ("", " ", "\u3000x\u2003", 'a"b', "a\\b", "a\x01b", "\x7f", "가\u2028", "x", "x"):
        same(written([row(query=query), row(query=query, round_=f" {query} ")]))


def test_repeats_within_bounds() -> None:
    """Rows of one Query ID beyond what is kept of it are dropped as ever."""
    same(written([row(query="q", raw=answer(seconds=i)) for i in range(1200)]))


def test_other_params() -> None:
    """Bands, patterns and what counts as no error come from the params of the run."""
    params = PlanParams.model_validate(
        {"no_error": ["none"], "speed_bands": [{"seconds": 1.5, "points": 2}], "any_pass_points": 4, "low_score": 4}
    )
    same(written([row(error=text, expected=TWO_CHECKS, llm="2") for text in ("none", "null", "x")]), params=params)


def test_a_module_of_other_sources_is_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    """In a checkout whose C has changed since it was compiled, Python computes."""
    from evalq.evalcore import native

    monkeypatch.setattr(native, "source_digest", lambda: "other")
    assert native.compiled.__wrapped__() is None


def test_arguments_are_checked() -> None:
    """Columns that no row has, and answers of no kind, raise instead of reading beyond anything."""
    native, data = compiled(), one()
    assert native is not None
    parts, places = (b"", b"", b"", list[float]()), tuple(map(COLUMNS.index, READ))

    def read(
        width: Any = 12,
        columns: Any = places,
        limits: Any = (),
        checks: Any = None,
        kind: Any = parts,
        error: Any = print,
    ) -> Any:
        def asked(text: str, line: int) -> Any:
            return checks() if callable(checks) else checks

        calls = (asked, error, lambda number, message, wrong: kind, print, print, print, repr)
        return native.plan_rows(data, 1, width, columns, b"x:", limits, [], {}, *calls)

    read()
    for width, columns in ((0, ()), (12, (0,) * 8), (12, (0,) * 8 + (12,)), (12, (-1,) * 9), (12, ("a",) * 9)):
        with pytest.raises((ValueError, TypeError)):
            read(width, columns)
    for limits in ((1.0,) * 65, ("a",), 5):
        with pytest.raises((ValueError, TypeError)):
            read(limits=limits)
    for checks in (((9, b"x", True),), ((0, b"", True),), ((0, "x", True),), ((0, b"x"),), ("x",), "x", 5):
        with pytest.raises((ValueError, TypeError)):
            read(checks=checks)
    kinds: tuple[Any, ...] = (None, (b"", b"", b""), (b"", b"", "", []), (b"", b"", b"", ()))
    for kind in kinds:
        with pytest.raises((ValueError, TypeError)):
            read(kind=kind)
    with pytest.raises(ZeroDivisionError):
        read(checks=lambda: 1 // 0)
    for raw in (None, "{", ""):  # read to the end, no JSON, and nothing at all
        data = one(expected=TWO_CHECKS, error="x", raw=raw)
        with pytest.raises(ZeroDivisionError):
            read(checks=((0, b"x", True),), error=lambda *_: 1 // 0)
