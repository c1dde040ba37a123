"""The conformance suite can fail: each broken promise is caught, by the property that states it."""

from __future__ import annotations

import contextlib
import json
import random
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from evalq.evalcore.conformance import PROPERTIES, ConformanceError, Violation, check, conformance
from evalq.evalcore.conformance.properties import watched
from evalq.evalcore.conformance.subject import SampleInput, garbled
from evalq.evalcore.contract.evaluator import Batch, InputResult, Outcome, Records, Tally
from evalq.evalcore.errors import ConfigError, InputError
from tests.contract import specimens
from tests.contract.specimens import Row, Summing, SumParams


@pytest.fixture
def examples(tmp_path: Path) -> list[Path]:
    """One file of values that no two ways of rounding agree on."""
    rng = random.Random(7)
    rows = [{"id": f"r{n}", "value": rng.uniform(-1, 1) * 10 ** rng.randint(-9, 9)} for n in range(40)]
    path = tmp_path / "values.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows) + "\n" + '{"id": "last", "value": 0.1}')
    return [path]


def test_a_correct_evaluator_passes(examples: list[Path]) -> None:
    """Nothing is found where nothing is wrong, with any params and seed."""
    for seed in range(3):
        assert conformance(Summing(), examples, params=({}, {"shift": 0.1}), seed=seed) == []
    check(Summing(), examples)


def test_a_correct_csv_evaluator_passes(tmp_path: Path) -> None:
    """Rows are mutated and cut like lines, embedded newlines and a byte-order mark included."""
    path = tmp_path / "rows.csv"
    path.write_bytes(b'\xef\xbb\xbfid,value\r\na,1\r\n"b\nb",2.5\r\n"c ""c""","3"\r\nd,x\r\n\r\ne,4')
    assert conformance(SummingCsv(), [path], rounds=20) == []


class SummingCsv(Summing):
    """The same sums of CSV rows."""

    records = Records("csv", ("id", "value"))

    def evaluate(self, batch: Batch, params: SumParams) -> Outcome[Any]:
        """Sum one chunk."""
        tally = Tally()
        kept: list[tuple[int, Row | None]] = []

        def fault(line: int, reason: str) -> None:
            tally.listed.add(line, reason)
            kept.append((line, None))

        for line, (name, text) in batch.rows(fault):
            kept.append((line, self.read(json.dumps({"id": name, "value": _number(text)}).encode(), line, tally)))
        values = [row.value for _, row in kept if row]
        tally.scored, tally.errors = len(values), len(kept) - len(values)
        lines = [self.line(f"{batch.source}:{line}", row) for line, row in sorted(kept, key=lambda pair: pair[0])]
        return Outcome(self.add_up(values), tally, lines)


def _number(text: str) -> float | str:
    try:
        return float(text)
    except ValueError:
        return text


@pytest.mark.parametrize(
    ("wrong", "caught_by"),
    [
        (specimens.NaiveFloats, {"chunking", "associativity"}),
        (specimens.SeesChunks, {"chunking"}),
        (specimens.AveragesAverages, {"associativity", "chunking"}),
        (specimens.CountsMerges, {"neutral", "empty", "chunking"}),
        (specimens.LosesOnTheWire, {"wire"}),
        (specimens.RaisesOnGarbage, {"garbage"}),
        (specimens.ReadsClock, {"purity"}),
        (specimens.ReadsDate, {"purity"}),
        (specimens.ReadsEnvironment, {"purity"}),
        (specimens.DrawsLots, {"purity"}),
        (specimens.Remembers, {"determinism", "chunking", "empty"}),
        (specimens.ReusesState, {"determinism"}),
        (specimens.CountsEmptyChunks, {"empty"}),
        (specimens.SaysNaN, {"results"}),
        (specimens.SaysTuples, {"results"}),
        (specimens.LacksStatus, {"lines"}),
        (specimens.MeasuresBeyondItsScale, {"measures"}),
        (specimens.NamesLate, {"paths"}),
        (specimens.DrawsBeyondItsRange, {"page"}),
        (specimens.FailsWithoutAReason, {"page"}),
        (specimens.TellsTwoStories, {"markdown"}),
        (specimens.ShowsWhatIsNotThere, {"declarations"}),
        (specimens.BuriesTheDead, {"dead"}),
        (specimens.FollowsRecords, {"follows"}),
    ],
)
def test_each_broken_promise_is_caught_by_its_property(
    wrong: type[Summing], caught_by: set[str], examples: list[Path]
) -> None:
    """Exactly the properties that the fault touches find it, garbage (which holds some of them again) apart."""
    found = {violation.property for violation in conformance(wrong(), examples)}
    assert found - {"garbage"} == caught_by - {"garbage"}
    assert caught_by <= found


@pytest.mark.parametrize("name", list(PROPERTIES))
def test_every_property_is_proved_able_to_fail(name: str) -> None:
    """No property is in the suite that no specimen breaks."""
    marks = [mark for mark in test_each_broken_promise_is_caught_by_its_property.pytestmark if mark.args]  # type: ignore[attr-defined]  # pytest puts it there
    assert any(name in caught for mark in marks for _, caught in mark.args[1])


class WrongPlace(Summing):
    """Numbers records by their place in the chunk."""

    def line(self, record: str, row: Row | None) -> bytes:
        """The record line, of another source."""
        return super().line(f"elsewhere:{record.rpartition(':')[2]}", row)


class Miscounts(Summing):
    """Counts a broken record, and writes no line for it."""

    def evaluate(self, batch: Batch, params: SumParams) -> Outcome[Any]:
        """Sum one chunk."""
        outcome = super().evaluate(batch, params)
        outcome.lines = outcome.lines[:1]
        return outcome


class Backwards(Summing):
    """Writes the record lines from last to first."""

    def evaluate(self, batch: Batch, params: SumParams) -> Outcome[Any]:
        """Sum one chunk."""
        outcome = super().evaluate(batch, params)
        outcome.lines.reverse()
        return outcome


class NewlineInLine(Summing):
    """Writes a record line over two lines."""

    def line(self, record: str, row: Row | None) -> bytes:
        """The record line, on two lines."""
        return super().line(record, row).replace(b",", b",\n", 1)


class NoObjects(Summing):
    """Writes record lines that are no objects."""

    def line(self, record: str, row: Row | None) -> bytes:
        """An array."""
        return b"[]"


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        (WrongPlace, "'record' is not"),
        (Miscounts, "counts 41 records and has 1 record lines"),
        (Backwards, "comes after"),
        (NewlineInLine, "holds a newline"),
        (NoObjects, "Expected `object`"),
    ],
)
def test_wrong_record_lines_are_distinguished(wrong: type[Summing], said: str, examples: list[Path]) -> None:
    """The property `lines` says what about a record line is wrong."""
    details = [v.detail for v in conformance(wrong(), examples) if v.property == "lines"]
    assert any(said in detail for detail in details), details


class RaisesInSection(Summing):
    """Divides by the number of broken records."""

    def section(self, results: Sequence[InputResult[Any]], params: SumParams) -> dict[str, Any]:
        """A mean that not every input has."""
        return {"mean": 1 / sum(result.tally.errors == 0 for result in results)}


def test_an_exception_in_the_report_of_broken_records_is_garbage(examples: list[Path]) -> None:
    """Not only evaluate() but also the report must stand whatever the records hold; the record is shown."""
    found = conformance(RaisesInSection(), examples)
    assert {violation.property for violation in found} == {"garbage"}
    assert all("ZeroDivisionError" in violation.detail for violation in found)


@pytest.mark.parametrize("error", [LookupError, ConfigError], ids=["its own", "one of evalq's"])
def test_an_evaluator_that_always_raises_breaks_every_property(error: type[Exception], examples: list[Path]) -> None:
    """An exception is a violation that says what was raised and where, and does not stop the suite."""

    class Broken(Summing):
        def evaluate(self, batch: Batch, params: SumParams) -> Outcome[Any]:
            raise error("nothing works")

    found = conformance(Broken(), examples)
    assert {violation.property for violation in found} == set(PROPERTIES)
    said = f"{error.__name__}: nothing works (in {Path(__file__).name}:"
    assert all(said in violation.detail for violation in found)


def test_violations_are_reported_with_what_repeats_them(examples: list[Path]) -> None:
    """The assertion names property, example, params and seed, and the same seed finds the same again."""
    arguments: dict[str, Any] = {"params": ({"shift": 0.5},), "seed": 11}
    with pytest.raises(ConformanceError) as caught:
        check(specimens.NaiveFloats(), examples, **arguments)
    assert "chunking on values.jsonl (params {'shift': 0.5}, seed 11): cut at records [0" in str(caught.value)
    assert list(caught.value.violations) == conformance(specimens.NaiveFloats(), examples, **arguments)
    assert isinstance(caught.value.violations[0], Violation)
    assert caught.value.violations[0].params == {"shift": 0.5}


def test_a_suite_over_nothing_proves_nothing(tmp_path: Path) -> None:
    """Without a record, with an example that can't be cut, or with wrong params there is no passing."""
    nothing = tmp_path / "nothing.jsonl"
    nothing.write_bytes(b"")
    for files in ([], [nothing]):
        with pytest.raises(ValueError, match="have no record"):
            conformance(Summing(), files)
    broken = tmp_path / "broken.csv"
    broken.write_bytes(b'id,value\n"a,1\n')
    with pytest.raises(InputError, match="never closed"):
        conformance(SummingCsv(), [broken])
    nothing.write_bytes(b"{}\n")
    with pytest.raises(ConfigError, match="shft: unknown key"):
        conformance(Summing(), [nothing], params=({"shft": 1},))


def test_the_watch_is_lifted_whatever_happens() -> None:
    """After watching, calls are no longer looked at, and the profiler set before is back."""
    before = sys.getprofile()
    with contextlib.suppress(KeyError), watched() as seen:
        random.Random(1).random()
        raise KeyError
    assert sys.getprofile() is before
    random.random()
    assert seen == set()


def test_the_mutator_is_repeatable_and_does_break_records(examples: list[Path]) -> None:
    """The same seed gives the same broken records, other seeds give others, and most rows stay legal to the cutter."""
    example = SampleInput.of(Summing(), "values.jsonl", examples[0].read_bytes())
    made = [garbled(Summing(), example, random.Random(seed)).data for seed in (1, 1, 2)]
    assert made[0] == made[1] != made[2]
    read = Summing().evaluate(garbled(Summing(), example, random.Random(3)).whole(), SumParams())
    assert read.tally.errors > 3
    assert read.tally.scored > 3
