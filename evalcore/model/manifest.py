"""Manifests: how a run's inputs are cut into chunks, and the parts of a stored plan."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from typing import Annotated, Any, Literal, TypeVar

import msgspec

from evalq.evalcore.errors import WireError
from evalq.evalcore.files import open_input

Format = Literal["csv", "jsonl"]

BLOCK_BYTES = 4 << 20
"""How much evalq reads at once, and the size of a chunk if nobody asks for a number of records."""
MAX_CHUNK_BYTES = 16 << 20
"""The size at which a chunk of a given number of records ends early."""
MAX_RECORD_BYTES = 64 << 20
"""The limit of a record: a longer one nearly always has a quote that was never closed."""
BOM = b"\xef\xbb\xbf"


class Span(msgspec.Struct, frozen=True):
    """One chunk: bytes ``start`` to ``end`` of an input, which begin on line ``first_line`` (1-based).

    ``records`` counts lines (JSONL) or rows (CSV), blank ones included. ``digest`` is the bytes' digest by
    `evalq.evalcore.records.digests.chunk_digest`; empty outside a run.
    """

    start: int
    end: int
    first_line: int
    records: int
    digest: str

    def of(self, members: Sequence[str]) -> tuple[str, ...]:
        """The ``members`` (a file for each line of the input) of its lines."""
        return tuple(members[self.first_line - 1 : self.first_line - 1 + self.records])


def location(name: str, line: int, members: Sequence[str] = (), first_line: int = 1) -> str:
    """The name of the record on ``line`` of input ``name``: "<name>:<line>".

    If the lines from ``first_line`` on come from files, it is "<name>/<file>"; ``members`` are the files.
    """
    return f"{name}/{members[line - first_line]}" if members else f"{name}:{line}"


def input_of(record: str) -> str:
    """The name of the input that has the record called ``record``."""
    # The input's name is a base name, so the first slash comes after it; the name may contain a colon.
    name, gathered, _ = record.partition("/")
    return name if gathered else record.rpartition(":")[0]


def read_span(path: str | os.PathLike[str], span: Span) -> bytes:
    """The bytes of ``span``; fewer if the file has become shorter."""
    with open_input(path) as stream:
        stream.seek(span.start)
        return stream.read(span.end - span.start)


MANIFEST_SCHEMA = "evalq.manifest/1"
QUEUE_CLASSES = ("interactive", "bulk")
"""Queue classes, the first served first."""


_Count = Annotated[int, msgspec.Meta(ge=0, lt=1 << 53)]


class PlannedInput(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """An input as workers see it: ``path`` is relative to one of their allowed roots."""

    name: str
    given: str
    path: str
    columns: tuple[str, ...] = ()


class Header(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """All facts about a run but its chunks. evalq writes it first, and never changes it."""

    run: str
    evaluator: str
    evaluator_version: str
    code_version: str
    params: dict[str, Any]
    inputs: tuple[PlannedInput, ...]
    suite: str = "default"
    priority: Literal["interactive", "bulk"] = "bulk"
    chunk_size: int | None = None
    limit: int | None = None
    schema: str = MANIFEST_SCHEMA

    @property
    def queue(self) -> str:
        """The queue its messages go to."""
        return queue_name(self.priority, self.code_version)


class Chunk(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """Chunk ``seq`` (from 0, over all inputs) of a run: a span of input number ``input``.

    ``members`` are the files of its lines, if the input is a folder.
    """

    seq: _Count
    input: _Count
    start: _Count
    end: _Count
    first_line: _Count
    records: _Count
    digest: Annotated[str, msgspec.Meta(pattern=r"\A[0-9a-f]{64}\Z")]
    members: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        """Limit the length, because a worker allocates that much memory."""
        # Twice the limit: a chunk may end with a record of the maximal length.
        if not 0 <= self.end - self.start <= 2 * MAX_RECORD_BYTES:
            raise ValueError("a chunk of that length is never planned")
        if self.members and len(self.members) != self.records:
            raise ValueError("a chunk has as many members as records")

    @classmethod
    def of(cls, seq: int, index: int, span: Span, members: Sequence[str] = ()) -> Chunk:
        """Chunk ``seq`` made of ``span`` of input ``index``, which was gathered from ``members``."""
        return cls(seq, index, span.start, span.end, span.first_line, span.records, span.digest, span.of(members))

    @property
    def span(self) -> Span:
        """The chunk as a span of its input."""
        return Span(self.start, self.end, self.first_line, self.records, self.digest)


class Seal(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The end of a plan: how many chunks there are, and each input's SHA-256."""

    chunks: int
    sha256: tuple[str, ...]


def queue_name(priority: str, code_version: str) -> str:
    """The name of a queue, with the code version, so that a message never reaches a worker of other code."""
    return f"evalq.{priority}.{code_version}"


def same_run(one: Header, other: Header) -> bool:
    """Whether two headers describe the same run. Paths of inputs and the priority may differ: no answer depends on
    them.
    """
    return _identity(one) == _identity(other)


def _identity(header: Header) -> Header:
    # Paths are relative to the folder where the command started, or as it named them; the digests in the plan identify
    # the bytes.
    inputs = tuple(msgspec.structs.replace(planned, path="", given="") for planned in header.inputs)
    return msgspec.structs.replace(header, inputs=inputs, priority="bulk")


def differences(there: Header | Chunk | Seal, here: Header | Chunk | Seal) -> str:
    """How the part of a plan that is ``there`` differs from the one ``here``, in words."""
    if isinstance(there, Header) and isinstance(here, Header):
        there, here = _identity(there), _identity(here)
    changes = list(_differing("", msgspec.to_builtins(there), msgspec.to_builtins(here)))
    more = f", and {len(changes) - _SHOWN} more" if len(changes) > _SHOWN else ""
    return ", ".join(changes[:_SHOWN]) + more


_SHOWN = 3


def _differing(where: str, there: Any, here: Any) -> Iterator[str]:
    if isinstance(there, dict) and isinstance(here, dict):
        for key in sorted(there.keys() | here.keys()):
            name = key.replace("_", " ") if not where else f"{where}.{key}"
            yield from _differing(name, there.get(key), here.get(key))
    elif isinstance(there, list | tuple) and isinstance(here, list | tuple) and len(there) == len(here):
        for number, (one, other) in enumerate(zip(there, here, strict=True)):
            yield from _differing(f"{where}.{number}", one, other)
    elif there != here:
        yield f"{where} is {_brief(there)} there and {_brief(here)} here"


def _brief(value: Any) -> str:
    if isinstance(value, list | tuple):
        return f"{len(value)} of them"
    text = "not set" if value is None else str(value)
    return text if len(text) <= 80 else text[:77] + "..."


T = TypeVar("T", Header, Chunk, Seal)


def to_wire(part: Header | Chunk | Seal) -> bytes:
    """One line of canonical JSON."""
    return msgspec.json.encode(part, order="sorted")


def from_wire(data: bytes, kind: type[T]) -> T:
    """Decode and check a part of a plan. Raises WireError."""
    try:
        return msgspec.json.decode(data, type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise WireError(f"a {kind.__name__.lower()} is not what evalq writes: {error}") from error
