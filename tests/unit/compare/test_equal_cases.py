"""Which cases are compared, and which answers are evidence: equal cases, and answers that are no copies."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from random import Random

import msgspec
import pytest

from evalq.evalcore.compare.decision import GateDecision
from evalq.evalcore.compare.eligibility import same_answers
from evalq.evalcore.compare.gate import decide
from evalq.evalcore.compare.policy import Policy
from evalq.evalcore.compare.summary import RunCases, Summing
from evalq.evalcore.contract.measures import Observation
from evalq.producer.comparing.comparing import compare_runs
from tests.unit.compare.made import PASS, passes, run_of


def listed(rows: dict[str, tuple[str, int]], *, specification: str = "new") -> RunCases:
    """A run of cases x 10: {id: (the digest of what is asked, passes)}."""
    run = run_of(passes([(m, 10) for _, m in rows.values()], ids=list(rows)), specification=specification)
    run.cases.specified = {case: asked for case, (asked, _) in rows.items()}
    return msgspec.structs.replace(run, parameters="the same")


def gated(base: RunCases, cand: RunCases, **policy: object) -> GateDecision:
    gates = [{"metric": "vs.pass_rate", "max_drop": 0.05}]
    return decide(Policy.model_validate({"gates": gates, **policy}), [cand], {"vs": base})


BASE = listed({f"t{n:02}": (f"question {n}", 10) for n in range(40)}, specification="old")


def test_a_case_put_on_top_does_not_pair_every_other_with_its_neighbour() -> None:
    """All questions moved by one id: none is equal and nothing is decided, where each had its neighbour's answers."""
    moved = listed({f"t{n:02}": (f"question {n - 1}", 0 if n % 2 else 10) for n in range(40)})
    decision = gated(BASE, moved)
    assert decision.decided == "INCONCLUSIVE"
    assert decision.paired[0].equal == 0
    assert decision.paired[0].changed_count == 40
    assert not [check for check in decision.checks if check.decided in ("NO-GO", "SUSPECT")]


def test_changed_and_new_cases_decide_nothing() -> None:
    """Two that ask something else now and fail, one that is new and fails: GO by the other 38, with both counts."""
    rows = {f"t{n:02}": (f"question {n}", 10) for n in range(2, 40)}
    cand = listed({"t00": ("other", 0), "t01": ("else", 0), **rows, "t99": ("new", 0)})
    decision = gated(BASE, cand)
    assert decision.decided == "GO"
    counts = decision.paired[0]
    assert (counts.equal, counts.base, counts.cand) == (38, 40, 41)
    assert (counts.changed, counts.new) == (("t00", "t01"), ("t99",))
    (found,) = compare_runs(BASE, cand)
    assert (found.lost, found.changed, found.new) == (0, ["t00", "t01"], ["t99"])


def test_fewer_than_nine_in_ten_need_the_policy_s_word() -> None:
    """35 of 40 equal, the others gone or changed."""
    cand = listed({f"t{n:02}": (f"question {n}" if n > 2 else "other", 10) for n in range(38)})
    assert gated(BASE, cand).decided == "INCONCLUSIVE"
    assert gated(BASE, cand, specification="intersection").decided == "GO"


def test_a_listed_case_without_a_record_is_missing_and_not_gone() -> None:
    """It is asked, so its answers are missing; one that is no more on the list is gone."""
    rows = {f"t{n:02}": (f"question {n}", 10) for n in range(40)}
    cand = listed({case: row for case, row in rows.items() if case > "t09"}, specification="old")
    cand.cases.specified = {case: asked for case, (asked, _) in rows.items()}
    assert gated(BASE, cand).decided == "NO-GO"
    gone = listed({case: row for case, row in rows.items() if case > "t09"})
    assert gated(BASE, gone, specification="intersection").decided == "GO"


def recorded(answers: dict[str, dict[int, int]], inputs: list[str]) -> RunCases:
    run = run_of(passes([(10, 10)] * 30))
    run.cases.answers = answers
    return msgspec.structs.replace(run, inputs=inputs)


def drawn(seed: int, kinds: int = 20) -> dict[str, dict[int, int]]:
    rng = Random(seed)
    return {f"c{n:06d}": {at: rng.randrange(kinds) for at in range(5)} for n in range(30)}


def test_the_baseline_s_own_outputs_are_never_go() -> None:
    """By the digests of their files, unless the policy says that equal answers are no copies."""
    base, cand = recorded(drawn(1), ["a" * 64]), recorded(drawn(1), ["a" * 64])
    decision = gated(base, cand)
    assert decision.decided == "INCONCLUSIVE"
    assert any("byte for byte" in check.reason for check in decision.checks)
    assert gated(base, cand, deterministic=True).decided == "GO"
    assert gated(base, recorded(drawn(2), ["b" * 64])).decided == "GO"


def test_copied_answers_in_another_file_are_found() -> None:
    """All of them, or half; an agent that answers alike by itself copies nothing."""
    base, half = drawn(1), drawn(2)
    half |= {case: base[case] for case in list(base)[:15]}
    for answers in (base, half):
        assert "repeat by repeat" in same_answers(recorded(answers, ["b"]), recorded(base, ["a"]))
    alike = {case: dict.fromkeys(range(5), 7) for case in base}
    assert same_answers(recorded(alike, ["b"]), recorded(alike, ["a"])) == ""
    few = {case: base[case] for case in list(base)[:9]}
    assert same_answers(recorded(few, ["b"]), recorded(few, ["a"])) == "", "fewer than ten cases tell nothing"
    for kinds in (2, 20):
        found = [
            same_answers(recorded(drawn(seed, kinds), ["b"]), recorded(drawn(seed + 1, kinds), ["a"]))
            for seed in range(200)
        ]
        assert sum(map(bool, found)) <= 2, "own answers are called copies"


def answered(texts: dict[str, list[str]], inputs: str = "b") -> RunCases:
    """A run of recorded outputs, as its records add up to it."""
    summing = Summing((PASS,))
    for repeat in range(max(map(len, texts.values()))):
        for case, said in texts.items():
            if repeat < len(said):
                summing.add(Observation(case, (1.0,), repeat), "in.jsonl", said[repeat].encode)
    return msgspec.structs.replace(run_of(summing.summary()), inputs=[inputs])


def spoken(seed: int, cases: int, repeats: int, kinds: int) -> dict[str, list[str]]:
    rng = Random(seed)
    return {f"c{n:06d}": [f"say {rng.randrange(kinds)}" for _ in range(repeats)] for n in range(cases)}


def rotated(texts: dict[str, list[str]]) -> dict[str, list[str]]:
    return {case: said[1:] + said[:1] for case, said in texts.items()}


def reversed_(texts: dict[str, list[str]]) -> dict[str, list[str]]:
    return {case: said[::-1] for case, said in texts.items()}


def partly(texts: dict[str, list[str]]) -> dict[str, list[str]]:
    """One answer of every fourth case is another one."""
    return {case: [*said[:-1], "else"] if n % 4 == 0 else said[::-1] for n, (case, said) in enumerate(texts.items())}


@pytest.mark.parametrize("other", [rotated, reversed_, partly])
@pytest.mark.parametrize(("cases", "repeats"), [(4, 5), (30, 3), (12, 60), (300, 9)])
def test_copied_answers_in_another_order_are_found(
    other: Callable[[dict[str, list[str]]], dict[str, list[str]]], cases: int, repeats: int
) -> None:
    """Whichever repeat they have now, and however many there are of a case."""
    texts = spoken(1, cases, repeats, 1_000_000)
    base = answered(texts, "a")
    decision = gated(base, answered(other(texts)))
    assert decision.decided == "INCONCLUSIVE"
    assert any("in another order or the same" in check.reason for check in decision.checks)
    assert all("in another order" not in c.reason for c in gated(base, answered(spoken(2, cases, repeats, 9))).checks)


@pytest.mark.parametrize(("cases", "repeats", "kinds"), [(30, 1, 5), (30, 2, 2), (100, 5, 3), (12, 20, 2), (50, 4, 1)])
def test_answers_that_agents_give_by_chance_are_no_copies(cases: int, repeats: int, kinds: int) -> None:
    """Of few kinds most cases of two runs have the same ones."""
    runs = [answered(spoken(seed, cases, repeats, kinds)) for seed in range(101)]
    found = [same_answers(run, msgspec.structs.replace(base, inputs=["a"])) for base, run in pairwise(runs)]
    assert sum(map(bool, found)) <= 1


def test_the_chance_of_the_same_answers_is_that_of_the_likeliest_agent() -> None:
    """Two answers that differ come again, in either order, from one in two at best; equal ones always."""
    bags = answered({"a": ["x", "y"], "b": ["x", "x"], "c": ["x", "y", "z"], "d": ["x"]}).cases.bags
    assert {case: bag.chance for case, bag in bags.items()} == pytest.approx({"a": 1 / 2, "b": 1, "c": 2 / 9, "d": 1})
