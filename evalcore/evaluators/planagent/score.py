"""Scoring one chunk of rows: the reference, and for rows that compiled code leaves alone, the only way."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from operator import itemgetter
from typing import Any

import msgspec

from evalq.evalcore.contract.evaluator import Batch, Outcome, Tally
from evalq.evalcore.evaluators.planagent.answer import Answer, read_answer
from evalq.evalcore.evaluators.planagent.checks import Checklist, checklist_reader
from evalq.evalcore.evaluators.planagent.counting import Group, Spread
from evalq.evalcore.evaluators.planagent.gaps import NO_CHECK, Gaps
from evalq.evalcore.evaluators.planagent.llm import Agreement, llm_accuracy, read_llm_score
from evalq.evalcore.evaluators.planagent.packed_rows import UNSCORED, pack_row
from evalq.evalcore.evaluators.planagent.params import PlanParams
from evalq.evalcore.evaluators.planagent.record import READ, RecordLine
from evalq.evalcore.evaluators.planagent.rules import EMPTY, ERROR, UNPARSABLE, ErrorTexts, SpeedScale
from evalq.evalcore.evaluators.planagent.search import paths_of_missed
from evalq.evalcore.evaluators.planagent.state import PlanState
from evalq.evalcore.statistics.exact import ExactSum

__all__ = ["NO_CHECKS", "Chunk", "RowText", "encode_line", "score_rows"]

NO_CHECKS = msgspec.Raw(b"[]")
RowText = tuple[str, str, str, str, str, str, str, str, str]
"""The columns `READ` of a row."""


encode_line = msgspec.json.Encoder().encode


def score_rows(batch: Batch, params: PlanParams) -> Outcome[PlanState]:
    """Score every row of ``batch``; malformed rows are fatal faults. The reference for every faster way."""
    chunk = Chunk(batch, params)
    fields: Callable[[Sequence[str]], Any] = itemgetter(*map(batch.columns.index, READ)) if batch.columns else tuple
    for line, row in batch.rows(chunk.fault):
        chunk.gaps.look_for_cuts(line, row, batch.columns)
        chunk.add(line, fields(row))
    return chunk.outcome()


class Chunk:
    """Gathers the rows of one chunk: rows that count alike are counted first and spread over the state at the end."""

    def __init__(self, batch: Batch, params: PlanParams) -> None:
        self.source = batch.source
        self.params = params
        self.checklist = checklist_reader(params)
        self.scale = SpeedScale(params.speed_bands)
        self.state = PlanState()
        self.lines: list[bytes] = []
        self.spread = Spread(self.state, params)
        self._groups: dict[Group, dict[int | None, int]] = {}
        self.seconds: dict[str, list[float]] = {}
        self.errors = ErrorTexts.of(params)
        self._tally = Tally()
        self.gaps = Gaps()
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
        out = self.line(line, query.strip(), round_.strip(), seconds)
        checklist = self.checklist(expected)
        self.gaps.see(line, expected, checklist)
        self.gaps.count(checklist, 1)
        if checklist.unread:
            out.unread = checklist.unread
        if checklist.checks:
            passed = self._judge(checklist, raw, answer, error, out)
            self.set_score(out, category, checklist, passed, "" if answer is None else answer.forms)
        self.finish(line, out, *llm)

    def line(self, line: int, query: str, round_: str, seconds: float | None) -> RecordLine:
        """The line of a row that nothing was asked of: it is unscored, which is not 0 points, so that it stays out of
        every average.
        """
        name = f"{self.source}:{line}"
        return RecordLine(name, query, round_, "unscored", None, NO_CHECKS, seconds=seconds, reason=NO_CHECK)

    def set_score(self, out: RecordLine, category: str, checklist: Checklist, passed: int | None, forms: str) -> None:
        """Score ``out`` by the ``passed`` checks; None: an error, an unparsable or an empty answer, which is 0."""
        out.status = "scored"
        out.score = 0 if passed is None else checklist.points[passed.bit_count()]
        out.checks = checklist.encoded(passed)
        if passed is not None:
            out.reason = msgspec.UNSET
        # The time of an unscored row is in no mean: such a row is left out of every average (SPEC, section 4).
        points = None
        if out.seconds is not None:
            points = self.scale.points(out.seconds)
            self.seconds.setdefault(out.round, []).append(out.seconds)
        # Most rows of a chunk count alike: each group is added to the state's many counters once.
        counts = self._groups.setdefault((out.round, category, checklist, passed, forms), {})
        counts[points] = counts.get(points, 0) + 1

    def finish(self, line: int, out: RecordLine, llm_text: str, llm_state: str, llm_comment: str) -> None:
        """Add the line of a row, with its LLM score where it has one."""
        if out.score is None:
            self.state.round(out.round).unscored += 1
        if llm_text and (llm := read_llm_score(llm_text, llm_state, llm_comment)) is not None:
            out.llm_score = llm
            if out.score is not None:
                out.accuracy = llm_accuracy(llm, self.params.rules)
                self.llm.setdefault(out.round, []).append((out.score, llm.score))
        self.lines.append(encode_line(out))
        self.state.queries.add(out.id, pack_row(out.round, UNSCORED if out.score is None else out.score, line))

    def has_error(self, column: str, answer: Answer | None, out: RecordLine) -> bool:
        """Whether the row has an error, which then is the line's reason and counted."""
        text = self.errors.find(column, answer)
        if text is None:
            return False
        self.state.errors.add(self.errors.pattern(text), [1])
        self.force(out, ERROR, f"{ERROR}: {text}")
        return True

    def force(self, out: RecordLine, kind: str, reason: str) -> None:
        """Note that the row is 0 whatever its checks would say."""
        out.reason = reason
        self.state.forced[kind] = self.state.forced.get(kind, 0) + 1

    def _judge(self, checklist: Checklist, raw: str, answer: Answer | None, error: str, out: RecordLine) -> int | None:
        """The passed checks, or None and the line's reason where the row is 0 without judging."""
        # SPEC, section 4, in its order: of several reasons for 0 the first is told and counted, and no other.
        if self.has_error(error, answer, out):
            return None
        if answer is None:
            self.force(out, UNPARSABLE, UNPARSABLE)
            return None
        if answer.empty:
            self.force(out, EMPTY, EMPTY)
            return None
        passed = checklist.judge(answer.message, answer.values)
        # Beside the score, and of missed checks alone: it must never make one pass (SPEC, section 4, the diagnostic).
        if passed.bit_count() < len(checklist.checks) and answer.items:
            missed = [check for i, check in enumerate(checklist.checks) if not passed >> i & 1]
            for kind, path in paths_of_missed(raw, answer, missed):
                self.state.found_paths(kind).add(path, [1])
        return passed

    def outcome(self) -> Outcome[PlanState]:
        """The chunk's answer; call it once."""
        state = self.state
        for group, by_points in self._groups.items():
            self.spread.add(group, by_points.items())
        self.spread.finish()
        for round_, seconds in self.seconds.items():
            # Exact, since a sum of floats would show where the chunks were cut.
            state.round(round_).seconds.merge(ExactSum.of(seconds))
        for round_, pairs in self.llm.items():
            state.llm.merge(Agreement.of(pairs))
            state.round(round_).add_llm([(ours, llm) for ours, llm in pairs if llm is not None])
        state.queries.finish()
        self._tally.unscored = sum(stats.unscored for stats in state.rounds.values())
        self._tally.scored = sum(stats.scored for stats in state.rounds.values())
        self.gaps.finish(state, self.lines, self._tally.left_out)
        return Outcome(state, self._tally, self.lines)
