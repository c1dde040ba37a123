"""The records as a Parquet table."""

from __future__ import annotations

from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from evalq.evalcore.errors import UsageError
from evalq.evalcore.files import replacing
from evalq.producer.folder.run_folder import RunFolder
from evalq.producer.outputs.rows import columns, flat_rows

__all__ = ["check", "write"]


def check(path: Path) -> None:
    """Raise UsageError for want of a package."""
    if find_spec("pyarrow") is None:
        raise UsageError(f"-o {path}: Parquet needs pyarrow: pip install 'evalq[parquet]'")


def write(path: Path, folder: RunFolder, evaluator: Any, options: Mapping[str, Any]) -> None:
    """A row a record, one type a column, nested values as JSON text."""
    import pandas as pd
    import pyarrow as pa
    import pyarrow.parquet as pq

    schema: Any = _arrow_schema(folder)
    with replacing(path) as out, pq.ParquetWriter(out, schema) as writer:
        for rows in flat_rows(folder):
            frame = pd.DataFrame(rows, columns=schema.names)
            writer.write_table(pa.Table.from_pandas(frame, schema=schema, preserve_index=False))


def _arrow_schema(folder: RunFolder) -> Any:
    """One type a column over all records: what the first block leaves open, a later one may decide."""
    import pyarrow as pa

    kinds: dict[str, set[type]] = {name: set() for name in columns(folder)}
    for rows in flat_rows(folder):
        for row in rows:
            for name, value in row.items():
                kinds[name].add(type(value))
    arrow: dict[frozenset[type], Any] = {
        frozenset({bool}): pa.bool_(),
        frozenset({int}): pa.int64(),
        frozenset({float}): pa.float64(),
        frozenset({int, float}): pa.float64(),
    }
    fields = [(name, arrow.get(frozenset(kind - {type(None)}), pa.string())) for name, kind in kinds.items()]
    return pa.schema(fields)
