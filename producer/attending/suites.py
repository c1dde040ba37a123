"""The gate of a suite: its runs, once they are all done, held to its policy."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

import click

from evalq.evalcore.compare.decision import Decision
from evalq.evalcore.errors import EvalqError, UsageError
from evalq.evalcore.trust import Thing, Writer, allows
from evalq.producer.attending.confirming import Asking, check_sides, confirm_runs
from evalq.producer.comparing.baselines import FOLDER, Baselines
from evalq.producer.comparing.ending import exit_code
from evalq.producer.comparing.gating import candidates_of, gate_runs, is_approved
from evalq.producer.comparing.outputs import check_decision_output, errors_written, write_decision
from evalq.producer.comparing.text import decision_text
from evalq.producer.folder.run_folder import RunFolder
from evalq.producer.invocation.invocation import Invocation
from evalq.producer.suites.suite_file import Suite
from evalq.producer.suites.summary import Matrices

if TYPE_CHECKING:
    from evalq.producer.monitor.reporter import Reporter
    from evalq.producer.servers import Servers

__all__ = ["Against", "check_confirm", "check_gate", "gate_suite", "write_undecided"]


class Against(NamedTuple):
    """What the command line says of a decision.

    ``baseline`` stands in place of the suite's, ``candidate`` is who is judged. With ``confirm`` what looks like a drop
    is asked afresh, of ``base_target`` ("": the baseline's) and of the candidate's.
    """

    baseline: str = ""
    candidate: str = ""
    confirm: bool = False
    base_target: str = ""


def check_gate(suite: Suite, against: Against, *, detach: bool) -> None:
    """Raise UsageError, before anything is computed, for a gate that could not decide at the end."""
    policy = suite.policy
    if policy is None:
        if against.baseline or against.confirm or suite.outputs:
            raise UsageError("--baseline, --confirm and -o go with a suite that has a policy")
        return
    if detach:
        raise UsageError(
            "a suite with a policy waits for its runs, so that the gate can decide; with --detach, leave that to later "
            "(--no-gate), and gate the runs when they are done: evalq gate RUN... --policy FILE"
        )
    for path in suite.outputs:
        check_decision_output(path)
        # A suite may be anybody's: what was approved is not for it to write.
        if allows(Writer.SUITE, Thing.PATH, path, (FOLDER,)):
            raise UsageError(f"outputs: {path}: approved runs are kept in {FOLDER}; name a file elsewhere")
    compares = next((gate.metric for gate in policy.gates if gate.compares), None)
    if policy.collapse == "none-new":
        compares = compares or "collapse: none-new"
    if compares and not (against.baseline or suite.baseline):
        raise UsageError(f"{compares} is measured against a baseline, and none is named: baseline: NAME, or --baseline")


def check_confirm(suite: Suite, against: Against, servers: Servers) -> None:
    """Raise UsageError, before anything is paid, where --confirm could not ask both sides of a run again."""
    approved = Baselines(servers).known(against.baseline or suite.baseline)
    for run in suite.runs:
        if run.live is None or not run.live.target:
            raise UsageError(f"--confirm asks again, and {run.evaluator.name} evaluates what was recorded: omit it")
        bases = {each.target for each in approved if each.evaluator == run.evaluator.name}
        check_sides(run.name or run.evaluator.name, run.live.target, against.base_target, bases)


def gate_suite(
    suite: Suite,
    done: Sequence[RunFolder],
    against: Against,
    invocation: Invocation,
    reporter: Reporter,
    *,
    allow_inconclusive: bool = False,
    matrices: Matrices | None = None,
) -> Decision:
    """Decide on the finished runs in ``done``, show the decision and write it where the suite wants it, with what its
    ``matrices`` came to.
    """
    assert suite.policy is not None, "a suite without a policy is no gate"
    output = invocation.output
    with errors_written("gate", suite.outputs), invocation.servers() as servers:
        named = [str(folder.path) for folder in done]
        runs = candidates_of(named, servers)
        baseline = against.baseline or suite.baseline
        if against.confirm and is_approved(baseline, servers):
            folders = {folder.info().run: folder for folder in done}
            asking = Asking(folders, invocation.backend(), reporter, against.base_target)
            decision = confirm_runs(suite.policy, runs, baseline, servers, asking, against.candidate)
        else:
            decision = gate_runs(suite.policy, runs, baseline, servers, candidate=against.candidate, first=named)
    try:
        write_decision(suite.outputs, decision, runs, allow_inconclusive=allow_inconclusive, matrices=matrices)
    finally:
        if output.fmt in ("markdown", "yaml") and not output.json_lines:
            click.echo(decision_text(decision), nl=False)
    code = exit_code(decision, allow_inconclusive=allow_inconclusive)
    reporter.event("decision", decided=decision.decided, exit_code=code)
    if output.fmt != "markdown" and not output.json_lines:
        reporter.say(f"{decision.decided}: {', '.join(decision.candidates)}")
    return decision


def write_undecided(suite: Suite, error: EvalqError) -> None:
    """Say in the suite's outputs that a run of it ended in ``error``, so that nothing was decided."""
    with contextlib.suppress(EvalqError), errors_written("gate", suite.outputs):
        raise error
