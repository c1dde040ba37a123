"""Commands that show runs and go on with them: list, status, watch, resume, retry, report."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from evalcore import registry
from evalcore.canonical import Json, canonical_json
from evalcore.errors import UsageError
from producer import fleet
from producer.commands import options as shared
from producer.commands.evaluate import refuse_dead, refuse_unscored, reporter_for, show
from producer.commands.find import (
    RUNS,
    calls_of,
    command,
    elsewhere,
    find,
    folders,
    ledger_of,
    run_argument,
    server_options,
)
from producer.folder import RunFolder
from producer.unserved import other_code

if TYPE_CHECKING:
    from evalcore.plan import Header
    from producer.job import Job
    from workers.ledger import Ledger
    from workers.standing import Look
    from workers.watch import Watch

__all__ = ["COMMANDS", "follow"]

_POLL_SECONDS = 0.2
_FLEET_SECONDS = 60.0
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


def _row(info: dict[str, Json]) -> str:
    progress = info.get("progress") or {}
    records = progress.get("records", "")
    return f"{info['run']:<28} {info['state']:<12} {info['evaluator']:<14} {info['suite']:<12} {records}"


def _list(**given: Any) -> None:
    rows = [RunFolder(path).info() for path in folders()]
    if given["as_json"]:
        click.echo(canonical_json(rows))
        return
    for info in rows:
        click.echo(_row(info))
    ledger = ledger_of(given)
    known = {info["run"] for info in rows}
    for run in sorted(set(ledger.runs()) - known) if ledger else []:
        progress = ledger.look(run).progress
        click.echo(f"{run:<28} {progress.state:<12} in the ledger only, {progress.committed}/{progress.chunks} chunks")


def _sweep(given: dict[str, Any], run: str) -> dict[str, Json] | None:
    """How a run's live calls stand in the ledger; None where it knows of none."""
    import msgspec

    calls = calls_of(ledger_of(given), given)
    look = None if calls is None else calls.look(run)
    facts: dict[str, Json] | None = None if look is None else msgspec.to_builtins(look)
    return facts


def _watch_for(given: dict[str, Any]) -> Watch | None:
    """What looks at the servers that are named, where any is."""
    from workers.watch import Watch

    settings = shared.settings_from(given)
    return Watch(settings) if settings.broker else None


def _fleet_rows(watch: Watch) -> list[tuple[str, str]]:
    snapshot = watch.look()
    return list(fleet.rows(snapshot, watch.codes(snapshot)))


def _status(run: str | None, **given: Any) -> None:
    ledger = ledger_of(given)
    watch = _watch_for(given)
    rows = _fleet_rows(watch) if watch else []
    if rows and run is None and not folders():
        click.echo(canonical_json({"fleet": rows}) if given["as_json"] else "\n".join(f"{w:<9} {t}" for w, t in rows))
        return
    away = elsewhere(run, given)
    folder = None if away else find(run)
    info: dict[str, Json] = folder.info() if folder else {"run": run}
    header = ledger.header(info["run"]) if ledger is not None else None
    look = _sweep(given, info["run"])
    if look is not None:
        info |= {"calls": look, "state": info.get("state", look["state"])}
    if header is not None:
        import msgspec

        from workers.register import Register

        look = ledger.look(info["run"])
        info |= {"progress": msgspec.to_builtins(look.progress), "suspect": len(look.suspect), "leases": look.leases}
        others = Register(ledger.client).codes()
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


def _troubles(ledger: Ledger, header: Header, look: Look) -> dict[str, Json]:
    """Which hosts failed at an open run, and why, and what to do where it waits for somebody."""
    from workers.failures import Failures
    from workers.judge import judge
    from workers.register import Register
    from workers.standing import TRIES

    if look.progress.state != "open":
        return {}
    living = Register(ledger.client).living(header.code_version)
    found = judge(header.evaluator, Failures(ledger).told(header.run), look, living)
    facts: dict[str, Json] = {"trouble": list(found.trouble)} if found.trouble else {}
    if look.unserved:
        facts["waiting"] = "no living worker can compute it: start one that can, or it fails by unserved_seconds"
    if look.progress.complete and look.progress.finals >= TRIES:
        facts["waiting"] = f"no worker could make its report: make it with evalq resume {header.run}"
    return facts


def _resume(run: str | None, **given: Any) -> None:
    folder = find(run)
    if folder.info()["state"] == "done":
        from producer.live.sweep import Sweep

        if not (Sweep.is_in(folder) and (given.get("max_calls") or given.get("max_cost"))):
            raise UsageError(f"{folder.path}: this run is done; see it with: evalq report {folder.path}")
        folder.note(state="retrying")  # under a larger budget
    _begun(folder, given)


def _begun(folder: RunFolder, given: dict[str, Any]) -> None:
    """Go on with a run, in its calls or in its evaluation."""
    from producer.job import Job
    from producer.live.sweep import Sweep

    if Sweep.in_calls(folder):
        from producer.commands.live import go_on_live

        go_on_live(folder, given)
    else:
        _go_on(Job.load(folder), given)


def _go_on(job: Job, given: dict[str, Any]) -> None:
    """See a run that was begun before to its end."""
    from producer.session import Place, carry_out

    folder = job.folder
    reporter = reporter_for(job.evaluator.unit, given)
    reporter.event("launch", run=job.run, folder=str(folder.path))
    place = Place(shared.settings_from(given), inline=given["inline"], workers=given["workers"])
    result = carry_out(job, place, reporter)
    show(folder, job.evaluator, result, job.request.options, given)
    reporter.event("done", run=job.run, folder=str(folder.path), records=result["records"])
    refuse_dead(folder, result, given)
    refuse_unscored(folder, result)


def _retry(run: str | None, errors: bool, **given: Any) -> None:
    from producer.retry import begin_retry

    if not errors:
        raise UsageError("say what to try again: --errors, the records without a result")
    folder = find(run)
    with folder.driving() as free:
        if not free:
            raise UsageError(f"{folder.path}: another evalq process is driving this run")
        begin_retry(folder)
    _begun(folder, given)


def follow(path: Path, given: dict[str, Any]) -> None:
    """See the run in ``path`` to its end, driving it if nobody does, and show its report."""
    _watch(str(path), **given)


def _watch(run: str | None, **given: Any) -> None:
    folder = find(run)
    watch, said = _watch_for(given), 0.0
    reporter = reporter_for("records", given)
    while folder.info()["state"] != "done":
        with folder.driving() as free:
            pass
        if free:
            _resume(str(folder.path), **given)
            return
        if watch is not None and time.monotonic() - said >= _FLEET_SECONDS:
            said = time.monotonic()
            reporter.say(f"driven by another process; {fleet.fleet_of(watch.look())}")
        time.sleep(_POLL_SECONDS)
    _report(str(folder.path), **given)


def _fetched(run: str | None, given: dict[str, Any]) -> RunFolder | None:
    """The folder of a detached run without a report, with the one that workers left in the ledger."""
    path = RUNS / run if run and not Path(run).is_dir() else find(run).path
    folder = RunFolder(path)
    if folder.reported or not given.get("broker"):
        return None
    from producer.fetch import fetch

    name = folder.info()["run"] if (path / "run.json").is_file() else str(run)
    return fetch(name, path, ledger_of(given), shared.settings_from(given))


def _report(run: str | None, **given: Any) -> None:
    folder = _fetched(run, given) or find(run)
    info, result = folder.info(), folder.report()
    evaluator = registry.get(result["evaluator"])
    show(folder, evaluator, result, info["request"]["options"], {"quiet": True, "json_lines": False, **given})


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
        command("list", _list, _json, *server_options),
        command("status", _status, run_argument, _json, *server_options),
        command("watch", _watch, run_argument, *_where, *_calling, *_what),
        command("resume", _resume, run_argument, *_where, *_calling, *_what),
        command("retry", _retry, run_argument, _errors, *_where, *_calling, *_what),
        command("report", _report, run_argument, *server_options, *_shown),
    )
}
