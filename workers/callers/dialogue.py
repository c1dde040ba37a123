"""One answer that takes several calls of the model: its tools are answered, and the user says further things.

Each call is an attempt of the answer. The conversation is what the next call gets, and in the end a part of the answer.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from evalq.evalcore.errors import WireError
from evalq.evalcore.model.calls import Attempt
from evalq.evalcore.records.answers import Envelope, recorded_form
from evalq.evalcore.records.tool_calls import NoCall, ToolCall, read_call
from evalq.workers.targets.answers import Answered, Call
from evalq.workers.targets.caller import Caller

_LONGEST_RESULT = 1 << 20
"""The most characters of a tool's result that the model is shown."""


class _State(msgspec.Struct, frozen=True, array_like=True):
    """What a conversation needs to go on in another process."""

    attempts: tuple[Attempt, ...]
    messages: list[dict[str, Any]]
    sent: list[dict[str, Any]]
    calls: list[dict[str, Any]]
    pending: list[dict[str, Any]]
    left: int
    in_turn: int
    turns: int
    seconds: float


class Dialogue:
    """The conversation of one answer, which begins with the call ``asked``.

    ``turns`` are what the user says after each answer, in order. ``canned`` are the case's results of tools.
    """

    def __init__(
        self, caller: Caller, asked: Call, turns: Sequence[str] = (), canned: Sequence[Mapping[str, Any]] = ()
    ) -> None:
        self._caller = caller
        self._asked = asked
        self._messages: list[dict[str, Any]] = list(asked.chat)
        self._sent: list[dict[str, Any]] = list(asked.chat)
        self._turns = list(turns)
        self._left = list(turns)
        self._pending: list[ToolCall] = []
        self._canned = canned
        self._calls: list[ToolCall] = []
        self._in_turn = self.turns = 0
        self._seconds = 0.0
        self._bound = False

    @property
    def request(self) -> Call:
        """The next call of the model."""
        if not self.turns:
            return self._asked
        prompt = msgspec.json.encode(self._sent).decode()
        return msgspec.structs.replace(self._asked, prompt=prompt, messages=tuple(self._sent))

    @property
    def may_go_on(self) -> bool:
        """Whether the answer may take several calls of the model."""
        box = self._caller.tools
        return bool(self._left) or (box is not None and box.answers)

    def take(self, answer: Answered) -> bool:
        """Take an answer of the model. Whether another call follows, for which `prepare` is called."""
        self.turns += 1
        self._in_turn += 1
        self._seconds += answer.latency_seconds
        calls = [read_call(each) for each in (answer.envelope.tool_calls or ())] if answer.envelope is not None else []
        calls = [call if call.id else call._replace(id=f"call_{len(self._calls) + n}") for n, call in enumerate(calls)]
        message: dict[str, Any] = {"role": "assistant", "content": answer.text or None}
        if calls:
            message["tool_calls"] = [{"id": each.id, "name": each.name, "arguments": each.arguments} for each in calls]
        self._messages.append(message)
        self._sent.append({"role": "assistant", "content": [*answer.own]} if answer.own else message)
        box = self._caller.tools
        if calls and box is not None and box.answers:
            self._bound = self._in_turn >= box.max_turns
            if not self._bound:
                self._pending = calls
                return True
        self._calls += calls
        return bool(self._left) and not self._bound

    async def prepare(self) -> None:
        """Have the tools answered that the model called, or say what the user says next."""
        if self._pending:
            # The list stays until all are answered: a conversation that is restored has none of them answered.
            for call in self._pending:
                await self._use(call, str(call.id))
            self._pending = []
            return
        said = {"role": "user", "content": self._left.pop(0)}
        self._messages.append(said)
        self._sent.append(said)
        self._in_turn = 0

    def state(self, attempts: Sequence[Attempt]) -> bytes:
        """The conversation so far with its ``attempts``, after an answer that another call follows."""
        known = [recorded_form(call) for call in self._calls]
        pending = [recorded_form(call) for call in self._pending]
        return msgspec.json.encode(
            _State(
                tuple(attempts), self._messages, self._sent, known, pending, len(self._left), self._in_turn,
                self.turns, self._seconds,
            )
        )  # fmt: skip

    def restore(self, data: bytes) -> tuple[Attempt, ...]:
        """Go on from a `state`, and return its attempts. Raises WireError for other data."""
        try:
            state = msgspec.json.decode(data, type=_State)
            calls, pending = ([read_call(call) for call in listed] for listed in (state.calls, state.pending))
        except (msgspec.DecodeError, NoCall, RecursionError) as error:
            raise WireError(f"a conversation so far is not what evalq writes: {error}") from error
        # Only now: other data changes nothing, and the conversation begins.
        self._calls, self._pending = calls, pending
        self._messages, self._sent = state.messages, state.sent
        self._left = self._turns[len(self._turns) - state.left :]
        self._in_turn, self.turns, self._seconds = state.in_turn, state.turns, state.seconds
        return state.attempts

    async def _use(self, call: ToolCall, name: str) -> None:
        assert self._caller.tools is not None
        done = await self._caller.tools.answer(call, self._asked, self._canned)
        done = done._replace(id=name, result=self._caller.clean(done.result), error=self._caller.clean(done.error))
        self._seconds += done.seconds or 0.0
        self._calls.append(done)
        shown = f"error: {done.error}" if done.error is not None else _shown(done.result)
        message: dict[str, Any] = {"role": "tool", "tool_call_id": name, "content": shown[:_LONGEST_RESULT]}
        message |= {"is_error": True} if done.error is not None else {}
        self._messages.append(message)
        # Some APIs want the name of the tool again.
        self._sent.append({**message, "name": call.name})

    def whole(self, last: Answered) -> Answered:
        """The answer with all that was said and done; ``last`` itself if it was the only call."""
        if self.turns < 2 and not self._bound:
            return last
        given = last.envelope
        envelope = Envelope(
            output=given.output if given is not None else last.text,
            messages=tuple(self._messages),
            tool_calls=tuple(map(recorded_form, self._calls)),
            turns=self.turns,
            finish="max_turns" if self._bound else last.finish_reason,
            seconds=round(self._seconds, 6),
            extra=given.extra if given is not None else {},
        )
        return msgspec.structs.replace(last, envelope=envelope, finish_reason=envelope.finish)


def _shown(result: Any) -> str:
    """A tool's result as the model reads it."""
    if result is None:
        return ""
    return result if isinstance(result, str) else msgspec.json.encode(result).decode()
