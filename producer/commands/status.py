"""Show the state and the progress of a run (the latest, if none is named)."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

import click

from evalq.evalcore.contract import plugins
from evalq.evalcore.errors import EvalqError
from evalq.evalcore.model.canonical import Json, canonical_json
from evalq.evalcore.model.life import CALLS_OVER
from evalq.evalcore.views.markdown import printed
from evalq.producer.folder.run_folder import RunFolder
from evalq.producer.invocation.finding import driver_hint, elsewhere, find, folders_here
from evalq.producer.invocation.invocation import Invocation, command
from evalq.producer.invocation.options import as_json, run_argument, server_options
from evalq.producer.monitor import fleet
from evalq.producer.monitor.no_workers import another_version
from evalq.producer.servers import Servers

if TYPE_CHECKING:
    from evalq.evalcore.model.manifest import Header
    from evalq.producer.sweep.sweep import Sweep
    from evalq.workers.ledger.progress import RunStatus


_WORDS = {
    "state": "ledger",
    "epoch": "resumed",
    "sealed": "planned",
    "stale": "outdated",
    "reconciled": "republished",
    "divergent": "differing",
    "finals": "report attempts",
    "suspect": "overdue",
    "leases": "in work",
}
"""Words for people in place of the ledger's; JSON keeps the ledger's."""
_BY_PROCESS = ("generation", "tallies", "under_way", "living")
"""Bookkeeping between processes and the ledger of a sweep: in JSON only."""
_PLAIN = {True: "yes", False: "no"}


def _status(invocation: Invocation, run: str | None, as_json: bool) -> None:
    with invocation.servers() as servers:
        rows = _fleet(servers)
        if rows and run is None and not folders_here():
            if as_json:
                click.echo(canonical_json({"fleet": rows}))
            for word, text in [] if as_json else rows:
                click.echo(printed(f"{word:<9} {text}"))
            return
        away = elsewhere(run, servers)
        folder = None if away else find(run)
        if folder is not None:
            folder.info()  # raises if it is damaged
        facts = _facts(folder.facts() if folder else {"run": run}, servers, away=away)
        if folder is not None:
            facts |= _results(folder, facts)
    if as_json:
        click.echo(canonical_json(facts | ({"fleet": rows} if rows else {})))
        return
    for line in _lines(facts, folder):
        click.echo(printed(line))
    for row in [("", ""), *rows] if rows else []:
        click.echo(printed(f"{row[0]:<9} {row[1]}".rstrip()))


def _fleet(servers: Servers) -> list[tuple[str, str]]:
    """The fleet's state; empty if no server is named."""
    if not servers.named:
        return []
    snapshot = servers.watch.snapshot()
    return list(fleet.rows(snapshot, servers.watch.codes(snapshot)))


def _facts(info: dict[str, Json], servers: Servers, *, away: bool) -> dict[str, Json]:
    """The facts of run.json and of the ledger; ``away``: the run has no folder here, so only the ledger has facts."""
    if not servers.named:
        return info
    sweep, header = _calls(servers, info["run"]), servers.runs.header(info["run"])
    if sweep is not None:
        info |= {"calls": sweep, "state": info.get("state", sweep["state"])}
    if header is not None:
        status = servers.runs.poll(info["run"])
        info |= _run(servers, header, status)
        if away:
            info |= {"evaluator": header.evaluator, "suite": header.suite, "state": status.progress.state}
    return info


def _results(folder: RunFolder, facts: Mapping[str, Json]) -> dict[str, Json]:
    """The ``result`` of a run that has a report, and under ``further`` the calls of its judges so far."""
    from evalq.producer.page import summary_of
    from evalq.producer.sweep.judge_stage import judge_sweeps
    from evalq.producer.sweep.sweep import Sweep

    found: dict[str, Json] = {}
    if not facts.get("calls"):
        # The ledger does not know it, as for a command that makes its calls alone, or they have come to no end.
        with contextlib.suppress(EvalqError, OSError):
            sweep = Sweep.asked_in(folder, same=False)
            if sweep is not None and sweep.live.target:
                found["calls"] = _counts(sweep)
    if folder.reported and "result" not in facts:  # else run.json has the headline
        with contextlib.suppress(EvalqError):  # its evaluator is not installed here, or the report is damaged
            report = folder.report()
            found["result"] = summary_of(plugins.get(report["evaluator"]), report).headline
    judge_calls: dict[str, Json] = dict(facts.get("further") or {})
    with contextlib.suppress(EvalqError, OSError):
        for each in judge_sweeps(folder):
            judge_calls.setdefault(each.files.name, _counts(each))
    return found | ({"further": judge_calls} if judge_calls else {})


def _counts(sweep: Sweep) -> dict[str, Json]:
    """How many of a sweep's calls its folder has."""
    return {
        "target": sweep.header.target,
        "planned": sweep.header.total,
        "recorded": sweep.recorded.count,
        "errors": sweep.recorded.errors,
    }


def _calls(servers: Servers, run: str) -> dict[str, Json] | None:
    """The state of a run's live calls in the ledger; None if it has none."""
    import msgspec

    # A run may have several sweeps, since judges are called after the target: show the one under way.
    every = [
        status for name in (run, *servers.sweeps.judge_sweeps(run)) if (status := servers.sweeps.poll(name)) is not None
    ]
    status = next((each for each in every if each.state not in CALLS_OVER), every[-1] if every else None)
    facts: dict[str, Json] | None = None if status is None else msgspec.to_builtins(status)
    return facts


def _run(servers: Servers, header: Header, status: RunStatus) -> dict[str, Json]:
    """A run's counters, its workers, and the reason why it waits."""
    import msgspec

    facts: dict[str, Json] = {
        "progress": msgspec.to_builtins(status.progress),
        "suspect": len(status.suspect),
        "leases": status.leases,
    }
    facts["workers"], others, lacking = servers.heartbeats.serving(header.code_version, header.evaluator)
    if status.progress.state == "open" and not status.progress.complete and not facts["workers"]:
        lacks = header.evaluator if lacking else ""
        facts["waiting"] = another_version(header.code_version, others, lacks) if others else "no worker is running"
    return facts | {"notes": servers.runs.notes(header.run)} | _troubles(servers, header, status)


def _troubles(servers: Servers, header: Header, status: RunStatus) -> dict[str, Json]:
    """Which hosts failed at an open run and why, and what to do if it waits."""
    from evalq.workers.ledger.failures import Failures
    from evalq.workers.ledger.heartbeats import unhealthy_of
    from evalq.workers.ledger.progress import REPORT_TRIES
    from evalq.workers.recovery.judge import judge

    if status.progress.state != "open":
        return {}
    living = servers.heartbeats.living(header.code_version)
    found = judge(header.evaluator, Failures(servers.runs).counts(header.run), status, living)
    facts: dict[str, Json] = {"trouble": list(found.trouble)} if found.trouble else {}
    if status.unserved:
        sick = all(header.evaluator in unhealthy_of(facts) for facts in living.values())
        what = f"load its evaluator {header.evaluator}" if sick else "compute it"
        facts["waiting"] = f"no living worker can {what}: start one that can, or it fails by unserved_seconds"
    if status.progress.complete and status.progress.finals >= REPORT_TRIES:
        facts["waiting"] = "no worker could make its report: make it with evalq resume, where its folder is"
    return facts


def _lines(facts: Mapping[str, Json], folder: RunFolder | None) -> Iterator[str]:
    """The facts as lines for people."""
    yield f"run       {facts['run']}"
    yield f"state     {facts['state']}"
    yield f"folder    {folder.path if folder else 'elsewhere; these facts are from the ledger'}"
    if "result" in facts:
        yield f"result    {facts['result']}"
    for judge_calls in (facts.get("further") or {}).values():
        yield f"judge     {judge_calls['target']}: {judge_calls['recorded']:,} of {judge_calls['planned']:,} calls" + (
            f", {judge_calls['errors']:,} failed" if judge_calls.get("errors") else ""
        )
    if folder is not None and (left := driver_hint(folder, folder.info())):
        yield f"driver    {left}"
    for key, value in (facts.get("progress") or {}).items():
        if value != "" and (key, value) != ("state", facts["state"]):
            yield f"{_WORDS.get(key, key):<9} {_plain(key, value)}"
    for key, value in (facts.get("calls") or {}).items():
        if value != "" and key not in _BY_PROCESS:
            yield f"calls {key:<9} {value}"
    for key in ("suspect", "leases", "workers", "waiting", "seconds"):
        if key in facts:
            yield f"{_WORDS.get(key, key):<9} {facts[key]}"
    for line in facts.get("trouble", ()):
        yield f"trouble   {line}"


def _plain(key: str, value: Json) -> Json:
    if key == "epoch":
        return max(0, value - 1)  # the first driver has epoch 1, and has resumed nothing
    return _PLAIN[value] if isinstance(value, bool) else value


COMMAND = command(_status, run_argument(), as_json(), *server_options())
