"""`evalq run`: every evaluation of a suite file, one run each."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from evalq.evalcore.errors import Driven, EvalqError, Finished, Interrupted, UsageError
from evalq.evalcore.model.canonical import Json, canonical_json
from evalq.evalcore.views.markdown import visible
from evalq.producer.commands import options as shared
from evalq.producer.commands.command_line import command_line
from evalq.producer.commands.evaluate import refuse_dead, refuse_unanswered, refuse_unscored, reporter_for, tell
from evalq.producer.outputs import check_output, render, write_output
from evalq.producer.suites.suite_file import PlannedRun, load_suite
from evalq.producer.sweeps.options import SweepOptions

if TYPE_CHECKING:
    from evalq.producer.folder.run_folder import RunFolder

__all__ = ["COMMANDS"]

_SEVERITY = (0, 5, 2, 3)
"""Exit codes, the worst last: a suite ends with the worst of its runs'."""


def _suite(config: str, **given: Any) -> int:
    from evalq.producer.runs.execute import shared_place

    name, runs = load_suite(config)
    for run in runs:
        for path in run.outputs:
            check_output(path)
    place = _place(given)
    if given["detach"] and not place.settings.broker:
        raise UsageError("--detach needs --broker: an embedded server ends with this command")
    reporter = reporter_for("records", given)
    reports: list[Json] = []
    worst = 0
    roots = [Path.cwd(), Path(config).resolve().parent]
    with shared_place(place, roots, reporter=reporter, calls=any(run.live for run in runs)) as common:
        for run in runs:
            try:
                reports.append(_named(run, _one(run, name, common, reporter, given)))
            except Interrupted:
                raise
            except EvalqError as error:
                reporter.event("error", message=str(error), exit_code=error.exit_code, evaluator=run.evaluator.name)
                click.echo(visible(f"evalq: {run.evaluator.name}: {error}"), err=True)
                failed: dict[str, Json] = {"evaluator": run.evaluator.name, "error": str(error)}
                reports.append(_named(run, failed | {"exit_code": error.exit_code}))
                worst = max(worst, error.exit_code, key=_SEVERITY.index)
    if given["fmt"] == "json" and not given["detach"] and not given["json_lines"]:
        click.echo(canonical_json({"suite": name, "runs": reports}))
    return worst


def _named(run: PlannedRun, report: Json) -> Json:
    """A run's part of the JSON, under its name where it has one; of one that failed, what went wrong."""
    return {**report, "name": run.name} if run.name and isinstance(report, dict) else report


def _place(given: dict[str, Any]) -> Any:
    from evalq.producer.runs.execute import Backend

    return Backend(shared.settings_from(given), inline=given["inline"], workers=given["workers"])


def _one(run: PlannedRun, suite: str, place: Any, reporter: Any, given: dict[str, Any]) -> Json:
    """Start one run and, unless detached, see it through; returns its report."""
    from evalq.producer.folder.job import Job, RunExistsError, RunOptions
    from evalq.producer.runs.execute import carry_out, launch

    asked = RunOptions(
        under=given["out"],
        name=run.name,
        chunk_size=run.chunk_size,
        limit=run.limit,
        suite=suite,
        priority=given["priority"],
        tags=shared.tags_from(given["tags"]),
        once=given["once"] or "",
        unpack_bytes=place.settings.unpack_bytes,
    )
    try:
        if run.live is not None:
            return _sweep(run, run.live, asked, place, reporter, given)
        job = Job.start(run.evaluator, run.request, asked)
        job.folder.note(command=command_line())
        reporter.event("launch", run=job.run, folder=str(job.folder.path))
        try:
            if given["detach"]:
                launch(job, place, reporter)
                click.echo(job.run)
                return None
            carry_out(job, place, reporter)
        except Driven as driven:  # by a process with another folder, of the same --once key
            if given["detach"] and not isinstance(driven, Finished):
                raise
            raise RunExistsError(job.folder.path) from None
    except RunExistsError as earlier:
        try:
            return _earlier(run, earlier.path, place, reporter, given)
        except FileNotFoundError:
            return _one(run, suite, place, reporter, given)
    return _shown(run, job.folder, reporter, given)


def _shown(run: PlannedRun, folder: RunFolder, reporter: Any, given: dict[str, Any]) -> dict[str, Json]:
    """A finished run of the suite: its files, its report, its end; returns the report."""
    from evalq.producer.sweeps.sweep import Sweep

    report = folder.report()
    for path in run.outputs:
        write_output(path, folder, run.evaluator, run.request.options)
    if given["fmt"] in ("markdown", "yaml") and not given["json_lines"]:
        click.echo(render(given["fmt"], run.evaluator, report, run.request.options))
    tell(run.evaluator, report, given)
    name = folder.info().run
    reporter.event("done", run=name, folder=str(folder.path), records=report["records"])
    reporter.say(f"run {name}: {folder.path}")
    refuse_dead(folder, report, given)
    if Sweep.is_in(folder):
        refuse_unanswered(Sweep.load(folder), given)
    refuse_unscored(folder, report)
    return report


def _sweep(run: PlannedRun, live: SweepOptions, asked: Any, place: Any, reporter: Any, given: dict[str, Any]) -> Json:
    """A live sweep of the suite; returns its report, None where it is left to the fleet."""
    from evalq.producer.folder.job import RunExistsError
    from evalq.producer.sweeps.execute import carry_out_sweep, launch_sweep
    from evalq.producer.sweeps.sweep import Sweep

    sweep = Sweep.start(run.evaluator, run.request, live, asked)
    sweep.folder.note(command=command_line())
    reporter.event("launch", run=sweep.run, folder=str(sweep.folder.path))
    if given["detach"]:
        launch_sweep(sweep, place, reporter)
        click.echo(sweep.run)
        return None
    try:
        carry_out_sweep(sweep, place, reporter)
    except Driven:
        raise RunExistsError(sweep.folder.path) from None
    return _shown(run, sweep.folder, reporter, given)


def _earlier(run: PlannedRun, path: Path, place: Any, reporter: Any, given: dict[str, Any]) -> Json:
    """A run that the same --once key began before: its report, whoever computes it; None where it is left to a fleet.

    Raises FileNotFoundError where it is gone: it ended on faulty input, and left no folder.
    """
    from evalq.producer.folder.run_folder import RunFolder
    from evalq.producer.sweeps.joining import join, launch_again, resume_any

    folder = RunFolder(path)
    reporter.say(f"run {folder.info().run}: begun before, in {path}")
    if given["detach"]:
        click.echo(launch_again(folder, place, reporter))
        return None
    join(folder, place.settings, reporter, lambda left: resume_any(left, place, reporter))
    return _shown(run, folder, reporter, given)


_skipped = {"params", "chunk_size", "limit", "suite", "dry_run", "outputs"}
_options = [*shared.run_options(), *shared.place_options(), *shared.calling_options()[:2], *shared.output_options()]
COMMANDS = {
    "run": click.Command(
        "run",
        callback=_suite,
        help="Every evaluation of the suite file CONFIG, one run each; the exit code is the worst of them.",
        params=[
            click.Argument(["config"], type=click.Path(exists=True, dir_okay=False)),
            *[option for option in _options if option.name not in _skipped],
        ],
    )
}
