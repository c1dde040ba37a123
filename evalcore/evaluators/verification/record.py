"""A record: what is read of a line of input, and its line of records.jsonl."""

from __future__ import annotations

from typing import Any

import msgspec

from evalq.evalcore.contract.claims import ClaimsVerdict
from evalq.evalcore.evaluators.verification.judging import JUDGE
from evalq.evalcore.evaluators.verification.score import VerificationScore
from evalq.evalcore.records.lines import Line
from evalq.evalcore.records.objects import typed

__all__ = ["Judged", "Record", "read_record", "record_line"]

_encode = msgspec.json.Encoder().encode


class Record(msgspec.Struct):
    """What is read of a line; ``compliant`` is a label, where somebody gave one."""

    # No default: a missing text, or one that is none, is an error of the record and no score of 0 (SPEC, section 5).
    actual_output: str
    id: str | int | None = None
    compliant: bool | None = None


class Judged(msgspec.Struct):
    """A record, and what a judge found of its claims, where one was asked."""

    record: Record
    verdict: ClaimsVerdict | None


def read_record(given: dict[str, Any]) -> Judged:
    """The record in ``given``. Raises RecordFault with the path of what is wrong in it."""
    return Judged(typed(given, Record), JUDGE.verdict(given))


def record_line(line: Line[Judged], record: Judged, result: VerificationScore) -> bytes:
    """The record's line, keys in the order they are specified in."""
    plain = line.head("passed" if result.success else "failed")
    plain["score"] = result.score
    plain["success"] = result.success
    plain["reason"] = result.reason
    plain["components"] = result.components
    plain["unsubstantiated"] = result.unsubstantiated
    plain["band"] = result.band
    # Beside the verdict and never in it: a label says how far the pattern sets agree with people.
    if record.record.compliant is not None:
        plain["compliant"] = record.record.compliant
    if record.verdict is not None:
        plain["judged"] = record.verdict.line()
    return _encode(plain)
