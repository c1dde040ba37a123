"""A small evaluator that keeps the contract, and relatives of it that each break one promise."""

from __future__ import annotations

import itertools
import math
import os
import random
from collections.abc import Sequence
from datetime import datetime
from time import time as now
from typing import Any, ClassVar

import msgspec

from evalq.evalcore.contract.evaluator import (
    Batch,
    Evaluator,
    InputResult,
    Measure,
    Measures,
    Observation,
    Outcome,
    Params,
    State,
    Tally,
    Views,
    WholeInput,
)
from evalq.evalcore.model.canonical import Json
from evalq.evalcore.statistics.exact import ExactSum
from evalq.evalcore.views.charts import Chart, Mark, Rows
from evalq.evalcore.views.charts import Row as PageRow
from evalq.evalcore.views.metrics import Panel, Plot


class SumParams(Params):
    """``shift`` is added to each value."""

    shift: float = 0.0
    strict: bool = False


class SumState(State):
    """How many values there were, and their sum."""

    count: int = 0
    total: ExactSum = msgspec.field(default_factory=ExactSum)

    def merge(self, later: SumState) -> None:
        """Add ``later``."""
        self.count += later.count
        self.total.merge(later.total)


class Row(msgspec.Struct):
    """A line of the examples."""

    id: str
    value: float


class Summing(Evaluator[SumParams, Any]):
    """Sums the values of JSON lines; keeps the contract."""

    name = "summing"
    version = "1"
    summary = "Sums values."
    Params = SumParams
    State: type[Any] = SumState

    def evaluate(self, batch: Batch, params: SumParams) -> Outcome[Any]:
        """Sum one chunk."""
        tally, lines, values = Tally(), [], []
        for line, data in batch.lines():
            row = self.read(data, line, tally)
            if row is None:
                tally.errors += 1
            else:
                tally.scored += 1
                values.append(row.value + params.shift)
            lines.append(self.line(f"{batch.source}:{line}", row))
        return Outcome(self.add_up(values), tally, lines)

    def read(self, data: bytes, line: int, tally: Tally) -> Row | None:
        """The row of a line, None for a broken one."""
        try:
            row = msgspec.json.decode(data, type=Row)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            tally.listed.add(line, "no row")
            return None
        return row if abs(row.value) < 1e100 else None

    def line(self, record: str, row: Row | None) -> bytes:
        """The record line."""
        return msgspec.json.encode({"record": record, "id": row and row.id, "status": "ERROR" if row is None else "OK"})

    def add_up(self, values: list[float]) -> Any:
        """The state of a chunk."""
        return SumState(len(values), ExactSum.of(values))

    def section(self, results: Sequence[InputResult[Any]], params: SumParams) -> dict[str, Json]:
        """Count and sum of each input."""
        return {result.name: {"count": result.state.count, "sum": result.state.total.value()} for result in results}


class FloatState(State):
    """A sum that rounds as it goes."""

    count: int = 0
    total: float = 0.0

    def merge(self, later: FloatState) -> None:
        """Add ``later``, rounding."""
        self.count += later.count
        self.total += later.total


class NaiveFloats(Summing):
    """Sums floats as they come, so the sum depends on the cuts."""

    State = FloatState

    def add_up(self, values: list[float]) -> FloatState:
        """The rounded sum."""
        return FloatState(len(values), sum(values))

    def section(self, results: Sequence[InputResult[FloatState]], params: SumParams) -> dict[str, Json]:
        """Count and sum of each input."""
        return {result.name: {"count": result.state.count, "sum": result.state.total} for result in results}


class SeesChunks(Summing):
    """Says in each record line how large its chunk was."""

    def evaluate(self, batch: Batch, params: SumParams) -> Outcome[Any]:
        """Sum one chunk, and tell its size."""
        outcome = super().evaluate(batch, params)
        outcome.lines = [line[:-1] + b',"of":%d}' % len(outcome.lines) for line in outcome.lines]
        return outcome


class LatestState(SumState):
    """A state whose sum is averaged when merged, weighing both sides the same."""

    def merge(self, later: SumState) -> None:
        """Average the two sides."""
        if later.count and self.count:
            self.total = ExactSum.of([(self.total.value() + later.total.value()) / 2])
        elif later.count:
            self.total = later.total
        self.count += later.count


class AveragesAverages(Summing):
    """Merges by averaging: not associative."""

    State = LatestState

    def add_up(self, values: list[float]) -> LatestState:
        """The mean of the chunk."""
        return LatestState(len(values), ExactSum.of([math.fsum(values) / len(values)] if values else []))


class CountingState(SumState):
    """Counts how often it was merged into."""

    merges: int = 0

    def merge(self, later: SumState) -> None:
        """Add ``later`` and one."""
        super().merge(later)
        self.merges += 1 + (later.merges if isinstance(later, CountingState) else 0)


class CountsMerges(Summing):
    """Merging the empty state leaves a trace; bracketing does not matter."""

    State = CountingState

    def add_up(self, values: list[float]) -> CountingState:
        """The state of a chunk."""
        return CountingState(len(values), ExactSum.of(values))


class ForgetfulState(SumState):
    """Drops the sum on its way to the wire."""

    def to_wire(self) -> bytes:
        """Only the count."""
        return msgspec.json.encode({"count": self.count})


class LosesOnTheWire(Summing):
    """What comes back from the wire is less than what went out."""

    State = ForgetfulState

    def add_up(self, values: list[float]) -> ForgetfulState:
        """The state of a chunk."""
        return ForgetfulState(len(values), ExactSum.of(values))


class RaisesOnGarbage(Summing):
    """Trusts its input."""

    def read(self, data: bytes, line: int, tally: Tally) -> Row | None:
        """The row of a line, or an exception."""
        return msgspec.json.decode(data, type=Row)


class ReadsClock(Summing):
    """Looks at a clock under another name, and doesn't even use what it saw."""

    def add_up(self, values: list[float]) -> Any:
        """Sum and look."""
        now()
        return super().add_up(values)


class ReadsDate(Summing):
    """Looks at the date."""

    def add_up(self, values: list[float]) -> Any:
        """Sum and look."""
        datetime.now()
        return super().add_up(values)


class ReadsEnvironment(Summing):
    """Looks at an environment variable."""

    def add_up(self, values: list[float]) -> Any:
        """Sum and look."""
        os.environ.get("SUMMING_SHIFT")
        return super().add_up(values)


class DrawsLots(Summing):
    """Draws from the shared random source."""

    def add_up(self, values: list[float]) -> Any:
        """Sum in a random order, which an exact sum does not show."""
        random.shuffle(values)
        return super().add_up(values)


class Remembers(Summing):
    """Numbers its record lines through all calls."""

    seen: ClassVar[list[str]] = []

    def line(self, record: str, row: Row | None) -> bytes:
        """The record line, numbered."""
        self.seen.append(record)
        return super().line(f"{record}", row)[:-1] + b',"nth":%d}' % len(self.seen)


class ReusesState(Summing):
    """Gives out one state object again and again."""

    kept: ClassVar[SumState] = SumState()

    def add_up(self, values: list[float]) -> Any:
        """The state of the chunk, in the one object."""
        self.kept.count = len(values)
        self.kept.total = ExactSum.of(values)
        return self.kept


class CountsEmptyChunks(Summing):
    """Counts one record where there is none."""

    def evaluate(self, batch: Batch, params: SumParams) -> Outcome[Any]:
        """Sum one chunk."""
        outcome = super().evaluate(batch, params)
        if not batch.data:
            outcome.tally.listed.add(batch.first_line, "an empty chunk")
        return outcome


class SaysNaN(Summing):
    """Reports a number JSON has no word for."""

    def section(self, results: Sequence[InputResult[Any]], params: SumParams) -> dict[str, Json]:
        """Not a number."""
        return {"mean": math.nan}


class SaysTuples(Summing):
    """Reports what JSON would turn into something else."""

    def section(self, results: Sequence[InputResult[Any]], params: SumParams) -> dict[str, Json]:
        """A tuple."""
        return {"names": tuple(result.name for result in results)}


class LacksStatus(Summing):
    """Writes record lines without a status."""

    def line(self, record: str, row: Row | None) -> bytes:
        """Too short a record line."""
        return msgspec.json.encode({"record": record, "id": ""})


class MeasuresBeyondItsScale(Summing):
    """Gives a score of two where one is the most."""

    measures = Measures((Measure("mean", "score"),), lambda line: Observation(str(line["id"]), (2.0,)))


class NamesLate(Summing):
    """Has a number in its results with some records only, and does not say so."""

    def section(self, results: Sequence[InputResult[Any]], params: SumParams) -> dict[str, Json]:
        """None without records."""
        records = sum(result.tally.scored for result in results)
        return {"always": records} | ({"late": records} if records else {})


class DrawsBeyondItsRange(Summing):
    """Draws a share of two."""

    views = Views(
        charts=(Chart("Share", "Of all.", "bars", "share", lambda report: [Mark("all", 2.0)], "Part", (0.0, 1.0)),)
    )


class FailsWithoutAReason(Summing):
    """Calls every record failed, and does not say why."""

    views = Views(
        rows=Rows((), dict[str, Any], lambda report: lambda line: PageRow(line["record"], "", "failed", "bad"))
    )


class TellsTwoStories(Summing):
    """Its Markdown says how often it was asked."""

    asked = itertools.count(1)
    views = Views(markdown=lambda report, options: f"told {next(TellsTwoStories.asked)} times")


class ShowsWhatIsNotThere(Summing):
    """Declares a panel for a metric that it does not declare."""

    views = Views(panels=(Panel("Sum", "The sum of the values.", "number", "stat", (Plot("evalq_summing_total"),)),))


class BuriesTheDead(Summing):
    """Says nothing of a record that killed its process."""

    whole = WholeInput(dead=lambda record, params, reason: Outcome(SumState(), Tally()))


class FollowsRecords(Summing):
    """Says that its inputs can be followed, and has a line for every record."""

    whole = WholeInput(follows=True)
