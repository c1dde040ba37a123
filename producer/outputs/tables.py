"""The records of a finished run as files: as they are, and as tables (CSV, Parquet)."""

from __future__ import annotations

import csv
import shutil
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from itertools import islice
from pathlib import Path
from typing import Any, BinaryIO

import msgspec

from evalq.evalcore.errors import UsageError, WireError
from evalq.evalcore.files import open_input, replacing
from evalq.evalcore.model.canonical import canonical_json
from evalq.evalcore.model.manifest import BOM
from evalq.producer.folder.files import RECORDS
from evalq.producer.folder.run_folder import RunFolder

_ROWS_AT_ONCE = 20_000
_KEPT_TEXTS, _MOST_KEPT = 1024, 4096


def records_of(folder: RunFolder) -> Path:
    """records.jsonl. Raises UsageError where the folder has the report alone of a run that another command computed."""
    if folder.reported and not folder.records.is_file():
        raise UsageError(
            f"{folder.path}: only the report is here; the records are in the folder of the command that computed it"
        )
    return folder.own(RECORDS)


def _columns(folder: RunFolder) -> list[str]:
    """Every key of every record, in the order they are first seen."""
    # Few records have other keys than the one before.
    kinds = dict.fromkeys(map(tuple, _records(folder, msgspec.json.Decoder(dict[str, msgspec.Raw]).decode)))
    return list(dict.fromkeys(key for keys in kinds for key in keys))


def _flat_rows(folder: RunFolder) -> Iterator[list[dict[str, Any]]]:
    """Records in blocks, nested values as JSON text."""
    text, records = _Texts(), _records(folder, msgspec.json.decode)
    while block := list(islice(records, _ROWS_AT_ONCE)):
        yield [_flat(record, text) for record in block]


def _records(folder: RunFolder, decode: Callable[[bytes], Any]) -> Iterator[Any]:
    """What each line holds. Raises WireError for a damaged one."""
    path = records_of(folder)
    with open_input(path) as stream:
        for number, line in enumerate(stream, start=1):
            try:
                record = decode(line)
            except (msgspec.DecodeError, RecursionError) as error:
                raise WireError(f"{path}:{number} is damaged: {error}") from error
            yield record


def _flat(record: dict[str, Any], text: _Texts) -> dict[str, Any]:
    return {key: text.of(value) if isinstance(value, dict | list) else value for key, value in record.items()}


class _Texts:
    """Nested values as canonical JSON, of which many records have the same: those met last are kept."""

    def __init__(self) -> None:
        self._kept: dict[bytes, str] = {}

    def of(self, value: Any) -> str:
        """The text of ``value``."""
        plain = msgspec.json.encode(value)
        text = self._kept.get(plain)
        if text is None:
            text = canonical_json(value).decode()
            if len(plain) <= _MOST_KEPT:
                if len(self._kept) >= _KEPT_TEXTS:
                    self._kept.clear()
                self._kept[plain] = text
        return text


# The records as a table of text; .excel.csv as Excel knows it.

_EXCEL = ".excel.csv"
"""Begins with the mark by which Excel knows UTF-8; other readers take it for a part of the first column's name."""
_CSV_ENDING = "\r\n"
"""What ends a line for Python's `csv`, which quotes a cell with a sign of that alone: to readers a return is an end."""
_FORMULA = ("=", "+", "-", "@", "\t", "\r", "\n", "＝", "＋", "－", "＠")


def write_csv(path: Path, folder: RunFolder, evaluator: object, options: object) -> None:
    """A line a record, nested values as JSON text, and nothing that a spreadsheet would run."""
    names = _columns(folder)
    with replacing(path) as out:
        if path.name.endswith(_EXCEL):
            out.write(BOM)
        # By itself, and not by pandas, which makes fractions of whole numbers where a record has none.
        table = csv.writer(_LineFeeds(out), lineterminator=_CSV_ENDING)
        for number, rows in enumerate(_flat_rows(folder)):
            if number == 0:
                table.writerow([_unformula(name) for name in names])
            table.writerows([_unformula(row.get(name)) for name in names] for row in rows)


class _LineFeeds:
    """Writes each line to ``out`` with a line feed at its end."""

    def __init__(self, out: BinaryIO) -> None:
        self._out = out

    def write(self, line: str) -> None:
        """One whole line, as Python's `csv` gives it."""
        self._out.write(line.removesuffix(_CSV_ENDING).encode() + b"\n")


def _unformula(value: Any) -> Any:
    """Text that a spreadsheet would run gets an apostrophe before it."""
    return "'" + value if isinstance(value, str) and value.startswith(_FORMULA) else value


# The records as a Parquet table.

_MOST_INT = 1 << 63


def check_parquet(path: Path) -> None:
    """Raise UsageError for want of a package."""
    if find_spec("pyarrow") is None:
        raise UsageError(f"-o {path}: Parquet needs pyarrow: pip install 'evalq[parquet]'")


def write_parquet(path: Path, folder: RunFolder, evaluator: object, options: object) -> None:
    """A row a record, one type a column, nested values as JSON text; so are all of a column without one type."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    schema, other = _arrow_schema(folder)
    with replacing(path) as out, pq.ParquetWriter(out, schema) as writer:
        for rows in _flat_rows(folder):
            for name, made in other.items():
                for row in rows:
                    row[name] = None if (value := row.get(name)) is None else made(value)
            # Not by way of pandas, which makes fractions of whole numbers where a record has none.
            writer.write_table(pa.Table.from_pylist(rows, schema=schema))


def _arrow_schema(folder: RunFolder) -> tuple[Any, dict[str, Callable[[Any], Any]]]:
    """One type a column over all records: what the first block leaves open, a later one may decide.

    With it what makes that type of the values of a column that has others, too.
    """
    import pyarrow as pa

    kinds: dict[str, set[type]] = {name: set() for name in _columns(folder)}
    for rows in _flat_rows(folder):
        for row in rows:
            for name, value in row.items():
                kinds[name].add(_kind(value))
    arrow: dict[frozenset[type], Any] = {
        frozenset({bool}): pa.bool_(),
        frozenset({int}): pa.int64(),
        frozenset({float}): pa.float64(),
        frozenset({int, float}): pa.float64(),
    }
    there = {name: frozenset(kind - {type(None)}) for name, kind in kinds.items()}
    made: dict[str, Callable[[Any], Any]] = {name: float for name, kind in there.items() if kind == {int, float}}
    made |= {name: _as_text for name, kind in there.items() if kind not in arrow and kind - {str}}
    return pa.schema([(name, arrow.get(kind, pa.string())) for name, kind in there.items()]), made


def _kind(value: Any) -> type:
    """The type of a value; of a whole number that Parquet has no room for, none of theirs."""
    return object if type(value) is int and not -_MOST_INT <= value < _MOST_INT else type(value)


def _as_text(value: Any) -> str:
    return value if isinstance(value, str) else canonical_json(value).decode()


# The records as they are in the run folder.


def write_jsonl(path: Path, folder: RunFolder, evaluator: object, options: object) -> None:
    """A copy of records.jsonl."""
    with records_of(folder).open("rb") as records, replacing(path) as out:
        shutil.copyfileobj(records, out)
