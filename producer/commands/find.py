"""What commands about runs share: finding a run's folder, its ledger, and how such a command is made."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from evalq.evalcore.errors import UsageError
from evalq.producer.commands import SUMMARIES
from evalq.producer.commands import options as shared
from evalq.producer.folder.info import RunInfo
from evalq.producer.folder.run_folder import RunFolder, run_folders

__all__ = [
    "RUNS",
    "calls_of",
    "command",
    "elsewhere",
    "find",
    "folders",
    "ledger_of",
    "left_behind",
    "run_argument",
    "server_options",
    "warn",
]

RUNS = Path("evalq-runs")


def command(name: str, call: Callable[..., None], *options: click.Parameter) -> click.Command:
    """A command of the list, with the list's own words for its help."""
    return click.Command(name, callback=call, help=SUMMARIES[name], params=list(options))


def folders() -> list[tuple[RunFolder, RunInfo]]:
    """Runs under ./evalq-runs, the latest begun last; one that cannot be read is told on standard error."""
    return run_folders(RUNS, warn)


def warn(text: str) -> None:
    """A line on standard error."""
    click.echo(text, err=True)


def find(run: str | None) -> RunFolder:
    """The folder of RUN: a path, an id, or without either the latest. Raises UsageError."""
    if run is None:
        latest = folders()
        if not latest:
            raise UsageError(f"no run in {RUNS}: name a run folder")
        return latest[-1][0]
    path = next((path for path in (Path(run), RUNS / run) if path.is_dir()), None)
    if path is None:  # the folder of a run that follows a log is named after the log
        path = next((folder.path for folder, info in folders() if info.run == run), None)
    if path is None:  # an id, unless it is written as a path
        path = Path(run) if len(Path(run).parts) > 1 or Path(run).exists() else RUNS / run
    return RunFolder.existing(path)


_GOING = ("open", "calling", "called", "retrying", "following")


def left_behind(folder: RunFolder, info: RunInfo) -> str:
    """What to say of a run that goes by its own account, and that no process drives here (any more): empty for others.

    One that was killed could not say how it ended.
    """
    if info.state not in _GOING or folder.driver():
        return ""
    return f"no process drives it here; {folder.next_step(info.state)}"


def elsewhere(run: str | None, given: dict[str, Any]) -> bool:
    """Whether the ledger that is named knows RUN and none of the folders here is its own."""
    ledger = ledger_of(given)
    if run is None or ledger is None or Path(run).is_dir() or (RUNS / run).is_dir():
        return False
    if any(info.run == run for _, info in folders()):
        return False
    return ledger.header(run) is not None or calls_of(ledger, given).look(run) is not None


def ledger_of(given: dict[str, Any]) -> Any:
    """The ledger at the broker that is named; None where none is."""
    from evalq.workers.connections import connect
    from evalq.workers.ledger.runs import RunLedger

    settings = shared.settings_from(given)
    return RunLedger(connect(settings.ledger_url, settings), settings) if settings.broker else None


def calls_of(ledger: Any, given: dict[str, Any]) -> Any:
    """The calls of sweeps on the ledger's server; None without one."""
    from evalq.workers.ledger.sweeps import SweepLedger

    return SweepLedger(ledger.client, shared.settings_from(given)) if ledger is not None else None


run_argument = click.Argument(["run"], required=False)
server_options = [option for option in shared.place_options() if option.name in ("broker", "ledger", "settings")]
