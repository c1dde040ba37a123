"""A gate that confirms: newly collapsed cases, which nobody asks for afresh, stop for good like anything else."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from evalq.evalcore.compare.policy import Gate, Policy
from evalq.evalcore.compare.summary import RunCases
from evalq.producer.comparing.gating import MatchedRuns
from evalq.producer.lifecycle import gate as gating
from evalq.producer.lifecycle.gate import ConfirmOptions, confirm_runs
from evalq.producer.servers import Servers
from evalq.workers.settings import Settings
from tests.unit.compare.made import answered

POLICY = Policy(gates=(Gate(metric="vs.pass_rate", min=0.0, tier="advisory"),), collapse="none-new")


def _run(report: str, labels: dict[str, int]) -> RunCases:
    return msgspec.structs.replace(answered([labels]), run=report, report=report)


BASE = _run("base", {f"other {n}": 1 for n in range(20)})
COLLAPSED = _run("collapsed", {"mode": 20})
WELL = _run("well", {f"other {n}": 1 for n in range(20)})


def test_a_collapse_that_stopped_a_candidate_stands(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Running its job again, for other answers, does not make it pass; another candidate is not held by that."""

    def found(policy: Policy, candidates: list[RunCases], baseline: str, servers: Servers) -> MatchedRuns:
        return MatchedRuns(policy, candidates, {"vs": BASE}, baseline, approved=True)

    monkeypatch.setattr(gating, "matched", found)
    monkeypatch.setattr(gating, "_sides", lambda *_: None)  # nothing here is asked afresh

    nobody: Any = None
    asking = ConfirmOptions({}, nobody, nobody)

    def gate(run: RunCases, candidate: str) -> tuple[str, str]:
        decision = confirm_runs(POLICY, [run], "main", Servers(Settings()), asking, candidate)
        return decision.decided, decision.checks[-1].reason

    assert gate(WELL, "0a1b")[0] == "GO"
    assert gate(COLLAPSED, "2c3d")[0] == "NO-GO"
    decided, reason = gate(WELL, "2c3d")
    assert decided == "NO-GO"
    assert "stopped by earlier answers" in reason
    assert "vs.collapse" in reason
    assert gate(WELL, "4e5f")[0] == "GO"
