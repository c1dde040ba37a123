"""Runs by two golden sets: what a gate compares of them, and what it takes for missing."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import pytest

from evalq.evalcore.compare.decision import GateDecision
from evalq.evalcore.compare.gate import decide
from evalq.evalcore.compare.policy import Policy
from tests.unit.compare.made import answered, passes, run_of

IDS = [f"c{number:02}" for number in range(60)]


def gated(
    first: int, last: int, *, allowed: bool, specification: str = "new", unrecorded: Sequence[str] = ()
) -> GateDecision:
    """A candidate of the cases from ``first`` to ``last`` beside a baseline of the first fifty, all of them well."""
    base, cand = (passes([(20, 20)] * len(ids), ids=ids) for ids in (IDS[:50], IDS[first:last]))
    base.labels, base.collapsed, base.stopped = [{"a": 1}] * 50, IDS[:2], []
    cand.unrecorded = list(unrecorded)
    wanted = {"specification": "intersection" if allowed else "same"}
    policy = Policy.model_validate({"gates": [{"metric": "vs.pass_rate", "max_drop": 0.05}], **wanted})
    runs = run_of(base, specification="old"), run_of(cand, specification=specification)
    return decide(policy, runs[1:], {"vs": runs[0]})


@pytest.mark.parametrize(("first", "last", "both"), [(0, 40, 40), (0, 60, 50), (10, 60, 40)])
def test_cases_that_the_other_golden_set_has_not_are_not_missing(first: int, last: int, both: int) -> None:
    """Where the policy allows another one they were NO-GO; both counts are said."""
    decision = gated(first, last, allowed=True)
    assert decision.decided == "GO"
    assert f"{both} cases in both: 50 in the baseline, {last - first} in the candidate" in decision.notes[0]
    assert gated(first, last, allowed=False).decided == "INCONCLUSIVE"


def test_cases_of_one_golden_set_that_have_no_record_are_missing() -> None:
    """Whatever the policy allows of others, and of another one where that has them, too."""
    assert gated(0, 40, allowed=True, unrecorded=IDS[40:41]).decided == "NO-GO"
    for allowed in (True, False):
        decision = gated(0, 40, allowed=allowed, specification="old")
        assert decision.decided == "NO-GO"
        assert not any("golden set" in note for note in decision.notes)


@pytest.mark.parametrize("otherwise", [{"version": "2"}, {"specification": "s", "parameters": "q"}])
@pytest.mark.parametrize("fell", [(0, 20), (5, 20), (20, 20)])
def test_what_other_rules_may_have_changed_is_not_laid_to_the_candidate(
    otherwise: dict[str, str], fell: tuple[int, int]
) -> None:
    """All cases fell, or one did, or none: a change of the rules looks alike. Bounds count as ever."""
    base = msgspec.structs.replace(run_of(passes([(20, 20)] * 50)), specification="old", parameters="p")
    cand = msgspec.structs.replace(run_of(passes([fell] + [(20, 20)] * 49 if fell[0] else [fell] * 50)), **otherwise)
    demands = {"gates": [{"metric": "vs.pass_rate", "max_drop": 0.05}]}
    decision = decide(Policy.model_validate(demands), [cand], {"vs": base})
    assert decision.decided == "INCONCLUSIVE"
    assert {check.decided for check in decision.checks} == {"INCONCLUSIVE"}
    assert not any(each.named for each in decision.failing)
    allowed = decide(Policy.model_validate({**demands, "specification": "intersection"}), [cand], {"vs": base})
    assert allowed.decided == {0: "NO-GO", 5: "SUSPECT", 20: "GO"}[fell[0]]
    bound = decide(Policy.model_validate({"gates": [{"metric": "vs.pass_rate", "min": 0.9}]}), [cand], {"vs": base})
    assert bound.decided == ("NO-GO" if not fell[0] else "INCONCLUSIVE")


def test_cases_that_only_other_rules_call_collapsed_are_not_new() -> None:
    """Which answers are of one kind is a matter of the rules."""
    base, cand = answered([{str(kind): 1 for kind in range(20)}] * 3), answered([{"a": 20}] * 3)
    policy = Policy.model_validate({"gates": [{"metric": "vs.pass_rate", "min": 0.0}], "collapse": "none-new"})
    assert decide(policy, [cand], {"vs": base}).decided == "NO-GO"
    later = msgspec.structs.replace(cand, version="2")
    assert decide(policy, [later], {"vs": base}).decided == "INCONCLUSIVE"
