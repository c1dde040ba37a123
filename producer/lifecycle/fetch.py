"""The folder of a run with its report, wherever that was made."""

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
    """RUN's folder; of a detached run without a report it is completed with the one that workers left in the ledger.

    Raises UsageError where there is none.
    """
    path = RUNS / run if run and not Path(run).is_dir() else find(run).path
    folder = RunFolder(path)
    if not folder.reported and servers.named:
        name = folder.info().run if folder.begun else str(run)
        fetched = fetch(name, path, servers.runs, servers.settings)
        if fetched is not None:
            return fetched
    return find(run)


# From the ledger into the folder.


def fetch(run: str, path: Path, ledger: RunLedger, settings: Settings) -> RunFolder | None:
    """Write the report of a run that others finished in each of its forms; None where the ledger has none.

    A folder in which the run was begun is completed; otherwise one is made, with what the ledger knows.
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
            if mine:  # whoever drives the run writes its own report
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
    """A new folder with these facts, and what ``write`` puts there; where somebody else is faster, that one's."""
    try:
        with RunFolder.begin(path) as folder:
            folder.note(state="done", **facts)
            write(folder)
    except (FolderTaken, UsageError) as error:
        if RunFolder(path).begun:  # who asked for the same report
            return RunFolder(path)
        if isinstance(error, UsageError):
            raise
        raise UsageError(f"{path}: another process writes there; run the command again") from None
    with folder.driving():
        pass  # nothing is left to do in it: it is let go
    return folder


@stdout_to_stderr()
def _write(folder: RunFolder, header: Header, report: dict[str, Json], data: bytes, cases: bytes | None) -> None:
    evaluator, info = plugins.get(header.evaluator), folder.info()
    folder.write("results.yaml", results_yaml(evaluator, report, info.started, len(data)).encode())
    folder.write("report.md", render("markdown", evaluator, report, info.request.options).encode())
    write_page(folder.path / "report.html", evaluator, report, None)
    if cases is not None:  # who compares the run has no records here to read them from
        folder.write(CASES, cases)
    # What was counted when it was last driven from here is not how it ended.
    folder.note(progress=None, **run_json_facts(evaluator, report))
    # Last: a folder counts as one with a report as soon as this file is there.
    folder.write("report.json", data)
