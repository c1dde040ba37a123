"""Counts and the first faults of pieces add up to those of the whole, whatever the pieces."""

from __future__ import annotations

import itertools
from random import Random

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from evalq.evalcore.model import state as tally_module
from evalq.evalcore.model.state import LISTED, Faults, Tally

PAIRS = st.tuples(st.integers(1, 40), st.sampled_from(["not JSON", "no id", ""]))
TALLIES = st.builds(
    Tally,
    *(st.integers(0, 9) for _ in range(4)),
    *(st.lists(PAIRS, max_size=6).map(lambda pairs: faults_of(pairs)) for _ in range(2)),
)


def faults_of(pairs: list[tuple[int, str]]) -> Faults:
    """Faults noted one by one."""
    faults = Faults()
    for line, reason in pairs:
        faults.add(line, reason)
    return faults


def copied(tally: Tally) -> Tally:
    """The tally as it comes from the wire."""
    return msgspec.json.decode(msgspec.json.encode(tally), type=Tally)


@pytest.fixture(autouse=True)
def few_are_listed(monkeypatch: pytest.MonkeyPatch) -> None:
    """A short list, so that it overflows."""
    monkeypatch.setattr(tally_module, "LISTED", 4)


@given(st.lists(PAIRS, max_size=20), st.randoms(use_true_random=False))
def test_the_lowest_lines_are_kept_in_whatever_order_they_come(pairs: list[tuple[int, str]], rng: Random) -> None:
    """Exactly the first of the sorted faults, and the number of all."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tally_module, "LISTED", 4)
        faults = faults_of(rng.sample(pairs, len(pairs)))
    assert faults == Faults(len(pairs), sorted(pairs)[:4])


@settings(max_examples=150)
@given(st.lists(TALLIES, min_size=1, max_size=6), st.randoms(use_true_random=False))
def test_merging_is_associative_and_commutative(tallies: list[Tally], rng: Random) -> None:
    """Any bracketing of any order gives the same tally; the empty one changes nothing."""
    want = Tally()
    for one in map(copied, tallies):
        want.merge(one)
    parts = [copied(one) for one in rng.sample(tallies, len(tallies))] + [Tally()]
    while len(parts) > 1:
        at = rng.randrange(len(parts) - 1)
        parts[at].merge(parts.pop(at + 1))
    assert parts[0] == want
    assert want.total == sum(one.total for one in tallies)
    assert want.fatal.total == sum(one.fatal.total for one in tallies)


def test_tallies_share_no_lists() -> None:
    """A new tally is empty after another was added to, and a merged one does not follow its source."""
    first, second = Tally(), Tally()
    second.fatal.add(3, "late")
    first.merge(second)
    second.fatal.add(1, "early")
    assert first.fatal.first == [(3, "late")]
    assert Tally() == Tally(0, 0, 0, 0, Faults(0, []), Faults(0, []))


def test_the_total_counts_every_record_once() -> None:
    """Scored, unscored, broken and dead ones; faults are no records."""
    tally = Tally(scored=1, unscored=20, errors=300, dead=4000)
    tally.listed.add(1, "")
    assert tally.total == 4321


def test_a_file_full_of_faults_is_no_burden() -> None:
    """Beyond the listed ones a fault costs a count, not a merge of the list (seen by the list staying the same)."""
    faults = Faults()
    for line in range(1, 10):
        faults.add(line, "")
    kept = faults.first
    for line in range(10, 1000):
        faults.add(line, "")
    assert faults.first is kept
    assert (faults.total, [line for line, _ in kept]) == (999, [1, 2, 3, 4])


def test_the_list_is_long_enough_to_be_of_use() -> None:
    """More than an error message shows."""
    assert LISTED >= 20
    assert list(itertools.islice(iter(Faults().first), 1)) == []
