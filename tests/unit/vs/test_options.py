"""When two options are the same one."""

from __future__ import annotations

import random
from collections.abc import Iterable

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rapidfuzz.distance import Indel

from evalq.evalcore.evaluators.vs.collapse import LONGEST, fuzzy_counts, identity, normalize, normalized_counts


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
        ("C#", "c#"),
        ("C.", "c"),
        ("A*.", "a*"),
        ("within 5 %.", "within 5 %"),
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


def kinds_of(options: Iterable[str], similarity: float = 0.9, most: int = 400) -> int | None:
    """How many kinds are left of options that each came once."""
    found = fuzzy_counts(dict.fromkeys(options, 1), similarity, most)
    return None if found is None else len(found)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("phase ii of the clinical trial", "phase iii of the clinical trial"),
        ("version 1 of the interview guide", "version 2 of the interview guide"),
        ("supervised machine learning", "unsupervised machine learning"),
        ("randomized controlled trial", "non-randomized controlled trial"),
        ("randomized controlled trial", "nonrandomized controlled trial"),
        ("a dependent samples comparison", "an independent samples comparison"),
        ("quantitative content analysis", "qualitative content analysis"),
        ("regression with many covariates", "regression without many covariates"),
        ("hypertension in older adults", "hypotension in older adults"),
        ("the legal trade in wildlife", "the illegal trade in wildlife"),
    ],
)
def test_opposites_are_never_one(one: str, other: str) -> None:
    """However alike in spelling: both are over the similarity at which other options are one."""
    assert Indel.normalized_similarity(one, other) > 0.8
    assert kinds_of([one, other], 0.8) == 2


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("non-randomized controlled trial", "nonrandomized controlled trials"),
        ("phase ii of the clinical trial", "phase ii of the clinical trials"),
        ("unsupervised machine learning", "unsupervised machine-learning"),
        ("an in vivo study of mice", "an in vivo study of mice too"),
    ],
)
def test_wordings_of_one_thing_are_one(one: str, other: str) -> None:
    """What both deny or number alike is no difference."""
    assert kinds_of([one, other], 0.8) == 1


def test_a_third_option_never_makes_one_of_two_opposites() -> None:
    """A misspelling that is like both joins the one, and the other stays a kind of its own."""
    one, other = "we use supervised learning models today", "we use unsupervised learning models today"
    assert kinds_of([one, other], 0.9) == 2
    assert fuzzy_counts({"we use superviced learning models today": 1, one: 2, other: 4}, 0.9, 400) == {
        "we use superviced learning models today": 3,
        other: 4,
    }


def test_the_most_alike_kind_is_joined() -> None:
    """And the runs of both are added up."""
    found = fuzzy_counts({"threshold model of care": 5, "threshold models of care": 3, "another": 1}, 0.9, 400)
    assert found == {"threshold model of care": 8, "another": 1}


def test_near_duplicates_count_once() -> None:
    """At 0.9 a plural is the same option, another noun is not."""
    options = ["threshold model of care", "threshold models of care", "threshold model of trust"]
    assert kinds_of(options, 0.9, 400) == 2
    assert kinds_of(options, 1.0, 400) == 3
    assert kinds_of(options, 0.0, 400) == 1


@given(st.lists(st.text("abc ", min_size=1, max_size=8), max_size=15, unique=True), st.integers(0, 10**6))
def test_the_order_of_options_cannot_matter(options: list[str], seed: int) -> None:
    """Shuffled options form as many clusters."""
    shuffled = random.Random(seed).sample(options, len(options))
    assert kinds_of(options, 0.8, 400) == kinds_of(shuffled, 0.8, 400)


def test_too_many_options_have_no_fuzzy_count() -> None:
    """Above the bound the count is left out rather than waited for."""
    assert kinds_of([str(n) for n in range(6)], 0.9, 5) is None
    assert kinds_of([str(n) for n in range(5)], 0.9, 5) == 5


def test_long_options_keep_their_identity_in_little_room() -> None:
    """Ten million characters are known by their beginning and a digest; the last character still counts."""
    long = "x" * 10_000_000
    assert identity("x" * LONGEST) == "x" * LONGEST
    assert len(identity(long)) < LONGEST
    assert identity(long) == identity("x" * 10_000_000)
    assert identity(long) != identity(long[:-1] + "y")
