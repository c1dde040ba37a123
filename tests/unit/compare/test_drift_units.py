"""Drift by the unit that is exchangeable: answers within a case, whole cases, days. Each fails where it is ignored."""

from __future__ import annotations

from itertools import combinations

import msgspec
import numpy as np
import pytest

from evalq.evalcore.compare.drift import DAY_SD, Chain, Days, begin_chain, count_in_chain
from evalq.evalcore.compare.pairs import Pairs, Side
from evalq.evalcore.compare.summary import CaseColumn, CaseSummary, RunCases
from evalq.evalcore.compare.surprise import BINS, RunFall, binned, of_cases, of_draws
from evalq.evalcore.contract.measures import Measure
from tests.bench.drift import Cell, unchanged

PASS = Measure("pass_rate")


def _run(name: str, passed: list[int], answers: int, day: str = "", first: str = "c") -> RunCases:
    ids = [f"{first}{number:03}" for number in range(len(passed))]
    column = CaseColumn([answers] * len(ids), list(map(float, passed)), list(map(float, passed)))
    return RunCases(
        run=name, evaluator="vs", version="1", target="t", specification="s", report=name, records={},
        cases=CaseSummary([PASS], ids, [0] * len(ids), {PASS.name: column}), day=day,
    )  # fmt: skip


def _side(passed: np.ndarray, answers: int) -> Side:
    return Side(np.full(len(passed), answers), passed.astype(float), passed.astype(float))


@pytest.mark.parametrize(
    "cell",
    [
        Cell("pass", 10, 10, 0.9, 1.0, 0.3),
        Cell("pass", 30, 5, 0.5, 1.0, 0.3),
        Cell("score", 30, 5, 0.8, 1.0),
        Cell("pass", 30, 5, 0.8, 1 / 3, 0.3),
        Cell("pass", 100, 5, 0.9, day=0.03),
        Cell("pass", 30, 10, 0.9, 1.0, 0.3, day=0.03),
    ],
    ids=lambda cell: cell.told,
)
def test_unchanged_runs_seldom_page_whichever_unit_varies(cell: Cell) -> None:
    """Of 600 runs at most 3: more than that has a chance of 1 in 300 at one in a thousand. Longer: drift.md."""
    found = unchanged(cell, 11, 15, 41)
    assert found.runs == 600
    assert found.worse <= 3
    assert found.looks <= 14  # of 6 that are allowed: 1 in 300


def test_p_values_hold_for_cases_as_draws_and_not_for_their_answers() -> None:
    """At an intraclass correlation of .77: by answers half of all unchanged runs surprise at .05 or more."""
    rng = np.random.default_rng(3)
    by_case, by_answer = [], []
    for _ in range(1500):
        rates = rng.beta(0.24, 0.06, 40)
        passed = rng.binomial(10, rates)
        old, new = _side(passed[:30], 10), _side(passed[30:], 10)
        by_case.append(of_draws(binned(old, PASS), binned(new, PASS)).p())
        first, second = (Side(*(column.sum()[None] for column in each)) for each in (old, new))
        by_answer.append(of_cases(Pairs(["all"], first, second, [], [], 0), PASS).p())
    for u in (0.01, 0.05, 0.2):
        assert np.mean(np.array(by_case) <= u) <= u + 4 * (u / 1500) ** 0.5
    assert np.mean(np.array(by_answer) <= 0.01) > 0.1


@pytest.mark.parametrize("means", [(1, 1, 1, 0.5, 0, 0.25), (1, 1, 1, 1, 1, 0), (0.1, 0.33, 0.35, 0.62, 0.9, 0.97)])
@pytest.mark.parametrize("new", [1, 2, 3])
def test_p_values_of_draws_are_near_those_of_every_division(means: tuple[float, ...], new: int) -> None:
    """By enumeration of which cases are the new run's: of only six, draws with replacement are off by 1.6 times."""
    found = []
    for chosen in combinations(range(len(means)), new):
        sides = [
            Side(np.full(len(part), 1), np.array(part, dtype=float), np.array(part, dtype=float) ** 2)
            for part in ([m for at, m in enumerate(means) if at not in chosen], [means[at] for at in chosen])
        ]
        score = Measure("score", "score")
        found.append(of_draws(*(binned(side, score) for side in sides)).p())
    for u in sorted(set(found)):
        assert sum(p <= u for p in found) <= 1.6 * u * len(found)


def test_means_are_binned_without_moving_their_sum() -> None:
    """Also at the ends, of scores, and where less is better."""
    values = np.array([0.0, 0.013, 0.5, 0.777, 1.0])
    side = Side(np.full(5, 1), 5 * values, 25 * values**2)
    for better, mean in (("higher", values.sum()), ("lower", (1 - values).sum())):
        bins = binned(side, Measure("m", "score", 0.0, 5.0, better))  # type: ignore[arg-type]  # one of two
        assert sum(bins) == pytest.approx(5)
        assert sum(number * at / BINS for at, number in enumerate(bins)) == pytest.approx(mean)


def test_new_cases_each_run_are_compared_as_draws_and_not_kept() -> None:
    """By no name of theirs; a fall of all of them is seen all the same."""
    chain = begin_chain(_run("r0", [9] * 40, 10, first="a"))
    for number in range(1, 12):
        chain = count_in_chain(chain, _run(f"r{number}", [9] * 39 + [8], 10, first=f"{number}-"))
    assert chain.drawn
    assert chain.pool.ids == []
    assert not chain.watched[PASS.name].worse
    fallen = count_in_chain(chain, _run("r12", [4] * 40, 10, first="z"))
    assert fallen.watched[PASS.name].since == "r12"
    assert fallen.watched[PASS.name].change == pytest.approx(-0.5, abs=0.01)


def test_it_looks_worse_before_it_pages_and_neither_when_it_is_mended() -> None:
    """The yellow level comes first, names its run, and goes with the evidence."""
    chain = begin_chain(_run("r0", [16] * 30, 20))
    for number in range(1, 13):
        chain = count_in_chain(chain, _run(f"r{number}", [16 + (-1) ** (number + at) for at in range(30)], 20))
    states = []
    for number in range(13, 23):
        chain = count_in_chain(chain, _run(f"r{number}", [14] * 30, 20))
        watched = chain.watched[PASS.name]
        states.append((watched.worse, watched.since, watched.e))
    yellow = [worse for worse, _, _ in states]
    assert states[-1][1], "a fall of 10 points is seen within ten runs"
    first = next(worse for worse in yellow if worse)
    red = next(since for _, since, _ in states if since)
    assert int(first[1:]) <= int(red[1:])
    assert all(bool(worse) == (e >= 100) for worse, _, e in states)


def test_a_day_is_one_bet_however_many_runs_it_has() -> None:
    """Twenty runs of one bad day are no twenty bad days; a retold chain says the same."""
    good, bad = [16, 15, 17] * 10, [15, 14, 16] * 10
    chain = begin_chain(_run("r0", good, 20, "2026-01-01"))
    for number in range(2, 13):
        chain = count_in_chain(chain, _run(f"r{number}", good, 20, f"2026-01-{number:02}"))
    one = count_in_chain(chain, _run("bad0", bad, 20, "2026-01-13"))
    day, days = one, one
    for number in range(1, 20):
        day = count_in_chain(day, _run(f"bad{number}", bad, 20, "2026-01-13"))
        days = count_in_chain(days, _run(f"bad{number}", bad, 20))
    assert day.watched[PASS.name].e <= one.watched[PASS.name].e * 1.01
    assert days.watched[PASS.name].e > 10 * day.watched[PASS.name].e
    assert not day.watched[PASS.name].since
    decoded = msgspec.json.decode(msgspec.json.encode(day), type=Chain)
    assert decoded == day


def test_weekends_are_compared_with_weekends() -> None:
    """After three weeks a Saturday five points lower is as expected, and a Monday as low is not."""
    chain = begin_chain(_run("r0", [90] * 20, 100, "2026-01-05"))
    for number in range(1, 19):
        weekend = number % 7 in (5, 6)
        day = f"2026-01-{5 + number:02}"
        chain = count_in_chain(chain, _run(f"r{number}", [85 if weekend else 90] * 20, 100, day))
    assert not chain.watched[PASS.name].worse
    (saturday, monday) = (count_in_chain(chain, _run("x", [85] * 20, 100, day)) for day in ("2026-01-24", "2026-01-26"))
    assert saturday.watched[PASS.name].p > 0.4
    assert monday.watched[PASS.name].p < 0.2


def test_moods_are_assumed_for_nine_days_and_then_learned() -> None:
    """Nine steady falls of nothing leave less of `DAY_SD`; falls of ten points leave more than it."""
    steady, moody = Days(), Days()
    for number in range(30):
        assert (steady.moods(_fall(0.0), "").deviations[0] >= DAY_SD) == (number < 9)
        steady = steady.after(_fall(-0.002), "")
        moody = moody.after(_fall(-0.1 if number % 2 else 0.1), "")
    spread = [_spread(days) for days in (steady, moody)]
    assert spread[0] < 0.015 < DAY_SD < spread[1]


def _fall(change: float) -> RunFall:
    return RunFall(change, 0.001**2, 0.01, 0.001, 30, lambda _, __: 0.5)


def _spread(days: Days) -> float:
    moods = days.moods(_fall(0.0), "")
    return float(np.dot(moods.odds, moods.deviations))
