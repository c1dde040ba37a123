"""Scoring the rows of a chunk: the reference, and the code for rows that compiled code leaves to Python."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from operator import itemgetter
from typing import Any

import msgspec

from evalq.evalcore.contract.evaluator import Batch, Outcome, Tally
from evalq.evalcore.evaluators.planagent.params import PlanParams
from evalq.evalcore.evaluators.planagent.queries import UNSCORED, pack_row
from evalq.evalcore.evaluators.planagent.record import (
    READ,
    LlmAgreement,
    PlanAnswer,
    RecordLine,
    llm_accuracy,
    plain_text,
    read_answer,
    read_llm_score,
    shortened,
)
from evalq.evalcore.evaluators.planagent.report import PlanState, RoundStats
from evalq.evalcore.evaluators.planagent.score import (
    EMPTY,
    ERROR,
    UNPARSABLE,
    Checklist,
    ErrorTexts,
    SpeedScale,
    checklist_reader,
    paths_of_missed,
)
from evalq.evalcore.model.state import EXAMPLES, LeftOut
from evalq.evalcore.records.inputs import CELL_UNITS, fills_cell
from evalq.evalcore.statistics.exact import ExactSum

NO_CHECKS = msgspec.Raw(b"[]")
RowText = tuple[str, str, str, str, str, str, str, str, str]
"""The columns `READ` of a row."""
encode_line = msgspec.json.Encoder().encode
RowGroup = tuple[str, str, Checklist, int | None, str]
"""(round, category, checklist, passed checks, the answer's form types); passed checks are None if none were judged."""

_MAX_NAME = 160
"""Characters of a category, or of form types, that are kept."""


def score_rows(batch: Batch, params: PlanParams) -> Outcome[PlanState]:
    """Score every row of ``batch``; malformed rows are fatal faults."""
    chunk = ChunkScores(batch, params)
    fields: Callable[[Sequence[str]], Any] = itemgetter(*map(batch.columns.index, READ)) if batch.columns else tuple
    for line, row in batch.rows(chunk.fault):
        chunk.gaps.note_cuts(line, row, batch.columns)
        chunk.add(line, fields(row))
    return chunk.outcome()


class ChunkScores:
    """Collects the rows of one chunk: it counts equal rows in groups, and adds the groups to the state at the end."""

    def __init__(self, batch: Batch, params: PlanParams) -> None:
        self.source = batch.source
        self.params = params
        self.checklist = checklist_reader(params)
        self.scale = SpeedScale(params.speed_bands)
        self.state = PlanState()
        self.lines: list[bytes] = []
        self.counts = _GroupCounts(self.state, params)
        self._groups: dict[RowGroup, dict[int | None, int]] = {}
        self.seconds: dict[str, list[float]] = {}
        self.errors = ErrorTexts.of(params)
        self._tally = Tally()
        self.gaps = _Gaps()
        self.llm: dict[str, list[tuple[int, float | None]]] = {}

    def fault(self, line: int, reason: str) -> None:
        """Note a row that cannot be read."""
        self._tally.errors += 1
        self._tally.fatal.add(line, reason)

    def add(self, line: int, row: RowText) -> None:
        """Score one row."""
        query, round_, expected, category, error, raw, *llm = row
        answer = read_answer(raw)
        seconds = None if answer is None else answer.seconds
        out = self._unscored_line(line, query.strip(), round_.strip(), seconds)
        checklist = self.checklist(expected)
        self.gaps.note(line, expected, checklist)
        self.gaps.count(checklist, 1)
        if checklist.unread:
            out.unread = checklist.unread
        if checklist.checks:
            passed = self._judge(checklist, raw, answer, error, out)
            self._set_score(out, category, checklist, passed, "" if answer is None else answer.forms)
        self._add_line(line, out, *llm)

    def _unscored_line(self, line: int, query: str, round_: str, seconds: float | None) -> RecordLine:
        """The line of a row without checks. It is unscored, which is not 0 points: it is in no average."""
        name = f"{self.source}:{line}"
        return RecordLine(name, query, round_, "unscored", None, NO_CHECKS, seconds=seconds, reason=NO_CHECK)

    def _set_score(self, out: RecordLine, category: str, checklist: Checklist, passed: int | None, forms: str) -> None:
        """Score ``out`` by the ``passed`` checks; None: an error, an unparsable or an empty answer, which is 0."""
        out.status = "scored"
        out.score = 0 if passed is None else checklist.points[passed.bit_count()]
        out.checks = checklist.encoded(passed)
        if passed is not None:
            out.reason = msgspec.UNSET
        # The time of an unscored row is in no mean (SPEC, section 4).
        points = None
        if out.seconds is not None:
            points = self.scale.points(out.seconds)
            self.seconds.setdefault(out.round, []).append(out.seconds)
        # Most rows of a chunk are equal: each group updates the state's many counters once.
        counts = self._groups.setdefault((out.round, category, checklist, passed, forms), {})
        counts[points] = counts.get(points, 0) + 1

    def _add_line(self, line: int, out: RecordLine, llm_text: str, llm_state: str, llm_comment: str) -> None:
        """Add the line of a row, with its LLM score if it has one."""
        if out.score is None:
            self.state.round(out.round).unscored += 1
        if llm_text and (llm := read_llm_score(llm_text, llm_state, llm_comment)) is not None:
            out.llm_score = llm
            if out.score is not None:
                out.accuracy = llm_accuracy(llm, self.params.rules)
                self.llm.setdefault(out.round, []).append((out.score, llm.score))
        self.lines.append(encode_line(out))
        self.state.queries.add(out.id, pack_row(out.round, UNSCORED if out.score is None else out.score, line))

    def _has_error(self, column: str, answer: PlanAnswer | None, out: RecordLine) -> bool:
        """Whether the row has an error; if so, count it and make it the line's reason."""
        text = self.errors.find(column, answer)
        if text is None:
            return False
        self.state.errors.add(self.errors.pattern(text), [1])
        self._force(out, ERROR, f"{ERROR}: {text}")
        return True

    def _force(self, out: RecordLine, kind: str, reason: str) -> None:
        """Score the row 0 without judging its checks."""
        out.reason = reason
        self.state.forced[kind] = self.state.forced.get(kind, 0) + 1

    def _judge(
        self, checklist: Checklist, raw: str, answer: PlanAnswer | None, error: str, out: RecordLine
    ) -> int | None:
        """The passed checks; or None, with the line's reason set, if the row is 0 without judging."""
        # SPEC, section 4, in its order: of several reasons for 0 only the first is reported and counted.
        if self._has_error(error, answer, out):
            return None
        if answer is None:
            self._force(out, UNPARSABLE, UNPARSABLE)
            return None
        if answer.empty:
            self._force(out, EMPTY, EMPTY)
            return None
        passed = checklist.judge(answer.message, answer.values)
        # Only for missed checks, and never for the score (SPEC, section 4, the diagnostic).
        if passed.bit_count() < len(checklist.checks) and answer.items:
            missed = [check for i, check in enumerate(checklist.checks) if not passed >> i & 1]
            for kind, path in paths_of_missed(raw, answer, missed):
                self.state.found_paths(kind).add(path, [1])
        return passed

    def outcome(self) -> Outcome[PlanState]:
        """The chunk's answer; call it once."""
        state = self.state
        for group, by_points in self._groups.items():
            self.counts.add(group, by_points.items())
        self.counts.finish()
        for round_, seconds in self.seconds.items():
            # Exact, since a sum of floats depends on where the chunks are cut.
            state.round(round_).seconds.merge(ExactSum.of(seconds))
        for round_, pairs in self.llm.items():
            state.llm.merge(LlmAgreement.of(pairs))
            state.round(round_).add_llm([(ours, llm) for ours, llm in pairs if llm is not None])
        state.queries.finish()
        self._tally.unscored = sum(stats.unscored for stats in state.rounds.values())
        self._tally.scored = sum(stats.scored for stats in state.rounds.values())
        self.gaps.finish(state, self.lines, self._tally.left_out)
        return Outcome(state, self._tally, self.lines)


class _GroupCounts:
    """Counts scored rows by group into ``state``, without their seconds and LLM scores. Call `finish` once.

    A chunk has many groups, of few texts: it adds up counts for each combination of texts before it updates a table.
    """

    def __init__(self, state: PlanState, params: PlanParams) -> None:
        self._state = state
        self._low = params.low_score
        self._slow = params.slow_points
        self._rounds: dict[str, RoundStats] = {}
        self._texts: dict[tuple[str, str, str, str], list[int]] = {}
        self._judged: dict[tuple[Checklist, int], list[int]] = {}

    def add(self, group: RowGroup, by_points: Iterable[tuple[int | None, int]]) -> None:
        """Count rows of ``group``, by their points for speed; None: rows without seconds."""
        round_, category, checklist, passed, form = group
        stats = self._rounds.get(round_)
        if stats is None:
            stats = self._rounds[round_] = self._state.round(round_)
        rows = slow = of = failed = 0
        for points, count in by_points:
            rows += count
            if points is not None:
                stats.points[points] += count
                if points in self._slow:
                    slow += count
        # None: the checks were not judged. That is 0 points, but no failed check (SPEC, section 4).
        score = 0 if passed is None else checklist.points[passed.bit_count()]
        stats.scores[score] += rows
        low = rows if score <= self._low else 0
        if passed is None:
            stats.forced += rows
        else:
            of = rows * len(checklist.checks)
            failed = of - rows * passed.bit_count()
            judged = self._judged.get((checklist, passed))
            if judged is None:
                self._judged[checklist, passed] = [rows, low]
            else:
                judged[0] += rows
                judged[1] += low
        texts = (checklist.label, category, checklist.wanted_forms, form)
        counts = self._texts.get(texts)
        if counts is None:
            # In the order of GroupCount.
            self._texts[texts] = [rows, low, slow, of, failed]
        else:
            counts[0] += rows
            counts[1] += low
            counts[2] += slow
            counts[3] += of
            counts[4] += failed

    def finish(self) -> None:
        """Add the sums to the state's tables."""
        state = self._state
        for (label, category, wanted, form), counts in self._texts.items():
            state.sets.add(label, counts)
            # Cut once for each text, not for each row; texts that are equal when cut are one in the table.
            state.categories.add(shortened(category, _MAX_NAME), counts)
            state.forms.add(shortened(f"{wanted or '-'} -> {plain_text(form) or '-'}", _MAX_NAME), counts)
        for (checklist, passed), (rows, low) in self._judged.items():
            for i, (check, name) in enumerate(zip(checklist.checks, checklist.names, strict=True)):
                good = passed >> i & 1
                state.add_kind(check.kind, rows if good else 0, rows)
                if not good:
                    state.misses.add(name, [rows, low])


# Data that scores leave out: unreadable conditions, rows, times and LLM scores, and cut cells.

CONDITION, ROW, TIME, LLM_SCORE, CELL, QUERY = "condition", "row", "time", "LLM score", "cell", "Query ID"
"""The kinds for `LeftOut.add`."""
_NO_FORM = "no form reads it"
NO_CHECK = "no check can be read from 기대결과"
_NO_SECONDS = "responseTimeSec is missing or no number of seconds"
NO_ROUNDS = "it has fewer than two rounds with a score, or a round twice"
_NO_SCORE = "LLM 점수 is no number from 0 to 5"
_FULL = f"it has {CELL_UNITS:,} characters, the most that a spreadsheet keeps of a cell, which cuts the rest"
_NO_TIME = re.compile(rb'"seconds":null')
_NO_LLM = re.compile(rb'"llm_score":\{"score":null')


class _GapLine(msgspec.Struct):
    record: str
    id: str
    status: str
    seconds: float | None
    llm_score: dict[str, float | str | None] | None = None


class _Gaps:
    """Counts the data that a chunk leaves out. Equal rows are counted together, and lines are noted separately."""

    def __init__(self) -> None:
        self._conditions = self._rows = 0
        self._unread: dict[str, int] = {}
        self._unscored: dict[str, int] = {}
        self._cuts: list[tuple[int, str]] = []

    def note(self, line: int, expected: str, checklist: Checklist) -> None:
        """Note the line of an expected result with unread conditions, or without any check."""
        for text in checklist.unread:
            self._unread.setdefault(text, line)
        if not checklist.checks:
            self._unscored.setdefault(expected, line)

    def count(self, checklist: Checklist, rows: int) -> None:
        """Count ``rows`` with this checklist."""
        if checklist.unread:
            self._rows += rows
            self._conditions += rows * len(checklist.unread)

    def note_cuts(self, line: int, row: Sequence[str], columns: Sequence[str]) -> None:
        """Note cells of a row that are as long as a spreadsheet's longest."""
        for name, cell in zip(columns, row, strict=True):
            if fills_cell(cell):
                self._cuts.append((line, name))

    def finish(self, state: PlanState, lines: Sequence[bytes], left_out: LeftOut) -> None:
        """Add all to the state and to ``left_out``; ``lines`` are the chunk's record lines."""
        state.unread[0] += self._conditions
        state.unread[1] += self._rows
        left_out.add_all(CONDITION, _NO_FORM, self._conditions, ((at, text) for text, at in self._unread.items()))
        unscored = sum(stats.unscored for stats in state.rounds.values())
        left_out.add_all(ROW, NO_CHECK, unscored, ((at, text or '""') for text, at in self._unscored.items()))
        untimed = sum(stats.scored - stats.timed for stats in state.rounds.values())
        left_out.add_all(TIME, _NO_SECONDS, untimed, _rows_of(lines, _NO_TIME, _is_untimed) if untimed else ())
        unreadable = state.llm.unreadable
        left_out.add_all(
            LLM_SCORE, _NO_SCORE, unreadable, _rows_of(lines, _NO_LLM, _has_no_score) if unreadable else ()
        )
        instead = f"its first {CELL_UNITS:,} characters"
        left_out.add_all(CELL, _FULL, len(self._cuts), self._cuts, instead=instead)


def _rows_of(
    lines: Sequence[bytes], sign: re.Pattern[bytes], counts: Callable[[_GapLine], bool]
) -> Iterator[tuple[int, str]]:
    """(line, Query ID) of the first scored rows with ``sign`` in their record lines; each Query ID once."""
    seen: set[str] = set()
    for data in lines:
        if sign.search(data):
            line = msgspec.json.decode(data, type=_GapLine)
            if line.status == "scored" and counts(line) and line.id not in seen:
                seen.add(line.id)
                yield int(line.record.rpartition(":")[2]), line.id
                if len(seen) == EXAMPLES:
                    return


def _is_untimed(line: _GapLine) -> bool:
    return line.seconds is None


def _has_no_score(line: _GapLine) -> bool:
    return line.llm_score is not None and line.llm_score["score"] is None
