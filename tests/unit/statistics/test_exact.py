"""Sums without rounding, against fractions; Gini, entropy and intervals, against slow and obvious computations."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from fractions import Fraction
from random import Random

import msgspec
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from evalq.evalcore.statistics.exact import ExactSum, gini, shannon_bits, wilson

FLOATS = st.floats(allow_nan=False, allow_infinity=False)
NUMBERS = FLOATS | st.integers(-(10**40), 10**40) | st.sampled_from([5e-324, -5e-324, 1.7976931348623157e308, -0.0, 0])
LISTS = st.lists(NUMBERS, max_size=12)
Z = 1.959963984540054


def exact(values: Sequence[float]) -> Fraction:
    """The sum, as a fraction."""
    return sum((Fraction(value) for value in values), Fraction(0))


def as_fraction(total: ExactSum) -> Fraction:
    """What the wire form stands for."""
    return Fraction(int(total.mantissa, 16)) * Fraction(2) ** total.exponent


def wire(total: ExactSum) -> bytes:
    """The bytes of a sum."""
    return msgspec.json.encode(total)


def nearest(value: Fraction) -> float:
    """``value`` rounded to a float; infinite where it is too large."""
    try:
        return float(value)
    except OverflowError:
        return math.inf


@given(LISTS)
def test_a_sum_is_exact(values: list[float]) -> None:
    """Floats of any size with integers of any size: no bit is lost."""
    assert as_fraction(ExactSum.of(values)) == exact(values)


@settings(max_examples=200)
@given(LISTS, st.randoms(use_true_random=False))
def test_a_sum_does_not_depend_on_order_and_bracketing(values: list[float], rng: Random) -> None:
    """Shuffled, cut anywhere and merged in any order, the wire has the same bytes."""
    want = wire(ExactSum.of(values))
    shuffled = rng.sample(values, len(values))
    cuts = sorted(rng.choices(range(len(values) + 1), k=3))
    parts = [ExactSum.of(shuffled[a:b]) for a, b in itertools.pairwise([0, *cuts, len(values)])]
    while len(parts) > 1:
        at = rng.randrange(len(parts) - 1)
        parts[at].merge(parts.pop(at + 1))
    assert wire(parts[0]) == want


@given(LISTS, LISTS)
def test_equal_sums_are_equal_bytes(first: list[float], second: list[float]) -> None:
    """And unequal ones are not: the wire is canonical."""
    same = exact(first) == exact(second)
    assert (wire(ExactSum.of(first)) == wire(ExactSum.of(second))) is same
    cancelled = ExactSum.of([*first, *second])
    cancelled.merge(ExactSum.of([-value for value in second]))
    assert wire(cancelled) == wire(ExactSum.of(first))


@given(LISTS)
def test_a_sum_comes_back_from_the_wire(values: list[float]) -> None:
    """As [mantissa, exponent], the mantissa odd or zero."""
    total = ExactSum.of(values)
    back = msgspec.json.decode(wire(total), type=ExactSum)
    assert back == total
    assert wire(back) == wire(total)
    assert int(total.mantissa, 16) % 2 or wire(total) == b'["0",0]'


@given(LISTS)
@example([5e-324, 5e-324, 2.0**-1073])
@example([2.0**53, 1.0, 1.0])
@example([1e308, 1e308, -1e308])
def test_the_value_is_rounded_once(values: list[float]) -> None:
    """To the nearest float, ties to even, subnormal ones too; a sum beyond all floats is an OverflowError."""
    want = nearest(exact(values))
    if math.isinf(want):
        with pytest.raises(OverflowError):
            ExactSum.of(values).value()
    else:
        assert ExactSum.of(values).value() == want


@given(st.lists(FLOATS, min_size=1, max_size=12), st.integers(1, 10**6))
@example([1.7976931348623157e308] * 3, 3)
@example([5e-324], 2)
@example([5e-324] * 3, 2)
def test_a_mean_is_rounded_once(values: list[float], count: int) -> None:
    """Also where the sum alone would be no float."""
    want = nearest(exact(values) / count)
    if not math.isinf(want):
        assert ExactSum.of(values).mean(count) == want


def test_the_mean_of_nothing_is_an_error() -> None:
    """There is no number to say."""
    with pytest.raises(ZeroDivisionError):
        ExactSum().mean(0)


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_what_is_no_number_cannot_be_added(value: float) -> None:
    """As ValueError (NaN) or OverflowError (infinities)."""
    with pytest.raises((ValueError, OverflowError)):
        ExactSum.of([1.0, value])


def test_booleans_count_as_integers() -> None:
    """True is 1."""
    assert ExactSum.of([True, True, False]).value() == 2.0


@pytest.mark.parametrize(
    "data",
    [
        *(b'["%b",0]' % text for text in (b"zz", b"", b"-", b"0x1", b"2", b"1 ", b"1\\n", b"1_1", b"-0", b"01", b"A")),
        *(b'["1",%b]' % text for text in (b"-1075", b"1000000000", b"0.5", b'"0"')),
        b"[1,0]",
        b'["\xef\xbc\x91",0]',
    ],
)
def test_what_is_no_canonical_sum_is_refused(data: bytes) -> None:
    """When it is decoded, so that merging never fails later: hexadecimal, odd, and of an exponent a sum can have."""
    with pytest.raises(msgspec.ValidationError):
        msgspec.json.decode(data, type=ExactSum)


def test_merging_leaves_the_other_sum_alone() -> None:
    """And nothing added is nothing changed."""
    first, second = ExactSum.of([0.1]), ExactSum.of([0.2])
    first.merge(second)
    assert wire(second) == wire(ExactSum.of([0.2]))
    first.merge(ExactSum())
    assert wire(first) == wire(ExactSum.of([0.1, 0.2]))


def slow_gini(values: Sequence[float]) -> float:
    """Mean absolute difference over twice the mean, from all pairs, as fractions."""
    numbers = [Fraction(value) for value in values]
    differences = sum(abs(a - b) for a in numbers for b in numbers)
    return float(differences / (2 * len(numbers) * sum(numbers)))


@given(st.lists(st.floats(0, 1e12) | st.integers(0, 10**6), min_size=1, max_size=10))
def test_gini_is_the_relative_mean_difference(values: list[float]) -> None:
    """For non-negative values that are not all zero; zeros count."""
    if any(values):
        assert gini(values) == pytest.approx(slow_gini(values), abs=1e-12)
    else:
        assert gini(values) == 0.0


@pytest.mark.parametrize(
    ("values", "want"),
    [([], 0.0), ([0, 0, 0], 0.0), ([5], 0.0), ([2, 2, 2], 0.0), ([0, 1], 0.5), ([0, 0, 0, 1], 0.75), ([1, 3], 0.25)],
)
def test_gini_of_known_lists(values: list[float], want: float) -> None:
    """All alike is 0, one has everything is (n-1)/n."""
    assert gini(values) == pytest.approx(want, abs=1e-15)


@pytest.mark.parametrize("count", range(1, 40))
def test_gini_is_never_below_zero(count: int) -> None:
    """Of equal numbers either, such as six of .1, whose formula leaves -2.2e-16 in floats."""
    assert 0.0 <= min(gini([value] * count) for value in (0.1, 3.0, 7.3)) < 1e-15


@given(st.lists(st.floats(0, 1e6), max_size=8), st.randoms(use_true_random=False))
def test_gini_does_not_depend_on_order(values: list[float], rng: Random) -> None:
    """To the last bit, from a list or an iterator."""
    assert gini(iter(rng.sample(values, len(values)))) == gini(values)


@given(st.lists(st.floats(0, 1.7976931348623157e308), min_size=1, max_size=6))
@example([1e308, 1.7e308])
@example([1.7976931348623157e308] * 3)
@example([5e-324, 0.0])
def test_gini_is_a_number_for_all_numbers(values: list[float]) -> None:
    """Between 0 and 1, also where the sum of the values would be no float."""
    assert -1e-12 <= gini(values) < 1
    if any(values):
        assert gini(values) == pytest.approx(slow_gini(values), abs=1e-9)


def slow_entropy(counts: Sequence[int]) -> float:
    """Entropy in bits from the definition."""
    total = sum(counts)
    return sum(count / total * math.log2(total / count) for count in counts if count) if total else 0.0


@given(st.lists(st.integers(0, 10**6), max_size=10))
def test_entropy_is_the_expected_information(counts: list[int]) -> None:
    """Kinds that never occurred count for nothing; order does not matter to the last bit."""
    assert shannon_bits(counts) == pytest.approx(slow_entropy(counts), abs=1e-9)
    assert shannon_bits(counts) == shannon_bits(reversed(counts)) == shannon_bits([*counts, 0])


@pytest.mark.parametrize(
    ("counts", "want"),
    [((4, 3, 2, 1), 1.84644), ((1, 1), 1.0), ((5, 5, 5, 5), 2.0), ((7,), 0.0), ((), 0.0), ((0, 0), 0.0), ((0, 9), 0.0)],
)
def test_entropy_of_known_counts(counts: tuple[int, ...], want: float) -> None:
    """Among them the reference value of the specification."""
    assert shannon_bits(counts) == pytest.approx(want, abs=5e-6)
    assert math.copysign(1, shannon_bits(counts)) == 1


@given(st.integers(1, 500), st.data())
def test_wilson_is_the_root_of_the_score_equation(of: int, data: st.DataObject) -> None:
    """At both ends |share - p| is z standard errors of p, which is how Wilson defined it."""
    hits = data.draw(st.integers(0, of))
    low, high = wilson(hits, of)
    for p in (low, high):
        assert 0 <= p <= 1
        assert abs(hits / of - p) == pytest.approx(Z * math.sqrt(p * (1 - p) / of), abs=1e-9)
    assert low <= hits / of <= high


def test_wilson_gives_the_values_of_the_textbooks() -> None:
    """0 and all of 10, and 7 of 10 (Newcombe 1998 lists such cases); a higher confidence is wider."""
    for hits, interval in ((0, (0.0, 0.27753)), (10, (0.72247, 1.0)), (7, (0.39678, 0.89221))):
        assert wilson(hits, 10) == pytest.approx(interval, abs=1e-5)
    assert wilson(0, 10)[0] == 0
    assert wilson(10, 10)[1] == 1
    assert wilson(7, 10, 0.99)[0] < wilson(7, 10)[0]
    with pytest.raises(ZeroDivisionError):
        wilson(0, 0)
