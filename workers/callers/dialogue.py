"""One answer that takes several calls of the model: its tools are answered, and the user says further things.

Each call is an attempt of the answer. The conversation is what the next call gets, and in the end a part of the answer.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from evalq.evalcore.records.answers import Envelope, recorded_form
from evalq.evalcore.records.tool_calls import ToolCall, read_call
from evalq.workers.targets.answers import Answered, Call
from evalq.workers.targets.caller import Caller

_LONGEST_RESULT = 1 << 20
"""The most characters of a tool's result that the model is shown."""


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
        self._begun = False
        self._left = list(turns)
        self._canned = canned
        self._calls: list[ToolCall] = []
        self._in_turn = self.turns = 0
        self._seconds = 0.0
        self._bound = False

    @property
    def request(self) -> Call:
        """The next call of the model."""
        if not self._begun:
            return self._asked
        prompt = msgspec.json.encode(self._sent).decode()
        return msgspec.structs.replace(self._asked, prompt=prompt, messages=tuple(self._sent))

    async def goes_on(self, answer: Answered) -> bool:
        """Take the model's answer, and have its tools answered. Whether another call of the model follows."""
        self.turns += 1
        self._in_turn += 1
        self._seconds += answer.latency_seconds
        calls = [read_call(each) for each in (answer.envelope.tool_calls or ())] if answer.envelope is not None else []
        message: dict[str, Any] = {"role": "assistant", "content": answer.text or None}
        if calls:
            message["tool_calls"] = [
                {"id": call.id or f"call_{len(self._calls) + number}", "name": call.name, "arguments": call.arguments}
                for number, call in enumerate(calls)
            ]
        self._messages.append(message)
        self._sent.append({"role": "assistant", "content": [*answer.own]} if answer.own else message)
        box = self._caller.tools
        if calls and box is not None and box.answers:
            self._bound = self._in_turn >= box.max_turns
            if self._bound:
                self._calls += calls
                return False
            for call, sent in zip(calls, message["tool_calls"], strict=True):
                await self._use(call, sent["id"])
            self._begun = True
            return True
        self._calls += calls
        if not self._left:
            return False
        said = {"role": "user", "content": self._left.pop(0)}
        self._messages.append(said)
        self._sent.append(said)
        self._begun, self._in_turn = True, 0
        return True

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
