"""When two options are the same one."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evalcore.evaluators.vs.options import LONGEST, fuzzy_distinct, identity, normalize, normalized_counts


@pytest.mark.parametrize(
    ("written", "normal"),
    [
        ("Tacit  Rules", "tacit rules"),
        ("  tacit\trules.\n", "tacit rules"),
        ("ＴＡＣＩＴ rules!?", "tacit rules"),
        ("돌봄 관점。", "돌봄 관점"),
        ("\u1103\u1169\u11af\u1107\u1169\u11b7", "돌봄"),
        ("Straße", "strasse"),
        ("\u0390", "\u0390"),
        ("(tacit) rules ...", "(tacit) rules"),
        ("...", "..."),
        ("", ""),
    ],
)
def test_normalisation_of_known_texts(written: str, normal: str) -> None:
    """Width, composition, case, white space and punctuation at the end do not matter; other punctuation does."""
    assert normalize(written) == normal


@given(st.text(max_size=20))
def test_normalising_twice_changes_nothing(text: str) -> None:
    """A normalised option is its own normal form."""
    assert normalize(normalize(text)) == normalize(text)


@given(st.lists(st.text("aA b.", max_size=4), max_size=20))
def test_normalised_counts_add_up(options: list[str]) -> None:
    """No run is lost, and options are merged exactly when their normal forms are one."""
    exact = {option: options.count(option) for option in options}
    merged = normalized_counts(exact)
    assert sum(merged.values()) == len(options)
    assert set(merged) == {normalize(option) for option in options}


def test_near_duplicates_count_once() -> None:
    """At 0.9 a plural is the same option, another noun is not."""
    options = ["threshold model of care", "threshold models of care", "threshold model of trust"]
    assert fuzzy_distinct(options, 0.9, 400) == 2
    assert fuzzy_distinct(options, 1.0, 400) == 3
    assert fuzzy_distinct(options, 0.0, 400) == 1


@given(st.lists(st.text("abc ", min_size=1, max_size=8), max_size=15, unique=True), st.integers(0, 10**6))
def test_the_order_of_options_cannot_matter(options: list[str], seed: int) -> None:
    """Shuffled options form as many clusters."""
    shuffled = random.Random(seed).sample(options, len(options))
    assert fuzzy_distinct(options, 0.8, 400) == fuzzy_distinct(shuffled, 0.8, 400)


def test_too_many_options_have_no_fuzzy_count() -> None:
    """Above the bound the count is left out rather than waited for."""
    assert fuzzy_distinct([str(n) for n in range(6)], 0.9, 5) is None
    assert fuzzy_distinct([str(n) for n in range(5)], 0.9, 5) == 5


def test_long_options_keep_their_identity_in_little_room() -> None:
    """Ten million characters are known by their beginning and a digest; the last character still counts."""
    long = "x" * 10_000_000
    assert identity("x" * LONGEST) == "x" * LONGEST
    assert len(identity(long)) < LONGEST
    assert identity(long) == identity("x" * 10_000_000)
    assert identity(long) != identity(long[:-1] + "y")
