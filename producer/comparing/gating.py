"""A gate over finished runs, from its policy file to its decision."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from evalq.evalcore.compare.decision import Decision
from evalq.evalcore.compare.gate import decide
from evalq.evalcore.compare.policy import Policy
from evalq.evalcore.compare.run import RunCases
from evalq.evalcore.contract.params import load_mapping, validate
from evalq.evalcore.errors import UsageError
from evalq.producer.comparing.operands import operand, partner

if TYPE_CHECKING:
    from evalq.producer.servers import Servers

__all__ = ["candidates_of", "distinct", "gate_against", "gate_runs", "load_policy"]


def load_policy(path: str | Path) -> Policy:
    """The policy in a YAML or JSON file. Raises ConfigError with the file and the key."""
    return validate(Policy, load_mapping(path), str(path))


def candidates_of(names: Sequence[str], servers: Servers) -> list[RunCases]:
    """The runs to gate. Raises UsageError for two of one evaluator, of which a policy could not tell which it means."""
    return distinct([run for name in names for run in operand(name, servers)])


def distinct(runs: list[RunCases]) -> list[RunCases]:
    """``runs``, of which no two are of one evaluator. Raises UsageError."""
    seen: dict[str, RunCases] = {}
    for run in runs:
        if run.evaluator in seen:
            raise UsageError(
                f"{seen[run.evaluator].run} and {run.run} are both runs of {run.evaluator}: gate them one at a time"
            )
        seen[run.evaluator] = run
    return runs


def gate_runs(policy: Policy, candidates: Sequence[RunCases], baseline: str, servers: Servers) -> Decision:
    """Decide on ``candidates``, compared with what ``baseline`` names where it is not empty."""
    return gate_against(policy, candidates, operand(baseline, servers) if baseline else [], baseline)


def gate_against(policy: Policy, candidates: Sequence[RunCases], approved: list[RunCases], baseline: str) -> Decision:
    """Decide on ``candidates``, compared with those of ``approved``, called ``baseline``, where there are any."""
    compared = {gate.evaluator for gate in policy.gates if gate.compares}
    held = {run.evaluator for run in approved}
    partners = {
        run.evaluator: partner(run, approved, baseline)
        for run in candidates
        if approved and (run.evaluator in held or run.evaluator in compared)
    }
    return decide(policy, candidates, partners, baseline=baseline)
