"""Answers that a candidate lacks: by cause; those that were lost on the way never block it."""

from __future__ import annotations

import json
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from evalq.evalcore.compare.counting import Causes, causes_in, count_recorded, unusable_of
from evalq.evalcore.compare.decision import GateDecision
from evalq.evalcore.compare.gate import decide
from evalq.evalcore.compare.policy import Gate, Policy
from evalq.evalcore.compare.summary import RunCases, RunUsage
from evalq.evalcore.contract.measures import Judged
from tests.unit.compare.made import passes, run_of


def live(lost: int, unusable: int = 0, cases: int = 100) -> RunCases:
    """A live run of so many cases x 2, that pass all, of which some answers are missing."""
    missing = [1] * (lost + unusable) + [0] * (cases - lost - unusable)
    run = run_of(passes([(2 - lacking, 2 - lacking) for lacking in missing], missing))
    run.cases.unusable = dict.fromkeys(run.cases.ids[lost : lost + unusable], 1)
    return msgspec.structs.replace(run, target="agent", usage=RunUsage(outputs=2 * cases))


def gated(base: RunCases, cand: RunCases, missing: int | None = 0, max_drop: float = 0.1) -> GateDecision:
    gates = (Gate(metric="vs.pass_rate", max_drop=max_drop),)
    return decide(Policy(gates=gates, missing=missing), [cand], {"vs": base})


@pytest.mark.parametrize(
    ("before", "now", "allowed", "wanted"),
    [
        (0, 3, 0, "INCONCLUSIVE"),  # three pages of a proxy: too few to blame anybody
        (3, 4, 0, "INCONCLUSIVE"),
        (3, 3, 0, "GO"),
        (0, 3, 3, "GO"),
        (0, 40, 0, "INCONCLUSIVE"),
        (0, 1, None, "GO"),  # chance, and GO even if that answer was a failure
        (0, 3, None, "GO"),
        (3, 4, None, "GO"),
        (0, 10, None, "INCONCLUSIVE"),
        (0, 40, None, "INCONCLUSIVE"),
        (0, 40, 40, "INCONCLUSIVE"),  # allowed, and what they were decides nothing any more
    ],
)
def test_lost_answers_never_blame_the_candidate(before: int, now: int, allowed: int | None, wanted: str) -> None:
    """Summed over all cases: 4 against 3 is one more, in whichever cases they were."""
    base, cand = live(before), live(now)
    decision = gated(base, cand, allowed)
    assert decision.decided == wanted
    if wanted == "INCONCLUSIVE" and not allowed:
        (check,) = (each for each in decision.checks if "server" in each.reason)
        assert check.value == now
        assert f"lost {now} of 200 answers ({before} of 200 in the baseline)" in check.reason


def test_more_losses_than_chance_explains_end_as_an_incomplete_run() -> None:
    """`--allow-inconclusive` does not cover it, and no demand of the candidate is held responsible."""
    decision = gated(live(0), live(40), missing=None)
    assert (decision.decided, decision.exit_code) == ("INCONCLUSIVE", 3)
    assert gated(live(0), live(3), max_drop=0.02, missing=None).exit_code == 4, "only the worst case is open here"
    assert not any(check.p_margin is not None for check in decision.checks if "server" in check.reason)


def test_losses_do_not_hide_that_the_answers_got_worse() -> None:
    """What came fails: that is NO-GO, whatever was lost."""
    base, cand = live(0), live(10)
    column = cand.cases.columns["pass_rate"]
    column.total, column.squares = [0.0] * 100, [0.0] * 100
    assert gated(base, cand, missing=None).decided == "NO-GO"


def test_what_the_agent_made_unusable_is_counted_as_the_worst() -> None:
    """A few change nothing; many are a difference by themselves; none is the server's fault."""
    few, many = gated(live(0), live(0, 2), max_drop=0.2), gated(live(0), live(0, 40))
    assert few.decided == "GO"
    assert many.decided == "NO-GO"
    assert "gave no usable answer for 40 of 200" in next(c.reason for c in many.checks if "missing" in c.demand)


def test_a_run_that_is_not_complete_ends_with_the_code_of_an_incomplete_one() -> None:
    """Where the decision is open; what is decided is decided."""
    cand = live(3)
    cand.records = {"dead": 3}
    assert gated(live(0), cand).exit_code == 3
    assert gated(live(0), live(3)).exit_code == 4


def test_absent_cases_of_recorded_outputs_are_nobody_else_s_doing() -> None:
    """90 of 100 against none: NO-GO; 2 of 100: as the demands have it at the worst."""
    base = run_of(passes([(10, 10)] * 100))
    assert gated(base, run_of(passes([(10, 10)] * 10))).decided == "NO-GO"
    two = gated(base, run_of(passes([(10, 10)] * 98)))
    assert not [check for check in two.checks if "missing" in check.demand and "server" in check.reason]


@given(st.lists(st.tuples(st.integers(1, 9), st.integers(0, 9)), min_size=2, max_size=30))
def test_a_run_that_lacks_what_its_baseline_lacks_is_never_blamed(rows: list[tuple[int, int]]) -> None:
    """The same counts on both sides, by any cause."""
    cases = passes([(n, n) for n, _ in rows], [m for _, m in rows])
    decision = gated(run_of(cases), run_of(cases))
    assert not [check for check in decision.checks if "missing" in check.demand]


def test_the_cause_is_that_of_the_last_attempt(tmp_path: Path) -> None:
    """A server's error that was answered at last is none, and an answer that nobody can use is the agent's."""
    lines = [
        {"case": "a", "error": "not JSON", "attempts": [{"kind": "server"}, {"kind": "bad_output"}]},
        {"case": "a", "error": "refused", "attempts": [{"kind": "refused"}]},
        {"case": "b", "error": "gone", "attempts": [{"kind": "bad_output"}, {"kind": "timeout"}]},
        {"case": "b", "output": 1, "attempts": [{"kind": "bad_output"}, {"kind": ""}]},
        {"case": "c", "error": "never asked", "attempts": []},
    ]
    outputs = tmp_path / "outputs.jsonl"
    outputs.write_text("".join(json.dumps(line) + "\n" for line in lines))
    causes = causes_in(outputs)
    assert causes == Causes(lost={"b": 1, "c": 1}, own={"a": 2})
    cases = passes([(1, 1)] * 4, [3, 2, 1, 1], ["a", "b", "c", "d"])
    # One of "a" more, and that of "d", were answered: nobody could use them.
    assert unusable_of(cases, causes) == {"a": 3, "b": 1, "d": 1}
    cases.judged = Judged({})
    assert unusable_of(cases, causes) == {"a": 2}, "where judges decide, their reply may be what is missing"


def test_recorded_lines_without_attempts_were_lost_by_nobody() -> None:
    """By whoever recorded them there is no answer; with attempts their last one says it, whatever else a line holds."""
    causes = Causes()
    for line in (
        {"case": "a", "error": "not JSON"},
        {"case": "b", "error": "timeout", "attempts": []},
        {"case": "c", "error": "timeout", "attempts": [{"kind": "timeout"}]},
        {"case": "d", "error": "refused", "attempts": [{"kind": "server"}, {"kind": "refused"}]},
        {"case": "e", "error": None, "output": "yes", "attempts": [{"kind": "timeout"}, {}]},
        {"case": "f", "error": {"code": 1}, "attempts": [{"kind": "timeout"}]},
        {"case": 7, "error": "no", "attempts": None},
    ):
        count_recorded(json.dumps(line).encode(), causes)
    count_recorded(b'"error", "attempts"', causes)
    assert causes == Causes(lost={"c": 1}, own={"d": 1})
