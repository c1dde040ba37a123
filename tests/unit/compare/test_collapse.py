"""A gate on collapsed cases spends of the same error as every other demand, however often one looks."""

from __future__ import annotations

import math
import random
from collections import Counter

import numpy as np
import pytest

from evalq.evalcore.compare.collapse import _bound, newly_collapsed
from evalq.evalcore.compare.decision import Check, overall, surprising
from evalq.evalcore.compare.gate import decide
from evalq.evalcore.compare.looks import SINGLE, Errors, Look
from evalq.evalcore.compare.plausibility import fault_of
from evalq.evalcore.compare.policy import Gate, Policy
from evalq.evalcore.compare.run import RunCases
from evalq.evalcore.modes import FIXED_RUNS
from evalq.evalcore.modes.nowhere import CaseCounts, collapse_nowhere
from tests.unit.compare.made import passes, run_of

SOME = {"mode": 13} | {f"other {n}": 1 for n in range(7)}
DIVERSE = {f"other {n}": 1 for n in range(20)}
POLICY = Policy(gates=(Gate(metric="vs.pass_rate", min=0.0, tier="advisory"),), collapse="none-new")


def run(labels: dict[str, int], *, collapsed: bool) -> RunCases:
    """One case, by what it was answered."""
    cases = passes([(20, 20)])
    cases.labels, cases.collapsed = [labels], list(cases.ids) if collapsed else []
    return run_of(cases)


def check(base: dict[str, int], errors: Errors) -> Check:
    """On a candidate that always answers the same."""
    cand, before = run({"mode": 20}, collapsed=True), run(base, collapsed=False)
    decision = decide(POLICY, [cand], {"vs": before}, errors=errors)
    (found,) = (each for each in decision.checks if each.metric == "vs.collapse")
    assert decision.decided == found.decided
    assert (found in surprising(decision)) == (found.decided == "NO-GO" and errors.collapse is None)
    return found


def test_a_later_look_needs_more() -> None:
    """All seven others fell to the baseline with a chance of C(20, 7)/C(40, 7), .0042: enough for a first look only."""
    assert check(SOME, SINGLE).decided == "NO-GO"
    assert check(SOME, SINGLE).p_margin == pytest.approx(0.0042, abs=0.0015)
    assert check(SOME, Look(1).errors).decided == "NO-GO"
    assert check(SOME, Look(3).errors).decided == "INCONCLUSIVE"
    assert check(DIVERSE, Look(3).errors).decided == "NO-GO"
    assert check(DIVERSE, Look(20).errors).decided == "NO-GO"


def test_what_nobody_asks_afresh_spends_of_the_looks() -> None:
    """Confirmations have no labels: there a collapse is decided as it was screened, and at no screen's error."""
    assert check(SOME, Errors(0.05, 0.025, Look(3).errors.no_go)).decided == "INCONCLUSIVE"
    found = check(DIVERSE, Errors(0.05, 0.025, Look(3).errors.no_go))
    assert (found.decided, found.p_margin) == ("NO-GO", None)


def test_cases_share_the_error_by_holm() -> None:
    """As many as both runs answered, and not only those that collapsed."""
    base, cand = passes([(20, 20)] * 8), passes([(20, 20)] * 8)
    base.labels, cand.labels = [SOME, *[{"a": 10, "b": 10}] * 7], [{"mode": 20}, *[{"a": 10, "b": 10}] * 7]
    cand.collapsed = cand.ids[:1]
    assert newly_collapsed(base, cand) == []
    base.labels[0] = DIVERSE
    assert newly_collapsed(base, cand) == cand.ids[:1]


@pytest.mark.parametrize(("cases", "look"), [(200, 10), (50, 20), (2_000, 1)])
def test_however_many_cases_and_looks_a_plain_collapse_is_seen(cases: int, look: int) -> None:
    """Twenty equal answers where there were twenty kinds: no number of draws shows how rare that is among so many."""
    base, cand = passes([(20, 20)] * cases), passes([(20, 20)] * cases)
    rest = [{"a": 10, "b": 10}] * (cases - 1)
    base.labels, cand.labels = [DIVERSE, *rest], [{"mode": 20}, *rest]
    cand.collapsed = cand.ids[:1]
    assert newly_collapsed(base, cand, Look(look).errors.no_go) == cand.ids[:1]


NONE = POLICY.model_copy(update={"collapse": "none"})


def named(known: dict[str, float] | None, errors: Errors = SINGLE, cases: int = 3) -> Check:
    """On a run whose cases are all collapsed by their own verdicts, ``known`` being what all of them together show."""
    cases_of_it = passes([(20, 20)] * cases, ids=("a", "b", "c")[:cases])
    cases_of_it.labels, cases_of_it.collapsed = [{"mode": 20}] * cases, list(cases_of_it.ids)
    cases_of_it.collapse_p = known
    (found,) = (
        each for each in decide(NONE, [run_of(cases_of_it)], {}, errors=errors).checks if ".collapse" in each.metric
    )
    return found


def test_a_collapse_is_seen_among_all_cases_and_looks() -> None:
    """By what Holm leaves of a case's surprise: less is open, and of it as much as any other demand's counts."""
    found = named({"b": 0.004})
    assert (found.decided, found.cases, found.p_margin) == ("NO-GO", ("b",), 0.004)
    assert named({}).decided == "INCONCLUSIVE"
    assert named({}).cases == ("a", "b", "c")
    assert named({"b": 0.004}, Look(3).errors).decided == "INCONCLUSIVE"
    screened = named({"b": 0.004}, Errors(0.05, 0.025, Look(1).errors.no_go))
    assert (screened.decided, screened.p_margin) == ("NO-GO", None)
    assert named(None).decided == "NO-GO", "each by its verdict, where its evaluator tells no more"
    whole = passes([(20, 20)])
    whole.collapse_p = {"a": math.nan}
    assert "collapse_p" in fault_of(run_of(whole))


def test_many_cases_below_the_threshold_block_no_run() -> None:
    """Of a hundred whose commonest answer has .69, some look collapsed in half of all runs."""
    rng, blocked, looked = random.Random(3), 0, 0
    for _ in range(100):
        counts = [Counter("m" if rng.random() < 0.69 else rng.choice("abcdef") for _ in range(30)) for _ in range(100)]
        cases = passes([(30, 30)] * 100)
        said = [FIXED_RUNS.verdict(max(each.values()), 30, 0.7) for each in counts]
        told = [
            CaseCounts(case, max(each.values()), 30, verdict, 0.7)
            for case, each, verdict in zip(cases.ids, counts, said, strict=True)
        ]
        cases.labels = [dict(each) for each in counts]
        cases.collapsed = [case for case, verdict in zip(cases.ids, said, strict=True) if verdict == "collapsed"]
        cases.collapse_p = {each["case"]: each["p"] for each in collapse_nowhere(told)["collapsed"]}
        looked += bool(cases.collapsed)
        blocked += decide(NONE, [run_of(cases)], {}).decided == "NO-GO"
    assert looked > 25
    assert blocked <= 5


def test_what_equal_answers_cannot_tell_is_open() -> None:
    """Kinds of texts that are alike have no equal ones, or hardly any; a baseline of one answer repeats nothing."""
    alike = {f"text {n}": 1 for n in range(20)}
    few = {**dict.fromkeys(list(alike)[2:], 1), "twice": 2}
    for now, before in ((alike, DIVERSE), (few, DIVERSE), ({"mode": 20}, {"mode": 1}), ({"mode": 20}, {})):
        decision = decide(POLICY, [run(now, collapsed=True)], {"vs": run(before, collapsed=False)})
        (found,) = (each for each in decision.checks if each.metric == "vs.collapse")
        assert found.decided == "INCONCLUSIVE"
        assert found.p_margin == pytest.approx(0.25 if now is few else 1, abs=0.05)
        assert "too few to tell" in found.reason
    assert decide(POLICY, [run(alike, collapsed=False)], {"vs": run({"mode": 1}, collapsed=False)}).decided == "GO"
    assert decide(POLICY, [run(alike, collapsed=True)], {"vs": run(DIVERSE, collapsed=True)}).decided == "GO"


@pytest.mark.parametrize("policy", [NONE, POLICY])
def test_answers_that_nothing_tells_apart_are_open_beside_those_that_something_does(policy: Policy) -> None:
    """They were told apart before; an evaluator that never does has no such demand."""
    cand, before = run({}, collapsed=False), run(DIVERSE, collapsed=False)
    cand.cases.labels = []
    (check,) = (each for each in decide(policy, [cand], {"vs": before}).checks if each.metric == "vs.collapse")
    assert check.decided == "INCONCLUSIVE"
    before.cases.labels = []
    assert not any(each.metric == "vs.collapse" for each in decide(policy, [cand], {"vs": before}).checks)


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
