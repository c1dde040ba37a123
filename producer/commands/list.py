"""List the runs in ./evalq-runs and, with --broker, in the ledger."""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Iterator
from typing import TYPE_CHECKING

import click

from evalq.evalcore.errors import EvalqError, Incomplete, WireError
from evalq.evalcore.model.canonical import Json, canonical_json
from evalq.evalcore.views.markdown import visible
from evalq.producer.folder.documents import RunInfo
from evalq.producer.folder.files import RUNS
from evalq.producer.folder.run_folder import RunFolder
from evalq.producer.invocation.finding import folders, left_behind
from evalq.producer.invocation.invocation import Invocation, command
from evalq.producer.invocation.options import as_json, server_options
from evalq.producer.monitor.fleet import format_duration
from evalq.producer.servers import Servers

if TYPE_CHECKING:
    from evalq.workers.ledger.progress import RunStatus
    from evalq.workers.ledger.sweep_model import SweepStatus


def _list(invocation: Invocation, as_json: bool) -> None:
    rows = folders()
    if not as_json:  # before a server is asked, which may be slow
        for folder, info in rows:
            click.echo(_line(_row(folder, info)))
    with invocation.servers() as servers:
        away = list(_away({info.run for _, info in rows}, servers))
        named = servers.named
    if as_json:
        click.echo(canonical_json([*(folder.facts() for folder, _ in rows), *(facts for _, facts in away)]))
        return
    for told, facts in away:
        click.echo(_line(f"{facts['run']:<28} {told}"))
    if not rows and not away:
        click.echo(f"there is no run in ./{RUNS}" + (", and none in the ledger" if named else ""), err=True)


def _away(known: Collection[str], servers: Servers) -> Iterator[tuple[str, dict[str, Json]]]:
    """How each run stands that only the ledger knows: in words, and as data."""
    if not servers.named:
        return
    from evalq.workers.ledger.calls import subject

    for run in sorted({*servers.runs.runs(), *map(subject, servers.sweeps.runs())} - set(known)):
        try:
            found = _in_ledger(run, servers)
        except WireError as error:  # of one run: the others are listed all the same
            found = f"{'damaged':<12} {error}", "damaged", {"reason": str(error)}
        if found is not None:
            told, state, facts = found
            yield told, {"run": run, "state": state, **facts}


def _line(text: str) -> str:
    """``text`` as the one line of a run, whatever its suite is called."""
    return visible(" ".join(text.splitlines()))


def _row(folder: RunFolder, info: RunInfo) -> str:
    records = info.progress.get("records", "") if info.records is None else info.records
    if records == "" and info.state == "done":  # by an evalq that noted no count where no ledger had one
        with contextlib.suppress(EvalqError, OSError):
            records = folder.report()["records"]["total"]
    row = f"{info.run:<28} {info.state:<12} {info.evaluator:<14} {info.suite:<12} {records}"
    return f"{row} {left_behind(folder, info)}".rstrip()


def _in_ledger(run: str, servers: Servers) -> tuple[str, str, dict[str, Json]] | None:
    """How a run stands whose folder is elsewhere, in words and as data; None for one that expired meanwhile."""
    import msgspec

    with contextlib.suppress(Incomplete):
        look = servers.runs.poll(run)
        progress = look.progress
        told = f"{progress.state:<12} in the ledger only, {progress.committed}/{progress.chunks} chunks"
        told += _silence(progress.state, look, servers)
        return told, progress.state, {"progress": msgspec.to_builtins(progress)}
    # Outputs are asked about when the calls for them are over: what goes is the last one that there is.
    for name in reversed([run, *servers.sweeps.further(run)]):
        calls, header = servers.sweeps.poll(name), servers.sweeps.header(name)
        if calls is not None and header is not None:
            break
    else:
        return None
    told = f"{calls.state:<12} in the ledger only, {calls.recorded}/{header.total} calls of {header.target}"
    told += _silence(calls.state, calls, servers)
    return told, calls.state, {"calls": msgspec.to_builtins(calls), "target": header.target}


def _silence(state: str, look: RunStatus | SweepStatus, servers: Servers) -> str:
    """For how long an open run's driver has not been heard of, where that is long enough for another to take over."""
    if state != "open" or not look.driver or look.driver_silent < servers.settings.driver_seconds:
        return ""
    return f"; its driver ({look.driver.rpartition(' ')[0]}) has been silent for {format_duration(look.driver_silent)}"


COMMAND = command(_list, as_json(), *server_options())
