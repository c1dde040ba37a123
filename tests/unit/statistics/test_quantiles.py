"""Quantiles of many numbers: within the error that is said, and the same in any pieces."""

from __future__ import annotations

import itertools
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evalq.evalcore.statistics.quantiles import RELATIVE_ERROR, Quantiles, lower_rank, upper_rank

numbers = st.one_of(
    st.floats(0, 1e15), st.floats(0, 1), st.integers(0, 10**6).map(float), st.just(0.0), st.just(5e-324)
)


@given(st.lists(numbers, min_size=1, max_size=200), st.floats(0, 1))
def test_a_quantile_is_within_the_error_of_the_number_in_its_place(values: list[float], share: float) -> None:
    """By nearest rank; what is below any cost or time counts as zero."""
    found = Quantiles.of(values).quantile(share)
    right = sorted(values)[max(1, math.ceil(share * len(values))) - 1]
    assert found is not None
    assert abs(found - right) <= RELATIVE_ERROR * right + 2.0**-60


def test_the_error_that_is_said_is_reached() -> None:
    """At the lower end of an octave's first bucket, and nowhere is it more: less would be false, more idle."""
    errors = []
    for step in range(64):
        value = 1.0 + step / 64
        found = Quantiles.of([0.5, value, 4.0]).quantile(0.5)
        assert found is not None
        errors.append(abs(found - value) / value)
    assert max(errors) == errors[0] == RELATIVE_ERROR


@given(st.lists(st.lists(numbers, max_size=20), max_size=6), st.randoms())
def test_pieces_in_any_order_give_the_same_bytes(pieces: list[list[float]], random: object) -> None:
    """Merging is addition: no order, no cut and no way over the wire shows."""
    whole = Quantiles.of([value for piece in pieces for value in piece])
    parts = [Quantiles.from_wire(Quantiles.of(piece).to_wire()) for piece in pieces]
    random.shuffle(parts)  # type: ignore[attr-defined]  # hypothesis gives a Random
    merged = Quantiles()
    for part in parts:
        merged.merge(part)
    assert merged.to_wire() == whole.to_wire()


def test_nothing_has_no_quantile_and_one_number_is_all_of_them() -> None:
    """None without numbers; the least and the largest are exact."""
    assert (Quantiles().quantile(0.5), Quantiles().mean()) == (None, None)
    one = Quantiles.of([0.1])
    assert [one.quantile(share) for share in (0, 0.5, 1)] == [0.1, 0.1, 0.1]
    many = Quantiles.of([0.1] * 10)
    assert (many.mean(), many.total.value()) == (0.1, 1.0)


@given(st.lists(numbers, min_size=1, max_size=60))
def test_a_rank_lies_between_the_ends_of_its_bucket(values: list[float]) -> None:
    """Each of them, the zeros included, and no bucket is wider than twice the error that is said."""
    found = Quantiles.of(values)
    for rank, value in enumerate(sorted(values), start=1):
        low, high = found.at_rank(rank)
        assert low <= value + 2.0**-60
        assert value <= high
        assert high - low <= 2 * RELATIVE_ERROR * high + 2.0**-60


@given(st.lists(numbers, min_size=1, max_size=60), numbers)
def test_how_many_lie_above_a_bound_is_known_but_for_its_own_bucket(values: list[float], bound: float) -> None:
    """At least and at most so many, and all that are far from it for sure."""
    sure, possible = Quantiles.of(values).above(bound)
    assert sure <= sum(value > bound for value in values)
    assert sum(value > bound + 2.0**-60 for value in values) <= possible
    wide = 2 * RELATIVE_ERROR * bound + 2.0**-59
    assert sum(value > bound + 2 * wide for value in values) <= sure
    assert possible <= sum(value >= bound - 2 * wide for value in values)


def _at_most(count: int, n: int, share: float) -> float:
    return math.fsum(math.comb(n, k) * share**k * (1 - share) ** (n - k) for k in range(count + 1))


@pytest.mark.parametrize("share", [0.0, 0.05, 0.5, 0.9, 0.95, 1.0])
def test_the_ranks_around_a_quantile_are_those_of_their_definition(share: float) -> None:
    """By summing the binomial's terms: the largest rank below, and the smallest above it, that err within alpha."""
    for n, alpha in itertools.product((1, 2, 5, 20, 60), (0.025, 0.2)):
        below = [rank for rank in range(1, n + 1) if _at_most(rank - 1, n, share) <= alpha]
        above = [rank for rank in range(1, n + 1) if 1 - _at_most(rank - 1, n, share) <= alpha]
        assert lower_rank(n, share, alpha) == (max(below, default=0) if share else 0)
        assert upper_rank(n, share, alpha) == (min(above, default=n + 1) if share < 1 else n + 1)


@pytest.mark.parametrize("exponent", [-59, -1, 0, 1, 59])
def test_buckets_stay_few(exponent: int) -> None:
    """An octave has 64 of them, whatever is in it."""
    values = [math.ldexp(1 + i / 1000, exponent) for i in range(1000)]
    assert len(Quantiles.of(values).buckets) == 64
