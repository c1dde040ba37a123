"""Call judges and embedders for recorded outputs: the questions, and the replies that a line keeps."""

from __future__ import annotations

import tempfile
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from evalq.evalcore.contract.evaluator import OutputQuestion, Request, Stage
from evalq.evalcore.errors import UsageError
from evalq.evalcore.evaluators.checks.answer import LONGEST, CheckedAnswer, lacks_output, output_of, text_digest
from evalq.evalcore.evaluators.checks.cases import ExpandedCase
from evalq.evalcore.evaluators.checks.diversity.kinds import MOST_REPEATS, PAIR, Embedding, pair_digest
from evalq.evalcore.evaluators.checks.diversity.near import kind_of_text, normal
from evalq.evalcore.evaluators.checks.inputs import selected
from evalq.evalcore.evaluators.checks.params import ChecksParams, diversity_of
from evalq.evalcore.evaluators.checks.score import PendingQuestion, scorer_for
from evalq.evalcore.model.calls import Attempt, Output, Prompt
from evalq.evalcore.naming import shorten
from evalq.evalcore.records.cut import batches, opened
from evalq.evalcore.records.inputs import discover, format_suffixes, spool
from evalq.evalcore.records.json_values import Malformed, decode


class VerdictStage:
    """The questions to judges about outputs of the selected cases of ``params``.

    ``inputs`` has the input of each case as text, ``defaults`` the judge of cases that name one; ``judge`` is the
    command's. ``against`` has the other run's answers by (case, repeat). If the diversity of a case has a judge,
    pairs of its answers are judged, too, as questions of the first.
    """

    def __init__(
        self,
        params: ChecksParams,
        inputs: Mapping[str, str],
        defaults: Mapping[str, str],
        judge: str,
        against: Mapping[tuple[str, int], str],
    ) -> None:
        self._scorer = scorer_for(params)
        self._cases = [case.id for case in params.selected()]
        self._inputs = inputs
        self._default_judges = defaults
        self._command_judge = judge
        self._against = against
        self._paired_cases = {
            case.id: case for case in params.selected() if (how := diversity_of(case, params)) is not None and how.judge
        }
        self._answers: dict[tuple[str, int], str] = {}

    def prepare(self, lines: Callable[[], Iterable[bytes]]) -> None:
        """Keep the answers to compare with each other; the first one counts for each repeat."""
        self._answers.clear()
        for answer in map(self._scorer.answer, lines() if self._paired_cases else ()):
            if answer is not None and answer.case in self._paired_cases and answer.repeat < MOST_REPEATS:
                self._answers.setdefault((answer.case, answer.repeat), answer.text)

    def count_questions(self, repeats: int = 1) -> Mapping[tuple[str, int], int]:
        """{(judge, votes): questions} for ``repeats`` outputs of each case. Raises UsageError without a judge."""
        counts = Counter[tuple[str, int]]()
        for case in self._cases:
            plan = self._scorer.plan(case)
            for question in plan.questions_by_judge.values() if plan is not None else ():
                counts[self._target(question.judge, case), question.votes] += question.orders * repeats
            if case in self._paired_cases:
                counts[self._target(PAIR.judge, case), PAIR.votes] += min(repeats, MOST_REPEATS) // 2
        return counts

    @property
    def comparing(self) -> str:
        """The first case with a comparison with another run's answers; empty without one."""
        plans = ((case, self._scorer.plan(case)) for case in self._cases)
        return next(
            (case for case, plan in plans if plan and any(each.against for each in plan.questions.values())), ""
        )

    def _target(self, of_check: str, case: str) -> str:
        # The command's judge replaces the default of the file, not that of a check.
        target = of_check or self._command_judge or self._default_judges.get(case, "")
        if not target:
            raise UsageError(f"case {shorten(case)} needs a judge: name one with --judge NAME")
        return target

    def questions(self, line: bytes) -> list[OutputQuestion]:
        """The questions about the output in ``line``, in the order of the texts."""
        return [question for pending in self._pending(line) for question, _ in self._in_each_order(pending)]

    def _pending(self, line: bytes) -> list[PendingQuestion]:
        return [each for each in self._possible_questions(line) if self._can_ask(each)]

    def _possible_questions(self, line: bytes) -> list[PendingQuestion]:
        """All questions about a line, also comparisons whose other answer may be missing."""
        pending = self._scorer.questions(line)
        answer = self._scorer.answer(line) if self._paired_cases else None
        if answer is not None and answer.case in self._paired_cases and not answer.repeat % 2:
            pending.append(PendingQuestion(self._paired_cases[answer.case], answer.repeat, PAIR, answer.text))
        return pending

    def _can_ask(self, pending: PendingQuestion) -> bool:
        """Whether there is an answer to compare with, if the question needs one."""
        key = (pending.case.id, pending.repeat)
        if pending.question.key == PAIR.key:
            other = self._other_answer(pending)
            fits = other is not None and max(len(pending.text), len(other)) <= LONGEST
            # If several answers have the same repeat, only the first one counts.
            return fits and self._answers.get(key) == pending.text
        return not pending.question.against or key in self._against

    def _other_answer(self, pending: PendingQuestion) -> str | None:
        """The answer to compare with: the next one, or the other run's; None without one."""
        case, repeat = pending.case.id, pending.repeat
        if pending.question.key == PAIR.key:
            return self._answers.get((case, repeat + 1))
        return self._against.get((case, repeat))

    def _digest(self, pending: PendingQuestion) -> str:
        """The digest of the judged text, which connects it with recorded judgements."""
        if pending.question.key == PAIR.key:
            return pair_digest(pending.text, self._other_answer(pending) or "")
        return text_digest(pending.text)

    def _in_each_order(self, pending: PendingQuestion) -> list[tuple[OutputQuestion, str]]:
        """The question in each order of the texts, with the marker that its replies must have."""
        case, question = pending.case.id, pending.question
        other = self._other_answer(pending) or ""
        target = self._target(question.judge, case)
        # In each order, since a judge may favour the first text.
        prompts = [
            question.prompt(self._inputs.get(case), pending.text, other, order) for order in range(question.orders)
        ]
        return [
            (
                OutputQuestion(Prompt(self._question_name(pending, order), "", each.prompt), target, question.votes),
                each.marker,
            )
            for order, each in enumerate(prompts)
        ]

    def add_replies(self, line: bytes, answers: Callable[[OutputQuestion], Sequence[Output]]) -> bytes:
        """``line`` with the recorded replies as its ``judgements``, after those of other checks."""
        possible = self._possible_questions(line)
        if not possible:
            return line
        # Raw values, so that numbers and repeated keys of an answer stay as written.
        record = msgspec.json.decode(line, type=dict[str, msgspec.Raw])
        # Old replies go even without new ones: they were about a comparison with another run.
        keys = {pending.question.key for pending in possible}
        replies = [vote for vote in _recorded_replies(record) if vote.check not in keys]
        for pending in filter(self._can_ask, possible):
            for order, (question, marker) in enumerate(self._in_each_order(pending)):
                replies += [self._reply_record(pending, order, marker, output) for output in answers(question)]
        return msgspec.json.encode({**record, "judgements": replies})

    def recorded_replies(self, line: bytes) -> list[Output]:
        """The replies in ``line`` to the questions that evalq would ask about it now."""
        pending_orders = [
            (pending, order) for pending in self._pending(line) for order in range(pending.question.orders)
        ]
        votes = _recorded_replies(msgspec.json.decode(line, type=dict[str, msgspec.Raw])) if pending_orders else []
        names = {
            (pending.question.key, self._digest(pending), order): self._question_name(pending, order)
            for pending, order in pending_orders
        }
        return [vote.reply(name) for vote in votes if (name := names.get((vote.check, vote.about, vote.order)))]

    def _question_name(self, pending: PendingQuestion, order: int) -> str:
        """The name of a question, which includes the digest of the text."""
        # With the digest, since a repeat that is tried again has another answer.
        return f"{pending.case.id}#{pending.repeat} {pending.question.key} {self._digest(pending)} {order}"

    def _reply_record(self, pending: PendingQuestion, order: int, marker: str, reply: Output) -> _RecordedReply:
        ids = (
            pending.question.key,
            self._digest(pending),
            reply.target,
            reply.config,
            reply.prompt,
            pending.question.template,
            marker,
        )
        content: dict[str, Any] = {"error": reply.error} if reply.failed else {"output": reply.output}
        if reply.text is not None:
            content["text"] = reply.text
        return _RecordedReply(*ids, order, reply.repeat, attempts=reply.attempts, **content)


class _RecordedReply(msgspec.Struct, frozen=True):
    """One judgement in a line (`evalq.evalcore.evaluators.checks.answer.Vote` reads it)."""

    check: str
    about: str
    judge: str
    config: str
    prompt: str
    template: str
    marker: str
    order: int
    vote: int
    output: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET
    error: str | msgspec.UnsetType = msgspec.UNSET
    text: str | msgspec.UnsetType = msgspec.UNSET
    attempts: tuple[Attempt, ...] = ()

    def reply(self, name: str) -> Output:
        """The output that the sweep recorded for the question ``name``."""
        content: dict[str, Any] = {"error": self.error or "", "text": self.text or None}
        if self.output is not msgspec.UNSET:
            content["output"] = self.output
        return Output(0, name, "", self.vote, self.prompt, self.judge, self.config, attempts=self.attempts, **content)


def _recorded_replies(record: Mapping[str, msgspec.Raw]) -> list[_RecordedReply]:
    """The judgements of a line; none if they have another form."""
    try:
        # Not an error: the author of the outputs may use the name for something else.
        return msgspec.json.decode(record.get("judgements", msgspec.Raw(b"[]")), type=list[_RecordedReply])
    except msgspec.DecodeError:
        return []


# The answers of another run, to compare with.


def other_answers(path: str) -> dict[tuple[str, int], str]:
    """{(case, repeat): text} of recorded outputs, the first of each; other lines are ignored.

    Raises InputError.
    """
    answers: dict[tuple[str, int], str] = {}
    for line in _read_lines(path):
        try:
            record = decode(line)
        except Malformed:
            continue
        if isinstance(record, dict) and not lacks_output(record):
            _add_answer(answers, record)
    return answers


def _add_answer(answers: dict[tuple[str, int], str], record: dict[str, Any]) -> None:
    case, repeat, text = record.get("case"), record.get("repeat", 0), record.get("text")
    if isinstance(case, str) and type(repeat) is int:
        answers.setdefault(
            (case, repeat), CheckedAnswer(output_of(record), text if isinstance(text, str) else None).text
        )


def _read_lines(path: str) -> Iterator[bytes]:
    with tempfile.TemporaryDirectory(prefix="evalq-") as scratch:
        for source in discover([path], format_suffixes("jsonl")):
            plain = spool(source, Path(scratch))
            with opened(plain, "jsonl", None) as cutter:
                for batch in batches(cutter, plain):
                    yield from (line for _, line in batch.lines())


# Embedding outputs: each normalised text once, whatever its case and repeat.

MOST_EMBEDDED = 8000
"""Characters of a normalised text for an embedder: most embedders take no more than 8,000 tokens."""


class EmbedStage:
    """The calls of embedders for outputs of the selected cases of ``params`` that are counted by embedding.

    ``embedder`` is the command's target, for cases that name none.
    """

    def __init__(self, params: ChecksParams, embedder: str) -> None:
        self._scorer = scorer_for(params)
        self._targets = {
            case.id: how.embedder or embedder
            for case in params.selected()
            if (how := diversity_of(case, params)) is not None and how.by == "embedding"
        }

    def prepare(self, lines: Callable[[], Iterable[bytes]]) -> None:
        """Nothing to prepare: no question is about two texts."""

    def count_questions(self, repeats: int = 1) -> Mapping[tuple[str, int], int]:
        """{(embedder, 1): questions} for ``repeats`` outputs of each case. Raises UsageError without an embedder."""
        for case, target in self._targets.items():
            if not target:
                raise UsageError(f"case {shorten(case)} needs an embedder: name one with --embedder NAME")
        counts = Counter((target, 1) for target in self._targets.values())
        return {key: count * repeats for key, count in counts.items()}

    def questions(self, line: bytes) -> list[OutputQuestion]:
        """The text of the output in ``line``; none if it has no output or is not counted by embedding."""
        target_and_text = self._target_and_text(line)
        return [] if target_and_text is None else [_question(*target_and_text)]

    def _target_and_text(self, line: bytes) -> tuple[str, str] | None:
        answer = self._scorer.answer(line)
        # Do not pay for repeats that are not counted.
        if answer is None or answer.repeat >= MOST_REPEATS or answer.case not in self._targets:
            return None
        text = normal(answer.text)
        return (self._targets[answer.case], text) if text else None

    def add_replies(self, line: bytes, answers: Callable[[OutputQuestion], Sequence[Output]]) -> bytes:
        """``line`` with the recorded reply as its ``embedding``."""
        target_and_text = self._target_and_text(line)
        replies = answers(_question(*target_and_text)) if target_and_text is not None else ()
        if target_and_text is None or not replies:
            return line
        # Raw values, so that numbers and repeated keys of an answer stay as written.
        record = msgspec.json.decode(line, type=dict[str, msgspec.Raw])
        return msgspec.json.encode(
            {**record, "embedding": _embedding_from_reply(kind_of_text(target_and_text[1]).hex(), replies[0])}
        )

    def recorded_replies(self, line: bytes) -> list[Output]:
        """The recorded vector in ``line``."""
        questions = self.questions(line)
        embedding = _recorded_embedding(line) if questions else None
        # Only of the same text: an answer that has changed since needs a new call.
        if embedding is None or not embedding.vector or f"embedding {embedding.text}" != questions[0].prompt.case:
            return []
        reply = msgspec.Raw(msgspec.json.encode(_VectorReply(embedding.vector)))
        name, prompt = questions[0].prompt.case, questions[0].prompt.digest
        return [Output(0, name, "", 0, prompt, embedding.target, embedding.config, reply, attempts=embedding.attempts)]


def _question(target: str, text: str) -> OutputQuestion:
    return OutputQuestion(Prompt(f"embedding {kind_of_text(text).hex()}", "", text[:MOST_EMBEDDED]), target)


def _recorded_embedding(line: bytes) -> Embedding | None:
    try:
        return msgspec.json.decode(line, type=_Embedded).embedding
    except msgspec.DecodeError:
        return None


class _Embedded(msgspec.Struct):
    embedding: Embedding | None = None


def _embedding_from_reply(text: str, reply: Output) -> Embedding:
    shared: dict[str, Any] = {
        "text": text,
        "target": reply.target,
        "config": reply.config,
        "attempts": reply.attempts,
    }
    if reply.failed:
        return Embedding(**shared, error=reply.error)
    try:
        return Embedding(**shared, vector=msgspec.json.decode(reply.output, type=_VectorReply).vector)
    except msgspec.DecodeError:
        return Embedding(**shared, error="the target gave no vector: one of kind embeddings does")


class _VectorReply(msgspec.Struct):
    vector: bytes


# The judge stage of a sweep: judges and embedders together.


class Stages:
    """Several stages as one: each has questions about the same outputs, and adds its replies."""

    def __init__(self, stages: Sequence[Stage]) -> None:
        self._stages = stages

    def prepare(self, lines: Callable[[], Iterable[bytes]]) -> None:
        """Prepare all stages."""
        for stage in self._stages:
            stage.prepare(lines)

    def count_questions(self, repeats: int = 1) -> Mapping[tuple[str, int], int]:
        """The counts of all stages. Raises UsageError."""
        counts = Counter[tuple[str, int]]()
        for stage in self._stages:
            counts.update(stage.count_questions(repeats))
        return counts

    def questions(self, line: bytes) -> list[OutputQuestion]:
        """The questions of all stages, one after another."""
        return [question for stage in self._stages for question in stage.questions(line)]

    def add_replies(self, line: bytes, answers: Callable[[OutputQuestion], Sequence[Output]]) -> bytes:
        """The line with the replies of all stages."""
        # One after another, so that each keeps what the others added.
        for stage in self._stages:
            line = stage.add_replies(line, answers)
        return line

    def recorded_replies(self, line: bytes) -> list[Output]:
        """The replies in ``line`` to the questions of any stage."""
        return [output for stage in self._stages for output in stage.recorded_replies(line)]


def outputs_to_judge(request: Request) -> list[str]:
    """The recorded outputs to judge: those of ``--outputs`` with ``--judge`` or ``--embedder``."""
    named = request.options.get("judge") or request.options.get("embedder")
    return [str(path) for path in request.options.get("outputs") or ()] if named else []


def judge_stage(request: Request) -> Stage | None:
    """The stage with questions about outputs; None if the cases have none. Raises UsageError, ConfigError."""
    _, params, loaded = selected(request)
    stages: list[Stage | None] = [_verdict_stage(request, params, loaded), _embed_stage(request, params)]
    present = [stage for stage in stages if stage is not None]
    return Stages(present) if present else None


def _embed_stage(request: Request, params: ChecksParams) -> EmbedStage | None:
    embedder = str(request.options.get("embedder") or "")
    stage = EmbedStage(params, embedder)
    if stage.count_questions():
        return stage
    if embedder:
        raise UsageError("--embedder: no case counts its answers by embedding; add --diversity embedding for all cases")
    return None


def _verdict_stage(request: Request, params: ChecksParams, loaded: Iterable[ExpandedCase]) -> VerdictStage | None:
    judge, inputs = str(request.options.get("judge") or ""), {}
    for case in loaded:
        if case.input is not None:
            text = case.input if isinstance(case.input, str) else msgspec.json.encode(case.input).decode()
            inputs[case.params["id"]] = text
    defaults = {case.params["id"]: case.judge for case in loaded}
    against = str(request.options.get("against") or "")
    stage = VerdictStage(params, inputs, defaults, judge, other_answers(against) if against else {})
    counts = stage.count_questions()
    if against and not stage.comparing:
        raise UsageError("--against: no check of the cases is `prefer: true`, which compares with it")
    if stage.comparing and not against:
        raise UsageError(f"case {shorten(stage.comparing)}: `prefer: true` compares with --against OUTPUTS; give them")
    if not counts:
        # An error: otherwise a run without a judge would look like a judged one.
        if judge:
            raise UsageError(
                "--judge: no check of the cases asks a judge (there are: rubric, factual, score, prefer, state), and "
                "no case has `diversity: {judge: true}`"
            )
        return None
    return stage
