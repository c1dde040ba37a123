"""Gates over verdicts of judges: advisory until people labelled enough of them, unless the policy says otherwise."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from evalq.evalcore.compare.decision import Decision
from evalq.evalcore.compare.gate import decide
from evalq.evalcore.compare.policy import Policy
from evalq.evalcore.compare.run import RunCases
from evalq.evalcore.compare.summary import CaseSummary, Summing, pooled
from evalq.evalcore.contract.measures import Judged, Measure, Sighting
from tests.unit.compare.made import PASS, run_of

PLAIN = Measure("plain.pass_rate", optional=True)
DROP = {"metric": "checks.pass_rate", "max_drop": 0.05}
BOUND = {"metric": "checks.plain.pass_rate", "min": 0.5}


def run(passed: int, labels: int | None, by: str = "grader", plain: int = 10) -> RunCases:
    """Twenty cases of ten answers each, of which a judge passed so many and plain checks others."""
    summing = Summing((PASS, PLAIN))
    for case in range(20):
        for repeat in range(10):
            summing.add(Sighting(f"c{case:02}", (float(repeat < passed), float(repeat < plain)), repeat))
    judged = None if labels is None else Judged({"polite": labels, "right": 50}, by, ("plain", "labels"))
    results = {
        "pass_rate": passed / 10,
        "thresholds": {"verdict": "fails"},
        "labels": {"agreement": {"value": 0.9, "low": 0.85, "high": 0.94}},
    }
    return run_of(summing.summary(judged=judged), results, evaluator="checks")


def decided(cand: RunCases, base: RunCases, *gates: dict[str, Any], **policy: Any) -> Decision:
    """What a policy of these gates decides."""
    return decide(Policy.model_validate({"gates": gates, **policy}), [cand], {"checks": base})


def test_a_judge_without_labels_makes_neither_go_nor_no_go() -> None:
    """A fall that it sees is shown with its verdict and the reason; other demands decide."""
    found = decided(run(2, 0), run(9, 0), DROP, BOUND)
    assert found.decided == "GO"
    by_judge, plain = found.checks
    assert (by_judge.decided, by_judge.tier) == ("NO-GO", "advisory")
    assert "fewer than 20 labelled verdicts: polite (0)" in by_judge.reason
    assert (plain.decided, plain.tier) == ("GO", "critical")
    assert decided(run(9, 0, plain=0), run(9, 0), DROP, BOUND).decided == "NO-GO"


def test_where_nothing_else_decides_it_is_inconclusive() -> None:
    """A policy that asks judges alone must not pass whatever they say."""
    found = decided(run(9, 0), run(9, 0), DROP)
    assert found.decided == "INCONCLUSIVE"
    assert found.checks[-1].metric == "judges"
    assert decided(run(9, 0), run(9, 0), {**DROP, "tier": "advisory"}).decided == "GO"


@pytest.mark.parametrize(
    ("cand", "base", "by", "more", "decides"),
    [
        (20, 0, "grader", {}, True),
        (19, 0, "grader", {}, False),
        (12, 8, "grader", {}, True),
        (0, 20, "grader", {}, True),
        (12, 8, "another judge", {}, False),
        (0, 0, "grader", {"judges": "decide"}, True),
        (90, 90, "grader", {"judges": "advisory"}, False),
        (5, 0, "grader", {"minimum_labels": 5}, True),
        (None, None, "grader", {}, True),
    ],
)
def test_labels_of_both_runs_or_the_policy_make_it_decide(
    cand: int | None, base: int | None, by: str, more: dict[str, Any], decides: bool
) -> None:
    """Those of the baseline count where the same judge was asked alike; a run without judges needs none."""
    found = decided(run(2, cand), run(9, base, by), DROP, BOUND, **more)
    assert found.decided == ("NO-GO" if decides else "GO")


def test_numbers_that_rest_on_no_judge_decide() -> None:
    """Also those of the results that are no measures: agreement itself does, thresholds do not."""
    agreed = {"metric": "checks.labels.agreement.value", "min": 0.95}
    reached = {"metric": "checks.thresholds.verdict", "equals": "holds"}
    found = decided(run(9, 0), run(9, 0), agreed, reached)
    assert [(check.decided, check.tier) for check in found.checks] == [("NO-GO", "critical"), ("NO-GO", "advisory")]


def test_a_measure_that_no_record_has_is_left_out() -> None:
    """Of runs without judges; a drop behind a baseline that lacks it cannot be told."""
    summing = Summing((PASS, PLAIN))
    summing.add(Sighting("c", (1.0, None), 0))
    without = summing.summary()
    assert [measure.name for measure in without.measures] == ["pass_rate"]
    assert list(without.columns) == ["pass_rate"]
    old = run_of(without, evaluator="checks")
    found = decided(run(9, 50), old, {"metric": "checks.plain.pass_rate", "max_drop": 0.1})
    assert "no record of the baseline has this number" in found.checks[-1].reason
    assert [measure.name for measure in pooled(run(9, 5).cases, without).measures] == ["pass_rate"]


def test_what_is_judged_survives_the_wire_and_pooling() -> None:
    """A baseline that is stored, or confirmed by fresh answers, is no less judged; an older one says nothing of it."""
    cases = run(9, 7).cases
    assert msgspec.json.decode(msgspec.json.encode(cases), type=CaseSummary).judged == cases.judged
    assert pooled(cases, run(9, 7).cases).judged == cases.judged
    assert msgspec.json.decode(b'{"measures": []}', type=CaseSummary).judged is None
