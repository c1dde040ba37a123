"""The run that a command names: its folder here, or its part of the ledger."""

from __future__ import annotations

from pathlib import Path

import click

from evalq.evalcore.errors import UsageError
from evalq.evalcore.model.life import DRIVEN
from evalq.producer.folder.documents import RunInfo
from evalq.producer.folder.files import RUNS
from evalq.producer.folder.manifest import resumable_by
from evalq.producer.folder.run_folder import RunFolder, run_folders
from evalq.producer.servers import Servers


def folders() -> list[tuple[RunFolder, RunInfo]]:
    """Runs under ./evalq-runs, the latest begun last; warns of one that cannot be read."""
    return run_folders(RUNS, warn)


def folders_here() -> list[tuple[RunFolder, RunInfo]]:
    """Runs under ./evalq-runs and those beside it, as --out names them, the latest begun last.

    Warns of a run under ./evalq-runs that cannot be read. Beside it, others may have a run.json of their own.
    """
    beside = run_folders(Path(), lambda text: None)
    return sorted([*folders(), *beside], key=lambda each: each[1].started)


def warn(text: str) -> None:
    """Print a line on standard error."""
    click.echo(text, err=True)


def find(run: str | None) -> RunFolder:
    """The folder of RUN, a path or an id; the latest run without either. Raises UsageError."""
    if run is None:
        latest = folders_here()
        if not latest:
            raise UsageError(f"no run in ./{RUNS}, and none beside it: name a run folder")
        return latest[-1][0]
    # A path comes first, even if a run's id is the same word.
    path = next((path for path in (Path(run), RUNS / run) if path.is_dir()), None)
    if path is None:  # the folder of a run that follows a log is named after the log
        path = next((folder.path for folder, info in folders_here() if info.run == run), None)
    if path is None:  # an id, unless it is written as a path
        path = Path(run) if run != Path(run).name or Path(run).exists() else RUNS / run
    return RunFolder.existing(path)


def driver_hint(folder: RunFolder, info: RunInfo) -> str:
    """A hint for a run that run.json calls running, though no process here drives it (it was killed); else empty."""
    if info.state not in DRIVEN or folder.driver():
        return ""
    if waiter := folder.waiter():
        return f"it is driven from another folder, and {waiter} waits here for its report"
    return f"no process drives it here; {resumable_by(folder) or folder.next_step(info.state)}"


def elsewhere(run: str | None, servers: Servers) -> bool:
    """Whether the ledger knows RUN, and no folder here is its own."""
    if run is None or not servers.named or Path(run).is_dir() or (RUNS / run).is_dir():
        return False
    if any(info.run == run for _, info in folders_here()):
        return False
    return servers.knows(run)
