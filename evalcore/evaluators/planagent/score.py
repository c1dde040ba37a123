"""Scoring one chunk of rows: the hot path, so a row costs a few dictionary steps and one line of JSON."""

from __future__ import annotations

from operator import itemgetter

import msgspec

from evalq.evalcore.contract.evaluator import Batch, Outcome, Tally
from evalq.evalcore.evaluators.planagent.answer import Answer, read_answer
from evalq.evalcore.evaluators.planagent.checks import Checklist, checklist_reader
from evalq.evalcore.evaluators.planagent.counting import Group, spread
from evalq.evalcore.evaluators.planagent.llm import Agreement, read_llm_score
from evalq.evalcore.evaluators.planagent.params import PlanParams
from evalq.evalcore.evaluators.planagent.queries import UNSCORED, pack_row
from evalq.evalcore.evaluators.planagent.record import READ, RecordLine
from evalq.evalcore.evaluators.planagent.rules import EMPTY, ERROR, UNPARSABLE, ErrorTexts, SpeedScale
from evalq.evalcore.evaluators.planagent.search import paths_of_missed
from evalq.evalcore.evaluators.planagent.state import PlanState
from evalq.evalcore.stats import ExactSum

__all__ = ["evaluate_batch"]

_NO_CHECKS = msgspec.Raw(b"[]")
_NO_CHECK = "no check can be read from 기대결과"


_encode = msgspec.json.Encoder().encode


def evaluate_batch(batch: Batch, params: PlanParams) -> Outcome[PlanState]:
    """Score every row of ``batch``; malformed rows are fatal faults."""
    chunk = _Chunk(batch, params)
    for line, row in batch.rows(chunk.fault):
        chunk.add(line, row)
    return chunk.outcome()


class _Chunk:
    """Gathers the rows of one chunk: rows that count alike are counted first and spread over the state at the end."""

    def __init__(self, batch: Batch, params: PlanParams) -> None:
        self._source = batch.source
        self._params = params
        self._fields = itemgetter(*map(batch.columns.index, READ)) if batch.columns else tuple
        self._checklist = checklist_reader(params)
        self._errors = ErrorTexts.of(params)
        self._points = SpeedScale(params.speed_bands).points
        self._state = PlanState()
        self._tally = Tally()
        self._lines: list[bytes] = []
        self._groups: dict[Group, int] = {}
        self._seconds: dict[str, list[float]] = {}
        self._llm: dict[str, list[tuple[int, float | None]]] = {}

    def fault(self, line: int, reason: str) -> None:
        """Note a row that cannot be read."""
        self._tally.errors += 1
        self._tally.fatal.add(line, reason)

    def add(self, line: int, row: list[str]) -> None:
        """Score one row."""
        query, round_, expected, category, error, raw, llm_text, llm_state, llm_comment = self._fields(row)
        query, round_ = query.strip(), round_.strip()
        answer = read_answer(raw)
        seconds = None if answer is None else answer.seconds
        out = RecordLine(f"{self._source}:{line}", query, round_, "scored", None, _NO_CHECKS, seconds)
        checklist = self._checklist(expected)
        if checklist is None:
            # Not 0 points: nothing was asked of this row, so it stays out of every average.
            out.status, out.reason = "unscored", _NO_CHECK
            self._state.round(round_).unscored += 1
        else:
            passed = self._judge(checklist, raw, answer, error, out)
            # An error, an unparsable or an empty answer is 0, whatever its checks would say.
            out.score = 0 if passed is None else checklist.points[passed.bit_count()]
            out.checks = checklist.encoded(passed)
            self._count(round_, category, checklist, passed, answer)
        if llm_text and (llm := read_llm_score(llm_text, llm_state, llm_comment)) is not None:
            out.llm_score = llm
            if out.score is not None:
                self._llm.setdefault(round_, []).append((out.score, llm.score))
        self._lines.append(_encode(out))
        self._state.queries.add(query, pack_row(round_, UNSCORED if out.score is None else out.score, line))

    def _judge(self, checklist: Checklist, raw: str, answer: Answer | None, error: str, out: RecordLine) -> int | None:
        """The passed checks, or None and the line's reason where the row is 0 without judging."""
        text = self._errors.find(error, answer)
        if text is not None:
            out.reason = f"{ERROR}: {text}"
            self._state.errors.add(self._errors.pattern(text), [1])
            self._force(ERROR)
            return None
        if answer is None:
            out.reason = UNPARSABLE
            self._force(UNPARSABLE)
            return None
        if answer.empty:
            out.reason = EMPTY
            self._force(EMPTY)
            return None
        passed = checklist.judge(answer.message, answer.values)
        if passed.bit_count() < len(checklist.checks) and answer.items:
            missed = [check for i, check in enumerate(checklist.checks) if not passed >> i & 1]
            for kind, path in paths_of_missed(raw, answer, missed):
                self._state.found_paths(kind).add(path, [1])
        return passed

    def _force(self, reason: str) -> None:
        forced = self._state.forced
        forced[reason] = forced.get(reason, 0) + 1

    def _count(
        self, round_: str, category: str, checklist: Checklist, passed: int | None, answer: Answer | None
    ) -> None:
        points, forms = None, ""
        if answer is not None:
            forms = answer.forms
            if answer.seconds is not None:
                points = self._points(answer.seconds)
                self._seconds.setdefault(round_, []).append(answer.seconds)
        # Most rows of a chunk count alike: each group is added to the state's many counters once.
        group = (round_, category, checklist, passed, points, forms)
        self._groups[group] = self._groups.get(group, 0) + 1

    def outcome(self) -> Outcome[PlanState]:
        """The chunk's answer; call it once."""
        state = self._state
        for group, rows in self._groups.items():
            spread(state, self._params, group, rows)
        for round_, seconds in self._seconds.items():
            state.round(round_).seconds.merge(ExactSum.of(seconds))
        for round_, pairs in self._llm.items():
            state.llm.merge(Agreement.of(pairs))
            state.round(round_).add_llm([(ours, llm) for ours, llm in pairs if llm is not None])
        self._tally.unscored = sum(stats.unscored for stats in state.rounds.values())
        self._tally.scored = sum(stats.scored for stats in state.rounds.values())
        return Outcome(state, self._tally, self._lines)
