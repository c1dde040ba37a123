"""What a cut piece of a file is, and the sizes that reading goes by. Workers need no more than this."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Literal

import msgspec

from evalq.evalcore.files import open_input

__all__ = [
    "BLOCK_BYTES",
    "BOM",
    "MAX_CHUNK_BYTES",
    "MAX_RECORD_BYTES",
    "Format",
    "Span",
    "input_of",
    "place",
    "read_span",
]

Format = Literal["csv", "jsonl"]

BLOCK_BYTES = 4 << 20
"""How much is read at once, and the size of a chunk where no record count is asked for."""
MAX_CHUNK_BYTES = 16 << 20
"""Where a chunk of a given number of records ends early."""
MAX_RECORD_BYTES = 64 << 20
"""A record longer than this is refused: it is nearly always a quote that was never closed."""
BOM = b"\xef\xbb\xbf"


class Span(msgspec.Struct, frozen=True):
    """One chunk: bytes ``start`` to ``end`` of an input, which begin on line ``first_line`` (1-based).

    ``records`` counts lines (JSONL) or rows (CSV), blank ones included; ``digest`` is that of the bytes, as
    `evalq.evalcore.records.digests.chunk_digest` takes it; empty where they are planned for no run.
    """

    start: int
    end: int
    first_line: int
    records: int
    digest: str

    def of(self, members: Sequence[str]) -> tuple[str, ...]:
        """Those of ``members`` (a file for each line of the input) that its lines stand for."""
        return tuple(members[self.first_line - 1 : self.first_line - 1 + self.records])


def place(name: str, line: int, members: Sequence[str] = (), first_line: int = 1) -> str:
    """What the record on ``line`` of input ``name`` is called: "<name>:<line>".

    Where the lines from ``first_line`` on were gathered from files, it is "<name>/<file>"; ``members`` are the files.
    """
    return f"{name}/{members[line - first_line]}" if members else f"{name}:{line}"


def input_of(record: str) -> str:
    """The name of the input that has the record called ``record``."""
    # A base name, so that the first slash is the one behind it; a colon may be in it.
    name, gathered, _ = record.partition("/")
    return name if gathered else record.rpartition(":")[0]


def read_span(path: str | os.PathLike[str], span: Span) -> bytes:
    """The bytes of ``span``; fewer if the file has become shorter."""
    with open_input(path) as stream:
        stream.seek(span.start)
        return stream.read(span.end - span.start)
