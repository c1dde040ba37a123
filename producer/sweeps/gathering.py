"""Recorded outputs that further targets are to be asked about, in one file of the run folder."""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from evalq.evalcore.contract.evaluator import Evaluator, Request, live_calls
from evalq.evalcore.errors import InputError
from evalq.evalcore.files import replacing
from evalq.evalcore.records.inputs import discover, format_suffixes
from evalq.evalcore.records.opened import batches, opened
from evalq.evalcore.records.spool import MAX_UNPACKED_BYTES, spool
from evalq.producer.folder.files import RECORDED
from evalq.producer.folder.run_folder import RunFolder

__all__ = ["gather", "recorded_lines"]


def gather(evaluator: Evaluator[Any, Any], request: Request, folder: RunFolder, unpack_bytes: int) -> None:
    """Copy the lines of what ``request`` names: what is paid for is about these, whatever becomes of the files.

    Raises InputError.
    """
    with replacing(folder.path / RECORDED) as out:
        out.writelines(line + b"\n" for line in recorded_lines(evaluator, request, folder.spool, unpack_bytes))


def recorded_lines(
    evaluator: Evaluator[Any, Any], request: Request, scratch: Path | None = None, most: int = MAX_UNPACKED_BYTES
) -> Iterator[bytes]:
    """The lines of all recorded outputs that ``request`` asks about; packed ones are unpacked into ``scratch``.

    Raises InputError.
    """
    further = live_calls(evaluator).further
    named = list(further.recorded(request)) if further is not None else []
    if not named or "-" in named:
        raise InputError("without a target there have to be files of recorded outputs to ask about")
    sources = discover(named, format_suffixes(evaluator.records.format), evaluator.gathering.endings)
    with contextlib.ExitStack() as stack:
        place = scratch or Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="evalq-")))
        for source in sources:
            plain = spool(source, place, evaluator.gathering.line, most)
            with opened(plain, evaluator.records.format, evaluator.records.columns) as cutter:
                for batch in batches(cutter, plain):
                    yield from (line for _, line in batch.lines())
