"""Runs in ./evalq-runs, and in the ledger with --broker."""

from __future__ import annotations

import contextlib

import click

from evalq.evalcore.errors import Incomplete
from evalq.evalcore.model.canonical import canonical_json
from evalq.producer.folder.info import RunInfo
from evalq.producer.invocation.declare import command
from evalq.producer.invocation.finding import folders
from evalq.producer.invocation.invocation import Invocation
from evalq.producer.invocation.options import as_json, server_options
from evalq.producer.servers import Servers

__all__ = ["COMMAND"]


def _list(invocation: Invocation, as_json: bool) -> None:
    rows = folders()
    if as_json:
        click.echo(canonical_json([folder.facts() for folder, _ in rows]))
        return
    for _, info in rows:
        click.echo(_row(info))
    known = {info.run for _, info in rows}
    with invocation.servers() as servers:
        for run in sorted({*servers.runs.runs(), *servers.sweeps.runs()} - known) if servers.named else []:
            if (told := _in_ledger(run, servers)) is not None:
                click.echo(f"{run:<28} {told}")


def _row(info: RunInfo) -> str:
    records = info.progress.get("records", "")
    return f"{info.run:<28} {info.state:<12} {info.evaluator:<14} {info.suite:<12} {records}"


def _in_ledger(run: str, servers: Servers) -> str | None:
    """How a run stands whose folder is elsewhere; None for one that expired meanwhile."""
    with contextlib.suppress(Incomplete):
        progress = servers.runs.look(run).progress
        return f"{progress.state:<12} in the ledger only, {progress.committed}/{progress.chunks} chunks"
    look, header = servers.sweeps.look(run), servers.sweeps.header(run)
    if look is None or header is None:
        return None
    return f"{look.state:<12} in the ledger only, {look.recorded}/{header.total} calls of {header.target}"


COMMAND = command(_list, as_json(), *server_options())
