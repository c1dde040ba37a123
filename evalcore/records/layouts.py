"""Recorded outputs in any layout: CSV, Parquet, a JSON list or JSONL with other keys, as the lines that are evaluated.

Every record becomes the line with the number of the record in its file, so that a message names the place in the file
of the user. A row of a CSV that has several lines is followed by as many blank ones, which no evaluator reads.
"""

from __future__ import annotations

import csv
import json
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Any, Literal

import msgspec

from evalq.evalcore.errors import InputError, UsageError
from evalq.evalcore.files import open_input, replacing
from evalq.evalcore.model.manifest import BOM, MAX_RECORD_BYTES
from evalq.evalcore.naming import kind_of, shorten
from evalq.evalcore.records.batch import csv_fault, not_utf8
from evalq.evalcore.records.inputs import (
    CELL_UNITS,
    HEAD_BYTES,
    MAX_UNPACKED_BYTES,
    PACKED,
    Layout,
    Source,
    discover,
    excel_changed,
    file_encoding,
    file_kind,
    fills_cell,
    format_suffixes,
    unpacked,
)
from evalq.evalcore.records.json_values import Malformed, decode

Kind = Literal["text", "whole", "number", "json", "any"]
"""What a key of a line holds: text, a whole number, a number, JSON, or text that may stand for JSON."""

WHOLE = "*"
"""A key of ``fields`` that keeps all keys of a record, for a reader that takes any of them."""
NO_RECORD = "no record: "
"""Begins the text that stands for a record of such a reader that cannot be read, and says why."""
_MOST_JSON_BYTES = 256 << 20
SHOWN_KEYS = 20
_BATCH_ROWS = 2_000


# The option --map: case=qid,output=response.text.


def mapped_keys(given: Any, fields: Mapping[str, Kind]) -> dict[str, str]:
    """{key of a line: path in a record} of ``--map``; ``fields`` are the keys that a line may have.

    Raises UsageError.
    """
    texts = [given] if isinstance(given, str) else list(given or ())
    keys: dict[str, str] = {}
    for part in (part.strip() for text in texts for part in str(text).split(",")):
        key, sign, path = (each.strip() for each in part.partition("="))
        if not sign or not key or not path:
            one_of = "" if WHOLE in fields else f" (KEY is one of {', '.join(fields)})"
            raise UsageError(
                f"--map {shorten(part)!r}: KEY=PATH is needed, for example case=qid,output=response.text{one_of}"
            )
        if key not in fields and WHOLE not in fields:
            meant = f"; did you mean {path}={key}?" if path in fields else ""
            raise UsageError(
                f"--map {shorten(part)!r}: evalq has no key {shorten(key)!r}{meant} (keys: {', '.join(fields)})"
            )
        if keys.get(key, path) != path:
            raise UsageError(f"--map: {key} is mapped twice, to {keys[key]!r} and to {path!r}: give it once")
        keys[key] = path
    return keys


def laid_out(source: Source, keys: Mapping[str, str]) -> Source:
    """``source`` with its layout, if its records are not yet the lines that are evaluated."""
    if source.members:
        if keys:
            raise UsageError(
                f"--map is for files of many records; {source.given} is a folder of files with one output each"
            )
        return source
    form = _form(source)
    if form == "jsonl" and not keys:
        return source
    return msgspec.structs.replace(source, layout=Layout(form, tuple(keys.items())))


def _form(source: Source) -> Literal["jsonl", "json", "csv", "tsv", "parquet"]:
    name = source.path.lower()
    for packing in PACKED:
        name = name.removesuffix(packing)
    if name.endswith((".csv", ".tsv")):
        return "csv" if name.endswith(".csv") else "tsv"
    if name.endswith((".parquet", ".pq")):
        return "parquet"
    if name.endswith(".json") and _begins_list(source.path):
        return "json"
    return "jsonl"


def _begins_list(path: str) -> bool:
    try:
        if path.endswith(PACKED):
            return True  # read as a list, or else as lines
        with open_input(path) as stream:
            return stream.read(HEAD_BYTES).removeprefix(BOM).lstrip().startswith(b"[")
    except OSError:
        return False  # whoever reads it says why


# Records of a file, each with the line that it begins on.

Record = tuple[int, Any]
"""(line, record): a mapping, or a text that says why there is none."""


def converted(source: Source, fields: Mapping[str, Kind], most: int) -> Iterator[bytes]:
    """The lines of ``source``, blank ones included; at most ``most`` bytes are unpacked. Raises InputError."""
    layout = source.layout
    assert layout is not None, "plain lines are read as they are"
    keys, at = dict(layout.keys), 1
    line_of = _Lines(fields, keys, text=layout.form in ("csv", "tsv")).line
    for line, record in records_of(source, layout, keys, fields, most):
        # So that line n of the result is record n of the file, or the row that begins on its line n.
        yield b"\n" * (line - at) + line_of(record) + b"\n"
        at = line + 1


def records_of(
    source: Source, layout: Layout, keys: Mapping[str, str], fields: Mapping[str, Kind], most: int
) -> Iterator[Record]:
    if layout.form == "parquet":
        return _parquet_rows(source, keys, fields)
    if layout.form in ("csv", "tsv"):
        return _table_rows(source, layout.form, keys, fields, most)
    if layout.form == "json":
        return _listed(source, most)
    return _json_lines(source, most)


def _raw_lines(source: Source, most: int) -> Iterator[bytes]:
    """The lines of a file, unpacked, with their ends."""
    if source.path.endswith(PACKED):
        rest = b""
        for piece in unpacked(source.path, source.given, most):
            *whole, rest = (rest + piece).split(b"\n")
            yield from (line + b"\n" for line in whole)
        if rest:
            yield rest
        return
    with open_input(source.path) as stream:
        yield from stream


def _json_lines(source: Source, most: int) -> Iterator[Record]:
    for number, line in enumerate(_raw_lines(source, most), start=1):
        data = line.removeprefix(BOM) if number == 1 else line
        if number == 1 and (encoding := file_encoding(data[:HEAD_BYTES])):
            raise InputError(f"{source.name} is no JSONL in UTF-8", [(f"{source.name}:1", encoding)])
        if data and not data.isspace():
            yield number, _decoded(data.rstrip(b"\r\n"))


def _decoded(data: bytes) -> Any:
    try:
        return decode(data)
    except Malformed as error:
        return str(error)


def _listed(source: Source, most: int) -> Iterator[Record]:
    """The entries of a JSON list; the whole of it is in memory."""
    data = b"".join(_limited(source, most)).removeprefix(BOM)
    try:
        entries = decode(data)
    except Malformed as error:
        raise InputError(
            f"{source.name} is no JSON list", [(f"{source.name}:1", f"{error}; JSONL has one object on each line")]
        ) from None
    if not isinstance(entries, list):
        entries = [entries]
    yield from enumerate(entries, start=1)


def _limited(source: Source, most: int) -> Iterator[bytes]:
    total = 0
    for line in _raw_lines(source, most):
        total += len(line)
        if total > _MOST_JSON_BYTES:
            reason = f"a JSON list longer than {_MOST_JSON_BYTES >> 20} MiB: write JSONL, one object on each line"
            raise InputError(f"{source.name} is too long", [(f"{source.name}:1", reason)])
        yield line


# CSV: rows of text.


def _table_rows(
    source: Source, form: str, keys: Mapping[str, str], fields: Mapping[str, Kind], most: int
) -> Iterator[Record]:
    """The rows of a table. Raises InputError that lists the first rows that are no CSV in UTF-8."""
    csv.field_size_limit(MAX_RECORD_BYTES)
    texts = _TableText(source, most)
    reader = csv.reader(texts, delimiter="\t" if form == "tsv" else ",", strict=True)
    columns: list[str] = []
    before = 0
    while True:
        try:
            row = next(reader)
        except StopIteration:
            return
        except csv.Error as error:
            if not columns:
                texts.refuse_kind(form)
            # The parser cannot find the next row behind broken quoting.
            where = f"{source.name}:{before + 1}"
            raise InputError(f"{source.name} is not valid CSV", [(where, f"not CSV: {csv_fault(error)}")]) from None
        line, before = before + 1, reader.line_num
        if not any(map(str.strip, row)):
            continue
        if not columns:
            columns = _checked_columns([name.strip() for name in row], source, line, keys, fields, texts, form)
        elif len(row) != len(columns):
            yield (
                line,
                f"{len(row)} fields where the header has {len(columns)}: is the delimiter or the quoting broken?",
            )
        else:
            yield line, dict(zip(columns, row, strict=True))


class _TableText:
    """The lines of a table as text. Raises InputError at the first that is not UTF-8."""

    def __init__(self, source: Source, most: int) -> None:
        self._source = source
        self._lines = _raw_lines(source, most)
        self._number = 0
        self._head = b""

    def __iter__(self) -> Iterator[str]:
        for number, line in enumerate(self._lines, start=1):
            data = line.removeprefix(BOM) if number == 1 else line
            if number == 1:
                self._head = line
            try:
                yield data.decode()
            except UnicodeDecodeError as error:
                if number == 1 and (kind := file_kind(line[:HEAD_BYTES])):
                    raise self._refused(kind) from None
                where, why = f"{self._source.name}:{number}", not_utf8(data, error.start)
                raise InputError(f"{self._source.name} is no text in UTF-8", [(where, why)]) from None

    def refuse_kind(self, form: str) -> None:
        """Raise InputError if the file is of another kind, such as a workbook."""
        kind = file_kind(self._head[:HEAD_BYTES])
        if kind and not (form == "tsv" and "tabs" in kind):
            raise self._refused(kind)

    def _refused(self, kind: str) -> InputError:
        return InputError(f"{self._source.name} is no CSV in UTF-8", [(f"{self._source.name}:1", kind)])


def _checked_columns(
    columns: list[str],
    source: Source,
    line: int,
    keys: Mapping[str, str],
    fields: Mapping[str, Kind],
    texts: _TableText,
    form: str,
) -> list[str]:
    read = [keys.get(name, name) for name in fields]
    if not any(_in_columns(path, columns) for path in read):
        texts.refuse_kind(form)
    twice = [name for name, count in Counter(columns).items() if count > 1 and (name in read or WHOLE in fields)]
    if twice:
        reason = f"two columns are called {twice[0]!r}: rename one"
        raise InputError(f"{source.name} is ambiguous", [(f"{source.name}:{line}", reason)])
    _refuse_missing(keys, columns, source, line)
    return columns


def _in_columns(path: str, columns: Sequence[str]) -> bool:
    return path in columns or path.partition(".")[0] in columns


def _refuse_missing(keys: Mapping[str, str], columns: Sequence[str], source: Source, line: int) -> None:
    """Raise InputError if ``--map`` names a column that a table does not have."""
    for key, path in keys.items():
        if not _in_columns(path, columns):
            near = next((name for name in columns if name.casefold() == path.casefold()), "")
            meant = f"; did you mean {near!r}?" if near else ""
            listed = ", ".join(repr(shorten(name, 40)) for name in columns[:SHOWN_KEYS])
            reason = f"--map {key}={path}: there is no column {path!r}{meant} (columns: {listed})"
            raise InputError(f"{source.name} lacks a column", [(f"{source.name}:{line}", reason)])


# Parquet: rows of typed values.


def _parquet_rows(source: Source, keys: Mapping[str, str], fields: Mapping[str, Kind]) -> Iterator[Record]:
    try:
        import pyarrow
        import pyarrow.parquet as pq
    except ImportError:
        raise InputError(
            f"{source.name} cannot be read",
            [(source.given, "reading Parquet needs pyarrow: pip install 'evalq[parquet]', or write the file as CSV")],
        ) from None
    if source.path.endswith(PACKED):
        raise InputError(f"{source.name} cannot be read", [(source.given, "packed Parquet: unpack it first")])
    try:
        with open_input(source.path) as stream:
            file = pq.ParquetFile(stream)
            names = list(file.schema_arrow.names)
            _refuse_missing(keys, names, source, 1)
            wanted = {path if path in names else path.partition(".")[0] for path in (keys.get(f, f) for f in fields)}
            # Without a column that is read, all of them: the message then shows which there are.
            columns = names if WHOLE in fields else [name for name in names if name in wanted] or names
            row = 0
            for batch in file.iter_batches(_BATCH_ROWS, columns=columns):
                for record in batch.to_pylist():
                    row += 1
                    yield row, record
    except (pyarrow.ArrowException, OSError) as error:
        raise InputError(
            f"{source.name} is no readable Parquet file",
            [(source.given, shorten(str(error).partition(chr(10))[0], 200))],
        ) from None


# A record as a line.


class _Lines:
    """Makes the line of a record; ``text``: all its values are texts, as in a CSV."""

    def __init__(self, fields: Mapping[str, Kind], keys: Mapping[str, str], text: bool) -> None:
        self._fields = [(name, kind, keys.get(name, name), name in keys) for name, kind in fields.items()]
        self._kinds, self._keys, self._whole = fields, keys, WHOLE in fields
        self._text = text
        self._encode = msgspec.json.Encoder(enc_hook=str).encode

    def line(self, record: Any) -> bytes:
        """The line of ``record``."""
        try:
            return self._encode(self._whole_record(record) if self._whole else self.values(record))
        except (UnicodeEncodeError, ValueError, TypeError, RecursionError) as error:
            why = f"not plain data: {shorten(ascii(str(error)), 200)}"
            return self._encode(f"{NO_RECORD}{why}" if self._whole else {"error": why})

    def _whole_record(self, record: Any) -> dict[str, Any] | str:
        """The record with all its keys, and the mapped ones; a text that says why there is none."""
        if not isinstance(record, dict):
            return NO_RECORD + (record if isinstance(record, str) else f"it is {kind_of(record)}, not an object")
        made = {str(key): self._plain(str(key), value) for key, value in record.items()}
        missing = []
        for name, path in self._keys.items():
            value = record[path] if path in record else found_at(record, path)
            if value is MISSING:
                missing.append(f"{name}={path}")
            else:
                made[name] = self._plain(name, value)
                if name == "case" and "id" in made:
                    made["id"] = made[name]  # else the record's own id would name its case
        if missing:
            there = ", ".join(shorten(str(key), 40) for key in islice(record, SHOWN_KEYS))
            return f"{NO_RECORD}--map {', '.join(missing)}: not in it (keys: {there})"
        for key, value in made.items() if self._text else ():
            if isinstance(value, str) and fills_cell(value):
                return f"{NO_RECORD}{shorten(key)}: {_CUT}"
        return made

    def _plain(self, name: str, value: Any) -> Any:
        kind = self._kinds.get(name, "text")
        if value is None or value != value:  # NaN is the null of a data frame
            return None
        value = _of_cell(value, kind) if self._text else value
        return as_id(value) if name == "case" else _whole(value) if kind == "whole" else value

    def values(self, record: Any) -> dict[str, Any]:
        """The values of its line; without a record, an ``error`` that says why."""
        if not isinstance(record, dict):
            why = record if isinstance(record, str) else f"the record is {kind_of(record)}, not an object"
            return {"error": why}
        made: dict[str, Any] = {}
        missing: list[str] = []
        for name, kind, path, mapped in self._fields:
            value = record[path] if path in record else found_at(record, path) if mapped else MISSING
            if value is MISSING:
                missing += [f"{name}={path}"] if mapped else []
            elif self._text and value == "" and name != "output":
                continue  # an empty cell is no value
            elif (value is None or value != value) and name != "output":  # NaN is the null of a data frame
                continue
            else:
                value = _of_cell(value, kind) if self._text else value
                made[name] = as_id(value) if name == "case" else _whole(value) if kind == "whole" else value
        if missing and not {"output", "error"} & made.keys():
            there = ", ".join(shorten(str(key), 40) for key in islice(record, SHOWN_KEYS))
            made["error"] = f"--map {', '.join(missing)}: not in this record (keys: {there})"
        output = made.get("output")
        if self._text and isinstance(output, str) and output[:1] == "#" and (changed := excel_changed(output)):
            made["error"] = changed
        if self._text and isinstance(output, str) and fills_cell(output):
            made["error"] = f"the answer has {_CUT}"
        return made


_CUT = (
    f"{CELL_UNITS:,} characters, the most that Excel keeps of a cell, "
    "which cuts the rest: export the file without Excel"
)
MISSING: Any = object()


def found_at(record: Any, path: str) -> Any:
    """The value at a path such as ``choices.0.message.content``; JSON in a text on the way is read."""
    value = record
    for part in path.split("."):
        if isinstance(value, str) and value[:1] in ("{", "["):
            value = _decoded(value.encode("utf-8", "replace"))
        if isinstance(value, dict) and part in value:
            value = value[part]
        elif isinstance(value, list) and part.isdecimal() and int(part) < len(value):
            value = value[int(part)]
        else:
            return MISSING
    return value


def _of_cell(value: Any, kind: Kind) -> Any:
    """The value of a cell of a CSV: a number or JSON where the key holds one, and the text where it is none."""
    if not isinstance(value, str) or kind == "text":
        return value
    if kind in ("whole", "number"):
        try:
            return int(value) if re.fullmatch(r"\s*[+-]?\d{1,15}\s*", value) else float(value)
        except ValueError:
            return value
    if kind == "json" or value.lstrip()[:1] in ("{", "["):
        try:
            return json.loads(value) if kind == "json" else value
        except (ValueError, RecursionError):
            return value
    return value


def as_id(value: Any) -> Any:
    """Names of cases are texts: 17 and 17.0 are "17"."""
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    return str(value) if type(value) is int else value


def _whole(value: Any) -> Any:
    return int(value) if isinstance(value, float) and value.is_integer() and abs(value) < 1 << 53 else value


# Files of recorded outputs as inputs.


def recorded_sources(
    given: Sequence[str], option: Any, fields: Mapping[str, Kind], gathers: Sequence[str] = ()
) -> list[Source]:
    """The inputs that ``given`` names, each with its layout; ``option`` is the value of ``--map``.

    Raises InputError, UsageError.
    """
    keys = mapped_keys(option, fields)
    return [laid_out(source, keys) for source in discover(given, format_suffixes("jsonl"), gathers)]


def convert(source: Source, folder: Path, fields: Mapping[str, Kind], most: int = MAX_UNPACKED_BYTES) -> Source:
    """Write the lines of ``source`` into ``folder``, and return the file that has them. Raises InputError, OSError."""
    folder.mkdir(parents=True, exist_ok=True)
    target = folder / source.name
    with replacing(target) as out:
        out.writelines(converted(source, fields, most))
    return msgspec.structs.replace(source, path=str(target), layout=None)


def read_recorded(
    source: Source, fields: Mapping[str, Kind], most: int = MAX_UNPACKED_BYTES
) -> Iterator[tuple[int, dict[str, Any]]]:
    """(line, object) of each record of a file that can be read, as it is evaluated. Raises InputError."""
    if source.layout is None:
        records = _json_lines(source, most)
        yield from ((line, record) for line, record in records if isinstance(record, dict))
        return
    lines = _Lines(fields, dict(source.layout.keys), text=source.layout.form in ("csv", "tsv"))
    for line, record in records_of(source, source.layout, dict(source.layout.keys), fields, most):
        yield line, lines.values(record)
