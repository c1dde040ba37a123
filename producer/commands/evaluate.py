"""`evalq <evaluator>`: start a run and, unless detached, see it through."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING, Any

import click

from evalq.evalcore.contract import registry
from evalq.evalcore.contract.evaluator import Command, Evaluator, Request
from evalq.evalcore.errors import Driven, EvalqError, Finished, Incomplete, NothingEvaluated, UsageError
from evalq.evalcore.model.canonical import Json
from evalq.evalcore.views.markdown import visible
from evalq.producer.commands import options as shared
from evalq.producer.commands.command_line import command_line

if TYPE_CHECKING:
    from evalq.producer.folder.run_folder import RunFolder
    from evalq.producer.monitor.reporter import Reporter
    from evalq.producer.sweeps.sweep import Sweep

__all__ = [
    "conclude",
    "extra_command",
    "refuse_dead",
    "refuse_unanswered",
    "refuse_unscored",
    "show",
    "start_command",
]


def start_command(name: str) -> click.Command:
    """The command of the evaluator registered as ``name``."""
    evaluator = registry.get(name)
    common = [*shared.run_options(), *shared.place_options(), *shared.output_options()]
    if evaluator.whole.follows:
        common = [*shared.follow_options(), *common]
    own = [shared.click_option(option) for option in evaluator.command.options]
    inputs = click.Argument(["inputs"], nargs=-1, metavar=f"{evaluator.command.positional.upper()}...")

    def call(**given: Any) -> int:
        return _start(evaluator, given)

    params: list[click.Parameter] = [inputs, *own, *shared.without(common, evaluator.command.options)]
    params[1:1] = shared.live_options(evaluator)
    return click.Command(name, callback=call, params=params, help=evaluator.summary)


def extra_command(command: Command) -> click.Command:
    """A further command of an evaluator, which needs no run."""

    def call(**given: Any) -> None:
        click.echo(command.call({key.removeprefix("own_"): value for key, value in given.items()}))

    params: list[click.Parameter] = [shared.click_option(option) for option in command.options]
    return click.Command(command.name, callback=call, params=params, help=command.help)


def _start(evaluator: Evaluator[Any, Any], given: dict[str, Any]) -> int:
    from evalq.producer.folder.job import Job, RunExistsError
    from evalq.producer.outputs import check_output
    from evalq.producer.runs.execute import Backend, carry_out, launch

    asked_for = dict(given)
    own = {option.name: given.pop(f"own_{option.name}") for option in evaluator.command.options}
    for path in given["outputs"]:
        check_output(path)
    reporter = reporter_for(evaluator.records.unit, given)
    request = Request(
        list(given["inputs"]), shared.params_from(given.get("params"), evaluator.command.options, own), own
    )
    if given.get("follow"):
        return _follow(evaluator, request, given, reporter)
    for name in ("every", "passes", "verify"):
        if given.get(name):
            raise UsageError(f"--{name} goes with --follow")
    place = Backend(shared.settings_from(given), inline=given["inline"], workers=given["workers"])
    asked = _asked(given, place.settings.unpack_bytes)
    if given["detach"] and not place.settings.broker:
        raise UsageError("--detach needs --broker: an embedded server ends with this command")
    if given.get("target"):
        from evalq.producer.commands.live import start_live  # that module shows runs by this one's means

        if not start_live(evaluator, request, asked, place, reporter, given):
            return _start(evaluator, asked_for)
        return 0
    try:
        job = Job.start(evaluator, request, asked)
        if given["dry_run"]:
            _dry_run(job, reporter)
            return 0
        job.folder.note(command=command_line())
        reporter.event("launch", run=job.run, folder=str(job.folder.path))
        try:
            if given["detach"]:
                launch(job, place, reporter)
                click.echo(job.run)
                return 0
            carry_out(job, place, reporter)
        except Driven as driven:  # by a process with another folder, of the same --once key
            if given["detach"] and not isinstance(driven, Finished):
                raise
            raise RunExistsError(job.folder.path) from None
        reporter.say(f"run {job.run}: {job.folder.path}")
        conclude(job.folder, given, reporter)
    except RunExistsError as earlier:
        from evalq.producer.commands.runs import join_run  # that module shows runs by this one's means

        if not join_run(earlier.path, place, reporter, given):
            return _start(evaluator, asked_for)  # it ended on faulty input, and was removed
    except EvalqError as error:
        reporter.event("error", message=str(error), exit_code=error.exit_code)
        raise
    return 0


def _asked(given: dict[str, Any], unpack_bytes: int) -> Any:
    from evalq.producer.folder.job import RunOptions

    return RunOptions(
        out=given.get("out"),
        chunk_size=given["chunk_size"],
        limit=given["limit"],
        suite=given["suite"],
        priority=given["priority"],
        tags=shared.tags_from(given["tags"]),
        once=given["once"] or "",
        unpack_bytes=unpack_bytes,
    )


def _follow(evaluator: Evaluator[Any, Any], request: Request, given: dict[str, Any], reporter: Any) -> int:
    from evalq.producer.commands.follow import follow_log

    try:
        return follow_log(evaluator, request, given, reporter)
    except EvalqError as error:
        reporter.event("error", message=str(error), exit_code=error.exit_code)
        raise


def reporter_for(unit: str, given: dict[str, Any]) -> Any:
    """How a command with the output options tells its progress."""
    from evalq.producer.monitor.reporter import Reporter

    return Reporter(
        unit,
        quiet=given["quiet"],
        bar=not given["no_progress"],
        json_lines=given["json_lines"],
        verbose=given["verbose"],
    )


def show(folder: Any, evaluator: Any, report: dict[str, Json], options: dict[str, Any], given: dict[str, Any]) -> None:
    """The finished report on standard output and in the files asked for."""
    from evalq.producer.outputs import render, write_output

    for path in given["outputs"]:
        write_output(path, folder, evaluator, options)
    if not given["json_lines"]:
        click.echo(render(given["fmt"], evaluator, report, options, folder.info().started), nl=False)
    tell(evaluator, report, given)
    for fault in report["faults"][:20] if not given["quiet"] else []:
        click.echo(visible(f"fault: {fault['where']}: {fault['reason']}"), err=True)


def tell(evaluator: Evaluator[Any, Any], report: dict[str, Json], given: dict[str, Any]) -> None:
    """The evaluator's notices on standard error."""
    for notice in evaluator.views.notices(report) if not given["quiet"] else []:
        click.echo(visible(f"note: {notice}"), err=True)


def conclude(folder: RunFolder, given: dict[str, Any], reporter: Reporter) -> None:
    """The end of every command that sees a run to its report: shown, and the exit code that it asks for.

    Raises Incomplete for more records or calls without a result than are allowed.
    """
    from evalq.producer.sweeps.sweep import Sweep

    info, report = folder.info(), folder.report()
    show(folder, registry.get(report["evaluator"]), report, info.request.options, given)
    reporter.event("done", run=info.run, folder=str(folder.path), records=report["records"])
    refuse_dead(folder, report, given)
    if Sweep.is_in(folder):
        refuse_unanswered(Sweep.load(folder), given)
    refuse_unscored(folder, report)


def refuse_unanswered(sweep: Sweep, given: dict[str, Any]) -> None:
    """Raise Incomplete for more calls that nothing came of than are allowed."""
    unanswered = sweep.recorded.unanswered()
    count = unanswered.total()
    if count > given["allow_dead"]:
        kinds = ", ".join(f"{number} {kind}" for kind, number in sorted(unanswered.items()))
        raise Incomplete(
            f"{count} call(s) were never answered ({kinds}). Try them again: {_retry(sweep.folder, given)}; "
            f"or accept them: --allow-dead {count}"
        )


def refuse_dead(folder: Any, report: dict[str, Json], given: dict[str, Any]) -> None:
    """Raise Incomplete for more dead records than are allowed."""
    dead = report["records"]["dead"]
    if dead > given["allow_dead"]:
        raise Incomplete(
            f"{dead} record(s) have no result, since they killed their process (see the faults). Try them again: "
            f"{_retry(folder, given)}; or accept them: --allow-dead {dead}"
        )


def _retry(folder: RunFolder, given: dict[str, Any]) -> str:
    """The command that tries again, at the place that this one named."""
    server = folder.info().server
    files = [f"--{name} {shlex.quote(str(given[name]))}" for name in ("targets", "settings") if given.get(name)]
    words = [f"evalq retry {folder.path} --errors", server, *files, "--inline" if given.get("inline") else ""]
    return " ".join(filter(None, words))


def refuse_unscored(folder: Any, report: dict[str, Json]) -> None:
    """Raise NothingEvaluated for a report in which no record has a result: its numbers are those of nothing."""
    counts = report["records"]
    if not counts["scored"]:
        kinds = ", ".join(f"{counts[kind]} {kind}" for kind in ("errors", "unscored", "dead") if counts[kind])
        raise NothingEvaluated(
            f"nothing was evaluated: none of {counts['total']} record(s) has a result ({kinds}); {folder.path} says why"
        )


def _dry_run(job: Any, reporter: Any) -> None:
    from evalq.producer.runs.planner import Planner

    try:
        chunks = list(Planner(job).chunks())
        records = sum(chunk.records for chunk in chunks)
        click.echo(f"{len(job.sources)} input(s), {records} {job.evaluator.records.unit}, {len(chunks)} chunk(s)")
    finally:
        job.folder.discard()
