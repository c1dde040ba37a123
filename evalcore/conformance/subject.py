"""The material of the properties: an example cut into records, and an evaluator's answers to its pieces."""

from __future__ import annotations

import csv
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
from evalq.evalcore.fold import Fold, InputSummary
from evalq.evalcore.model.canonical import Json, digest
from evalq.evalcore.model.manifest import Format
from evalq.evalcore.records.cut import Cutter, QuoteFault, record_ends

MAX_PIECES = 200
_EXCERPT = 60


class SampleInput(msgspec.Struct, frozen=True):
    """An input as records. ``lines`` are the lines they begin on and, last, the line after them all."""

    name: str
    data: bytes
    columns: tuple[str, ...]
    records: tuple[bytes, ...]
    lines: tuple[int, ...]

    @classmethod
    def of(cls, evaluator: Evaluator[Any, Any], name: str, data: bytes) -> Self:
        """``data`` cut as evalq cuts it for ``evaluator``. Raises InputError if it cannot be cut."""
        cutter = Cutter(io.BytesIO(data), evaluator.records.format, name, evaluator.records.columns, size=1)
        spans = list(cutter.spans())
        records = tuple(data[span.start : span.end] for span in spans)
        return cls(name, data, cutter.columns, records, (*(span.first_line for span in spans), cutter.line))

    def batch(self, first: int, last: int) -> Batch:
        """Records ``first`` up to ``last`` (not included), as a worker gets them."""
        return Batch(self.name, self.lines[first], b"".join(self.records[first:last]), self.columns)

    def batches(self, cuts: Sequence[int]) -> list[Batch]:
        """One batch between each two of ``cuts``; a repeated cut makes an empty one."""
        return [self.batch(first, last) for first, last in itertools.pairwise(cuts)]

    def whole(self) -> Batch:
        """All records in one batch."""
        return self.batch(0, len(self.records))

    def without(self, at: int) -> SampleInput:
        """The input with blank lines in place of a record, so that later records keep their lines."""
        body, victim = b"".join(self.records), b"".join(self.records[at : at + 1])
        start = len(self.data) - len(body) + sum(map(len, self.records[:at]))
        blank = b"\n" * victim.count(b"\n")
        return msgspec.structs.replace(self, data=self.data[:start] + blank + self.data[start + len(victim) :])


class EvaluatedInputs(msgspec.Struct, frozen=True):
    """All results of a run for its inputs, as bytes to compare."""

    states: list[bytes]
    lines: list[bytes]
    report: bytes

    def differences(self, other: EvaluatedInputs) -> Iterator[str]:
        """A short text for each part of ``other`` that differs."""
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
    _partials: list[tuple[SampleInput, Partial]] = msgspec.field(default_factory=list)
    _reports: list[tuple[SampleInput, tuple[dict[str, Json], list[bytes]]]] = msgspec.field(default_factory=list)

    def evaluate(self, batch: Batch) -> Outcome[Any]:
        """The evaluator's own answer to ``batch``."""
        return self.evaluator.evaluate(batch, self.params)

    def compute(self, batch: Batch) -> Partial:
        """The answer to ``batch`` as a worker commits it."""
        return encode(self.evaluate(batch))

    def whole(self, example: SampleInput) -> Partial:
        """The answer to all records in one batch, computed once for all properties that only read it."""
        if not (self._partials and self._partials[0][0] is example):
            self._partials[:] = [(example, self.compute(example.whole()))]
        return self._partials[0][1]

    def report_and_lines(self, example: SampleInput) -> tuple[dict[str, Json], list[bytes]]:
        """Report and record lines of all records in one batch, made once for all properties that only read them."""
        if not (self._reports and self._reports[0][0] is example):
            self._reports[:] = [(example, self.finish([example], [[self.whole(example)]]))]
        return self._reports[0][1]

    def outcome(self, part: Partial) -> Outcome[Any]:
        """A fresh copy of the outcome in ``part``."""
        return decode(part, self.evaluator)

    def merged(self, parts: Sequence[Partial]) -> bytes:
        """State and tally of ``parts``, merged from the left into an empty state: canonical bytes."""
        total = Outcome(self.evaluator.State.zero(), Tally())
        for outcome in map(self.outcome, parts):
            total.state.merge(outcome.state)
            total.tally.merge(outcome.tally)
        return b" ".join((total.state.to_wire(), msgspec.json.encode(total.tally, order="deterministic")))

    def finish(
        self, examples: Sequence[SampleInput], parts: Sequence[Sequence[Partial]]
    ) -> tuple[dict[str, Json], list[bytes]]:
        """The report and the record lines of one run over ``examples``; ``parts`` are the answers of each one's chunks.

        If the data ends the run with an error, the report has only the error's message.
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

    def answer(self, examples: Sequence[SampleInput], parts: Sequence[Sequence[Partial]]) -> EvaluatedInputs:
        """The results of a run over ``examples`` with the chunks' answers in ``parts``."""
        states = [self.merged(chunks) for chunks in parts]
        report, lines = self.finish(examples, parts)
        # Lenient: another property tests whether the report is plain JSON.
        text = json.dumps(report, sort_keys=True, default=repr)
        return EvaluatedInputs(states, lines, text.encode())


def random_cuts(rng: Random, count: int) -> list[int]:
    """Boundaries between ``count`` records, from 0 to ``count``: few, many, or (at most MAX_PIECES) all of them."""
    most = min(count - 1, MAX_PIECES)
    if most < 1:
        return [0, count]
    wanted = rng.choice([1, min(2, most), rng.randint(1, most), most])
    return [0, *sorted(rng.sample(range(1, count), wanted)), count]


# Breaking records: a simple mutator that a seed repeats.

MAX_RECORDS = 60
_HUGE_NUMBER = "a number too large for a float"
_JUNK: tuple[Any, ...] = (
    *(None, True, False, 0, -1, 2.5, 1e308, -1e308, 5e-324, 10**30, 10**400, float("nan"), float("inf"), _HUGE_NUMBER),
    *("", " ", "x", "0", "-1", "1e999", "nan", "null", "\ud800", "\x00", "\u2028", "x" * 5000, "[" * 2000),
    *([], {}, [[]], [None], [{}], {"": None}, {"a": {"b": []}}),
)
_JUNK_LINES = (
    b"",
    b" ",
    b"\r",
    b"null",
    b"[]",
    b"{}",
    b"0",
    b'"x"',
    b"{",
    b"[" * 3000,
    b'{"a":' * 3000,
    b"\x00",
    b"\xff\xfe",
)


def garbled(evaluator: Evaluator[Any, Any], example: SampleInput, rng: Random, wild: bool = True) -> SampleInput:
    """Some records of ``example``, in their order, a third of them broken.

    If not ``wild``, they stay well-formed rows or JSON, and only their values change. Records that the cutter refuses
    (broken quoting in a CSV) are left out: no evaluator ever sees them.
    """
    count = len(example.records)
    first = rng.randrange(max(1, count - MAX_RECORDS + 1))
    header = example.data[: len(example.data) - sum(map(len, example.records))]
    kept = [
        broken
        for record in example.records[first : first + MAX_RECORDS]
        for broken in _record(evaluator.records.format, record.rstrip(b"\r\n"), rng, wild)
    ]
    return SampleInput.of(evaluator, example.name, header + b"".join(record + b"\n" for record in kept))


def _record(fmt: Format, record: bytes, rng: Random, wild: bool) -> Iterator[bytes]:
    """``record``, a broken copy of it, or both."""
    # Most stay intact: a broken record must not spoil the result of another.
    if rng.random() < 2 / 3:
        yield record
        return
    made = rng.choice((_bytes, _width, _value, _value) if wild else (_value,))(fmt, record, rng)
    yield from (new for new in rng.choice(([made], [made, made], [record, made])) if _whole(fmt, new))


def _whole(fmt: Format, record: bytes) -> bool:
    """Whether ``record`` and a newline are a record to the cutter."""
    try:
        ends = record_ends(record + b"\n", fmt)
    except QuoteFault:
        return False
    return len(ends) > 0 and int(ends[-1]) == len(record) + 1


def _bytes(fmt: Format, record: bytes, rng: Random) -> bytes:
    """``record`` cut off, stripped of a piece, with random bytes in it, or replaced."""
    at, to = sorted(rng.choices(range(len(record) + 1), k=2))
    return rng.choice(
        (
            record[:at],
            record[:at] + record[to:],
            record[:to] + record[at:],
            record[:at] + rng.randbytes(rng.randint(1, 4)) + record[at:],
            record + record,
            rng.choice(_JUNK_LINES),
        )
    )


def _width(fmt: Format, record: bytes, rng: Random) -> bytes:
    """``record`` with one field too many or too few; JSON with one more member."""
    if fmt == "jsonl":
        return record.removesuffix(b"}") + b',"one more":[]}'
    fields = _fields(record)
    at = rng.randrange(len(fields) + 1)
    return _csv_row([*fields[:at], "one more", *fields[at:]] if rng.random() < 0.5 else fields[:at])


def _value(fmt: Format, record: bytes, rng: Random) -> bytes:
    """``record`` with one of its fields or values changed, still well formed."""
    if fmt == "jsonl":
        return _json(record.decode("utf-8", "replace"), rng).encode("utf-8", "replace")
    fields = _fields(record)
    if fields:
        at = rng.randrange(len(fields))
        fields[at] = rng.choice((_json, _other))(fields[at], rng)
    return _csv_row(fields)


def _fields(record: bytes) -> list[str]:
    return next(csv.reader(io.StringIO(record.decode("utf-8", "replace"), newline="")), [])


def _csv_row(fields: list[str]) -> bytes:
    out = io.StringIO(newline="")
    csv.writer(out).writerow(fields)
    return out.getvalue().removesuffix("\r\n").encode("utf-8", "replace")


def _other(text: str, rng: Random) -> str:
    return str(rng.choice(_JUNK[:-7]))


def _json(text: str, rng: Random) -> str:
    """``text`` with one value of its JSON changed; another text if it is no JSON."""
    try:
        holder = [json.loads(text)]
    except (ValueError, RecursionError):
        return _other(text, rng)
    slots = list(_slots(holder))
    container, key = rng.choice(slots)
    other_container, other_key = rng.choice(slots)
    value = container[key]
    if isinstance(value, str) and value[:1] in ("{", "["):
        container[key] = _json(value, rng)
    elif len(slots) > 1 and rng.random() < 0.2:
        container[key] = json.loads(json.dumps(other_container[other_key]))
    elif container is not holder and rng.random() < 0.2:
        del container[key]
    else:
        container[key] = rng.choice((*_JUNK, [value], {"value": value}, json.dumps(value), str(value)))
    return json.dumps(holder[0]).replace(f'"{_HUGE_NUMBER}"', "1e999")


def _slots(container: Any) -> Iterator[tuple[Any, Any]]:
    """Every (container, key or index) inside ``container``."""
    for key, value in list(container.items() if isinstance(container, dict) else enumerate(container)):
        yield container, key
        if isinstance(value, dict | list):
            yield from _slots(value)
