"""The lines of a chunk as records of some type, the broken ones with their reasons."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Generic, TypeVar

import msgspec

from evalq.evalcore.model.state import Tally
from evalq.evalcore.records.batch import Batch
from evalq.evalcore.records.objects import RecordFault, read_object

__all__ = ["Line", "line_ids", "read_lines"]

R = TypeVar("R")


class Line(msgspec.Struct, Generic[R]):
    """One line: ``where`` as "<source>:<line>", the record's own ``id`` or its line's ``number``, and the record.

    A broken line has no record, and a ``reason`` that begins with the path of what is wrong in it.
    """

    where: str
    id: str
    record: R | None = None
    reason: str = ""
    number: int = 0

    def head(self, status: str) -> dict[str, Any]:
        """How its line in records.jsonl begins."""
        return {"record": self.where, "id": self.id, "status": status}

    def broken(self) -> bytes:
        """The line in records.jsonl of a record that could not be read."""
        return msgspec.json.encode({**self.head("error"), "reason": self.reason})


def read_lines(batch: Batch, read: Callable[[dict[str, Any]], R], tally: Tally) -> Iterator[Line[R]]:
    """Every line of ``batch`` that is not blank; ``read`` makes an object a record, or raises RecordFault.

    Broken lines are counted in ``tally`` and listed among its faults.
    """
    for number, data in batch.lines():
        where, given = batch.where(number), None
        try:
            given = read_object(data)
            line = Line(where, _id(given, number), read(given), number=number)
        except RecordFault as fault:
            tally.errors += 1
            tally.listed.add(number, str(fault))
            line = Line(where, _id(given, number), reason=str(fault), number=number)
        yield line


def line_ids(batch: Batch) -> Iterator[str]:
    """The `Line.id` of every line, whatever else is in it."""
    for number, data in batch.lines():
        given = None
        with contextlib.suppress(RecordFault):
            given = read_object(data)
        yield _id(given, number)


def _id(given: Mapping[str, Any] | None, number: int) -> str:
    own = None if given is None else given.get("id")
    # A bool is an int to Python, and no id to anybody.
    return str(own) if isinstance(own, str | int) and not isinstance(own, bool) else str(number)
