"""Commands that stop runs and remove them: pause, cancel, prune."""

from __future__ import annotations

import time
from typing import Any

import click

from evalq.evalcore.errors import Driven, UsageError
from evalq.evalcore.model.life import RunState, may_follow
from evalq.producer.commands import options as shared
from evalq.producer.commands.find import (
    RUNS,
    calls_of,
    command,
    elsewhere,
    find,
    ledger_of,
    run_argument,
    server_options,
    warn,
)
from evalq.producer.folder.info import RunInfo
from evalq.producer.folder.lock import LOCK, interrupt_holder
from evalq.producer.folder.run_folder import RunFolder

__all__ = ["COMMANDS"]

_DRIVER_SECONDS = 10.0
_ENDING_SECONDS = 30.0
_POLL_SECONDS = 0.1


def _close(given: dict[str, Any], run: str, state: RunState, reason: str) -> str | None:
    """Close a run on the servers, in its calls and in its evaluation; the state it is in then, None without servers.

    "gone" where the ledger does not know it.
    """
    ledger = ledger_of(given)
    if ledger is None:
        return None
    found = {calls_of(ledger, given).close(run, state, reason), ledger.close(run, state, reason)} - {"gone"}
    return str(state if state in found else min(found, default="gone"))


def _closed_elsewhere(given: dict[str, Any], run: str | None, state: RunState) -> bool:
    """Close a run whose folder is not here; False for one that is to be found here."""
    if run is None or not elsewhere(run, given):
        return False
    now = _close(given, run, state, f"by evalq {'cancel' if state == 'cancelled' else 'pause'}")
    if now != state:
        raise UsageError(f"{run} cannot be {state}: it is {now}")
    click.echo(f"{run}: {state}; its folder is elsewhere", err=True)
    return True


def _pause(run: str | None, **given: Any) -> None:
    if _closed_elsewhere(given, run, "paused"):
        return
    folder = find(run)
    info = folder.info()
    state = _close(given, info.run, "paused", "by evalq pause")
    _refuse_unnamed(folder, info, given, state, "pause")
    if state is None:
        raise UsageError("pausing needs --broker; a run on an embedded server is paused by Ctrl-C")
    if state != "paused":
        raise UsageError(f"{info.run} cannot be paused: it is {info.state if state == 'gone' else state}")
    _note(folder, "paused")
    click.echo(f"{info.run}: paused; resume it with: evalq resume {folder.path} {_server(given)}", err=True)


def _server(given: dict[str, Any]) -> str:
    from evalq.workers.connections import server_options

    return server_options(shared.settings_from(given))


def _refuse_unnamed(folder: RunFolder, info: RunInfo, given: dict[str, Any], state: str | None, what: str) -> None:
    """Raise UsageError where the server that a run is on is not the one that was asked: a note in its folder stops
    nobody who computes or calls for it.
    """
    if state in (None, "gone") and info.server not in ("", _server(given)):
        raise UsageError(
            f"{folder.path}: this run is on another server than was asked: evalq {what} {folder.path} {info.server} "
            "(where that is gone for good, remove the folder)"
        )


def _note(folder: RunFolder, state: RunState) -> bool:
    """Say in the folder how the run ended, unless a process drives it: that one says so at its next look."""
    if not folder.begun:
        raise UsageError(f"{folder.path}: this run is gone: it ended on faulty input")
    with folder.driving() as free:
        if free:
            folder.note(state=state)
    return free


def _cancel(run: str, **given: Any) -> None:
    if _closed_elsewhere(given, run, "cancelled"):
        return
    folder = find(run)
    info = folder.info()
    if info.state == "done":
        raise UsageError(f"{folder.path}: this run is done; {folder.next_step('done')}")
    state = _close(given, info.run, "cancelled", "by evalq cancel")
    if info.state != "cancelled":
        _refuse_unnamed(folder, info, given, state, "cancel")
    if state not in ("cancelled", "gone", None):
        raise UsageError(f"{info.run} cannot be cancelled: it is {state}; {folder.next_step('done')}")
    if state == "cancelled":
        if not _note(folder, "cancelled"):
            _await_driver(folder)
    else:
        _end_here(folder, info)
    click.echo(f"{info.run}: cancelled", err=True)


def _end_here(folder: RunFolder, info: RunInfo) -> None:
    """Cancel a run that no server knows which is named: whoever drives it on this host is ended, one after the other.

    A command that waits for a driver drives next.
    """
    deadline = time.monotonic() + _ENDING_SECONDS
    sent: set[str] = set()
    while not _note(folder, "cancelled"):
        by = folder.driver()
        mine = not info.server and may_follow("cancelled", info.state)
        if by and by not in sent and not (mine and interrupt_holder(folder.path / LOCK)):
            raise Driven(info.run, f"{by}: end that one with Ctrl-C, or name its server with --broker URL")
        sent.add(by)
        if time.monotonic() > deadline:
            raise Driven(info.run, f"{by}: it does not end")
        time.sleep(_POLL_SECONDS)


def _await_driver(folder: RunFolder) -> None:
    """The run's driver sees at its next look that it was cancelled, and says so in the folder."""
    deadline = time.monotonic() + _DRIVER_SECONDS
    while folder.driver() and time.monotonic() < deadline:
        time.sleep(_POLL_SECONDS)
    with folder.driving() as free:
        if free and folder.begun and folder.info().state not in ("done", "cancelled"):
            folder.note(state="cancelled")  # it ended for another reason before it looked


def _prune(
    names: tuple[str, ...], older_than: float, everyone: bool, suites: tuple[str, ...], dry_run: bool, **given: Any
) -> None:
    from evalq.producer.runs.prune import forget_suites, prune, prune_named

    ledger = ledger_of(given)
    if suites:
        from evalq.workers.ledger.history import History

        if ledger is None:
            raise UsageError("--suite is about a ledger's history: give --broker URL too")
        for line in forget_suites(History(ledger.client, shared.settings_from(given)), suites, dry_run=dry_run):
            click.echo(line)
        return
    calls = calls_of(ledger, given)
    if everyone and (ledger is None or older_than):
        raise UsageError(
            "--all is about a ledger, which does not know when its runs ended: --all --older-than 0 --broker URL"
        )
    if names:
        lines = prune_named([find(name) for name in names], ledger, calls, dry_run=dry_run)
    else:
        lines = prune(RUNS, ledger, calls, older_than, everyone=everyone, dry_run=dry_run, warn=warn)
    for line in lines:
        click.echo(line)


_older = click.Option(
    ["--older-than"],
    type=click.FloatRange(0),
    default=30.0,
    show_default=True,
    metavar="DAYS",
    help="Only runs that ended so many days ago.",
)
_everyone = click.Option(
    ["--all", "everyone"],
    is_flag=True,
    help="Also what the ledger holds of ended runs without a folder here, whoever began them (with --older-than 0).",
)
_suites = click.Option(
    ["--suite", "suites"],
    multiple=True,
    metavar="NAME",
    help="Not runs, but the history of a suite that will not run again: metrics, pages and alerts show it no more. "
    "Repeatable.",
)
_dry = click.Option(["--dry-run"], is_flag=True, help="Say what would be removed.")

COMMANDS = {
    each.name: each
    for each in (
        command("pause", _pause, run_argument, *server_options),
        command("cancel", _cancel, click.Argument(["run"]), *server_options),
        command(
            "prune",
            _prune,
            click.Argument(["names"], nargs=-1, metavar="[RUN]..."),
            _older,
            _everyone,
            _suites,
            _dry,
            *server_options,
        ),
    )
}
