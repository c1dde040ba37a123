"""The records as a Parquet table."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from evalq.evalcore.errors import UsageError
from evalq.evalcore.files import replacing
from evalq.evalcore.model.canonical import canonical_json
from evalq.producer.folder.run_folder import RunFolder
from evalq.producer.outputs.rows import columns, flat_rows

__all__ = ["check", "write"]

_MOST = 1 << 63


def check(path: Path) -> None:
    """Raise UsageError for want of a package."""
    if find_spec("pyarrow") is None:
        raise UsageError(f"-o {path}: Parquet needs pyarrow: pip install 'evalq[parquet]'")


def write(path: Path, folder: RunFolder, evaluator: Any, options: Mapping[str, Any]) -> None:
    """A row a record, one type a column, nested values as JSON text; so are all of a column without one type."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    schema, other = _arrow_schema(folder)
    with replacing(path) as out, pq.ParquetWriter(out, schema) as writer:
        for rows in flat_rows(folder):
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

    kinds: dict[str, set[type]] = {name: set() for name in columns(folder)}
    for rows in flat_rows(folder):
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
    made |= {name: _text for name, kind in there.items() if kind not in arrow and kind - {str}}
    return pa.schema([(name, arrow.get(kind, pa.string())) for name, kind in there.items()]), made


def _kind(value: Any) -> type:
    """The type of a value; of a whole number that Parquet has no room for, none of theirs."""
    return object if type(value) is int and not -_MOST <= value < _MOST else type(value)


def _text(value: Any) -> str:
    return value if isinstance(value, str) else canonical_json(value).decode()
