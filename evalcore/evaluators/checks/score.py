"""Judging one line of recorded outputs: which case it is of, what its checks found, whether it passes."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Any, NamedTuple

import msgspec

from evalq.evalcore.contract.registry import on_naming
from evalq.evalcore.evaluators.checks.answer import Answer, Usage
from evalq.evalcore.evaluators.checks.check import Verdict
from evalq.evalcore.evaluators.checks.diversity.marks import NOT_COUNTED, Mark, mark_of
from evalq.evalcore.evaluators.checks.diversity.pairs import half_of
from evalq.evalcore.evaluators.checks.judging.vote import LONGEST, Vote, votes_of
from evalq.evalcore.evaluators.checks.labelling.heard import NOTHING, Heard, heard
from evalq.evalcore.evaluators.checks.params import Case, ChecksParams
from evalq.evalcore.evaluators.checks.passing import passes
from evalq.evalcore.evaluators.checks.plans import Plan, Plans
from evalq.evalcore.evaluators.checks.taken import Misplaced, lacks_output, usage_of, why_no_output
from evalq.evalcore.evaluators.checks.vocabulary.declaring import JudgeQuestion
from evalq.evalcore.naming import kind_of
from evalq.evalcore.records.decoding import Malformed, decode, repeated_keys
from evalq.evalcore.records.stop_note import stop_of

__all__ = ["Judge", "Judgement", "Question", "judge_for"]

_KEYS = frozenset(
    (
        *("case", "repeat", "named", "output", "error", "text", "tool_calls", "attempts", "judgements"),
        "labels",
        *("stop", "stop.rule", "stop.of"),
        *("latency_seconds", "cost", "prompt_tokens", "completion_tokens"),
    )
)
_IN_JUDGEMENT = re.compile(r"judgements\[(\d+)\]")


class Judgement(msgspec.Struct, frozen=True):
    """One line judged. ``status`` is passed, failed, error or skipped; ``plan`` is None when its case is not known.

    ``score`` is there for passed and failed ones; ``checks`` wherever there was an answer. ``planned`` is how many
    calls its case was to get where it could stop early, else 0. ``votes`` are the recorded judgements of its checks;
    ``mark`` stands for its answer, where answers are counted by kind and this one has a verdict.
    """

    status: str
    reason: str = ""
    plan: Plan | None = None
    repeat: int | None = None
    score: float | None = None
    checks: tuple[Verdict, ...] = ()
    usage: Usage = Usage()
    text: str = ""
    planned: int = 0
    mark: Mark = NOT_COUNTED
    votes: tuple[Vote, ...] = ()
    heard: Heard = NOTHING


class Question(NamedTuple):
    """What is to be asked about ``text``, the output of a case's repeat or a part of it."""

    case: Case
    repeat: int
    asked: JudgeQuestion
    text: str


class AnsweredRepeat(NamedTuple):
    """The output of a case's repeat, as text."""

    case: str
    repeat: int
    text: str


class _Line(NamedTuple):
    """A line that is about an output of a case, with the paths of keys that it gives twice."""

    record: dict[str, Any]
    plan: Plan
    repeat: int
    planned: int
    twice: list[str]


class Judge:
    """Judges lines by one set of params; made once by `judge_for`, and the same for any line in any order."""

    def __init__(self, params: ChecksParams) -> None:
        self._plans = Plans(params)

    def plan(self, case: str) -> Plan | None:
        """The case of that id made ready; None where there is none."""
        return self._plans.plan(case)

    def test(self, data: bytes) -> Judgement:
        """The judgement of one line, whatever its bytes are."""
        line = self._read(data)
        if isinstance(line, Judgement):
            return line
        try:
            return _judged(line)
        except Misplaced as error:
            return Judgement("error", str(error), line.plan, line.repeat, planned=line.planned)

    def questions(self, data: bytes) -> list[Question]:
        """What judges are to be asked about the output of a line, each once; nothing about a line that is at fault."""
        line = self._read(data)
        if isinstance(line, Judgement) or not line.plan.asked or lacks_output(line.record):
            return []
        try:
            answer = _answer(line.record, usage_of(line.record), ())
        except Misplaced:
            return []
        asked = (question for check in line.plan.checks for question in check.questions(answer))
        # Two checks that ask one judge the same of one text are one question, and paid once.
        found = {(each.key, each.judge, part.text): None for each, part in asked if len(part.text) <= LONGEST}
        asks = line.plan.asks
        return [Question(line.plan.case, line.repeat, asks[key, judge], text) for key, judge, text in found]

    def answer(self, data: bytes) -> AnsweredRepeat | None:
        """The output of a line; None where it has none, or is at fault."""
        line = self._read(data)
        if isinstance(line, Judgement) or lacks_output(line.record):
            return None
        try:
            return AnsweredRepeat(line.plan.case.id, line.repeat, _answer(line.record, Usage(), ()).text)
        except Misplaced:
            return None

    def _read(self, data: bytes) -> _Line | Judgement:
        """A line that can be judged, or the judgement of one that cannot."""
        try:
            record = decode(data)
        except Malformed as error:
            return Judgement("error", str(error))
        if not isinstance(record, dict):
            return Judgement("error", f"the line is {kind_of(record)}, not an object with case, repeat and output")
        plan, repeat, problem = self._plans.addressed(record)
        # Before any other fault: what the selection leaves out is not judged.
        if plan is not None and plan.skipped:
            return Judgement("skipped", plan=plan, repeat=repeat)
        # Decoders differ in which of two values they keep, so what is given twice says nothing.
        twice = repeated_keys(data, record)
        unclear = [path for path in twice if path in _KEYS]
        if unclear and not problem:
            problem = f"{unclear[0]}: the key is given more than once"
        planned, misplanned = stop_of(record)
        problem = problem or misplanned
        if plan is None or repeat is None or problem:
            return Judgement("error", problem, plan, repeat)
        return _Line(record, plan, repeat, planned, twice)

    def case(self, data: bytes) -> str:
        """The case that the judgement of a line will be about; empty where it is about none."""
        try:
            record = decode(data)
        except Malformed:
            return ""
        plan = self._plans.addressed(record)[0] if isinstance(record, dict) else None
        return plan.case.id if plan is not None and not plan.skipped else ""


def _judged(line: _Line) -> Judgement:
    """What becomes of a whole line. Raises Misplaced."""
    record, plan, at = line.record, line.plan, (line.plan, line.repeat)
    usage = usage_of(record)
    votes = _votes(line)
    if lacks_output(record):
        return Judgement("error", why_no_output(record), *at, usage=usage, planned=line.planned)
    answer = _answer(record, usage, votes)
    verdicts = tuple(check.judge(answer) for check in plan.checks)
    # What the record lacks puts the output in no rate, whatever other checks say: rates of those that happen to be
    # decided would be biased (decision 19). A check of weight 0 is shown, and never decides.
    wrong = next((each for each in verdicts if each.passed is None and each.weight), None)
    if wrong is not None:
        status, score, reason = "error", None, f"{wrong.name}: {wrong.error}"
    else:
        status, score, reason = passes(verdicts, plan.case.thresholds.score)
    mark = NOT_COUNTED if score is None else _mark(answer, line)
    said = heard(record, plan.given, line.repeat, line.twice, () if score is None else verdicts)
    return Judgement(status, reason, *at, score, verdicts, usage, answer.text, line.planned, mark, votes, said)


def _mark(answer: Answer, line: _Line) -> Mark:
    """What stands for an answer of a case in which they are counted by kind. Raises Misplaced."""
    how = line.plan.diversity
    if how is not None and how.by == "embedding":
        for path in line.twice:
            # Held to it here alone: where nobody asks for it the key is passed over, as importers may keep any.
            if path == "embedding" or path.startswith("embedding."):
                raise Misplaced(f"{path}: the key is given more than once")
    mark = mark_of(answer.text, how, line.record)
    if how is None or not how.judge:
        return mark
    return mark._replace(half=half_of(answer.text, line.repeat, answer.judgements))


def _votes(line: _Line) -> tuple[Vote, ...]:
    """The recorded judgements that its checks ask for. Raises Misplaced."""
    listed = line.record.get("judgements")
    if listed is None or not line.plan.asked:
        return ()
    # A key that stands twice in one judgement says nothing of the others.
    unclear = {int(match[1]) for path in line.twice if (match := _IN_JUDGEMENT.match(path))}
    try:
        votes = votes_of(listed, unclear)
    except ValueError as error:
        raise Misplaced(str(error)) from None
    return tuple(vote for vote in votes if vote.check in line.plan.asked)


def _answer(record: dict[str, Any], usage: Usage, votes: tuple[Vote, ...]) -> Answer:
    """The output of a line that has one. Raises Misplaced."""
    text = record.get("text")
    if text is not None and not isinstance(text, str):
        raise Misplaced(f"text: {kind_of(text)} where a string is wanted")
    return Answer(record["output"], text, usage, record.get("tool_calls"), votes)


@lru_cache(maxsize=16)
def judge_for(params: ChecksParams) -> Judge:
    """The judge of ``params``, kept for the next chunk."""
    return Judge(params)


on_naming(judge_for.cache_clear)
