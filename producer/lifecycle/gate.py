"""Gates over live targets: `--confirm` calls both targets again before a drop can block, and the gate of a suite.

The recorded answers are screened at an error level of .05. If a run looks worse, evalq calls the baseline's target and
the candidate's again, twice each, in the order base, candidate, candidate, base. A change of the provider during the
day then reaches both sides. Only these fresh answers can block; the j-th confirmation on one baseline uses the level
.05/(j(j+1)) (docs/decisions/0016).
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from evalq.evalcore.compare.decision import Check, Decided, GateDecision, surprising
from evalq.evalcore.compare.gate import collapses, run_meant
from evalq.evalcore.compare.policy import Policy
from evalq.evalcore.compare.spending import SCREEN, Errors, confirmation_errors
from evalq.evalcore.compare.summary import RunCases, pooled
from evalq.evalcore.errors import EvalqError, Incomplete, UsageError
from evalq.evalcore.trust import Thing, Writer, allows
from evalq.producer.comparing.baselines import Baselines
from evalq.producer.comparing.comparing import decision_text, sentence
from evalq.producer.comparing.decision_files import (
    after_decision,
    check_decision_output,
    errors_written,
    exit_code,
    write_decision,
)
from evalq.producer.comparing.gate_record import GateRecord
from evalq.producer.comparing.gating import MatchedRuns, candidates_of, gate_runs, is_approved, matched, refuse_itself
from evalq.producer.comparing.operands import operand
from evalq.producer.comparing.samples import FOLDER
from evalq.producer.folder.run_folder import RunFolder
from evalq.producer.invocation.invocation import Invocation, echo_markdown
from evalq.producer.suites.suite_file import SuitePlan
from evalq.producer.suites.summary import Matrices

if TYPE_CHECKING:
    from evalq.producer.folder.run_folder import RunFolder
    from evalq.producer.monitor.progress import Reporter
    from evalq.producer.run.backend import Backend
    from evalq.producer.servers import Servers
    from evalq.producer.sweep.sweep import Sweep


_NO_LIMIT = 1 << 62
_ORDER: Sequence[Decided] = ("NO-GO", "SUSPECT", "INCONCLUSIVE")


class ConfirmOptions(NamedTuple):
    """How to call the targets again: the candidates' ``folders`` by run id, and where to compute.

    ``base_target`` is the target that still answers as the baseline did ("": the one the baseline was made with).
    """

    folders: Mapping[str, RunFolder]
    backend: Backend
    reporter: Reporter
    base_target: str = ""


class _Sides(NamedTuple):
    """A candidate's sweep, and the names of the baseline's and the candidate's target."""

    sweep: Sweep
    base: str
    cand: str


def confirm_runs(
    policy: Policy,
    candidates: Sequence[RunCases],
    baseline: str,
    servers: Servers,
    asking: ConfirmOptions,
    candidate: str = "",
) -> GateDecision:
    """Decide as `gate_runs` does, but confirm a NO-GO or SUSPECT that may be chance by fresh answers of both sides.

    For the runs that are called again, the fresh answers alone decide every demand of the policy on cases, GO included.
    A second call with the same answers of the same candidate finds the same confirming runs and pays nothing.
    Raises UsageError if one side cannot be called, and the errors of sweeps.
    """
    found = matched(policy, candidates, baseline, servers)
    if not found.partners or not found.approved:
        raise UsageError("--confirm counts confirmations at an approved baseline: --baseline NAME")
    refuse_itself(found)
    sides = {run.called: _sides(run, found.partners.get(run.called), asking) for run in candidates}
    record = GateRecord(policy, candidates, found.partners, servers, candidate)
    screened, look = record.decided(
        lambda look: found.decide(Errors(SCREEN, look.errors.go, look.errors.no_go)), " screen"
    )
    suspects = surprising(screened)
    if suspects and record.stopped():
        # This candidate is already blocked for good. Fresh answers would cost money and change nothing.
        screened = _still_suspect(screened, suspects)
    elif suspects:
        number = record.look(" confirm").number
        fresh = _asked_afresh(found, suspects, sides, asking, record.key)
        screened = _confirmed(screened, fresh, confirmation_errors(number)._replace(go=look.errors.go), number)
    note = f"screened at {SCREEN:g}, GO at {look.errors.go:.3g}"
    decision = msgspec.structs.replace(screened, look=look, notes=(note, *screened.notes))
    return record.settled(decision, baseline, collapses(decision))


def _sides(run: RunCases, partner: RunCases | None, asking: ConfirmOptions) -> _Sides:
    """Raises UsageError if a side cannot be called."""
    from evalq.producer.run.backend import refuse_foreign_paths
    from evalq.producer.sweep.sweep import Sweep

    folder = asking.folders.get(run.run)
    if folder is not None:
        refuse_foreign_paths(folder, asking.backend)
    sweep = Sweep.asked_in(folder) if folder is not None else None
    if sweep is None:
        raise UsageError(
            f"--confirm asks again, and {run.run} is no sweep whose folder is here: without --confirm the gate decides "
            "by the answers that there are, and counts its looks"
        )
    base = asking.base_target or (partner.target if partner else "")
    _check_sides(run.called, run.target, base, {base})
    return _Sides(sweep, base, run.target)


def _check_sides(called: str, target: str, base: str, bases: Iterable[str]) -> None:
    """Raise UsageError if ``target`` of run ``called`` would be compared with itself.

    The baseline's target is ``base``, or any of ``bases`` if that is empty.
    """
    for each in [base] if base else bases:
        if not each or each == target:
            raise UsageError(
                f"--confirm asks the baseline's target again, and {called} has {each or 'none'} on both sides: name "
                "the target that still answers as the baseline did (--base-target NAME), or omit --confirm"
            )


def _asked_afresh(
    found: MatchedRuns, suspects: Iterable[Check], sides: Mapping[str, _Sides], asking: ConfirmOptions, key: str
) -> MatchedRuns:
    """The demands of the suspect runs, with fresh answers of both sides."""
    from evalq.producer.run.backend import shared_backend
    from evalq.producer.sweep.direct import may_call_alone

    known = [(run.called, run.evaluator) for run in found.candidates]
    meant = {at for at, run in enumerate(found.candidates) if any(_is_about(check, run) for check in suspects)}
    # Measures of a whole run, such as its cost, are not confirmed: fresh answers compare cases.
    gates = tuple(
        gate
        for gate in found.policy.gates
        if (at := run_meant(gate.run, known)) is not None
        and at in meant
        and gate.measure_in(found.candidates[at].cases.measures) is not None
    )
    candidates, partners = [], {}
    calls = not may_call_alone(asking.backend)
    with shared_backend(asking.backend, [Path.cwd()], reporter=asking.reporter, calls=calls) as backend:
        for at in sorted(meant):
            run = found.candidates[at]
            base, cand = _blocks(sides[run.called], f"{key} {run.called}", asking._replace(backend=backend))
            candidates.append(msgspec.structs.replace(cand, name=run.name))
            partners[run.called] = base
    # The screening already decided on missing answers. Here they only widen the intervals.
    policy = found.policy.model_copy(update={"gates": gates, "collapse": "allowed", "missing": _NO_LIMIT})
    return MatchedRuns(policy, candidates, partners, found.baseline, pasts=found.pasts)


def _is_about(check: Check, run: RunCases) -> bool:
    """Whether a check names ``run``, by the run's name or its evaluator's."""
    return any(check.metric == name or check.metric.startswith(f"{name}.") for name in (run.called, run.evaluator))


def _blocks(sides: _Sides, key: str, asking: ConfirmOptions) -> tuple[RunCases, RunCases]:
    """Call base and candidate in two sweeps each, in the order base, candidate, candidate, base.

    In this order a linear trend over time shifts both means equally.
    """
    from evalq.producer.lifecycle.start import begin_or_join
    from evalq.producer.servers import Servers

    made: dict[str, list[RunCases]] = {"base": [], "cand": []}
    for number, side in enumerate(("base", "cand", "cand", "base")):
        target = sides.base if side == "base" else sides.cand
        begin = partial(sides.sweep.again, target, f"confirm {key} {side} {number}")
        folder = begin_or_join(begin, asking.backend, asking.reporter, detach=False)
        assert folder is not None, "nothing is left to the fleet"
        with Servers(asking.backend.settings) as servers:
            made[side] += operand(str(folder.path), servers)
        _check_answered(made[side][-1], target, folder)
    return _pooled(*made["base"]), _pooled(*made["cand"])


def _check_answered(run: RunCases, target: str, folder: RunFolder) -> None:
    """Raise Incomplete if the target answered nothing, before the other side's answers are paid for."""
    if not any(any(column.count) for column in run.cases.columns.values()):
        raise Incomplete(
            f"{folder.path}: {target} answered nothing, so that nothing is confirmed; when it answers again, evalq "
            f"retry {folder.named()} --errors, and then the gate once more"
        )


def _pooled(first: RunCases, second: RunCases) -> RunCases:
    return msgspec.structs.replace(
        first,
        run=f"{first.run} and {second.run}",
        cases=pooled(first.cases, second.cases),
        usage=None,
        results={},
        inputs=[],
    )


def _confirmed(screened: GateDecision, fresh: MatchedRuns, errors: Errors, number: int) -> GateDecision:
    """The decision by fresh answers, with the screened checks of collapse and of runs that were not called again."""
    found = fresh.decide(errors)
    places = {(check.metric, check.demand) for check in found.checks}
    about = [check for check in screened.checks if any(_is_about(check, run) for run in fresh.candidates)]
    again = [
        msgspec.structs.replace(check, reason=f"{check.reason}, asked afresh{_before(check, screened)}")
        for check in found.checks
    ]
    # Labels and missing answers stay as screened: fresh answers say nothing new of them. A screened NO-GO or SUSPECT
    # by a p-value is left out: it was only the reason to call again.
    kept = [
        check
        for check in screened.checks
        if (check.metric, check.demand) not in places
        and not (check in about and check.decided in ("NO-GO", "SUSPECT") and check.p_worse is not None)
    ]
    checks = (*again, *kept)
    words = {check.decided for check in checks if check.tier == "critical"}
    decided = next((each for each in _ORDER if each in words), "GO")
    asked = ", ".join(run.run for run in (*fresh.partners.values(), *fresh.candidates))
    note = f"confirmation {number} on this baseline: NO-GO at {errors.no_go:.3g}, by {asked}"
    return msgspec.structs.replace(
        screened, decided=decided, checks=checks, notes=(note, *found.notes, *screened.notes), paired=found.paired
    )


def _before(check: Check, screened: GateDecision) -> str:
    """The reason of the screened check if it caused the confirmation, else ""."""
    for each in screened.checks:
        if (each.metric, each.demand) == (check.metric, check.demand) and each.decided in ("NO-GO", "SUSPECT"):
            return f"; suspect: {each.reason}"
    return ""


def _still_suspect(screened: GateDecision, suspects: Sequence[Check]) -> GateDecision:
    """The screened decision for a candidate that stays blocked: its suspects are INCONCLUSIVE, as none is confirmed."""
    checks = tuple(
        msgspec.structs.replace(check, decided="INCONCLUSIVE", reason=f"suspect: {check.reason}")
        if check in suspects
        else check
        for check in screened.checks
    )
    words = {check.decided for check in checks if check.tier == "critical"}
    return msgspec.structs.replace(
        screened, decided=next((each for each in _ORDER if each in words), "INCONCLUSIVE"), checks=checks
    )


# The gate of a suite: decides on its runs by its policy once all of them are done.


class GateOptions(NamedTuple):
    """The gate's options from the command line.

    ``baseline`` replaces the suite's, and ``candidate`` names the version that is judged. With ``confirm`` an apparent
    drop is checked by calling ``base_target`` ("": the baseline's target) and the candidate's target again.
    """

    baseline: str = ""
    candidate: str = ""
    confirm: bool = False
    base_target: str = ""


def check_gate(suite: SuitePlan, against: GateOptions, *, detach: bool) -> None:
    """Raise UsageError for a gate that could not decide at the end, before anything is computed."""
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
        # A suite may come from anyone, so it must not write to the folder of approved runs.
        if allows(Writer.SUITE, Thing.PATH, path, (FOLDER,)):
            raise UsageError(f"outputs: {path}: approved runs are kept in {FOLDER}; name a file elsewhere")
    compares = next((gate.metric for gate in policy.gates if gate.compares), None)
    if policy.collapse == "none-new":
        compares = compares or "collapse: none-new"
    if compares and not (against.baseline or suite.baseline):
        raise UsageError(f"{compares} is measured against a baseline, and none is named: baseline: NAME, or --baseline")


def check_confirm(suite: SuitePlan, against: GateOptions, servers: Servers) -> None:
    """Raise UsageError if --confirm could not call both sides of a run again, before anything is paid."""
    approved = Baselines(servers).known(against.baseline or suite.baseline)
    for run in suite.runs:
        if run.live is None or not run.live.target:
            raise UsageError(f"--confirm asks again, and {run.evaluator.name} evaluates what was recorded: omit it")
        bases = {each.target for each in approved if each.evaluator == run.evaluator.name}
        _check_sides(run.name or run.evaluator.name, run.live.target, against.base_target, bases)


def gate_suite(
    suite: SuitePlan,
    done: Sequence[RunFolder],
    against: GateOptions,
    invocation: Invocation,
    reporter: Reporter,
    *,
    allow_inconclusive: bool = False,
    matrices: Matrices | None = None,
) -> GateDecision:
    """Decide on the finished runs in ``done`` by the suite's policy, show the decision and write the suite's outputs.

    ``matrices`` are the suite's matrices of targets and prompts, which the outputs include.
    """
    assert suite.policy is not None, "a suite without a policy is no gate"
    output = invocation.output
    with errors_written("gate", suite.outputs), invocation.servers() as servers:
        named = [str(folder.path) for folder in done]
        runs = candidates_of(named, servers)
        baseline = against.baseline or suite.baseline
        if against.confirm and is_approved(baseline, servers):
            folders = {folder.info().run: folder for folder in done}
            asking = ConfirmOptions(folders, invocation.backend(), reporter, against.base_target)
            decision = confirm_runs(suite.policy, runs, baseline, servers, asking, against.candidate)
        else:
            decision = gate_runs(suite.policy, runs, baseline, servers, candidate=against.candidate, first=named)
    try:
        write_decision(suite.outputs, decision, runs, allow_inconclusive=allow_inconclusive, matrices=matrices)
    finally:
        if output.fmt in ("markdown", "yaml") and not output.json_lines:
            echo_markdown(decision_text(decision), nl=False)
    code = exit_code(decision, allow_inconclusive=allow_inconclusive)
    reporter.event("decision", decided=decision.decided, exit_code=code)
    if not output.json_lines:
        if output.fmt != "markdown":
            reporter.say(f"{decision.decided}: {', '.join(decision.folders)}: {sentence(decision)}")
        reporter.say(f"next: {after_decision(decision, runs)}")
    return decision


def write_undecided(suite: SuitePlan, error: EvalqError) -> None:
    """Write to the suite's outputs that a run ended in ``error``, so nothing was decided."""
    with contextlib.suppress(EvalqError), errors_written("gate", suite.outputs):
        raise error
