"""report.json as it is read again: it has the frame of a report, and what cannot be shown of it is told in words."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import msgspec

from evalq.evalcore.errors import WireError
from evalq.evalcore.files import read_plain
from evalq.evalcore.fold.fold import REPORT_SCHEMA
from evalq.evalcore.model.canonical import Json

__all__ = ["form_told", "read_report", "report_of"]

_Count = Annotated[int, msgspec.Meta(ge=0)]
_NEXT = "use the evalq that wrote it (evalq --version), or evaluate again"


class _Records(msgspec.Struct):
    total: _Count
    scored: _Count
    unscored: _Count
    errors: _Count
    dead: _Count


class _Input(msgspec.Struct):
    name: str
    sha256: str
    records: _Count


class _Fault(msgspec.Struct):
    where: str
    reason: str


class _Frame(msgspec.Struct):
    """What every report has, whoever evaluated: `evalq.evalcore.fold.Fold` writes it."""

    evaluator: str
    evaluator_version: str
    params: dict[str, Any]
    inputs: list[_Input]
    records: _Records
    results: dict[str, Any]
    faults: list[_Fault]


def read_report(path: Path) -> dict[str, Json]:
    """The report in the file at ``path``. Raises WireError where it is none that this evalq reads, OSError."""
    return report_of(read_plain(path), str(path))


def report_of(data: bytes, origin: str) -> dict[str, Json]:
    """The report in ``data``, which came from ``origin``. Raises WireError where it is none that this evalq reads."""
    try:
        found: dict[str, Json] = msgspec.json.decode(data, type=dict)
    except (ValueError, RecursionError) as error:
        raise WireError(f"{origin} is damaged: {error}; evaluate again") from error
    schema = found.get("schema")
    if schema != REPORT_SCHEMA:
        raise WireError(f"{origin} has the form {schema!r}, and this evalq reads {REPORT_SCHEMA}: {_NEXT}")
    try:
        msgspec.convert(found, _Frame)
    except (msgspec.ValidationError, RecursionError) as error:
        raise WireError(f"{origin} is not a report as this evalq writes it ({error}): {_NEXT}") from error
    return found


@contextlib.contextmanager
def form_told(place: object, evaluator: str) -> Iterator[None]:
    """A block that shows the report at ``place``, whose numbers are the evaluator's own and have a form that it knows.

    Raises WireError, which says so, where the block ends in an error of what it is given: other code wrote the report,
    or it was changed since.
    """
    try:
        yield
    except (LookupError, TypeError, AttributeError, ValueError, ArithmeticError) as error:
        told = f"{type(error).__name__}: {error}"
        raise WireError(
            f"{place}: its report is not of the form that this version of {evaluator} shows ({told}): {_NEXT}"
        ) from error
