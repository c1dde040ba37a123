"""Commands that stop runs and remove them: pause, cancel, prune."""

from __future__ import annotations

from typing import Any

import click

from evalcore.errors import UsageError
from producer.commands import options as shared
from producer.commands.find import RUNS, calls_of, command, elsewhere, find, ledger_of, run_argument, server_options

__all__ = ["COMMANDS"]


def _close(given: dict[str, Any], run: str, state: str, reason: str) -> str | None:
    """Close a run on the servers, in its calls and in its evaluation; the state it is in then, None without servers."""
    ledger = ledger_of(given)
    if ledger is None:
        return None
    calling = calls_of(ledger, given).close(run, state, reason)
    found = ledger.close(run, state, reason)
    return str(calling if found == "gone" else found)


def _closed_elsewhere(given: dict[str, Any], run: str | None, state: str) -> bool:
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
    run_id = folder.info()["run"]
    state = _close(given, run_id, "paused", "by evalq pause")
    if state is None:
        raise UsageError("pausing needs --broker; a run on an embedded server is paused by Ctrl-C")
    if state != "paused":
        raise UsageError(f"{run_id} cannot be paused: it is {state}")
    with folder.driving() as free:
        if free:  # otherwise its driver says so when it ends
            folder.note(state="paused")
    click.echo(f"{run_id}: paused; go on with: evalq resume {folder.path} --broker URL", err=True)


def _prune(older_than: float, everyone: bool, suites: tuple[str, ...], dry_run: bool, **given: Any) -> None:
    from producer.prune import forget_suites, prune

    ledger = ledger_of(given)
    if suites:
        from workers.history import History

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
    for line in prune(RUNS, ledger, calls, older_than, everyone=everyone, dry_run=dry_run):
        click.echo(line)


def _cancel(run: str, **given: Any) -> None:
    if _closed_elsewhere(given, run, "cancelled"):
        return
    folder = find(run)
    info = folder.info()
    state = _close(given, info["run"], "cancelled", "by evalq cancel")
    if state is not None:
        click.echo(f"{info['run']}: {state}", err=True)
    with folder.driving() as free:
        if not free:
            if state is None:
                raise UsageError(f"{folder.path}: being driven by another process; end that one, or give --broker")
            return
        if info["state"] == "done":
            raise UsageError(f"{folder.path}: this run is done")
        folder.note(state="cancelled")


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
        command("prune", _prune, _older, _everyone, _suites, _dry, *server_options),
    )
}
