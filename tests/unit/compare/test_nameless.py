"""What a gate makes of records that no case can be told of, and of demands that nothing, or everything, fails."""

from __future__ import annotations

import pytest

from evalq.evalcore.compare.decision import GateDecision
from evalq.evalcore.compare.gate import decide
from evalq.evalcore.compare.policy import Gate, Policy, Tier
from evalq.evalcore.errors import UsageError
from evalq.evalcore.views.markdown import plural
from tests.unit.compare.made import passes, run_of, scores


def decided(nameless: int, before: int | None, *, missing: int = 0, max_drop: float = 0.1) -> GateDecision:
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
    assert decision.checks[0].reason.startswith(plural(nameless, "record") + " without a case")


@pytest.mark.parametrize(("nameless", "before", "missing"), [(0, None, 0), (3, 3, 0), (4, 2, 2), (2, None, 2)])
def test_as_many_as_the_baseline_has_or_may_be_missing_go(nameless: int, before: int | None, missing: int) -> None:
    """They were there when it was approved."""
    assert decided(nameless, before, missing=missing).decided == "GO"


@pytest.mark.parametrize(
    ("bound", "said"),
    [
        ({"max_drop": 5}, "max_drop 5 is off the scale from 0 to 1, so that every run would pass; 5 points are 0.05"),
        ({"max_rise": 2}, "max_rise 2 is off the scale from 0 to 1, so that every run would pass; 2 points are 0.02"),
        ({"min": 80}, "min 80 is off the scale from 0 to 1, so that no run could pass; 80 % are 0.8"),
        ({"max": 80}, "max 80 is off the scale from 0 to 1, so that every run would pass; 80 % are 0.8"),
        ({"min": -0.5}, "min -0.5 is off the scale from 0 to 1, so that every run would pass"),
        ({"max": -1}, "max -1 is off the scale from 0 to 1, so that no run could pass"),
        ({"max_drop": 500}, "max_drop 500 is off the scale from 0 to 1, so that every run would pass"),
    ],
)
@pytest.mark.parametrize("tier", ["critical", "advisory"])
def test_a_demand_that_lies_off_the_scale_is_refused(bound: dict[str, float], said: str, tier: Tier) -> None:
    """Percent or points where a share is meant: a gate that every run passes looks like one that works."""
    runs = [run_of(passes([(9, 10)] * 30)), run_of(passes([(0, 10)] * 30))]
    policy = Policy(gates=(Gate.model_validate({"metric": "vs.pass_rate", "tier": tier, **bound}),))
    with pytest.raises(UsageError) as refused:
        decide(policy, runs[1:], {"vs": runs[0]})
    assert str(refused.value) == f"vs.pass_rate: {said}"


def test_a_demand_at_the_end_of_its_scale_is_on_it() -> None:
    """All scales count: that of a score, too, in its own unit."""
    run, base = (run_of(scores([[low, 1.0]] * 30)) for low in (0.4, 0.5))
    name = run.cases.measures[0]
    for bound in ({"min": name.low}, {"max": name.high}, {"max_drop": name.width}):
        decide(Policy(gates=(Gate.model_validate({"metric": f"vs.{name.name}", **bound}),)), [run], {"vs": base})
    gate = Gate(metric=f"vs.{name.name}", max_drop=name.width + 0.1)
    with pytest.raises(UsageError, match=r"is off the scale from \S+ to \S+, so that every run would pass$"):
        decide(Policy(gates=(gate,)), [run], {"vs": base})


def test_a_drop_by_less_than_the_scale_has_no_note() -> None:
    """Nor has one that is refused."""
    assert not any("whole scale" in note for note in decided(0, 0, max_drop=0.99).notes)


def test_a_note_on_such_a_drop_does_not_contradict_the_decision() -> None:
    """From all to nothing is a fall by 1, which is as much as may be, and not less (GATE 6)."""
    runs = [run_of(passes([(passed, 10)] * 12)) for passed in (10, 0)]
    policy = Policy(gates=(Gate(metric="vs.pass_rate", max_drop=1),), worse_cases="allowed")
    decision = decide(policy, runs[1:], {"vs": runs[0]})
    assert decision.decided == "SUSPECT"
    (said,) = (note for note in decision.notes if "whole scale" in note)
    assert said == "vs.pass_rate: max_drop 1 is the whole scale from 0 to 1, which hardly any run can fail"
