"""Judging one recorded output: its case, its labels, the verdicts of its checks, and whether it passes."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import msgspec

from evalq.evalcore.contract.plugins import on_naming
from evalq.evalcore.errors import ConfigError
from evalq.evalcore.evaluators.checks.answer import (
    LONGEST,
    Answer,
    Misplaced,
    Usage,
    Vote,
    lacks_output,
    usage_of,
    votes_of,
    why_no_output,
)
from evalq.evalcore.evaluators.checks.check import CheckVerdict, CompiledCheck, compiled, fallible_and_deciding, passes
from evalq.evalcore.evaluators.checks.diversity.kinds import NOT_COUNTED, PAIR, AnswerMark, half_of, mark_of
from evalq.evalcore.evaluators.checks.params import Case, ChecksParams, Diversity, Labels, diversity_of
from evalq.evalcore.evaluators.checks.vocabulary.declaring import BadCheck, JudgeQuestion
from evalq.evalcore.model.canonical import canonical_json
from evalq.evalcore.naming import found, kind_of, shorten
from evalq.evalcore.records.inputs import case_of_name, readings
from evalq.evalcore.records.json_values import Malformed, decode, repeated_keys, stop_of

# What people said of one output: its labels, from its own line or from a file, and what passes by them.


class KnownLabels(NamedTuple):
    """What is known of a case's labels before its outputs: ``judged`` says of each check whether it may be wrong and
    decides, ``places`` where it stands by its name (None for a name that several have), ``repeats`` has labels of a
    file by repeat and place.
    """

    case: Case
    judged: tuple[bool, ...]
    places: Mapping[str, int | None]
    repeats: Mapping[int, Mapping[int, bool]]


class Heard(NamedTuple):
    """What people said of an output with a verdict.

    ``labels`` has one for each check, None where it has none. ``plain``: whether it passes by the checks that are not
    fallible alone; None where there are none. ``people``: whether it passes with labels in place of fallible verdicts;
    None where one lacks, and where no such check decides. ``astray`` tells of labels in its line that are
    about nothing.
    """

    labels: tuple[bool | None, ...] = ()
    plain: bool | None = None
    people: bool | None = None
    astray: tuple[str, ...] = ()


NOTHING = Heard()


def _given_labels(case: Case, checks: Sequence[CompiledCheck], labels: Mapping[str, Labels]) -> KnownLabels:
    """The labels of a case's checks, made ready; those of names that it has not, or several times, are left out."""
    places: dict[str, int | None] = {}
    for index, check in enumerate(checks):
        # Not the first of them: a label by that name would be given to a check that nobody meant.
        places[check.name] = None if check.name in places else index
    repeats: dict[int, dict[int, bool]] = {}
    for name, said in labels.items():
        place = places.get(name)
        if place is not None:
            for passed, of in ((True, said.passed), (False, said.failed)):
                for repeat in of:
                    repeats.setdefault(repeat, {})[place] = passed
    return KnownLabels(case, fallible_and_deciding(case), places, repeats)


def of_no_check(name: str, case: str, places: Mapping[str, int | None]) -> str:
    """Why a label for the check called ``name`` is about nothing; empty where it is about one."""
    if name not in places:
        return f"{shorten(case)} has no check called {shorten(name)!r}"
    if places[name] is None:
        return f"{shorten(case)} has several checks called {shorten(name)!r}: tell them apart by `name`"
    return ""


def _heard(
    record: Mapping[str, Any], given: KnownLabels, repeat: int, twice: Sequence[str], verdicts: Sequence[CheckVerdict]
) -> Heard:
    """What people said of the output; ``verdicts`` is empty where it has none. Raises Misplaced."""
    if not given.repeats and record.get("labels") is None and not any(given.judged):
        return NOTHING
    labels: dict[int, bool] = dict(given.repeats.get(repeat, {}))
    astray = tuple(_own(record, given, twice, labels, verdicts)) if record.get("labels") is not None else ()
    if not verdicts:
        return Heard(astray=astray)
    told = tuple(labels.get(index) for index in range(len(verdicts))) if labels else ()
    if not any(given.judged):
        return Heard(told, astray=astray) if told or astray else NOTHING
    return Heard(told, _plain(given, verdicts), _people(given, verdicts, labels), astray)


def _own(
    record: Mapping[str, Any],
    given: KnownLabels,
    twice: Sequence[str],
    labels: dict[int, bool],
    verdicts: Sequence[CheckVerdict],
) -> list[str]:
    """Add the labels of the line to ``labels``; what is about nothing. Raises Misplaced."""
    own, astray = record["labels"], []
    if not isinstance(own, dict):
        raise Misplaced(f"labels: {kind_of(own)} where an object of checks is wanted")
    if any(path.startswith(("labels.", "labels[")) for path in twice):
        raise Misplaced("labels: a check is labelled more than once")
    for name, passed in own.items():
        if not isinstance(passed, bool):
            raise Misplaced(f"labels, {shorten(name)}: {kind_of(passed)} where true or false is wanted")
        why = of_no_check(name, given.case.id, given.places)
        place = given.places.get(name)
        if place is None:
            astray.append(why)
            continue
        # Of a line and a file that disagree neither is taken: which of them is right nobody here can tell.
        if labels.setdefault(place, passed) is not passed:
            theirs = "true" if labels[place] else "false"
            raise Misplaced(f"labels, {shorten(name)}: {str(passed).lower()} here, and {theirs} in --labels")
        if not verdicts or verdicts[place].passed is None:
            astray.append(
                f"{shorten(name)!r} of {shorten(given.case.id)} repeat {record.get('repeat', 0)} has no verdict"
            )
    return astray


def _plain(given: KnownLabels, verdicts: Sequence[CheckVerdict]) -> bool | None:
    own = [verdict for verdict, judged in zip(verdicts, given.judged, strict=True) if not judged]
    if not any(verdict.weight and verdict.passed is not None for verdict in own):
        return None
    return passes(own, given.case.thresholds.score)[0] == "passed"


def _people(given: KnownLabels, verdicts: Sequence[CheckVerdict], labels: Mapping[int, bool]) -> bool | None:
    # All or none: an output of which one verdict is still the judge's is not as people have it.
    if any(judged and index not in labels for index, judged in enumerate(given.judged)):
        return None
    own = [
        _as_labelled(verdict, labels[index]) if given.judged[index] else verdict
        for index, verdict in enumerate(verdicts)
    ]
    return passes(own, given.case.thresholds.score)[0] == "passed"


def _as_labelled(verdict: CheckVerdict, passed: bool) -> CheckVerdict:
    # A label has no score in between: by `thresholds: score` what people labelled counts 0 or 1.
    return CheckVerdict(verdict.name, passed, float(passed), verdict.wanted, weight=verdict.weight)


# The cases of checks made ready, and which of them, at which repeat, a line is about.

_MOST_REPEATS = 2**53


class CasePlan(msgspec.Struct, frozen=True):
    """A case made ready: its place among the cases, and whether the selection leaves it out.

    ``asked`` is what judges are asked, by the key that recorded judgements have; ``asks`` is that of its checks, by
    judge, too, as often as any of them wants that asked. ``diversity`` says how answers are counted by kind, None where
    they are not. ``given`` is what is known of labels.
    """

    index: int
    case: Case
    checks: tuple[CompiledCheck, ...]
    skipped: bool
    asked: Mapping[str, JudgeQuestion]
    asks: Mapping[tuple[str, str], JudgeQuestion]
    given: KnownLabels
    diversity: Diversity | None = None

    @property
    def judged(self) -> tuple[bool, ...]:
        """Of each check whether it may be wrong and decides."""
        return self.given.judged


class CasePlans:
    """The cases of one set of params, each made ready when it is first asked for."""

    def __init__(self, params: ChecksParams) -> None:
        self._cases = {case.id: (index, case) for index, case in enumerate(params.cases)}
        self._tag = params.tag
        self._params = params
        self._plans: dict[str, CasePlan] = {}

    def plan(self, case: str) -> CasePlan | None:
        """The case of that id made ready, when it is first asked for; None where there is none."""
        known = self._plans.get(case)
        if known is None and case in self._cases:
            index, given = self._cases[case]
            skipped = bool(self._tag) and self._tag not in given.tags
            checks = () if skipped else tuple(self._check(written, given) for written in given.checks)
            # The most votes last, so that of several that ask the same this one stays under the key.
            every = sorted((each for check in checks for each in check.judge_questions()), key=lambda each: each.votes)
            asked, asks = {each.key: each for each in every}, {(each.key, each.judge): each for each in every}
            how = diversity_of(given, self._params)
            if how is not None and how.judge:
                asked[PAIR.key] = PAIR
            labels = _given_labels(given, checks, self._params.labels.get(case, {}))
            known = self._plans[case] = CasePlan(index, given, checks, skipped, asked, asks, labels, how)
        return known

    def _check(self, written: Mapping[str, Any], case: Case) -> CompiledCheck:
        try:
            return compiled(written)
        except BadCheck as error:
            where = f".{error.path}" if error.path else ""
            raise ConfigError(f"case {case.id}: {canonical_json(dict(written)).decode()}{where}: {error}") from None

    def addressed(self, record: dict[str, Any]) -> tuple[CasePlan | None, int | None, str]:
        """Which case and repeat a line is of, and what is wrong with the address."""
        if "case" not in record and isinstance(record.get("named"), str):
            return self._named(record["named"])
        case, repeat = record.get("case"), record.get("repeat", 0)
        # Not isinstance: true is an int in Python, and no repeat.
        whole = type(repeat) is int and 0 <= repeat < _MOST_REPEATS
        if not isinstance(case, str):
            return None, None, f"case: {found(record, 'case')} where the id of a case is wanted"
        plan = self.plan(case)
        if plan is None:
            return None, repeat if whole else None, f"case: {shorten(case)!r} is none of the cases"
        if not whole:
            return plan, None, f"repeat: {found(record, 'repeat')} where a whole number from 0 is wanted"
        return plan, repeat, ""

    def _named(self, name: str) -> tuple[CasePlan | None, int | None, str]:
        """Of an output in a file: the case of that name, else the name's last number is the repeat."""
        meant = case_of_name(name, lambda case: self.plan(case) is not None)
        if meant is None:
            told = " nor ".join(repr(shorten(case)) for case, _ in readings(name))
            return None, None, f"named: no case has the id {told}; call the file ID.txt or ID.REPEAT.txt"
        return self.plan(meant[0]), meant[1], ""


_KEYS = frozenset(
    (
        *("case", "repeat", "named", "output", "error", "text", "tool_calls", "attempts", "judgements"),
        "labels",
        *("stop", "stop.rule", "stop.of"),
        *("latency_seconds", "cost", "prompt_tokens", "completion_tokens"),
    )
)
_IN_JUDGEMENT = re.compile(r"judgements\[(\d+)\]")


class ScoredOutput(msgspec.Struct, frozen=True):
    """One line judged. ``status`` is passed, failed, error or skipped; ``plan`` is None when its case is not known.

    ``score`` is there for passed and failed ones; ``checks`` wherever there was an answer. ``planned`` is how many
    calls its case was to get where it could stop early, else 0. ``votes`` are the recorded judgements of its checks;
    ``mark`` stands for its answer, where answers are counted by kind and this one has a verdict.
    """

    status: str
    reason: str = ""
    plan: CasePlan | None = None
    repeat: int | None = None
    score: float | None = None
    checks: tuple[CheckVerdict, ...] = ()
    usage: Usage = Usage()
    text: str = ""
    planned: int = 0
    mark: AnswerMark = NOT_COUNTED
    votes: tuple[Vote, ...] = ()
    heard: Heard = NOTHING


class PendingQuestion(NamedTuple):
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


class _OutputLine(NamedTuple):
    """A line that is about an output of a case, with the paths of keys that it gives twice."""

    record: dict[str, Any]
    plan: CasePlan
    repeat: int
    planned: int
    twice: list[str]


class OutputScorer:
    """Judges lines by one set of params; made once by `judge_for`, and the same for any line in any order."""

    def __init__(self, params: ChecksParams) -> None:
        self._plans = CasePlans(params)

    def plan(self, case: str) -> CasePlan | None:
        """The case of that id made ready; None where there is none."""
        return self._plans.plan(case)

    def test(self, data: bytes) -> ScoredOutput:
        """The judgement of one line, whatever its bytes are."""
        line = self._read(data)
        if isinstance(line, ScoredOutput):
            return line
        try:
            return _judged(line)
        except Misplaced as error:
            return ScoredOutput("error", str(error), line.plan, line.repeat, planned=line.planned)

    def questions(self, data: bytes) -> list[PendingQuestion]:
        """What judges are to be asked about the output of a line, each once; nothing about a line that is at fault."""
        line = self._read(data)
        if isinstance(line, ScoredOutput) or not line.plan.asked or lacks_output(line.record):
            return []
        try:
            answer = _answer(line.record, usage_of(line.record), ())
        except Misplaced:
            return []
        asked = (question for check in line.plan.checks for question in check.questions(answer))
        # Two checks that ask one judge the same of one text are one question, and paid once.
        found = {(each.key, each.judge, part.text): None for each, part in asked if len(part.text) <= LONGEST}
        asks = line.plan.asks
        return [PendingQuestion(line.plan.case, line.repeat, asks[key, judge], text) for key, judge, text in found]

    def answer(self, data: bytes) -> AnsweredRepeat | None:
        """The output of a line; None where it has none, or is at fault."""
        line = self._read(data)
        if isinstance(line, ScoredOutput) or lacks_output(line.record):
            return None
        try:
            return AnsweredRepeat(line.plan.case.id, line.repeat, _answer(line.record, Usage(), ()).text)
        except Misplaced:
            return None

    def _read(self, data: bytes) -> _OutputLine | ScoredOutput:
        """A line that can be judged, or the judgement of one that cannot."""
        try:
            record = decode(data)
        except Malformed as error:
            return ScoredOutput("error", str(error))
        if not isinstance(record, dict):
            return ScoredOutput("error", f"the line is {kind_of(record)}, not an object with case, repeat and output")
        plan, repeat, problem = self._plans.addressed(record)
        # Before any other fault: what the selection leaves out is not judged.
        if plan is not None and plan.skipped:
            return ScoredOutput("skipped", plan=plan, repeat=repeat)
        # Decoders differ in which of two values they keep, so what is given twice says nothing.
        twice = repeated_keys(data, record)
        unclear = [path for path in twice if path in _KEYS]
        if unclear and not problem:
            problem = f"{unclear[0]}: the key is given more than once"
        planned, misplanned = stop_of(record)
        problem = problem or misplanned
        if plan is None or repeat is None or problem:
            return ScoredOutput("error", problem, plan, repeat)
        return _OutputLine(record, plan, repeat, planned, twice)

    def case(self, data: bytes) -> str:
        """The case that the judgement of a line will be about; empty where it is about none."""
        try:
            record = decode(data)
        except Malformed:
            return ""
        plan = self._plans.addressed(record)[0] if isinstance(record, dict) else None
        return plan.case.id if plan is not None and not plan.skipped else ""


def _judged(line: _OutputLine) -> ScoredOutput:
    """What becomes of a whole line. Raises Misplaced."""
    record, plan, at = line.record, line.plan, (line.plan, line.repeat)
    usage = usage_of(record)
    votes = _votes(line)
    if lacks_output(record):
        return ScoredOutput("error", why_no_output(record), *at, usage=usage, planned=line.planned)
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
    said = _heard(record, plan.given, line.repeat, line.twice, () if score is None else verdicts)
    return ScoredOutput(status, reason, *at, score, verdicts, usage, answer.text, line.planned, mark, votes, said)


def _mark(answer: Answer, line: _OutputLine) -> AnswerMark:
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


def _votes(line: _OutputLine) -> tuple[Vote, ...]:
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
def scorer_for(params: ChecksParams) -> OutputScorer:
    """The judge of ``params``, kept for the next chunk."""
    return OutputScorer(params)


on_naming(scorer_for.cache_clear)
