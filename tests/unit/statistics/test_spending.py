"""Verdicts that spend their error over the calls planned: how often they are ever wrong, counted exactly."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Sequence
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from evalq.evalcore.statistics.mode_share import ALPHA, limits, sequence_verdict, spending_p_value, spending_verdict
from evalq.evalcore.statistics.sequences import sequence_p_value

SHARES = (0.2, 0.3, 0.5, 0.501, 0.505, 0.55, 0.6, 0.7, 0.8, 0.9)
CAPS = (1, 2, 7, 20, 50, 100)


def ever_collapsed(p: float, share: float, of: int) -> float:
    """The chance that an answer of probability ``p`` ever comes so often that it is called collapsed."""
    collapsed = limits(share, of).collapsed
    alive, crossed = {0: 1.0}, 0.0
    for n in range(1, of + 1):
        grown: dict[int, float] = defaultdict(float)
        for m, chance in alive.items():
            grown[m + 1] += p * chance
            grown[m] += (1 - p) * chance
        crossed += sum(chance for m, chance in grown.items() if m >= collapsed[n])
        alive = {m: chance for m, chance in grown.items() if m < collapsed[n]}
    return crossed


def ever_wrong(shares: Sequence[float], threshold: float, of: int) -> dict[str, float]:
    """The chances that a case with these answers ever is called either, looked at after every run: no union bound."""
    alive: dict[tuple[int, ...], float] = {(0,) * len(shares): 1.0}
    found = {"collapsed": 0.0, "diverse": 0.0}
    for n in range(1, of + 1):
        grown: dict[tuple[int, ...], float] = defaultdict(float)
        for counts, chance in alive.items():
            for option, share in enumerate(shares):
                more = tuple(sorted((*counts[:option], counts[option] + 1, *counts[option + 1 :]), reverse=True))
                grown[
                    more if len(set(shares)) == 1 else (*counts[:option], counts[option] + 1, *counts[option + 1 :])
                ] += share * chance
        alive = {}
        for counts, chance in grown.items():
            said = spending_verdict(max(counts), n, threshold, of)
            if said == "inconclusive":
                alive[counts] = chance
            else:
                found[said] += chance
    return found


@pytest.mark.parametrize("of", CAPS)
@pytest.mark.parametrize("share", SHARES)
def test_a_mode_at_the_threshold_is_ever_called_either_in_one_case_in_forty(share: float, of: int) -> None:
    """Looked at after every run, with one other answer that has the rest: each error stays within 2.5 %."""
    found = ever_wrong([share, 1 - share], max(share, 1 - share), of)
    assert found["collapsed"] <= ALPHA
    assert found["diverse"] <= ALPHA


@pytest.mark.parametrize(
    ("answers", "share"),
    [((0.7, 0.15, 0.15), 0.7), ((0.4, 0.4, 0.2), 0.4), ((0.25,) * 4, 0.25), ((0.5, 0.25, 0.25), 0.5)],
)
def test_more_answers_do_not_make_it_err_more(answers: tuple[float, ...], share: float) -> None:
    """With three and four answers too, the data choosing which of them is looked at."""
    found = ever_wrong(answers, share, 24)
    assert found["collapsed"] <= ALPHA
    assert found["diverse"] <= ALPHA


@pytest.mark.parametrize("of", [20, 100])
@pytest.mark.parametrize("share", [share for share in SHARES if share > 0.5])
def test_no_split_in_two_is_worse_than_the_one_that_is_allowed_for(share: float, of: int) -> None:
    """Over a grid of p from one half to the threshold, p and 1 - p are seldomer called collapsed than at the threshold;
    the chance over p rises with p, so that spreading an answer's share over several makes nothing worse.
    """
    grid = [0.5 + (share - 0.5) * step / 20 for step in range(21)]
    both = [ever_collapsed(p, share, of) + ever_collapsed(1 - p, share, of) for p in grid]
    assert max(both) <= both[-1] * (1 + 1e-9) <= ALPHA * (1 + 1e-9)
    each = [ever_collapsed(share * step / 20, share, of) / step for step in range(1, 21)]
    assert all(a <= b * (1 + 1e-9) + 1e-15 for a, b in pairwise(each))


@pytest.mark.parametrize("of", [20, 50, 100, 1000])
def test_the_error_is_spent_and_not_kept(of: int) -> None:
    """At the threshold of 0.7 most of what is allowed is used: what is not is lost for deciding close cases."""
    found = limits(0.7, of)
    assert 0.4 * ALPHA < found.above <= ALPHA
    assert 0.5 * ALPHA < found.below <= ALPHA


@pytest.mark.parametrize(("p", "least"), [(0.6, 0.5), (0.8, 0.54), (0.65, 0.15), (0.5, 0.95)])
def test_a_hundred_calls_decide_more_than_a_sequence_would(p: float, least: float) -> None:
    """Counted exactly: a mode of 0.6 is decided in half of all cases, where the sequence decides it in a fifth."""
    decided = {}
    for name, judge in (
        ("spent", spending_verdict),
        ("sequence", lambda m, n, share, _: sequence_verdict(m, n, share)),
    ):
        alive, done = {0: 1.0}, 0.0
        for n in range(1, 101):
            grown: dict[int, float] = defaultdict(float)
            for m, chance in alive.items():
                grown[m + 1] += p * chance
                grown[m] += (1 - p) * chance
            said = {m: judge(max(m, n - m), n, 0.7, 100) for m in grown}
            done += sum(chance for m, chance in grown.items() if said[m] != "inconclusive")
            alive = {m: chance for m, chance in grown.items() if said[m] == "inconclusive"}
        decided[name] = done
    assert decided["spent"] >= least
    assert decided["spent"] > 1.4 * decided["sequence"] or decided["sequence"] > 0.6


@settings(max_examples=100, deadline=None)
@given(st.sampled_from([20, 50, 100]), st.floats(0.05, 0.95), st.data())
def test_a_p_value_of_alpha_is_the_verdict(of: int, share: float, data: st.DataObject) -> None:
    """Collapsed exactly where it is ALPHA or less; and it is never above what any smaller level says."""
    share = round(share, 2)
    n = data.draw(st.integers(1, of))
    m = data.draw(st.integers(1, n))
    p = spending_p_value(m, n, share, of)
    assert 0.0 < p <= 1.0
    assert (spending_verdict(m, n, share, of) == "collapsed") == (p <= ALPHA)


@pytest.mark.parametrize("of", [20, 100])
@pytest.mark.parametrize("share", [0.2, 0.505, 0.7])
def test_a_p_value_is_the_least_level_that_calls_it_collapsed(share: float, of: int) -> None:
    """By halves of ALPHA down to 2^-13 of it, and no further: also of what would be called so at any level."""
    floor, p = ALPHA / 2**13, 1.0
    for m in range(1, of + 1):
        p = spending_p_value(m, of, share, of)
        assert p == 1.0 or (p >= floor and m >= limits(share, of, p).collapsed[of])
        assert p == floor or m < limits(share, of, min(ALPHA, p / 2)).collapsed[of]
    assert of < 100 or p == floor


def test_before_any_run_nothing_is_called() -> None:
    """Limits that are out of reach of a count of 0 in 0 runs."""
    for share in SHARES:
        found = limits(share, 20)
        assert (found.collapsed[0], found.diverse[0]) == (1, -1)
        assert spending_verdict(0, 0, share, 20) == "inconclusive"


@pytest.mark.parametrize("level", [32 * ALPHA, 4 * ALPHA, ALPHA, ALPHA / 2, ALPHA / 16, ALPHA / 256])
@pytest.mark.parametrize("share", [0.4, 0.505, 0.7])
def test_a_p_value_is_seldom_small_however_often_one_looks(share: float, level: float) -> None:
    """The chance that it is ever at most a level, at the threshold, is that level at most."""
    alive, small = {0: 1.0}, 0.0
    for n in range(1, 61):
        grown: dict[int, float] = defaultdict(float)
        for m, chance in alive.items():
            grown[m + 1] += share * chance
            grown[m] += (1 - share) * chance
        alive = {}
        for m, chance in grown.items():
            if m and spending_p_value(m, n, share, 60) <= level:
                small += chance
            else:
                alive[m] = chance
    assert small <= level


@pytest.mark.parametrize(("n", "of"), [(21, 20), (10, 5001)])
def test_where_there_is_no_cap_the_sequence_speaks(n: int, of: int) -> None:
    """More runs than were planned, and more planned than can be allowed for, are read by the sequence."""
    for m in range(1, n + 1):
        assert spending_verdict(m, n, 0.7, of) == sequence_verdict(m, n, 0.7)
        assert spending_p_value(m, n, 0.7, of) == sequence_p_value(m, n, 0.7)


def test_the_limits_of_a_thousand_calls_take_no_time_to_speak_of() -> None:
    """They are looked for once a process; the bound leaves room for a busy machine."""
    limits.cache_clear()
    began = time.process_time()
    limits(0.7, 1000)
    assert time.process_time() - began < 3
