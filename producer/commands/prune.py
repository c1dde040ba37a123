"""Remove runs that ended long ago: folders in ./evalq-runs and, with --broker, their part of the ledger."""

from __future__ import annotations

from collections.abc import Iterator

import click

from evalq.evalcore.errors import UsageError
from evalq.producer.folder.files import RUNS
from evalq.producer.invocation.finding import find, warn
from evalq.producer.invocation.invocation import Invocation, command
from evalq.producer.invocation.options import Finite, server_options
from evalq.producer.servers import Servers


def _prune(
    invocation: Invocation,
    names: tuple[str, ...],
    older_than: float,
    everyone: bool,
    suites: tuple[str, ...],
    dry_run: bool,
) -> None:
    with invocation.servers() as servers:
        if suites:
            lines = _forget(servers, suites, dry_run=dry_run)
        elif everyone and (not servers.named or older_than):
            raise UsageError(
                "--all is about a ledger, which does not know when runs ended: give --all --older-than 0 --broker URL"
            )
        else:
            lines = _remove(servers, names, older_than, everyone=everyone, dry_run=dry_run)
        for line in lines:
            click.echo(line)


def _forget(servers: Servers, suites: tuple[str, ...], *, dry_run: bool) -> Iterator[str]:
    from evalq.producer.lifecycle.prune import forget_suites

    if not servers.named:
        raise UsageError("--suite is about a ledger's history: give --broker URL too")
    return forget_suites(servers.history, servers.heartbeats, suites, dry_run=dry_run)


def _remove(
    servers: Servers, names: tuple[str, ...], older_than: float, *, everyone: bool, dry_run: bool
) -> Iterator[str]:
    from evalq.producer.lifecycle.prune import prune, prune_named

    ledger, calls = (servers.runs, servers.sweeps) if servers.named else (None, None)
    if names:
        return prune_named([find(name) for name in names], ledger, calls, dry_run=dry_run)
    return prune(RUNS, ledger, calls, older_than, everyone=everyone, dry_run=dry_run, warn=warn)


COMMAND = command(
    _prune,
    click.Argument(["names"], nargs=-1, metavar="[RUN]..."),
    click.Option(
        ["--older-than"],
        type=Finite(0),
        default=30.0,
        show_default=True,
        metavar="DAYS",
        help="Remove only runs that ended at least DAYS days ago.",
    ),
    click.Option(
        ["--all", "everyone"],
        is_flag=True,
        help="Also remove from the ledger ended runs without a folder here, of all users (needs --older-than 0).",
    ),
    click.Option(
        ["--suite", "suites"],
        multiple=True,
        metavar="NAME",
        help="Remove the history of this suite instead of runs: metrics and pages no longer show it. Repeatable.",
    ),
    click.Option(["--dry-run"], is_flag=True, help="Only print what would be removed."),
    *server_options(),
)
