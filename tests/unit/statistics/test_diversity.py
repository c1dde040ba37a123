"""Point estimates of diversity: the reference values, and slow sums in many digits."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from decimal import Decimal, localcontext
from functools import partial

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from evalq.evalcore.statistics.diversity import (
    chao1,
    chao_shen_bits,
    chao_wang_jost_bits,
    coverage,
    hill,
    miller_madow_bits,
)
from evalq.evalcore.statistics.exact import shannon_bits

REFERENCE = (4, 3, 2, 1)
some_counts = st.lists(st.integers(1, 30), min_size=1, max_size=30)


@pytest.mark.parametrize(
    ("estimate", "expected"),
    [
        (shannon_bits, 1.84644),
        (miller_madow_bits, 2.06284),
        (chao_shen_bits, 2.09805),
        (chao_wang_jost_bits, 2.13435),
        (partial(hill, order=1), 3.59612),
        (partial(hill, order=2), 100 / 30),
        (chao1, 4.0),
        (coverage, 0.9),
    ],
)
def test_reference_values(estimate: Callable[[Sequence[int]], float], expected: float) -> None:
    """Counts 4, 3, 2, 1 give the values that the literature's formulas give by hand."""
    assert estimate(REFERENCE) == pytest.approx(expected, abs=5e-6)


def chao_wang_jost_in_many_digits(counts: list[int]) -> float:
    """The estimator as its authors print it, its cancelling difference included, in 400 digits."""
    n, singles, doubles = sum(counts), counts.count(1), counts.count(2)
    with localcontext() as context:
        context.prec = 400
        total = sum((Decimal(c) / n * sum(Decimal(1) / k for k in range(c, n)) for c in counts if c < n), Decimal(0))
        if doubles:
            a = Decimal(2 * doubles) / ((n - 1) * singles + 2 * doubles)
        elif singles:
            a = Decimal(2) / ((n - 1) * (singles - 1) + 2)
        else:
            a = Decimal(1)
        if a < 1:
            known = sum(((1 - a) ** r / r for r in range(1, n)), Decimal(0))
            total += Decimal(singles) / n * (1 - a) ** (1 - n) * (-a.ln() - known)
        return float(total / Decimal(2).ln())


@settings(max_examples=60, deadline=None)
@given(some_counts)
def test_chao_wang_jost_equals_its_formula_in_many_digits(counts: list[int]) -> None:
    """The stable tail gives the textbook's value to twelve digits."""
    assert chao_wang_jost_bits(counts) == pytest.approx(chao_wang_jost_in_many_digits(counts), rel=1e-12, abs=1e-12)


@pytest.mark.parametrize("counts", [[1] * 40 + [2] * 3 + [1500], [1] * 900, [2] * 20 + [1] + [1800], [1, 1, 1998]])
def test_chao_wang_jost_stays_exact_at_thousands_of_runs(counts: list[int]) -> None:
    """Where double precision loses the textbook's difference altogether, the value still has ten digits."""
    assert chao_wang_jost_bits(counts) == pytest.approx(chao_wang_jost_in_many_digits(counts), rel=1e-10)


@given(some_counts)
def test_estimates_keep_their_bounds_and_order(counts: list[int]) -> None:
    """Plug-in entropy is the least of the estimates; Hill numbers fall with the order; Chao1 counts what was seen."""
    plugin = shannon_bits(counts)
    assert -1e-12 <= plugin <= math.log2(len(counts)) + 1e-12
    assert miller_madow_bits(counts) >= plugin
    assert chao_wang_jost_bits(counts) >= plugin - 1e-9
    assert chao_shen_bits(counts) >= -1e-12
    assert 1 - 1e-9 <= hill(counts, 2) <= hill(counts, 1) + 1e-9
    assert hill(counts, 1) <= len(counts) + 1e-9
    assert chao1(counts) >= len(counts)
    assert 0 <= coverage(counts) <= 1


@given(st.integers(1, 40), st.integers(2, 20))
def test_even_counts_have_as_many_modes_as_kinds(kinds: int, each: int) -> None:
    """Of equal counts both Hill numbers are the number of kinds, and nothing is unseen."""
    counts = [each] * kinds
    assert hill(counts, 1) == pytest.approx(kinds)
    assert hill(counts, 2) == pytest.approx(kinds)
    assert coverage(counts) == 1.0


def test_one_run_is_no_surprise() -> None:
    """A single answer: no entropy by any estimate but Chao-Shen's, which is defined for it too."""
    assert shannon_bits([1]) == chao_wang_jost_bits([1]) == 0.0
    assert chao1([1]) == 1.0
    assert coverage([1]) == 0.0
    assert chao_shen_bits([1]) == 0.0


def test_all_different_answers() -> None:
    """Ten of ten: Chao1 says 55, coverage 0, and the entropy lies above the plug-in's log2(10)."""
    assert chao1([1] * 10) == 55.0
    assert coverage([1] * 10) == 0.0
    assert chao_wang_jost_bits([1] * 10) > math.log2(10)
    assert chao_shen_bits([1] * 10) > math.log2(10)


@pytest.mark.parametrize("counts", [[1] * 100_000, [3] * 300 + [1] * 99_100, [90_000] + [5] * 2000])
def test_a_hundred_thousand_runs_are_fast(counts: list[int]) -> None:
    """Even with all answers different it takes tens of milliseconds; the bound leaves room for a busy machine."""
    began = time.process_time()
    chao_wang_jost_bits(counts)
    assert time.process_time() - began < 0.5
