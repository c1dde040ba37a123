"""The outcome of a call: the recorded result, and a circuit breaker for targets that are down."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

import msgspec

from evalq.evalcore.model.calls import Attempt, Output, Prompt
from evalq.evalcore.records.json_values import NoJson, json_text
from evalq.workers.ledger.sweep_model import Result, SweepHeader
from evalq.workers.targets.answers import Answer, Failure
from evalq.workers.targets.price import Price, cost_of
from evalq.workers.targets.target import NamedTarget

_FATAL = ("quota", "auth")
"""Kinds of failures that every further call of the sweep would have, too."""
_LONGEST_REASON = 1000


def result_of(
    header: SweepHeader,
    named: NamedTarget,
    config: str,
    call: int,
    prompt: Prompt,
    attempts: Sequence[Answer | Failure],
) -> Result:
    """The result of a call after its last attempt; fatal if every further call would fail in the same way."""
    last, target = attempts[-1], named.target
    output = Output(
        call=call,
        case=prompt.case,
        agent=prompt.agent,
        repeat=call // header.cases,
        prompt=prompt.digest,
        target=named.name,
        config=config,
        attempts=tuple(_attempt(result, target.price) for result in attempts),
    )
    if isinstance(last, Failure):
        error = f"{last.kind}: {last.reason}"
        fatal = f"{named.name}: {error}" if last.kind in _FATAL else ""
        failed = msgspec.structs.replace(output, error=error, text=last.text or None)
        return Result(failed, last.kind, fatal[:_LONGEST_REASON])
    if target.output == "text" or (target.output is None and header.takes_text and not _is_data(last.text)):
        return Result(msgspec.structs.replace(output, output=msgspec.Raw(msgspec.json.encode(last.text))))
    # An answer may have JSON in a fence or in prose: evalq evaluates the JSON, and keeps the whole answer beside it.
    found = json_text(last.text)
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


def reached_nobody(result: Answer | Failure) -> bool:
    """Whether an attempt cannot have been paid; the target may have answered a call that timed out here."""
    return isinstance(result, Failure) and result.down and result.kind != "timeout"


def _attempt(result: Answer | Failure, price: Price | None) -> Attempt:
    failure = result if isinstance(result, Failure) else None
    prompt, completion = result.prompt_tokens, result.completion_tokens
    return Attempt(
        kind=failure.kind if failure else "",
        reason="; ".join(part for part in (failure.reason if failure else "", result.note) if part),
        status=failure.status if failure else None,
        latency_seconds=round(result.latency_seconds, 6),
        prompt_tokens=prompt,
        completion_tokens=completion,
        cost=cost_of(price, prompt, completion),
        cut=result.cut,
    )


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

    def record(self, result: Answer | Failure) -> None:
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

    def holds(self, result: Answer | Failure) -> bool:
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
