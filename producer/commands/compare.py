"""Compare two runs, case by case: what changed, how sure the change is, and which cases caused it."""

from __future__ import annotations

import shlex
from pathlib import Path

import click
import msgspec

from evalq.producer.comparing.comparing import MARGIN, compare_runs, comparison_text
from evalq.producer.comparing.decision_files import DecidingCommand, errors_written, write_comparison
from evalq.producer.comparing.gating import is_approved
from evalq.producer.comparing.operands import base_of, operand, partner
from evalq.producer.comparing.outcome import ComparedRuns
from evalq.producer.invocation.finding import warn
from evalq.producer.invocation.invocation import Invocation, command, echo_markdown, next_step
from evalq.producer.invocation.options import Finite, as_json, decision_outputs, server_options


def _compare(
    invocation: Invocation,
    base: str,
    cand: str,
    margin: float,
    measure: str,
    by_cases: bool,
    outputs: tuple[Path, ...],
    as_json: bool,
) -> None:
    compared: list[ComparedRuns] = []
    with errors_written("compare", outputs, (base, cand)), invocation.servers() as servers:
        candidates, bases = operand(cand, servers), base_of(base, servers)
        if is_approved(base, servers) and Path(base).exists():
            warn(f"{base} is also a baseline, and evalq uses that; for the file or folder, write ./{base}")
        for run in candidates:
            before = bases[0] if len(bases) == 1 else partner(run, bases, base)
            comparisons = compare_runs(before, run, margin, measure, by_cases=by_cases)
            compared.append(ComparedRuns(before, run, comparisons))
    try:
        write_comparison(outputs, compared)
    finally:
        for before, run, measures in compared:
            if as_json:
                click.echo(msgspec.json.encode({"base": before.run, "cand": run.run, "measures": measures}))
            else:
                echo_markdown(comparison_text(before, run, measures), nl=False)
        if compared and not as_json:
            # A baseline's name is no folder, and only folders have answers to look at.
            folders = [each.named for each in compared[-1][:2] if each.named and Path(each.named).is_dir()]
            answers = f"look at the answers: evalq view {shlex.join(folders)}; " if folders else ""
            next_step(f"{answers}block merges by a policy: evalq init --ci github")


COMMAND = command(
    _compare,
    click.Argument(["base"]),
    click.Argument(["cand"]),
    click.Option(
        ["--margin"],
        type=Finite(0, 1, min_open=True),
        default=MARGIN,
        show_default=True,
        metavar="SHARE",
        help="Changes smaller than this share of a measure's scale count as none.",
    ),
    click.Option(
        ["--measure"], default="", metavar="NAME", help="Compare by this measure only, such as pass_rate [all]."
    ),
    click.Option(
        ["--by-cases"],
        is_flag=True,
        help="Decide for cases like these, not only for these; use it if two runs of one unchanged target differ.",
    ),
    decision_outputs(),
    as_json(),
    *server_options(),
    text=(
        "Compare two runs, case by case: what changed, how sure the change is, and which cases caused it.\n\n"
        "BASE and CAND are run folders, ids of runs here or in the ledger, files (report.json, cases.json), or names "
        "of baselines. The exit code is 0 for every verdict, even if JUnit XML lists a worse case as a failure. To "
        "decide by a policy, use evalq gate."
    ),
    kind=DecidingCommand,
)
