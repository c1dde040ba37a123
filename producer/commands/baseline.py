"""Approve runs as baselines, which compare and gate know by name: set, list, forget."""

from __future__ import annotations

import click
import msgspec

from evalq.evalcore.compare.summary import RunCases
from evalq.evalcore.errors import UsageError, WireError
from evalq.evalcore.views.markdown import plural, printed
from evalq.producer.comparing.baselines import Baselines
from evalq.producer.comparing.operands import operand
from evalq.producer.comparing.samples import FOLDER, slot_of
from evalq.producer.invocation.invocation import Invocation, command, next_step
from evalq.producer.invocation.options import as_json, server_options


def _set(invocation: Invocation, name: str, runs: tuple[str, ...], no_answers: bool) -> None:
    """Approve RUN as the baseline NAME of its evaluator and target; of a suite, give all of its runs.

    It is kept in ./evalq-baselines, to be committed and reviewed, and with --broker in the ledger, too. Changes are
    measured against it, so approve a run on purpose: one with at least four times the repeats of the runs that are
    compared with it, and not merely the last one that passed.
    """
    with invocation.servers() as servers:
        baselines = Baselines(servers)
        for run in runs:
            for found in operand(run, servers):
                path = baselines.approve(name, found, answers=not no_answers)
                click.echo(printed(f"{name}: {slot_of(found)} is run {found.run} ({_size(found)}), in {path}"))
    next_step(
        f"git add {FOLDER} && git commit, then evalq run SUITE, or evalq gate RUN --policy FILE --baseline {name}"
    )


def _list(invocation: Invocation, as_json: bool) -> None:
    """List all baselines and their runs."""
    with invocation.servers() as servers:
        known, faults = Baselines(servers).every()
    if as_json:
        click.echo(msgspec.json.encode({name: list(map(_facts, runs)) for name, runs in known.items()}))
    else:
        for name, runs in known.items():
            for run in runs:
                click.echo(printed(f"{name}  {slot_of(run)}  run {run.run}  {_size(run)}"))
    if faults:
        raise WireError("\n".join(faults))
    if known and not as_json:
        next_step("compare a run with one: evalq compare NAME RUN")
    if not known and not as_json:
        click.echo("no baseline yet; approve a run with: evalq baseline set NAME RUN", err=True)


def _forget(invocation: Invocation, name: str) -> None:
    """Drop the baseline NAME from ./evalq-baselines and, with --broker, from the ledger."""
    with invocation.servers() as servers:
        dropped = list(Baselines(servers).forget(name))
    if not dropped:
        raise UsageError(f"there is no baseline {name!r}; see them with: evalq baseline list")
    for what in dropped:
        click.echo(printed(f"dropped {what}"))


def _size(run: RunCases) -> str:
    answers = max((sum(column.count) for column in run.cases.columns.values()), default=0)
    return f"{plural(len(run.cases.ids), 'case')}, {plural(answers, 'answer')}"


def _facts(run: RunCases) -> dict[str, object]:
    return {
        "evaluator": run.evaluator,
        "target": run.target,
        "run": run.run,
        "suite": run.suite,
        "report": run.report,
        "cases": len(run.cases.ids),
        "records": run.records,
    }


_NAME = click.Argument(["name"])

COMMAND = click.Group(
    "baseline",
    help=__doc__,
    commands=[
        command(
            _set, _NAME, click.Argument(["runs"], nargs=-1, required=True, metavar="RUN..."),
            click.Option(["--no-answers"], is_flag=True,
                         help="Keep no answers. Else one answer to each case is kept, so that a red build shows it."),
            *server_options(),
            name="set", text=_set.__doc__ or "",
        ),
        command(_list, as_json(), *server_options(), name="list", text=_list.__doc__ or ""),
        command(_forget, _NAME, *server_options(), name="forget", text=_forget.__doc__ or ""),
    ],
)  # fmt: skip
