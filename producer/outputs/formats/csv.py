"""The records as a table of text; .excel.csv as Excel knows it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from evalq.evalcore.files import replacing
from evalq.evalcore.model.span import BOM
from evalq.producer.folder.run_folder import RunFolder
from evalq.producer.outputs.rows import columns, flat_rows

__all__ = ["write"]

_EXCEL = ".excel.csv"
"""Begins with the mark by which Excel knows UTF-8; other readers take it for a part of the first column's name."""
_FORMULA = ("=", "+", "-", "@", "\t", "\r", "\n", "＝", "＋", "－", "＠")


def write(path: Path, folder: RunFolder, evaluator: Any, options: Mapping[str, Any]) -> None:
    """A line a record, nested values as JSON text, and nothing that a spreadsheet would run."""
    import pandas as pd

    names = columns(folder)
    with replacing(path) as out:
        if path.name.endswith(_EXCEL):
            out.write(BOM)
        for number, rows in enumerate(flat_rows(folder)):
            frame = pd.DataFrame(rows, columns=names).map(_unformula)
            heads = [_unformula(name) for name in names] if number == 0 else False
            out.write(frame.to_csv(index=False, header=heads, lineterminator="\n").encode())


def _unformula(value: Any) -> Any:
    """Text that a spreadsheet would run gets an apostrophe before it."""
    return "'" + value if isinstance(value, str) and value.startswith(_FORMULA) else value
