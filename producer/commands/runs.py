"""Commands that show a run and resume it: status, watch, resume, retry, report."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from evalq.evalcore.contract import registry
from evalq.evalcore.errors import Driven, EvalqError, Finished, UsageError
from evalq.evalcore.model.canonical import Json, canonical_json
from evalq.producer.commands import options as shared
from evalq.producer.commands.evaluate import conclude, refuse_unscored, reporter_for, show
from evalq.producer.commands.find import (
    RUNS,
    calls_of,
    command,
    elsewhere,
    find,
    folders,
    ledger_of,
    left_behind,
    run_argument,
    server_options,
)
from evalq.producer.folder.run_folder import RunFolder
from evalq.producer.monitor import fleet
from evalq.producer.monitor.unserved import other_code

if TYPE_CHECKING:
    from evalq.evalcore.model.manifest import Header
    from evalq.producer.runs.execute import Backend
    from evalq.workers.ledger.progress import Look
    from evalq.workers.ledger.runs import RunLedger
    from evalq.workers.monitor.watcher import Watch

__all__ = ["COMMANDS", "join_run"]

_WORDS = {
    "state": "ledger",
    "epoch": "resumed",
    "sealed": "all cut",
    "stale": "outdated",
    "skipped": "not due",
    "reconciled": "again",
    "divergent": "differing",
    "suspect": "overdue",
    "leases": "in work",
}
"""What people are told where the ledger has a word of its own; JSON keeps the ledger's."""
_PLAIN = {True: "yes", False: "no"}


def _sweep(given: dict[str, Any], run: str) -> dict[str, Json] | None:
    """How a run's live calls stand in the ledger; None where it knows of none."""
    import msgspec

    calls = calls_of(ledger_of(given), given)
    look = None if calls is None else calls.look(run)
    facts: dict[str, Json] | None = None if look is None else msgspec.to_builtins(look)
    return facts


def _watch_for(given: dict[str, Any]) -> Watch | None:
    """What looks at the servers that are named, where any is."""
    from evalq.workers.monitor.watcher import Watch

    settings = shared.settings_from(given)
    return Watch(settings) if settings.broker else None


def _fleet_rows(watch: Watch) -> list[tuple[str, str]]:
    snapshot = watch.look()
    return list(fleet.rows(snapshot, watch.codes(snapshot)))


def _fleet_said(given: dict[str, Any]) -> str:
    """What the fleet is at; nothing where no server is named, or it does not answer."""
    with contextlib.suppress(EvalqError):
        watch = _watch_for(given)
        return str(fleet.fleet_of(watch.look())) if watch else ""
    return ""


def _status(run: str | None, **given: Any) -> None:
    ledger = ledger_of(given)
    watch = _watch_for(given)
    rows = _fleet_rows(watch) if watch else []
    if rows and run is None and not folders():
        click.echo(canonical_json({"fleet": rows}) if given["as_json"] else "\n".join(f"{w:<9} {t}" for w, t in rows))
        return
    away = elsewhere(run, given)
    folder = None if away else find(run)
    if folder is not None:
        folder.info()  # tells of a damaged one
    info: dict[str, Json] = folder.facts() if folder else {"run": run}
    header = ledger.header(info["run"]) if ledger is not None else None
    look = _sweep(given, info["run"])
    if look is not None:
        info |= {"calls": look, "state": info.get("state", look["state"])}
    if header is not None:
        import msgspec

        from evalq.workers.ledger.heartbeats import Heartbeats

        look = ledger.look(info["run"])
        info |= {"progress": msgspec.to_builtins(look.progress), "suspect": len(look.suspect), "leases": look.leases}
        others = Heartbeats(ledger.client).codes()
        info["workers"] = others.pop(header.code_version, 0)
        if look.progress.state == "open" and not look.progress.complete and not info["workers"]:
            info["waiting"] = other_code(header.code_version, others) if others else "no worker lives"
        info["notes"] = ledger.notes(info["run"])
        info |= _troubles(ledger, header, look)
        if away:
            info |= {"evaluator": header.evaluator, "suite": header.suite, "state": look.progress.state}
    if given["as_json"]:
        click.echo(canonical_json(info | ({"fleet": rows} if rows else {})))
        return
    where = folder.path if folder else "elsewhere; this is what the ledger knows"
    click.echo(f"run       {info['run']}\nstate     {info['state']}\nfolder    {where}")
    if folder is not None and (left := left_behind(folder, folder.info())):
        click.echo(f"driver    {left}")
    for key, value in (info.get("progress") or {}).items():
        if value != "" and (key, value) != ("state", info["state"]):
            click.echo(f"{_WORDS.get(key, key):<9} {_PLAIN.get(value, value) if isinstance(value, bool) else value}")
    for key, value in (info.get("calls") or {}).items():
        if value != "":
            click.echo(f"calls {key:<9} {value}")
    for key in ("suspect", "leases", "workers", "waiting", "seconds"):
        if key in info:
            click.echo(f"{_WORDS.get(key, key):<9} {info[key]}")
    for line in info.get("trouble", ()):
        click.echo(f"trouble   {line}")
    for row in [("", ""), *rows] if rows else []:
        click.echo(f"{row[0]:<9} {row[1]}".rstrip())


def _troubles(ledger: RunLedger, header: Header, look: Look) -> dict[str, Json]:
    """Which hosts failed at an open run, and why, and what to do where it waits for somebody."""
    from evalq.workers.ledger.failures import Failures
    from evalq.workers.ledger.heartbeats import Heartbeats
    from evalq.workers.ledger.progress import REPORT_TRIES
    from evalq.workers.recovery.judge import judge

    if look.progress.state != "open":
        return {}
    living = Heartbeats(ledger.client).living(header.code_version)
    found = judge(header.evaluator, Failures(ledger).told(header.run), look, living)
    facts: dict[str, Json] = {"trouble": list(found.trouble)} if found.trouble else {}
    if look.unserved:
        facts["waiting"] = "no living worker can compute it: start one that can, or it fails by unserved_seconds"
    if look.progress.complete and look.progress.finals >= REPORT_TRIES:
        facts["waiting"] = f"no worker could make its report: make it with evalq resume {header.run}"
    return facts


def _resume(run: str | None, **given: Any) -> None:
    from evalq.producer.runs.execute import driving, refuse_over
    from evalq.producer.sweeps.joining import resume_any
    from evalq.producer.sweeps.sweep import Sweep

    folder = find(run)
    reporter = reporter_for(registry.get(folder.info().evaluator).records.unit, given)
    place, budgets = _place(given), (given.get("max_calls"), given.get("max_cost"))
    if folder.info().state == "done" and any(budgets) and Sweep.is_in(folder):
        with driving(folder, place):
            folder.note(state="retrying")  # under a larger budget
    refuse_over(folder)
    with _driven_at(place):
        resume_any(folder, place, reporter, budgets)
    conclude(folder, given, reporter)


def _place(given: dict[str, Any]) -> Backend:
    from evalq.producer.runs.execute import Backend

    return Backend(shared.settings_from(given), inline=given["inline"], workers=given["workers"])


@contextlib.contextmanager
def _driven_at(place: Backend) -> Iterator[None]:
    """Who is told that another process drives the run is told at which server to watch it."""
    try:
        yield
    except Finished as finished:
        raise Finished(finished.run, place.server) from None
    except Driven as driven:
        raise Driven(driven.run, driven.by, place.server) from None


def _retry(run: str | None, errors: bool, **given: Any) -> None:
    from evalq.producer.runs.execute import driving
    from evalq.producer.sweeps.joining import resume_any
    from evalq.producer.sweeps.retry import begin_retry

    if not errors:
        raise UsageError("say what to try again: --errors, the records without a result")
    folder, place = find(run), _place(given)
    with driving(folder, place):
        begin_retry(folder)
    reporter = reporter_for(registry.get(folder.info().evaluator).records.unit, given)
    with _driven_at(place):
        resume_any(folder, place, reporter, (given.get("max_calls"), given.get("max_cost")))
    conclude(folder, given, reporter)


def join_run(path: Path, place: Backend, reporter: Any, given: dict[str, Any]) -> bool:
    """What a command does whose --once key has a run in ``path`` already: its report, whoever computes it.

    False where that run is gone: it ended on faulty input, and left no folder.
    """
    from evalq.producer.sweeps.joining import join, launch_again, resume_any

    folder = RunFolder(path)
    try:
        info = folder.info()
        reporter.say(f"run {info.run}: begun before, in {path}")
        if given.get("dry_run"):
            return True
        if given.get("detach"):
            click.echo(launch_again(folder, place, reporter))
            return True
        join(folder, place.settings, reporter, lambda left: resume_any(left, place, reporter))
    except FileNotFoundError:
        return False
    conclude(folder, given, reporter)
    return True


def _watch(run: str | None, **given: Any) -> None:
    """Look on until a run has its report; nothing is computed, and nothing of it changed, for anybody else."""
    from evalq.producer.runs.execute import Backend
    from evalq.producer.sweeps.joining import attend_fleet, ended, resume_any, watch_driver

    settings = shared.settings_from(given)
    reporter = reporter_for("records", given)
    if run is not None and elsewhere(run, given):
        attend_fleet(run, settings, reporter)
        _report(run, **given)
        return
    folder = find(run)
    watch_driver(folder, reporter, lambda: _fleet_said(given))
    info = folder.info()
    if info.state == "detached":
        attend_fleet(info.run, settings, reporter, until=lambda: bool(folder.driver()), here=True)
        # Nothing is left to do for the fleet: its answers come into the folder.
        resume_any(folder, Backend(settings), reporter)
    elif info.state != "done":
        raise ended(folder, info.state)
    conclude(folder, given, reporter)


def _fetched(run: str | None, given: dict[str, Any]) -> RunFolder | None:
    """The folder of a detached run without a report, with the one that workers left in the ledger."""
    path = RUNS / run if run and not Path(run).is_dir() else find(run).path
    folder = RunFolder(path)
    ledger = ledger_of(given)
    if folder.reported or ledger is None:
        return None
    from evalq.producer.runs.download import fetch

    return fetch(folder.info().run if folder.begun else str(run), path, ledger, shared.settings_from(given))


def _report(run: str | None, **given: Any) -> None:
    folder = _fetched(run, given) or find(run)
    info, result = folder.info(), folder.report()
    evaluator = registry.get(result["evaluator"])
    show(folder, evaluator, result, info.request.options, {"quiet": True, "json_lines": False, **given})
    refuse_unscored(folder, result)


_json = click.Option(["--json", "as_json"], is_flag=True, help="As JSON.")
_errors = click.Option(
    ["--errors"], is_flag=True, help="Records that killed their process, and calls without an output."
)
_where = shared.place_options()
_calling = shared.calling_options()
_what = shared.output_options()
_shown = [option for option in _what if option.name in ("fmt", "outputs")]

COMMANDS = {
    each.name: each
    for each in (
        command("status", _status, run_argument, _json, *server_options),
        command("watch", _watch, run_argument, *server_options, *_what),
        command("resume", _resume, run_argument, *_where, *_calling, *_what),
        command("retry", _retry, run_argument, _errors, *_where, *_calling, *_what),
        command("report", _report, run_argument, *server_options, *_shown),
    )
}
