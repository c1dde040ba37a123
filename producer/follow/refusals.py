"""What is said where it cannot be known whether all of a log was read."""

from __future__ import annotations

import os
from pathlib import Path
from typing import BinaryIO

from evalq.evalcore.errors import InputChanged
from evalq.producer.follow.checkpoint import Checkpoint

__all__ = ["alike", "altered", "changed", "lost", "replaced"]


def altered(kept: Checkpoint, name: str, stream: BinaryIO, byte: int) -> InputChanged:
    """``byte`` of ``stream``, the file read last of the log called ``name``, is not the one that was read."""
    current, size = kept.segments[-1], os.fstat(stream.fileno()).st_size
    where = f"{name}:{current.line_of(byte, kept.line)}"
    if size < current.length:
        cut = f"it was cut to {size:,} bytes, where {current.length:,} were read, and no copy is beside it"
        return lost(kept, name, cut)
    reason = f"byte {byte:,} of {current.path} is not the one that was read, and no copy of what was is beside it"
    return InputChanged("the log changed behind its reader", [(where, f"{reason}; begin anew in another --run-dir")])


def lost(kept: Checkpoint, name: str, reason: str) -> InputChanged:
    """The file read last is gone, for ``reason``."""
    more = "whether lines came behind it that nobody read cannot be known: begin anew in another --run-dir"
    return InputChanged("the log was replaced", [(f"{name}:{kept.line}", f"{reason}; {more}")])


def replaced(path: Path, log: Path, gone: str) -> InputChanged:
    """The file read last, seen at ``gone``, is gone, and both ``path`` and the log hold what was read of it."""
    reason = f"it and {log} begin as {gone} did, which is gone; which comes first cannot be known"
    return InputChanged("the log was replaced", [(str(path), f"{reason}: begin anew in another --run-dir")])


def alike(path: Path, other: Path) -> InputChanged:
    """Either of two files that came since begins with all of the other."""
    reason = f"it and {other} begin alike; whether one is a copy made by hand or both are files of the log"
    more = "give copies by hand other names than rotation does, and begin anew in another --run-dir"
    return InputChanged("files of the log cannot be told apart", [(str(path), f"{reason} cannot be known: {more}")])


def changed(path: Path) -> InputChanged:
    """A file that was read to its end is another by now, or has more, and begins as the one that is read now."""
    reason = "it was read to its end, and written to since; whether the log was copied to it and emptied"
    more = "leave old files as they are, and begin anew in another --run-dir"
    return InputChanged("files of the log cannot be told apart", [(str(path), f"{reason} cannot be known: {more}")])
