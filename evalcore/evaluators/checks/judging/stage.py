"""Asking judges about outputs: a question for each check, output and order; replies become a line's ``judgements``."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import msgspec

from evalq.evalcore.contract.evaluator import Question
from evalq.evalcore.errors import UsageError
from evalq.evalcore.evaluators.checks.diversity.kind_counts import MOST_REPEATS
from evalq.evalcore.evaluators.checks.diversity.pairs import PAIR, about_pair
from evalq.evalcore.evaluators.checks.judging.vote import LONGEST, about
from evalq.evalcore.evaluators.checks.params import ChecksParams, diversity_of
from evalq.evalcore.evaluators.checks.score import Question as Asking
from evalq.evalcore.evaluators.checks.score import judge_for
from evalq.evalcore.model.calls import Attempt, Output, Prompt
from evalq.evalcore.naming import shorten

__all__ = ["JudgeStage"]


class JudgeStage:
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
        self._judge = judge_for(params)
        self._cases = [case.id for case in params.selected()]
        self._inputs = inputs
        self._defaults = defaults
        self._named = judge
        self._against = against
        self._paired = {
            case.id: case for case in params.selected() if (how := diversity_of(case, params)) is not None and how.judge
        }
        self._answers: dict[tuple[str, int], str] = {}

    def look(self, lines: Callable[[], Iterable[bytes]]) -> None:
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

    def questions(self, line: bytes) -> list[Question]:
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

    def _both(self, asking: Asking) -> list[tuple[Question, str]]:
        """The question in each order of the texts, with the marker that its replies have to have."""
        case, asked = asking.case.id, asking.asked
        other = self._other(asking) or ""
        target = self._target(asked.judge, case)
        # Once in each order: a judge may favour what it reads first.
        sent = [asked.prompt(self._inputs.get(case), asking.text, other, order) for order in range(asked.orders)]
        return [
            (Question(Prompt(self._name(asking, order), "", each.prompt), target, asked.votes), each.marker)
            for order, each in enumerate(sent)
        ]

    def joined(self, line: bytes, answers: Callable[[Question], Sequence[Output]]) -> bytes:
        """``line`` with the recorded replies as its ``judgements``; what it had of other checks stays before them."""
        found = self._found(line)
        if not found:
            return line
        # The values as they were written: numbers and repeated keys of an answer are no business of a judge.
        record = msgspec.json.decode(line, type=dict[str, msgspec.Raw])
        # Also what cannot be asked: what was said of a comparison with another run says nothing of this one.
        again = {asking.asked.key for asking in found}
        told = [vote for vote in _former(record) if vote.check not in again]
        for asking in filter(self._can_ask, found):
            for order, (question, marker) in enumerate(self._both(asking)):
                told += [self._told(asking, order, marker, reply) for reply in answers(question)]
        return msgspec.json.encode({**record, "judgements": told})

    def recorded(self, line: bytes) -> list[Output]:
        """The replies in ``line`` to what judges would be asked about it now."""
        asked = [(asking, order) for asking in self._asked(line) for order in range(asking.asked.orders)]
        votes = _former(msgspec.json.decode(line, type=dict[str, msgspec.Raw])) if asked else []
        names = {(asking.asked.key, self._about(asking), order): self._name(asking, order) for asking, order in asked}
        return [vote.reply(name) for vote in votes if (name := names.get((vote.check, vote.about, vote.order)))]

    def _name(self, asking: Asking, order: int) -> str:
        """What a question is called: another one about another text."""
        # By the text, too: a repeat that was tried again has another answer, and what was said of the first is not of
        # it.
        return f"{asking.case.id}#{asking.repeat} {asking.asked.key} {self._about(asking)} {order}"

    def _told(self, asking: Asking, order: int, marker: str, reply: Output) -> _Told:
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
        return _Told(*ids, order, reply.repeat, attempts=reply.attempts, **said)


class _Told(msgspec.Struct, frozen=True):
    """One judgement, as a line has it (`evalq.evalcore.evaluators.checks.judging.vote.Vote` reads it)."""

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


def _former(record: Mapping[str, msgspec.Raw]) -> list[_Told]:
    """The judgements that a line has already; none where these are not of that form."""
    try:
        # Whoever wrote the outputs may have used the name for something else, which is not ours to refuse.
        return msgspec.json.decode(record.get("judgements", msgspec.Raw(b"[]")), type=list[_Told])
    except msgspec.DecodeError:
        return []
