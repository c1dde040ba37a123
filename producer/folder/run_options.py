"""How a run is asked for: where its folder is, what of the input it takes, and by which names it goes."""

from __future__ import annotations

from pathlib import Path

import msgspec

from evalq.evalcore.records.spool import MAX_UNPACKED_BYTES

__all__ = ["RunOptions"]


class RunOptions(msgspec.Struct, frozen=True):
    """What a command was asked for, apart from the evaluator's own request.

    ``out`` is the run folder itself, ``under`` a folder in which it gets the first free name like ``name``, or like its
    evaluator's.
    """

    out: Path | None = None
    under: Path | None = None
    name: str = ""
    chunk_size: int | None = None
    limit: int | None = None
    suite: str = "default"
    priority: str = "bulk"
    tags: dict[str, str] = {}
    once: str = ""
    unpack_bytes: int = MAX_UNPACKED_BYTES
