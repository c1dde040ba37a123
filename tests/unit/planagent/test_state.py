"""State that merges: tables, packed Query IDs, and their size."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from evalq.evalcore.evaluators.planagent import PlanParams, PlanState, evaluator
from evalq.evalcore.evaluators.planagent.queries import UNSCORED, Queries, RepeatedRow, pack_row, unpack_rows
from evalq.evalcore.model import state as counting
from evalq.evalcore.model.state import Table
from tests.unit.planagent.helpers import batch_of, evaluate, row

entries = st.tuples(st.text(max_size=12), st.integers(0, 5) | st.just(UNSCORED), st.integers(1, (1 << 40) - 1))


def _wire(value: msgspec.Struct) -> bytes:
    return msgspec.json.encode(value, order="deterministic")


@given(st.lists(entries, max_size=8))
def test_packed_rows_come_back_as_they_were(rows: list[tuple[str, int, int]]) -> None:
    """Round, score and line, in order, whatever the round is called."""
    assert list(unpack_rows(b"".join(pack_row(*entry) for entry in rows))) == rows


def test_a_round_of_endless_name_is_cut_and_not_fatal() -> None:
    """Names beyond 64 KB keep their beginning, even where the cut goes through a character."""
    ((name, score, line),) = unpack_rows(pack_row("가" * 30_000, 4, 7))
    assert (score, line) == (4, 7)
    assert name.startswith("가" * 20_000)


def _gathered(packed: list[tuple[str, bytes]]) -> Queries:
    queries = Queries()
    for query, entry in packed:
        queries.add(query, entry)
    queries.finish()
    return queries


def test_repeats_name_the_first_line_of_each_round() -> None:
    """A third row of a round points at the first one too, other rounds are not touched."""
    queries = _gathered([("a", pack_row(name, 3, line)) for line, name in enumerate(["1", "2", "1", "1"], start=10)])
    assert queries.repeats() == (2, [RepeatedRow(12, "a", "1", 10), RepeatedRow(13, "a", "1", 10)])


@given(
    st.lists(st.tuples(st.sampled_from("abcdefgh"), st.integers(1, 5)), min_size=20, max_size=60),
    st.lists(st.integers(0, 60), max_size=4),
)
@settings(max_examples=100)
def test_tables_merge_alike_however_cut(rows: list[tuple[str, int]], cuts: list[int]) -> None:
    """With more texts than are kept, those kept have exact counts, and the sum is of all."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(counting, "KEPT", 3)
        whole, merged = Table(), Table()
        for text, count in rows:
            whole.add(text, [count, 1])
        places = [0, *sorted(min(cut, len(rows)) for cut in cuts), len(rows)]
        for start, end in pairwise(places):
            part = Table()
            for text, count in rows[start:end]:
                part.add(text, [count, 1])
            part.trim()
            merged.merge(msgspec.json.decode(_wire(part), type=Table))
        whole.trim()
        merged.trim()
        assert _wire(merged) == _wire(whole)
        exact: Counter[str] = Counter()
        for text, count in rows:
            exact[text] += count
        assert len(whole.counts) == min(3, len(exact))
        assert all(counts[0] == exact[text] for text, counts in whole.counts.items())
        assert whole.sum() == sum(exact.values())


def test_a_state_with_too_many_texts_is_trimmed_on_the_wire() -> None:
    """In memory tables may run over for a while; the bytes are the same as those of a state that never did."""
    rows = [row(f"q{i}", category=f"c{i}", error=f"오류 {chr(0xAC00 + i)}") for i in range(6)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(counting, "KEPT", 4)
        whole, merged = evaluate(rows).state, PlanState.zero()
        for i, one in enumerate(rows):
            merged.merge(PlanState.from_wire(evaluator.evaluate(batch_of([one], 2 + i), PlanParams()).state.to_wire()))
        assert len(merged.errors.counts) == 6
        assert merged.to_wire() == whole.to_wire()
        assert len(merged.errors.counts) == len(merged.categories.counts) == 4
        assert merged.errors.sum() == 6


def test_top_orders_by_count_then_text_and_leaves_out_zeros() -> None:
    """Ties are alphabetical, so that the report is the same bytes."""
    table = Table()
    for text, counts in (("b", [2, 0]), ("a", [2, 1]), ("c", [5, 0])):
        table.add(text, counts)
    assert table.top(2) == [("c", [5, 0]), ("a", [2, 1])]
    assert table.top(9, by=1) == [("a", [2, 1])]


def test_the_empty_state_is_neutral_on_both_sides() -> None:
    """Merging nothing, before or behind, changes no byte."""
    state = evaluate([row("a"), row("b", raw="{", llm="3")]).state
    wire = state.to_wire()
    state.merge(PlanState.zero())
    before = PlanState.zero()
    before.merge(PlanState.from_wire(wire))
    assert state.to_wire() == before.to_wire() == wire


def test_merging_costs_as_much_as_what_comes_in() -> None:
    """A big state is not looked through for a small one: dictionaries are updated in place, never rebuilt."""
    big = evaluate([row(f"q{i}", f"{i % 5}/1") for i in range(500)]).state
    held = (id(big.rounds), id(big.queries.rows), id(big.misses.counts), id(big.sets.counts))
    big.merge(evaluate([row("new")]).state)
    assert held == (id(big.rounds), id(big.queries.rows), id(big.misses.counts), id(big.sets.counts))


def test_a_state_of_another_shape_is_refused() -> None:
    """The wire is typed: what is no state is an error, not a wrong number."""
    with pytest.raises(msgspec.ValidationError):
        PlanState.from_wire(b'{"rounds": {"1/1": "three"}}')
