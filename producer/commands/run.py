"""Run several evaluations from one file.

CONFIG is the suite file; each of its evaluations is a run of its own. The exit code is the worst of the runs'. When all
of them are done and the file has a policy, it is the gate's: 0 for GO, 1 for NO-GO, 4 for INCONCLUSIVE and SUSPECT.
"""

from __future__ import annotations

import contextlib
import shlex
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import click
import msgspec

from evalq.evalcore.errors import EvalqError, Interrupted
from evalq.evalcore.model.canonical import Json, canonical_json
from evalq.evalcore.views.markdown import escape, printed
from evalq.producer.comparing.comparing import comparison_text, verdict_sentence
from evalq.producer.comparing.decision_files import DecidingCommand, errors_in_earlier_files, errors_written, exit_code
from evalq.producer.invocation.invocation import Invocation, command, echo_markdown, next_step
from evalq.producer.invocation.options import allow_inconclusive as may_be_inconclusive
from evalq.producer.invocation.options import (
    calling_options,
    confirming_options,
    decision_outputs,
    from_environment,
    judged,
    option,
    output_options,
    place_options,
    run_options,
    scorer_option,
)
from evalq.producer.lifecycle.finish import conclude_shown, show_notes
from evalq.producer.lifecycle.gate import GateOptions, check_confirm, check_gate, gate_suite, write_undecided
from evalq.producer.lifecycle.start import begin_or_join
from evalq.producer.outputs import check_output, read_files, refuse_read, render, write_output
from evalq.producer.suites.calls import planned_calls, planned_text
from evalq.producer.suites.suite_file import PlannedRun, SuitePlan, load_suite
from evalq.producer.suites.summary import matrix_rows, matrix_text

if TYPE_CHECKING:
    from evalq.producer.comparing.outcome import ComparedRuns
    from evalq.producer.folder.run_folder import RunFolder
    from evalq.producer.monitor.progress import Reporter
    from evalq.producer.run.backend import Backend
    from evalq.producer.suites.summary import Matrices


_SEVERITY = (0, 5, 130, 2, 3)
"""Exit codes, the worst last: a suite ends with the worst of its runs'. With 130 another process paused the run."""


def _run(
    invocation: Invocation,
    config: str,
    baseline: str,
    candidate: str,
    confirm: bool,
    base_target: str,
    no_gate: bool,
    outputs: tuple[Path, ...],
    allow_inconclusive: bool,
) -> int:
    with errors_in_earlier_files("gate", () if invocation.start.dry_run else outputs):
        suite = _load(config, outputs, invocation.where.load().roots, no_gate=no_gate)
    if invocation.start.dry_run:
        return _print_calls(suite, invocation.output.fmt)
    if suite.policy is None and from_environment("baseline"):
        baseline = ""  # set for the suites that have a policy
    gate = GateOptions(baseline, candidate or invocation.start.once or "", confirm, base_target)
    with errors_in_earlier_files("gate", suite.outputs):
        check_gate(suite, gate, detach=invocation.start.detach)
    reporter = invocation.output.reporter("records")
    # If this attempt fails, the files of an earlier one must not pass for its decision.
    with errors_written("gate", suite.outputs):
        ended, rows = _run_all(suite, config, gate, invocation, reporter)
    worst = max((each.code for each in ended), key=_SEVERITY.index, default=0)
    done = [each.folder for each in ended if each.folder is not None]
    decision, output = None, invocation.output
    compared = list(_compare_pairs(suite, ended)) if rows else []
    if output.fmt == "markdown" and not output.json_lines:
        for pair in compared:
            echo_markdown(f"{comparison_text(*pair)}\nVerdict: {escape(verdict_sentence(*pair))}\n")
    if suite.policy and not worst and done:
        decision = gate_suite(
            suite, done, gate, invocation, reporter, allow_inconclusive=allow_inconclusive, matrices=rows
        )
    if output.fmt == "json" and not invocation.start.detach and not output.json_lines:
        more = {} if decision is None else {"decision": msgspec.to_builtins(decision)}
        more |= {"matrices": msgspec.to_builtins(rows)} if rows else {}
        more |= {"comparisons": [pair.document for pair in compared]} if compared else {}
        click.echo(canonical_json({"suite": suite.name, "runs": [each.report for each in ended], **more}))
    if decision is None:
        if done and not worst and not invocation.start.detach:
            reporter.say(f"next: {_after(suite, done)}")
        return worst
    return exit_code(decision, allow_inconclusive=allow_inconclusive)


def _run_all(
    suite: SuitePlan, config: str, gate: GateOptions, invocation: Invocation, reporter: Reporter
) -> tuple[list[_SuiteRun], Matrices]:
    """Run and show each run of the suite; returns how they ended, and the rows of its matrices."""
    from evalq.producer.run.backend import shared_backend
    from evalq.producer.sweep.direct import may_call_alone

    if gate.confirm:
        with invocation.servers() as servers:
            check_confirm(suite, gate, servers)
    backend, output = invocation.backend(), invocation.output
    _refuse_uncallable(suite, backend)
    roots = [Path.cwd(), Path(config).resolve().parent]
    # Each sweep decides by its size: one that is too large to be called from here starts what it needs.
    calls = any(run.live for run in suite.runs) and not may_call_alone(backend)
    with (
        shared_backend(backend, roots, reporter=reporter, calls=calls) as common,
        _at_once(suite, common, reporter, invocation) as begun,
    ):
        ended = [_run_one(run, begun[number], suite, reporter, invocation) for number, run in enumerate(suite.runs)]
    rows = matrix_rows((run, each.folder, each.error) for run, each in zip(suite.runs, ended, strict=True))
    if rows and output.fmt == "markdown" and not (invocation.start.detach or output.json_lines):
        echo_markdown(matrix_text(rows))
    return ended, rows


@contextlib.contextmanager
def _at_once(
    suite: SuitePlan, backend: Backend, reporter: Reporter, invocation: Invocation
) -> Iterator[list[Callable[[], RunFolder | None]]]:
    """For each run, what waits for its report; as many as ``parallel`` says make their live calls at once."""
    from evalq.producer.driving.at_once import parts_at_once

    def work(run: PlannedRun, shown: Reporter) -> Callable[[], RunFolder | None]:
        return partial(_start, run, suite.name, backend, shown, invocation)

    works = [work(run, reporter) for run in suite.runs]
    # One that takes outputs from a cache or another run waits for those before it.
    live = [n for n, run in enumerate(suite.runs) if run.live and not (run.live.cache or run.live.reuse)]
    if suite.parallel < 2 or len(live) < 2 or invocation.start.detach:
        yield works
        return
    several = [work(suite.runs[number], reporter.named(suite.runs[number].called)) for number in live]
    with parts_at_once(several, suite.parallel) as parts:
        begun = {number: part.finish for number, part in zip(live, parts, strict=True)}
        yield [begun.get(number, each) for number, each in enumerate(works)]


def _compare_pairs(suite: SuitePlan, ended: list[_SuiteRun]) -> Iterator[ComparedRuns]:
    """The two runs of each matrix of two, compared; the first is the base. Two that cannot be compared are left out."""
    from evalq.producer.comparing.comparing import compare_runs
    from evalq.producer.comparing.operands import named_by_folder
    from evalq.producer.comparing.outcome import ComparedRuns

    matrices: dict[str, list[RunFolder | None]] = {}
    for run, each in zip(suite.runs, ended, strict=True):
        if run.base and run.evaluator.measures is not None:
            matrices.setdefault(run.base, []).append(None if each.code else each.folder)
    for name, folders in matrices.items():
        there = [folder for folder in folders if folder is not None]
        if len(there) != 2 or len(folders) != 2:
            continue
        try:
            base, cand = map(named_by_folder, there)
            yield ComparedRuns(base, cand, compare_runs(base, cand))
        except EvalqError as error:  # such as answers that both have from an earlier run
            click.echo(printed(f"note: {name}: its two runs are not compared: {error}"), err=True)


def _after(suite: SuitePlan, done: list[RunFolder]) -> str:
    """What to do after a suite without a decision."""
    names = [shlex.quote(str(folder.path)) for folder in done]
    if len(names) == 2 and suite.runs[0].base:
        return f"look at the answers side by side: evalq view {' '.join(names)}"
    if len(names) > 1 and suite.runs[0].base:
        return f"compare any two: evalq compare {names[0]} {names[1]}"
    return f"look at the answers: evalq view {' '.join(names[:3])}; block merges: add a policy (evalq init --suite)"


def _refuse_uncallable(suite: SuitePlan, backend: Backend) -> None:
    if not any(run.live for run in suite.runs):
        return
    from evalq.producer.suites.calls import refuse_uncallable
    from evalq.producer.sweep.callers import Callers

    refuse_uncallable(suite, Callers(backend, backend))


def _print_calls(suite: SuitePlan, fmt: str) -> int:
    """Print the calls that the suite would make."""
    planned = planned_calls(suite)
    if fmt == "json":
        click.echo(canonical_json({"suite": suite.name, "runs": msgspec.to_builtins(planned)}))
    elif fmt != "none":
        echo_markdown(planned_text(planned), nl=False)
        next_step("the same command without --dry-run makes these calls")
    return 0


def _load(config: str, outputs: tuple[Path, ...], roots: tuple[Path, ...], *, no_gate: bool) -> SuitePlan:
    """The suite of the file and the command line. Raises UsageError now for an output that cannot be written."""
    suite = load_suite(config, roots)
    if no_gate:
        suite.policy, suite.outputs = None, []
    suite.outputs.extend(outputs)
    for run in suite.runs:
        reads = read_files(run.evaluator, run.request, config)
        for path in run.outputs:
            check_output(path)  # load_suite refuses an output that the suite reads
        for path in outputs:
            refuse_read(path, reads)
    return suite


class _SuiteRun(NamedTuple):
    """How a run of the suite ended: its part of the JSON, its folder where it has a report here, its exit code."""

    report: Json
    folder: RunFolder | None
    code: int = 0
    error: str = ""


def _run_one(
    run: PlannedRun, begun: Callable[[], RunFolder | None], suite: SuitePlan, reporter: Reporter, invocation: Invocation
) -> _SuiteRun:
    """Wait for a run's report with ``begun``, and show it; if it fails, the others go on.

    Raises Interrupted and Unwatched, which end all runs.
    """
    from evalq.producer.lifecycle.watch import Unwatched

    folder = None
    try:
        folder = begun()
        shown = None if folder is None else _show(run, folder, reporter, invocation, gated=suite.policy is not None)
        return _SuiteRun(_with_name(run, shown), folder)
    except (Interrupted, Unwatched):
        raise
    except EvalqError as error:
        reporter.event("error", message=str(error), exit_code=error.exit_code, evaluator=run.evaluator.name)
        click.echo(printed(f"evalq: {run.evaluator.name}: {error}"), err=True)
        failed: dict[str, Json] = {"evaluator": run.evaluator.name, "error": str(error)}
        write_undecided(suite, error)
        return _SuiteRun(_with_name(run, failed | {"exit_code": error.exit_code}), folder, error.exit_code, str(error))


def _with_name(run: PlannedRun, report: Json) -> Json:
    """A run's part of the JSON, with its name in the suite."""
    return {**report, "name": run.name} if run.name and isinstance(report, dict) else report


def _start(
    run: PlannedRun, suite: str, backend: Backend, reporter: Reporter, invocation: Invocation
) -> RunFolder | None:
    """Start one run and wait for its report; its folder, or None if it is detached."""
    for note in run.notes:
        reporter.say(note)
    start = invocation.start
    options = msgspec.structs.replace(start.options(backend.settings.unpack_bytes), out=None, under=start.out)
    begin = run.starter(suite, options, detach=start.detach)
    return begin_or_join(begin, backend, reporter, detach=start.detach)


def _show(
    run: PlannedRun, folder: RunFolder, reporter: Reporter, invocation: Invocation, *, gated: bool
) -> dict[str, Json]:
    """Write the files of a finished run, show its report and conclude it; returns the report."""
    report, output = folder.report(), invocation.output
    for path in run.outputs:
        write_output(path, folder, run.evaluator, run.request.options)
    if output.fmt in ("markdown", "yaml") and not output.json_lines:
        echo = echo_markdown if output.fmt == "markdown" else click.echo
        echo(render(output.fmt, run.evaluator, report, run.request.options))
    show_notes(folder, report, output)
    conclude_shown(folder, report, invocation, reporter, gated=gated)
    return report


_FROM_SUITE_FILE = {"params", "chunk_size", "limit", "suite", "outputs"}
"""Options that the suite file sets."""
_options = [*run_options(), *place_options(), *calling_options()[:2], scorer_option(), *output_options()]
next(each for each in _options if each.name == "out").help = "Folder for the run folders [evalq-runs]."

COMMAND = command(
    _run,
    click.Argument(["config"], type=click.Path(exists=True, dir_okay=False)),
    *[option for option in _options if option.name not in _FROM_SUITE_FILE],
    option("--baseline", default="", metavar="BASE", help="Measure drops against this: a baseline's name, or a run."),
    judged(),
    *confirming_options(),
    option(
        "--no-gate", is_flag=True, help="Only evaluate; leave the policy to `evalq gate`, for example after --detach."
    ),
    decision_outputs(),
    may_be_inconclusive(),
    kind=DecidingCommand,
)
