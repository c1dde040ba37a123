"""A gate on collapsed cases: beyond chance over all cases is NO-GO, GO needs every case decided diverse by itself."""

from __future__ import annotations

import math
import random
from collections import Counter

import msgspec
import numpy as np
import pytest

from evalq.evalcore.compare.comparison import _bound, newly_collapsed
from evalq.evalcore.compare.counting import fault_of
from evalq.evalcore.compare.decision import Check, overall, surprising
from evalq.evalcore.compare.gate import decide
from evalq.evalcore.compare.policy import Gate, Policy
from evalq.evalcore.compare.spending import SINGLE, Errors, GateLook
from evalq.evalcore.compare.summary import RunCases
from evalq.evalcore.model.calls import Lineage
from evalq.evalcore.statistics.mode_share import CaseDiversity, collapse_nowhere, collapsed_somewhere
from tests.unit.compare.made import answered, passes, run_of

SAME = {"mode": 20}
SOME = {"mode": 13} | {f"other {n}": 1 for n in range(7)}
DIVERSE = {f"other {n}": 1 for n in range(20)}
EVEN = {"a": 10, "b": 10}
NEW = Policy(gates=(Gate(metric="vs.pass_rate", min=0.0, tier="advisory"),), collapse="none-new")
NONE = NEW.model_copy(update={"collapse": "none"})


def found(policy: Policy, cand: RunCases, base: RunCases | None = None, errors: Errors = SINGLE) -> Check:
    """The one check on collapse, which is all that decides."""
    decision = decide(policy, [cand], {"vs": base} if base is not None else {}, errors=errors)
    (check,) = (each for each in decision.checks if each.metric == "vs.collapse")
    assert decision.decided == check.decided
    return check


@pytest.mark.parametrize(
    ("labels", "named"),
    [
        ([{"m": 10}] * 20, 0),  # Fisher's p 2e-13, each case .028
        ([{"m": 12}] * 4, 0),  # Fisher's p 3.7e-5, each case .014
        ([{"m": 50}, *[{f"o{n}": 1 for n in range(50)}] * 19], 1),  # Fisher's .67, Holm's 3.6e-7
        ([{"m": 9, "o": 1}] * 60, 0),
        ([{"m": 200}], 1),
    ],
)
def test_what_is_collapsed_beyond_chance_over_all_cases_is_no_go(labels: list[dict[str, int]], named: int) -> None:
    """By all cases together, or by one among all of them; the latter alone names the case."""
    check = found(NONE, answered(labels))
    assert check.decided == "NO-GO"
    assert len(check.cases) == (named or min(20, len(labels)))
    assert ("can be named" in check.reason) == (not named)


@pytest.mark.parametrize("policy", [NONE, NEW])
@pytest.mark.parametrize(
    "labels",
    [[{"m": 1}] * 20, [{f"o{n}": 1} for n in range(300)], [{"m": 2}] * 3, [{}] * 5, [EVEN, {"m": 1}], [EVEN, {}]],
)
def test_no_evidence_of_diversity_is_never_go(policy: Policy, labels: list[dict[str, int]]) -> None:
    """One answer a case, or two, or none, in all cases or in one of them: nothing surprises, and nothing is known."""
    run = answered(labels)
    check = found(policy, run, answered(labels))
    assert check.decided == "INCONCLUSIVE"
    run.cases.unrecorded = ["never asked"]
    assert found(policy, run, answered(labels)).decided == "INCONCLUSIVE"


def test_go_is_every_case_decided_diverse() -> None:
    """Twenty kinds in twenty answers are; with a case beside them that nobody answered they are not enough."""
    run = answered([DIVERSE] * 5)
    assert found(NONE, run).decided == "GO"
    assert found(NEW, run, answered([SAME] * 5)).decided == "GO"
    run.cases.unrecorded = ["never asked"]
    assert found(NONE, run).decided == "INCONCLUSIVE"
    assert found(NEW, run, answered([SAME] * 5)).decided == "INCONCLUSIVE"


def test_a_run_without_a_readable_answer_is_open() -> None:
    """Its evaluator tells answers apart, so that the demand is one; another evaluator has no such demand."""
    for policy in (NONE, NEW):
        for base in (answered([{}] * 4), answered([DIVERSE] * 4)):
            checks = decide(policy, [answered([{}] * 4)], {"vs": base}).checks
            assert [each.decided for each in checks if each.metric == "vs.collapse"] == ["INCONCLUSIVE"]
        plain = run_of(passes([(5, 5)]))
        assert not any(each.metric == "vs.collapse" for each in decide(policy, [plain], {"vs": plain}).checks)


def test_cases_that_were_taken_over_have_no_joint_p_value() -> None:
    """What one cache answered twenty times is one answer: only a case that is collapsed by itself counts."""
    run, one = answered([{"m": 10}] * 20), answered([{"m": 50}, *[DIVERSE] * 19])
    taken = Lineage({"earlier": 200}, ("earlier",))
    assert found(NONE, msgspec.structs.replace(run, lineage=taken)).decided == "INCONCLUSIVE"
    assert found(NONE, msgspec.structs.replace(one, lineage=taken)).decided == "NO-GO"
    assert collapsed_somewhere([0.028] * 20, independent=False).together == 1.0


def test_the_report_says_what_the_gate_says() -> None:
    """Its statement over all cases fails, with no case named, where all of them together are collapsed."""
    for labels in ([{"m": 10}] * 20, [{"m": 12}] * 4, [EVEN] * 5, [DIVERSE] * 5, [{"m": 1}] * 5):
        run = answered(labels)
        known = run.cases.collapse_p or {}
        verdicts = {case: "collapsed" if case in run.cases.collapsed else "inconclusive" for case in run.cases.ids}
        verdicts |= dict.fromkeys(run.cases.diverse, "diverse")
        said = collapse_nowhere(CaseDiversity(case, known.get(case), verdicts[case]) for case in run.cases.ids)
        wanted = {"NO-GO": "fails", "GO": "holds", "INCONCLUSIVE": "inconclusive"}
        assert said["verdict"] == wanted[found(NONE, run).decided]


def test_a_later_look_needs_more() -> None:
    """All seven others fell to the baseline with a chance of C(20, 7)/C(40, 7), .0042: enough for a first look only."""
    same, some, diverse = answered([SAME]), answered([SOME]), answered([DIVERSE])
    assert found(NEW, same, some).decided == "NO-GO"
    assert found(NEW, same, some, GateLook(1).errors).decided == "NO-GO"
    assert found(NEW, same, some, GateLook(3).errors).decided == "INCONCLUSIVE"
    assert found(NEW, same, diverse, GateLook(3).errors).decided == "NO-GO"
    assert found(NEW, answered([{"mode": 100}]), answered([{"a": 50, "b": 50}]), GateLook(20).errors).decided == "NO-GO"
    assert found(NONE, answered([{"m": 10}] * 20), None, GateLook(100).errors).decided == "NO-GO"
    assert found(NONE, answered([{"m": 12}] * 4), None, GateLook(100).errors).decided == "INCONCLUSIVE"


def test_what_nobody_asks_afresh_spends_of_the_looks() -> None:
    """Confirmations have no labels: there a collapse is decided as it was screened, and at no screen's error."""
    same, third = answered([SAME]), Errors(0.05, 0.025, GateLook(3).errors.no_go)
    assert found(NEW, same, answered([SOME]), third).decided == "INCONCLUSIVE"
    for policy in (NEW, NONE):
        decision = decide(policy, [same], {"vs": answered([DIVERSE])}, errors=third)
        assert decision.decided == "NO-GO"
        assert surprising(decision, "NO-GO") == []


def test_a_case_that_is_collapsed_is_new_only_if_it_agrees_more() -> None:
    """Its verdict alone is not enough, nor is the change alone: the larger p-value of the two counts."""
    assert found(NEW, answered([SAME]), answered([{"mode": 18, "o": 2}])).decided == "INCONCLUSIVE"
    assert found(NEW, answered([SAME]), answered([SAME])).decided == "GO", "it was decided collapsed before"
    less = answered([{"mode": 12, "o": 8}])
    assert found(NEW, less, answered([DIVERSE])).decided == "INCONCLUSIVE", "agrees more, and is not collapsed"


def test_cases_share_the_error_by_holm() -> None:
    """As many as both runs answered, and not only those that collapsed."""
    rest = [EVEN] * 7
    cand = answered([SAME, *rest])
    assert newly_collapsed(answered([SOME, *rest]).cases, cand.cases) == []
    assert newly_collapsed(answered([DIVERSE, *rest]).cases, cand.cases) == cand.cases.ids[:1]


@pytest.mark.parametrize(("cases", "look"), [(200, 10), (50, 20), (2_000, 1)])
def test_however_many_cases_and_looks_a_plain_collapse_is_seen(cases: int, look: int) -> None:
    """Sixty equal answers where there were sixty kinds: no number of draws shows how rare that is among so many."""
    rest = [EVEN] * (cases - 1)
    base, cand = answered([{f"o{n}": 1 for n in range(60)}, *rest]), answered([{"mode": 60}, *rest])
    assert newly_collapsed(base.cases, cand.cases, GateLook(look).errors.no_go) == cand.cases.ids[:1]


def test_many_cases_below_the_threshold_block_no_run() -> None:
    """Of a hundred whose commonest answer has .69, some look collapsed in half of all runs (seed 3)."""
    rng, blocked, looked = random.Random(3), 0, 0
    for _ in range(100):
        run = answered(
            [Counter("m" if rng.random() < 0.69 else rng.choice("abcdef") for _ in range(30)) for _ in range(100)]
        )
        looked += bool(run.cases.collapsed)
        blocked += decide(NONE, [run], {}).decided == "NO-GO"
    assert looked > 25
    assert blocked <= 5


def test_what_is_no_p_value_is_no_run() -> None:
    """Anybody may have written the file."""
    whole = passes([(20, 20)])
    whole.collapse_p = {"a": math.nan}
    assert "collapse_p" in fault_of(run_of(whole))


def test_what_stands_in_place_of_draws_is_no_smaller_than_they_say() -> None:
    """Beside a hundred thousand draws of each (seed 5); where all answers agree it is just as large."""
    rng = np.random.default_rng(5)
    for _ in range(60):
        pooled = rng.integers(1, 9, int(rng.integers(2, 9)))
        taken = int(rng.integers(2, pooled.sum()))
        ours = rng.multivariate_hypergeometric(pooled, taken)
        drawn = rng.multivariate_hypergeometric(pooled, taken, 100_000)
        share = ((drawn * (drawn - 1)).sum(axis=1) >= (ours * (ours - 1)).sum()).mean()
        assert _bound(pooled.tolist(), ours.tolist()) >= share - 0.01, (pooled, ours)
    assert _bound([4, 3, 3], [4, 0, 0]) == 1 / math.comb(10, 4)


def test_a_drop_within_its_margin_hides_none_beyond_it() -> None:
    """By Holm what comes first is the most surprising; that it is let through says nothing of what follows."""
    within = Check("a", "falls by 5 points at most", "critical", "GO", "fell by 2", p_margin=1e-9, evidence=9)
    unanswered = Check(
        "b", "falls by 5 points at most", "critical", "INCONCLUSIVE", "answers are missing", p_margin=1e-8
    )
    beyond = Check("c", "falls by 5 points at most", "critical", "NO-GO", "fell by 6", p_margin=1e-6)
    assert overall([within, unanswered, beyond])[0] == "NO-GO"
    weak = Check("c", "falls by 5 points at most", "critical", "NO-GO", "fell by 6", p_margin=0.02)
    likely = Check("a", "falls by 5 points at most", "critical", "GO", "fell by 1", p_margin=0.015, evidence=9)
    assert overall([likely, weak])[0] == "INCONCLUSIVE", "two demands, of which none is at .0125"
