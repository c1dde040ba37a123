"""The property of record lines: one for each record, in the order of the input."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random
from typing import Any

import msgspec

from evalq.evalcore.conformance.subject import Example, Subject, random_cuts
from evalq.evalcore.contract.evaluator import Batch, Outcome

__all__ = ["lines"]


def lines(subject: Subject, example: Example, rng: Random, rounds: int) -> Iterator[str]:
    """One record line for each counted record, each an object with the keys and the place that it must have."""
    for batch in [example.whole(), *example.batches(random_cuts(rng, len(example.records)))]:
        yield from _line_faults(batch, subject.evaluate(batch))
    report, every = subject.told(example)
    counted = report.get("records", {}).get("total", len(every))
    if counted != len(every):
        yield f"the report counts {counted} records, and there are {len(every)} record lines"


def _line_faults(batch: Batch, outcome: Outcome[Any]) -> Iterator[str]:
    # A fatal fault ends the run without a report: its record needs no line.
    if outcome.tally.total != len(outcome.lines) and not outcome.tally.fatal.total:
        yield f"a chunk counts {outcome.tally.total} records and has {len(outcome.lines)} record lines"
    last_line = batch.first_line + batch.data.count(b"\n")
    before = 0
    for line in outcome.lines:
        try:
            at = _line_number(batch.source, line)
        except (msgspec.DecodeError, ValueError) as error:
            yield f"{error}: {line[:60]!r}"
            continue
        if not batch.first_line <= at <= last_line:
            yield f"a record is said to stand on line {at}, outside its chunk"
        if at < before:
            yield f"the record of line {at} comes after that of line {before}"
        before = at


def _line_number(source: str, line: bytes) -> int:
    """The line a record line names. Raises ValueError or msgspec.DecodeError where it breaks the contract."""
    record = msgspec.json.decode(line, type=dict[str, Any])
    missing = [key for key in ("record", "id", "status") if key not in record]
    if missing:
        raise ValueError(f"a record line lacks {', '.join(missing)}")
    if b"\n" in line:
        raise ValueError("a record line holds a newline")
    name, _, number = str(record["record"]).rpartition(":")
    if name != source or not number.isdecimal():
        raise ValueError(f"'record' is not '{source}:<line>'")
    return int(number)
