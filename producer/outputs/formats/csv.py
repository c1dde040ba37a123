"""The records as a table of text; .excel.csv as Excel knows it."""

from __future__ import annotations

import csv
from collections.abc import Mapping
from pathlib import Path
from typing import Any, BinaryIO

from evalq.evalcore.files import replacing
from evalq.evalcore.model.manifest import BOM
from evalq.producer.folder.run_folder import RunFolder
from evalq.producer.outputs.rows import columns, flat_rows

__all__ = ["write"]

_EXCEL = ".excel.csv"
"""Begins with the mark by which Excel knows UTF-8; other readers take it for a part of the first column's name."""
_ENDING = "\r\n"
"""What ends a line for Python's `csv`, which quotes a cell with a sign of that alone: to readers a return is an end."""
_FORMULA = ("=", "+", "-", "@", "\t", "\r", "\n", "＝", "＋", "－", "＠")


def write(path: Path, folder: RunFolder, evaluator: Any, options: Mapping[str, Any]) -> None:
    """A line a record, nested values as JSON text, and nothing that a spreadsheet would run."""
    names = columns(folder)
    with replacing(path) as out:
        if path.name.endswith(_EXCEL):
            out.write(BOM)
        # By itself, and not by pandas, which makes fractions of whole numbers where a record has none.
        table = csv.writer(_Lines(out), lineterminator=_ENDING)
        for number, rows in enumerate(flat_rows(folder)):
            if number == 0:
                table.writerow([_unformula(name) for name in names])
            table.writerows([_unformula(row.get(name)) for name in names] for row in rows)


class _Lines:
    """Writes each line to ``out`` with a line feed at its end."""

    def __init__(self, out: BinaryIO) -> None:
        self._out = out

    def write(self, line: str) -> None:
        """One whole line, as Python's `csv` gives it."""
        self._out.write(line.removesuffix(_ENDING).encode() + b"\n")


def _unformula(value: Any) -> Any:
    """Text that a spreadsheet would run gets an apostrophe before it."""
    return "'" + value if isinstance(value, str) and value.startswith(_FORMULA) else value
