"""The records of a finished run as the rows of a table."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import msgspec

from evalq.evalcore.errors import UsageError, WireError
from evalq.evalcore.files import open_input
from evalq.evalcore.model.canonical import canonical_json
from evalq.producer.folder.files import RECORDS
from evalq.producer.folder.run_folder import RunFolder

__all__ = ["columns", "flat_rows", "records_of"]

_ROWS_AT_ONCE = 20_000
_KEPT, _MOST_KEPT = 1024, 4096


def records_of(folder: RunFolder) -> Path:
    """records.jsonl. Raises UsageError where the folder has the report alone of a run that another command computed."""
    if folder.reported and not folder.records.is_file():
        raise UsageError(
            f"{folder.path}: only the report is here; the records are in the folder of the command that computed it"
        )
    return folder.own(RECORDS)


def columns(folder: RunFolder) -> list[str]:
    """Every key of every record, in the order they are first seen."""
    # Few records have other keys than the one before.
    kinds = dict.fromkeys(map(tuple, _records(folder, msgspec.json.Decoder(dict[str, msgspec.Raw]).decode)))
    return list(dict.fromkeys(key for keys in kinds for key in keys))


def flat_rows(folder: RunFolder) -> Iterator[list[dict[str, Any]]]:
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
                if len(self._kept) >= _KEPT:
                    self._kept.clear()
                self._kept[plain] = text
        return text
