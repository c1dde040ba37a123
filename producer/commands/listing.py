"""The command that lists runs: those with a folder here, and with --broker those that only its ledger knows."""

from __future__ import annotations

import contextlib
from typing import Any

import click

from evalq.evalcore.errors import Incomplete
from evalq.evalcore.model.canonical import canonical_json
from evalq.producer.commands.find import calls_of, command, folders, ledger_of, left_behind, server_options
from evalq.producer.folder.info import RunInfo
from evalq.producer.folder.run_folder import RunFolder

__all__ = ["COMMANDS"]


def _list(**given: Any) -> None:
    rows = folders()
    if given["as_json"]:
        click.echo(canonical_json([folder.facts() for folder, _ in rows]))
        return
    for folder, info in rows:
        click.echo(_row(folder, info))
    known = {info.run for _, info in rows}
    ledger = ledger_of(given)
    calls = calls_of(ledger, given)
    for run in sorted({*ledger.runs(), *calls.runs()} - known) if ledger else []:
        if (told := _in_ledger(run, ledger, calls)) is not None:
            click.echo(f"{run:<28} {told}")


def _row(folder: RunFolder, info: RunInfo) -> str:
    records = info.progress.get("records", "")
    row = f"{info.run:<28} {info.state:<12} {info.evaluator:<14} {info.suite:<12} {records}"
    return f"{row} {left_behind(folder, info)}".rstrip()


def _in_ledger(run: str, ledger: Any, calls: Any) -> str | None:
    """How a run stands whose folder is elsewhere; None for one that expired meanwhile."""
    with contextlib.suppress(Incomplete):
        look = ledger.look(run)
        progress = look.progress
        told = f"{progress.state:<12} in the ledger only, {progress.committed}/{progress.chunks} chunks"
        return told + _silence(progress.state, look, ledger)
    look, header = calls.look(run), calls.header(run)
    if look is None or header is None:
        return None
    told = f"{look.state:<12} in the ledger only, {look.recorded}/{header.total} calls of {header.target}"
    return told + _silence(look.state, look, ledger)


def _silence(state: str, look: Any, ledger: Any) -> str:
    """For how long an open run's driver has not been heard of, where that is long enough for another to take over."""
    if state != "open" or not look.driver or look.driver_silent < ledger.settings.driver_seconds:
        return ""
    return f"; its driver ({look.driver.rpartition(' ')[0]}) has been silent for {look.driver_silent:.0f} s"


_json = click.Option(["--json", "as_json"], is_flag=True, help="As JSON.")

COMMANDS = {"list": command("list", _list, _json, *server_options)}
