"""Find or complete the folder of a run with its report, wherever the report was made."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from evalq.evalcore.contract import plugins
from evalq.evalcore.contract.evaluator import Request
from evalq.evalcore.contract.plugins import stdout_to_stderr
from evalq.evalcore.errors import UsageError
from evalq.evalcore.model.canonical import Json
from evalq.evalcore.model.manifest import Header
from evalq.producer.folder.documents import request_fact
from evalq.producer.folder.files import RUNS
from evalq.producer.folder.run_folder import FolderTaken, RunFolder
from evalq.producer.invocation.finding import find
from evalq.producer.outputs import render
from evalq.producer.outputs.cases import CASES
from evalq.producer.outputs.final import results_yaml, run_json_facts
from evalq.producer.page import write_page
from evalq.producer.servers import Servers

if TYPE_CHECKING:
    from evalq.workers.ledger.runs import RunLedger
    from evalq.workers.settings import Settings


def run_with_report(run: str | None, servers: Servers) -> RunFolder:
    """RUN's folder with its report. For a detached run, fetch the report that workers left in the ledger.

    Raises UsageError if there is none.
    """
    path = RUNS / run if run and not Path(run).is_dir() else find(run).path
    folder = RunFolder(path)
    if not folder.reported and servers.named:
        name = folder.info().run if folder.begun else str(run)
        fetched = fetch(name, path, servers.runs, servers.settings)
        if fetched is not None:
            return fetched
    return find(run)


# -- from the ledger into the folder ---------------------------------------------------------------


def fetch(run: str, path: Path, ledger: RunLedger, settings: Settings) -> RunFolder | None:
    """Write the report of a run that others finished, in all formats; None if the ledger has none.

    Completes the folder in which the run was begun; otherwise makes one from the ledger's facts.
    """
    from datetime import UTC, datetime

    from evalq.workers.ledger.detached import Reports

    reports = Reports(ledger, settings)
    data, header, cases = reports.report(run), ledger.header(run), reports.cases(run)
    if data is None or header is None:
        return None
    report: dict[str, Json] = msgspec.json.decode(data)
    folder = RunFolder(path)
    if folder.begun:
        with folder.driving() as mine:
            if mine:  # a driver writes the report itself
                _write(folder, header, report, data, cases)
    else:
        facts = reports.detached(run)
        request = request_fact(Request([planned.given for planned in header.inputs], header.params, {}))
        began = datetime.fromtimestamp(facts.began if facts else ledger.created(run), UTC).isoformat(timespec="seconds")
        tags = facts.tags if facts else {}
        common = {"run": run, "evaluator": header.evaluator, "suite": header.suite, "tags": tags, "request": request}
        return _made(path, {"started": began, **common}, lambda made: _write(made, header, report, data, cases))
    return folder


def _made(path: Path, facts: dict[str, Json], write: Callable[[RunFolder], None]) -> RunFolder:
    """A new folder with these facts and the files of ``write``; if another process was faster, its folder."""
    try:
        with RunFolder.begin(path) as folder:
            folder.note(state="done", **facts)
            write(folder)
    except (FolderTaken, UsageError) as error:
        if RunFolder(path).begun:  # by a process that fetched the same report
            return RunFolder(path)
        if isinstance(error, UsageError):
            raise
        raise UsageError(f"{path}: another process writes there; run the command again") from None
    with folder.driving():
        pass  # release it: nothing is left to do
    return folder


@stdout_to_stderr()
def _write(folder: RunFolder, header: Header, report: dict[str, Json], data: bytes, cases: bytes | None) -> None:
    evaluator, info = plugins.get(header.evaluator), folder.info()
    folder.write("results.yaml", results_yaml(evaluator, report, info.started, len(data)).encode())
    folder.write("report.md", render("markdown", evaluator, report, info.request.options).encode())
    write_page(folder.path / "report.html", evaluator, report, None, folder=folder)
    if cases is not None:  # comparisons find no records here
        folder.write(CASES, cases)
    # Drop the progress of the last driver here: it is not the final one.
    folder.note(progress=None, **run_json_facts(evaluator, report))
    # Last: a folder counts as one with a report as soon as this file is there.
    folder.write("report.json", data)
