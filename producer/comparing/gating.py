"""A gate over finished runs, from its policy file to its decision."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from evalq.evalcore.compare.decision import Check, Decision
from evalq.evalcore.compare.gate import decide
from evalq.evalcore.compare.looks import answers_digest, baseline_digest
from evalq.evalcore.compare.policy import Policy
from evalq.evalcore.compare.run import RunCases
from evalq.evalcore.contract.params import load_mapping, validate
from evalq.evalcore.errors import UsageError
from evalq.evalcore.model.canonical import digest
from evalq.producer.comparing.baselines import Baselines
from evalq.producer.comparing.looks import looks_of
from evalq.producer.comparing.operands import alike, operand, partner

if TYPE_CHECKING:
    from evalq.producer.servers import Servers

__all__ = ["candidates_of", "distinct", "gate_runs", "load_policy"]


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


def gate_runs(
    policy: Policy,
    candidates: Sequence[RunCases],
    baseline: str | RunCases,
    servers: Servers,
    *,
    candidate: str = "",
    first: bool = False,
) -> Decision:
    """Decide on ``candidates``, compared with ``baseline``, or with what it names where it is not empty.

    At a baseline that was approved by name each look is counted, and spends of one error: ``candidate`` is what is
    judged, such as a commit; without it, other answers are another candidate. One that was stopped stays so.
    ``first``: they may be the first of their kind; what is to be compared is inconclusive where nothing is approved.
    Raises UsageError for that otherwise, StorageError where looks cannot be counted.
    """
    partners: dict[str, RunCases] = {}
    lacking, name = "", baseline.run if isinstance(baseline, RunCases) else baseline
    if baseline:
        compared = {gate.run for gate in policy.gates if gate.compares}
        try:
            approved = [baseline] if isinstance(baseline, RunCases) else operand(baseline, servers)
            known = [run for run in candidates if any(alike(run, each) for each in approved)]
            partners |= {run.called: partner(run, approved, name) for run in known}
            for run in candidates:
                if run not in known and compared & {run.called, run.evaluator}:
                    partner(run, approved, name)  # there is none: it says so
        except UsageError as error:
            if not first:
                raise
            runs = " ".join(run.run for run in candidates)
            lacking = f"{error}. Approve what is as it should be: evalq baseline set {name} {runs}"
    if partners and isinstance(baseline, str) and not Path(baseline).exists() and Baselines(servers).known(baseline):
        return _counted(policy, candidates, partners, name, lacking, candidate, servers)
    return decide(policy, candidates, partners, baseline=name, lacking=lacking)


def _counted(
    policy: Policy,
    candidates: Sequence[RunCases],
    partners: Mapping[str, RunCases],
    name: str,
    lacking: str,
    candidate: str,
    servers: Servers,
) -> Decision:
    """The decision of the next look at the baseline, or of the one that these answers had before."""
    looks, place, answers = looks_of(servers), baseline_digest(policy, partners.values()), answers_digest(candidates)
    key = digest(candidate.encode("utf-8", "surrogateescape")) if candidate else answers
    look = looks.take(place, key, answers)
    decision = decide(policy, candidates, partners, baseline=name, look=look, lacking=lacking)
    stands = looks.settle(place, key, _stopped(decision))
    if not stands or decision.decided == "NO-GO":
        return decision
    demand = "one decision a candidate, however often it is run"
    check = Check(name, demand, "critical", "NO-GO", f"it was stopped by earlier answers: {stands}")
    return msgspec.structs.replace(decision, decided="NO-GO", checks=(*decision.checks, check))


def _stopped(decision: Decision) -> str:
    """Why answers stop a candidate for good: what chance might undo. What is missing may come, and is no such thing."""
    surprising = [
        f"{check.metric} {check.reason}"
        for check in decision.checks
        if check.tier == "critical" and check.decided == "NO-GO" and check.p_worse is not None
    ]
    return f"run {', '.join(decision.candidates)}: {'; '.join(surprising)}" if surprising else ""
