"""Flaky by history, and only then out of the way: what quarantine excuses, and what it can never hide."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

import msgspec
import numpy as np
import pytest

from evalq.evalcore.compare.comparison import fisher
from evalq.evalcore.compare.decision import GateDecision
from evalq.evalcore.compare.gate import decide
from evalq.evalcore.compare.policy import Policy
from evalq.evalcore.compare.single_cases import STEADY, flakiness, past_of
from evalq.evalcore.compare.summary import RunCases, RunUsage
from evalq.evalcore.contract.params import validate
from evalq.evalcore.errors import ConfigError
from evalq.evalcore.statistics.sequences import mode_share_sequence, rate_limits
from tests.unit.compare.made import passes, run_of

IDS = ("firm", "flaky")
NOW = [(40, 40), (30, 40)]
BEFORE = [(200, 200), (150, 200)]
ENTRY = {"case": "flaky", "reason": "its index is rebuilt at night"}


def live(rows: Sequence[tuple[int, int]], name: str, config: str = "c", sample: Sequence[int] = ()) -> RunCases:
    """A run of a target with these settings."""
    usage = RunUsage(config=config, sample=list(sample))
    return msgspec.structs.replace(run_of(passes(rows, ids=IDS[: len(rows)])), run=name, target="t", usage=usage)


def policy(*entries: dict[str, Any], **more: Any) -> Policy:
    """Every case has to pass 8 of 10 times."""
    gate = {"metric": "vs.pass_rate", "per_case": {"min_passes": 8, "of": 10}, **more}
    return validate(Policy, {"gates": [gate], "minimum_pairs": 1, "quarantine": list(entries)}, "policy.yaml")


def gated(wanted: Policy, now: Sequence[tuple[int, int]] = NOW, before: Sequence[tuple[int, int]] | None = BEFORE,
          missing: Sequence[int] = (), today: str = "") -> GateDecision:  # fmt: skip
    """A run held to ``wanted``, with a baseline that answered as ``before``."""
    partners = {} if before is None else {"vs": run_of(passes(before, ids=IDS))}
    return decide(wanted, [run_of(passes(now, missing, IDS))], partners, today=today)


def test_a_flaky_case_in_quarantine_blocks_no_demand_on_single_cases() -> None:
    """Without it the same run is undecided; and the number of those set aside is said."""
    assert gated(policy()).decided == "INCONCLUSIVE"
    decision = gated(policy(ENTRY))
    assert decision.decided == "GO"
    (entry,) = decision.quarantined
    assert (entry.quarantined, entry.history, entry.passed, entry.answers) == (True, (150, 200), 30, 40)
    assert "1 more in quarantine" in next(each for each in decision.checks if "8 of 10" in each.demand).reason
    assert "vs: 1 case flaky by their history: flaky" in decision.notes


@pytest.mark.parametrize(
    ("before", "why"),
    [
        ([(200, 200), (0, 200)], "stable: 0 of 200"),
        ([(200, 200), (18, 20)], "unknown: 18 of 20"),
        (None, "unknown: no earlier run"),
    ],
    ids=["always fails", "too few", "no history"],
)
def test_only_what_is_flaky_by_history_is_set_aside(before: list[tuple[int, int]] | None, why: str) -> None:
    """Whatever the policy names: what always fails, or is not known to be flaky, blocks."""
    decision = gated(policy(ENTRY), [(40, 40), (10, 40)], before)
    assert decision.decided == "NO-GO"
    assert [(each.quarantined, each.why.startswith(why)) for each in decision.quarantined] == [(False, True)]


def test_it_does_not_hide_a_case_that_got_worse() -> None:
    """A flaky case that passes far less often than it did is NO-GO, though it is in quarantine."""
    decision = gated(policy(ENTRY), [(40, 40), (5, 40)])
    assert decision.decided == "NO-GO"
    (check,) = [each for each in decision.checks if each.decided == "NO-GO"]
    assert (check.metric, check.cases) == ("vs.quarantine", ("flaky",))
    assert "5 of 40, and 150 of 200 before" in check.reason
    assert [each.regressed for each in decision.quarantined] == [True]
    assert [each.regressed for each in gated(policy(ENTRY)).quarantined] == [False]


def test_the_fall_of_a_case_that_stopped_decides_nothing() -> None:
    """By numbers of answers that go by what they are an unchanged case falls twice as often as the test has it."""
    run = run_of(passes([(40, 40), (5, 40)], ids=IDS))
    run.cases.stopped.append("flaky")
    decision = decide(policy(ENTRY), [run], {"vs": run_of(passes(BEFORE, ids=IDS))})
    (check,) = [each for each in decision.checks if each.metric == "vs.quarantine"]
    assert (check.decided, check.cases, check.p_margin) == ("INCONCLUSIVE", ("flaky",), None)
    assert "5 of 40, and 150 of 200 before; 1 of those stopped once decided" in check.reason
    run.cases.stopped[:] = ["firm"]  # one that is in no quarantine
    assert decide(policy(ENTRY), [run], {"vs": run_of(passes(BEFORE, ids=IDS))}).decided == "NO-GO"


def test_a_fall_below_a_history_that_stopped_decides_nothing() -> None:
    """It is the same with the numbers the other way round: of a baseline that stopped the mean leans, too."""
    run, base = run_of(passes([(40, 40), (5, 40)], ids=IDS)), run_of(passes(BEFORE, ids=IDS))
    assert decide(policy(ENTRY), [run], {"vs": base}).decided == "NO-GO"
    base.cases.stopped.append("flaky")
    assert past_of(run, base).stopped == {"flaky"}
    (check,) = [each for each in decide(policy(ENTRY), [run], {"vs": base}).checks if each.metric == "vs.quarantine"]
    assert (check.decided, check.cases, check.p_margin) == ("INCONCLUSIVE", ("flaky",), None)


def test_cases_that_stop_fall_more_often_than_the_test_has_it() -> None:
    """Why: of 4,000 cases that pass 7 of 10 times, held to 8 and asked 100 times at most, more than .025 fall."""
    rng, limits = np.random.default_rng(5), rate_limits(0.8, 100)
    passed = np.cumsum(rng.random((4_000, 100)) < 0.7, 1)
    over = (passed >= np.array(limits.above[1:])) | (passed <= np.array(limits.below[1:]))
    last = np.where(over.any(1), over.argmax(1), 99)
    history = rng.binomial(500, 0.7, 4_000)
    fell = {True: 0, False: 0}
    for case, before, end in zip(passed.tolist(), history.tolist(), last.tolist(), strict=True):
        for stops, n in ((True, end + 1), (False, 100)):
            fell[stops] += fisher(500, before, n, case[n - 1])[0] <= 0.025
    assert fell[False] <= 0.025 * 4_000 < 0.04 * 4_000 <= fell[True]


def test_it_hides_nothing_of_means_drops_and_missing_answers() -> None:
    """A bound over all cases counts it; answers that did not come are not excused, nor is a case without any."""
    assert gated(policy(ENTRY, min=0.97), [(40, 40), (24, 40)]).decided == "NO-GO"
    assert gated(policy(ENTRY, max_drop=0.01), [(40, 40), (20, 40)]).decided == "NO-GO"
    decision = gated(policy(ENTRY), [(40, 40), (30, 35)], missing=[0, 5])
    assert decision.decided != "GO"
    assert "5 of its answers are missing, which quarantine does not excuse" in decision.quarantined[0].why
    assert gated(policy({**ENTRY, "case": "firm"}, ENTRY), [(40, 40), (30, 40)]).decided == "GO"
    assert gated(policy(ENTRY), [(0, 0), (30, 40)], missing=[40, 0]).decided != "GO"


def test_it_ends_on_its_day() -> None:
    """That day is still in it."""
    entry = {**ENTRY, "until": "2026-02-28"}
    assert gated(policy(entry), today="2026-02-28").decided == "GO"
    decision = gated(policy(entry), today="2026-03-01")
    assert decision.decided == "INCONCLUSIVE"
    assert decision.quarantined[0].why.startswith("its quarantine ended on 2026-02-28")


def test_a_name_that_no_run_has_is_said_and_changes_nothing() -> None:
    """Nor does one of another run."""
    for entry in ({**ENTRY, "case": "gone"}, {**ENTRY, "run": "other"}):
        decision = gated(policy(entry))
        assert decision.decided == "INCONCLUSIVE"
        assert [(each.quarantined, each.why) for each in decision.quarantined] == [(False, "no run has such a case")]
    assert gated(policy({**ENTRY, "run": "vs"})).decided == "GO"


def test_history_is_that_of_one_target_and_of_answers_that_count_once() -> None:
    """Runs by other settings, another golden set or without a target, and answers from a cache add nothing."""
    base, cand = live(BEFORE, "base", sample=[1, 2]), live(NOW, "cand", sample=[9])
    more = live(BEFORE, "more", sample=[3])
    assert past_of(cand, base, [more]).cases["flaky"] == (300, 400)
    others = [
        live(BEFORE, "other settings", "d", [4]),
        msgspec.structs.replace(live(BEFORE, "another golden", sample=[5]), specification="z"),
        msgspec.structs.replace(live(BEFORE, "another version", sample=[6]), version="2"),
        run_of(passes(BEFORE, ids=IDS)),
        live(BEFORE, "base", sample=[7]),
        live(BEFORE, "cached", sample=[2, 8]),
        live(BEFORE, "the candidate's own", sample=[9]),
    ]
    past = past_of(cand, base, [*others, more])
    assert (past.cases["flaky"], past.runs) == ((300, 400), 2)
    assert past_of(cand, None, [*others, more]).runs == 3  # base's and more's; what was cached is first here
    assert past_of(cand, live(BEFORE, "base", "d"), [more]).runs == 1


@pytest.mark.parametrize(("passed", "answers"), [(0, 0), (1, 1), (18, 20), (36, 40), (30, 40), (3, 90), (97, 100)])
def test_flaky_and_stable_are_where_the_sequence_lies(passed: int, answers: int) -> None:
    """Its upper end under 95 %, its lower end over it."""
    most = max(passed, answers - passed)
    low, high = mode_share_sequence(most, answers) if answers else (0.0, 1.0)
    assert flakiness(passed, answers) == ("flaky" if high < STEADY else "stable" if low > STEADY else "unknown")


def test_a_case_at_the_border_is_rarely_called_anything_however_often_one_looks() -> None:
    """After each of 200 answers: wrong once in .025 of all courses, at most, on either side."""
    seed = random.randrange(1 << 32)
    rng = random.Random(seed)
    said = {"flaky": 0, "stable": 0}
    for _ in range(250):
        passed, seen = 0, set()
        for answers in range(1, 201):
            passed += rng.random() < STEADY
            seen.add(flakiness(passed, answers))
        for state in said:
            said[state] += state in seen
    assert max(said.values()) <= 250 * 0.025 + 4 * (250 * 0.025) ** 0.5, f"seed {seed}: {said}"


@pytest.mark.parametrize(
    ("entries", "said"),
    [
        ([{"case": "a"}], "quarantine.0.reason: Field required"),
        ([{"case": "a", "reason": ""}], "quarantine.0.reason: String should have at least 1 character"),
        ([{**ENTRY, "until": "soon"}], "quarantine.0.until: a day is needed, such as 2030-12-31"),
        ([ENTRY, ENTRY], "(top level): quarantine names flaky twice"),
        ([{**ENTRY, "tier": "x"}], "quarantine.0.tier: unknown key (known here: case, reason, run, until)"),
    ],
)
def test_what_is_wrong_in_it_is_named_by_its_keys(entries: list[dict[str, str]], said: str) -> None:
    """As everywhere in a policy."""
    with pytest.raises(ConfigError) as caught:
        policy(*entries)
    assert said in str(caught.value)
