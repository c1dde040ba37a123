"""Score one recorded output: find its case, judge it by the checks, and read people's labels."""

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
    NOTHING_USED,
    CheckedAnswer,
    InvalidField,
    Usage,
    Vote,
    lacks_output,
    output_of,
    usage_of,
    votes_of,
    why_no_output,
)
from evalq.evalcore.evaluators.checks.check import CheckVerdict, CompiledCheck, compiled, passes
from evalq.evalcore.evaluators.checks.diversity.kinds import NOT_COUNTED, PAIR, AnswerMark, half_of, mark_of
from evalq.evalcore.evaluators.checks.params import AnyCase, ChecksParams, Diversity, Labels, diversity_of, read_joined
from evalq.evalcore.evaluators.checks.user.scored import LOST, ScoredUser, UserVerdict, user_of, with_conduct
from evalq.evalcore.evaluators.checks.vocabulary.declaring import BadCheck, JudgeQuestion
from evalq.evalcore.model.canonical import canonical_json
from evalq.evalcore.naming import found, kind_of, shorten
from evalq.evalcore.records.inputs import case_of_name, excel_changed, readings
from evalq.evalcore.records.json_values import Malformed, decode, repeated_keys, stop_of

# People's labels of one output, from its line or from a file.


class KnownLabels(NamedTuple):
    """A case's labels from a file. ``judged`` says for each check whether it is fallible and decides about the agent,
    ``of_user`` whether it is about the simulated user. ``positions`` has the index of each check by name (None if
    several share it), ``repeats`` the labels by repeat and position.
    """

    case: AnyCase
    judged: tuple[bool, ...]
    of_user: tuple[bool, ...]
    positions: Mapping[str, int | None]
    repeats: Mapping[int, Mapping[int, bool]]


class OutputLabels(NamedTuple):
    """People's labels of an output with a verdict.

    ``by_check`` has a label or None for each check. ``passes_plain``: whether the output passes by the checks that are
    not fallible; None without any. ``passes_labelled``: whether it passes with labels instead of fallible verdicts;
    None if one is missing, or no fallible check decides. ``unmatched`` describes labels that match no check.
    """

    by_check: tuple[bool | None, ...] = ()
    passes_plain: bool | None = None
    passes_labelled: bool | None = None
    unmatched: tuple[str, ...] = ()


NO_LABELS = OutputLabels()


def _known_labels(
    case: AnyCase, checks: Sequence[CompiledCheck], judged: tuple[bool, ...], labels: Mapping[str, Labels]
) -> KnownLabels:
    """The labels of a case's checks, without those whose name matches no check, or several."""
    positions: dict[str, int | None] = {}
    for index, check in enumerate(checks):
        # None, not the first: the label might be meant for another check of that name.
        positions[check.name] = None if check.name in positions else index
    repeats: dict[int, dict[int, bool]] = {}
    for name, labelled in labels.items():
        position = positions.get(name)
        if position is not None:
            for passed, labelled_repeats in ((True, labelled.passed), (False, labelled.failed)):
                for repeat in labelled_repeats:
                    repeats.setdefault(repeat, {})[position] = passed
    of_user = tuple([check.about_user for check in checks])
    decides = tuple([each and not user for each, user in zip(judged, of_user, strict=True)])
    return KnownLabels(case, decides, of_user, positions, repeats)


def why_unmatched(name: str, case: str, positions: Mapping[str, int | None]) -> str:
    """Why a label matches no check called ``name``; empty if it matches one."""
    if name not in positions:
        return f"{shorten(case)} has no check called {shorten(name)!r}"
    if positions[name] is None:
        return f"{shorten(case)} has several checks called {shorten(name)!r}: tell them apart by `name`"
    return ""


def _output_labels(
    record: Mapping[str, Any], plan: CasePlan, repeat: int, twice: Sequence[str], verdicts: Sequence[CheckVerdict]
) -> OutputLabels:
    """People's labels of the output; ``verdicts`` is empty if it has none. Raises InvalidField."""
    if not plan.labelled and record.get("labels") is None and not any(plan.judged):
        return NO_LABELS
    known = plan.labels
    labels: dict[int, bool] = dict(known.repeats.get(repeat, {}))
    unmatched = (
        tuple(_add_line_labels(record, known, twice, labels, verdicts)) if record.get("labels") is not None else ()
    )
    if not verdicts:
        return OutputLabels(unmatched=unmatched)
    by_check = tuple(labels.get(index) for index in range(len(verdicts))) if labels else ()
    if not any(known.judged):
        return OutputLabels(by_check, unmatched=unmatched) if by_check or unmatched else NO_LABELS
    return OutputLabels(by_check, _passes_plain(known, verdicts), _passes_labelled(known, verdicts, labels), unmatched)


def _add_line_labels(
    record: Mapping[str, Any],
    known: KnownLabels,
    twice: Sequence[str],
    labels: dict[int, bool],
    verdicts: Sequence[CheckVerdict],
) -> list[str]:
    """Add the labels of the line to ``labels``; return why others match nothing. Raises InvalidField."""
    line_labels, unmatched = record["labels"], []
    if not isinstance(line_labels, dict):
        raise InvalidField(f"labels: {kind_of(line_labels)} where an object of checks is wanted")
    if any(path.startswith(("labels.", "labels[")) for path in twice):
        raise InvalidField("labels: a check is labelled more than once")
    for name, passed in line_labels.items():
        if not isinstance(passed, bool):
            raise InvalidField(f"labels, {shorten(name)}: {kind_of(passed)} where true or false is wanted")
        why = why_unmatched(name, known.case.id, known.positions)
        position = known.positions.get(name)
        if position is None:
            unmatched.append(why)
            continue
        # An error, since evalq cannot know whether the line or the file is right.
        if labels.setdefault(position, passed) is not passed:
            in_file = "true" if labels[position] else "false"
            raise InvalidField(f"labels, {shorten(name)}: {str(passed).lower()} here, and {in_file} in --labels")
        if not verdicts or verdicts[position].passed is None:
            unmatched.append(
                f"{shorten(name)!r} of {shorten(known.case.id)} repeat {record.get('repeat', 0)} has no verdict"
            )
    return unmatched


def _passes_plain(known: KnownLabels, verdicts: Sequence[CheckVerdict]) -> bool | None:
    parts = zip(verdicts, known.judged, known.of_user, strict=True)
    plain = [verdict for verdict, judged, of_user in parts if not judged and not of_user]
    if not any(verdict.weight and verdict.passed is not None for verdict in plain):
        return None
    return passes(plain, known.case.thresholds.score)[0] == "passed"


def _passes_labelled(known: KnownLabels, verdicts: Sequence[CheckVerdict], labels: Mapping[int, bool]) -> bool | None:
    # Only if all fallible verdicts are labelled: otherwise the judge would still decide in part.
    if any(judged and index not in labels for index, judged in enumerate(known.judged)):
        return None
    labelled = [
        _labelled_verdict(verdict, labels[index]) if known.judged[index] else verdict
        for index, verdict in enumerate(verdicts)
        if not known.of_user[index]
    ]
    return passes(labelled, known.case.thresholds.score)[0] == "passed"


def _labelled_verdict(verdict: CheckVerdict, passed: bool) -> CheckVerdict:
    # A label has no score in between: for `thresholds: score` it counts 0 or 1.
    return CheckVerdict(verdict.name, passed, float(passed), verdict.wanted, weight=verdict.weight)


# Cases ready to score, found by the case and repeat of a line.

_MOST_REPEATS = 2**53


class CasePlan(msgspec.Struct, frozen=True):
    """A case ready to score: its index among the cases, and whether the selection skips it.

    ``questions`` are those to judges, by the key of recorded judgements; ``questions_by_judge`` are those of its
    checks, by key and judge, with the most votes that any check wants. ``judged`` says for each check whether it is
    fallible and decides. ``labelled`` are people's labels from a file, by check. ``diversity`` says how to count
    answers by kind, or is None.
    """

    index: int
    case: AnyCase
    checks: tuple[CompiledCheck, ...]
    skipped: bool
    questions: Mapping[str, JudgeQuestion]
    questions_by_judge: Mapping[tuple[str, str], JudgeQuestion]
    judged: tuple[bool, ...]
    labelled: Mapping[str, Labels]
    diversity: Diversity | None = None
    of_user: tuple[int, ...] = ()
    """The checks about the simulated user: they say whether the answer counts."""
    plain: bool = False
    """Whether its checks alone decide about a text: no selection, judge, label, kind of answer or threshold does."""

    @property
    def wants_calls(self) -> bool:
        """Whether one of its checks wants tool calls: then an answer may have no text."""
        return any(check.wants_calls for check in self.checks)

    @property
    def labels(self) -> KnownLabels:
        """The labels of its checks, from a file."""
        return _known_labels(self.case, self.checks, self.judged, self.labelled)


_NO_LABELLED: Mapping[str, Labels] = {}
_NO_QUESTIONS: Mapping[str, JudgeQuestion] = {}
_NO_PAIRS: Mapping[tuple[str, str], JudgeQuestion] = {}
_MOST_PLANS = 20_000
"""Compiled cases that are kept: each takes 2 KB, and with many cases each has few outputs."""


class CasePlans:
    """The cases of one set of params; each is compiled when it is needed."""

    def __init__(self, params: ChecksParams) -> None:
        self._cases: dict[str, tuple[int, AnyCase]] = {
            case.id: (index, case) for index, case in enumerate(params.cases)
        }
        self._tag = params.tag
        self._params = params
        self._plans: dict[str, CasePlan] = {}

    def plan(self, case: str) -> CasePlan | None:
        """The case of that id, ready to score; None if there is none."""
        plan = self._plans.get(case)
        if plan is None and case in self._cases:
            plan = self.of_case(*self._cases[case])
            if len(self._plans) >= _MOST_PLANS:
                self._plans.clear()
            self._plans[case] = plan
        return plan

    def of_case(self, index: int, case: AnyCase) -> CasePlan:
        """The case with that number, ready to score."""
        skipped = bool(self._tag) and self._tag not in case.tags
        checks = () if skipped else tuple([self._check(written, case) for written in case.checks])
        labelled = self._params.labels.get(case.id, _NO_LABELLED) if self._params.labels else _NO_LABELLED
        how = diversity_of(case, self._params)
        of_user = tuple([at for at, check in enumerate(checks) if check.about_user and check.weight])
        if how is None and not labelled and not any(check.fallible or check.asks for check in checks):
            judged = (False,) * len(checks)
            plain = not skipped and not case.thresholds.score and not any(check.reads_record for check in checks)
            return CasePlan(
                *(index, case, checks, skipped, _NO_QUESTIONS, _NO_PAIRS, judged, _NO_LABELLED, None, of_user, plain)
            )
        # The most votes last: of several checks with the same question, the last one stays.
        every = [each for check in checks for each in check.judge_questions()]
        every.sort(key=lambda each: each.votes)
        questions = {each.key: each for each in every} if every else {}
        questions_by_judge = {(each.key, each.judge): each for each in every} if every else {}
        if how is not None and how.judge:
            questions[PAIR.key] = PAIR
        judged = tuple([bool(check.weight) and check.fallible for check in checks])
        return CasePlan(index, case, checks, skipped, questions, questions_by_judge, judged, labelled, how, of_user)

    def _check(self, written: Mapping[str, Any], case: AnyCase) -> CompiledCheck:
        try:
            return compiled(written)
        except BadCheck as error:
            where = f".{error.path}" if error.path else ""
            raise ConfigError(f"case {case.id}: {canonical_json(dict(written)).decode()}{where}: {error}") from None

    def take(self, line: bytes) -> bytes:
        """The output in a line of joined outputs; its case is the only one that `plan` knows until the next line."""
        number, case, output = read_joined(line)
        self._plans.clear()
        if case is not None:
            self._plans[case.id] = self.of_case(number, case)
        return output

    def find_case(self, record: dict[str, Any]) -> tuple[CasePlan | None, int | None, str]:
        """The case and repeat of a line, and what is wrong with them."""
        if "case" not in record and isinstance(record.get("named"), str):
            return self._find_by_name(record["named"])
        case, repeat = record.get("case"), record.get("repeat", 0)
        # Not isinstance: to Python, true is an int.
        whole = type(repeat) is int and 0 <= repeat < _MOST_REPEATS
        if not isinstance(case, str):
            return None, None, f"case: {found(record, 'case')} where the id of a case is wanted"
        plan = self.plan(case)
        if plan is None:
            hint = excel_changed(case)
            why = f"case: {shorten(case)!r} is none of the cases{hint and '; '}{hint}"
            return None, repeat if whole else None, why
        if not whole:
            return plan, None, f"repeat: {found(record, 'repeat')} where a whole number from 0 is wanted"
        return plan, repeat, ""

    def _find_by_name(self, name: str) -> tuple[CasePlan | None, int | None, str]:
        """For an output from a file: the case of that name, or else the last number in the name is the repeat."""
        match = case_of_name(name, lambda case: self.plan(case) is not None)
        if match is None:
            ids = " nor ".join(repr(shorten(case)) for case, _ in readings(name))
            return None, None, f"named: no case has the id {ids}; call the file ID.txt or ID.REPEAT.txt"
        return self.plan(match[0]), match[1], ""


_KEYS = frozenset(
    (
        *("case", "repeat", "named", "output", "error", "text", "tool_calls", "attempts", "judgements"),
        "labels",
        *("stop", "stop.rule", "stop.of"),
        *("latency_seconds", "cost", "prompt_tokens", "completion_tokens"),
        *("messages", "usage", "served", "seconds", "first_token_seconds", "turns", "finish", "user"),
    )
)
_IN_JUDGEMENT = re.compile(r"judgements\[(\d+)\]")


class ScoredOutput(msgspec.Struct, frozen=True):
    """The result of one line. ``status`` is passed, failed, error or skipped; ``plan`` is None for an unknown case.

    Passed and failed outputs have a ``score``; those with an answer have ``checks``. ``planned`` is the number of calls
    planned for the case if it could stop early, else 0. ``votes`` are the recorded judgements of its checks. ``mark``
    stands for the answer, if answers are counted by kind and this one has a verdict. ``user`` is what is known of its
    simulated user.
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
    labels: OutputLabels = NO_LABELS
    user: ScoredUser | None = None


class PendingQuestion(NamedTuple):
    """A question to ask about ``text``, the output of a repeat or a part of it."""

    case: AnyCase
    repeat: int
    question: JudgeQuestion
    text: str


class AnsweredRepeat(NamedTuple):
    """The output of a repeat, as text."""

    case: str
    repeat: int
    text: str


class _TextLine(msgspec.Struct, forbid_unknown_fields=True):
    """A line with a text and nothing else."""

    case: str
    output: str
    repeat: int = 0


_read_text = msgspec.json.Decoder(_TextLine).decode


class _OutputLine(NamedTuple):
    """A valid line, with the paths of its repeated keys."""

    record: dict[str, Any]
    plan: CasePlan
    repeat: int
    planned: int
    repeated: list[str]


class OutputScorer:
    """Scores lines by one set of params, independently of their order; `scorer_for` makes it."""

    def __init__(self, params: ChecksParams) -> None:
        self._plans = CasePlans(params)
        self._joined = params.cases_file is not None

    def output_in(self, line: bytes) -> bytes:
        """The recorded output in a line of the input."""
        return line.split(b"\t", 2)[2] if self._joined else line

    def plan_for(self, case: AnyCase) -> CasePlan | None:
        """A case of the params, ready to score."""
        return self._plans.of_case(-1, case) if self._joined else self.plan(case.id)

    def plan(self, case: str) -> CasePlan | None:
        """The case of that id, ready to score; None if there is none."""
        return self._plans.plan(case)

    def test(self, data: bytes) -> ScoredOutput:
        """The result of one line of any bytes."""
        data = self._plans.take(data) if self._joined else data
        return self._quick(data) or self._test(data)

    def _quick(self, data: bytes) -> ScoredOutput | None:
        """The result of a line with a text and nothing else, of a plain case: `_test` in less time; None for others."""
        if (
            data.count(b'"case"') != 1
            or data.count(b'"output"') != 1
            or data.count(b'"repeat"') > 1
            or b"\\u00" in data
        ):
            return None  # a key may be there twice
        try:
            line = _read_text(data)
        except (msgspec.DecodeError, UnicodeDecodeError):
            return None
        plan, repeat = self._plans.plan(line.case), line.repeat
        if plan is None or not plan.plain or not 0 <= repeat < _MOST_REPEATS:
            return None
        answer = CheckedAnswer(line.output)
        verdicts = tuple([check.judge(answer) for check in plan.checks])
        for verdict in verdicts:
            if not verdict.passed or verdict.weight != 1.0 or verdict.score != 1.0:
                return _result(verdicts, answer, plan, repeat)
        return ScoredOutput("passed", "", plan, repeat, 1.0, verdicts, NOTHING_USED, line.output)

    def _test(self, data: bytes) -> ScoredOutput:
        line = self._read(data)
        if isinstance(line, ScoredOutput):
            return line
        try:
            return _score_line(line)
        except InvalidField as error:
            return ScoredOutput("error", str(error), line.plan, line.repeat, planned=line.planned)

    def questions(self, data: bytes) -> list[PendingQuestion]:
        """The questions for judges about the output of a line, each once; none for a faulty line."""
        line = self._read(self._plans.take(data) if self._joined else data)
        if isinstance(line, ScoredOutput) or not line.plan.questions or lacks_output(line.record):
            return []
        try:
            answer = _answer_of(line, usage_of(line.record), ())
        except InvalidField:
            return []
        questions = (question for check in line.plan.checks for question in check.questions(answer))
        # The same question to one judge about one text is paid once.
        pending = {
            (each.key, each.judge, part.text): None
            for each, part in questions
            if part.has_text and len(part.text) <= LONGEST
        }
        by_judge = line.plan.questions_by_judge
        return [
            PendingQuestion(line.plan.case, line.repeat, by_judge[key, judge], text) for key, judge, text in pending
        ]

    def answer(self, data: bytes) -> AnsweredRepeat | None:
        """The output of a line; None if it has none, or is faulty."""
        line = self._read(self._plans.take(data) if self._joined else data)
        if isinstance(line, ScoredOutput) or lacks_output(line.record):
            return None
        try:
            return AnsweredRepeat(line.plan.case.id, line.repeat, _answer_of(line, Usage(), ()).text)
        except InvalidField:
            return None

    def _read(self, data: bytes) -> _OutputLine | ScoredOutput:
        """The valid line, or the result of one that is not."""
        try:
            record = decode(data)
        except Malformed as error:
            return ScoredOutput("error", str(error))
        if not isinstance(record, dict):
            return ScoredOutput("error", f"the line is {kind_of(record)}, not an object with case, repeat and output")
        plan, repeat, problem = self._plans.find_case(record)
        # Before any other fault: cases outside of the selection are not judged.
        if plan is not None and plan.skipped:
            return ScoredOutput("skipped", plan=plan, repeat=repeat)
        # Decoders differ in which of two values they keep, so a repeated key is an error.
        twice = repeated_keys(data, record)
        unclear = [path for path in twice if path in _KEYS]
        if unclear and not problem:
            problem = f"{unclear[0]}: the key is given more than once"
        planned, stop_fault = stop_of(record)
        problem = problem or stop_fault
        if plan is None or repeat is None or problem:
            return ScoredOutput("error", problem, plan, repeat)
        return _OutputLine(record, plan, repeat, planned, twice)

    def case(self, data: bytes) -> str:
        """The case of a line; empty if it has none or the selection skips it."""
        try:
            record = decode(self._plans.take(data) if self._joined else data)
        except Malformed:
            return ""
        plan = self._plans.find_case(record)[0] if isinstance(record, dict) else None
        return plan.case.id if plan is not None and not plan.skipped else ""


def _verdict_on(verdicts: Sequence[CheckVerdict], plan: CasePlan) -> tuple[str, float | None, str]:
    """(status, score, reason) of an output by all of its checks."""
    # An output with a check that cannot be computed counts in no rate, whatever other checks say: rates over the
    # others would be biased (decision 19). A check of weight 0 is only shown.
    undecided = next((each for each in verdicts if each.passed is None and each.weight), None)
    if undecided is not None:
        return "error", None, f"{undecided.name}: {undecided.error}"
    return passes(verdicts, plan.case.thresholds.score)


def _result(verdicts: tuple[CheckVerdict, ...], answer: CheckedAnswer, plan: CasePlan, repeat: int) -> ScoredOutput:
    """The result of an output of a plain case."""
    status, score, reason = _verdict_on(verdicts, plan)
    return ScoredOutput(status, reason, plan, repeat, score, verdicts, NOTHING_USED, answer.text)


def _score_line(line: _OutputLine) -> ScoredOutput:
    """The result of a valid line. Raises InvalidField."""
    record, plan, plan_and_repeat = line.record, line.plan, (line.plan, line.repeat)
    usage = usage_of(record)
    votes = _votes(line)
    user = user_of(record, checked=bool(plan.of_user))
    if lacks_output(record):
        why = why_no_output(record)
        if user is not None and user.fault:
            why = f"{LOST}: {why.removeprefix('no output: ').removeprefix('user: ')}"
        return ScoredOutput("error", why, *plan_and_repeat, usage=usage, planned=line.planned, user=user)
    answer = _answer_of(line, usage, votes)
    verdicts = tuple(check.judge(answer) for check in plan.checks)
    own = tuple(each for at, each in enumerate(verdicts) if at not in plan.of_user) if plan.of_user else verdicts
    status, score, reason = _verdict_on(own, plan)
    labels = _output_labels(record, plan, line.repeat, line.repeated, () if score is None else verdicts)
    if user is not None:
        if score is not None:
            by_people = labels.by_check or (None,) * len(verdicts)
            about = [UserVerdict(verdicts[at], plan.judged[at], by_people[at]) for at in plan.of_user]
            user = with_conduct(user, about, passes=status == "passed")
        if user.fault:
            status, score, reason = "error", None, f"{LOST}: {user.fault}"
        elif user.held is None and plan.of_user and score is not None:
            unknown = next(verdicts[at] for at in plan.of_user if verdicts[at].passed is None)
            status, score, reason = "error", None, f"{unknown.name}: {unknown.error}"
    mark = NOT_COUNTED if score is None else _mark_of(answer, line)
    return ScoredOutput(
        status, reason, *plan_and_repeat, score, verdicts, usage, answer.text, line.planned, mark, votes, labels, user
    )


def _mark_of(answer: CheckedAnswer, line: _OutputLine) -> AnswerMark:
    """The mark of an answer, to count answers by kind. Raises InvalidField."""
    how = line.plan.diversity
    if how is not None and how.by == "embedding":
        for path in line.repeated:
            # Only here: otherwise the key is ignored, since importers may keep any.
            if path == "embedding" or path.startswith("embedding."):
                raise InvalidField(f"{path}: the key is given more than once")
    mark = mark_of(answer.text, how, line.record)
    if how is None or not how.judge:
        return mark
    return mark._replace(half=half_of(answer.text, line.repeat, answer.judgements))


def _votes(line: _OutputLine) -> tuple[Vote, ...]:
    """The recorded judgements for its checks. Raises InvalidField."""
    listed = line.record.get("judgements")
    if listed is None or not line.plan.questions:
        return ()
    # A repeated key in one judgement does not affect the others.
    unclear = {int(match[1]) for path in line.repeated if (match := _IN_JUDGEMENT.match(path))}
    try:
        votes = votes_of(listed, unclear)
    except ValueError as error:
        raise InvalidField(str(error)) from None
    return tuple(vote for vote in votes if vote.check in line.plan.questions)


def _answer_of(line: _OutputLine, usage: Usage, votes: tuple[Vote, ...]) -> CheckedAnswer:
    """The output of a line. Raises InvalidField."""
    record = line.record
    text = record.get("text")
    if text is not None and not isinstance(text, str):
        raise InvalidField(f"text: {kind_of(text)} where a string is wanted")
    answer = CheckedAnswer(output_of(record), text, usage, record.get("tool_calls"), votes, record)
    if not answer.has_text and line.plan.wants_calls:
        answer.may_be_silent = True
    return answer


@lru_cache(maxsize=16)
def scorer_for(params: ChecksParams) -> OutputScorer:
    """The scorer of ``params``, cached for the next chunk."""
    return OutputScorer(params)


on_naming(scorer_for.cache_clear)
