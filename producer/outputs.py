"""Writing what a finished run shows: the files of its folder, and those asked for with -o, by their suffix."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator, Mapping
from importlib.util import find_spec
from itertools import islice
from pathlib import Path
from typing import Any

import msgspec
import yaml

from evalq.evalcore.contract.evaluator import Evaluator, Request
from evalq.evalcore.errors import StorageError, UsageError
from evalq.evalcore.files import replacing, write_atomic
from evalq.evalcore.model.canonical import Json, canonical_json
from evalq.evalcore.model.span import BOM
from evalq.evalcore.views.markdown import visible
from evalq.producer.folder.job import Job
from evalq.producer.folder.run_folder import RunFolder

__all__ = ["check_output", "records_of", "render", "write_final", "write_output", "write_report"]

_ROWS_AT_ONCE = 20_000
_EXCEL = ".excel.csv"
"""Begins with the mark by which Excel knows UTF-8; other readers take it for a part of the first column's name."""
_FORMULA = ("=", "+", "-", "@", "\t", "\r", "\n", "＝", "＋", "－", "＠")


def render(
    fmt: str,
    evaluator: Evaluator[Any, Any],
    report: Mapping[str, Json],
    options: Mapping[str, Any],
    timestamp: str = "",
) -> str:
    """The report as text: markdown, json or yaml; empty for none.

    With a ``timestamp`` json and yaml are in the form that the evaluator's specification has for results.
    """
    if timestamp and fmt in ("json", "yaml"):
        document = evaluator.views.document(report, timestamp)
        if document != report:
            return _plain(fmt, document)
    if fmt == "markdown":
        return visible(evaluator.views.markdown(report, options))
    if fmt == "json":
        return canonical_json(report).decode() + "\n"
    if fmt == "yaml":
        return yaml.safe_dump(dict(report), allow_unicode=True, sort_keys=True)
    return ""


def _plain(fmt: str, document: Json) -> str:
    """A document in its own order."""
    if fmt == "yaml":
        return yaml.safe_dump(document, allow_unicode=True, sort_keys=False)
    return json.dumps(document, ensure_ascii=False, indent=2, allow_nan=False) + "\n"


def write_final(job: Job, report: dict[str, Json], facts: Mapping[str, Json]) -> None:
    """All final files of the run folder; report.json is the last but run.json."""
    folder = job.folder
    folder.write("manifest.json", job.manifest.document(job.header))
    write_report(folder, job.evaluator, job.request, report)
    folder.note(state="done", retry=None, **facts)
    if not report["records"]["dead"]:
        folder.drop_working_files()


def write_report(folder: RunFolder, evaluator: Evaluator[Any, Any], request: Request, report: dict[str, Json]) -> None:
    """The report in all its forms, and the further files that were asked for; report.json is the last."""
    document = evaluator.views.document(report, folder.info().started)
    folder.write("results.yaml", _plain("yaml", document).encode())
    folder.write("report.md", render("markdown", evaluator, report, request.options).encode())
    for export in evaluator.views.exports(report, request):
        export.path.parent.mkdir(parents=True, exist_ok=True)
        write_atomic(export.path, export.text.encode())
    folder.write("report.json", canonical_json(report) + b"\n")


def check_output(path: Path) -> None:
    """Raise UsageError for what cannot be written (a suffix, or for want of a package), before anything is computed."""
    if path.suffix not in _WRITERS:
        raise UsageError(f"-o {path}: unknown suffix {path.suffix!r}; there are {', '.join(sorted(_WRITERS))}")
    if path.suffix == ".parquet" and find_spec("pyarrow") is None:
        raise UsageError(f"-o {path}: Parquet needs pyarrow: pip install 'evalq[parquet]'")


def write_output(path: Path, folder: RunFolder, evaluator: Evaluator[Any, Any], options: Mapping[str, Any]) -> None:
    """One file asked for with -o, made from the run folder. Raises StorageError when it cannot be written."""
    check_output(path)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        _WRITERS[path.suffix](path, folder, evaluator, options)
    except OSError as error:
        raise StorageError.of(error, path, f"write it again: evalq report {folder.path} -o {path}") from error


def records_of(folder: RunFolder) -> Path:
    """records.jsonl. Raises UsageError where the folder has the report alone of a run that another command computed."""
    if folder.reported and not folder.records.is_file():
        raise UsageError(
            f"{folder.path}: only the report is here; the records are in the folder of the command that computed it"
        )
    return folder.records


def _text_writer(fmt: str) -> _Writer:
    def write(path: Path, folder: RunFolder, evaluator: Evaluator[Any, Any], options: Mapping[str, Any]) -> None:
        write_atomic(path, render(fmt, evaluator, folder.report(), options).encode())

    return write


def _records_copy(path: Path, folder: RunFolder, _evaluator: Any, _options: Any) -> None:
    with records_of(folder).open("rb") as records, replacing(path) as out:
        shutil.copyfileobj(records, out)


def _csv(path: Path, folder: RunFolder, _evaluator: Any, _options: Any) -> None:
    import pandas as pd

    columns = _columns(folder)
    with replacing(path) as out:
        if path.name.endswith(_EXCEL):
            out.write(BOM)
        for number, rows in enumerate(_flat_rows(folder)):
            frame = pd.DataFrame(rows, columns=columns).map(_unformula)
            heads = [_unformula(name) for name in columns] if number == 0 else False
            out.write(frame.to_csv(index=False, header=heads, lineterminator="\n").encode())


def _parquet(path: Path, folder: RunFolder, _evaluator: Any, _options: Any) -> None:
    import pandas as pd
    import pyarrow as pa
    import pyarrow.parquet as pq

    schema: Any = _arrow_schema(folder)
    with replacing(path) as out, pq.ParquetWriter(out, schema) as writer:
        for rows in _flat_rows(folder):
            frame = pd.DataFrame(rows, columns=schema.names)
            writer.write_table(pa.Table.from_pandas(frame, schema=schema, preserve_index=False))


def _arrow_schema(folder: RunFolder) -> Any:
    """One type a column over all records: what the first block leaves open, a later one may decide."""
    import pyarrow as pa

    kinds: dict[str, set[type]] = {name: set() for name in _columns(folder)}
    for rows in _flat_rows(folder):
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


def _columns(folder: RunFolder) -> list[str]:
    """Every key of every record, in the order they are first seen."""
    return list(dict.fromkeys(key for rows in _flat_rows(folder) for row in rows for key in row))


def _flat_rows(folder: RunFolder) -> Iterator[list[dict[str, Any]]]:
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


def _unformula(value: Any) -> Any:
    """Text that a spreadsheet would run gets an apostrophe before it."""
    return "'" + value if isinstance(value, str) and value.startswith(_FORMULA) else value


_Writer = Callable[[Path, RunFolder, Any, Mapping[str, Any]], None]
_WRITERS: dict[str, _Writer] = {
    ".json": _text_writer("json"),
    ".yaml": _text_writer("yaml"),
    ".md": _text_writer("markdown"),
    ".jsonl": _records_copy,
    ".csv": _csv,
    ".parquet": _parquet,
}
