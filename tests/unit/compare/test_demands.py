"""Single demands: what is to equal something, and numbers of the results that are no measure."""

from __future__ import annotations

from typing import Any, Literal

import pytest
from pydantic import ValidationError

from evalq.evalcore.compare.gate import decide
from evalq.evalcore.compare.outlook import signed
from evalq.evalcore.compare.policy import Gate, Policy
from evalq.evalcore.compare.summary import CaseColumn, CaseSummary, RunUsage
from evalq.evalcore.contract.measures import Measure
from tests.unit.compare.made import passes, run_of


def _decided(now: Any, **demand: Any) -> list[str]:
    """What each check of a demand on a number of the results says."""
    cases = passes([(1, 1)] * 10)
    policy = Policy.model_validate({"gates": [{"metric": "vs.x", **demand}]})
    return [check.decided for check in decide(policy, [run_of(cases, {"x": now}, facts=["x"])], {}).checks]


@pytest.mark.parametrize(
    ("rows", "missing", "wanted"),
    [
        ([(1, 1)] * 10, 0, "GO"),
        ([(1, 1)] * 10, 9, "INCONCLUSIVE"),
        ([(0, 1)] * 10, 0, "NO-GO"),
        ([(0, 1)] * 10, 9, "NO-GO"),
        ([(0, 0)] * 10, 1, "INCONCLUSIVE"),
    ],
)
def test_missing_answers_are_held_against_what_has_to_be_equal(
    rows: list[tuple[int, int]], missing: int, wanted: str
) -> None:
    """A gate decides at the observed and at the worst: one answer of ten that passes is not every answer, and
    where none came nobody knows.
    """
    run = run_of(passes(rows, [missing] * 10))
    decision = decide(Policy.model_validate({"gates": [{"metric": "vs.pass_rate", "equals": 1.0}]}), [run], {})
    assert decision.decided == wanted


@pytest.mark.parametrize("better", ["higher", "lower"])
@pytest.mark.parametrize(
    ("passed", "demand"), [(0, {"equals": 0}), (0, {"max": 0.3}), (1, {"equals": 1}), (1, {"min": 0.7})]
)
def test_missing_answers_are_taken_for_those_that_break_a_bound(
    better: Literal["higher", "lower"], passed: int, demand: dict[str, float]
) -> None:
    """Whichever end of its scale a measure has as its better one: what is missing may lie at the other."""
    policy = Policy.model_validate({"gates": [{"metric": "vs.pass_rate", **demand}]})
    decided = []
    for missing in (0, 9):
        cases = passes([(5 * passed, 5)] * 20, [missing] * 20)
        cases.measures = [Measure("pass_rate", better=better)]
        decided.append(decide(policy, [run_of(cases)], {}).decided)
    assert decided == ["GO", "INCONCLUSIVE"]


@pytest.mark.parametrize(("low", "high"), [(-3.0, -0.9), (-3.0, -0.7), (0.0, 1.0), (0.1, 0.3)])
@pytest.mark.parametrize(
    ("at", "demand", "wanted"),
    [("low", "max", "GO"), ("high", "max", "GO"), ("low", "min", "NO-GO"), ("high", "min", "INCONCLUSIVE")],
)
def test_a_bound_at_the_end_of_the_scale_is_held_whatever_decimals_that_is(
    low: float, high: float, at: str, demand: str, wanted: str
) -> None:
    """-3 and the width from there to -.9 add up to more than -.9, and to -.7 to less: all at the best was a NO-GO."""
    value = {"low": low, "high": high}[at]
    column = CaseColumn([3] * 12, [3 * value] * 12, [3 * value * value] * 12)
    cases = CaseSummary([Measure("s", "score", low, high)], [f"c{n}" for n in range(12)], [0] * 12, {"s": column})
    policy = Policy.model_validate({"gates": [{"metric": "vs.s", demand: high}]})
    assert decide(policy, [run_of(cases)], {}).decided == wanted


@pytest.mark.parametrize("key", ["min", "max", "max_drop", "max_relative_drop"])
def test_true_is_no_number_of_a_policy(key: str) -> None:
    """As a drop it would be the whole scale. A number as text is one."""
    with pytest.raises(ValidationError, match="a number is needed, not true or false"):
        Gate.model_validate({"metric": "vs.x", key: True})
    assert getattr(Gate.model_validate({"metric": "vs.x", key: "0.3"}), key) == 0.3
    assert Gate.model_validate({"metric": "vs.x", "equals": True}).equals is True


@pytest.mark.parametrize("key", ["minimum_pairs", "minimum_repeats", "missing", "minimum_labels"])
def test_true_is_no_count_of_a_policy(key: str) -> None:
    """As one label where twenty are wanted, a judge of whom nobody knows anything decided."""
    gates = [{"metric": "vs.x", "min": 0.5}]
    with pytest.raises(ValidationError, match="a number is needed, not true or false"):
        Policy.model_validate({"gates": gates, key: True})
    assert getattr(Policy.model_validate({"gates": gates, key: 3}), key) == 3


@pytest.mark.parametrize(
    "demand", [{"min_passes": True, "of": 2}, {"min_passes": 1, "of": True}, {"pass_hat_k": {"k": True, "min": 0.5}}]
)
def test_true_is_no_count_of_a_case(demand: dict[str, Any]) -> None:
    """Each key of its own, beside another that is well."""
    with pytest.raises(ValidationError, match="a number is needed, not true or false"):
        Gate.model_validate({"metric": "vs.x", "per_case": demand})


def test_what_is_no_number_keeps_no_bound() -> None:
    """It is neither above nor below anything."""
    assert _decided(float("nan"), min=0.5) == ["NO-GO"]
    assert _decided(float("nan"), max=0.5) == ["NO-GO"]
    assert _decided(float("inf"), min=0.5) == ["GO"]


@pytest.mark.parametrize(
    ("value", "wanted", "decided"),
    [
        (True, True, "GO"),
        (1, True, "NO-GO"),
        (True, 1, "NO-GO"),
        (0, False, "NO-GO"),
        (1, 1.0, "GO"),
        ("1", 1, "NO-GO"),
        ("yes", "yes", "GO"),
    ],
)
def test_true_is_not_the_number_1(value: Any, wanted: Any, decided: str) -> None:
    """Though Python says so; whole numbers and others are one kind."""
    assert _decided(value, equals=wanted) == [decided]


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (0.1 + 0.2 - 0.3, "+0"),
        (0.3 - (0.1 + 0.2), "+0"),
        (0.0, "+0"),
        (-0.05, "-0.05"),
        (1 / 3, "+0.3333"),
        (2e-9, "+2e-09"),
    ],
)
def test_a_change_that_is_rounding_alone_is_none(change: float, told: str) -> None:
    """A gate's reason told "+5.551e-17"."""
    assert signed(change) == told


@pytest.mark.parametrize("wanted", [1.0, 0, "all", False])
def test_what_nothing_was_answered_to_equals_nothing_for_all_that_is_known(wanted: Any) -> None:
    """A number that is null, since all records are errors, was NO-GO where its bounds were undecided."""
    assert _decided(None, equals=wanted) == ["INCONCLUSIVE"]
    assert _decided("other", equals=wanted) == ["NO-GO"]


@pytest.mark.parametrize(
    ("answered", "missing", "demand", "wanted"),
    [
        (1, 9, {"metric": "vs.failed", "equals": 0}, "INCONCLUSIVE"),
        (1, 9, {"metric": "vs.verdict", "equals": "holds"}, "INCONCLUSIVE"),
        (1, 9, {"metric": "vs.verdict", "equals": "fails"}, "NO-GO"),
        (1, 0, {"metric": "vs.verdict", "equals": "holds"}, "GO"),
        (1, 9, {"metric": "vs.failed", "max": 0}, "INCONCLUSIVE"),
        (1, 9, {"metric": "vs.failed", "max": 90}, "GO"),
        (1, 0, {"metric": "vs.failed", "max": 0}, "GO"),
        (0, 9, {"metric": "vs.failed", "max": 0}, "INCONCLUSIVE"),
        (0, 9, {"metric": "vs.failed", "min": 1}, "NO-GO"),
        (1, 9, {"metric": "vs.usage.cost", "max": 1}, "GO"),
        (1, 9, {"metric": "vs.usage.errors", "equals": 0}, "GO"),
    ],
)
def test_what_is_missing_might_have_changed_a_number_of_the_results(
    answered: int, missing: int, demand: dict[str, Any], wanted: str
) -> None:
    """No failure was counted, and nine of ten answers did not come: exit 0, as if all had passed. A count may be larger
    by as many as are missing; what calls took is known in any case.
    """
    results = {"failed": 0, "verdict": "holds"}
    run = run_of(passes([(answered, answered)] * 10, [missing] * 10), results, facts=["failed"])
    run.usage = RunUsage(outputs=100, each={"cost": 0.0})
    decision = decide(Policy.model_validate({"gates": [demand]}), [run], {})
    assert decision.decided == wanted
    if wanted == "INCONCLUSIVE":
        assert "90 missing answers" in decision.checks[0].reason


def test_a_mean_that_the_report_tells_otherwise_is_said_to_be_another() -> None:
    """One case of forty-one fails, and has nearly all the weight: GO at .98, where the report says .04."""
    run = run_of(passes([(0, 10)] + [(10, 10)] * 40), {"pass_rate": 0.04})
    gate = {"metric": "vs.pass_rate", "min": 0.9}
    policy = Policy.model_validate({"gates": [gate, gate | {"tier": "advisory"}]})
    decision = decide(policy, [run], {})
    assert decision.decided == "GO"
    (note,) = (note for note in decision.notes if "report" in note)
    assert note.startswith(
        "vs.pass_rate: the gate uses 0.9756, in which all cases count alike; the report has 0.04, by"
    )
    single = {"metric": "vs.pass_rate", "per_case": {"min_passes": 6, "of": 10}}
    assert not decide(Policy.model_validate({"gates": [single]}), [run], {}).notes, "no mean decides it"
    assert decide(Policy.model_validate({"gates": [gate, single]}), [run], {}).notes == decision.notes
    for told in (40 / 41, 0.97561, None):
        alike = run_of(run.cases, {} if told is None else {"pass_rate": told})
        assert not any("report" in note for note in decide(policy, [alike], {}).notes)
