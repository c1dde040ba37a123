"""Check results for regressions against the stored baseline, or against other results."""

from __future__ import annotations

from pathlib import Path

import click

from evalq.evalcore.compare.policy import Gate, Policy
from evalq.evalcore.compare.summary import RunCases
from evalq.producer.comparing.comparing import MARGIN
from evalq.producer.comparing.decision_files import DecidingCommand, errors_written, finish_decision
from evalq.producer.comparing.gating import Mode, candidates_of, gate_runs
from evalq.producer.invocation.invocation import Invocation, command
from evalq.producer.invocation.options import (
    Finite,
    as_json,
    decision_outputs,
    judged,
    option,
    recorded_options,
    server_options,
)
from evalq.producer.invocation.options import allow_inconclusive as may_be_inconclusive


def _check_regressions(
    invocation: Invocation,
    results: str,
    base: str | None,
    baseline: str,
    margin: float,
    candidate: str,
    allow_inconclusive: bool,
    outputs: tuple[Path, ...],
    as_json: bool,
    mode: Mode | None,
) -> int:
    with errors_written("check-regressions", outputs, (results, base or "")), invocation.servers() as servers:
        runs = candidates_of([results], servers)
        policy = _policy(runs, margin)
        named = [results] if base is None else []
        decision = gate_runs(
            policy,
            runs,
            base or baseline,
            servers,
            candidate=candidate,
            first=named,
            mode=mode or "single",
            written=False,
        )
    return finish_decision(decision, runs, outputs, as_json=as_json, allow_inconclusive=allow_inconclusive)


def _policy(runs: list[RunCases], margin: float) -> Policy:
    """Forbid a drop of a run's first measure by ``margin`` of its scale or more, and show its other measures.

    If judges decide, the first measure may be advisory, so measures that rest on no judge decide, too. If answers have
    labels, no case may newly collapse.
    """
    gates = [
        Gate(
            metric=f"{run.called}.{measure.name}",
            max_drop=margin * measure.width,
            tier="critical" if not number or _rests_on_no_judge(run, measure.name) else "supporting",
        )
        for run in runs
        for number, measure in enumerate(run.cases.measures)
    ]
    labelled = any(run.cases.labels or run.cases.collapse_p is not None for run in runs)
    return Policy(gates=tuple(gates), collapse="none-new" if labelled else "allowed")


def _rests_on_no_judge(run: RunCases, path: str) -> bool:
    """Whether judges decide in this run, but not on this number."""
    judged = run.cases.judged
    return judged is not None and not judged.affects(path)


COMMAND = command(
    _check_regressions,
    click.Argument(["results"]),
    click.Argument(["base"], required=False),
    option(
        "--baseline",
        default="main",
        show_default=True,
        metavar="NAME",
        help="What to compare with if BASE is not given.",
    ),
    click.Option(
        ["--margin"],
        type=Finite(0, 1, min_open=True),
        default=MARGIN,
        show_default=True,
        metavar="SHARE",
        help="Drops smaller than this share of a measure's scale do not count.",
    ),
    judged(),
    *recorded_options(),
    may_be_inconclusive(),
    decision_outputs(),
    as_json(),
    *server_options(),
    text=(
        "Check results for regressions against the stored baseline, or against other results.\n\n"
        "RESULTS and BASE are files that --format json printed, of one evaluation or of a suite, or anything that "
        "evalq compare takes. The command is a gate without a policy file. If every case has one answer, these "
        "answers decide, as with --as-recorded. Exit 1: a case passed before and fails now. Exit 4: a case has no "
        "answer now. Exit 5: no case is in both. Otherwise, or with --statistical, statistics decide. Exit 1: an "
        "evaluation's first measure fell by more than the margin, or cases newly collapsed. Exit 4: the answers cannot "
        "tell. Exit 0: they exclude a drop. A measure that rests on judges counts once people have labelled enough of "
        "their verdicts."
    ),
    kind=DecidingCommand,
)
