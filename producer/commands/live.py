"""Live sweeps on the command line: starting one, and what one would take."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from evalq.evalcore.contract.evaluator import Evaluator, Request
from evalq.evalcore.errors import Driven, EvalqError
from evalq.producer.commands.command_line import command_line
from evalq.producer.commands.evaluate import conclude

if TYPE_CHECKING:
    from evalq.producer.folder.job import RunOptions
    from evalq.producer.runs.execute import Backend
    from evalq.producer.sweeps.options import SweepOptions

__all__ = ["start_live"]


def _live_from(given: dict[str, Any]) -> SweepOptions:
    """What the live options ask for."""
    from evalq.producer.sweeps.options import SweepOptions

    return SweepOptions(
        target=given["target"],
        repeat=given.get("repeat") or 1,
        stop=given.get("stop") or "",
        max_calls=given.get("max_calls") or 0,
        max_cost=given.get("max_cost") or 0.0,
        cache=str(given.get("cache") or ""),
    )


def start_live(
    evaluator: Evaluator[Any, Any],
    request: Request,
    asked: RunOptions,
    place: Backend,
    reporter: Any,
    given: dict[str, Any],
) -> bool:
    """Start a sweep and, unless detached, see it through; False where another command's of this key is gone."""
    from evalq.producer.folder.job import RunExistsError
    from evalq.producer.sweeps.cache import Cache
    from evalq.producer.sweeps.execute import carry_out_sweep, launch_sweep, refuse_detached
    from evalq.producer.sweeps.sweep import Sweep

    live = _live_from(given)
    try:
        if given["dry_run"]:
            from evalq.producer.sweeps.estimate import estimate

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
        from evalq.producer.commands.runs import join_run

        return join_run(earlier.path, place, reporter, given)
    except EvalqError as error:
        reporter.event("error", message=str(error), exit_code=error.exit_code)
        raise
    return True
