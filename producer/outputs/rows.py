"""The records of a finished run as the rows of a table."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import msgspec

from evalq.evalcore.errors import UsageError
from evalq.evalcore.model.canonical import canonical_json
from evalq.producer.folder.run_folder import RunFolder

__all__ = ["columns", "flat_rows", "records_of"]

_ROWS_AT_ONCE = 20_000


def records_of(folder: RunFolder) -> Path:
    """records.jsonl. Raises UsageError where the folder has the report alone of a run that another command computed."""
    if folder.reported and not folder.records.is_file():
        raise UsageError(
            f"{folder.path}: only the report is here; the records are in the folder of the command that computed it"
        )
    return folder.records


def columns(folder: RunFolder) -> list[str]:
    """Every key of every record, in the order they are first seen."""
    return list(dict.fromkeys(key for rows in flat_rows(folder) for row in rows for key in row))


def flat_rows(folder: RunFolder) -> Iterator[list[dict[str, Any]]]:
    """Records in blocks, nested values as JSON text."""
    with records_of(folder).open("rb") as stream:
        lines = iter(stream)
        while block := list(islice(lines, _ROWS_AT_ONCE)):
            yield [_flat(msgspec.json.decode(line)) for line in block]


def _flat(record: dict[str, Any]) -> dict[str, Any]:
    return {
        key: canonical_json(value).decode() if isinstance(value, dict | list) else value
        for key, value in record.items()
    }
