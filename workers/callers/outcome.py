"""What comes of a call: its attempts and its last answer, as they are recorded."""

from __future__ import annotations

import msgspec

from evalq.evalcore.model.calls import Attempt, Output, Prompt
from evalq.evalcore.records.extract import json_text
from evalq.workers.callers.target_sessions import TargetSession
from evalq.workers.ledger.sweep_model import Result, SweepHeader
from evalq.workers.targets import Answer, Failure
from evalq.workers.targets.target import Price

__all__ = ["cost_of", "reached_nobody", "result_of"]

_FATAL = ("quota", "auth")
"""Failures that every further call of the sweep would have too."""
_LONGEST_REASON = 1000


def result_of(
    header: SweepHeader, session: TargetSession, call: int, prompt: Prompt, attempts: list[Answer | Failure]
) -> Result:
    """What is recorded of a call after its last attempt; fatal where any further call would fail in the same way."""
    last, target = attempts[-1], session.named.target
    output = Output(
        call=call,
        case=prompt.case,
        agent=prompt.agent,
        repeat=call // header.cases,
        prompt=prompt.digest,
        target=session.named.name,
        config=session.config,
        attempts=tuple(_attempt(result, target.price) for result in attempts),
    )
    if isinstance(last, Failure):
        error = f"{last.kind}: {last.reason}"
        fatal = f"{session.named.name}: {error}" if last.kind in _FATAL else ""
        failed = msgspec.structs.replace(output, error=error, text=last.text or None)
        return Result(failed, last.kind, fatal[:_LONGEST_REASON])
    if target.output == "text":
        return Result(msgspec.structs.replace(output, output=msgspec.Raw(msgspec.json.encode(last.text))))
    # An answer may be JSON in a fence, in prose: what was found is evaluated, and the whole is kept beside it.
    found = json_text(last.text)
    whole = None if found == last.text.strip() else last.text
    # On one line, as a line of JSONL has to be; its numbers stay as they were written.
    raw = msgspec.Raw(msgspec.json.format(found.encode(), indent=-1))
    return Result(msgspec.structs.replace(output, output=raw, text=whole))


def reached_nobody(result: Answer | Failure) -> bool:
    """Whether nobody can have been paid for it; what was given up in time may have been answered all the same."""
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


def cost_of(price: Price | None, prompt: int | None, completion: int | None) -> float | None:
    """Of an attempt; None where it told no tokens, or not those that have a price."""
    if price is None or (prompt is None and completion is None):
        return None
    if (prompt is None and price.prompt_per_million) or (completion is None and price.completion_per_million):
        return None
    return price.cost(prompt or 0, completion or 0)
