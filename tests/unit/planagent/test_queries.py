"""Query IDs over their rounds: the same review and the same repeated rows, whether their lines are held or not."""

from __future__ import annotations

import csv
import gzip
import io
import tracemalloc
from functools import partial
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from evalq.evalcore.contract.evaluator import InputResult, Request, dead_outcome
from evalq.evalcore.errors import InputChanged
from evalq.evalcore.evaluators.planagent import PlanParams, PlanState, evaluator, queries
from evalq.evalcore.evaluators.planagent.evaluator import list_repeats, settle_repeats
from evalq.evalcore.evaluators.planagent.queries import UNSCORED, Queries, QueryReview, RoundPairs, pack_row
from evalq.evalcore.fold import evaluate_files
from evalq.evalcore.model.canonical import canonical_json
from evalq.evalcore.model.state import LISTED, Tally
from evalq.producer.folder.job import Job, RunOptions
from evalq.producer.run.backend import Backend
from evalq.producer.run.execute import carry_out
from evalq.workers.settings import Settings
from tests.unit.planagent.helpers import Row, answer, batch_of, evaluate, evaluation, row, to_csv
from tests.unit.planagent.strategies import csv_rows
from tests.unit.producer.quiet import QUIET

MARK = 3
Entry = tuple[str, str, int]
"""(Query ID, round, score)"""
entries = st.lists(
    st.tuples(st.sampled_from("abcd"), st.integers(1, 30).map(str), st.integers(0, 5) | st.just(UNSCORED)), max_size=60
)
cuts = st.lists(st.integers(0, 60), max_size=5)


def _gathered(rows: list[tuple[int, Entry]]) -> Queries:
    queries = Queries()
    for line, (query, round_, score) in rows:
        queries.add(query, pack_row(round_, score, line))
    queries.finish()
    return queries


def _wire(queries: Queries) -> bytes:
    return PlanState(queries=queries).to_wire()


def _reviewed(rows: list[Entry], rounds: int) -> QueryReview:
    """What a review says, by the specification, of rows in a list."""
    review = QueryReview()
    for query in sorted({query for query, _, _ in rows}):
        mine = [(round_, score) for of, round_, score in rows if of == query]
        present = {round_ for round_, _ in mine}
        passes = [score >= MARK for _, score in mine if score != UNSCORED]
        review.queries += 1
        review.incomplete += [query] if len(present) < max(rounds, 2) else []
        if len(present) < len(mine):
            review.repeated.append(query)
        elif len(passes) < 2:
            review.short.append(query)
        else:
            review.compared += 1
            review.both_pass += all(passes)
            review.both_fail += not any(passes)
    return review


@settings(max_examples=150)
@given(entries, cuts, st.integers(0, 400), st.integers(16, 100), st.integers(1, 40))
def test_rows_merge_alike_however_cut(
    rows: list[Entry], places: list[int], held_bytes: int, most: int, block: int
) -> None:
    """State, review and number of repeated rows are those of all rows at once, in any grouping, for any limits."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(queries, "MAX_BYTES", held_bytes)
        patch.setattr(queries, "MAX_QUERY_BYTES", most)
        patch.setattr(queries, "BLOCK", block)
        numbered = list(enumerate(rows, start=2))
        ends = [0, *sorted(min(place, len(rows)) for place in places), len(rows)]
        parts = [_gathered(numbered[start:end]) for start, end in pairwise(ends)]
        wires = [_wire(part) for part in parts]
        whole = _gathered(numbered)

        def merged(some: list[bytes]) -> Queries:
            total = PlanState.zero()
            for wire in some:
                total.merge(PlanState.from_wire(wire))
            return PlanState.from_wire(total.to_wire()).queries

        left = merged(wires)
        grouped = merged(wires[:2])
        grouped.merge(merged(wires[2:]))
        assert _wire(left) == _wire(grouped) == _wire(whole)
        rounds = len({round_ for _, round_, _ in rows})
        wanted = _reviewed(rows, rounds)
        assert left.review(rounds, MARK) == grouped.review(rounds, MARK) == wanted
        assert left.repeats()[0] == len(rows) - len({row[:2] for row in rows})


@pytest.mark.parametrize("limits", [(0, 1 << 14), (1 << 24, 32), (300, 100)], ids=["none", "one Query ID", "rows"])
def test_a_repeated_row_is_named_with_both_lines(
    limits: tuple[int, int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever makes a state give up its rows' lines: all of one Query ID's, or too many of all."""
    rows = [row(f"q{i % 3}", f"{i % 4}/1") for i in range(30)]
    wanted = evaluation(tmp_path, rows, chunk_size=7).report
    monkeypatch.setattr(queries, "MAX_BYTES", limits[0])
    monkeypatch.setattr(queries, "MAX_QUERY_BYTES", limits[1])
    report = evaluation(tmp_path, rows, chunk_size=7).report
    assert len(report["faults"]) == 30 - 12
    assert report["faults"][0] == {"where": "plan.csv:14", "reason": 'Query ID "q0" repeats round "0/1" of line 2'}
    assert report == wanted


@settings(max_examples=30, deadline=None)
@given(st.lists(csv_rows, min_size=1, max_size=14), st.integers(1, 5), st.integers(0, 300))
def test_reports_are_the_same_bytes_with_and_without_lines(
    tmp_path_factory: pytest.TempPathFactory, rows: list[Row], size: int, held_bytes: int
) -> None:
    """Whatever the rows hold, broken and repeated ones included."""
    folder = tmp_path_factory.mktemp("plan")
    wanted = evaluation(folder, rows, chunk_size=size)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(queries, "MAX_BYTES", held_bytes)
        patch.setattr(queries, "BLOCK", 2)
        got = evaluation(folder, rows, chunk_size=size)
    assert canonical_json(got.report) == canonical_json(wanted.report)
    assert got.lines == wanted.lines


@pytest.mark.parametrize("start", [b"", b"\xef\xbb\xbf", b"\n  \n"])
@pytest.mark.parametrize("newline", [b"\n", b"\r\n", b"\n\n", b"\r\n\r\n"])
def test_repeated_rows_are_found_in_any_file_that_is_read(
    start: bytes, newline: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A byte order mark, blank lines, either newline, and fields of several lines: lines are counted as a run does."""
    rows = [row(f"q{i % 2}", " 1/1 ", raw='{"a":\x01"b"}' if i % 3 else "{}") for i in range(7)]
    data = to_csv(rows).encode().replace(b"\n", newline).replace(b"\x01", b"\r\n\n")
    path = tmp_path / "plan.csv"
    path.write_bytes(start + data)
    wanted = evaluate_files(evaluator, [path], chunk_size=2)
    monkeypatch.setattr(queries, "MAX_BYTES", 0)
    got = evaluate_files(evaluator, [path], chunk_size=3)
    assert len(got.report["faults"]) == 5
    assert canonical_json(got.report) == canonical_json(wanted.report)


@pytest.mark.parametrize("limit", [None, 30], ids=["all rows", "some rows"])
def test_repeated_rows_of_a_run_are_found_in_its_inputs(
    limit: int | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In a packed one and in the second of two; and not behind the rows at which the run had to stop."""
    data = to_csv([row(f"q{i % 4}", f"{i % 6}/1") for i in range(60)]).encode()
    (tmp_path / "a.csv.gz").write_bytes(gzip.compress(data))
    (tmp_path / "b.csv").write_bytes(data)
    reports = []
    for held in (1 << 24, 0):
        monkeypatch.setattr(queries, "MAX_BYTES", held)
        asked = Request([str(tmp_path / name) for name in ("a.csv.gz", "b.csv")], {}, {})
        job = Job.start(evaluator, asked, RunOptions(out=tmp_path / f"run{held}", chunk_size=7, limit=limit))
        carry_out(job, Backend(Settings(), inline=True), QUIET)
        reports.append(job.folder.report())
    assert reports[0] == reports[1]
    assert len(reports[0]["faults"]) == (2 * (60 - 12) if limit is None else 30 - 12)


def test_a_dead_row_repeats_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    """A row without a result is neither a repeat nor repeated, also where lines are looked up in the input."""
    rows = [row("q"), row("q"), row("q")]
    found = []
    for limit in (1 << 24, 0):
        monkeypatch.setattr(queries, "MAX_BYTES", limit)
        state = dead_outcome(evaluator, batch_of(rows[:1]), PlanParams(), "killed").state
        state.merge(evaluator.evaluate(batch_of(rows[1:], 3), PlanParams()).state)
        state = PlanState.from_wire(state.to_wire())
        settled = settle_repeats(state, PlanParams(), lambda: io.BytesIO(to_csv(rows).encode()), Path())
        result = InputResult("plan.csv", "plan.csv", settled, Tally())
        list_repeats(result, PlanParams())
        found.append(result.tally.listed.first)
    assert found == [[(4, 'Query ID "q" repeats round "1/1" of line 3')]] * 2


def test_repeats_among_long_rows_are_found_by_a_process_that_has_read_none(monkeypatch: pytest.MonkeyPatch) -> None:
    """An answer may be longer than Python's `csv` takes by itself, and another process may have evaluated it."""
    monkeypatch.setattr(queries, "MAX_BYTES", 0)
    rows = [row("q", raw=answer("x" * 200_000)), row("p"), row("q")]
    state = evaluate(rows).state
    csv.field_size_limit(131_072)
    settled = settle_repeats(state, PlanParams(), lambda: io.BytesIO(to_csv(rows).encode()), Path())
    (repeat,) = settled.queries.repeats()[1]
    assert (repeat.line, repeat.first_line) == (4, 2)


def test_an_input_that_changed_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows that are to be named and are no longer there: an error, not a report without them."""
    monkeypatch.setattr(queries, "MAX_BYTES", 0)
    rows = [row("q"), row("q")]
    state = evaluate(rows).state
    for text in ("", "a,b\n1,2\n", to_csv([row("q"), row("p")])):
        reopen = partial(io.BytesIO, text.encode())
        with pytest.raises(InputChanged, match="start the run again"):
            settle_repeats(state, PlanParams(), reopen, Path())


def test_the_first_repeats_are_listed_and_all_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a file that was written twice in a row; the input is read no further than to the last one that is listed."""
    monkeypatch.setattr(queries, "MAX_BYTES", 0)
    rows = [row(f"q{i}") for i in range(3 * LISTED)] * 2
    state = evaluate(rows).state
    data = to_csv(rows).encode()
    counted: list[int] = []

    class Counting(io.BytesIO):
        def close(self) -> None:
            counted.append(self.tell())
            super().close()

    settled = settle_repeats(state, PlanParams(), lambda: Counting(data), Path())
    total, found = settled.queries.repeats()
    assert total == 3 * LISTED
    assert [(repeat.line, repeat.first_line) for repeat in found] == [
        (2 + 3 * LISTED + i, 2 + i) for i in range(LISTED)
    ]
    assert len(counted) == 2
    assert max(counted) < 0.75 * len(data)


def test_a_query_of_thousands_of_rows_is_compared_over_all_of_them() -> None:
    """Rows without a Query ID share the empty one: of different rounds they are a Query ID with many rounds."""
    state = evaluate([row(query="", round_=f"{i}/1") for i in range(2500)]).state
    assert state.queries.review(2500, MARK) == QueryReview(1, 1, 0, 1)
    assert len(state.to_wire()) < 2500 * 700  # nearly all of it the rounds' own numbers


def test_millions_of_rows_fit_in_little_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """Query IDs take a fixed number of bytes each; a further round takes a bit of each, and its name."""
    monkeypatch.setattr(queries, "MAX_BYTES", 0)
    names = [f"b392f4ab-d0e9-4edf-b637-{i:012x}" for i in range(400)]
    held = Queries()
    sizes = []
    tracemalloc.start()
    for round_ in range(200):
        part = Queries({name: pack_row(f"{round_}/1", round_ % 6, 3_000_000_000) for name in names})
        part.finish()
        held.merge(part)
        if round_ in (9, 199):
            sizes.append(tracemalloc.get_traced_memory()[0])
    tracemalloc.stop()
    assert sizes[0] < 250 * len(names)
    assert sizes[1] - sizes[0] < 30 * len(names) + 190 * 100


def test_a_query_id_with_few_rounds_of_very_many_takes_few_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each row of another round: no bitmap is longer than its block."""
    monkeypatch.setattr(queries, "MAX_BYTES", 0)
    some = RoundPairs()
    some.take({f"q{i}": pack_row(f"{i}/1", 3, i) for i in range(5000)})
    assert max(len(value) for block in some.blocks for value in block.values()) <= queries.BLOCK // 8 + 1
    assert some.review(5000, MARK).short == sorted(f"q{i}" for i in range(5000))


def test_a_review_looks_at_no_block_for_each_query_id(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each row of another Query ID and round, as where rounds are times: it had looked for each in each block."""
    looks: list[object] = []

    class Counting(dict[str, bytes]):
        def __contains__(self, query: object) -> bool:
            looks.append(query)
            return super().__contains__(query)

    monkeypatch.setattr(queries, "BLOCK", 4)
    some = RoundPairs()
    some.take({f"q{i}": pack_row(f"{i}/1", 3, i) for i in range(200)})
    some.add("q0", "199/1")
    some.blocks = [Counting(block) for block in some.blocks]
    review = some.review(2, MARK)
    assert len(some.blocks) == 50
    assert len(looks) <= 2 * 200
    assert review.incomplete == sorted(f"q{i}" for i in range(1, 200))
