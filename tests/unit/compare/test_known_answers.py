"""What the rules come to where the answer is known, other gates' failures among it."""

from __future__ import annotations

import numpy as np
import pytest
from pydantic import ValidationError

from evalq.evalcore.compare.comparison import Verdict, change_in, compare
from evalq.evalcore.compare.decision import Decided, GateDecision
from evalq.evalcore.compare.gate import decide
from evalq.evalcore.compare.intervals import ALPHA
from evalq.evalcore.compare.pairs import pairs_of
from evalq.evalcore.compare.policy import Gate, Policy
from evalq.evalcore.compare.spending import SCREEN, Errors, GateLook
from evalq.evalcore.compare.summary import CaseSummary
from evalq.evalcore.statistics.mode_share import stopping_rule
from tests.unit.compare.made import PASS, passes, run_of, scores

FIFTEEN_EACH_WAY = ([(1, 1)] * 15 + [(0, 1)] * 15 + [(1, 1)] * 470, [(0, 1)] * 15 + [(1, 1)] * 485)


@pytest.mark.parametrize(
    ("base", "cand", "low", "high", "verdict", "decided"),
    [
        ([(54, 60)] * 12, [(54, 60)] * 12, -0.031, 0.031, "same", "GO"),
        ([(54, 60)] * 12, [(36, 60)] * 12, -0.342, -0.257, "worse", "NO-GO"),
        ([(10, 10)] * 50, [(1, 10)] * 50, -0.925, -0.868, "worse", "NO-GO"),
        (*FIFTEEN_EACH_WAY, -0.022, 0.022, "same", "GO"),
        ([(1, 1)] * 5, [(1, 1)] * 5, -0.607, 0.607, "inconclusive", "INCONCLUSIVE"),
    ],
    ids=["60 repeats", "60 repeats, worse", "10/10 to 1/10", "15 flips each way", "five identical pairs"],
)
def test_intervals_and_verdicts(
    base: list[tuple[int, int]],
    cand: list[tuple[int, int]],
    low: float,
    high: float,
    verdict: Verdict,
    decided: Decided,
) -> None:
    """A fall from 10/10 to 1/10 in every case is no pass, 500 pairs that cancel out decide, five identical do not."""
    found = compare(passes(base), passes(cand), PASS, 0.05)
    assert found.observed is not None
    assert [found.observed.low, found.observed.high] == pytest.approx([low, high], abs=5e-4)
    assert found.verdict == verdict
    policy = Policy(gates=(Gate(metric="vs.pass_rate", max_drop=0.05),), minimum_pairs=1)
    assert decide(policy, [run_of(passes(cand))], {"vs": run_of(passes(base))}).decided == decided


def test_cases_that_stopped_by_what_they_answered_prove_nothing() -> None:
    """A sweep with --stop asks a case no more once it looks well: its mean is flattered, and no ground for GO."""
    base, cand = passes([(10, 10)] * 100), passes([(10, 10)] * 100)
    policy = Policy(gates=(Gate(metric="vs.pass_rate", max_drop=0.05, min=0.9),))
    assert decide(policy, [run_of(cand)], {"vs": run_of(base)}).decided == "GO"
    assert compare(base, cand, PASS, 0.05).verdict == "same"
    cand.stopped = cand.ids[:1]
    decision = decide(policy, [run_of(cand)], {"vs": run_of(base)})
    assert [check.decided for check in decision.checks] == ["INCONCLUSIVE"] * 2
    assert "sweep without --stop" in decision.checks[0].reason
    assert compare(base, cand, PASS, 0.05).verdict == "inconclusive"
    worse = passes([(2, 10)] * 100)
    worse.stopped = worse.ids[1:]
    base.stopped = base.ids[:1]
    assert decide(policy, [run_of(worse)], {"vs": run_of(base)}).decided == "NO-GO", "both stopped alike"


@pytest.mark.parametrize("kind", ["asked to the end", "of more calls at most"])
def test_a_sweep_that_stops_shows_no_change_beside_one_that_does_not_stop_so(kind: str) -> None:
    """Cases that mostly fail stop soonest where all of their first answers do: they have fallen, though unchanged."""
    rng = np.random.default_rng(1)
    rates = rng.uniform(0.02, 0.15, 60)
    most = 60 if kind == "asked to the end" else 240
    base = passes([(int(rng.binomial(most, rate)), most) for rate in rates])
    if kind != "asked to the end":
        base.stopped = base.ids[:1]
    rows = [_until_decided(rng, rate, 60) for rate in rates]
    cand = passes(rows)
    cand.stopped = [case for case, (_, answers) in zip(cand.ids, rows, strict=True) if answers < 60]
    policy = Policy(gates=(Gate(metric="vs.pass_rate", max_drop=0.01, min=float(rates.mean())),))
    found, decision = compare(base, cand, PASS, 0.01), decide(policy, [run_of(cand)], {"vs": run_of(base)})
    assert found.observed is not None
    assert found.observed.p_worse <= 0.025, "what the answers themselves say"
    assert (found.verdict, found.repeats, found.stopped) == ("inconclusive", None, len(base.stopped + cand.stopped))
    assert decision.decided == "INCONCLUSIVE"
    assert all("sweep without --stop" in check.reason for check in decision.checks)
    screened = decide(policy, [run_of(cand)], {"vs": run_of(base)}, errors=Errors(SCREEN, ALPHA, ALPHA))
    assert screened.decided == "NO-GO", "a suspect, of which fresh answers decide that none stops"


def _until_decided(rng: np.random.Generator, rate: float, most: int) -> tuple[int, int]:
    """(passes, answers) of a case that is asked no more once its commonest answer is known to have .7, or not to."""
    rule, passed = stopping_rule(most), 0
    for answers in range(1, most + 1):
        passed += bool(rng.random() < rate)
        if rule.decided(max(passed, answers - passed), answers, 0.7):
            return passed, answers
    return passed, most


def test_ninety_of_a_hundred_lost_is_no_go() -> None:
    """What is missing is no detail, whatever the ten that came say."""
    base = passes([(10, 10)] * 100)
    cand = passes([(10, 10)] * 10)
    decision = decide(Policy(gates=(Gate(metric="vs.pass_rate", max_drop=0.5),)), [run_of(cand)], {"vs": run_of(base)})
    assert decision.decided == "NO-GO"
    (lost,) = [check for check in decision.checks if "missing" in check.demand]
    assert lost.value == 900
    assert "90 cases without any" in lost.reason


@pytest.mark.parametrize(
    ("cases", "repeats", "margin"), [(77, 1, 0.05), (38, 1, 0.1), (8, 10, 0.05), (4, 10, 0.1), (73, 2, 0.05)]
)
def test_a_flawless_run_needs_so_many_answers(cases: int, repeats: int, margin: float) -> None:
    """About 73 answers exclude a drop of 5 points, 35 one of 10; with one a case a few more, where t is wider."""
    flawless = passes([(repeats, repeats)] * cases)
    assert compare(flawless, flawless, PASS, margin).verdict == "same"
    fewer = passes([(repeats, repeats)] * (cases * 9 // 10 if repeats < 10 else cases - 1))
    if repeats != 2:
        assert compare(fewer, fewer, PASS, margin).verdict == "inconclusive"


def test_one_answer_a_side_is_mcnemar_s_exact_test() -> None:
    """12 losses and 3 wins: the binomial tail."""
    base = passes([(1, 1)] * 12 + [(0, 1)] * 3 + [(1, 1)] * 30)
    cand = passes([(0, 1)] * 12 + [(1, 1)] * 3 + [(1, 1)] * 30)
    found = compare(base, cand, PASS, 0.05).observed
    assert found is not None
    assert found.p_worse == pytest.approx(576 / 32768, abs=1e-11)  # 1 + 15 + 105 + 455 of 2^15


def test_welch_s_numbers_for_scores() -> None:
    """Two cases of three scores: variance, freedom and p-value by hand."""
    base = scores([[0.2, 0.4, 0.6], [0.5, 0.5, 0.8]])
    cand = scores([[0.1, 0.3, 0.2], [0.4, 0.6, 0.2]])
    found = compare(base, cand, base.measures[0], 0.05).observed
    assert found is not None
    assert found.delta == pytest.approx(-0.2)
    # V = (.04 + .03 + .01 + .04) / 3 / 4 = .01, nu = .04^2 / ((.04^2 + .03^2 + .01^2 + .04^2) / 9 / 2) = 6.857
    assert found.p_worse == pytest.approx(0.0433, abs=2e-4)  # P(T <= -2), Student's t with 6.857 degrees


def test_a_policy_s_several_gates_do_not_add_up_to_a_false_alarm() -> None:
    """A surprise of .02 among three critical gates is none by Holm; an advisory gate never blocks."""
    base = passes([(1, 1)] * 45)
    cand = passes([(0, 1)] * 6 + [(1, 1)] * 39)  # p_worse = 1/64
    gate = Gate(metric="vs.pass_rate", max_drop=0.01)
    alone = decide(Policy(gates=(gate,)), [run_of(cand)], {"vs": run_of(base)})
    assert alone.decided == "NO-GO"
    three = decide(Policy(gates=(gate, gate, gate)), [run_of(cand)], {"vs": run_of(base)})
    assert three.decided == "INCONCLUSIVE"
    assert "Holm" in three.checks[0].reason
    advisory = Policy(gates=(Gate(metric="vs.pass_rate", max_drop=0.01, tier="advisory"),))
    shown = decide(advisory, [run_of(cand)], {"vs": run_of(base)})
    assert (shown.decided, shown.checks[0].decided) == ("GO", "NO-GO")


@pytest.mark.parametrize("fell", [0, 1])
@pytest.mark.parametrize("cases", [2, 5, 73])
def test_a_change_that_is_the_same_in_every_case_does_not_make_others_certain(cases: int, fell: int) -> None:
    """For cases like these there is no spread to go by: each counts as one answer, as of identical pairs."""
    found = compare(passes([(10, 10)] * cases), passes([(10 - fell, 10)] * cases), PASS, 0.05, by_cases=True)
    pairs = compare(passes([(1, 1)] * cases), passes([(1, 1)] * cases), PASS, 0.05).observed
    assert found.observed is not None
    assert pairs is not None
    low, high = found.observed.case_low, found.observed.case_high
    assert low is not None
    assert high is not None
    if not fell:
        assert (low, high) == pytest.approx((pairs.low, pairs.high))
    assert low < -fell / 10 < high
    assert found.verdict == ("inconclusive" if cases < 73 else "worse" if fell else "inconclusive")
    assert found.repeats is None, "repeats are not independent: only more cases help"


def test_cases_like_these_change_by_no_more_than_the_scale() -> None:
    """Of two whose changes differ much the spread is wide; a rate can still rise by no more than 1."""
    found = compare(passes([(37, 40), (33, 40)]), passes([(17, 40), (24, 40)]), PASS, 0.05).observed
    assert found is not None
    assert (found.case_low, found.case_high) == (-1, 1)
    near = compare(passes([(20, 40)] * 9 + [(24, 40)]), passes([(17, 40)] * 10), PASS, 0.05).observed
    assert near is not None
    assert near.case_low is not None
    assert near.case_high is not None
    assert -0.2 < near.case_low < -0.085 < near.case_high < 0


def test_numbers_are_equal_up_to_the_last_digits_of_a_float() -> None:
    """The mean of three rates of .1 is .1; other texts and sorts are not."""
    results = {"rate": (0.1 + 0.1 + 0.1) / 3, "count": 2**53 + 1, "flag": True, "word": "0.1"}
    cand = run_of(passes([(2, 2)]), results, facts=["rate"])
    gates = [
        (Gate(metric="vs.rate", equals=0.1), "GO"),
        (Gate(metric="vs.rate", equals=0.1000001), "NO-GO"),
        (Gate(metric="vs.rate", max=0.1), "GO"),
        (Gate(metric="vs.count", equals=2**53), "NO-GO"),
        (Gate(metric="vs.word", equals=0.1), "NO-GO"),
        (Gate(metric="vs.flag", equals=True), "GO"),
    ]
    found = decide(Policy(gates=tuple(gate for gate, _ in gates)), [cand], {})
    assert [check.decided for check in found.checks] == [decided for _, decided in gates]


def gated(base: CaseSummary, cand: CaseSummary, **policy: object) -> GateDecision:
    """A candidate against a baseline, by a fall of 5 points of its pass rate at most, and what else is demanded."""
    gates = policy.pop("gates", [{"metric": "vs.pass_rate", "max_drop": 0.05}])
    return decide(Policy.model_validate({"gates": gates, **policy}), [run_of(cand)], {"vs": run_of(base)})


def test_a_fall_that_may_be_within_the_margin_is_suspect() -> None:
    """200 cases, 18 lost and 6 won: worse beyond chance, and nobody knows whether by 10 points."""
    base = passes([(1, 1)] * 18 + [(0, 1)] * 6 + [(1, 1)] * 176)
    cand = passes([(0, 1)] * 18 + [(1, 1)] * 6 + [(1, 1)] * 176)
    decision = gated(base, cand, gates=[{"metric": "vs.pass_rate", "max_drop": 0.1}])
    (check,) = decision.checks
    assert [check.low, check.high] == pytest.approx([-0.109, -0.010], abs=5e-4)
    assert (decision.decided, check.decided, decision.exit_code) == ("SUSPECT", "SUSPECT", 4)
    assert check.p_worse is not None
    assert check.p_margin is not None
    assert check.p_worse <= 0.025 < check.p_margin
    blocked = gated(base, cand, gates=[{"metric": "vs.pass_rate", "max_drop": 0.1}], on_worse="block")
    assert (blocked.decided, blocked.exit_code) == ("NO-GO", 1)


@pytest.mark.parametrize("failed", [3, 7, 50])
def test_the_p_value_of_the_margin_is_where_the_interval_ends_at_it(failed: int) -> None:
    """Duality: at that error its upper end is the margin."""
    pairs = pairs_of(passes([(20, 20)] * 20), passes([(20 - failed % 20, 20)] * 20), PASS)
    change, _ = change_in(pairs, PASS)
    p = change.p_margin(0.05)
    if 1e-9 < p < 0.49:
        assert change.interval(p)[1] == pytest.approx(-0.05, abs=1e-6)
    assert change.p_margin(0.01) <= p <= change.p_margin(0.2)


def test_one_case_that_broke_among_a_hundred_is_suspect_and_named_first() -> None:
    """100 cases x 10 with one at 10/10 to 0/10: the mean is GO, and the case is named before all else."""
    base = passes([(10, 10)] * 100)
    cand = passes([(10, 10)] * 57 + [(0, 10)] + [(10, 10)] * 42)
    decision = gated(base, cand)
    assert decision.decided == "SUSPECT"
    veto, drop = decision.checks
    assert (veto.veto, veto.cases, veto.decided, drop.decided) == (True, ("c000057",), "SUSPECT", "GO")
    assert "c000057 (10 of 10 to 0 of 10)" in veto.reason
    assert decision.failing[0].named
    assert gated(base, cand, worse_cases="allowed").decided == "GO"
    assert gated(base, cand, on_worse="block").decided == "NO-GO"
    allowed = gated(base, passes([(10, 10)] * 100))
    assert (allowed.decided, [check.veto for check in allowed.checks]) == ("GO", [False])


def test_few_cases_hold_back_go_alone() -> None:
    """9 cases x 20 from 180/180 to 0/180, and as many that pass all: NO-GO, and not GO, with a minimum of 10."""
    well, broken = passes([(20, 20)] * 9), passes([(0, 20)] * 9)
    assert gated(well, broken).decided == "NO-GO"
    assert gated(well, broken, minimum_repeats=50).decided == "NO-GO"
    held = gated(well, well)
    assert held.decided == "INCONCLUSIVE"
    assert "the policy wants 10" in held.checks[0].reason
    assert gated(well, well, minimum_pairs=9).decided == "GO"


def test_no_case_can_be_named_by_one_answer_a_side() -> None:
    """Which holds no GO back, and is said."""
    base = passes([(1, 1)] * 200)
    decision = gated(base, base)
    assert decision.decided == "GO"
    assert any("cannot name a case" in note for note in decision.notes)


def test_a_case_with_answers_enough_is_not_said_to_have_too_few() -> None:
    """Few failures now leave nothing to be named; that is no want of answers, and other answers would name a case."""
    rows = [(39, 40)] + [(40, 40)] * 19
    assert not any("cannot name a case" in note for note in gated(passes(rows), passes(rows)).notes)
    fell = gated(passes(rows), passes([(0, 40), *rows[1:]]))
    assert fell.decided == "SUSPECT"
    assert any("c000000" in check.cases for check in fell.checks)


@pytest.mark.parametrize(("answers", "said"), [(1, "one answer a case is"), (2, "2 answers a case are")])
def test_how_few_answers_can_name_no_case_is_said(answers: int, said: str) -> None:
    """In words that fit the number."""
    base = passes([(answers, answers)] * 200)
    (note,) = (each for each in gated(base, base).notes if "cannot name a case" in each)
    assert note == f"vs.pass_rate: evalq cannot name a case as worse: {said} too few for that"


def test_a_fall_that_only_a_single_comparison_would_show_says_so() -> None:
    """Its interval excludes 0, and the decision is INCONCLUSIVE: the reader is told by which error it was decided."""
    base = passes([(94, 100)] * 20)
    cand = passes([(92, 100)] * 20)
    policy = Policy(gates=(Gate(metric="vs.pass_rate", max_drop=0.03),), worse_cases="allowed")
    found = {k: decide(policy, [run_of(cand)], {"vs": run_of(base)}, errors=GateLook(k).errors) for k in (1, 4)}
    assert [each.decided for each in found.values()] == ["SUSPECT", "INCONCLUSIVE"]
    (check,) = found[4].checks
    assert check.high is not None
    assert check.high < 0
    assert not any("single comparison" in note for note in found[1].notes)
    (note,) = (each for each in found[4].notes if "single comparison" in each)
    assert note == (
        f"vs.pass_rate: p is {check.p_worse:.2g}, which would be SUSPECT at a single comparison (0.025); this one is "
        "decided at 0.0013, since all comparisons with a baseline share one error"
    )


def test_the_smallest_falls_are_said() -> None:
    """SUSPECT from d on, NO-GO from about m + d (GATE 7)."""
    base = passes([(10, 10)] * 100)
    (note,) = (each for each in gated(base, base).notes if "sees a fall" in each)
    found = compare(base, base, PASS, 0.05).observed
    assert found is not None
    assert f"from {100 * found.detectable:.1f} points on (SUSPECT)" in note
    assert f"about {100 * (0.05 + found.detectable):.1f} points on (NO-GO)" in note


def test_a_margin_of_nothing_is_refused_with_a_sentence() -> None:
    """No number of answers excludes every fall."""
    for name in ("max_drop", "max_relative_drop", "max_rise", "max_relative_rise"):
        with pytest.raises(ValidationError, match="can never be excluded"):
            Policy.model_validate({"gates": [{"metric": "vs.pass_rate", name: 0}]})
