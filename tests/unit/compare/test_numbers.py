"""Numbers with a direction: quantiles by order statistics, means by intervals, counts exactly, and nothing as it is."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import msgspec
import pytest

from evalq.evalcore.compare.counting import USAGE_NUMBERS, fault_of, read_usage
from evalq.evalcore.compare.decision import Check
from evalq.evalcore.compare.gate import decide
from evalq.evalcore.compare.intervals import design_effect
from evalq.evalcore.compare.policy import Policy
from evalq.evalcore.compare.spending import SINGLE, Errors, GateLook
from evalq.evalcore.compare.summary import RunCases
from evalq.evalcore.contract import plugins
from evalq.evalcore.contract.measures import Measure, number_at
from evalq.evalcore.errors import UsageError
from tests.portions import some
from tests.unit.compare.made import passes, run_of, taken

NAME = "latency_seconds"


def answers(
    rng: random.Random, cases: int, repeats: int, times: float = 1.0, *, spread: float = 0.3, own: float = 0.0
) -> list[list[float]]:
    """Seconds around a second, with an effect of each case of the run's ``own``."""
    effects = [rng.gauss(0, own) for _ in range(cases)]
    return [[times * rng.lognormvariate(effect, spread) for _ in range(repeats)] for effect in effects]


def found(
    cand: RunCases, base: RunCases | None = None, errors: Errors = SINGLE, *, of: str = "p95", **bound: Any
) -> Check:
    """The check on a number of what answers took."""
    policy = Policy.model_validate({"gates": [{"metric": f"checks.{NAME}.{of}", **bound}], "minimum_pairs": 1})
    bases = {} if base is None else {"checks": base}
    (check,) = (each for each in decide(policy, [cand], bases, errors=errors).checks if NAME in each.metric)
    return check


@pytest.mark.parametrize(("cases", "repeats"), [(200, 1), (40, 5), (20, 10), (10, 20)])
@pytest.mark.parametrize("of", ["p95", "mean", "total", "p50"])
def test_three_times_slower_is_no_go_and_half_as_slow_is_go(cases: int, repeats: int, of: str) -> None:
    """p95 of 1.63 to 4.91 seconds, 200 answers a side, a rise of 10 % allowed (seed 7)."""
    rng = random.Random(7)
    base = taken(answers(rng, cases, repeats))
    slow, fast = taken(answers(rng, cases, repeats, 3.0)), taken(answers(rng, cases, repeats, 0.5))
    assert found(slow, base, of=of, max_relative_rise=0.1).decided == "NO-GO"
    assert found(fast, base, of=of, max_relative_rise=0.1).decided == "GO"
    assert found(slow, base, of=of, max_relative_drop=0.1).decided == "NO-GO", "getting worse, by its direction"
    assert found(fast, base, of=of, max_relative_drop=0.1).decided == "GO"


def test_a_rise_beyond_chance_that_may_be_allowed_is_suspect() -> None:
    """A quarter slower, where a half is allowed; the same answers again are open."""
    rng = random.Random(3)
    base, cand = taken(answers(rng, 40, 20)), taken(answers(rng, 40, 20, 1.5))
    assert found(cand, base, max_relative_rise=0.5).decided == "SUSPECT"
    assert found(base, base, max_relative_rise=0.01).decided == "INCONCLUSIVE"


@pytest.mark.parametrize(("n", "decided"), [(71, "INCONCLUSIVE"), (72, "GO")])
def test_a_bound_of_p95_takes_72_answers(n: int, decided: str) -> None:
    """.95^72 is .0249: with fewer none above it excludes that one in twenty is."""
    check = found(taken([[1.0]] * n), max=2)
    assert check.decided == decided
    assert ("takes at least 72 answers" in check.reason) == (n < 72)


@pytest.mark.parametrize(("n", "decided"), [(85, "INCONCLUSIVE"), (86, "GO")])
def test_a_change_of_p95_takes_86_answers_a_side(n: int, decided: str) -> None:
    """Each side's bound has half the error."""
    rng = random.Random(n)
    check = found(taken(answers(rng, n, 1, 0.1)), taken(answers(rng, n, 1)), max_relative_rise=0.1)
    assert check.decided == decided
    assert ("takes at least 86 answers" in check.reason) == (n < 86)


def test_a_bound_is_on_the_share_of_answers_beyond_it() -> None:
    """Of 200 answers ten above the bound are one in twenty, two are fewer for sure, and twenty are more."""
    for slow, decided in ((2, "GO"), (10, "INCONCLUSIVE"), (20, "NO-GO")):
        run = taken([[9.0]] * slow + [[1.0]] * (200 - slow))
        assert found(run, max=2).decided == decided
        turned = {"GO": "INCONCLUSIVE", "INCONCLUSIVE": "INCONCLUSIVE", "NO-GO": "GO"}
        assert found(run, min=2).decided == ("NO-GO" if slow == 2 else turned[decided])


def test_answers_in_the_bucket_of_a_bound_count_against_the_verdict() -> None:
    """A bucket is 1.6 % wide at most: the sketch does not know on which side of the bound they are."""
    near = taken([[1.002], [1.012]] * 100)
    assert [found(near, max=bound).decided for bound in (0.99, 1.008, 1.02)] == ["NO-GO", "INCONCLUSIVE", "GO"]


def test_what_is_missing_may_be_the_slowest() -> None:
    """None of 200 answers is slow, and twenty did not come: perhaps since they took too long."""
    base = taken([[1.0] * 10] * 20)
    fine, lost = taken([[0.5] * 10] * 20), taken([[0.5] * 9] * 20, missing=1)
    assert found(fine, max=2).decided == found(fine, base, max_relative_rise=0.1).decided == "GO"
    for check in (found(lost, max=2), found(lost, base, max_relative_rise=0.1)):
        assert check.decided == "INCONCLUSIVE"
    gone = taken([[0.5] * 10] * 20)
    gone.cases.unrecorded = ["never asked", "nor this one"]
    assert found(gone, max=2).decided == "INCONCLUSIVE"


def test_a_slow_case_that_is_asked_more_often_is_no_change() -> None:
    """The runs are made up otherwise: how far that alone can move a quantile is allowed for."""
    slow, quick = [5.0] * 50, [1.0] * 50
    base, cand = taken([slow, *[quick] * 19]), taken([slow * 4, *[quick] * 19])
    assert found(cand, base, of="p99", max_relative_rise=0.1).decided != "NO-GO"
    assert found(cand, base, max_relative_rise=0.1).decided == "INCONCLUSIVE"
    assert found(cand, base, of="mean", max_relative_rise=0.1).decided == "GO", "cases weigh the same"


def test_answers_of_a_case_that_are_alike_count_as_fewer() -> None:
    """An effect of each case that is another in each run: of 20 answers hardly more than one counts (seed 5)."""
    rng = random.Random(5)
    alike = [taken(answers(rng, 10, 20, own=1.0)).took[NAME] for _ in range(2)]
    apart = [taken(answers(rng, 10, 20)).took[NAME] for _ in range(2)]
    assert design_effect(*alike) > 10
    assert design_effect(*apart) == 1.0
    fixed = [rng.gauss(0, 1.0) for _ in range(10)]
    same = [
        taken([[rng.lognormvariate(effect, 0.3) for _ in range(20)] for effect in fixed]).took[NAME] for _ in range(2)
    ]
    assert design_effect(*same) == 1.0, "cases that differ from each other, and alike in both runs"


@pytest.mark.parametrize("own", some([0.0, 0.15, 0.3, 0.6], of=2))
@pytest.mark.parametrize("of", some(["p50", "p95", "mean"], of=3))
def test_unchanged_runs_are_no_go_as_rarely_as_stated_whatever_answers_of_a_case_have_in_common(
    of: str, own: float
) -> None:
    """Intraclass correlations of 0 to .8 of the run's own making: 200 pairs of 20 x 10 answers, at .025 (seed 11)."""
    rng, stopped = random.Random(11), 0
    for _ in range(200):
        base, cand = (taken(answers(rng, 20, 10, own=own)) for _ in range(2))
        stopped += found(cand, base, of=of, max_relative_rise=0.0001).decided in ("NO-GO", "SUSPECT")
    assert stopped <= 12, "more than .025 of 200 by three standard deviations"


def test_a_mean_is_judged_by_its_interval() -> None:
    """Not as it is: a mean of .99 is no proof of one below 1, and one answer is none of anything."""
    rng = random.Random(2)
    run = taken(answers(rng, 20, 10))
    mean = run.results[NAME]["mean"]
    for bound, decided in ((1.3 * mean, "GO"), (1.01 * mean, "INCONCLUSIVE"), (0.8 * mean, "NO-GO")):
        assert found(run, of="mean", max=bound).decided == decided
    assert found(run, of="mean", min=0.8 * mean).decided == "GO"
    assert found(taken([[1.0]]), of="mean", max=100).decided == "INCONCLUSIVE"
    assert found(taken([[1.0]]), taken([[50.0]]), of="mean", max_relative_rise=0.1).decided == "INCONCLUSIVE"
    assert found(taken([[0.01] * 10] * 20), taken([[0.01] * 10] * 20), of="mean", max_relative_rise=0.1).decided == "GO"


def test_totals_and_largest_values_are_facts_of_a_run() -> None:
    """What a run took in all, and its slowest answer, are counted: the budget of this run was kept or not."""
    run = taken([[1.0] * 10] * 20)
    for of, most in (("total", 200), ("max", 1), ("count", 200)):
        assert found(run, of=of, max=most).decided == "GO"
        assert found(run, of=of, max=most - 0.5).decided == "NO-GO"
        assert found(run, of=of, equals=most).decided == "GO"


@pytest.mark.parametrize("bound", ["max_drop", "max_rise", "max_relative_drop", "max_relative_rise"])
def test_a_change_of_what_has_no_direction_is_an_error_of_the_policy(bound: str) -> None:
    """So is that of a count, and of an estimate: nothing says how far chance moves it."""
    run = taken([[1.0] * 10] * 20)
    run.results |= {"unknown": 3}
    change: dict[str, Any] = {bound: 0.1}
    for of in ("count", "max"):
        with pytest.raises(UsageError, match=r"needs a number of which|a count of one run"):
            found(run, run, of=of, **change)
    policy = Policy.model_validate({"gates": [{"metric": "checks.unknown", bound: 0.1}]})
    with pytest.raises(UsageError, match="needs a number of which more or less is better"):
        decide(policy, [run], {"checks": run})


def test_a_rise_is_a_fault_where_less_is_better_alone() -> None:
    """Of a measure of which less is better a rise is judged as a fall of others; of others it is an error."""
    worse, base = passes([(9, 10)] * 40), passes([(1, 10)] * 40)
    gini = Measure("pass_rate", better="lower")
    for cases in (worse, base):
        cases.measures = [gini]
    for bound in ("max_rise", "max_drop"):
        policy = Policy.model_validate({"gates": [{"metric": "vs.pass_rate", bound: 0.1}]})
        assert decide(policy, [run_of(worse)], {"vs": run_of(base)}).decided == "NO-GO"
        assert decide(policy, [run_of(base)], {"vs": run_of(worse)}).decided == "GO"
    policy = Policy.model_validate({"gates": [{"metric": "vs.pass_rate", "max_rise": 0.1}]})
    with pytest.raises(UsageError, match="more of it is better, so a rise is no fault; use max_drop"):
        decide(policy, [run_of(passes([(1, 1)] * 20))], {"vs": run_of(passes([(1, 1)] * 20))})


def test_what_nothing_is_known_of_decides_nothing() -> None:
    """A number that no evaluator declares has no interval; one beside it decides at a first look only."""
    run = run_of(passes([(10, 10)] * 20), {"spread": 0.5, "rate": {"value": 0.5, "low": 0.4, "high": 0.6}})

    def said(path: str, errors: Errors = SINGLE, **bound: float) -> str:
        policy = Policy.model_validate({"gates": [{"metric": f"vs.{path}", **bound}]})
        return decide(policy, [run], {}, errors=errors).decided

    assert said("spread", min=0.1) == said("spread", max=0.1) == "INCONCLUSIVE"
    assert [said("rate.value", min=bound) for bound in (0.3, 0.5, 0.7)] == ["GO", "INCONCLUSIVE", "NO-GO"]
    assert said("rate.value", GateLook(2).errors, min=0.7) == "INCONCLUSIVE"


def test_no_evidence_is_never_go() -> None:
    """No answer, one in all, one a case of few, all missing: of quantiles and means, bounds and changes."""
    base = taken([[1.0] * 10] * 20)
    for values, missing in (([[]] * 20, 0), ([[1.0], *[[]] * 19], 0), ([[]] * 20, 10), ([[1.0]] * 5, 0)):
        cand = taken(values, missing=missing)
        for of in ("p50", "p95", "p99", "mean"):
            if cand.results[NAME][of] is None:
                cand.results[NAME][of] = 0.0
            wide: dict[str, Any] = {"max": 1.1} if of == "mean" else {"max": 1e9}
            if len(values) == 20 or of in ("p95", "p99", "mean"):
                assert found(cand, of=of, **wide).decided == "INCONCLUSIVE", (of, values)
                assert found(cand, base, of=of, max_relative_rise=0.5).decided == "INCONCLUSIVE", (of, values)


@pytest.mark.parametrize("name", ["checks", "cooperation", "planagent", "selfcheck", "verification", "vs"])
def test_each_evaluator_says_which_change_of_its_numbers_is_wanted(name: str) -> None:
    """That each number of the results is declared the conformance suite sees; here what stands first counts."""
    measures = plugins.get(name).measures
    assert measures is not None
    assert measures.numbers
    for number in measures.numbers:
        assert number_at(number.path.replace("**", "x").replace("*", "x"), measures.numbers).better in (
            "higher", "lower", "neither",
        )  # fmt: skip
        assert number.kind not in ("mean", "total", "quantile") or number.of in measures.took
        assert (number.kind == "quantile") == (0 < number.share < 1)


def test_what_live_calls_took_is_declared() -> None:
    """Less of all that is better: seconds, money, tokens, failures."""
    for path in ("usage.seconds.p95", "usage.cost", "usage.prompt_tokens", "usage.errors", "usage.each.seconds"):
        assert number_at(path, USAGE_NUMBERS).better == "lower"


def live(path: Path, *attempts: dict[str, Any], cases: int = 80) -> RunCases:
    """A live run whose outputs had these attempts, one after the other, over and over."""
    lines = [
        {"case": f"c{n}", "repeat": 0, "output": "yes", "attempts": [attempts[n % len(attempts)]]} for n in range(cases)
    ]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    usage, took = read_usage(path)
    run = run_of(passes([(1, 1)] * cases, ids=[f"c{n}" for n in range(cases)]), evaluator="checks")
    return msgspec.structs.replace(run, usage=usage, took=took)


TOLD = {"latency_seconds": 0.5, "cost": 0.01, "prompt_tokens": 10, "completion_tokens": 5}
BOUNDS = {
    "usage.cost": ("cost", 1.0),
    "usage.each.cost": ("cost", 1.0),
    "usage.prompt_tokens": ("prompt_tokens", 10_000),
    "usage.each.completion_tokens": ("completion_tokens", 100),
    "usage.seconds.p95": ("latency_seconds", 10.0),
    "usage.each.seconds": ("latency_seconds", 10.0),
}


@pytest.mark.parametrize("path", BOUNDS)
def test_what_no_answer_tells_is_not_0(path: str, tmp_path: Path) -> None:
    """A target without a price costs nobody knows what; of a mean some answers may say nothing, as if they were the
    largest.
    """
    name, bound = BOUNDS[path]
    untold = {key: value for key, value in TOLD.items() if key != name}
    mixed = "GO" if ".each." in path else "INCONCLUSIVE"
    for attempts, wanted in (((TOLD,), "GO"), ((untold,), "INCONCLUSIVE"), ((TOLD, untold), mixed)):
        run = live(tmp_path / "outputs.jsonl", *attempts)
        for demand in ({"max": bound}, {"equals": 0}):
            policy = Policy.model_validate({"gates": [{"metric": f"checks.{path}", **demand}]})
            decision = decide(policy, [run], {})
            if "max" in demand or wanted != "GO":
                assert decision.decided == wanted, (attempts, decision.checks)
            if attempts == (untold,):
                assert "which does not mean 0" in decision.checks[0].reason
                assert decision.checks[0].value is None


def test_what_is_reported_already_breaks_a_bound_or_keeps_it(tmp_path: Path) -> None:
    """However much more it may be; what calls cost that failed is known to nobody, and holds nothing back."""
    untold = {key: value for key, value in TOLD.items() if key != "cost"}
    failed = {"latency_seconds": 0.1, "kind": "timeout"}
    for attempts, bound, wanted in (
        ((TOLD, untold), {"max": 0.1}, "NO-GO"),
        ((TOLD, untold), {"min": 0.1}, "GO"),
        ((TOLD, untold), {"min": 5.0}, "INCONCLUSIVE"),
        ((TOLD, failed), {"max": 1.0}, "GO"),
        ((failed,), {"max": 1.0}, "INCONCLUSIVE"),
    ):
        policy = Policy.model_validate({"gates": [{"metric": "checks.usage.cost", **bound}]})
        decision = decide(policy, [live(tmp_path / "outputs.jsonl", *attempts)], {})
        assert decision.decided == wanted, (attempts, bound, decision.checks)


@pytest.mark.parametrize("of", ["total", "max"])
def test_a_total_of_some_answers_is_no_total(of: str) -> None:
    """Of recorded outputs, too: with those that do not say theirs it may be more; of none nobody knows it."""
    policy = {"gates": [{"metric": f"checks.{NAME}.{of}", "max": 1e6}]}
    for run, wanted in (
        (taken([[1.0] * 2] * 10), "GO"),
        (taken([[1.0] * 2] * 10, missing=1), "INCONCLUSIVE"),
        (taken([[]] * 10, missing=1), "INCONCLUSIVE"),
    ):
        assert decide(Policy.model_validate(policy), [run], {}).decided == wanted
    broken = {"gates": [{"metric": f"checks.{NAME}.{of}", "max": 0.5}]}
    assert decide(Policy.model_validate(broken), [taken([[1.0] * 2] * 10, missing=1)], {}).decided == "NO-GO"


def test_sums_that_no_answers_add_up_to_are_no_run() -> None:
    """Anybody may have written the file."""
    whole = taken([[1.0] * 10] * 20)
    assert fault_of(whole) == ""
    changes: list[dict[str, Any]] = [{"count": [11] * 20}, {"total": [float("nan")] * 20}, {"ids": ["a"] * 20}]
    for change in (*changes, {"logs": []}):
        wrong = msgspec.structs.replace(whole.took[NAME], **change)
        assert "took" in fault_of(msgspec.structs.replace(whole, took={NAME: wrong}))
