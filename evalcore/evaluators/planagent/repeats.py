"""Rows that repeat a Query ID and round: named with the line that had it first, and shown in the report."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import BinaryIO

from evalq.evalcore.contract.evaluator import Batch, InputResult, Outcome, without_result
from evalq.evalcore.errors import InputChanged
from evalq.evalcore.evaluators.planagent.answer import shortened
from evalq.evalcore.evaluators.planagent.gaps import NO_ROUNDS, QUERY
from evalq.evalcore.evaluators.planagent.packed_rows import kept_name
from evalq.evalcore.evaluators.planagent.pairs import Pairs
from evalq.evalcore.evaluators.planagent.params import PlanParams
from evalq.evalcore.evaluators.planagent.queries import Queries, Repeat
from evalq.evalcore.evaluators.planagent.record import READ
from evalq.evalcore.evaluators.planagent.state import PlanState
from evalq.evalcore.model.manifest import MAX_RECORD_BYTES
from evalq.evalcore.model.state import EXAMPLES, LISTED, Faults

__all__ = ["dead_row", "list_repeats", "settle_repeats"]

SHOWN_NAME = 80
_QUERY, _ROUND = 0, 1
_Row = tuple[int, str, str]
"""(line, Query ID, round)"""


def settle_repeats(state: PlanState, params: PlanParams, reopen: Callable[[], BinaryIO], scratch: Path) -> PlanState:
    """Find the lines of the first repeated rows where the state has none. Raises InputChanged."""
    queries = state.queries
    if queries.pairs is not None and queries.pairs.repeated:
        queries.found = _first_repeats(queries, queries.pairs, reopen)
    return state


def list_repeats(result: InputResult[PlanState], params: PlanParams) -> list[bytes]:
    """List the rows that repeat a Query ID and round, and the Query IDs that consistency leaves out."""
    queries = result.state.queries
    total, first = queries.repeats()
    listed = [
        (
            repeat.line,
            f"Query ID {_quoted(repeat.query)} repeats round {_quoted(repeat.round)} of line {repeat.first_line}",
        )
        for repeat in first
    ]
    result.tally.listed.merge(Faults(total, listed))
    queries.drop_lines(first)
    review = queries.review(len(result.state.rounds), params.pass_mark)
    apart = sorted({*review.short, *review.repeated})
    result.tally.left_out.add_all(QUERY, NO_ROUNDS, len(apart), ((0, query) for query in apart[:EXAMPLES]))
    return []


def dead_row(record: Batch, params: PlanParams, reason: str) -> Outcome[PlanState]:
    """A row without a result, which repeats no other."""
    return without_result(PlanState(queries=Queries(dead=[record.first_line])), record, reason)


def _quoted(text: str) -> str:
    return f'"{shortened(text, SHOWN_NAME)}"'


def _first_repeats(queries: Queries, pairs: Pairs, reopen: Callable[[], BinaryIO]) -> list[Repeat]:
    """The LISTED first: the input is read up to the last of them, once for them and once for the lines they repeat.

    Twice, because one reading would have to remember the line of every row that could be repeated.
    """
    dead = set(queries.dead)
    wanted = min(LISTED, pairs.repeated)
    seen = Pairs()
    found: list[_Row] = []
    with reopen() as stream:
        rows = _rows(stream, dead)
        while len(found) < wanted and (row := next(rows, None)) is not None:
            if pairs.has_repeats(row[1]) and seen.add(row[1], row[2]):
                found.append(row)
    sought = {row[1:] for row in found}
    first: dict[tuple[str, str], int] = {}
    with reopen() as stream:
        rows = _rows(stream, dead)
        while len(first) < len(sought) and (row := next(rows, None)) is not None:
            if row[1:] in sought:
                first.setdefault(row[1:], row[0])
    if len(found) < wanted or len(first) < len(sought):
        raise InputChanged("the input changed before its repeated rows could be found in it: start the run anew")
    return [Repeat(line, query, round_, first[query, round_]) for line, query, round_ in found]


def _rows(stream: BinaryIO, dead: set[int]) -> Iterator[_Row]:
    """All rows as they are scored, but the dead. The others were read before, so none of them is broken."""
    # Python's limit of 128 KiB a field is below what an answer's JSON may hold.
    csv.field_size_limit(MAX_RECORD_BYTES)
    # Line feeds alone end lines, as where the input was cut; a dead row's bytes need not be UTF-8.
    reader = csv.reader(io.TextIOWrapper(stream, "utf-8-sig", "replace", newline="\n"))
    columns: list[str] = []
    query = round_ = line = 0
    while True:
        line = reader.line_num + 1
        try:
            row = next(reader)
        except StopIteration:
            return
        except csv.Error:
            continue  # a dead row may be anything
        if not columns:
            if any(map(str.strip, row)):
                # Another file lies there now: too few repeats are then found, which says so.
                if not {*READ} <= {*row}:
                    return
                columns = row
                query, round_ = columns.index(READ[_QUERY]), columns.index(READ[_ROUND])
        elif any(map(str.strip, row)) and line not in dead and len(row) == len(columns):
            yield line, row[query].strip(), kept_name(row[round_].strip())
