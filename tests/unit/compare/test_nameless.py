"""What a gate makes of records that no case can be told of, and of demands that nothing can fail."""

from __future__ import annotations

import pytest

from evalq.evalcore.compare.decision import Decision
from evalq.evalcore.compare.gate import decide
from evalq.evalcore.compare.policy import Gate, Policy
from tests.unit.compare.made import passes, run_of


def decided(nameless: int, before: int | None, *, missing: int = 0, max_drop: float = 0.1) -> Decision:
    """On a candidate that passes everything that it names, ``before`` being the baseline's nameless records."""
    cand, base = (run_of(passes([(6, 6)] * 30)) for _ in range(2))
    cand.cases.unattributed, base.cases.unattributed = nameless, before or 0
    drop = Gate(metric="vs.pass_rate", max_drop=max_drop) if before is not None else None
    gates = (Gate(metric="vs.pass_rate", min=0.8), *([drop] if drop else []))
    return decide(Policy(gates=gates, missing=missing), [cand], {} if before is None else {"vs": base})


@pytest.mark.parametrize(("nameless", "before", "missing"), [(90, 0, 0), (1, None, 0), (5, 2, 2)])
def test_records_of_no_case_may_be_those_that_failed(nameless: int, before: int | None, missing: int) -> None:
    """Half of all answers might be: nothing goes by the others."""
    decision = decided(nameless, before, missing=missing)
    assert decision.decided == "INCONCLUSIVE"
    assert decision.checks[0].reason.startswith(f"{nameless} record(s) name no case")


@pytest.mark.parametrize(("nameless", "before", "missing"), [(0, None, 0), (3, 3, 0), (4, 2, 2), (2, None, 2)])
def test_as_many_as_the_baseline_has_or_may_be_missing_go(nameless: int, before: int | None, missing: int) -> None:
    """They were there when it was approved."""
    assert decided(nameless, before, missing=missing).decided == "GO"


def test_a_drop_that_no_run_can_have_is_noted() -> None:
    """Points where a share is meant."""
    (said,) = (note for note in decided(0, 0, max_drop=5).notes if "whole scale" in note)
    assert said == "vs.pass_rate: max_drop 5 is the whole scale from 0 to 1 or more, which no run can fail"
    assert not any("whole scale" in note for note in decided(0, 0, max_drop=0.99).notes)


@pytest.mark.parametrize(
    ("max_drop", "wanted", "said"), [(1, "SUSPECT", "hardly any run can fail"), (2, "GO", "no run")]
)
def test_a_note_on_such_a_drop_does_not_contradict_the_decision(max_drop: float, wanted: str, said: str) -> None:
    """From all to nothing is a fall by 1, which is as much as may be, and not less (GATE 6)."""
    runs = [run_of(passes([(passed, 10)] * 12)) for passed in (10, 0)]
    policy = Policy(gates=(Gate(metric="vs.pass_rate", max_drop=max_drop),), worse_cases="allowed")
    decision = decide(policy, runs[1:], {"vs": runs[0]})
    assert decision.decided == wanted
    assert any(said in note for note in decision.notes)
