"""Writing a page: records are packed first, since the headline says how many of them are left out."""

from __future__ import annotations

import contextlib
import shutil
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, BinaryIO, cast

from evalq.evalcore.contract.evaluator import Evaluator
from evalq.evalcore.files import open_input, replacing
from evalq.evalcore.model.canonical import Json
from evalq.producer.page.build import build_page
from evalq.producer.page.model import Section
from evalq.producer.page.packing import pack
from evalq.producer.page.render import after_blocks, before_blocks

__all__ = ["write_page"]

_IN_MEMORY = 16_000_000


def write_page(
    path: Path,
    evaluator: Evaluator[Any, Any],
    report: Mapping[str, Json],
    records: Path | None,
    first: Sequence[Section] = (),
) -> None:
    """Write the page of ``report`` to ``path``, whole or not at all; ``records`` is its records.jsonl, if it is there.
    Without them the page has no table.

    The same report and records give the same bytes. Memory does not grow with the number of records. Raises OSError,
    and WireError for a damaged record.
    """
    with contextlib.ExitStack() as opened:
        scratch = tempfile.SpooledTemporaryFile(_IN_MEMORY, dir=str(path.parent))  # noqa: SIM115 - the stack closes it
        blocks = cast("BinaryIO", opened.enter_context(scratch))
        listing = None
        if records is not None and records.is_file():
            listing = pack(opened.enter_context(open_input(records)), evaluator.views.rows, report, blocks)
        page = build_page(evaluator, report, listing, first)
        out = opened.enter_context(replacing(path))
        out.write(before_blocks(page))
        blocks.seek(0)
        shutil.copyfileobj(blocks, out, 1 << 20)
        out.write(after_blocks(page))
