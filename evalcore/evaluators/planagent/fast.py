"""Scoring one chunk of rows that compiled code has read: it says which rows count alike, and Python what they count.

A row that it leaves, and a chunk that it refuses, is scored by `score` as any other.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from types import ModuleType
from typing import Any

import msgspec

from evalq.evalcore.contract.evaluator import Batch, Outcome
from evalq.evalcore.evaluators.planagent.answer import Answer, plain_text, shortened
from evalq.evalcore.evaluators.planagent.checks import Check, Checklist, without_space
from evalq.evalcore.evaluators.planagent.params import KINDS, PlanParams
from evalq.evalcore.evaluators.planagent.queries import UNSCORED, pack_line, pack_rest
from evalq.evalcore.evaluators.planagent.record import READ, RecordLine
from evalq.evalcore.evaluators.planagent.rules import EMPTY
from evalq.evalcore.evaluators.planagent.score import NO_CHECK, NO_CHECKS, Chunk, encode_line, score_rows
from evalq.evalcore.evaluators.planagent.search import MAX_PATH, PLAIN
from evalq.evalcore.evaluators.planagent.state import PlanState
from evalq.evalcore.native import compiled

__all__ = ["add_rows", "evaluate_batch"]

_EMPTY, _UNSCORED = 1, 2  # as rows.c numbers them; 0 is judged
_BIT_ROOM = 60
_Found = tuple[tuple[int, str], ...]
_Told = tuple[str, str, str, int, int, str, _Found]


def evaluate_batch(batch: Batch, params: PlanParams) -> Outcome[PlanState]:
    """Score every row of ``batch``; malformed rows are fatal faults."""
    native = compiled()
    if native is not None and batch.columns:
        chunk = Chunk(batch, params)
        if add_rows(native, chunk, batch):
            return chunk.outcome()
    return score_rows(batch, params)


def add_rows(native: ModuleType, chunk: Chunk, batch: Batch) -> bool:
    """Add all rows of ``batch`` to ``chunk``; False, and ``chunk`` is of no use, where only Python should read them."""
    columns = tuple(map(batch.columns.index, READ))
    told = native.plan_rows(batch.data, batch.first_line, len(batch.columns), columns, _checks_for(chunk.checklist))
    if told is None:
        return False
    _add_all(chunk, *told)
    return True


def _checks_for(read: Callable[[str], Checklist | None]) -> Callable[[str], tuple[tuple[int, bytes, bool], ...] | None]:
    """A function from an expected result to its checks as `plan_rows` takes them; too many are none."""

    def checks(text: str) -> tuple[tuple[int, bytes, bool], ...] | None:
        checklist = read(text)
        if checklist is None:
            return None
        return tuple(map(_wanted, checklist.checks)) if len(checklist.checks) <= _BIT_ROOM else ()

    return checks


def _wanted(check: Check) -> tuple[int, bytes, bool]:
    want = without_space(check.want) if check.kind == "message" else check.want
    return KINDS.index(check.kind), want.encode(), PLAIN.fullmatch(check.want) is not None


class _Kind:
    """Rows that count alike but for their times, and what their lines have in common."""

    __slots__ = (
        "after",
        "before",
        "category",
        "checklist",
        "counts",
        "forms",
        "found",
        "passed",
        "rest",
        "round",
        "seconds",
        "state",
    )

    def __init__(self, chunk: Chunk, told: _Told) -> None:
        round_, self.category, expected, self.state, passed, self.forms, self.found = told
        self.round = round_.strip()
        self.checklist = chunk.checklist(expected)
        self.passed = passed if self.state == 0 else None
        self.counts: dict[int | None, int] = {}
        # Times of rows that have no score count nowhere.
        self.seconds = chunk.seconds.setdefault(self.round, []) if self.checklist is not None else []
        out = RecordLine("", "", self.round, "unscored", None, NO_CHECKS, None, NO_CHECK)
        if self.checklist is not None:
            out.status, out.checks = "scored", self.checklist.encoded(self.passed)
            out.score = 0 if self.passed is None else self.checklist.points[self.passed.bit_count()]
            out.reason = EMPTY if self.passed is None else msgspec.UNSET
        self.rest = pack_rest(self.round, UNSCORED if out.score is None else out.score)
        after = encode_line(out).partition(b'"id":""')[2]
        # "seconds" is the last key that any text could follow: what stands behind it is ours.
        self.before, _, after = after.rpartition(b'"seconds":null')
        self.before, self.after = self.before + b'"seconds":', after

    def add_to(self, chunk: Chunk) -> None:
        """Count the rows that have no more to say than this."""
        rows = sum(self.counts.values())
        if self.checklist is None:
            chunk.state.round(self.round).unscored += rows
            return
        if self.passed is None:
            chunk.state.forced[EMPTY] = chunk.state.forced.get(EMPTY, 0) + rows
        for points, count in self.counts.items():
            group = (self.round, self.category, self.checklist, self.passed, points, self.forms)
            chunk.groups[group] = chunk.groups.get(group, 0) + count
        self.add_found(chunk, rows)

    def add_found(self, chunk: Chunk, rows: int) -> None:
        """Count where missed values stand."""
        for kind, path in self.found:
            chunk.state.found_paths(KINDS[kind]).add(shortened(plain_text(path), MAX_PATH), [rows])


def _add_all(chunk: Chunk, rows: Iterable[tuple[int, int, Any, float | None, _Unusual]], groups: list[_Told]) -> None:
    kinds: list[_Kind | None] = [None] * len(groups)
    source = encode_line(f"{chunk.source}:")[:-1]
    points_of, queries, add_line = chunk.points, chunk.state.queries, chunk.lines.append
    stored = queries.rows
    for line, number, query, seconds, unusual in rows:
        if number < 0:
            chunk.add(line, query)
            continue
        kind = kinds[number]
        if kind is None:
            kind = kinds[number] = _Kind(chunk, groups[number])
        query = query.strip()
        if unusual is not None:
            _add_unusual(chunk, line, query, seconds, kind, unusual)
            continue
        points, time = None, b"null"
        if seconds is not None:
            points, time = points_of(seconds), encode_line(seconds)
            kind.seconds.append(seconds)
        kind.counts[points] = kind.counts.get(points, 0) + 1
        add_line(b'{"record":%b%d","id":%b%b%b%b' % (source, line, encode_line(query), kind.before, time, kind.after))
        packed = pack_line(line) + kind.rest
        if query in stored:
            queries.add(query, packed)
        else:
            stored[query] = packed
    for kind in kinds:
        if kind is not None and kind.counts:
            kind.add_to(chunk)


_Unusual = tuple[str, str | None, str, str, str]
"""The column of errors, the answer's own error, and the LLM columns."""


def _add_unusual(chunk: Chunk, line: int, query: str, seconds: float | None, kind: _Kind, told: _Unusual) -> None:
    """Score a row that may have an error, or a score by a language model."""
    column, error, *llm = told
    out = chunk.line(line, query, kind.round, seconds)
    if kind.checklist is not None:
        passed = kind.passed
        if chunk.has_error(column, Answer("", [], [], seconds, error), out):
            passed = None
        elif kind.state == _EMPTY:
            chunk.force(out, EMPTY, EMPTY)
        else:
            kind.add_found(chunk, 1)
        chunk.set_score(out, kind.category, kind.checklist, passed, kind.forms)
    chunk.finish(line, out, *llm)
