"""Runs in ./evalq-runs, and in the ledger with --broker."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

import click

from evalq.evalcore.errors import Incomplete
from evalq.evalcore.model.canonical import canonical_json
from evalq.producer.folder.info import RunInfo
from evalq.producer.folder.run_folder import RunFolder
from evalq.producer.invocation.declare import command
from evalq.producer.invocation.finding import folders, left_behind
from evalq.producer.invocation.invocation import Invocation
from evalq.producer.invocation.options import as_json, server_options
from evalq.producer.monitor.spans import spell
from evalq.producer.servers import Servers

if TYPE_CHECKING:
    from evalq.workers.ledger.progress import Look
    from evalq.workers.ledger.sweep_model import SweepLook

__all__ = ["COMMAND"]


def _list(invocation: Invocation, as_json: bool) -> None:
    rows = folders()
    if as_json:
        click.echo(canonical_json([folder.facts() for folder, _ in rows]))
        return
    for folder, info in rows:
        click.echo(_row(folder, info))
    from evalq.workers.ledger.calls import subject

    known = {info.run for _, info in rows}
    with invocation.servers() as servers:
        named = {*servers.runs.runs(), *map(subject, servers.sweeps.runs())} if servers.named else set()
        for run in sorted(named - known):
            if (told := _in_ledger(run, servers)) is not None:
                click.echo(f"{run:<28} {told}")


def _row(folder: RunFolder, info: RunInfo) -> str:
    records = info.progress.get("records", "")
    row = f"{info.run:<28} {info.state:<12} {info.evaluator:<14} {info.suite:<12} {records}"
    return f"{row} {left_behind(folder, info)}".rstrip()


def _in_ledger(run: str, servers: Servers) -> str | None:
    """How a run stands whose folder is elsewhere; None for one that expired meanwhile."""
    with contextlib.suppress(Incomplete):
        look = servers.runs.look(run)
        progress = look.progress
        told = f"{progress.state:<12} in the ledger only, {progress.committed}/{progress.chunks} chunks"
        return told + _silence(progress.state, look, servers)
    # Outputs are asked about when the calls for them are over: what goes is the last one that there is.
    for name in reversed([run, *servers.sweeps.further(run)]):
        calls, header = servers.sweeps.look(name), servers.sweeps.header(name)
        if calls is not None and header is not None:
            break
    else:
        return None
    told = f"{calls.state:<12} in the ledger only, {calls.recorded}/{header.total} calls of {header.target}"
    return told + _silence(calls.state, calls, servers)


def _silence(state: str, look: Look | SweepLook, servers: Servers) -> str:
    """For how long an open run's driver has not been heard of, where that is long enough for another to take over."""
    if state != "open" or not look.driver or look.driver_silent < servers.settings.driver_seconds:
        return ""
    return f"; its driver ({look.driver.rpartition(' ')[0]}) has been silent for {spell(look.driver_silent)}"


COMMAND = command(_list, as_json(), *server_options())
