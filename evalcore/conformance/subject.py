"""What the properties are held against: an example cut into records, and an evaluator's answers to its pieces."""

from __future__ import annotations

import io
import itertools
import json
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from random import Random
from typing import Any, Self

import msgspec

from evalq.evalcore.contract.evaluator import Batch, Evaluator, Outcome, Params, Tally
from evalq.evalcore.contract.partial import Partial, decode, encode
from evalq.evalcore.errors import InputError, NothingEvaluated
from evalq.evalcore.fold.fold import Fold, InputSummary
from evalq.evalcore.model.canonical import Json, digest
from evalq.evalcore.records.cut import Cutter

__all__ = ["Answer", "Example", "Subject", "random_cuts"]

MAX_PIECES = 200
_EXCERPT = 60


class Example(msgspec.Struct, frozen=True):
    """An input as records. ``lines`` are the lines they begin on and, last, the line after them all."""

    name: str
    data: bytes
    columns: tuple[str, ...]
    records: tuple[bytes, ...]
    lines: tuple[int, ...]

    @classmethod
    def of(cls, evaluator: Evaluator[Any, Any], name: str, data: bytes) -> Self:
        """``data`` cut as evalq cuts it for ``evaluator``. Raises InputError when it can't be."""
        cutter = Cutter(io.BytesIO(data), evaluator.records.format, name, evaluator.records.columns, size=1)
        spans = list(cutter.spans())
        records = tuple(data[span.start : span.end] for span in spans)
        return cls(name, data, cutter.columns, records, (*(span.first_line for span in spans), cutter.line))

    def batch(self, first: int, last: int) -> Batch:
        """Records ``first`` up to ``last`` (not included), as a worker would be given them."""
        return Batch(self.name, self.lines[first], b"".join(self.records[first:last]), self.columns)

    def batches(self, cuts: Sequence[int]) -> list[Batch]:
        """One batch between each two of ``cuts``; a repeated cut makes an empty one."""
        return [self.batch(first, last) for first, last in itertools.pairwise(cuts)]

    def whole(self) -> Batch:
        """All records in one batch."""
        return self.batch(0, len(self.records))

    def without(self, at: int) -> Example:
        """An input with blank lines in place of a record, so that those behind it keep their lines."""
        body, victim = b"".join(self.records), b"".join(self.records[at : at + 1])
        start = len(self.data) - len(body) + sum(map(len, self.records[:at]))
        blank = b"\n" * victim.count(b"\n")
        return msgspec.structs.replace(self, data=self.data[:start] + blank + self.data[start + len(victim) :])


class Answer(msgspec.Struct, frozen=True):
    """All that a run gives for its inputs, as bytes: compared, never read."""

    states: list[bytes]
    lines: list[bytes]
    report: bytes

    def differences(self, other: Answer) -> Iterator[str]:
        """What of ``other`` is not as here: one short text for each part that differs."""
        for part in self.__struct_fields__:
            ours, theirs = getattr(self, part), getattr(other, part)
            if ours != theirs:
                yield f"{part} differ: {_first_difference(_joined(ours), _joined(theirs))}"


def _joined(value: bytes | list[bytes]) -> bytes:
    return value if isinstance(value, bytes) else b"\n".join(value)


def _first_difference(ours: bytes, theirs: bytes) -> str:
    shared = min(len(ours), len(theirs))
    at = next((i for i in range(shared) if ours[i] != theirs[i]), shared)
    begin = max(0, at - _EXCERPT // 2)
    shown = [text[begin : begin + _EXCERPT].decode("utf-8", "backslashreplace") for text in (ours, theirs)]
    return f"...{shown[0]!r} became ...{shown[1]!r} (at byte {at})"


class Subject(msgspec.Struct, frozen=True):
    """An evaluator with its params."""

    evaluator: Evaluator[Any, Any]
    params: Params
    _kept: list[tuple[Example, Partial]] = msgspec.field(default_factory=list)
    _told: list[tuple[Example, tuple[dict[str, Json], list[bytes]]]] = msgspec.field(default_factory=list)

    def evaluate(self, batch: Batch) -> Outcome[Any]:
        """The evaluator's own answer to ``batch``."""
        return self.evaluator.evaluate(batch, self.params)

    def compute(self, batch: Batch) -> Partial:
        """The answer to ``batch`` as a worker commits it."""
        return encode(self.evaluate(batch))

    def whole(self, example: Example) -> Partial:
        """The answer to all records in one batch: computed once for the properties that only look at what it gives."""
        if not (self._kept and self._kept[0][0] is example):
            self._kept[:] = [(example, self.compute(example.whole()))]
        return self._kept[0][1]

    def told(self, example: Example) -> tuple[dict[str, Json], list[bytes]]:
        """Report and record lines of all records in one batch: made once, too, for those who only read them."""
        if not (self._told and self._told[0][0] is example):
            self._told[:] = [(example, self.finish([example], [[self.whole(example)]]))]
        return self._told[0][1]

    def outcome(self, part: Partial) -> Outcome[Any]:
        """A fresh copy of what is in ``part``."""
        return decode(part, self.evaluator)

    def merged(self, parts: Sequence[Partial]) -> bytes:
        """State and tally of ``parts``, merged from the left, from nothing: canonical bytes."""
        total = Outcome(self.evaluator.State.zero(), Tally())
        for outcome in map(self.outcome, parts):
            total.state.merge(outcome.state)
            total.tally.merge(outcome.tally)
        return b" ".join((total.state.to_wire(), msgspec.json.encode(total.tally, order="deterministic")))

    def finish(
        self, examples: Sequence[Example], parts: Sequence[Sequence[Partial]]
    ) -> tuple[dict[str, Json], list[bytes]]:
        """The report and the record lines of one run over ``examples``, of which ``parts`` are the chunks' answers.

        Where the data is such that a run ends with an error, the report is that error's message.
        """
        fold = Fold(self.evaluator, self.params, len(examples))
        lines: list[bytes] = []
        for index, chunks in enumerate(parts):
            for outcome in map(self.outcome, chunks):
                fold.add(index, outcome)
                lines.extend(outcome.lines)
        inputs = [InputSummary(example.name, example.name, digest(example.data)) for example in examples]
        with tempfile.TemporaryDirectory(prefix="evalq-") as scratch:
            try:
                report, closing = fold.finish(inputs, lambda index: io.BytesIO(examples[index].data), Path(scratch))
            except (InputError, NothingEvaluated) as error:
                report, closing = {"error": str(error)}, []
        return report, lines + closing

    def answer(self, examples: Sequence[Example], parts: Sequence[Sequence[Partial]]) -> Answer:
        """What a run over ``examples`` gives when its chunks were answered by ``parts``."""
        states = [self.merged(chunks) for chunks in parts]
        report, lines = self.finish(examples, parts)
        # Lenient, since whether the report is plain JSON is a property of its own.
        text = json.dumps(report, sort_keys=True, default=repr)
        return Answer(states, lines, text.encode())


def random_cuts(rng: Random, count: int) -> list[int]:
    """Boundaries between ``count`` records, from 0 to ``count``: few, many, or (at most MAX_PIECES) all of them."""
    most = min(count - 1, MAX_PIECES)
    if most < 1:
        return [0, count]
    wanted = rng.choice([1, min(2, most), rng.randint(1, most), most])
    return [0, *sorted(rng.sample(range(1, count), wanted)), count]
