"""State that merges: tables, packed Query IDs, and their size."""

from __future__ import annotations

import tracemalloc
from collections import Counter
from itertools import pairwise

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from evalq.evalcore.evaluators.planagent import PlanParams, PlanState, evaluator
from evalq.evalcore.evaluators.planagent import queries as packing
from evalq.evalcore.evaluators.planagent import tables as counting
from evalq.evalcore.evaluators.planagent.queries import UNSCORED, Queries, Repeat, pack_row, unpack_rows
from evalq.evalcore.evaluators.planagent.tables import Table
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


@given(
    st.lists(st.tuples(st.sampled_from("abc"), st.integers(1, 9)), min_size=15, max_size=60),
    st.lists(st.integers(0, 60), max_size=4),
)
@settings(max_examples=60)
def test_queries_merge_alike_however_cut(rows: list[tuple[str, int]], cuts: list[int]) -> None:
    """Also beyond the bytes that are kept of one Query ID, here lowered to five rows or so."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(packing, "MAX_BYTES", 55)
        packed = [(query, pack_row(f"{round_}/1", 3, line)) for line, (query, round_) in enumerate(rows)]
        whole = _gathered(packed)
        merged = Queries()
        places = [0, *sorted(min(cut, len(packed)) for cut in cuts), len(packed)]
        for start, end in pairwise(places):
            merged.merge(_gathered(packed[start:end]))
        assert _wire(merged) == _wire(whole)
        total = sum(len(list(unpack_rows(kept))) for kept in whole.rows.values()) + sum(whole.dropped.values())
        assert total == len(rows)


def _gathered(packed: list[tuple[str, bytes]]) -> Queries:
    queries = Queries()
    for query, entry in packed:
        queries.add(query, entry)
    return queries


def test_repeats_name_the_first_line_of_each_round() -> None:
    """A third row of a round points at the first one too, other rounds are not touched."""
    queries = _gathered([("a", pack_row(name, 3, line)) for line, name in enumerate(["1", "2", "1", "1"], start=10)])
    assert list(queries.repeats()) == [Repeat("a", "1", 12, 10), Repeat("a", "1", 13, 10)]


def test_a_query_of_thousands_of_rows_is_bounded_and_reported() -> None:
    """Rows without a Query ID share the empty one; they cost bounded memory and are a fault, not a crash."""
    outcome = evaluate([row(query="", round_=f"{i}/1") for i in range(2500)])
    queries = outcome.state.queries
    assert len(queries.rows[""]) < 2 * packing.MAX_BYTES
    assert len(list(unpack_rows(queries.rows[""]))) + queries.dropped[""] == 2500
    assert queries.review(2500, 3).repeated == [""]


def test_a_million_rows_fit_in_little_memory() -> None:
    """Query IDs of five rounds take under 80 bytes a row, so a million rows stay well below 100 MB."""
    queries = Queries()
    tracemalloc.start()
    for round_ in range(1, 6):
        for i in range(2000):
            queries.merge(_gathered([(f"b392f4ab-d0e9-4edf-b637-{i:012x}", pack_row(f"{round_}/1", 3, 3_000_000_000))]))
    held, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert held / 10_000 < 80


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
