"""A record: what is read of a line of input, and its line of records.jsonl."""

from __future__ import annotations

from typing import Any

import msgspec

from evalq.evalcore.evaluators.verification.score import VerificationScore
from evalq.evalcore.records.lines import Line
from evalq.evalcore.records.objects import typed

__all__ = ["Record", "read_record", "record_line"]

_encode = msgspec.json.Encoder().encode


class Record(msgspec.Struct):
    """What is read of a line; ``compliant`` is a label, where somebody gave one."""

    # No default: a missing text, or one that is none, is an error of the record and no score of 0 (SPEC, section 5).
    actual_output: str
    id: str | int | None = None
    compliant: bool | None = None


def read_record(given: dict[str, Any]) -> Record:
    """The record in ``given``. Raises RecordFault with the path of what is wrong in it."""
    return typed(given, Record)


def record_line(line: Line[Record], record: Record, result: VerificationScore) -> bytes:
    """The record's line, keys in the order they are specified in."""
    plain = line.head("passed" if result.success else "failed")
    plain["score"] = result.score
    plain["success"] = result.success
    plain["reason"] = result.reason
    plain["components"] = result.components
    plain["unsubstantiated"] = result.unsubstantiated
    plain["band"] = result.band
    # Beside the verdict and never in it: a label says how far the pattern sets agree with people.
    if record.compliant is not None:
        plain["compliant"] = record.compliant
    return _encode(plain)
