"""Several evaluations from one file, one run each.

CONFIG is the suite file. The exit code is the worst of its runs'; where they are all done and the file has a policy, it
is what the gate decides: 0 for GO, 1 for NO-GO, 4 for INCONCLUSIVE.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import click
import msgspec

from evalq.evalcore.errors import EvalqError, Interrupted
from evalq.evalcore.model.canonical import Json, canonical_json
from evalq.evalcore.views.markdown import visible
from evalq.producer.attending.finish import conclude_shown, tell
from evalq.producer.attending.start import begin_or_join
from evalq.producer.attending.suites import Against, check_confirm, check_gate, gate_suite, write_undecided
from evalq.producer.comparing.ending import exit_code
from evalq.producer.invocation.declare import command
from evalq.producer.invocation.invocation import Invocation
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
)
from evalq.producer.outputs import check_output, render, write_output
from evalq.producer.suites.suite_file import PlannedRun, load_suite

if TYPE_CHECKING:
    from evalq.producer.folder.job import Job
    from evalq.producer.folder.run_folder import RunFolder
    from evalq.producer.monitor.reporter import Reporter
    from evalq.producer.runs.backend import Backend
    from evalq.producer.sweeps.sweep import Sweep

__all__ = ["COMMAND"]

_SEVERITY = (0, 5, 2, 3)
"""Exit codes, the worst last: a suite ends with the worst of its runs'."""


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
    from evalq.producer.runs.backend import shared_place

    suite = load_suite(config)
    if no_gate:
        suite.policy, suite.outputs = None, []
    suite.outputs.extend(outputs)
    for run in suite.runs:
        for path in run.outputs:
            check_output(path)
    if suite.policy is None and from_environment("baseline"):
        baseline = ""  # set for the suites that have a policy
    against = Against(baseline, candidate or invocation.start.once or "", confirm, base_target)
    check_gate(suite, against, detach=invocation.start.detach)
    if confirm:
        with invocation.servers() as servers:
            check_confirm(suite, against, servers)
    place, output = invocation.backend(), invocation.output
    reporter = output.reporter("records")
    reports: list[Json] = []
    done: list[RunFolder] = []
    worst = 0
    roots = [Path.cwd(), Path(config).resolve().parent]
    with shared_place(place, roots, reporter=reporter, calls=any(run.live for run in suite.runs)) as common:
        for run in suite.runs:
            try:
                folder = _one(run, suite.name, common, reporter, invocation)
                if folder is not None:
                    done.append(folder)
                reports.append(_named(run, None if folder is None else _shown(run, folder, reporter, invocation)))
            except Interrupted:
                raise
            except EvalqError as error:
                reporter.event("error", message=str(error), exit_code=error.exit_code, evaluator=run.evaluator.name)
                click.echo(visible(f"evalq: {run.evaluator.name}: {error}"), err=True)
                failed: dict[str, Json] = {"evaluator": run.evaluator.name, "error": str(error)}
                reports.append(_named(run, failed | {"exit_code": error.exit_code}))
                worst = max(worst, error.exit_code, key=_SEVERITY.index)
                write_undecided(suite, error)
    decision = None
    if suite.policy and not worst and done:
        decision = gate_suite(suite, done, against, invocation, reporter, allow_inconclusive=allow_inconclusive)
    if output.fmt == "json" and not invocation.start.detach and not output.json_lines:
        decided = {} if decision is None else {"decision": msgspec.to_builtins(decision)}
        click.echo(canonical_json({"suite": suite.name, "runs": reports, **decided}))
    if decision is None:
        return worst
    return exit_code(decision, allow_inconclusive=allow_inconclusive)


def _named(run: PlannedRun, report: Json) -> Json:
    """A run's part of the JSON, under its name where it has one; of one that failed, what went wrong."""
    return {**report, "name": run.name} if run.name and isinstance(report, dict) else report


def _one(run: PlannedRun, suite: str, place: Backend, reporter: Reporter, invocation: Invocation) -> RunFolder | None:
    """Start one run and see it through; its folder, or None where it is left to the fleet."""
    begin = _begin(run, suite, invocation, place.settings.unpack_bytes)
    return begin_or_join(begin, place, reporter, detach=invocation.start.detach)


def _begin(run: PlannedRun, suite: str, invocation: Invocation, unpack_bytes: int) -> Callable[[], Job | Sweep]:
    from evalq.producer.folder.job import Job
    from evalq.producer.sweeps.sweep import Sweep

    asked = msgspec.structs.replace(
        invocation.start.options(unpack_bytes),
        out=None,
        under=invocation.start.out,
        name=run.name,
        chunk_size=run.chunk_size,
        limit=run.limit,
        suite=suite,
    )
    live = run.live
    if live is None:
        return lambda: Job.start(run.evaluator, run.request, asked)
    return lambda: Sweep.start(run.evaluator, run.request, live, asked)


def _shown(run: PlannedRun, folder: RunFolder, reporter: Reporter, invocation: Invocation) -> dict[str, Json]:
    """A finished run of the suite: its files, its report, its end; returns the report."""
    report, output = folder.report(), invocation.output
    for path in run.outputs:
        write_output(path, folder, run.evaluator, run.request.options)
    if output.fmt in ("markdown", "yaml") and not output.json_lines:
        click.echo(render(output.fmt, run.evaluator, report, run.request.options))
    tell(report, output)
    conclude_shown(folder, report, invocation, reporter)
    return report


_NOT_HERE = {"params", "chunk_size", "limit", "suite", "dry_run", "outputs"}
"""What the suite file says."""
_options = [*run_options(), *place_options(), *calling_options()[:2], *output_options()]

COMMAND = command(
    _run,
    click.Argument(["config"], type=click.Path(exists=True, dir_okay=False)),
    *[option for option in _options if option.name not in _NOT_HERE],
    option("--baseline", default="", metavar="BASE", help="What the policy's drops are measured against."),
    judged(),
    *confirming_options(),
    option("--no-gate", is_flag=True, help="Evaluate, and leave the policy to `evalq gate`, say after --detach."),
    decision_outputs(),
    may_be_inconclusive(),
)
