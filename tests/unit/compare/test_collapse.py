"""A gate on collapsed cases spends of the same error as every other demand, however often one looks."""

from __future__ import annotations

import pytest

from evalq.evalcore.compare.collapse import newly_collapsed
from evalq.evalcore.compare.decision import Check, surprising
from evalq.evalcore.compare.gate import decide
from evalq.evalcore.compare.looks import SINGLE, Errors, Look
from evalq.evalcore.compare.policy import Gate, Policy
from evalq.evalcore.compare.run import RunCases
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
    assert check(SOME, SINGLE).p_worse == pytest.approx(0.0042, abs=0.0015)
    assert check(SOME, Look(1).errors).decided == "NO-GO"
    assert check(SOME, Look(3).errors).decided == "INCONCLUSIVE"
    assert check(DIVERSE, Look(3).errors).decided == "NO-GO"
    assert check(DIVERSE, Look(20).errors).decided == "NO-GO"


def test_what_nobody_asks_afresh_spends_of_the_looks() -> None:
    """Confirmations have no labels: there a collapse is decided as it was screened, and at no screen's error."""
    assert check(SOME, Errors(0.05, 0.025, Look(3).errors.no_go)).decided == "INCONCLUSIVE"
    found = check(DIVERSE, Errors(0.05, 0.025, Look(3).errors.no_go))
    assert (found.decided, found.p_worse) == ("NO-GO", None)


def test_cases_share_the_error_by_holm() -> None:
    """As many as both runs answered, and not only those that collapsed."""
    base, cand = passes([(20, 20)] * 8), passes([(20, 20)] * 8)
    base.labels, cand.labels = [SOME, *[{"a": 10, "b": 10}] * 7], [{"mode": 20}, *[{"a": 10, "b": 10}] * 7]
    cand.collapsed = cand.ids[:1]
    assert newly_collapsed(base, cand) == []
    base.labels[0] = DIVERSE
    assert newly_collapsed(base, cand) == cand.ids[:1]
