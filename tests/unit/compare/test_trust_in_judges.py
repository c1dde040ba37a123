"""Gates over verdicts of judges: advisory until people labelled enough of them, unless the policy says otherwise."""

from __future__ import annotations

from typing import Any

import msgspec
import numpy as np
import pytest

from evalq.evalcore.compare.decision import GateDecision
from evalq.evalcore.compare.gate import decide
from evalq.evalcore.compare.policy import Policy
from evalq.evalcore.compare.summary import CaseSummary, RunCases, Summing, pooled
from evalq.evalcore.contract.measures import Judged, Measure, Observation
from evalq.evalcore.statistics.agreement import JudgedCase, labels_needed, sample_p_value, trust_of
from tests.unit.compare.made import PASS, run_of

PLAIN = Measure("plain.pass_rate", optional=True)
DROP = {"metric": "checks.pass_rate", "max_drop": 0.05}
Rows = dict[str, tuple[int, int, int, int, int, int]]
BOUND = {"metric": "checks.plain.pass_rate", "min": 0.5}


def labelled(each: int, wrong: int = 0, first: int = 0) -> Rows:
    """So many labels of either class, the first ``wrong`` of each not as the judge has it, one or two a case."""
    rows: Rows = {}
    for number in range(each):
        right = int(number >= wrong)
        rows[f"p{first + number:03}"] = (right, 0, 1 - right, 0, 10, 20)
        rows[f"f{first + number:03}"] = (0, 1 - right, 0, right, 10, 20)
    return rows


def run(passed: int, labels: int | None, by: str = "grader", plain: int = 10) -> RunCases:
    """Twenty cases of ten answers each, of which a judge passed so many and plain checks others."""
    summing = Summing((PASS, PLAIN))
    for case in range(20):
        for repeat in range(10):
            summing.add(Observation(f"c{case:02}", (float(repeat < passed), float(repeat < plain)), repeat))
    judged = (
        None
        if labels is None
        else Judged({"polite": labelled(labels), "right": labelled(25)}, by, ("plain", "labels"), labelled(25))
    )
    results = {
        "pass_rate": passed / 10,
        "thresholds": {"verdict": "fails"},
        "labels": {"agreement": {"value": 0.9, "low": 0.85, "high": 0.94}},
    }
    return run_of(summing.summary(judged=judged), results, evaluator="checks")


def decided(cand: RunCases, base: RunCases, *gates: dict[str, Any], **policy: Any) -> GateDecision:
    """What a policy of these gates decides."""
    return decide(Policy.model_validate({"gates": gates, **policy}), [cand], {"checks": base})


def test_a_judge_without_labels_makes_neither_go_nor_no_go() -> None:
    """A fall that it sees is shown with its verdict and the reason; other demands decide."""
    found = decided(run(2, 0), run(9, 0), DROP, BOUND)
    assert found.decided == "GO"
    by_judge, plain = found.checks
    assert (by_judge.decided, by_judge.tier) == ("NO-GO", "advisory")
    assert "polite: 0 labels of 20; it may err in 100.0% of what people fail" in by_judge.reason
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
        (17, 0, "grader", {}, True),
        (16, 0, "grader", {}, False),
        (0, 17, "grader", {}, True),
        (17, 0, "another judge", {}, True),
        (0, 17, "another judge", {}, False),
        (0, 0, "grader", {"judges": "decide"}, True),
        (90, 90, "grader", {"judges": "advisory"}, False),
        (17, 0, "grader", {"minimum_labels": 35}, False),
        (16, 0, "grader", {"judge_error": 0.25}, True),
        (None, None, "grader", {}, True),
    ],
)
def test_labels_of_both_runs_or_the_policy_make_it_decide(
    cand: int | None, base: int | None, by: str, more: dict[str, Any], decides: bool
) -> None:
    """Those of the baseline count where the same judge was asked alike; a run without judges needs none."""
    found = decided(run(2, cand), run(9, base, by), DROP, BOUND, **more)
    assert found.decided == ("NO-GO" if decides else "GO")


@pytest.mark.parametrize(
    ("cand", "base", "by", "more", "told"),
    [
        ((17, "2026-06-30"), (17, "2026-06-30"), "grader", {}, []),
        ((0, "2026-06-30"), (17, "2026-04-01"), "grader", {}, ["base, which began on 2026-04-01, 91 days ago"]),
        ((0, "2026-06-30"), (17, "2026-04-02"), "grader", {}, []),
        ((0, "2026-06-30"), (17, "2026-04-02"), "grader", {"labels_days": 30}, ["base", "labels_days: 30"]),
        ((17, "2026-01-01"), (0, "2026-06-30"), "grader", {}, ["cand, which began on 2026-01-01"]),
        ((0, "2026-06-30"), (17, "2026-01-01"), "another judge", {}, []),
        ((0, "2026-06-30"), (17, "2026-01-01"), "grader", {"judges": "decide"}, []),
        ((17, ""), (17, "yesterday"), "grader", {}, []),
    ],
)
def test_labels_of_a_run_of_long_ago_are_reported(
    cand: tuple[int, str], base: tuple[int, str], by: str, more: dict[str, Any], told: list[str]
) -> None:
    """Where they count: those of another judge, and where nobody asks for labels, are nothing to warn of."""
    runs = [
        msgspec.structs.replace(
            run(9, labels, who), run=name, day=day, cases=_without_others(run(9, labels, who).cases, labels)
        )
        for name, (labels, day), who in (("cand", cand, "grader"), ("base", base, by))
    ]
    policy = Policy.model_validate({"gates": [DROP, BOUND], **more})
    notes = decide(policy, runs[:1], {"checks": runs[1]}, today="2026-07-01").notes
    found = [note for note in notes if "labels_days" in note]
    assert len(found) == bool(told)
    assert all(text in found[0] for text in told)


def _without_others(cases: CaseSummary, labels: int) -> CaseSummary:
    """One check alone is judged: of no labels the run has none."""
    assert cases.judged is not None
    judged = msgspec.structs.replace(cases.judged, labels={"polite": labelled(labels)}, outputs=labelled(labels))
    return msgspec.structs.replace(cases, judged=judged)


def test_numbers_that_rest_on_no_judge_decide() -> None:
    """Also those of the results that are no measures: agreement itself does, thresholds do not."""
    agreed = {"metric": "checks.labels.agreement.value", "min": 0.95}
    reached = {"metric": "checks.thresholds.verdict", "equals": "holds"}
    found = decided(run(9, 0), run(9, 0), agreed, reached)
    assert [(check.decided, check.tier) for check in found.checks] == [("NO-GO", "critical"), ("NO-GO", "advisory")]


def test_a_measure_that_no_record_has_is_left_out() -> None:
    """Of runs without judges; a drop behind a baseline that lacks it cannot be told."""
    summing = Summing((PASS, PLAIN))
    summing.add(Observation("c", (1.0, None), 0))
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


@pytest.mark.parametrize(("errors", "needed"), [(0, 17), (1, 26), (2, 34)])
def test_it_takes_so_many_labels_of_each_class(errors: int, needed: int) -> None:
    """Whose upper end is under .2; with one fewer it says how many are lacking."""
    assert labels_needed(errors) == needed
    assert trust_of(_cases(labelled(needed, errors))).why == ""
    why = trust_of(_cases(labelled(needed - 1, errors))).why
    assert "label 1 more that people fail" in why
    assert "label 1 more that people pass" in why


def _cases(rows: Rows) -> list[JudgedCase]:
    return [JudgedCase(*row) for row in rows.values()]


def test_a_judge_that_agrees_by_chance_does_not_decide() -> None:
    """Twelve of twenty as people have it: kappa's interval holds 0, and so may either error be large."""
    why = trust_of(_cases(labelled(10, 4))).why
    assert "agreement with people may be chance" in why
    assert "it may err in" in why


def test_labels_of_one_verdict_alone_are_no_sample() -> None:
    """Twenty that the judge passed, of 400 answers of which it passed half; by verdict, they are half of a sample."""
    rows = {f"c{n}": (1, 0, 0, 0, 10, 20) for n in range(20)}
    assert sample_p_value(_cases(rows)) < 1e-4
    assert "no random sample" in trust_of(_cases(rows)).why
    assert sample_p_value(_cases(rows), by_verdict=True) == 1.0
    assert "label 17 more that people fail" in trust_of(_cases(rows), by_verdict=True).why


def test_labels_of_easy_cases_alone_are_no_sample_within_verdicts() -> None:
    """Half of all cases always pass; labelled are only verdicts of these, and of the hardest ones."""
    easy = {f"e{n}": (1, 0, 0, 0, 19, 20) for n in range(20)}
    middle = {f"m{n}": (0, 0, 0, 0, 10, 20) for n in range(40)}
    hard = {f"h{n}": (0, 0, 0, 1, 1, 20) for n in range(20)}
    assert sample_p_value(_cases({**easy, **middle, **hard}), by_verdict=True) < 0.01
    whole = {f"w{n}": (10, 0, 0, 10, 10, 20) for n in range(5)}
    assert sample_p_value(_cases({**whole, **middle})) == 1.0, "whole cases, which are like the others"


def test_the_labels_of_one_case_are_alike() -> None:
    """Thirty-four labels of two cases are hardly more than two."""
    rows = {"a": (17, 0, 0, 0, 17, 17), "b": (0, 0, 0, 17, 0, 17), "c": (0, 0, 0, 0, 17, 34), "d": (0, 0, 0, 0, 17, 34)}
    assert "label more cases" in trust_of(_cases(rows)).why


def test_honest_samples_are_seldom_called_dishonest() -> None:
    """At .01, of answers and of whole cases, by draws (seed 4) from cases that differ."""
    rng = np.random.default_rng(4)
    refused = {"answers": 0, "verdicts": 0, "cases": 0}
    for _ in range(60):
        rates = rng.beta(2, 1, 30)
        passed = rng.binomial(10, rates)
        own = [np.array([True] * p + [False] * (10 - p)) for p in passed]
        picked = rng.permutation(300) < 60
        answers = [
            JudgedCase(int((o & k).sum()), 0, 0, int((~o & k).sum()), int(o.sum()), 10)
            for o, k in zip(own, picked.reshape(30, 10), strict=True)
        ]
        refused["answers"] += sample_p_value(answers) <= 0.01
        refused["verdicts"] += sample_p_value(answers, by_verdict=True) <= 0.01
        chosen = rng.permutation(30) < 8
        cases = [
            JudgedCase(int(o.sum()) * int(c), 0, 0, int((~o).sum()) * int(c), int(o.sum()), 10)
            for o, c in zip(own, chosen, strict=True)
        ]
        refused["cases"] += sample_p_value(cases) <= 0.01
    assert all(count <= 4 for count in refused.values()), refused


def test_a_change_is_decided_as_people_would_see_it() -> None:
    """A judge that errs in a twentieth shows nine tenths of each change, and not for sure: the interval is wider."""
    sure, unsure = labelled(200), labelled(60, 3)
    found = []
    for rows in (sure, unsure):
        cand, base = run(8, 25), run(9, 25)
        for side in (cand, base):
            assert side.cases.judged is not None
            side.cases.judged = msgspec.structs.replace(side.cases.judged, outputs=rows, labels={"polite": rows})
        (check,) = (each for each in decided(cand, base, DROP).checks if each.metric == "checks.pass_rate")
        assert "as judged between" in check.reason
        assert "polite agrees with people in" in check.reason
        assert check.low is not None
        assert check.high is not None
        found.append((check.low, check.high))
    assert found[1][0] < found[0][0] < found[0][1] <= found[1][1] + 0.02
