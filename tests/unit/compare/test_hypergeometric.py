"""Chances of draws without replacement: every way counted, bounds that hold it, and work that has an end."""

from __future__ import annotations

import math
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evalq.evalcore.compare import pairs
from evalq.evalcore.compare.comparison import _bound, compare, fisher
from evalq.evalcore.compare.pairs import DRAW_TOLERANCE, draw_bounds, draw_ways
from tests.unit.compare.made import PASS, passes

SIZES = [4, 40, 400]


@st.composite
def _draws(draw: st.DrawFn) -> tuple[int, int, int, int]:
    every = draw(st.integers(1, draw(st.sampled_from(SIZES))))
    taken, marked = draw(st.integers(0, every)), draw(st.integers(0, every))
    return taken, marked, every, draw(st.integers(0, every))


def _counted(taken: int, marked: int, every: int, least: int) -> int:
    return sum(
        math.comb(marked, x) * math.comb(every - marked, taken - x) for x in range(least, min(taken, marked) + 1)
        if x <= taken
    )  # fmt: skip


@given(_draws())
def test_every_way_is_counted(asked: tuple[int, int, int, int]) -> None:
    """From one number of them to the next by their ratio, without a rest."""
    taken, _, every, _ = asked
    assert draw_ways(*asked) == _counted(*asked)
    exact = _counted(*asked) / math.comb(every, taken)
    assert draw_bounds(*asked) == (exact, exact)


@given(_draws())
def test_bounds_of_large_draws_hold_the_chance_and_are_close(asked: tuple[int, int, int, int]) -> None:
    """At sizes that can be counted."""
    with pytest.MonkeyPatch.context() as patch:
        exact, _ = draw_bounds(*asked)
        patch.setattr(pairs, "EXACT_DRAWS", 0)
        low, high = draw_bounds(*asked)
    assert low <= exact <= high
    taken, marked, every, least = asked
    small = exact if least * every >= taken * marked else 1 - exact
    assert high - low <= 3 * DRAW_TOLERANCE * small + 1e-15


@pytest.mark.parametrize("passed", [(18_000, 17_900), (19_990, 19_970), (10, 4), (10_000, 10_000)])
def test_bounds_hold_beyond_what_is_exact(passed: tuple[int, int]) -> None:
    """Two sides of 20,000 answers, which exact numbers take seconds for."""
    b, c = passed
    low, high = draw_bounds(20_000, b + c, 40_000, b)
    exact = draw_ways(20_000, b + c, 40_000, b) * 10**30 // math.comb(40_000, 20_000) / 10**30
    assert low <= exact <= high <= low * 1.001


@given(st.integers(1, 40), st.integers(1, 40), st.data())
def test_fisher_is_the_sum_of_binomials(n_b: int, n_c: int, data: st.DataObject) -> None:
    """To the last bit, and so is the smallest value that the counts allow."""
    m_b, m_c = data.draw(st.integers(0, n_b)), data.draw(st.integers(0, n_c))
    m, every = m_b + m_c, math.comb(n_b + n_c, n_c)
    each = [math.comb(m, x) * math.comb(n_b + n_c - m, n_c - x) for x in range(max(0, m - n_b), m_c + 1)]
    assert fisher(n_b, m_b, n_c, m_c) == (sum(each) / every, each[0] / every)


@given(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9)), min_size=1, max_size=6))
def test_the_bound_of_agreement_is_the_sum_of_binomials(rows: list[tuple[int, int]]) -> None:
    """Labels of as many answers counted together change no bit of it."""
    ours, pooled = [now for now, _ in rows], [now + before for now, before in rows]
    taken, total = sum(ours), sum(pooled)
    if taken < 2:
        return
    least = 1 + -(-sum(count * (count - 1) for count in ours) // taken)
    wanted = min(1.0, sum(_counted(taken, count, total, least) for count in pooled) / math.comb(total, taken))
    assert _bound(pooled, ours) == wanted
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pairs, "EXACT_DRAWS", 0)
        patch.setattr("evalq.evalcore.compare.comparison.EXACT_DRAWS", 0)
        assert wanted <= _bound(pooled, ours) <= min(1.0, wanted + 3 * DRAW_TOLERANCE * len(rows))


@pytest.mark.parametrize("answers", [20_000, 100_000_000])
def test_many_answers_to_a_case_take_no_time_to_speak_of(answers: int) -> None:
    """A file of anybody's may say so many, and took hours or never ended; the bound leaves room for a busy machine."""
    began = time.process_time()
    base, cand = passes([(answers * 8 // 10, answers)] * 3), passes([(answers * 7 // 10, answers)] * 3)
    found = compare(base, cand, PASS, 0.05)
    assert (found.verdict, len(found.named)) == ("worse", 3)
    assert compare(base, base, PASS, 0.05).named == []
    # At most one of ten rare answers falls to this side.
    assert _bound([2 * answers - 10, 10], [answers - 1, 1]) == pytest.approx(11 / 1024, rel=2e-3)
    assert time.process_time() - began < 5
