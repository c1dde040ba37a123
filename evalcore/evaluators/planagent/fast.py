"""Scoring one chunk of rows that compiled code has read: it says which rows count alike, and Python what they count.

A row that it leaves, and a chunk that it refuses, is scored by `score` as any other.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from types import ModuleType
from typing import Any

import msgspec

from evalq.evalcore.contract.evaluator import Batch, Outcome
from evalq.evalcore.evaluators.planagent.answer import Answer, plain_text, shortened
from evalq.evalcore.evaluators.planagent.checks import Check, Checklist, without_space
from evalq.evalcore.evaluators.planagent.counting import Group
from evalq.evalcore.evaluators.planagent.llm import read_llm_score
from evalq.evalcore.evaluators.planagent.params import KINDS, PlanParams
from evalq.evalcore.evaluators.planagent.queries import UNSCORED, pack_rest
from evalq.evalcore.evaluators.planagent.record import READ, RecordLine
from evalq.evalcore.evaluators.planagent.rules import EMPTY, UNPARSABLE
from evalq.evalcore.evaluators.planagent.score import NO_CHECK, NO_CHECKS, Chunk, encode_line, score_rows
from evalq.evalcore.evaluators.planagent.search import MAX_PATH, PLAIN
from evalq.evalcore.evaluators.planagent.state import PlanState
from evalq.evalcore.native import compiled

__all__ = ["add_rows", "evaluate_batch"]

# As the C has them.
_JUDGED = 0
_FORCED = {1: EMPTY, 2: UNPARSABLE}
_MAX_CHECKS = 60
_MAX_BANDS = 64

_SHORT = 400
_FEW = 4
"""Characters, and found paths, of a kind that is kept between chunks."""

_Wanted = tuple[tuple[int, bytes, bool], ...] | None
_Told = tuple[str, str, int, int, str, tuple[tuple[int, str], ...]]
"""What is told of a group: (round, category, state, passed checks, form types, ((kind, path), ...))."""


def evaluate_batch(batch: Batch, params: PlanParams) -> Outcome[PlanState]:
    """Score every row of ``batch``; malformed rows are fatal faults."""
    native = compiled()
    if native is not None and batch.columns and len(params.speed_bands) <= _MAX_BANDS:
        chunk = Chunk(batch, params)
        if add_rows(native, chunk, batch):
            return chunk.outcome()
    return score_rows(batch, params)


def add_rows(native: ModuleType, chunk: Chunk, batch: Batch) -> bool:
    """Add all rows of ``batch`` to ``chunk``; False, and ``chunk`` is of no use, where only Python should read them."""
    rows = _Rows(chunk)
    counts = native.plan_rows(
        batch.data,
        batch.first_line,
        len(batch.columns),
        tuple(map(batch.columns.index, READ)),
        encode_line(f"{batch.source}:")[1:-1],
        chunk.scale.limits,
        chunk.lines,
        chunk.state.queries.rows,
        rows.checks,
        rows.kind,
        rows.add,
        rows.llm,
        chunk.state.queries.add,
        encode_line,
    )
    if counts is None:
        return False
    points = (*chunk.scale.by_band, None)
    for kind, by_band in zip(rows.kinds, counts, strict=True):
        if by_band:
            kind.add_to(chunk, [(points[band], count) for band, count in by_band])
    return True


@lru_cache(maxsize=4096)
def _checks_of(checklist: Checklist) -> _Wanted:
    """As `plan_rows` takes checks; too many are none at all."""
    return tuple(map(_wanted, checklist.checks)) if len(checklist.checks) <= _MAX_CHECKS else ()


def _wanted(check: Check) -> tuple[int, bytes, bool]:
    want = without_space(check.want) if check.kind == "message" else check.want
    return KINDS.index(check.kind), want.encode(), PLAIN.fullmatch(check.want) is not None


class _Kind:
    """Rows that count alike but for their times: ``parts`` are what their lines and their packed rows have in common.

    ``parts`` is the line from the id's end to the time, the line from there to its last brace, and the packed row from
    its line's number on.
    """

    __slots__ = ("category", "checklist", "forms", "found", "group", "parts", "passed", "round", "score", "state")

    def __init__(self, checklist: Checklist | None, told: _Told) -> None:
        round_, self.category, self.state, passed, self.forms, found = told
        self.round = round_.strip()
        self.checklist = checklist
        self.passed = passed if self.state == _JUDGED else None
        self.found = [(KINDS[kind], shortened(plain_text(path), MAX_PATH)) for kind, path in found]
        out = RecordLine("", "", self.round, "unscored", None, NO_CHECKS, None, NO_CHECK)
        if self.checklist is not None:
            out.status, out.checks = "scored", self.checklist.encoded(self.passed)
            out.score = 0 if self.passed is None else self.checklist.points[self.passed.bit_count()]
            out.reason = _FORCED.get(self.state, msgspec.UNSET)
        line = encode_line(out).partition(b'"id":""')[2]
        # "seconds" is the last key but a reason, which is one of ours: no text of a row stands behind it.
        before, key, after = line.rpartition(b'"seconds":null')
        self.group: Group | None = None
        if checklist is not None:
            self.group = self.round, self.category, checklist, self.passed, self.forms
        rest = pack_rest(self.round, UNSCORED if out.score is None else out.score)
        self.score = out.score
        self.parts = before + key[: -len(b"null")], after[:-1], rest

    def add_to(self, chunk: Chunk, by_points: Sequence[tuple[int | None, int]]) -> None:
        """Count rows that have no more to say than this."""
        rows = sum([count for _, count in by_points])
        if self.group is None:
            chunk.state.round(self.round).unscored += rows
            return
        chunk.spread.add(self.group, by_points)
        if self.state != _JUDGED:
            reason = _FORCED[self.state]
            chunk.state.forced[reason] = chunk.state.forced.get(reason, 0) + rows
        elif self.found:
            self.add_found(chunk, rows)

    def add_found(self, chunk: Chunk, rows: int) -> None:
        """Count where missed values stand."""
        for kind, path in self.found:
            chunk.state.found_paths(kind).add(path, [rows])


_kind = lru_cache(maxsize=8192)(_Kind)
"""Chunks of one file mostly have the same kinds."""


_Unusual = tuple[str, str | None, bool, str, str, str]
"""The column of errors, the answer's own error and whether that is JSON, and the LLM columns."""


class _Rows:
    """What compiled code asks of Python while it reads a chunk's rows."""

    def __init__(self, chunk: Chunk) -> None:
        self._chunk = chunk
        self._checklists: list[Checklist | None] = []
        self.kinds: list[_Kind] = []

    def checks(self, expected: str) -> _Wanted:
        """The checks of an expected result, as `_checks_of` has them."""
        checklist = self._chunk.checklist(expected)
        self._checklists.append(checklist)
        return None if checklist is None else _checks_of(checklist)

    def kind(self, expected: int, told: _Told) -> tuple[bytes, bytes, bytes, list[float]]:
        """A group's `_Kind.parts`, and the list of its rows' times; those of rows without a score count nowhere."""
        # What is kept beyond this chunk is little, whatever stands in a row.
        known = _kind if sum(map(len, (told[0], told[1], told[4]))) <= _SHORT and len(told[5]) <= _FEW else _Kind
        kind = known(self._checklists[expected], told)
        self.kinds.append(kind)
        if kind.group is None:
            return *kind.parts, []
        return *kind.parts, self._chunk.seconds.setdefault(kind.round, [])

    def llm(self, number: int, score: str, state: str, comment: str) -> bytes:
        """What the LLM columns of a row of group ``number`` add to its line."""
        found = read_llm_score(score, state, comment)
        if found is None:
            return b""
        kind = self.kinds[number]
        if kind.score is not None:
            self._chunk.llm.setdefault(kind.round, []).append((kind.score, found.score))
        return b',"llm_score":' + encode_line(found)

    def add(self, line: int, number: int, what: Any, seconds: float | None, unusual: _Unusual) -> None:
        """A row that only Python reads (``what`` are its columns), or one of group ``number`` that may be an error."""
        chunk = self._chunk
        if number < 0:
            chunk.add(line, what)
            return
        kind = self.kinds[number]
        column, error, is_json, *llm = unusual
        out = chunk.line(line, what.strip(), kind.round, seconds)
        if kind.checklist is not None:
            passed = kind.passed
            value = msgspec.json.decode(error) if error is not None and is_json else error
            if chunk.has_error(column, Answer("", [], [], seconds, value), out):
                passed = None
            elif kind.state in _FORCED:
                chunk.force(out, _FORCED[kind.state], _FORCED[kind.state])
            else:
                kind.add_found(chunk, 1)
            chunk.set_score(out, kind.category, kind.checklist, passed, kind.forms)
        chunk.finish(line, out, *llm)
