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
    """records.jsonl. Raises UsageError if the folder has only the report, since another command computed the run."""
    if folder.reported and not folder.records.is_file():
        raise UsageError(
            f"{folder.path}: only the report is here; the records are in the folder of the command that computed it"
        )
    return folder.own(RECORDS)


def _columns(folder: RunFolder) -> list[str]:
    """Every key of every record, in the order they are first seen."""
    # Most records have the same keys.
    kinds = dict.fromkeys(map(tuple, _records(folder, msgspec.json.Decoder(dict[str, msgspec.Raw]).decode)))
    return list(dict.fromkeys(key for keys in kinds for key in keys))


def _flat_rows(folder: RunFolder) -> Iterator[list[dict[str, Any]]]:
    """Records in blocks, nested values as JSON text."""
    text, records = _Texts(), _records(folder, msgspec.json.decode)
    while block := list(islice(records, _ROWS_AT_ONCE)):
        yield [_flat(record, text) for record in block]


def _records(folder: RunFolder, decode: Callable[[bytes], Any]) -> Iterator[Any]:
    """The decoded lines. Raises WireError for a damaged one."""
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
    """Nested values as canonical JSON, with a cache, since many records have the same values."""

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


# The records as CSV; .excel.csv is for Excel.

_EXCEL = ".excel.csv"
"""This format begins with a byte order mark for Excel; other readers would add it to the first column's name."""
_CSV_ENDING = "\r\n"
"""The line ending for Python's `csv`, so that it quotes a cell with a carriage return."""
_FORMULA = ("=", "+", "-", "@", "\t", "\r", "\n", "＝", "＋", "－", "＠")


def write_csv(path: Path, folder: RunFolder, evaluator: object, options: object) -> None:
    """One line a record, nested values as JSON text, without formulas for a spreadsheet."""
    names = _columns(folder)
    with replacing(path) as out:
        if path.name.endswith(_EXCEL):
            out.write(BOM)
        # Without pandas, which turns integers into floats if a record lacks one.
        table = csv.writer(_LineFeeds(out), lineterminator=_CSV_ENDING)
        for number, rows in enumerate(_flat_rows(folder)):
            if number == 0:
                table.writerow([_escape_formula(name) for name in names])
            table.writerows([_escape_formula(row.get(name)) for name in names] for row in rows)


class _LineFeeds:
    """Writes each line to ``out`` with a line feed at its end."""

    def __init__(self, out: BinaryIO) -> None:
        self._out = out

    def write(self, line: str) -> None:
        """Write one whole line of Python's `csv`."""
        self._out.write(line.removesuffix(_CSV_ENDING).encode() + b"\n")


def _escape_formula(value: Any) -> Any:
    """Put an apostrophe before text that a spreadsheet would run."""
    return "'" + value if isinstance(value, str) and value.startswith(_FORMULA) else value


# The records as a Parquet table.

_MOST_INT = 1 << 63


def check_parquet(path: Path) -> None:
    """Raise UsageError without pyarrow."""
    if find_spec("pyarrow") is None:
        raise UsageError(f"-o {path}: Parquet needs pyarrow: pip install 'evalq[parquet]'")


def write_parquet(path: Path, folder: RunFolder, evaluator: object, options: object) -> None:
    """One row a record; nested values, and all values of a column with several types, are JSON text."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    schema, other = _arrow_schema(folder)
    with replacing(path) as out, pq.ParquetWriter(out, schema) as writer:
        for rows in _flat_rows(folder):
            for name, made in other.items():
                for row in rows:
                    row[name] = None if (value := row.get(name)) is None else made(value)
            # Without pandas, which turns integers into floats if a record lacks one.
            writer.write_table(pa.Table.from_pylist(rows, schema=schema))


def _arrow_schema(folder: RunFolder) -> tuple[Any, dict[str, Callable[[Any], Any]]]:
    """The schema, with one type a column over all records, and converters for columns with several types."""
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
    types = {name: frozenset(kind - {type(None)}) for name, kind in kinds.items()}
    made: dict[str, Callable[[Any], Any]] = {name: float for name, kind in types.items() if kind == {int, float}}
    made |= {name: _as_text for name, kind in types.items() if kind not in arrow and kind - {str}}
    return pa.schema([(name, arrow.get(kind, pa.string())) for name, kind in types.items()]), made


def _kind(value: Any) -> type:
    """The type of a value; `object` for an integer that does not fit into Parquet's."""
    return object if type(value) is int and not -_MOST_INT <= value < _MOST_INT else type(value)


def _as_text(value: Any) -> str:
    return value if isinstance(value, str) else canonical_json(value).decode()


# The records as they are in the run folder.


def write_jsonl(path: Path, folder: RunFolder, evaluator: object, options: object) -> None:
    """A copy of records.jsonl."""
    with records_of(folder).open("rb") as records, replacing(path) as out:
        shutil.copyfileobj(records, out)
