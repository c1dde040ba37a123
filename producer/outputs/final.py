"""The files of a run's folder once it is done."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from evalq.evalcore.contract.evaluator import Evaluator, Request
from evalq.evalcore.contract.plug_in import unprinted
from evalq.evalcore.files import replacing, write_atomic
from evalq.evalcore.model.canonical import Json, canonical_line, uncollected
from evalq.evalcore.naming import is_text
from evalq.producer.folder.files import JOURNAL, KEPT, KEY, MANIFEST
from evalq.producer.folder.job import Job
from evalq.producer.folder.run_folder import RunFolder
from evalq.producer.outputs.rates import rates_of
from evalq.producer.outputs.text import render, results_yaml
from evalq.producer.page import ALL_UP_TO, summary_of, write_page
from evalq.workers import tracing

__all__ = ["drop_left", "found", "write_final", "write_report"]


@uncollected()
def write_final(
    job: Job, report: dict[str, Json], facts: Mapping[str, Json], history: str = "", data: bytes = b""
) -> None:
    """All final files of the run folder; report.json is the last but run.json. report.md ends with ``history``.

    ``data`` is the report as it is written, where that is known.
    """
    folder = job.folder
    with replacing(folder.path / "manifest.json") as out:
        out.writelines(job.manifest.document(job.header))
    write_report(folder, job.evaluator, job.request, report, history, data)
    folder.note(state="done", retry=None, **found(job.evaluator, report), **facts)
    named = {f"{job.evaluator.name}.{key}": value for key, value in rates_of(report).items()}
    tracing.told_results(job.run, named)
    if not report["records"]["dead"]:
        folder.drop_working_files()


@unprinted()
def found(evaluator: Evaluator[Any, Any], report: dict[str, Json]) -> dict[str, Json]:
    """What run.json says of a report."""
    headline = summary_of(evaluator, report).headline
    # Of no use to anybody where it cannot be written, and no reason to end a run.
    return {"records": report["records"]["total"], "result": headline if is_text(headline) else None}


def drop_left(folder: RunFolder) -> None:
    """Remove the working files of a run that is done where its driver was killed before it could."""
    if not any((folder.path / name).exists() for name in (MANIFEST, JOURNAL, KEPT, KEY, folder.spool.name)):
        return
    with folder.driving() as mine:
        # Asked under the lock: a driver that has noted "done" in this moment removes them itself.
        done = mine and folder.info().state == "done" and folder.reported
        records = folder.report().get("records") if done else None
        # Somebody may have put another file in the report's place: nothing is known of what it says then.
        if isinstance(records, dict) and records.get("dead") == 0:
            folder.drop_working_files()


@unprinted()
@uncollected()
def write_report(
    folder: RunFolder,
    evaluator: Evaluator[Any, Any],
    request: Request,
    report: dict[str, Json],
    history: str = "",
    data: bytes = b"",
) -> None:
    """The report in all its forms, and the further files that were asked for; report.json is the last.

    ``data`` is the report as it is written, where that is known.
    """
    data = data or canonical_line(report)
    folder.write("results.yaml", results_yaml(evaluator, report, folder.info().started, len(data)).encode())
    folder.write("report.md", render("markdown", evaluator, report, request.options).encode() + history.encode())
    # Packing records takes about 10 µs each: beside a run of millions that is time which nobody asked for.
    listed = folder.records if report["records"]["total"] <= ALL_UP_TO else None
    write_page(folder.path / "report.html", evaluator, report, listed)
    for export in evaluator.views.exports(report, request):
        export.path.parent.mkdir(parents=True, exist_ok=True)
        write_atomic(export.path, export.text.encode())
    folder.write("report.json", data)
