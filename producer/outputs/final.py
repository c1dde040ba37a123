"""A report as text, and the files of a run's folder once it is done."""

from __future__ import annotations

import contextlib
import json
import os
import re
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from itertools import islice
from typing import Any

import yaml

from evalq.evalcore.contract.evaluator import Evaluator, Request
from evalq.evalcore.contract.plugins import stdout_to_stderr
from evalq.evalcore.files import replacing, write_atomic
from evalq.evalcore.model.canonical import Json, canonical_json, canonical_line, uncollected
from evalq.evalcore.model.lines import Lines, has_lines, with_markers
from evalq.evalcore.naming import is_text
from evalq.evalcore.records.yaml import Dumper, FastDumper
from evalq.evalcore.views.charts import Summary
from evalq.evalcore.views.markdown import visible
from evalq.producer.folder.files import JOURNAL, KEPT, KEY, LINES, MANIFEST
from evalq.producer.folder.job import Job
from evalq.producer.folder.run_folder import RunFolder
from evalq.producer.page import ALL_UP_TO, summary_of, write_page
from evalq.workers import tracing

_WHOLE_BYTES = 1 << 20
"""Beyond this size of report.json, results.yaml has only a part of each long list: YAML takes thirty times as long to
write as JSON."""
_LISTED = 100
_KEPT_BYTES = 256 << 20
"""Recorded outputs of another layout are kept as lines up to this size; pages show no answers of longer ones."""
_INTERVAL = re.compile(r"(-?[\d.,]+ to -?[\d.,]+(?: %)?), 95 % interval")
"""As `evalcore.views.charts.interval_text` writes it."""


@stdout_to_stderr()
def render(
    fmt: str,
    evaluator: Evaluator[Any, Any],
    report: Mapping[str, Json],
    options: Mapping[str, Any],
    timestamp: str = "",
) -> str:
    """The report as text: markdown, json or yaml; empty for none.

    With a ``timestamp``, json and yaml have the form of the evaluator's specification.
    """
    if timestamp and fmt in ("json", "yaml"):
        document = with_markers(evaluator.views.document(report, timestamp))
        if document != with_markers(report):
            return _plain(fmt, document)
    if fmt == "markdown":
        return visible(evaluator.views.markdown(report, options))
    if fmt == "json":
        return canonical_json(report).decode() + "\n"
    if fmt == "yaml":
        return yaml_text(with_markers(report), sort_keys=True)
    return ""


def results_yaml(evaluator: Evaluator[Any, Any], report: Mapping[str, Json], timestamp: str, size: int) -> str:
    """The text of results.yaml; ``size`` is that of report.json."""
    if size <= _WHOLE_BYTES and not has_lines(report):
        return yaml_text(evaluator.views.document(report, timestamp))
    cut: list[Json] = []
    brief = {**report, **{name: _brief(report[name], name, evaluator, cut) for name in ("params", "results")}}
    document = evaluator.views.document(brief, timestamp)
    note = {"left_out_here": {"lists": cut, "all_in": "report.json, and a line for each record in records.jsonl"}}
    return yaml_text({**document, **note} if isinstance(document, dict) else document)


def _brief(value: Json, path: str, evaluator: Evaluator[Any, Any], cut: list[Json]) -> Json:
    """``value`` with a part of each long list or mapping; adds what is left out to ``cut``."""
    if isinstance(value, dict):
        if len(value) > _LISTED:
            cut.append({"where": path, "listed": _LISTED, "of": len(value)})
        return {key: _brief(each, f"{path}.{key}", evaluator, cut) for key, each in islice(value.items(), _LISTED)}
    if not isinstance(value, list | Lines):
        return value
    kept: Sequence[Json] = value
    if len(value) > _LISTED:
        first, failed = list[Json](), 0
        # Parameters in a file are not read through: none of them has failed.
        entries = () if isinstance(value, Lines) and path.startswith("params.") else value
        for each in filter(evaluator.views.failed, entries):
            failed += 1
            if failed <= _LISTED:
                first.append(each)
        # In the order of the list; the first entries if none failed.
        kept = first or value[:_LISTED]
        cut.append({"where": path, "listed": len(kept), "of": len(value), "failed": failed})
    return [_brief(each, f"{path}[]", evaluator, cut) for each in kept]


def yaml_text(document: Any, *, sort_keys: bool = False) -> str:
    """Plain data in YAML's block style, which readers of YAML 1.1 and 1.2 read alike.

    Without libyaml long lines break elsewhere, and it takes three times as long.
    """
    text: str = yaml.dump(document, Dumper=FastDumper or Dumper, allow_unicode=True, sort_keys=sort_keys)
    return text


def _plain(fmt: str, document: Json) -> str:
    """A document, its keys in their order."""
    if fmt == "yaml":
        return yaml_text(document)
    return json.dumps(document, ensure_ascii=False, indent=2, allow_nan=False) + "\n"


# The rates over all outputs of a run, for traces and other tools.


def rates_of(report: Mapping[str, Any]) -> dict[str, float]:
    """{name in the results: share} of a report; empty for an evaluator that has none."""
    results = report["results"]
    return {
        key: float(value)
        for key, value in (results.items() if isinstance(results, Mapping) else ())
        if key.endswith("_rate") and isinstance(value, int | float) and not isinstance(value, bool)
    }


@uncollected()
def write_final(
    job: Job, report: dict[str, Json], facts: Mapping[str, Json], history: str = "", data: bytes = b""
) -> None:
    """Write all final files of the run folder, at the end report.json, then run.json. report.md ends with ``history``.

    ``data`` is the encoded report, if it is known.
    """
    folder = job.folder
    with replacing(folder.path / "manifest.json") as out:
        out.writelines(job.manifest.document(job.header))
    _keep_lines(job)
    write_report(folder, job.evaluator, job.request, report, history, data)
    ended = datetime.now(UTC).isoformat(timespec="seconds")
    folder.note(state="done", retry=None, ended=ended, **run_json_facts(job.evaluator, report), **facts)
    named = {f"{job.evaluator.name}.{key}": value for key, value in rates_of(report).items()}
    tracing.trace_results(job.run, named)
    if not report["records"]["dead"]:
        folder.drop_working_files()


def _keep_lines(job: Job) -> None:
    """Keep recorded outputs that were no lines of JSON, as the lines that were evaluated, up to a size."""
    folder, keep = job.folder, job.folder.path / LINES
    if job.evaluator.records.format != "jsonl" or not folder.facts().get("keep_prompts", True):
        return
    for source in job.sources:
        made = folder.spool / source.name
        # Pages do without: a full disk, or a file system without links, must not end a run.
        with contextlib.suppress(OSError):
            if made.is_file() and made.stat().st_size <= _KEPT_BYTES:
                keep.mkdir(exist_ok=True)
                (keep / source.name).unlink(missing_ok=True)
                os.link(made, keep / source.name)


@stdout_to_stderr()
def run_json_facts(evaluator: Evaluator[Any, Any], report: dict[str, Json]) -> dict[str, Json]:
    """The facts of a report in run.json."""
    summary = summary_of(evaluator, report)
    # A headline that cannot be written must not end a run.
    headline = summary.headline if is_text(summary.headline) else None
    return {"records": report["records"]["total"], "result": headline, "interval": interval_of(summary)}


def interval_of(summary: Summary) -> str | None:
    """The first number of a summary that has an interval, with the interval; None if no number has one."""
    for tile in summary.tiles:
        found = _INTERVAL.match(tile.note)
        if found and is_text(tile.value):
            return f"{tile.value}, 95 % {found[1]}"
    return None


def drop_left(folder: RunFolder) -> None:
    """Remove the working files of a finished run whose driver was killed before it removed them."""
    if not any((folder.path / name).exists() for name in (MANIFEST, JOURNAL, KEPT, KEY, folder.spool.name)):
        return
    with folder.driving() as mine:
        # Under the lock: a driver that is about to finish removes them itself.
        done = mine and folder.info().state == "done" and folder.reported
        records = folder.report().get("records") if done else None
        # The report may have been replaced by another file.
        if isinstance(records, dict) and records.get("dead") == 0:
            folder.drop_working_files()


@stdout_to_stderr()
@uncollected()
def write_report(
    folder: RunFolder,
    evaluator: Evaluator[Any, Any],
    request: Request,
    report: dict[str, Json],
    history: str = "",
    data: bytes = b"",
) -> None:
    """Write the report in all formats, and the evaluator's exports; report.json comes last.

    ``data`` is the encoded report, if it is known.
    """
    data = data or canonical_line(report)
    folder.write("results.yaml", results_yaml(evaluator, report, folder.info().started, len(data)).encode())
    folder.write("report.md", render("markdown", evaluator, report, request.options).encode() + history.encode())
    # Packing takes about 10 µs a record, too long for millions.
    listed = folder.records if report["records"]["total"] <= ALL_UP_TO else None
    write_page(folder.path / "report.html", evaluator, report, listed, folder=folder)
    for export in evaluator.views.exports(report, request):
        export.path.parent.mkdir(parents=True, exist_ok=True)
        write_atomic(export.path, export.text.encode())
    folder.write("report.json", data)
