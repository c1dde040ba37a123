"""Decide by a policy whether a run may pass: GO (exit 0), NO-GO (1), SUSPECT or INCONCLUSIVE (4)."""

from __future__ import annotations

from pathlib import Path

import click
import msgspec

from evalq.evalcore.compare.policy import Policy
from evalq.evalcore.errors import UsageError
from evalq.producer.comparing.decision_files import (
    DecidingCommand,
    check_decision_outputs,
    errors_written,
    finish_decision,
)
from evalq.producer.comparing.gating import Mode, candidates_of, gate_runs, load_policy, located
from evalq.producer.comparing.operands import folders_of
from evalq.producer.invocation.invocation import Invocation, command, echo_markdown, next_step
from evalq.producer.invocation.options import (
    Finite,
    as_json,
    calling_options,
    confirming_options,
    decision_outputs,
    judged,
    on_command_line,
    option,
    place_options,
    recorded_options,
)
from evalq.producer.invocation.options import allow_inconclusive as may_be_inconclusive

_OPTIONS_OF = {
    "confirm": (("targets", "calls", "base_target"), "calls the targets again; without it a gate makes no calls"),
    "dry_run": (("repeat", "cases", "rate"), "plans a run; without it a gate decides on a finished run"),
}
"""{option: the options that need it, and why}."""


def _gate(
    invocation: Invocation,
    candidates: tuple[str, ...],
    policy: str,
    baseline: str,
    candidate: str,
    confirm: bool,
    base_target: str,
    allow_inconclusive: bool,
    outputs: tuple[Path, ...],
    as_json: bool,
    cases: int,
    rate: float,
    mode: Mode | None,
) -> int:
    reads = (*candidates, policy, baseline)
    if invocation.start.dry_run:
        check_decision_outputs(outputs, reads)
        _refuse_idle(confirm=confirm, dry_run=True)
        return _plan(invocation, load_policy(policy), candidates, baseline, (cases, rate), as_json)
    with errors_written("gate", outputs, reads), invocation.servers() as servers:
        _refuse_idle(confirm=confirm, dry_run=False)
        if not candidates:
            raise UsageError("name the run to gate (a folder, an id or a file), or plan one with --dry-run")
        rules, runs = load_policy(policy), candidates_of(candidates, servers)
        with located(policy, rules):
            if confirm:
                from evalq.producer.lifecycle.gate import ConfirmOptions, confirm_runs  # most gates make no calls

                options = ConfirmOptions(
                    folders_of(candidates), invocation.backend(), invocation.output.reporter("calls"), base_target
                )
                decision = confirm_runs(rules, runs, baseline, servers, options, candidate)
            else:
                decision = gate_runs(rules, runs, baseline, servers, candidate=candidate, mode=mode or "policy")
    return finish_decision(decision, runs, outputs, as_json=as_json, allow_inconclusive=allow_inconclusive)


def _refuse_idle(**given: bool) -> None:
    """Raise UsageError for an option that needs another one; its environment variable may be for other commands."""
    for name, (options, why) in _OPTIONS_OF.items():
        idle = next((each for each in options if not given[name] and on_command_line(each)), None)
        if idle is not None:
            flag, other = ("--" + each.replace("_", "-") for each in (idle, name))
            raise UsageError(f"{flag} goes with {other}, which {why}: omit {flag}")


def _plan(
    invocation: Invocation,
    policy: Policy,
    candidates: tuple[str, ...],
    baseline: str,
    expected: tuple[int, float],
    as_json: bool,
) -> int:
    from evalq.producer.comparing.planning import RunPlan, outlook, outlook_text  # only for a plan

    plan = RunPlan(invocation.live.repeat, *expected)
    with invocation.servers() as servers:
        found = outlook(policy, candidates_of(candidates, servers), baseline, plan, servers)
    if as_json:
        click.echo(msgspec.json.encode(found))
    else:
        echo_markdown(outlook_text(found), nl=False)
        next_step("make the run with so many repeats, then: evalq gate RUN --policy FILE --baseline BASE")
    return 0


COMMAND = command(
    _gate,
    click.Argument(["candidates"], nargs=-1, metavar="[CAND...]"),
    click.Option(
        ["--policy"], required=True, type=click.Path(exists=True, dir_okay=False), help="The policy: a YAML file."
    ),
    option("--baseline", default="", metavar="BASE", help="Measure drops against this: a baseline's name, or a run."),
    judged(),
    *confirming_options(),
    *recorded_options(),
    may_be_inconclusive(),
    decision_outputs(),
    option("--dry-run", is_flag=True, help="Print what the gate will be able to detect, before anything is paid."),
    option("--repeat", type=click.IntRange(0, 1_000_000), default=0, metavar="N",
            help="With --dry-run: answers planned per case [as many as the run, or the baseline, has]."),
    click.Option(["--cases"], type=click.IntRange(0, 1_000_000), default=0, metavar="N",
            help="With --dry-run, without a baseline: how many cases are planned."),
    click.Option(["--rate"], type=Finite(0, 1, min_open=True, max_open=True), default=0.8, show_default=True,
            help="With --dry-run, without a baseline: the mean pass rate to expect."),
    as_json(),
    *[each for each in place_options() if each.name != "inline"],
    *calling_options()[:2],
    text=(
        "Decide by a policy whether a run may pass: GO (exit 0), NO-GO (1), SUSPECT or INCONCLUSIVE (4).\n\n"
        "CAND are run folders, ids or files, one of each evaluator in the policy. An interval decides each demand. GO: "
        "it excludes a violation. NO-GO: it shows a violation. SUSPECT: it does neither, but the run, or one of its "
        "cases, got worse beyond chance. INCONCLUSIVE: the answers cannot tell. Errors are not scores: missing answers "
        "count against the candidate before it can get GO."
    ),
    kind=DecidingCommand,
)  # fmt: skip
