"""Asking judges and embedders about recorded outputs: the questions, and what a line keeps of the replies."""

from __future__ import annotations

import tempfile
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from evalq.evalcore.contract.evaluator import OutputQuestion, Request, Stage
from evalq.evalcore.errors import UsageError
from evalq.evalcore.evaluators.checks.answer import LONGEST, Answer, about, lacks_output
from evalq.evalcore.evaluators.checks.cases import ExpandedCase
from evalq.evalcore.evaluators.checks.diversity.kinds import MOST_REPEATS, PAIR, Embedding, about_pair
from evalq.evalcore.evaluators.checks.diversity.near import kind_of_text, normal
from evalq.evalcore.evaluators.checks.inputs import selected
from evalq.evalcore.evaluators.checks.params import ChecksParams, diversity_of
from evalq.evalcore.evaluators.checks.score import PendingQuestion as Asking
from evalq.evalcore.evaluators.checks.score import scorer_for
from evalq.evalcore.model.calls import Attempt, Output, Prompt
from evalq.evalcore.naming import shorten
from evalq.evalcore.records.cut import batches, opened
from evalq.evalcore.records.inputs import discover, format_suffixes, spool
from evalq.evalcore.records.json_values import Malformed, decode


class VerdictStage:
    """Asks about outputs of the selected cases of ``params``.

    ``inputs`` is what each case asks, as text, and ``defaults`` the judge of those that name one; ``judge`` is the one
    that the command names. ``against`` has the other run's answers by (case, repeat). Of cases whose diversity has a
    judge it is asked about pairs of answers, too, under the record of the first.
    """

    def __init__(
        self,
        params: ChecksParams,
        inputs: Mapping[str, str],
        defaults: Mapping[str, str],
        judge: str,
        against: Mapping[tuple[str, int], str],
    ) -> None:
        self._judge = scorer_for(params)
        self._cases = [case.id for case in params.selected()]
        self._inputs = inputs
        self._defaults = defaults
        self._named = judge
        self._against = against
        self._paired = {
            case.id: case for case in params.selected() if (how := diversity_of(case, params)) is not None and how.judge
        }
        self._answers: dict[tuple[str, int], str] = {}

    def prepare(self, lines: Callable[[], Iterable[bytes]]) -> None:
        """Keep the answers that are compared with each other; of several to one repeat the first counts."""
        self._answers.clear()
        for found in map(self._judge.answer, lines() if self._paired else ()):
            if found is not None and found.case in self._paired and found.repeat < MOST_REPEATS:
                self._answers.setdefault((found.case, found.repeat), found.text)

    def asks(self, repeats: int = 1) -> Mapping[tuple[str, int], int]:
        """{(judge, votes): questions} about so many outputs of each case. Raises UsageError where no judge is named."""
        found = Counter[tuple[str, int]]()
        for case in self._cases:
            plan = self._judge.plan(case)
            for asked in plan.asks.values() if plan is not None else ():
                found[self._target(asked.judge, case), asked.votes] += asked.orders * repeats
            if case in self._paired:
                found[self._target(PAIR.judge, case), PAIR.votes] += min(repeats, MOST_REPEATS) // 2
        return found

    @property
    def comparing(self) -> str:
        """The first case that is compared with another run's answers; empty without one."""
        plans = ((case, self._judge.plan(case)) for case in self._cases)
        return next((case for case, plan in plans if plan and any(each.against for each in plan.asked.values())), "")

    def _target(self, own: str, case: str) -> str:
        # What a check names is part of what it asks; what the command names stands in for the file's default alone.
        target = own or self._named or self._defaults.get(case, "")
        if not target:
            raise UsageError(f"case {shorten(case)}: a judge is to decide, and none is named: --judge NAME")
        return target

    def questions(self, line: bytes) -> list[OutputQuestion]:
        """What judges are asked about the output in ``line``, the answer first before the other text."""
        return [question for asking in self._asked(line) for question, _ in self._both(asking)]

    def _asked(self, line: bytes) -> list[Asking]:
        return [each for each in self._found(line) if self._can_ask(each)]

    def _found(self, line: bytes) -> list[Asking]:
        """What there is to ask about a line, where there is another answer to compare it with."""
        found = self._judge.questions(line)
        answer = self._judge.answer(line) if self._paired else None
        if answer is not None and answer.case in self._paired and not answer.repeat % 2:
            found.append(Asking(self._paired[answer.case], answer.repeat, PAIR, answer.text))
        return found

    def _can_ask(self, asking: Asking) -> bool:
        """Not where there is no answer to compare with."""
        place = (asking.case.id, asking.repeat)
        if asking.asked.key == PAIR.key:
            other = self._other(asking)
            fits = other is not None and max(len(asking.text), len(other)) <= LONGEST
            # A repeat that stands there twice has one answer, the first.
            return fits and self._answers.get(place) == asking.text
        return not asking.asked.against or place in self._against

    def _other(self, asking: Asking) -> str | None:
        """The answer that it is compared with: the next one, or the other run's; None where there is none."""
        case, repeat = asking.case.id, asking.repeat
        if asking.asked.key == PAIR.key:
            return self._answers.get((case, repeat + 1))
        return self._against.get((case, repeat))

    def _about(self, asking: Asking) -> str:
        """The digest of what is judged, by which a recorded judgement is known to be of it."""
        if asking.asked.key == PAIR.key:
            return about_pair(asking.text, self._other(asking) or "")
        return about(asking.text)

    def _both(self, asking: Asking) -> list[tuple[OutputQuestion, str]]:
        """The question in each order of the texts, with the marker that its replies have to have."""
        case, asked = asking.case.id, asking.asked
        other = self._other(asking) or ""
        target = self._target(asked.judge, case)
        # Once in each order: a judge may favour what it reads first.
        sent = [asked.prompt(self._inputs.get(case), asking.text, other, order) for order in range(asked.orders)]
        return [
            (OutputQuestion(Prompt(self._name(asking, order), "", each.prompt), target, asked.votes), each.marker)
            for order, each in enumerate(sent)
        ]

    def joined(self, line: bytes, answers: Callable[[OutputQuestion], Sequence[Output]]) -> bytes:
        """``line`` with the recorded replies as its ``judgements``; what it had of other checks stays before them."""
        found = self._found(line)
        if not found:
            return line
        # The values as they were written: numbers and repeated keys of an answer are no business of a judge.
        record = msgspec.json.decode(line, type=dict[str, msgspec.Raw])
        # Also what cannot be asked: what was said of a comparison with another run says nothing of this one.
        again = {asking.asked.key for asking in found}
        told = [vote for vote in _recorded_replies(record) if vote.check not in again]
        for asking in filter(self._can_ask, found):
            for order, (question, marker) in enumerate(self._both(asking)):
                told += [self._told(asking, order, marker, reply) for reply in answers(question)]
        return msgspec.json.encode({**record, "judgements": told})

    def recorded(self, line: bytes) -> list[Output]:
        """The replies in ``line`` to what judges would be asked about it now."""
        asked = [(asking, order) for asking in self._asked(line) for order in range(asking.asked.orders)]
        votes = _recorded_replies(msgspec.json.decode(line, type=dict[str, msgspec.Raw])) if asked else []
        names = {(asking.asked.key, self._about(asking), order): self._name(asking, order) for asking, order in asked}
        return [vote.reply(name) for vote in votes if (name := names.get((vote.check, vote.about, vote.order)))]

    def _name(self, asking: Asking, order: int) -> str:
        """What a question is called: another one about another text."""
        # By the text, too: a repeat that was tried again has another answer, and what was said of the first is not of
        # it.
        return f"{asking.case.id}#{asking.repeat} {asking.asked.key} {self._about(asking)} {order}"

    def _told(self, asking: Asking, order: int, marker: str, reply: Output) -> _RecordedReply:
        ids = (
            asking.asked.key,
            self._about(asking),
            reply.target,
            reply.config,
            reply.prompt,
            asking.asked.template,
            marker,
        )
        said: dict[str, Any] = {"error": reply.error} if reply.failed else {"output": reply.output}
        if reply.text is not None:
            said["text"] = reply.text
        return _RecordedReply(*ids, order, reply.repeat, attempts=reply.attempts, **said)


class _RecordedReply(msgspec.Struct, frozen=True):
    """One judgement, as a line has it (`evalq.evalcore.evaluators.checks.answer.Vote` reads it)."""

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
        """What the sweep recorded of the question ``name``."""
        told: dict[str, Any] = {"error": self.error or "", "text": self.text or None}
        if self.output is not msgspec.UNSET:
            told["output"] = self.output
        return Output(0, name, "", self.vote, self.prompt, self.judge, self.config, attempts=self.attempts, **told)


def _recorded_replies(record: Mapping[str, msgspec.Raw]) -> list[_RecordedReply]:
    """The judgements that a line has already; none where these are not of that form."""
    try:
        # Whoever wrote the outputs may have used the name for something else, which is not ours to refuse.
        return msgspec.json.decode(record.get("judgements", msgspec.Raw(b"[]")), type=list[_RecordedReply])
    except msgspec.DecodeError:
        return []


# The answers of another run, with which those of this one are compared.


def other_answers(path: str) -> dict[tuple[str, int], str]:
    """{(case, repeat): text} of recorded outputs, the first of each; what is no output is passed over.

    Raises InputError.
    """
    found: dict[tuple[str, int], str] = {}
    for line in _lines(path):
        try:
            record = decode(line)
        except Malformed:
            continue
        if isinstance(record, dict) and not lacks_output(record):
            _keep(found, record)
    return found


def _keep(found: dict[tuple[str, int], str], record: dict[str, Any]) -> None:
    case, repeat, text = record.get("case"), record.get("repeat", 0), record.get("text")
    if isinstance(case, str) and type(repeat) is int:
        found.setdefault((case, repeat), Answer(record["output"], text if isinstance(text, str) else None).text)


def _lines(path: str) -> Iterator[bytes]:
    with tempfile.TemporaryDirectory(prefix="evalq-") as scratch:
        for source in discover([path], format_suffixes("jsonl")):
            plain = spool(source, Path(scratch))
            with opened(plain, "jsonl", None) as cutter:
                for batch in batches(cutter, plain):
                    yield from (line for _, line in batch.lines())


# Asking an embedder about outputs: each normalised text once, whatever case and repeat it is of.

MOST_EMBEDDED = 8000
"""Characters of a normalised text that an embedder is given: most take no more than 8,000 tokens."""


class EmbedStage:
    """Asks about outputs of the selected cases of ``params`` that are counted by embedding.

    ``embedder`` is the target that the command names, for cases that name none.
    """

    def __init__(self, params: ChecksParams, embedder: str) -> None:
        self._judge = scorer_for(params)
        self._targets = {
            case.id: how.embedder or embedder
            for case in params.selected()
            if (how := diversity_of(case, params)) is not None and how.by == "embedding"
        }

    def prepare(self, lines: Callable[[], Iterable[bytes]]) -> None:
        """Nothing: each text stands for itself."""

    def asks(self, repeats: int = 1) -> Mapping[tuple[str, int], int]:
        """{(embedder, 1): questions} about so many outputs of each case. Raises UsageError where none is named."""
        for case, target in self._targets.items():
            if not target:
                raise UsageError(f"case {shorten(case)}: an embedder is to be asked; name one: --embedder NAME")
        counts = Counter((target, 1) for target in self._targets.values())
        return {asked: count * repeats for asked, count in counts.items()}

    def questions(self, line: bytes) -> list[OutputQuestion]:
        """The text of the output in ``line``; nothing where it has none, or is not counted by embedding."""
        asked = self._asked(line)
        return [] if asked is None else [_question(*asked)]

    def _asked(self, line: bytes) -> tuple[str, str] | None:
        found = self._judge.answer(line)
        # Repeats that are not counted are not paid for either.
        if found is None or found.repeat >= MOST_REPEATS or found.case not in self._targets:
            return None
        text = normal(found.text)
        return (self._targets[found.case], text) if text else None

    def joined(self, line: bytes, answers: Callable[[OutputQuestion], Sequence[Output]]) -> bytes:
        """``line`` with what was recorded of its text as its ``embedding``."""
        asked = self._asked(line)
        replies = answers(_question(*asked)) if asked is not None else ()
        if asked is None or not replies:
            return line
        # The values as they were written: numbers and repeated keys of an answer are no business of an embedder.
        record = msgspec.json.decode(line, type=dict[str, msgspec.Raw])
        return msgspec.json.encode(
            {**record, "embedding": _embedding_of_reply(kind_of_text(asked[1]).hex(), replies[0])}
        )

    def recorded(self, line: bytes) -> list[Output]:
        """The vector that ``line`` has of its text, as it was recorded."""
        asked = self.questions(line)
        known = _recorded_embedding(line) if asked else None
        # Of this very text: an answer that was changed since is asked about anew.
        if known is None or not known.vector or f"embedding {known.text}" != asked[0].prompt.case:
            return []
        reply = msgspec.Raw(msgspec.json.encode(_VectorReply(known.vector)))
        name, prompt = asked[0].prompt.case, asked[0].prompt.digest
        return [Output(0, name, "", 0, prompt, known.target, known.config, reply, attempts=known.attempts)]


def _question(target: str, text: str) -> OutputQuestion:
    return OutputQuestion(Prompt(f"embedding {kind_of_text(text).hex()}", "", text[:MOST_EMBEDDED]), target)


def _recorded_embedding(line: bytes) -> Embedding | None:
    try:
        return msgspec.json.decode(line, type=_Embedded).embedding
    except msgspec.DecodeError:
        return None


class _Embedded(msgspec.Struct):
    embedding: Embedding | None = None


def _embedding_of_reply(text: str, reply: Output) -> Embedding:
    about: dict[str, Any] = {"text": text, "target": reply.target, "config": reply.config, "attempts": reply.attempts}
    if reply.failed:
        return Embedding(**about, error=reply.error)
    try:
        return Embedding(**about, vector=msgspec.json.decode(reply.output, type=_VectorReply).vector)
    except msgspec.DecodeError:
        return Embedding(**about, error="the target gave no vector: one of kind embeddings does")


class _VectorReply(msgspec.Struct):
    vector: bytes


# Who is asked about outputs: judges, and embedders, in one stage behind the calls that gave these.


class Stages:
    """Several stages as one: each asks about the same outputs, and adds what it was answered."""

    def __init__(self, stages: Sequence[Stage]) -> None:
        self._stages = stages

    def prepare(self, lines: Callable[[], Iterable[bytes]]) -> None:
        """All see the lines."""
        for stage in self._stages:
            stage.prepare(lines)

    def asks(self, repeats: int = 1) -> Mapping[tuple[str, int], int]:
        """Those of all. Raises UsageError."""
        found = Counter[tuple[str, int]]()
        for stage in self._stages:
            found.update(stage.asks(repeats))
        return found

    def questions(self, line: bytes) -> list[OutputQuestion]:
        """Those of all, one stage's behind the other's."""
        return [question for stage in self._stages for question in stage.questions(line)]

    def joined(self, line: bytes, answers: Callable[[OutputQuestion], Sequence[Output]]) -> bytes:
        """The line with what each was answered."""
        # Each has the line of the one before it, or it would write over what that one added.
        for stage in self._stages:
            line = stage.joined(line, answers)
        return line

    def recorded(self, line: bytes) -> list[Output]:
        """The answers in ``line`` to what any of them would ask about it now."""
        return [output for stage in self._stages for output in stage.recorded(line)]


def to_ask(asked: Request) -> list[str]:
    """The recorded outputs that are to be asked about: with ``--judge`` or ``--embedder`` those that are named."""
    named = asked.options.get("judge") or asked.options.get("embedder")
    return [str(path) for path in asked.options.get("outputs") or ()] if named else []


def asking(asked: Request) -> Stage | None:
    """What asks about outputs; None where nothing of the cases does. Raises UsageError, ConfigError."""
    _, params, loaded = selected(asked)
    stages: list[Stage | None] = [_judges(asked, params, loaded), _embedders(asked, params)]
    found = [stage for stage in stages if stage is not None]
    return Stages(found) if found else None


def _embedders(asked: Request, params: ChecksParams) -> EmbedStage | None:
    embedder = str(asked.options.get("embedder") or "")
    stage = EmbedStage(params, embedder)
    if stage.asks():
        return stage
    if embedder:
        raise UsageError("--embedder: no case counts its answers by embedding: --diversity embedding does for all")
    return None


def _judges(asked: Request, params: ChecksParams, loaded: Iterable[ExpandedCase]) -> VerdictStage | None:
    judge, inputs = str(asked.options.get("judge") or ""), {}
    for case in loaded:
        if case.input is not None:
            text = case.input if isinstance(case.input, str) else msgspec.json.encode(case.input).decode()
            inputs[case.params["id"]] = text
    defaults = {case.params["id"]: case.judge for case in loaded}
    against = str(asked.options.get("against") or "")
    stage = VerdictStage(params, inputs, defaults, judge, other_answers(against) if against else {})
    asks = stage.asks()
    if against and not stage.comparing:
        raise UsageError("--against: no check of the cases is `prefer: true`, which compares with it")
    if stage.comparing and not against:
        raise UsageError(f"case {shorten(stage.comparing)}: `prefer: true` compares with --against OUTPUTS; give them")
    if not asks:
        # Passed over, a run that no judge saw would look like one that was judged.
        if judge:
            raise UsageError(
                "--judge: no check of the cases asks a judge (there are: rubric, factual, score, prefer), and no case "
                "has `diversity: {judge: true}`"
            )
        return None
    return stage
