"""What goes into a call of a target and what comes out: one Call in, one Answer or Failure out."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Any, Literal, TypeVar, get_args

import msgspec

FailureKind = Literal["rate_limit", "quota", "timeout", "server", "crashed", "auth", "refused", "bad_output"]
"""Why a call has no answer: asked too often; the account is spent; no answer in time; the server or the way to it
failed; the function's process died; the key is wrong; the target refuses this very request; the answer is not what the
target's answers are."""

KINDS: tuple[FailureKind, ...] = get_args(FailureKind)


class Call(msgspec.Struct, frozen=True):
    """One question to an agent: what a target's templates and prompts may name."""

    prompt: str
    agent: str = ""
    case: str = ""
    repeat: int = 0
    messages: tuple[dict[str, Any], ...] = ()
    takes_text: bool = False
    """Whether any text is an answer, unless the target says otherwise."""

    def __hash__(self) -> int:
        """Without the messages, which no hash takes: the prompt is their JSON."""
        return hash((self.prompt, self.agent, self.case, self.repeat))

    def values(self, parameters: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """What a program or a function is given; of a chat ``messages``, too, whose JSON the prompt then is, and the
        ``parameters`` of a target that has any.
        """
        fields = {"prompt": self.prompt, "agent": self.agent, "case": self.case, "repeat": self.repeat}
        more: dict[str, Any] = {"messages": list(self.messages)} if self.messages else {}
        return {**fields, **more, **({"parameters": dict(parameters)} if parameters else {})}

    @property
    def chat(self) -> list[dict[str, Any]]:
        """The messages, or the prompt as one of its user."""
        return list(self.messages) or [{"role": "user", "content": self.prompt}]

    def fillings(self) -> dict[str, Any]:
        """{placeholder: what it stands for}."""
        return {**self.values(), "messages": self.chat}


class Quota(msgspec.Struct, frozen=True):
    """What a server says of one of its limits; None where it does not. ``reset_seconds`` until it is whole again."""

    limit: int | None = None
    remaining: int | None = None
    reset_seconds: float | None = None

    @property
    def spent(self) -> bool:
        """Whether nothing remains."""
        return self.remaining is not None and self.remaining <= 0


class RateLimits(msgspec.Struct, frozen=True):
    """The x-ratelimit headers of an answer."""

    requests: Quota = Quota()
    tokens: Quota = Quota()

    @property
    def spent(self) -> bool:
        """The next call at this pace is one too many."""
        return self.requests.spent or self.tokens.spent


class _Reply(msgspec.Struct, frozen=True, kw_only=True):
    """What a target may say beside its answer: token counts are None where it does not give them.

    ``note`` says what of the reply was not believed, ``cut`` how often a secret was cut out of it.
    """

    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    finish_reason: str | None = None
    limits: RateLimits = RateLimits()
    note: str = ""
    cut: int = 0

    @property
    def tokens(self) -> int | None:
        """Prompt and completion together; None where neither was given."""
        if self.prompt_tokens is None and self.completion_tokens is None:
            return None
        return (self.prompt_tokens or 0) + (self.completion_tokens or 0)


class Answer(_Reply, frozen=True, kw_only=True):
    """``text`` as it came, and ``output``, the JSON in it (None for a target whose answers are text).

    ``latency_seconds`` is from sending to the last byte.
    """

    text: str
    output: Any = None
    latency_seconds: float


class Failure(_Reply, frozen=True, kw_only=True):
    """No answer, for a ``reason`` that a user can act on; ``text`` is what came all the same, such as bad output.

    ``retry_after_seconds`` is what the server asked to wait. Tokens are there when a bad output was paid for. ``down``:
    by this failure the target itself does not answer, whatever it is asked. It was not ``connected``: nobody there
    heard of the call.
    """

    kind: FailureKind
    reason: str
    text: str = ""
    status: int | None = None
    retry_after_seconds: float | None = None
    down: bool = False
    connected: bool = True
    latency_seconds: float = 0.0


class CallFailed(Exception):
    """What a Python target raises to give the kind of a failure itself."""

    def __init__(self, failure: Failure) -> None:
        super().__init__(failure.reason)
        self.failure = failure


def begin_of(text: str) -> str:
    """How a reply begins, on one line, for a message."""
    return " ".join(text[:400].split())[:80]


T = TypeVar("T")

_LONG = 1 << 18


async def off_loop(size: int, work: Callable[..., T], *args: Any) -> T:
    """What ``work`` returns: from a thread where ``size`` bytes are so many that other calls would wait for it."""
    return work(*args) if size <= _LONG else await asyncio.to_thread(work, *args)
