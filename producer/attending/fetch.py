"""The folder of a run with its report, wherever that was made."""

from __future__ import annotations

from pathlib import Path

from evalq.producer.folder.files import RUNS
from evalq.producer.folder.run_folder import RunFolder
from evalq.producer.invocation.finding import find
from evalq.producer.servers import Servers

__all__ = ["run_with_report"]


def run_with_report(run: str | None, servers: Servers) -> RunFolder:
    """RUN's folder; of a detached run without a report it is completed with the one that workers left in the ledger.

    Raises UsageError where there is none.
    """
    path = RUNS / run if run and not Path(run).is_dir() else find(run).path
    folder = RunFolder(path)
    if not folder.reported and servers.named:
        from evalq.producer.runs.download import fetch

        name = folder.info().run if folder.begun else str(run)
        fetched = fetch(name, path, servers.runs, servers.settings)
        if fetched is not None:
            return fetched
    return find(run)
