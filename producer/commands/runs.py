"""Commands about runs that exist: list, status, watch, resume, cancel, report."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from evalcore import registry
from evalcore.canonical import Json, canonical_json
from evalcore.errors import UsageError
from producer import fleet
from producer.commands import SUMMARIES
from producer.commands import options as shared
from producer.commands.evaluate import refuse_dead, reporter_for, show
from producer.folder import RunFolder

if TYPE_CHECKING:
    from producer.job import Job
    from workers.watch import Watch

__all__ = ["COMMANDS", "follow"]

RUNS = Path("evalq-runs")
_POLL_SECONDS = 0.2
_FLEET_SECONDS = 60.0


def _command(name: str, call: Callable[..., None], *options: click.Parameter) -> click.Command:
    return click.Command(name, callback=call, help=SUMMARIES[name], params=list(options))


def _folders() -> list[Path]:
    """Run folders under ./evalq-runs, the latest begun last."""
    found = [path.parent for path in RUNS.glob("*/run.json")]
    return sorted(found, key=lambda path: path.stat().st_ctime)


def _find(run: str | None) -> RunFolder:
    """The folder of RUN: a path, an id, or without either the latest. Raises UsageError."""
    if run is None:
        latest = _folders()
        if not latest:
            raise UsageError(f"no run in {RUNS}: name a run folder")
        return RunFolder(latest[-1])
    path = Path(run)
    return RunFolder.existing(path if path.is_dir() else RUNS / run)


def _ledger(given: dict[str, Any]) -> Any:
    from workers.connect import connect
    from workers.ledger import Ledger

    settings = shared.settings_from(given)
    return Ledger(connect(settings.ledger_url, settings), settings) if settings.broker else None


def _close(given: dict[str, Any], run: str, state: str, reason: str) -> str | None:
    """Close a run on the servers, in its calls and in its evaluation; the state it is in then, None without servers."""
    from workers.calls import Calls

    ledger = _ledger(given)
    if ledger is None:
        return None
    calls = Calls(ledger.client, shared.settings_from(given))
    calling = calls.close(run, state, reason)
    found = ledger.close(run, state, reason)
    return str(calling if found == "gone" else found)


def _row(info: dict[str, Json]) -> str:
    progress = info.get("progress") or {}
    records = progress.get("records", "")
    return f"{info['run']:<28} {info['state']:<12} {info['evaluator']:<14} {info['suite']:<12} {records}"


def _list(**given: Any) -> None:
    rows = [RunFolder(path).info() for path in _folders()]
    if given["as_json"]:
        click.echo(canonical_json(rows))
        return
    for info in rows:
        click.echo(_row(info))
    ledger = _ledger(given)
    known = {info["run"] for info in rows}
    for run in sorted(set(ledger.runs()) - known) if ledger else []:
        progress = ledger.look(run).progress
        click.echo(f"{run:<28} {progress.state:<12} in the ledger only, {progress.committed}/{progress.chunks} chunks")


def _sweep(given: dict[str, Any], run: str) -> dict[str, Json] | None:
    """How a run's live calls stand in the ledger; None where it knows of none."""
    import msgspec

    from workers.calls import Calls

    ledger = _ledger(given)
    look = Calls(ledger.client, shared.settings_from(given)).look(run) if ledger is not None else None
    facts: dict[str, Json] | None = None if look is None else msgspec.to_builtins(look)
    return facts


def _watch_for(given: dict[str, Any]) -> Watch | None:
    """What looks at the servers that are named, where any is."""
    from workers.watch import Watch

    settings = shared.settings_from(given)
    return Watch(settings) if settings.broker else None


def _status(run: str | None, **given: Any) -> None:
    ledger = _ledger(given)
    watch = _watch_for(given)
    rows = list(fleet.rows(watch.look())) if watch else []
    if rows and run is None and not _folders():
        click.echo(canonical_json({"fleet": rows}) if given["as_json"] else "\n".join(f"{w:<9} {t}" for w, t in rows))
        return
    folder = _find(run)
    info = folder.info()
    header = ledger.header(info["run"]) if ledger is not None else None
    look = _sweep(given, info["run"])
    if look is not None:
        info |= {"calls": look}
    if header is not None:
        import msgspec

        look = ledger.look(info["run"])
        info |= {"progress": msgspec.to_builtins(look.progress), "suspect": len(look.suspect), "leases": look.leases}
        codes = [facts.get("code") for facts in ledger.workers().values()]
        info["workers"] = codes.count(header.code_version)
        if look.progress.state == "open" and not look.progress.complete and not info["workers"]:
            info["waiting"] = f"no worker runs its code {header.code_version} ({len(codes)} of other code)"
        info["notes"] = ledger.notes(info["run"])
    if given["as_json"]:
        click.echo(canonical_json(info | ({"fleet": rows} if rows else {})))
        return
    click.echo(f"run       {info['run']}\nstate     {info['state']}\nfolder    {folder.path}")
    for key, value in (info.get("progress") or {}).items():
        click.echo(f"{key:<9} {value}")
    for key, value in (info.get("calls") or {}).items():
        click.echo(f"calls {key:<9} {value}")
    for key in ("suspect", "leases", "workers", "waiting", "seconds"):
        if key in info:
            click.echo(f"{key:<9} {info[key]}")
    for row in [("", ""), *rows] if rows else []:
        click.echo(f"{row[0]:<9} {row[1]}".rstrip())


def _resume(run: str | None, **given: Any) -> None:
    folder = _find(run)
    if folder.info()["state"] == "done":
        raise UsageError(f"{folder.path}: this run is done; see it with: evalq report {folder.path}")
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


def _retry(run: str | None, errors: bool, **given: Any) -> None:
    from producer.retry import begin_retry

    if not errors:
        raise UsageError("say what to try again: --errors, the records without a result")
    folder = _find(run)
    with folder.driving() as free:
        if not free:
            raise UsageError(f"{folder.path}: another evalq process is driving this run")
        begin_retry(folder)
    _begun(folder, given)


def follow(path: Path, given: dict[str, Any]) -> None:
    """See the run in ``path`` to its end, driving it if nobody does, and show its report."""
    _watch(str(path), **given)


def _watch(run: str | None, **given: Any) -> None:
    folder = _find(run)
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
    path = RUNS / run if run and not Path(run).is_dir() else _find(run).path
    folder = RunFolder(path)
    if folder.reported or not given.get("broker"):
        return None
    from producer.fetch import fetch

    name = folder.info()["run"] if (path / "run.json").is_file() else str(run)
    return fetch(name, path, _ledger(given), shared.settings_from(given))


def _report(run: str | None, **given: Any) -> None:
    folder = _fetched(run, given) or _find(run)
    info, result = folder.info(), folder.report()
    evaluator = registry.get(result["evaluator"])
    show(folder, evaluator, result, info["request"]["options"], {"quiet": True, "json_lines": False, **given})


def _pause(run: str | None, **given: Any) -> None:
    folder = _find(run)
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


def _prune(older_than: float, everyone: bool, dry_run: bool, **given: Any) -> None:
    from producer.prune import prune
    from workers.calls import Calls

    ledger = _ledger(given)
    calls = Calls(ledger.client, shared.settings_from(given)) if ledger is not None else None
    if everyone and (ledger is None or older_than):
        raise UsageError(
            "--all is about a ledger, which does not know when its runs ended: --all --older-than 0 --broker URL"
        )
    for line in prune(RUNS, ledger, calls, older_than, everyone=everyone, dry_run=dry_run):
        click.echo(line)


def _cancel(run: str, **given: Any) -> None:
    folder = _find(run)
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


_run = click.Argument(["run"], required=False)
_json = click.Option(["--json", "as_json"], is_flag=True, help="As JSON.")
_errors = click.Option(
    ["--errors"], is_flag=True, help="Records that killed their process, and calls without an output."
)
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
_dry = click.Option(["--dry-run"], is_flag=True, help="Say what would be removed.")
_where = shared.place_options()
_calling = shared.calling_options()
_servers = [option for option in _where if option.name in ("broker", "ledger", "settings")]
_what = shared.output_options()
_shown = [option for option in _what if option.name in ("fmt", "outputs")]

COMMANDS = {
    command.name: command
    for command in (
        _command("list", _list, _json, *_servers),
        _command("status", _status, _run, _json, *_servers),
        _command("watch", _watch, _run, *_where, *_calling, *_what),
        _command("resume", _resume, _run, *_where, *_calling, *_what),
        _command("pause", _pause, _run, *_servers),
        _command("retry", _retry, _run, _errors, *_where, *_calling, *_what),
        _command("cancel", _cancel, click.Argument(["run"]), *_servers),
        _command("report", _report, _run, *_servers, *_shown),
        _command("prune", _prune, _older, _everyone, _dry, *_servers),
    )
}
