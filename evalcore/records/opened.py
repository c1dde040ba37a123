"""An input, opened to be cut, and its chunks as batches: how all that reads whole inputs in one process does it."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence

from evalq.evalcore.files import open_input
from evalq.evalcore.model.manifest import Format, read_span
from evalq.evalcore.records.batch import Batch
from evalq.evalcore.records.cut import Cutter
from evalq.evalcore.records.inputs import Source

__all__ = ["batches", "opened"]


@contextlib.contextmanager
def opened(
    source: Source,
    fmt: Format,
    required: Sequence[str] | None,
    *,
    size: int | None = None,
    limit: int | None = None,
) -> Iterator[Cutter]:
    """The cutter of a plain file, behind its header; arguments as in `Cutter`. Raises InputError, OSError."""
    with open_input(source.path) as stream:
        yield Cutter(stream, fmt, source.name, required, size=size, limit=limit)


def batches(cutter: Cutter, source: Source) -> Iterator[Batch]:
    """The records of ``source``, chunk by chunk; the file is read a second time for them. Raises InputError."""
    for span in cutter.spans():
        data = read_span(source.path, span)
        yield Batch(source.name, span.first_line, data, cutter.columns, span.of(source.members))
