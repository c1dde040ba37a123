"""Data of a program as an evaluator's inputs: data frames, tables and records, each written once as a file."""

from __future__ import annotations

import contextlib
import csv
import datetime
import enum
import gzip
import hashlib
import json
import math
import tempfile
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from decimal import Decimal
from itertools import chain, islice
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import msgspec

from evalq.evalcore.contract.evaluator import Evaluator
from evalq.evalcore.errors import InputError, UsageError
from evalq.evalcore.files import write_atomic

__all__ = ["Given", "as_files"]

_BATCH = 10_000
_DEEPEST = 100
_MISSING = frozenset({"NaTType", "NAType"})
"""The names of pandas' types for a missing value, which is found without importing pandas."""


class Given(NamedTuple):
    """What a program gave, as files: the paths of the ``inputs``, the ``options``, and the ``scratch`` folder in which
    data became files ("": everything was a path already).
    """

    inputs: list[str]
    options: Mapping[str, Any] | None
    scratch: str = ""


@contextlib.contextmanager
def as_files(
    evaluator: Evaluator[Any, Any],
    inputs: Any,
    options: Mapping[str, Any] | None,
    limit: int | None = None,
    keep: Path | None = None,
) -> Iterator[Given]:
    """``inputs`` and the option ``outputs`` with a file in place of data, as long as the block runs.

    Data is a pandas or polars frame, a pyarrow table or record batch, one record (a mapping), or a list or an iterator
    of records; of an iterator at most ``limit`` are taken. The file of ``inputs`` stays in ``keep``, where that is
    given: a sweep reads its cases again. Raises UsageError for other things, and for values that JSON does not have;
    InputError for data without a record.
    """
    inputs = _peeked(inputs)
    many = _several(inputs)
    outputs = (options or {}).get("outputs")
    listed = list(outputs) if isinstance(outputs, list | tuple) else [outputs]
    data = _is_data(inputs) or any(map(_is_data, many))
    if not data and not _is_data(outputs) and not any(map(_is_data, listed)):
        yield Given(_paths(many), options)
        return
    with tempfile.TemporaryDirectory(prefix="evalq-") as scratch:
        folder = Path(scratch)
        named = [_written(evaluator, inputs if _is_data(inputs) else many, folder, limit)] if data else _paths(many)
        if data and keep is not None:
            named = [_kept(Path(named[0]), keep)]
        if options is not None and (_is_data(outputs) or any(map(_is_data, listed))):
            # With a mapping, evalq keeps a copy in the run folder, which outlasts this one.
            keys = options.get("map") or "case=case,output=output"
            options = {**options, "outputs": _outputs(outputs, listed, folder), "map": keys}
        yield Given(named, options, scratch)


def _peeked(inputs: Any) -> Any:
    """The inputs; an iterator of paths as their list, as of `Path.glob`."""
    if not isinstance(inputs, Iterator):
        return inputs
    first = next(inputs, None)
    if first is None:
        return []
    whole = chain([first], inputs)
    return whole if not isinstance(first, str | Path) else list(whole)


def _several(inputs: Any) -> Sequence[Any]:
    """The inputs as a list, of which one alone needs none; an iterator of records stays the only one."""
    if isinstance(inputs, str | Path) or _is_data(inputs) or not isinstance(inputs, Iterable):
        return [inputs]
    return list(inputs)


def _paths(given: Sequence[Any]) -> list[str]:
    for path in given:
        if not isinstance(path, str | Path):
            raise UsageError(f"inputs={path!r:.200}: a path, a data frame, a table, a record (a mapping), or a list")
    return [str(path) for path in given]


def _is_data(value: Any) -> bool:
    """Whether this is data, as far as its kind shows: of an iterator, whatever it gives."""
    return isinstance(value, Mapping | Iterator) or _is_table(value)


def _is_table(value: Any) -> bool:
    # By their methods: none of these packages is imported, or needed.
    if isinstance(value, type):
        return False
    pandas = hasattr(value, "to_dict") and hasattr(value, "columns")
    return (
        pandas
        or _is_lazy(value)
        or (hasattr(value, "to_pylist") and hasattr(value, "column_names"))
        or hasattr(value, "to_batches")
    )


def _is_lazy(value: Any) -> bool:
    """Whether the value is a plan whose rows are not there yet, as of polars or Spark."""
    # Of the type, since to ask the plan itself for its columns may compute it.
    return hasattr(type(value), "collect") and hasattr(type(value), "columns")


def _outputs(outputs: Any, listed: Sequence[Any], folder: Path) -> list[str]:
    """The files of recorded outputs: of a frame each, and of all records of a list or an iterator together."""
    if _is_data(outputs) or all(isinstance(each, Mapping) for each in listed):
        return [_lines(_rows(outputs if _is_data(outputs) else listed, "outputs"), folder / "frame.jsonl")]
    files = []
    for number, each in enumerate(listed, start=1):
        if isinstance(each, Mapping):
            raise UsageError("outputs: records and files in one list: give records alone, or files and frames")
        name = "frame.jsonl" if number == 1 else f"frame-{number}.jsonl"
        files.append(_lines(_rows(each, "outputs"), folder / name) if _is_data(each) else str(each))
    return files


def _written(evaluator: Evaluator[Any, Any], given: Any, folder: Path, limit: int | None) -> str:
    """The file with the records of ``given``, in the form that the evaluator reads."""
    if isinstance(given, list | tuple):
        if len(given) > 1 and not all(isinstance(each, Mapping) for each in given):
            raise UsageError("inputs: a list holds paths alone, or records alone; for several frames concatenate them")
        given = given[0] if _is_table(given[0]) else given
    name = evaluator.command.positional
    if name != "inputs":
        return _document(given, name, folder)
    rows = _rows(given, "inputs")
    if limit is not None:
        rows = islice(rows, limit)
    # Packed, so that the run folder gets a copy of its own, which outlasts this file.
    if evaluator.records.format == "csv":
        return _table(rows, folder / "data.csv.gz")
    return _lines(rows, folder / "data.jsonl.gz")


def _kept(file: Path, keep: Path) -> str:
    """The file, unpacked, under a name by its content: the same data is the same file."""
    data = gzip.decompress(file.read_bytes()) if file.suffix == ".gz" else file.read_bytes()
    kept = keep / hashlib.sha256(data).hexdigest()[:16] / file.name.removesuffix(".gz")
    kept.parent.mkdir(parents=True, exist_ok=True)
    write_atomic(kept, data)
    return str(kept)


def _document(value: Any, name: str, folder: Path) -> str:
    """The file of cases or of a golden set, which is one document: as given, or a list of cases."""
    if isinstance(value, Mapping) and ("cases" in value or name != "cases"):
        whole = _plain(value, name, _DEEPEST)
    elif name != "cases":
        raise UsageError(f"{name}: data for it is a mapping, as in its file")
    else:
        # A key without a value is a missing key: a case may not have null everywhere.
        rows = [{key: each for key, each in row.items() if each is not None} for row in _rows(value, name)]
        if not rows:
            raise InputError("no record given", [(name, "the data has no rows")])
        whole = {name: rows}
    path = folder / f"{name}.json"
    path.write_bytes(_ENCODE(whole))
    return str(path)


# -- records, row by row ---------------------------------------------------------------------------


def _rows(value: Any, name: str) -> Iterator[dict[str, Any]]:
    """The records of ``value``, with plain values; a missing value is None. Raises UsageError."""
    rows: Iterable[Any]
    if isinstance(value, Mapping):
        rows = [value]
    elif _is_table(value):
        rows = _table_rows(value, name)
    else:
        rows = value
    for number, row in enumerate(rows, start=1):
        where = f"{name}: record {number}"
        if not isinstance(row, Mapping):
            raise UsageError(f"{where}: {row!r:.100}: a record is a mapping of names to values")
        yield _plain(row, where, _DEEPEST)


def _table_rows(table: Any, name: str) -> Iterator[Mapping[Any, Any]]:
    if _is_lazy(table):
        raise UsageError(f"{name}: {type(table).__name__}: collect it into a frame first")
    columns = list(getattr(table, "column_names", None) or table.columns) if hasattr(table, "columns") else []
    odd = [each for each in columns if not isinstance(each, str)]
    if odd:
        raise UsageError(f"{name}: the column {odd[0]!r:.100}: names are texts; rename it, or give records")
    if doubled := next((each for number, each in enumerate(columns) if each in columns[:number]), None):
        raise UsageError(f"{name}: two columns are called {doubled!r:.100}: rename one of them")
    if hasattr(table, "iter_rows"):  # polars
        yield from table.iter_rows(named=True)
    elif hasattr(table, "to_batches"):  # a pyarrow table, or its dataset
        for batch in table.to_batches():
            for start in range(0, batch.num_rows, _BATCH):
                yield from batch.slice(start, _BATCH).to_pylist()
    elif hasattr(table, "to_pylist"):
        yield from table.to_pylist()
    elif hasattr(table, "iloc"):
        # Some rows at a time: as dictionaries they take ten times the memory of the frame.
        for start in range(0, len(table), _BATCH):
            yield from table.iloc[start : start + _BATCH].to_dict("records")
    else:
        raise UsageError(f"{name}: {type(table).__name__}: no frame or table that evalq knows: give its records")


def _plain(value: Any, where: str, deepest: int) -> Any:
    """A value as JSON has it. Raises UsageError for one that JSON does not have."""
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, float):
        if math.isinf(value):
            raise UsageError(f"{where}: {value}: JSON has no infinite number; replace it")
        return None if math.isnan(value) else value
    if isinstance(value, Mapping):
        return _plain_mapping(value, where, deepest)
    if isinstance(value, list | tuple):
        if not deepest:
            raise UsageError(f"{where}: nested more than {_DEEPEST} deep, or in itself")
        return [_plain(each, f"{where}[{number}]", deepest - 1) for number, each in enumerate(value)]
    return _plain_other(value, where, deepest)


def _plain_mapping(value: Mapping[Any, Any], where: str, deepest: int) -> dict[str, Any]:
    if not deepest:
        raise UsageError(f"{where}: nested more than {_DEEPEST} deep, or in itself")
    plain = {}
    for key, each in value.items():
        if not isinstance(key, str):
            raise UsageError(f"{where}: the key {key!r:.100}: names are texts")
        plain[str.__str__(key)] = _plain(each, f"{where}: {key!r:.60}", deepest - 1)
    return plain


def _plain_other(value: Any, where: str, deepest: int) -> Any:
    if type(value).__name__ in _MISSING:
        return None
    if isinstance(value, Decimal):
        if value.is_infinite():
            raise UsageError(f"{where}: {value}: JSON has no infinite number; replace it")
        return None if value.is_nan() else str(value)  # with all of its digits, which a number of JSON may lose
    if isinstance(value, datetime.date | datetime.time):
        return value.isoformat()
    if isinstance(value, datetime.timedelta | uuid.UUID):
        return msgspec.to_builtins(value)
    if isinstance(value, enum.Enum):
        return _plain(value.value, where, deepest)
    if isinstance(value, Path):
        return str(value)
    kind = type(value).__name__
    if kind in ("datetime64", "timedelta64"):  # of numpy: `item` may be a whole number of nanoseconds
        return None if str(value) == "NaT" else str(value)
    if hasattr(value, "dtype") and hasattr(value, "tolist"):  # numpy's other numbers, and its arrays
        return _plain(value.tolist(), where, deepest - 1)
    why = "a set has no order; make it a list" if isinstance(value, set | frozenset) else "JSON has no such value"
    if isinstance(value, bytes | bytearray):
        why = "JSON has no bytes; decode them"
    raise UsageError(f"{where}: {kind}: {why}")


# -- files ------------------------------------------------------------------------------------------

_ENCODE = msgspec.json.Encoder().encode


@contextlib.contextmanager
def _packed(path: Path) -> Iterator[BinaryIO]:
    with path.open("wb") as raw:
        if path.suffix != ".gz":
            yield raw
            return
        # Without a time in it, and as good as unpacked: it is read once, a moment later.
        with gzip.GzipFile("", "wb", 1, raw, mtime=0) as out:
            yield out  # type: ignore[misc]  # it writes bytes as any stream does


def _lines(rows: Iterator[dict[str, Any]], path: Path) -> str:
    """The file with a line of JSON for each record. Raises InputError without any."""
    first = _first(rows)
    with _packed(path) as out:
        for number, row in enumerate(chain([first], rows), start=1):
            try:
                out.write(_ENCODE(row) + b"\n")
            except (UnicodeEncodeError, OverflowError, ValueError) as error:
                raise UsageError(f"record {number}: {error}") from None
    return str(path)


def _table(rows: Iterator[dict[str, Any]], path: Path) -> str:
    """The CSV with a row for each record. Raises InputError without any, UsageError for one with a column more."""
    first = _first(rows)
    columns = list(first)
    with _packed(path) as out:
        for number, row in enumerate(chain([first], rows), start=1):
            if more := next((key for key in row if key not in first), None):
                raise UsageError(f"record {number} has {more!r:.60}, which the first one has not: a CSV has one header")
            try:
                if number == 1:
                    out.write(_csv_line(columns))
                out.write(_csv_line([row.get(key) for key in columns]))
            except UnicodeEncodeError as error:
                raise UsageError(f"record {number}: {error}") from None
    return str(path)


class _CsvLine:
    """A stream of one line, for Python's writer of CSV."""

    text = ""

    def write(self, text: str) -> None:
        self.text = text


def _csv_line(cells: Sequence[Any]) -> bytes:
    line = _CsvLine()
    csv.writer(line).writerow([_cell(each) for each in cells])
    return line.text.encode()


def _cell(value: Any) -> str:
    """The text of a cell: empty for a missing value, and JSON for a list, an object or a truth value."""
    if value is None:
        return ""
    if isinstance(value, str):
        return value
    if isinstance(value, bool | list | dict):
        return json.dumps(value, ensure_ascii=False, default=str)
    return str(value)


def _first(rows: Iterator[dict[str, Any]]) -> dict[str, Any]:
    first = next(rows, None)
    if first is None:
        raise InputError("no record given", [("data", "it has no rows")])
    return first
