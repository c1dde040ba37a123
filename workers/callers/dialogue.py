"""One answer that takes several calls: the model's tools are answered, and the user says further things.

A user says what the case lists, or is simulated by a target of its own. Each call, of the agent or of its user, is an
attempt of the answer. The conversation is what the next call gets, and in the end a part of the answer.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

import msgspec

from evalq.evalcore.errors import WireError
from evalq.evalcore.model.calls import BY_USER, Attempt, Prompt, SimulatedUser
from evalq.evalcore.records.answers import Envelope, calls_of, last_text, recorded_form, text_of
from evalq.evalcore.records.tool_calls import NoCall, ToolCall, read_call
from evalq.workers.targets.answers import Answered, Call, Failure, FailureKind
from evalq.workers.targets.caller import Caller

_LONGEST_RESULT = 1 << 20
"""The most characters of a tool's result that the model is shown."""
_MOST_BYTES = 24 << 20
"""The longest conversation: what another process needs to go on is twice as long, and has to fit into the ledger."""


class _Said(msgspec.Struct, frozen=True, array_like=True):
    """What the agent said last, as far as the end of the answer needs it."""

    text: str
    output: Any = None
    finish: str | None = None
    extra: dict[str, Any] = {}


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
    of_user: bool = False
    spoken: int = 0
    last: _Said | None = None
    taken: int | None = None
    told: bool | None = None


class Dialogue:
    """The conversation of one answer to ``prompt``, which begins with the call ``asked``."""

    def __init__(self, caller: Caller, asked: Call, prompt: Prompt) -> None:
        self._caller = caller
        self._asked = asked
        self._user = prompt.user
        begun = list(asked.chat) if asked.prompt or prompt.user is None else []
        self._begun = len(begun)
        self._messages: list[dict[str, Any]] = begun
        self._sent: list[dict[str, Any]] = list(begun)
        self._turns = list(prompt.turns)
        self._left = list(prompt.turns)
        self._pending: list[ToolCall] = []
        self._canned = prompt.tool_results
        self._calls: list[ToolCall] = []
        self._in_turn = self.turns = 0
        self._taken, self._told = 0, caller.tools is not None
        self._seconds = 0.0
        self._bound = False
        self._last: _Said | None = None
        # An input that ends with the user is what the user says first.
        opened = bool(begun) and begun[-1].get("role") == "user"
        self._spoken = int(opened)
        self.of_user = prompt.user is not None and not opened
        """Whether the next call is one of the simulated user."""

    @property
    def request(self) -> Call:
        """The next call."""
        if self.of_user:
            assert self._user is not None
            chat = list(_seen_by(self._user, self._messages))
            facts = msgspec.to_builtins(msgspec.structs.asdict(self._user))
            prompt = msgspec.json.encode(chat).decode()
            return Call(
                prompt,
                "",
                self._asked.case,
                self._asked.repeat,
                tuple(chat),
                True,
                self._asked.traceparent,
                True,
                facts,
            )
        if not self.turns and len(self._sent) == self._begun:
            return self._asked
        if len(self._sent) == 1 and self._sent[0]["role"] == "user":
            # As if the case had it as its input.
            return msgspec.structs.replace(self._asked, prompt=self._sent[0]["content"], messages=())
        prompt = msgspec.json.encode(self._sent).decode()
        return msgspec.structs.replace(self._asked, prompt=prompt, messages=tuple(self._sent))

    @property
    def may_go_on(self) -> bool:
        """Whether the answer may take several calls."""
        box = self._caller.tools
        return bool(self._left) or self._user is not None or (box is not None and box.answers)

    def take(self, answer: Answered) -> bool:
        """Take an answer. Whether another call follows, for which `prepare` is called."""
        return self._hear(answer) if self.of_user else self._take(answer)

    def _take(self, answer: Answered) -> bool:
        self.turns += 1
        self._in_turn += 1
        self._seconds += answer.latency_seconds
        given = answer.envelope
        # An agent that has tools of its own may take several turns in one call.
        self._taken += (given.turns if given is not None else None) or 1
        self._told = self._told or (given is not None and given.tool_calls is not None)
        calls = self._new_calls(given) if given is not None else []
        if given is not None and given.messages and self._caller.tools is None:
            self._add_own(given, answer.text)
        else:
            named = enumerate(calls, len(self._calls))
            calls = [call if call.id else call._replace(id=f"call_{number}") for number, call in named]
            message: dict[str, Any] = {"role": "assistant", "content": answer.text or None}
            if calls:
                message["tool_calls"] = [
                    {"id": each.id, "name": each.name, "arguments": each.arguments} for each in calls
                ]
            self._messages.append(message)
            self._sent.append({"role": "assistant", "content": [*answer.own]} if answer.own else message)
        self._last = _Said(
            answer.text,
            given.output if given is not None else answer.text,
            answer.finish_reason,
            dict(given.extra) if given is not None else {},
        )
        box = self._caller.tools
        if calls and box is not None and not box.ends(call.name for call in calls):
            self._bound = self._in_turn >= box.max_turns
            if not self._bound:
                self._pending = calls
                return True
            most = f"not answered: it is call {box.max_turns} of the model for one turn of the user (max_turns)"
            calls = [call._replace(error=most, seconds=0.0) for call in calls]
        self._calls += calls
        if self._user is not None:
            # Nobody answers these calls: they are the end, as in an answer without turns.
            if self._bound or (calls and not answer.text.strip()):
                return False
            self._bound = self._spoken >= self._user.max_turns
            self.of_user = not self._bound
            return self.of_user
        return bool(self._left) and not self._bound

    def _new_calls(self, given: Envelope) -> list[ToolCall]:
        """The tool calls of an answer, without those of earlier answers that an agent gives again.

        It may give all messages of the conversation each time.
        """
        calls = [read_call(each) for each in (given.tool_calls or ())]
        if self.turns < 2:
            return calls
        try:
            earlier = calls_of(given.messages[: self._begin_of_new(given)])
        except NoCall:  # beside tool calls of its own, an answer's messages may have anything
            return calls
        same = [_identity(call) for call in earlier] == [_identity(call) for call in calls[: len(earlier)]]
        return calls[len(earlier) :] if same else calls

    def _begin_of_new(self, given: Envelope) -> int:
        """The index of the first message that answers what the user said last."""
        asked: dict[str, Any] = next((each for each in reversed(self._messages) if each["role"] == "user"), {})
        said = text_of(asked.get("content")).strip()
        users = [number for number, each in enumerate(given.messages) if each["role"] == "user"]
        # An agent may have users' messages of its own making after the one that it was asked.
        same = [number for number in users if said and said in text_of(given.messages[number].get("content"))]
        return (same or users or [-1])[-1] + 1

    def _add_own(self, given: Envelope, text: str) -> None:
        """Add what an agent with tools of its own said and did since the user's last message."""
        own = list(given.messages[self._begin_of_new(given) :])
        if text and last_text(own) != text:
            own.append({"role": "assistant", "content": text})
        self._messages += own
        self._sent += own

    def _hear(self, answer: Answered) -> bool:
        """Take what the simulated user says. Whether the agent is to answer it."""
        assert self._user is not None
        said, stop, _ = answer.text.partition(self._user.stop)
        said = said.strip()
        self.of_user = False
        self._spoken += 1
        if said:
            message = {"role": "user", "content": said}
            self._messages.append(message)
            self._sent.append(message)
        self._in_turn = 0
        return not stop

    def checked(self, result: Answered | Failure) -> Answered | Failure:
        """The result of the next call; a failure if the conversation with it is too long to be kept.

        Of one of the simulated user, a failure unless a user could say it.
        """
        if isinstance(result, Answered) and self.turns and self._size(result) > _MOST_BYTES:
            fields = {name: getattr(result, name) for name in _REPLY}
            reason = f"the conversation is longer than {_MOST_BYTES:,} bytes"
            result = Failure(**{**fields, "kind": "bad_output", "reason": reason, "text": ""})
        if not self.of_user:
            return result
        if isinstance(result, Failure):
            silent = result.kind == "bad_output" and not result.text.strip()
            return msgspec.structs.replace(result, by=BY_USER, **({"reason": _SILENT} if silent else {}))
        kind, reason = self._fault(result)
        if not reason:
            return msgspec.structs.replace(result, by=BY_USER)
        fields = {name: getattr(result, name) for name in _REPLY}
        return Failure(**{**fields, "kind": kind, "reason": reason, "by": BY_USER})

    def _size(self, answer: Answered) -> int:
        """The bytes of the conversation with this answer."""
        calls = [recorded_form(call) for call in self._calls]
        return len(msgspec.json.encode([self._messages, calls, answer.text, answer.envelope]))

    def _fault(self, answer: Answered) -> tuple[FailureKind, str]:
        """The kind of failure and the reason why a user could not say it; empty if one could."""
        assert self._user is not None
        calls = answer.envelope.tool_calls if answer.envelope is not None else None
        if calls:
            names = ", ".join(dict.fromkeys(str(call["name"]) for call in calls[:20]))
            return "bad_output", f"it called tools ({names[:200]}), and a user has none"
        if answer.finish_reason in ("refusal", "content_filter"):
            return "refused", f"it refused to play the user (finish: {answer.finish_reason}): {answer.text[:200]}"
        if answer.finish_reason == "length":
            return "bad_output", "its message was cut off (finish: length): allow it more tokens"
        said, stop, _ = answer.text.partition(self._user.stop)
        if stop and not self.turns:
            return "bad_output", f"it said {self._user.stop} before the agent said anything"
        return "bad_output", "" if stop or said.strip() else _SILENT

    async def prepare(self, keep: Callable[[], Awaitable[bool]]) -> bool:
        """Have the tools answered that the model called, or say what the user says next.

        ``keep`` keeps the `state` after each call of a tool: then a kill has no tool called again whose result is
        known. It returns False if this process is to end the conversation here; so does this function.
        """
        if not self._pending:
            # A simulated user is asked; and the tools of a conversation may have been answered in another process.
            if self._user is None and self._messages[-1]["role"] == "assistant":
                said = {"role": "user", "content": self._left.pop(0)}
                self._messages.append(said)
                self._sent.append(said)
                self._in_turn = 0
            return True
        assert self._caller.tools is not None
        while self._pending:
            call = self._pending[0]
            await self._use(call, str(call.id))
            del self._pending[0]
            if not self._caller.tools.repeats(call) and not await keep():
                return False
        return True

    def state(self, attempts: Sequence[Attempt]) -> bytes:
        """The conversation so far with its ``attempts``, after an answer that another call follows."""
        known = [recorded_form(call) for call in self._calls]
        pending = [recorded_form(call) for call in self._pending]
        return msgspec.json.encode(
            _State(
                tuple(attempts), self._messages, self._sent, known, pending, len(self._left), self._in_turn,
                self.turns, self._seconds, self.of_user, self._spoken, self._last, self._taken, self._told,
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
        self.of_user, self._spoken, self._last = state.of_user, state.spoken, state.last
        self._taken = state.turns if state.taken is None else state.taken
        self._told = self._told if state.told is None else state.told
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
        if self._last is None or (self.turns < 2 and not self._bound and self._user is None):
            return last
        said = self._last
        envelope = Envelope(
            output=said.output,
            messages=tuple(self._messages),
            # What a function or a server called, nobody knows but itself.
            tool_calls=tuple(map(recorded_form, self._calls)) if self._told else None,
            turns=self._taken,
            finish="max_turns" if self._bound else said.finish,
            seconds=round(self._seconds, 6),
            extra=said.extra,
        )
        return msgspec.structs.replace(last, text=said.text, envelope=envelope, finish_reason=envelope.finish)

    def lost(self) -> Answered | None:
        """The conversation so far, for an answer that is lost by the simulated user; None if it is not."""
        if not self.of_user:
            return None
        whole = self.whole(Answered(text="", latency_seconds=0.0))
        envelope = whole.envelope and msgspec.structs.replace(whole.envelope, finish=None)
        return msgspec.structs.replace(whole, envelope=envelope, finish_reason=None)


def _identity(call: ToolCall) -> tuple[str, Any, str | None]:
    return call.name, call.arguments, call.id


_SILENT = "it said nothing"
_REPLY = tuple(name for name in Failure.__struct_fields__ if name in Answered.__struct_fields__)
"""What an answer and a failure both have."""
_BEGIN = "(The conversation begins. Say your first message.)"
_NOTHING = "(The assistant says nothing.)"
_ROLE = """\
You play the user in a conversation with an assistant. Everything that you write goes to the assistant as the user's \
next message.
{persona}{goal}
Write one message at a time, in the user's own words, and nothing else: no notes, no quotation marks, no part of the \
assistant.
Say what the assistant needs for its next step, and not all at once. What is not given above, the user does not know: \
never make it up.
When the goal is reached, or the assistant cannot get the user any further, write {stop} and nothing else."""


def _seen_by(user: SimulatedUser, messages: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """The conversation as the simulated user's target sees it: its own words are those of the assistant there.

    The agent's instructions, its calls of tools and their results are not shown to a user.
    """
    persona = f"The user: {user.persona.strip()}\n" if user.persona else ""
    goal = f"The user's goal: {user.goal.strip()}\n" if user.goal else ""
    role = _ROLE.format(persona=persona, goal=goal, stop=user.stop)
    chat: list[dict[str, Any]] = [{"role": "system", "content": role}, {"role": "user", "content": _BEGIN}]
    for number, message in enumerate(messages):
        text, by_agent = text_of(message.get("content")).strip(), message["role"] == "assistant"
        # Between calls of tools an agent may say nothing.
        between = by_agent and any(later["role"] == "tool" for later in messages[number + 1 : number + 2])
        if message["role"] not in ("user", "assistant") or (between and not text):
            continue
        role, text = "user" if by_agent else "assistant", text or _NOTHING
        if chat[-1]["role"] != role:
            chat.append({"role": role, "content": text})
        elif len(chat) == 2:
            chat[-1]["content"] = text  # the agent begins
        else:
            # Many APIs want each side in turn.
            chat[-1]["content"] += f"\n\n{text}"
    return chat


def _shown(result: Any) -> str:
    """A tool's result as the model reads it."""
    if result is None:
        return ""
    return result if isinstance(result, str) else msgspec.json.encode(result).decode()
