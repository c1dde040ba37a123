"""Live sweeps on the command line: starting one, and what one would take."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from evalcore.errors import Driven, EvalqError
from evalcore.evaluator import Evaluator, Request
from producer.commands.evaluate import conclude
from producer.commands.told import command_line

if TYPE_CHECKING:
    from producer.job import Asked
    from producer.live.asked import Live
    from producer.session import Place

__all__ = ["start_live"]


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
) -> bool:
    """Start a sweep and, unless detached, see it through; False where another command's of this key is gone."""
    from producer.job import RunExistsError
    from producer.live.cache import Cache
    from producer.live.session import carry_out_sweep, launch_sweep, refuse_detached
    from producer.live.sweep import Sweep

    live = _live_from(given)
    try:
        if given["dry_run"]:
            from producer.live.estimate import estimate

            for line in estimate(evaluator, request, live, place.settings):
                click.echo(line)
            return True
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
            return True
        try:
            carry_out_sweep(sweep, place, reporter)
        except Driven:  # by a process with another folder, of the same --once key
            raise RunExistsError(sweep.folder.path) from None
        reporter.say(f"run {sweep.run}: {sweep.folder.path}")
        conclude(sweep.folder, given, reporter)
    except RunExistsError as earlier:
        from producer.commands.runs import join_run

        return join_run(earlier.path, place, reporter, given)
    except EvalqError as error:
        reporter.event("error", message=str(error), exit_code=error.exit_code)
        raise
    return True
