"""Live sweeps on the command line: starting one, going on with one, and what one would take."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from evalcore.canonical import Json
from evalcore.errors import EvalqError, Incomplete, UsageError
from evalcore.evaluator import Evaluator, Request
from producer.commands import options as shared
from producer.commands.evaluate import refuse_dead, refuse_unscored, reporter_for, show
from producer.commands.told import command_line

if TYPE_CHECKING:
    from producer.folder import RunFolder
    from producer.job import Asked
    from producer.live.asked import Live
    from producer.live.sweep import Sweep
    from producer.session import Place

__all__ = ["go_on_live", "refuse_unanswered", "start_live"]


def _live_from(given: dict[str, Any]) -> Live:
    """What the live options ask for."""
    from producer.live.asked import Live

    return Live(
        target=given["target"],
        repeat=given.get("repeat") or 1,
        stop=given.get("stop") or "",
        max_calls=given.get("max_calls") or 0,
        max_cost=given.get("max_cost") or 0.0,
        cache=str(given.get("cache") or ""),
    )


def start_live(
    evaluator: Evaluator[Any, Any], request: Request, asked: Asked, place: Place, reporter: Any, given: dict[str, Any]
) -> None:
    """Start a sweep and, unless detached, see it through."""
    from producer.job import RunExistsError
    from producer.live.cache import Cache
    from producer.live.session import launch_sweep, refuse_detached
    from producer.live.sweep import Sweep

    try:
        if given["dry_run"]:
            from producer.live.estimate import estimate

            for line in estimate(evaluator, request, _live_from(given), place.settings):
                click.echo(line)
            return
        live = _live_from(given)
        if given["detach"]:
            refuse_detached(live)
        if live.cache:
            Cache(live.cache).close()  # one that cannot be used is told before anything starts
        sweep = Sweep.start(evaluator, request, live, asked)
        sweep.folder.note(command=command_line())
        reporter.event("launch", run=sweep.run, folder=str(sweep.folder.path))
        if given["detach"]:
            launch_sweep(sweep, place, reporter)
            click.echo(sweep.run)
            return
        _finish(sweep, place, reporter, given)
    except RunExistsError as earlier:
        from producer.commands.runs import follow

        follow(earlier.path, given)
    except EvalqError as error:
        reporter.event("error", message=str(error), exit_code=error.exit_code)
        raise


def go_on_live(folder: RunFolder, given: dict[str, Any]) -> None:
    """See a sweep that was begun before to its end."""
    from producer.live.sweep import Sweep
    from producer.session import Place

    sweep = Sweep.load(folder)
    if folder.info()["state"] == "cancelled":
        kept = f"; what it recorded can be evaluated: --outputs {sweep.outputs}" if sweep.outputs.exists() else ""
        raise UsageError(f"{folder.path}: this run was cancelled for good: start another{kept}")
    sweep.budgeted(given.get("max_calls"), given.get("max_cost"))
    reporter = reporter_for(sweep.evaluator.unit, given)
    reporter.event("launch", run=sweep.run, folder=str(folder.path))
    place = Place(shared.settings_from(given), inline=given["inline"], workers=given["workers"])
    _finish(sweep, place, reporter, given)


def _finish(sweep: Sweep, place: Place, reporter: Any, given: dict[str, Any]) -> dict[str, Json]:
    """Carry a sweep out and show its report. Raises Incomplete where too many calls were never answered."""
    from producer.live.session import carry_out_sweep

    job, report = carry_out_sweep(sweep, place, reporter)
    show(job.folder, job.evaluator, report, job.request.options, given)
    reporter.event("done", run=job.run, folder=str(job.folder.path), records=report["records"])
    reporter.say(f"run {job.run}: {job.folder.path}")
    refuse_dead(job.folder, report, given)
    refuse_unanswered(sweep, given["allow_dead"])
    refuse_unscored(job.folder, report)
    return report


def refuse_unanswered(sweep: Sweep, allowed: int) -> None:
    """Raise Incomplete for more calls that nothing came of than are allowed."""
    unanswered = sweep.recorded.unanswered()
    count = unanswered.total()
    if count > allowed:
        kinds = ", ".join(f"{number} {kind}" for kind, number in sorted(unanswered.items()))
        raise Incomplete(
            f"{count} call(s) were never answered ({kinds}). Try them again: evalq retry {sweep.folder.path} --errors; "
            f"or accept them: --allow-dead {count}"
        )
