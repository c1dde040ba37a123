"""What a cut piece of a file is, and the sizes that reading goes by. Workers need no more than this."""

from __future__ import annotations

import os
from typing import Literal

import msgspec

__all__ = ["BLOCK_BYTES", "BOM", "MAX_CHUNK_BYTES", "MAX_RECORD_BYTES", "Format", "Span", "read_span"]

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

    ``records`` counts lines (JSONL) or rows (CSV), blank ones included; ``digest`` is the SHA-256 of the bytes.
    """

    start: int
    end: int
    first_line: int
    records: int
    digest: str


def read_span(path: str | os.PathLike[str], span: Span) -> bytes:
    """The bytes of ``span``; fewer if the file has become shorter."""
    with open(path, "rb") as stream:
        stream.seek(span.start)
        return stream.read(span.end - span.start)
