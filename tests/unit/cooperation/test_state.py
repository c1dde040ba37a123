"""The mergeable state: associative, neutral at zero, the same through the wire, and small."""

from __future__ import annotations

from typing import Any

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from evalq.evalcore.evaluators.cooperation import score
from evalq.evalcore.evaluators.cooperation.report import CooperationState
from evalq.evalcore.evaluators.cooperation.score import BETRAYAL, COOPERATIVE, MOST_BLOCKS, AgentState, TurnSet
from tests.unit.cooperation.logs import rows, state_of


def merged(*states: CooperationState) -> CooperationState:
    """All states in order, merged into one that shares nothing with them."""
    whole = CooperationState.zero()
    for state in states:
        whole.merge(CooperationState.from_wire(state.to_wire()))
    return whole


@settings(max_examples=200, deadline=None)
@given(rows(), st.data())
def test_merging_is_associative_to_the_last_byte(log: list[dict[str, Any]], data: st.DataObject) -> None:
    """(a b) c, a (b c) and the state of all rows at once are the same bytes."""
    i = data.draw(st.integers(0, len(log)))
    j = data.draw(st.integers(i, len(log)))
    a, b, c = state_of(log[:i]), state_of(log[i:j]), state_of(log[j:])
    left = merged(merged(a, b), c).to_wire()
    assert left == merged(a, merged(b, c)).to_wire()
    assert left == state_of(log).to_wire()


@settings(max_examples=50, deadline=None)
@given(rows())
def test_zero_is_neutral_on_both_sides(log: list[dict[str, Any]]) -> None:
    """The state of no records changes nothing."""
    state = state_of(log)
    assert merged(CooperationState.zero(), state, CooperationState.zero()).to_wire() == state.to_wire()


def test_an_agent_without_rows_is_neutral_on_both_sides() -> None:
    """Whatever the other's rows are: in order or not, with betrayals, with resources."""
    columns = ([1, 2, 5], [BETRAYAL, COOPERATIVE, COOPERATIVE], [3, None, 1.5])
    for turns in (columns[0], columns[0][::-1]):
        state = AgentState.of(turns, columns[1], columns[2])
        before = msgspec.json.encode(state)
        behind = AgentState()
        behind.merge(AgentState.of(turns, columns[1], columns[2]))
        state.merge(AgentState())
        assert msgspec.json.encode(behind) == msgspec.json.encode(state) == before


def test_zero_states_share_nothing() -> None:
    """A state that grew leaves a new zero empty."""
    merged(state_of([{"turn": 5, "agent": "a"}]))
    grown = CooperationState.zero()
    grown.merge(state_of([{"turn": 5, "agent": "a"}]))
    assert CooperationState.zero().to_wire() == CooperationState().to_wire()
    assert CooperationState.zero().rows == 0
    assert not CooperationState.zero().agents
    assert not CooperationState.zero().turns.blocks


numbers = st.one_of(st.integers(-600, 600), st.integers(-(2**63), 2**63 - 1))


@given(st.lists(st.sets(numbers), max_size=4))
def test_a_turn_set_counts_distinct_turns(parts: list[set[int]]) -> None:
    """The union of sets in hexadecimal blocks has as many turns as the union of sets."""
    whole = TurnSet()
    for part in parts:
        whole.merge(TurnSet.of(part))
    assert whole.count() == len(set().union(*parts))
    assert whole == TurnSet.of(set().union(*parts))


def test_a_full_turn_set_stays_full_whatever_the_order() -> None:
    """Too many scattered turns empty the set for good, the same by every way of merging."""
    scattered = [TurnSet.of(range(at, at + 1024 * MOST_BLOCKS, 2048)) for at in (0, 512, 1024)]
    assert not any(part.full for part in scattered)
    first = TurnSet()
    for part in scattered:
        first.merge(part)
    last = TurnSet()
    last.merge(scattered[1])
    last.merge(scattered[2])
    scattered[0].merge(last)
    assert first == scattered[0] == TurnSet({}, full=True)


@settings(max_examples=100, deadline=None)
@given(rows(), st.integers(0, 40), st.integers(0, 40))
def test_full_turn_sets_keep_merging_associative(log: list[dict[str, Any]], i: int, j: int) -> None:
    """With room for very few turns, when a set overflows does not depend on how pieces were merged."""
    before, score.MOST_BLOCKS = score.MOST_BLOCKS, 2
    try:
        i, j = sorted((min(i, len(log)), min(j, len(log))))
        a, b, c = state_of(log[:i]), state_of(log[i:j]), state_of(log[j:])
        assert merged(merged(a, b), c).to_wire() == merged(a, merged(b, c)).to_wire() == state_of(log).to_wire()
    finally:
        score.MOST_BLOCKS = before


def test_the_state_of_a_long_log_is_small() -> None:
    """A hundred thousand rows of a few agents, one turn each, are some kilobytes."""
    state = CooperationState.zero()
    for at in range(0, 100_000, 10_000):
        log = [{"turn": n, "agent": f"a{n % 5}", "resources": {"stone": n % 7}} for n in range(at, at + 10_000)]
        state.merge(state_of(log))
    assert state.total_turns == 100_000
    assert len(state.to_wire()) < 40_000
