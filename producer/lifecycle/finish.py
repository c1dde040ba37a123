"""The end of every command that produced a report: its output, notes and exit code."""

from __future__ import annotations

import contextlib
import shlex
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Any

import click

from evalq.evalcore.contract import plugins
from evalq.evalcore.contract.plugins import stdout_to_stderr
from evalq.evalcore.errors import EvalqError, Incomplete, NothingEvaluated
from evalq.evalcore.model.calls import BY_USER
from evalq.evalcore.model.canonical import Json, uncollected
from evalq.evalcore.model.state import omissions_in
from evalq.evalcore.views.markdown import plural, printed, printed_line
from evalq.producer.folder.documents import RunInfo
from evalq.producer.folder.files import INFO, RUNS
from evalq.producer.folder.run_folder import RunFolder
from evalq.producer.invocation.invocation import Invocation, OutputArguments, PlaceArguments, echo_markdown, next_step
from evalq.producer.monitor.progress import Reporter
from evalq.producer.sweep.head import holds_sweep
from evalq.workers.targets.spec import is_spec

if TYPE_CHECKING:
    from evalq.producer.sweep.sweep import Sweep

_SHOWN_FAULTS = 20
_RECENT = 30
"""Run folders in which an earlier run is looked for."""


@uncollected()
def conclude(folder: RunFolder, invocation: Invocation, reporter: Reporter) -> None:
    """Show the report of the run in ``folder``, and check it.

    Raises Incomplete if more records or calls than allowed have no result, NothingEvaluated if none has one.
    """
    report = folder.report()
    show(folder, report, folder.info().request.options, invocation.output)
    conclude_shown(folder, report, invocation, reporter)
    if not (invocation.output.quiet or invocation.output.json_lines):
        next_step(_after(folder))


def _after(folder: RunFolder) -> str:
    """What to do after a run: look at it, and compare it with the run before, which is the base."""
    name, mine = shlex.quote(str(folder.path)), folder.info()
    look = f"look at the answers: evalq view {name}"
    if plugins.get(mine.evaluator).measures is None:
        return look
    if (before := _earlier(folder, mine)) is None:
        return f"{look}; compare with a later run: evalq compare {name} RUN"
    return f"{look}; compare with the run before: evalq compare {shlex.quote(str(before.path))} {name}"


def _earlier(folder: RunFolder, mine: RunInfo) -> RunFolder | None:
    """The last run here before this one of the same cases. Of many runs only those that changed last are read."""
    found: tuple[str, RunFolder] | None = None
    with contextlib.suppress(OSError):
        there = {path.resolve(): path for parent in (folder.path.parent, RUNS) for path in parent.glob("*/" + INFO)}
        for path in sorted(there.values(), key=lambda path: path.stat().st_mtime_ns)[-_RECENT:]:
            with contextlib.suppress(EvalqError, OSError):
                other = RunFolder(path.parent)
                info = other.info()
                if info.run == mine.run or not other.reported or not _same_cases(info, mine):
                    continue
                if (found[0] if found else "") <= info.started <= mine.started:
                    found = info.started, other
    return found and found[1]


def _same_cases(one: RunInfo, other: RunInfo) -> bool:
    """Whether two runs are of the same cases, as far as run.json has them."""
    if (one.evaluator, one.suite, one.name) != (other.evaluator, other.suite, other.name):
        return False
    ids = [_case_ids(info.request.params.get("cases")) for info in (one, other)]
    if all(ids):
        return bool(ids[0] & ids[1])
    # A live run's input is its own outputs.jsonl.
    live = bool(one.target and other.target)
    return one.request.params == other.request.params if live else one.request.inputs == other.request.inputs


def _case_ids(cases: object) -> set[str]:
    return {str(case.get("id")) for case in cases if isinstance(case, dict)} if isinstance(cases, list) else set()


def conclude_shown(
    folder: RunFolder, report: dict[str, Json], invocation: Invocation, reporter: Reporter, *, gated: bool = False
) -> None:
    """`conclude` for a report that is shown already.

    If the run is ``gated``, its gate decides about calls that were never answered, unless no answer came at all.
    """
    reporter.event("done", run=folder.info().run, folder=str(folder.path), records=report["records"])
    allowed = invocation.output.allow_dead
    _refuse_dead(folder, report, allowed, invocation.where)
    if holds_sweep(folder):
        from evalq.producer.sweep.judge_stage import judge_sweeps
        from evalq.producer.sweep.sweep import Sweep

        try:
            _refuse_unanswered([Sweep.load(folder), *judge_sweeps(folder)], allowed, invocation.where)
        except Incomplete as error:
            if not gated or not report["records"]["scored"]:
                raise
            # GATE, The question: a lost answer is no score, so a gate counts it and need not stop for it.
            if not invocation.output.quiet:
                click.echo(printed(f"note: {error}"), err=True)
    refuse_unscored(folder, report)


def show(folder: RunFolder, report: dict[str, Json], options: Mapping[str, Any], output: OutputArguments) -> None:
    """Print the finished report and write the output files."""
    from evalq.producer.outputs import render, write_output

    evaluator = plugins.get(report["evaluator"])
    for path in output.outputs:
        write_output(path, folder, evaluator, options)
    if not output.json_lines:
        echo = echo_markdown if output.fmt == "markdown" else click.echo
        echo(render(output.fmt, evaluator, report, options, folder.info().started), nl=False)
    show_notes(folder, report, output)
    for line in _fault_lines(report["faults"]) if not output.quiet else ():
        click.echo(printed_line(line), err=True)


def _fault_lines(faults: list[dict[str, str]]) -> Iterator[str]:
    """A line for each of the first reasons, with the places of its first faults: one bug fails every record alike."""
    places: dict[str, list[str]] = {}
    for fault in faults:
        places.setdefault(fault["reason"], []).append(fault["where"])
    for reason, (first, *others) in islice(places.items(), _SHOWN_FAULTS):
        also = ", ".join(others[:2]) + (", ..." if len(others) > 2 else "")
        yield f"fault: {first}: {reason}" + (f" (also {also})" if also else "")


@stdout_to_stderr()
def show_notes(folder: RunFolder, report: dict[str, Json], output: OutputArguments) -> None:
    """Print the evaluator's notices on standard error, and other runs whose outputs this run uses."""
    if output.quiet:
        return
    if (lineage := folder.info().lineage) is not None:
        click.echo(f"note: {lineage.sentence()}", err=True)
    for omission in omissions_in(report):
        click.echo(printed_line(f"note: {omission.sentence()}"), err=True)
    for notice in plugins.get(report["evaluator"]).views.notices(report):
        click.echo(printed_line(f"note: {notice}"), err=True)


@contextlib.contextmanager
def report_errors(reporter: Reporter) -> Iterator[None]:
    """Report errors of the block as JSON lines, too."""
    try:
        yield
    except EvalqError as error:
        reporter.event("error", message=str(error), exit_code=error.exit_code)
        raise


def refuse_unscored(folder: RunFolder, report: dict[str, Json]) -> None:
    """Raise NothingEvaluated if no record of the report has a result."""
    counts = report["records"]
    if not counts["scored"]:
        kinds = ", ".join(f"{counts[kind]} {kind}" for kind in ("errors", "unscored", "dead") if counts[kind])
        raise NothingEvaluated(
            f"nothing was evaluated: none of {plural(counts['total'], 'record')} has a result ({kinds}). "
            f"{_first_fault(report)}Report: {folder.path}"
        )


def _first_fault(report: dict[str, Json]) -> str:
    """The first fault of a report in a sentence; empty if it has none."""
    faults = report["faults"]
    return printed_line(f"The first: {faults[0]['where']}: {faults[0]['reason']}. ") if faults else ""


def _refuse_dead(folder: RunFolder, report: dict[str, Json], allowed: int, where: PlaceArguments) -> None:
    dead = report["records"]["dead"]
    if dead > allowed:
        raise Incomplete(
            f"{plural(dead, 'record has', 'records have')} no result: its process was killed (see the faults). "
            f"Try again: {_retry(folder, where)}; or accept them: --allow-dead {dead}"
        )


def _refuse_unanswered(sweeps: Sequence[Sweep], allowed: int, where: PlaceArguments) -> None:
    unanswered = sum((sweep.recorded.unanswered() for sweep in sweeps), Counter[str]())
    count = unanswered.total()
    if count > allowed:
        named = {BY_USER: "lost by the simulated user"}
        kinds = ", ".join(f"{number} {named.get(kind, kind)}" for kind, number in sorted(unanswered.items()))
        raise Incomplete(
            f"{plural(count, 'call was', 'calls were')} never answered ({kinds}). Try again: "
            f"{_retry(sweeps[0].folder, where)}{_larger(sweeps[0])}; "
            f"or accept them: --allow-dead {count}"
        )


def _larger(sweep: Sweep) -> str:
    """The option for a larger budget, if the sweep ended because its budget was spent."""
    facts = sweep.folder.facts()
    spent = any(of.get("ended") == "spent" for of in (facts.get("calls") or {}, *(facts.get("further") or {}).values()))
    return f" {sweep.live.larger}" if spent else ""


def _retry(folder: RunFolder, where: PlaceArguments) -> str:
    """The command that retries, at the run's server."""
    # evalq remembers targets that were named without a file, and their addresses may hold secrets.
    targets = None if where.targets and is_spec(where.targets) else where.targets
    named = {"targets": targets, "settings": where.settings}
    files = [f"--{name} {shlex.quote(file)}" for name, file in named.items() if file]
    words = [f"evalq retry {folder.named()} --errors", folder.info().server, *files, "--inline" if where.inline else ""]
    return " ".join(filter(None, words))
