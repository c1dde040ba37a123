"""Scoring one chunk with compiled code: it groups equal rows, and Python scores each group.

`chunk` scores the rows that compiled code leaves, and the chunks that it refuses.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from types import ModuleType

import msgspec

from evalq.evalcore.contract.evaluator import Batch, Outcome
from evalq.evalcore.evaluators.planagent.chunk import (
    NO_CHECK,
    NO_CHECKS,
    ChunkScores,
    RowGroup,
    encode_line,
    score_rows,
)
from evalq.evalcore.evaluators.planagent.params import KINDS, PlanParams
from evalq.evalcore.evaluators.planagent.queries import UNSCORED, pack_rest
from evalq.evalcore.evaluators.planagent.record import (
    READ,
    PlanAnswer,
    RecordLine,
    llm_accuracy,
    plain_text,
    read_llm_score,
    shortened,
)
from evalq.evalcore.evaluators.planagent.report import PlanState
from evalq.evalcore.evaluators.planagent.score import (
    EMPTY,
    ERROR,
    MAX_PATH,
    PLAIN,
    UNPARSABLE,
    Checklist,
    PlanCheck,
    without_space,
)
from evalq.evalcore.native import compiled

# As in the C code.
_FORCED = {1: EMPTY, 2: UNPARSABLE}
_MAX_CHECKS = 60
_MAX_BANDS = 64
_MAX_WIDTH = 4096

_SHORT = 400
_FEW = 4
"""The most characters, and paths, of a kind that is kept between chunks."""

_CompiledChecks = tuple[tuple[int, bytes, bool], ...] | None
_CompiledGroup = tuple[str, str, int, int, str, tuple[tuple[int, str], ...]]
"""A group of compiled code: (round, category, state, passed checks, form types, ((kind, path), ...))."""


def evaluate_batch(batch: Batch, params: PlanParams) -> Outcome[PlanState]:
    """Score every row of ``batch``; malformed rows are fatal faults."""
    native = compiled()
    fits = 0 < len(batch.columns) <= _MAX_WIDTH and len(params.speed_bands) <= _MAX_BANDS
    if native is not None and fits:
        chunk = ChunkScores(batch, params)
        if add_rows(native, chunk, batch):
            return chunk.outcome()
    return score_rows(batch, params)


def add_rows(native: ModuleType, chunk: ChunkScores, batch: Batch) -> bool:
    """Add all rows of ``batch`` to ``chunk``. If False, Python must read them, into another ``chunk``."""
    rows = _Callbacks(chunk)
    counts = native.plan_rows(
        batch.data,
        batch.first_line,
        len(batch.columns),
        tuple(map(batch.columns.index, READ)),
        # As in JSON, without quotes: compiled code appends line numbers.
        encode_line(f"{batch.source}:")[1:-1],
        chunk.scale.limits,
        chunk.lines,
        chunk.state.queries.rows,
        rows.checks,
        rows.error,
        rows.kind,
        chunk.add,
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
def _checks_of(checklist: Checklist) -> _CompiledChecks:
    """The checks for `plan_rows`; none if they are too many, which leaves the row to Python."""
    # Compiled code keeps the passed checks of a row in the bits of one 64-bit number.
    return tuple(map(_compiled_check, checklist.checks)) if len(checklist.checks) <= _MAX_CHECKS else ()


def _compiled_check(check: PlanCheck) -> tuple[int, bytes, bool]:
    want = without_space(check.want) if check.kind == "message" else check.want
    return KINDS.index(check.kind), want.encode(), PLAIN.fullmatch(check.want) is not None


class _RowKind:
    """Rows that are equal except for their times.

    ``parts`` are the parts that they share: their line from the id's end to the time, from there to the last brace, and
    their packed row after its line number.
    """

    __slots__ = ("checklist", "error", "forced", "group", "parts", "paths", "round", "score")

    def __init__(self, checklist: Checklist, group: _CompiledGroup, error: str | None) -> None:
        round_, category, state, judged, forms, paths = group
        self.round = round_.strip()
        self.error = error
        self.forced = _FORCED.get(state) if error is None else ERROR
        passed = judged if self.forced is None else None
        self.paths = [(KINDS[kind], shortened(plain_text(path), MAX_PATH)) for kind, path in paths]
        # Encoded as in `chunk`, and cut where rows differ: the bytes are the same from both.
        self.checklist = checklist
        out = RecordLine("", "", self.round, "unscored", None, NO_CHECKS, reason=NO_CHECK)
        if checklist.unread:
            out.unread = checklist.unread
        if checklist.checks:
            out.status, out.checks = "scored", checklist.encoded(passed)
            out.score = 0 if passed is None else checklist.points[passed.bit_count()]
            out.reason = self.forced or msgspec.UNSET
            if error is not None:
                out.reason = f"{ERROR}: {error}"
        line = encode_line(out).partition(b'"id":""')[2]
        # "seconds" is the last key but a reason, and a reason's quotes have backslashes.
        before, key, after = line.rpartition(b'"seconds":null')
        self.group: RowGroup | None = None
        if checklist.checks:
            self.group = self.round, category, checklist, passed, forms
        rest = pack_rest(self.round, UNSCORED if out.score is None else out.score)
        self.score = out.score
        self.parts = before + key[: -len(b"null")], after[:-1], rest

    def add_to(self, chunk: ChunkScores, by_points: Sequence[tuple[int | None, int]]) -> None:
        """Count rows of this kind."""
        rows = sum([count for _, count in by_points])
        chunk.gaps.count(self.checklist, rows)
        if self.group is None:
            chunk.state.round(self.round).unscored += rows
            return
        chunk.counts.add(self.group, by_points)
        if self.error is not None:
            chunk.state.errors.add(chunk.errors.pattern(self.error), [rows])
        if self.forced is not None:
            chunk.state.forced[self.forced] = chunk.state.forced.get(self.forced, 0) + rows
            return
        for kind, path in self.paths:
            chunk.state.found_paths(kind).add(path, [rows])


_cached_kind = lru_cache(maxsize=8192)(_RowKind)
"""A cache, since chunks of one file mostly have the same kinds."""


class _Callbacks:
    """The functions that compiled code calls while it reads a chunk's rows."""

    def __init__(self, chunk: ChunkScores) -> None:
        self._chunk = chunk
        self._checklists: list[Checklist] = []
        self._errors: list[str | None] = [None]
        self.kinds: list[_RowKind] = []

    def checks(self, expected: str, line: int) -> _CompiledChecks:
        """The checks of an expected result for compiled code; ``line`` is the first with this result."""
        checklist = self._chunk.checklist(expected)
        self._checklists.append(checklist)
        self._chunk.gaps.note(line, expected, checklist)
        return _checks_of(checklist) if checklist.checks else None

    def error(self, column: str, error: str | None, is_json: bool) -> bool:
        """Whether a row with this column and this answer's error has an error; `kind` gets its number."""
        value = msgspec.json.decode(error) if error is not None and is_json else error
        text = self._chunk.errors.find(column, PlanAnswer("", [], [], None, value))
        self._errors.append(text)
        return text is not None

    def kind(self, expected: int, group: _CompiledGroup, wrong: int) -> tuple[bytes, bytes, bytes, list[float]]:
        """A group's `_RowKind.parts`, and the list for its rows' times, which is dropped for rows without a score."""
        error = self._errors[wrong]
        # Only short kinds are cached, so that long rows do not fill memory.
        length = sum(map(len, (group[0], group[1], group[4], error or "")))
        make = _cached_kind if length <= _SHORT and len(group[5]) <= _FEW else _RowKind
        kind = make(self._checklists[expected], group, error)
        self.kinds.append(kind)
        if kind.group is None:
            return *kind.parts, []
        return *kind.parts, self._chunk.seconds.setdefault(kind.round, [])

    def llm(self, number: int, score: str, state: str, comment: str) -> bytes:
        """The addition of the LLM columns to the line of a row of group ``number``."""
        llm = read_llm_score(score, state, comment)
        if llm is None:
            return b""
        kind, added = self.kinds[number], b',"llm_score":' + encode_line(llm)
        if kind.score is None:
            return added
        self._chunk.llm.setdefault(kind.round, []).append((kind.score, llm.score))
        accuracy = llm_accuracy(llm, self._chunk.params.rules)
        return added if accuracy is msgspec.UNSET else added + b',"accuracy":' + encode_line(accuracy)
