"""`evalq <evaluator>`: start a run and, unless it is detached, wait for its report."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import click
import msgspec

from evalq.evalcore import native
from evalq.evalcore.contract import plugins
from evalq.evalcore.contract.evaluator import Command, Evaluator, Request, asks_recorded, options_of
from evalq.evalcore.contract.plugins import stdout_to_stderr
from evalq.evalcore.contract.scoring import NAME
from evalq.evalcore.errors import UsageError
from evalq.evalcore.views.markdown import plural
from evalq.producer.invocation import options
from evalq.producer.invocation.invocation import Invocation, command

if TYPE_CHECKING:
    from evalq.producer.folder.job import Job, RunOptions
    from evalq.producer.monitor.progress import Reporter
    from evalq.producer.run.backend import Backend
    from evalq.producer.sweep.sweep import Sweep


def start_command(name: str) -> click.Command:
    """The command of the evaluator registered as ``name``."""
    evaluator = plugins.get(name)
    common = [*options.run_options(), *options.place_options(), *options.output_options()]
    if evaluator.whole.follows or evaluator.command.traces:
        drop = "settle" if evaluator.whole.follows else "verify"
        common = [*(each for each in options.follow_options() if each.name != drop), *common]
    params: list[click.Parameter] = [
        click.Argument(["inputs"], nargs=-1, metavar=f"{evaluator.command.positional.upper()}..."),
        *options.live_options(evaluator),
        *[options.own_option(option) for option in options_of(evaluator)],
        *options.without(common, evaluator.command.options),
    ]
    if name == NAME:
        params.insert(0, click.Argument(["scorer"], metavar="FILE.py[:FUNCTION]"))

    def call(invocation: Invocation, inputs: tuple[str, ...]) -> None:
        _start(evaluator, inputs, invocation)

    return command(call, *params, name=name, text=evaluator.summary)


def extra_command(extra: Command) -> click.Command:
    """A further command of an evaluator, which needs no run."""

    def call(invocation: Invocation) -> None:
        with stdout_to_stderr():
            answer = extra.call(invocation.own)
        click.echo(answer)

    return command(call, *map(options.own_option, extra.options), name=extra.name, text=extra.help)


def _start(evaluator: Evaluator[Any, Any], inputs: tuple[str, ...], invocation: Invocation) -> None:
    from evalq.producer.lifecycle.finish import report_errors
    from evalq.producer.outputs import check_output, read_files

    reporter = invocation.output.reporter(evaluator.records.unit)
    own, where = invocation.own, invocation.where
    request = Request(list(inputs), options.params_from(invocation.start.params, evaluator.command.options, own), own)
    reads = read_files(evaluator, request, invocation.start.params, where.targets, where.settings)
    for path in invocation.output.outputs:
        check_output(path, reads)
    with report_errors(reporter):
        if native.compiled() is None and not invocation.output.quiet:
            reporter.warn(native.SLOW)
        if invocation.following.follow:
            from evalq.producer.lifecycle import follow

            follows = follow.follow_traces if evaluator.command.traces else follow.follow_log
            follows(evaluator, request, invocation, reporter)
            return
        _refuse_following(invocation)
        request = _prepared(evaluator, request, reporter)
        backend = invocation.backend()
        run_options = msgspec.structs.replace(
            invocation.start.options(backend.settings.unpack_bytes), keep_prompts=not invocation.live.no_prompts
        )
        _evaluate(evaluator, request, run_options, backend, reporter, invocation)


def _prepared(evaluator: Evaluator[Any, Any], request: Request, reporter: Reporter) -> Request:
    """The request, with files that it names turned into others where its evaluator does that."""
    from evalq.producer.folder.files import RUNS, TRACES

    prepared = evaluator.command.prepare(request, RUNS / TRACES)
    for message in prepared.messages:
        reporter.say(message)
    for warning in prepared.warnings:
        reporter.warn(warning)
    return prepared.request


def _evaluate(
    evaluator: Evaluator[Any, Any],
    request: Request,
    run_options: RunOptions,
    backend: Backend,
    reporter: Reporter,
    invocation: Invocation,
) -> None:
    live = invocation.live.target or asks_recorded(evaluator, request)
    begin = _sweep(evaluator, request, run_options, invocation) if live else _job(evaluator, request, run_options)
    if invocation.start.dry_run and live:
        from evalq.producer.sweep.estimate import estimate

        for line in estimate(evaluator, request, invocation.live.options(), backend.settings):
            click.echo(line)
    elif invocation.start.dry_run:
        _plan_only(begin, reporter)
    else:
        from evalq.producer.lifecycle.finish import conclude
        from evalq.producer.lifecycle.start import begin_or_join, name_server

        with name_server(backend):
            folder = begin_or_join(begin, backend, reporter, detach=invocation.start.detach)
        if folder is not None:
            conclude(folder, invocation, reporter)


def _refuse_following(invocation: Invocation) -> None:
    for name in ("every", "passes", "settle", "verify"):
        if getattr(invocation.following, name):
            raise UsageError(f"--{name} goes with --follow")


def _job(evaluator: Evaluator[Any, Any], request: Request, run_options: RunOptions) -> Callable[[], Job | Sweep]:
    from evalq.producer.folder.job import Job

    return lambda: Job.start(evaluator, request, run_options)


def _sweep(
    evaluator: Evaluator[Any, Any], request: Request, run_options: RunOptions, invocation: Invocation
) -> Callable[[], Job | Sweep]:
    from evalq.producer.sweep.execute import refuse_detached
    from evalq.producer.sweep.reuse import Cache
    from evalq.producer.sweep.sweep import Sweep

    live = invocation.live.options()

    def begin() -> Sweep:
        if invocation.start.detach:
            refuse_detached(live, evaluator, request)
        if live.cache:
            Cache(live.cache).close()  # fail before anything starts if it cannot be used
        return Sweep.start(evaluator, request, live, run_options)

    return begin


def _plan_only(begin: Callable[[], Any], reporter: Reporter) -> None:
    """Print how many records and chunks the run would have."""
    from evalq.producer.folder.job import RunExistsError
    from evalq.producer.folder.run_folder import RunFolder
    from evalq.producer.run.chunks import Planner

    try:
        job = begin()
    except RunExistsError as earlier:
        reporter.say(f"run {RunFolder(earlier.path).info().run}: begun before, in {earlier.path}")
        return
    try:
        chunks = list(Planner(job).chunks())
        records = sum(chunk.records for chunk in chunks)
        inputs = plural(len(job.sources), "input")
        click.echo(f"{inputs}, {records} {job.evaluator.records.unit}, {plural(len(chunks), 'chunk')}")
    finally:
        job.folder.discard()
