"""The outcome of a call: the recorded result, and a circuit breaker for targets that are down."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from evalq.evalcore.model.calls import BY_USER, Attempt, Doings, Output, Prompt
from evalq.evalcore.records.json_values import NoJson, json_text
from evalq.workers.ledger.sweep_model import Result, SweepHeader
from evalq.workers.targets.answers import Answered, Call, Failure
from evalq.workers.targets.price import attempt_cost
from evalq.workers.targets.target import NamedTarget, config_digest
from evalq.workers.tracing import answer_trace, traceparent

_FATAL = ("quota", "auth")
"""Kinds of failures that every further call of the sweep would have, too."""
_LONGEST_REASON = 1000


def call_of(header: SweepHeader, prompt: Prompt, repeat: int) -> Call:
    """The call that asks ``prompt`` for the answer of a repeat."""
    trace = traceparent(header.run, prompt.case, repeat)
    return Call(
        prompt.text, prompt.agent, prompt.case, repeat, prompt.messages, header.takes_text, trace,
        bool(prompt.turns or prompt.user),
    )  # fmt: skip


def result_of(
    header: SweepHeader,
    named: NamedTarget,
    config: str,
    call: int,
    prompt: Prompt,
    attempts: Sequence[Answered | Failure | Attempt],
    final: Answered | None = None,
    *,
    lost: Failure | None = None,
) -> Result:
    """The result of a call after its last attempt; fatal if every further call would fail in the same way.

    ``final`` is the answer with the conversation that led to it, or the conversation that led to a failure.
    ``lost`` is the failure of a call without any attempt.
    """
    ended, target = lost or attempts[-1], named.target
    assert not isinstance(ended, Attempt)  # one that was restored is never the last
    last = ended if isinstance(ended, Failure) else final or ended
    user = _user_facts(prompt, named, ended)
    output = Output(
        call=call,
        case=prompt.case,
        agent=prompt.agent,
        repeat=call // header.cases,
        prompt=prompt.digest,
        target=named.name,
        config=config,
        attempts=recorded_attempts(attempts, named),
    )
    trace = answer_trace(header.run, prompt.case, output.repeat)
    if isinstance(last, Failure):
        by_user = last.by == BY_USER and named.user is not None
        error = f"{last.kind}: {last.reason}"
        fatal = f"{named.user.name if by_user and named.user else named.name}: {error}" if last.kind in _FATAL else ""
        did = _doings(final, trace, user) if final is not None else Doings(user=user)
        failed = msgspec.structs.replace(
            output, error=f"{BY_USER}: {error}" if by_user else error, text=last.text or None, did=did
        )
        return Result(failed, BY_USER if by_user else last.kind, fatal[:_LONGEST_REASON])
    output = msgspec.structs.replace(output, did=_doings(last, trace, user))
    if target.output == "text" or (target.output != "json" and header.takes_text and not _is_data(last.text)):
        # Calls of tools without a text: there is no output, and no empty text either.
        says = None if last.envelope is not None and last.envelope.output is None else last.text
        return Result(msgspec.structs.replace(output, output=msgspec.Raw(msgspec.json.encode(says))))
    # An answer may have JSON in a fence or in prose: evalq evaluates the JSON, and keeps the whole answer beside it.
    try:
        found = json_text(last.text)
    except NoJson as error:  # the end of a conversation whose bound on turns was reached
        failed = msgspec.structs.replace(output, error=f"bad_output: {error}", text=last.text or None)
        return Result(failed, "bad_output")
    whole = None if found == last.text.strip() else last.text
    # On one line, as JSONL needs it; the numbers keep their form.
    raw = msgspec.Raw(msgspec.json.format(found.encode(), indent=-1))
    return Result(msgspec.structs.replace(output, output=raw, text=whole))


def _is_data(text: str) -> bool:
    """Whether all of an answer is a JSON object or list: a number, or JSON within prose, is text to its reader."""
    try:
        return text.strip()[:1] in ("{", "[") and json_text(text) == text.strip()
    except NoJson:
        return False


def _user_facts(prompt: Prompt, named: NamedTarget, ended: Answered | Failure) -> msgspec.Raw:
    """Who simulated the user of an answer, and the kind of its failure if the answer is lost by it."""
    if prompt.user is None or named.user is None:
        return Doings().user
    facts = {"target": named.user.name, "config": config_digest(named.user)}
    facts |= {"fault": ended.kind} if isinstance(ended, Failure) and ended.by == BY_USER else {}
    return msgspec.Raw(msgspec.json.encode(facts))


def reached_nobody(result: Answered | Failure) -> bool:
    """Whether an attempt cannot have been paid; the target may have answered a call that timed out here."""
    return isinstance(result, Failure) and result.down and result.kind != "timeout"


def recorded_attempts(attempts: Sequence[Answered | Failure | Attempt], named: NamedTarget) -> tuple[Attempt, ...]:
    """Attempts as they are recorded; those of a conversation that was restored are so already."""
    return tuple(each if isinstance(each, Attempt) else _attempt(each, named) for each in attempts)


def _attempt(result: Answered | Failure, named: NamedTarget) -> Attempt:
    target = named.user.target if result.by == BY_USER and named.user is not None else named.target
    failure = result if isinstance(result, Failure) else None
    served = {"served": result.served} if result.served else {}
    first = None if result.first_token_seconds is None else round(result.first_token_seconds, 6)
    return Attempt(
        kind=failure.kind if failure else "",
        reason="; ".join(part for part in (failure.reason if failure else "", result.note) if part),
        status=failure.status if failure else None,
        latency_seconds=round(result.latency_seconds, 6),
        prompt_tokens=result.prompt_tokens,
        completion_tokens=result.completion_tokens,
        cost=attempt_cost(target.price, result),
        cut=result.cut,
        cached_tokens=result.cached_tokens,
        cache_write_tokens=result.cache_write_tokens,
        cache_write_1h_tokens=result.cache_write_1h_tokens,
        reasoning_tokens=result.reasoning_tokens,
        first_token_seconds=first,
        by=result.by,
        **served,
    )


def _doings(answer: Answered, trace: str, user: msgspec.Raw) -> Doings:
    """What the answer is beside its output, as it is recorded; ``trace`` is the one that its agent was given."""
    envelope, finish = answer.envelope, answer.finish_reason
    if envelope is None:
        return Doings(finish=finish, trace=trace, user=user)
    given: dict[str, Any] = {"turns": envelope.turns, "finish": finish, "trace": envelope.trace or trace, "user": user}
    given["seconds"] = envelope.seconds
    for name in ("messages", "tool_calls", "extra"):
        value = getattr(envelope, name)
        # No call of a tool is a fact, too.
        if value or (name == "tool_calls" and value is not None):
            given[name] = msgspec.Raw(msgspec.json.encode(value))
    return Doings(**given)


# -- a circuit breaker -----------------------------------------------------------------------------

_OPENS_AFTER = 10
_FIRST_PAUSE = 1.0
_LONGEST_PAUSE = 30.0


class Breaker:
    """A circuit breaker of one target in one process. ``reason`` is that of the last failure, empty while closed.

    It opens after some failures in a row that say the target is down. Then it lets single probes through, with longer
    and longer pauses, until the target answers, even with a refusal.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._failures = 0
        self._pause = _FIRST_PAUSE
        self._next = 0.0
        self._opened = 0.0
        self.reason = ""

    @property
    def is_open(self) -> bool:
        """Whether calls are held back."""
        return bool(self.reason)

    @property
    def seconds(self) -> float:
        """How long it has been open."""
        return self._clock() - self._opened if self.is_open else 0.0

    def record(self, result: Answered | Failure) -> None:
        """Record the result of a call."""
        # A refusal closes it as well: the target is there.
        if not (isinstance(result, Failure) and result.down):
            self._failures, self.reason, self._pause = 0, "", _FIRST_PAUSE
            return
        self._failures += 1
        if self.is_open:
            self.reason = result.reason
        elif self._failures >= _OPENS_AFTER:
            self.reason, self._opened = result.reason or result.kind, self._clock()
            self._next = self._opened + self._pause

    def holds(self, result: Answered | Failure) -> bool:
        """Whether the breaker is open and ``result`` is the target's failure; then the call is made again later."""
        return self.is_open and isinstance(result, Failure) and result.down

    def room(self, wanted: int) -> int:
        """How many of ``wanted`` calls may be made now; while it is open: one probe, then none for a while."""
        if not self.is_open or wanted <= 0:
            return wanted
        if self._clock() < self._next:
            return 0
        # The next probe is due however this one ends, since this one may hang until its timeout.
        self._pause = min(2 * self._pause, _LONGEST_PAUSE)
        self._next = self._clock() + self._pause
        return 1
