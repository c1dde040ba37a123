"""A worker's access to input bytes: by path under its allowed roots, and only bytes of the planned digest."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from evalq.evalcore.errors import WireError
from evalq.evalcore.model.canonical import unpack
from evalq.evalcore.model.manifest import Chunk, PlannedInput, read_span
from evalq.evalcore.records.digests import chunk_digest
from evalq.evalcore.trust import Thing, Writer, allows

CHANGED = "changed"
UNREADABLE = "unreadable"


def read(planned: PlannedInput, chunk: Chunk, roots: Sequence[Path], key: str) -> bytes | str:
    """The chunk's bytes, or why not: UNREADABLE (under no root) or CHANGED (the file has other bytes).

    ``key`` is the run's key. A path is relative to each root in turn; one that leads out of the root is ignored.
    """
    exists = False
    for root in roots:
        path = _inside(root, planned.path)
        if path is None:
            continue
        exists = True
        try:
            data = read_span(path, chunk.span)
        except OSError:  # another root may have the planned bytes under this path
            continue
        if chunk_digest(data, key) == chunk.digest:
            return data
    return CHANGED if exists else UNREADABLE


def find(planned: PlannedInput, roots: Sequence[Path]) -> Path | None:
    """The input's file under one of the roots, whatever its content; None if there is none."""
    return next((path for root in roots if (path := _inside(root, planned.path))), None)


def _inside(root: Path, relative: str) -> Path | None:
    """``relative`` under ``root`` as a real path, or None."""
    if not relative or Path(relative).is_absolute() or ".." in Path(relative).parts:
        return None
    try:
        real_root = root.resolve()
        path = (real_root / relative).resolve()
        return path if allows(Writer.LEDGER, Thing.PATH, path, (real_root,)) and path.is_file() else None
    except (OSError, ValueError, RuntimeError):  # the name is too long or has a NUL, or links form a ring
        return None


def unpack_blob(blob: bytes, chunk: Chunk, key: str) -> bytes | str:
    """The bytes in ``blob``, or CHANGED if they are not the chunk's; never more than the chunk's length."""
    try:
        data = unpack(blob, chunk.end - chunk.start)
    except WireError:
        return CHANGED
    return data if chunk_digest(data, key) == chunk.digest else CHANGED
