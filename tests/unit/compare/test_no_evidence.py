"""No evidence is never GO: over all demands that a policy can make, of runs that show nothing."""

from __future__ import annotations

import hashlib

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from evalq.evalcore.compare.decision import LEAST, Check, GateDecision, overall
from evalq.evalcore.compare.gate import decide
from evalq.evalcore.compare.policy import Policy
from evalq.evalcore.compare.summary import CaseColumn, CaseSummary, RunCases, RunUsage, Summing
from evalq.evalcore.contract.measures import Observation
from tests.unit.compare.made import PASS, answered, passes, run_of

RESULTS = {"speed": 0.5, "count": 3, "verdict": "holds", "flag": True}
BOUNDS = {"min": 0.0, "max": 1.0, "max_drop": 1.0, "max_relative_drop": 1.0}

_MEASURED = st.dictionaries(st.sampled_from(sorted(BOUNDS)), st.none(), min_size=1).map(
    lambda names: {"metric": "vs.pass_rate", **{name: BOUNDS[name] for name in names}}
)
_BY_CASE = st.sampled_from(
    [
        {"min_passes": 1, "of": 1_000},
        {"min_passes": 1, "of": 2},
        {"pass_at_k": {"k": 1, "min": 0.01}},
        {"pass_hat_k": {"k": 1, "min": 0.01}},
    ]
).map(lambda demand: {"metric": "vs.pass_rate", "per_case": demand})
_EXACT = st.sampled_from(
    [
        {"metric": "vs.pass_rate", "equals": 1},
        {"metric": "vs.verdict", "equals": "holds"},
        {"metric": "vs.flag", "equals": True},
        {"metric": "vs.count", "equals": 3},
    ]
)
_TIERS = st.sampled_from(["critical", "supporting", "advisory"])
_GATES = st.lists(
    st.builds(lambda gate, tier: {**gate, "tier": tier}, _MEASURED | _BY_CASE | _EXACT, _TIERS), min_size=1, max_size=4
)
_POLICIES = st.builds(
    lambda gates, collapse, on_worse, named, pairs, missing: Policy.model_validate(
        {
            "gates": gates,
            "collapse": collapse,
            "on_worse": on_worse,
            "worse_cases": named,
            "minimum_pairs": pairs,
            "missing": missing,
        }
    ),
    _GATES,
    st.sampled_from(["allowed", "none", "none-new"]),
    st.sampled_from(["inconclusive", "block"]),
    st.sampled_from(["none", "allowed"]),
    st.integers(1, 10),
    st.integers(0, 1_000),
)


def run(cases: CaseSummary) -> RunCases:
    made = run_of(cases, RESULTS)
    return msgspec.structs.replace(made, usage=RunUsage(outputs=sum(cases.columns[PASS.name].count)))


def gated(policy: Policy, cand: RunCases, base: RunCases) -> GateDecision:
    return decide(policy, [cand], {"vs": base})


WELL = run(passes([(20, 20)] * 30))


@settings(deadline=None)
@given(_POLICIES, st.integers(0, 30), st.integers(0, 5), st.booleans())
def test_a_run_without_any_answer_is_never_go(policy: Policy, cases: int, missing: int, itself: bool) -> None:
    """No cases, all errors, all missing; beside a good baseline, and beside one that shows as little."""
    empty = run(passes([(0, 0)] * cases, [missing] * cases))
    assert gated(policy, empty, empty if itself else WELL).decided != "GO"


@settings(deadline=None)
@given(_POLICIES, st.booleans(), st.integers(0, 30), st.booleans())
def test_one_answer_in_all_is_never_go(policy: Policy, passed: bool, empty: int, itself: bool) -> None:
    """Whatever is demanded of it, and however many cases have none."""
    one = run(passes([(int(passed), 1)] + [(0, 0)] * empty, [0] + [1] * empty))
    assert gated(policy, one, one if itself else WELL).decided != "GO"


@settings(deadline=None)
@given(_POLICIES, st.lists(st.tuples(st.booleans(), st.integers(0, 3)), max_size=20), st.integers(1, 20))
def test_every_answer_counted_twice_decides_as_once(
    policy: Policy, answers: list[tuple[bool, int]], cases: int
) -> None:
    """The second observation of a repeat is passed over, so that no answer proves twice what it proves."""
    once, twice = Summing((PASS,)), Summing((PASS,))
    for at, (passed, repeat) in enumerate(answers):
        observation = Observation(f"c{at % cases:06d}", (float(passed),), repeat)
        once.add(observation, "a")
        for _ in range(2):
            twice.add(observation, "a")
    first, second = (gated(policy, run(summing.summary()), WELL) for summing in (once, twice))
    assert first.decided == second.decided
    assert [check.reason for check in first.checks] == [check.reason for check in second.checks]


@settings(deadline=None)
@given(_POLICIES, st.integers(1, 30), st.integers(1, 20))
def test_equal_outputs_are_never_go_of_a_change(policy: Policy, cases: int, repeats: int) -> None:
    """Copies of the baseline's files, whatever else is demanded."""
    same = msgspec.structs.replace(run_of(passes([(repeats, repeats)] * cases), RESULTS), inputs=["a" * 64])
    compares = any(gate.compares for gate in policy.gates)
    decided = gated(policy, same, same).decided
    assert decided != "GO" or not compares


@pytest.mark.parametrize("tier", ["supporting", "advisory"])
@pytest.mark.parametrize("answers", [0, 1])
def test_a_policy_that_nothing_can_break_is_not_kept_without_answers(tier: str, answers: int) -> None:
    """Whatever its tiers, and whichever of its runs has none; with answers nothing is in its way."""
    policy = Policy.model_validate(
        {"gates": [{"metric": f"{name}.pass_rate", "min": 0.5, "tier": tier} for name in "ab"]}
    )
    well, empty = run(WELL.cases), run(passes([(answers, answers)] + [(0, 0)] * 9, [0] + [1] * 9))
    for cands, wanted in (((well, empty), "INCONCLUSIVE"), ((empty, well), "INCONCLUSIVE"), ((well, well), "GO")):
        called = [msgspec.structs.replace(each, name=name) for each, name in zip(cands, "ab", strict=True)]
        decision = decide(policy, called, {})
        assert decision.decided == wanted
        assert [check.metric for check in decision.checks if check.tier == "critical"] == [
            name for name, each in zip("ab", cands, strict=True) if each is empty
        ]


@pytest.mark.parametrize("cand", [["a" * 64] * 2, ["a" * 64, "b" * 64, "b" * 64, "b" * 64]])
@pytest.mark.parametrize(
    "gate", [{"min": 0.9}, {"max_drop": 0.05}, {"equals": 1}, {"per_case": {"min_passes": 1, "of": 2}}]
)
def test_a_file_under_two_names_is_never_go(cand: list[str], gate: dict[str, object]) -> None:
    """Its answers count twice, whichever side has it; with ``deterministic`` equal files are answers of their own."""
    copied, once = (msgspec.structs.replace(run_of(WELL.cases), inputs=inputs) for inputs in (cand, ["c" * 64]))
    empty = hashlib.sha256().hexdigest()
    shards = msgspec.structs.replace(run_of(WELL.cases), inputs=["d" * 64, empty, empty])
    demand = {"gates": [{"metric": "vs.pass_rate", **gate}]}
    policy, allowed = (Policy.model_validate(demand | {"deterministic": each}) for each in (False, True))
    assert gated(policy, copied, once).decided == "INCONCLUSIVE"
    assert gated(policy, once, copied).decided == "INCONCLUSIVE"
    assert gated(allowed, copied, once).decided == "GO"
    assert gated(policy, shards, once).decided == "GO"
    if "max_drop" not in gate:
        assert decide(policy, [copied], {}).decided == "INCONCLUSIVE"


@pytest.mark.parametrize("collapse", ["none", "none-new"])
def test_answers_that_nobody_tells_apart_are_never_go_of_collapse(collapse: str) -> None:
    """A demand that no run can be held to is not kept; beside a run that can be, it is that one's."""
    policy = Policy.model_validate({"gates": [{"metric": "vs.pass_rate", "min": 0.0}], "collapse": collapse})
    decision = gated(policy, WELL, WELL)
    assert decision.decided == "INCONCLUSIVE"
    assert [check.metric for check in decision.checks if check.decided != "GO"] == ["collapse"]
    other = msgspec.structs.replace(answered([{"a": 12, "b": 12, "c": 12}] * 5), name="told")
    both = decide(policy, [WELL, other], {"vs": WELL, "told": other})
    assert both.decided == "GO"
    messages = [note for note in both.notes if "did not check collapse" in note]
    assert messages == [f"vs: evalq did not check collapse ({collapse}): the run does not count answers by kind"]
    assert not [note for note in decide(policy, [other], {"told": other}).notes if "did not check collapse" in note]


@pytest.mark.parametrize("cases", [20, 1])
@pytest.mark.parametrize("collapse", ["none", "none-new"])
def test_equal_texts_are_never_go_of_collapse(cases: int, collapse: str) -> None:
    """All answers of all cases alike, or one answer a case."""
    for repeats in (1, 10):
        alike = run(passes([(repeats, repeats)] * cases))
        alike.cases.labels = [{"a": repeats}] * cases
        policy = Policy.model_validate(
            {"gates": [{"metric": "vs.pass_rate", "min": 0.0}], "collapse": collapse, "minimum_pairs": 1}
        )
        assert gated(policy, alike, WELL).decided != "GO"


@given(st.integers(-1, LEAST - 1), st.sampled_from(["critical", "supporting", "advisory"]))
def test_a_demand_that_hands_in_no_evidence_cannot_be_go(evidence: int, tier: str) -> None:
    """Whichever it is: the type sees to it, and a demand that forgets to count is INCONCLUSIVE."""
    check = Check("a.b", "anything", tier, "GO", "", evidence=evidence)  # type: ignore[arg-type]  # one of the tiers
    decided, (counted,) = overall([check])
    assert counted.decided == "INCONCLUSIVE"
    assert decided == ("INCONCLUSIVE" if tier == "critical" else "GO")


def test_a_normal_go_is_go() -> None:
    """All answers pass, of enough cases."""
    gates = [{"metric": "vs.pass_rate", "max_drop": 0.05, "min": 0.9, "per_case": {"min_passes": 1, "of": 2}}]
    assert gated(Policy.model_validate({"gates": gates}), WELL, WELL).decided == "GO"


def test_columns_of_a_run_may_be_empty() -> None:
    """A run without a case, as its evaluator wrote it down."""
    nothing = run(CaseSummary([PASS], columns={PASS.name: CaseColumn()}))
    policy = Policy.model_validate({"gates": [{"metric": "vs.pass_rate", "min": 0.0, "max_drop": 1.0}]})
    assert gated(policy, nothing, nothing).decided == "INCONCLUSIVE"
