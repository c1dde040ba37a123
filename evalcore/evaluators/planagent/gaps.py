"""What the scores of a chunk leave out: conditions, rows, times and LLM scores that cannot be read, and cut cells."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence

import msgspec

from evalq.evalcore.evaluators.planagent.checks import Checklist
from evalq.evalcore.evaluators.planagent.state import PlanState
from evalq.evalcore.model.state import EXAMPLES, LeftOut

__all__ = ["CELL", "CONDITION", "LLM_SCORE", "NO_CHECK", "NO_ROUNDS", "QUERY", "ROW", "TIME", "Gaps"]

CONDITION, ROW, TIME, LLM_SCORE, CELL, QUERY = "condition", "row", "time", "LLM score", "cell", "Query ID"
"""What is left out, as `LeftOut.add` takes it."""
NO_FORM = "no form reads it"
NO_CHECK = "no check can be read from 기대결과"
NO_SECONDS = "responseTimeSec is missing or no number of seconds"
NO_ROUNDS = "it has fewer than two rounds with a score, or a round twice"
NO_SCORE = "LLM 점수 is no number from 0 to 5"
SPREADSHEET_CELL = 32_767
"""The most UTF-16 units that a spreadsheet keeps of a cell (Excel, "Specifications and limits")."""
FULL = f"it has {SPREADSHEET_CELL:,} characters, the most that a spreadsheet keeps of a cell, which cuts the rest"
_NO_TIME = re.compile(rb'"seconds":null')
_NO_LLM = re.compile(rb'"llm_score":\{"score":null')


class _Line(msgspec.Struct):
    record: str
    id: str
    status: str
    seconds: float | None
    llm_score: dict[str, float | str | None] | None = None


class Gaps:
    """Counts what a chunk leaves out. Rows that count alike are counted together, so that places are noted apart."""

    def __init__(self) -> None:
        self._conditions = self._rows = 0
        self._unread: dict[str, int] = {}
        self._unscored: dict[str, int] = {}
        self._cuts: list[tuple[int, str]] = []

    def see(self, line: int, expected: str, checklist: Checklist) -> None:
        """Note where an expected result stands that has conditions which no form reads, or no check at all."""
        for text in checklist.unread:
            self._unread.setdefault(text, line)
        if not checklist.checks:
            self._unscored.setdefault(expected, line)

    def count(self, checklist: Checklist, rows: int) -> None:
        """Count ``rows`` with this checklist."""
        if checklist.unread:
            self._rows += rows
            self._conditions += rows * len(checklist.unread)

    def look_for_cuts(self, line: int, row: Sequence[str], columns: Sequence[str]) -> None:
        """Note cells of a row that are exactly as long as a spreadsheet's longest."""
        for name, cell in zip(columns, row, strict=True):
            # Units of UTF-16 are at least as many as characters, and at most twice as many.
            if SPREADSHEET_CELL // 2 <= len(cell) <= SPREADSHEET_CELL and SPREADSHEET_CELL in (len(cell), _units(cell)):
                self._cuts.append((line, name))

    def finish(self, state: PlanState, lines: Sequence[bytes], left_out: LeftOut) -> None:
        """Put all of it into the state and into ``left_out``; ``lines`` are the chunk's record lines."""
        state.unread[0] += self._conditions
        state.unread[1] += self._rows
        left_out.add_all(CONDITION, NO_FORM, self._conditions, ((at, text) for text, at in self._unread.items()))
        unscored = sum(stats.unscored for stats in state.rounds.values())
        left_out.add_all(ROW, NO_CHECK, unscored, ((at, text or '""') for text, at in self._unscored.items()))
        untimed = sum(stats.scored - stats.timed for stats in state.rounds.values())
        left_out.add_all(TIME, NO_SECONDS, untimed, _rows_of(lines, _NO_TIME, _is_untimed) if untimed else ())
        unreadable = state.llm.unreadable
        left_out.add_all(LLM_SCORE, NO_SCORE, unreadable, _rows_of(lines, _NO_LLM, _has_no_score) if unreadable else ())
        instead = f"its first {SPREADSHEET_CELL:,} characters"
        left_out.add_all(CELL, FULL, len(self._cuts), self._cuts, instead=instead)


def _rows_of(
    lines: Sequence[bytes], sign: re.Pattern[bytes], counts: Callable[[_Line], bool]
) -> Iterator[tuple[int, str]]:
    """(line, Query ID) of the first scored rows with ``sign`` in their record lines; each Query ID once."""
    seen: set[str] = set()
    for data in lines:
        if sign.search(data):
            line = msgspec.json.decode(data, type=_Line)
            if line.status == "scored" and counts(line) and line.id not in seen:
                seen.add(line.id)
                yield int(line.record.rpartition(":")[2]), line.id
                if len(seen) == EXAMPLES:
                    return


def _is_untimed(line: _Line) -> bool:
    return line.seconds is None


def _has_no_score(line: _Line) -> bool:
    return line.llm_score is not None and line.llm_score["score"] is None


def _units(text: str) -> int:
    return len(text) if text.isascii() else len(text.encode("utf-16-le", "surrogatepass")) // 2
