"""List the runs in ./evalq-runs, those beside it and, with --broker, those in the ledger."""

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
from evalq.producer.invocation.finding import driver_hint, folders_here
from evalq.producer.invocation.invocation import Invocation, command, next_step
from evalq.producer.invocation.options import as_json, server_options
from evalq.producer.monitor.fleet import format_duration
from evalq.producer.servers import Servers

if TYPE_CHECKING:
    from evalq.workers.ledger.progress import RunStatus
    from evalq.workers.ledger.sweep_model import SweepStatus


def _list(invocation: Invocation, as_json: bool) -> None:
    rows = folders_here()
    if not as_json:  # before the ledger answers, which may be slow
        for folder, info in rows:
            click.echo(_line(_row(folder, info)))
    with invocation.servers() as servers:
        away = list(_ledger_only({info.run for _, info in rows}, servers))
        named = servers.named
    if as_json:
        click.echo(canonical_json([*(folder.facts() for folder, _ in rows), *(facts for _, facts in away)]))
        return
    for text, facts in away:
        click.echo(_line(f"{facts['run']:<36} {text}"))
    if not rows and not away:
        click.echo(
            f"there is no run in ./{RUNS} or beside it" + (", and none in the ledger" if named else ""), err=True
        )
        next_step("make first cases and a target: evalq init")
    else:
        next_step("look at one: evalq view RUN; compare two: evalq compare BASE CAND")


def _ledger_only(known: Collection[str], servers: Servers) -> Iterator[tuple[str, dict[str, Json]]]:
    """The runs that have no folder here, only an entry in the ledger: each as a line and as data."""
    if not servers.named:
        return
    from evalq.workers.ledger.calls import run_of

    for run in sorted({*servers.runs.runs(), *map(run_of, servers.sweeps.runs())} - set(known)):
        try:
            found = _in_ledger(run, servers)
        except WireError as error:  # list the other runs all the same
            found = f"{'damaged':<12} {error}", "damaged", {"reason": str(error)}
        if found is not None:
            text, state, facts = found
            yield text, {"run": run, "state": state, **facts}


def _line(text: str) -> str:
    """``text`` as the one line of a run, whatever its suite is called."""
    return visible(" ".join(text.splitlines()))


def _row(folder: RunFolder, info: RunInfo) -> str:
    records = info.progress.get("records", "") if info.records is None else info.records
    if records == "" and info.state == "done":  # without a count in run.json
        with contextlib.suppress(EvalqError, OSError):
            records = folder.report()["records"]["total"]
    name = info.run if folder.path.parent == RUNS else str(folder.path)
    row = f"{name:<36} {info.state:<9} {info.evaluator:<12} {info.suite:<12} {records:>6}"
    cost = f"cost {info.cost:.4g}" if info.cost else ""
    duration = "" if info.duration is None else format_duration(info.duration)
    more = ", ".join(filter(None, (info.target, info.headline, cost, duration)))
    return "  ".join(filter(None, (row, more, driver_hint(folder, info)))).rstrip()


def _in_ledger(run: str, servers: Servers) -> tuple[str, str, dict[str, Json]] | None:
    """A run's line, state and facts in the ledger; None if it has expired meanwhile."""
    import msgspec

    with contextlib.suppress(Incomplete):
        status = servers.runs.poll(run)
        progress = status.progress
        text = f"{progress.state:<12} in the ledger only, {progress.committed}/{progress.chunks} chunks"
        text += _silence(progress.state, status, servers)
        return text, progress.state, {"progress": msgspec.to_builtins(progress)}
    # Judges are called after the target: the last sweep is the one under way.
    for name in reversed([run, *servers.sweeps.judge_sweeps(run)]):
        calls, header = servers.sweeps.poll(name), servers.sweeps.header(name)
        if calls is not None and header is not None:
            break
    else:
        return None
    text = f"{calls.state:<12} in the ledger only, {calls.recorded}/{header.total} calls of {header.target}"
    text += _silence(calls.state, calls, servers)
    return text, calls.state, {"calls": msgspec.to_builtins(calls), "target": header.target}


def _silence(state: str, status: RunStatus | SweepStatus, servers: Servers) -> str:
    """How long an open run's driver has been silent; empty before another driver may take over."""
    if state != "open" or not status.driver or status.driver_silent < servers.settings.driver_seconds:
        return ""
    return (
        f"; its driver ({status.driver.rpartition(' ')[0]}) has been silent for {format_duration(status.driver_silent)}"
    )


COMMAND = command(_list, as_json(), *server_options())
