"""The types of a call: `Call` in, `Answered` or `Failure` out."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Any, Literal, TypeVar, get_args

import msgspec

from evalq.evalcore.model.calls import Served, Tokens
from evalq.evalcore.records.answers import Envelope

FailureKind = Literal["rate_limit", "quota", "timeout", "server", "crashed", "auth", "refused", "bad_output"]
"""Why a call has no answer: asked too often; the account is spent; no answer in time; the server or the way to it
failed; the function's process died; the key is wrong; the target refuses this very request; the answer is not what the
target's answers are."""

KINDS: tuple[FailureKind, ...] = get_args(FailureKind)


class Call(msgspec.Struct, frozen=True):
    """One question to an agent; templates and prompts of targets can use its fields."""

    prompt: str
    agent: str = ""
    case: str = ""
    repeat: int = 0
    messages: tuple[dict[str, Any], ...] = ()
    takes_text: bool = False
    """Whether any text is a valid answer, unless the target's ``output`` decides."""
    traceparent: str = ""
    """The W3C trace context in which the agent may put its spans; the same for each attempt at an answer."""
    has_turns: bool = False
    """Whether the user says more after the answer, so that the next call is a conversation."""
    user: Mapping[str, Any] | None = None
    """Of a call of a simulated user: its persona, goal, stop and max_turns."""

    def __hash__(self) -> int:
        """The hash, without the messages, which are not hashable; the prompt is their JSON."""
        return hash((self.prompt, self.agent, self.case, self.repeat))

    def values(self, parameters: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """The values for a program or a function.

        For a chat they include ``messages``, whose JSON is the prompt; with ``parameters``, those of the target.
        """
        fields = {"prompt": self.prompt, "agent": self.agent, "case": self.case, "repeat": self.repeat}
        more: dict[str, Any] = {"messages": [*map(chat_form, self.messages)]} if self.messages else {}
        more |= {"traceparent": self.traceparent} if self.traceparent else {}
        more |= {"user": dict(self.user)} if self.user is not None else {}
        return {**fields, **more, **({"parameters": dict(parameters)} if parameters else {})}

    @property
    def chat(self) -> list[dict[str, Any]]:
        """The messages; without any, one user message with the prompt."""
        return list(self.messages) or [{"role": "user", "content": self.prompt}]

    def fillings(self) -> dict[str, Any]:
        """{placeholder: value}."""
        return {**self.values(), "messages": [*map(chat_form, self.chat)]}

    @property
    def headers(self) -> dict[str, str]:
        """The headers of its request beside the target's own."""
        return {"traceparent": self.traceparent} if self.traceparent else {}


def chat_form(message: Mapping[str, Any]) -> dict[str, Any]:
    """A message in the form of chat completions, which libraries and servers of others read.

    Calls have their arguments as text there, and nothing says what a call of the model used.
    """
    calls = message.get("tool_calls")
    beside = {"tool": ("is_error", "name"), "assistant": ("usage", "model", "finish")}.get(str(message.get("role")), ())
    kept = {key: value for key, value in message.items() if key not in beside}
    if isinstance(calls, list | tuple) and calls:
        kept["tool_calls"] = [_chat_call(each) for each in calls]
    return kept


def _chat_call(call: Any) -> Any:
    if not isinstance(call, Mapping) or "function" in call:
        return call
    arguments = call.get("arguments")
    text = arguments if isinstance(arguments, str) else msgspec.json.encode(arguments).decode()
    return {"id": call.get("id"), "type": "function", "function": {"name": call.get("name"), "arguments": text}}


class Quota(msgspec.Struct, frozen=True):
    """One of a server's limits, from its headers; None if not given. It is full again after ``reset_seconds``."""

    limit: int | None = None
    remaining: int | None = None
    reset_seconds: float | None = None

    @property
    def spent(self) -> bool:
        """Whether the quota is used up."""
        return self.remaining is not None and self.remaining <= 0


class RateLimits(msgspec.Struct, frozen=True):
    """The x-ratelimit headers of an answer."""

    requests: Quota = Quota()
    tokens: Quota = Quota()

    @property
    def spent(self) -> bool:
        """Whether one of the quotas is used up, so that the server would refuse the next call."""
        return self.requests.spent or self.tokens.spent


NOT_SERVED = Served()
"""Nothing is known of the model that answered."""


class _Reply(msgspec.Struct, frozen=True, kw_only=True):
    """Fields of answers and failures. Token counts are None if the target does not report them (`Tokens`).

    ``cost`` is what the target itself says that the call cost, in its price's currency. ``note`` names implausible
    parts of the reply that evalq ignored. ``cut`` counts secrets that it removed. ``by`` is `BY_USER` where the
    simulated user was called, and not the agent.
    """

    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    cached_tokens: int | None = None
    cache_write_tokens: int | None = None
    cache_write_1h_tokens: int | None = None
    reasoning_tokens: int | None = None
    cost: float | None = None
    first_token_seconds: float | None = None
    served: Served = NOT_SERVED
    finish_reason: str | None = None
    limits: RateLimits = RateLimits()
    note: str = ""
    cut: int = 0
    by: str = ""

    @property
    def tokens(self) -> int | None:
        """Prompt and completion tokens together; None if neither is known."""
        if self.prompt_tokens is None and self.completion_tokens is None:
            return None
        return (self.prompt_tokens or 0) + (self.completion_tokens or 0)

    @property
    def usage(self) -> Tokens:
        """All token counts."""
        return Tokens(
            self.prompt_tokens, self.cached_tokens, self.cache_write_tokens, self.cache_write_1h_tokens,
            self.completion_tokens, self.reasoning_tokens,
        )  # fmt: skip


class Answered(_Reply, frozen=True, kw_only=True):
    """An answer: its ``text``, and its ``output``, the JSON in it (None for a target whose answers are text).

    ``latency_seconds`` is the time from sending the request to the reply's last byte. ``envelope`` is what the agent
    said and did beside its text, if the target says so. ``own`` are the parts of the model's message in its API's form,
    where the next call of a conversation has to repeat what no other form can hold, such as signed thoughts.
    """

    text: str
    output: Any = None
    latency_seconds: float
    envelope: Envelope | None = None
    own: tuple[Mapping[str, Any], ...] = ()

    @property
    def silent(self) -> bool:
        """Whether it says and does nothing: no text but blanks, and no call of a tool."""
        return not (self.text.strip() or (self.envelope is not None and self.envelope.tool_calls))


class Failure(_Reply, frozen=True, kw_only=True):
    """A call without a valid answer, and the ``reason``, on which a user can act; ``text`` is the reply, if any.

    ``retry_after_seconds`` is the wait that the server asked for. Token counts are known if an invalid output was paid
    for. ``down``: the target answers no call at all. Not ``connected``: the call never reached the target.
    """

    kind: FailureKind
    reason: str
    text: str = ""
    status: int | None = None
    retry_after_seconds: float | None = None
    down: bool = False
    connected: bool = True
    latency_seconds: float = 0.0


def counts_of(tokens: Tokens) -> dict[str, int | None]:
    """The fields of an answer or a failure that hold ``tokens``."""
    return {
        "prompt_tokens": tokens.input,
        "completion_tokens": tokens.output,
        "cached_tokens": tokens.cached_input,
        "cache_write_tokens": tokens.cache_write,
        "cache_write_1h_tokens": tokens.cache_write_1h,
        "reasoning_tokens": tokens.reasoning,
    }


def answered(envelope: Envelope, seconds: float, **more: Any) -> Answered:
    """The answer in an envelope, whose call took ``seconds``; the agent's own time counts if it is shorter."""
    own = envelope.seconds
    fields: dict[str, Any] = {
        **counts_of(envelope.usage),
        "cost": envelope.cost,
        "first_token_seconds": envelope.first_token_seconds,
        "served": envelope.served or NOT_SERVED,
        "finish_reason": envelope.finish,
        **more,
    }
    took = seconds if own is None else min(own, seconds)
    kept = envelope if own is None else msgspec.structs.replace(envelope, seconds=None)
    return Answered(text=envelope.text, latency_seconds=took, envelope=kept, **fields)


class CallFailed(Exception):
    """The exception by which a user's function chooses the kind of its failure."""

    def __init__(self, failure: Failure) -> None:
        super().__init__(failure.reason)
        self.failure = failure


def begin_of(text: str) -> str:
    """The first 80 characters of a reply, on one line, for a message."""
    return " ".join(text[:400].split())[:80]


T = TypeVar("T")

_LONG = 1 << 18


async def off_loop(size: int, work: Callable[..., T], *args: Any) -> T:
    """The result of ``work``, in a thread if ``size`` bytes are so many that it would delay other calls."""
    return work(*args) if size <= _LONG else await asyncio.to_thread(work, *args)
