"""A gate over finished runs, from its policy file to its decision."""

from __future__ import annotations

import contextlib
import shlex
from collections.abc import Collection, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Literal, NamedTuple

import msgspec

from evalq.evalcore.compare.decision import GateDecision
from evalq.evalcore.compare.eligibility import as_recorded, recorded_once, same_run
from evalq.evalcore.compare.gate import decide
from evalq.evalcore.compare.policy import Policy
from evalq.evalcore.compare.single_cases import CaseHistory, past_of
from evalq.evalcore.compare.spending import SINGLE, Errors, growing_run_errors, look_count
from evalq.evalcore.compare.summary import RunCases
from evalq.evalcore.contract.measures import pass_measure
from evalq.evalcore.contract.params import load_mapping, validate
from evalq.evalcore.errors import EvalqError, UsageError
from evalq.producer.comparing.baselines import Baselines
from evalq.producer.comparing.gate_record import GateRecord, with_look
from evalq.producer.comparing.operands import alike, operand, partner
from evalq.producer.invocation.finding import folders
from evalq.producer.outputs.cases import cases_of, decode_cases

if TYPE_CHECKING:
    from evalq.producer.servers import Servers


# Earlier runs of a target: how often each case passed in them.

MOST = 100
"""Runs of a target that are looked at, the latest ones."""


def _pasts_of(
    candidates: Sequence[RunCases], partners: Mapping[str, RunCases], servers: Servers
) -> dict[str, CaseHistory]:
    """The history of each candidate's cases: runs in ./evalq-runs and, where one is named, in the ledger."""
    return {run.called: past_of(run, partners.get(run.called), list(_earlier_runs(run, servers))) for run in candidates}


def _earlier_runs(run: RunCases, servers: Servers) -> Iterator[RunCases]:
    """Finished runs of its evaluator, suite and target; recorded outputs have none, and nor has what cannot be read."""
    if not run.target:
        return
    seen: set[str] = set()
    # Of its suite, as in the ledger: a confirmation asks because something looked like a drop, so that its answers
    # would make a case look flakier than it is.
    wanted = (run.evaluator, run.suite, run.target, "done")
    alike = [
        folder
        for folder, info in folders()
        if (info.evaluator, info.suite, info.target, info.state) == wanted and info.run != run.run
    ]
    # Cut before reading: cases of a run are large, and a folder may hold thousands of runs.
    for folder in alike[-MOST:]:
        with contextlib.suppress(EvalqError, OSError):
            found = cases_of(folder)
            seen.add(found.run)
            yield found
    if servers.named:
        yield from _in_ledger(run, servers, seen)


def _in_ledger(run: RunCases, servers: Servers, seen: set[str]) -> Iterator[RunCases]:
    from evalq.workers.ledger.detached import Reports
    from evalq.workers.ledger.history import HistoryKey

    reports = Reports(servers.runs, servers.settings)
    for entry in servers.history.entries(HistoryKey(run.evaluator, run.suite, run.target), MOST):
        # A run of both places counts once: twice the answers would prove more than there is.
        if entry.run in seen | {run.run}:
            continue
        with contextlib.suppress(EvalqError):
            data = reports.cases(entry.run)
            if data is not None:
                yield decode_cases(data, f"what the ledger has of run {entry.run}")


ITSELF = "a run held to itself says nothing of a change; gate another run, or name another baseline"
Mode = Literal["policy", "recorded", "statistical", "single"]
"""Which runs are held to their recorded answers, as `gate_runs` has it."""


def load_policy(path: str | Path) -> Policy:
    """The policy in a YAML or JSON file. Raises ConfigError with the file and the key."""
    return validate(Policy, load_mapping(path), str(path))


def candidates_of(names: Sequence[str], servers: Servers) -> list[RunCases]:
    """The runs to gate. Raises UsageError for two that are called the same: which of them would a policy mean?"""
    return distinct([run for name in names for run in operand(name, servers)])


def distinct(runs: list[RunCases]) -> list[RunCases]:
    """``runs``, of which no two are called the same. Raises UsageError."""
    seen: dict[str, RunCases] = {}
    for run in runs:
        if run.called in seen:
            raise UsageError(
                f"{seen[run.called].run} and {run.run} are both called {run.called}: gate them one at a time, or give "
                "them names in a suite file"
            )
        seen[run.called] = run
    return runs


class MatchedRuns(NamedTuple):
    """Candidates and what each is compared with: all that a decision is made of.

    ``lacking`` says why one has no partner, ``baseline`` what was named; ``pasts`` is the history of each one's cases.
    ``approved``: the baseline is one that somebody approved, and no other run.
    """

    policy: Policy
    candidates: Sequence[RunCases]
    partners: Mapping[str, RunCases]
    baseline: str = ""
    lacking: str = ""
    pasts: Mapping[str, CaseHistory] = {}
    approved: bool = False

    def decide(self, errors: Errors = SINGLE) -> GateDecision:
        """Decide, with `evalq.evalcore.compare.gate.decide`."""
        return decide(
            self.policy,
            self.candidates,
            self.partners,
            baseline=self.baseline,
            errors=errors,
            lacking=self.lacking,
            pasts=self.pasts,
            today=_today(),
        )


def gate_runs(
    policy: Policy,
    candidates: Sequence[RunCases],
    baseline: str | RunCases,
    servers: Servers,
    *,
    candidate: str = "",
    first: Sequence[str] = (),
    mode: Mode = "policy",
    written: bool = True,
) -> GateDecision:
    """Decide on ``candidates``, compared with ``baseline``, or with what it names where it is not empty.

    At a baseline that was approved by name each look is counted, and spends of one error: ``candidate`` is what is
    judged, such as a commit; without it, other answers are another candidate. One that was stopped stays so.
    ``mode`` says which runs are held to their recorded answers instead: as the policy says, all or none, or those that
    have one answer a case ("single"); ``written``: somebody wrote the policy, so that all else in it counts there, too.
    ``first`` as for `matched`, which raises what this raises; UsageError for a run that is held to itself; and
    StorageError where looks cannot be counted.
    """
    found = matched(policy, candidates, baseline, servers, first=first)
    recorded = _recorded(found, mode)
    refuse_itself(found, recorded)
    if recorded:
        # Nothing here is a matter of chance, so that no look is counted; the statistics beside it decide nothing.
        statistical = found.decide(growing_run_errors(look_count(candidates)))
        return as_recorded(policy, candidates, found.partners, statistical, recorded, written=written)
    # Looks are counted by what was approved: without that there is nothing to count them by.
    if not found.partners or not found.approved:
        return _uncounted(found)
    record = GateRecord(policy, candidates, found.partners, servers, candidate)
    decision, look = record.decided(lambda look: found.decide(look.errors))
    return record.settled(with_look(decision, look), found.baseline)


def _recorded(found: MatchedRuns, mode: Mode) -> list[str]:
    """What the runs are called that are held to their recorded answers. Raises UsageError for one that cannot be."""
    if mode == "statistical" or (mode == "policy" and not found.policy.as_recorded):
        return []
    named = []
    for run in found.candidates:
        partner = found.partners.get(run.called)
        if partner is None:
            continue
        if mode == "single":
            named += [run.called] if recorded_once(run, partner) else []
        elif pass_measure(run.cases.measures) is None:
            raise UsageError(
                f"{run.called}: its cases have scores and neither pass nor fail: decide by statistics (--statistical)"
            )
        else:
            named.append(run.called)
    return named


def _uncounted(found: MatchedRuns) -> GateDecision:
    """The decision where no looks are counted: those at a run that was extended count by what it says of itself."""
    looks = look_count(found.candidates)
    decision = found.decide(growing_run_errors(looks))
    if looks == 1:
        return decision
    told = f"look {looks} at a run that was extended: GO and NO-GO at {growing_run_errors(looks).go:.3g}"
    return msgspec.structs.replace(decision, notes=(told, *decision.notes))


def is_approved(baseline: str | RunCases, servers: Servers) -> bool:
    """Whether it is the name of approved runs, which goes before a run or file of that name."""
    return isinstance(baseline, str) and bool(Baselines(servers).known(baseline))


def matched(
    policy: Policy,
    candidates: Sequence[RunCases],
    baseline: str | RunCases,
    servers: Servers,
    *,
    first: Sequence[str] = (),
) -> MatchedRuns:
    """Which approved run each of ``candidates`` is compared with.

    ``first`` is what they were named by where they may be the first of their kind: what is to be compared is
    inconclusive then where nothing is approved. Raises UsageError for that otherwise.
    """
    partners: dict[str, RunCases] = {}
    by_name: list[RunCases] = []
    lacking, name = "", baseline.run if isinstance(baseline, RunCases) else baseline
    if baseline:
        compared = {gate.run for gate in policy.gates if gate.compares}
        try:
            by_name = Baselines(servers).known(baseline) if isinstance(baseline, str) else []
            # What was approved under that name goes before a file of that name, which anybody may add.
            approved = by_name or ([baseline] if isinstance(baseline, RunCases) else operand(baseline, servers))
            known = [run for run in candidates if any(alike(run, each) for each in approved)]
            partners |= {run.called: partner(run, approved, name) for run in known}
            for run in candidates:
                # Bounds need no partner: a candidate without one is refused only where a gate would compare it.
                if run not in known and compared & {run.called, run.evaluator}:
                    partner(run, approved, name)  # there is none: it says so
        except UsageError as error:
            if not first:
                raise
            runs = shlex.join(_approvable(candidates, first, servers))
            lacking = f"{error}. Approve what is as it should be: evalq baseline set {shlex.quote(name)} {runs}"
    # Only where a quarantine asks for it: the history of all runs has to be read for that.
    pasts = _pasts_of(candidates, partners, servers) if policy.quarantine else {}
    return MatchedRuns(policy, candidates, partners, name, lacking, pasts, bool(by_name))


def refuse_itself(found: MatchedRuns, recorded: Collection[str] = ()) -> None:
    """Raise UsageError for a candidate that is its own baseline, or a copy of it: it could be nothing but GO.

    Of outputs that are held to what was ``recorded`` that is said, and no error: they may have been evaluated anew, and
    a file of results names any run that found the same.
    """
    for run in found.candidates:
        base = found.partners.get(run.called)
        if base is None or not same_run(run, base) or (run.called in recorded and run.usage is None):
            continue
        raise UsageError(f"{run.run} is both the candidate and the baseline ({found.baseline}): {ITSELF}")


def _approvable(candidates: Sequence[RunCases], named: Sequence[str], servers: Servers) -> list[str]:
    """What another command finds ``candidates`` by: their ids, or what they were ``named`` by where those serve nobody,
    since their folders are not in ./evalq-runs and there is no ledger.
    """
    ids = [run.run for run in candidates]
    here = {info.run for _, info in folders()}
    return ids if servers.named or here.issuperset(ids) else list(named)


def _today() -> str:
    return datetime.now(UTC).date().isoformat()
