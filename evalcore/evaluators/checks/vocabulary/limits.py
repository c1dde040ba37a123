"""Limits on what an answer took: cost, seconds, tokens, calls of tools and turns; and why it ended."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any, Literal

import msgspec

from evalq.evalcore.evaluators.checks.answer import CheckedAnswer, Uncomputable
from evalq.evalcore.evaluators.checks.vocabulary.declaring import Finding, Kind, Made, NoOptions, holds

Amount = Annotated[float, msgspec.Meta(ge=0)]
Turns = Annotated[int, msgspec.Meta(ge=1)]
Count = Annotated[int, msgspec.Meta(ge=0)]


class TokenOptions(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename="kebab"):
    """Which tokens to count."""

    of: Annotated[Literal["total", "prompt", "completion"], msgspec.Meta(description="which tokens to count")] = "total"


_BOTH = ("prompt_tokens", "completion_tokens")


def _make_limit(what: str, unit: str, take: Callable[[CheckedAnswer], float | None]) -> Callable[[float, Any], Made]:
    def make(value: float, options: Any) -> Made:
        return Made(f"at most {value:.15g}{unit}", _compare_with_limit(what, unit, take, value))

    return make


def _compare_with_limit(
    what: str, unit: str, take: Callable[[CheckedAnswer], float | None], most: float
) -> Callable[[CheckedAnswer], Finding]:
    limit_text = f"{most:.15g}"

    def run(answer: CheckedAnswer) -> Finding:
        amount = take(answer)
        if amount is None:
            raise Uncomputable(f"the record has no {what}")
        # Compared as shown, too: in floats, attempts that cost .1 and .2 cost a little more than .3.
        amount_text = f"{amount:.15g}"
        return holds(amount <= most or amount_text == limit_text, f"{amount_text}{unit}")

    return run


def _tokens(value: float, options: TokenOptions) -> Made:
    names = {"prompt": ("prompt_tokens",), "completion": ("completion_tokens",)}.get(options.of, _BOTH)

    def count(answer: CheckedAnswer) -> float | None:
        # With one of two counts, the sum would be too low.
        counts = [getattr(answer.usage, name) for name in names]
        return None if None in counts else sum(counts)

    return Made(f"at most {value:.15g} tokens", _compare_with_limit(" or ".join(names), " tokens", count, value))


def _max_tool_calls(value: int, options: NoOptions) -> Made:
    def run(answer: CheckedAnswer) -> Finding:
        count = len(answer.tool_calls)
        return holds(count <= value, f"{count} calls")

    return Made(f"at most {value} calls", run)


Reason = Annotated[str, msgspec.Meta(min_length=1)]


def _finish(value: str | list[str], options: NoOptions) -> Made:
    reasons = [value] if isinstance(value, str) else value

    def run(answer: CheckedAnswer) -> Finding:
        if answer.finish is None:
            raise Uncomputable("the record has no finish")
        return holds(answer.finish in reasons, answer.finish)

    return Made(" or ".join(reasons), run, wants_calls="tool_calls" in reasons)


KINDS = (
    Kind(
        name="max-cost",
        summary="The answer cost at most this much, with retries.",
        value=Amount,
        make=_make_limit("cost", "", lambda answer: answer.usage.cost),
        example={"max-cost": 0.01},
    ),
    Kind(
        name="max-latency",
        summary="The answer took at most this many seconds, from sending to the last byte.",
        value=Amount,
        make=_make_limit("latency_seconds", " s", lambda answer: answer.usage.latency),
        example={"max-latency": 2.5},
    ),
    Kind(
        name="first-token",
        summary="The first token of the answer came within this many seconds of the call.",
        value=Amount,
        make=_make_limit("first_token_seconds", " s", lambda answer: answer.usage.first_token),
        example={"first-token": 0.8},
    ),
    Kind(
        name="max-tokens",
        summary="The answer took at most this many tokens, with retries.",
        value=Amount,
        options=TokenOptions,
        make=_tokens,
        example={"max-tokens": 500, "of": "completion"},
    ),
    Kind(
        name="max-tool-calls",
        summary="The agent made at most this many calls.",
        value=Count,
        make=_max_tool_calls,
        example={"max-tool-calls": 3},
    ),
    Kind(
        name="max-turns",
        summary="The agent took at most this many turns: messages of the assistant, if the record has no `turns`.",
        value=Turns,
        make=_make_limit("turns and no messages", " turns", lambda answer: answer.turns),
        example={"max-turns": 8},
    ),
    Kind(
        name="finish",
        summary="The answer ended for this reason, or for one of these, such as stop, length, tool_calls or refusal.",
        value=Reason | Annotated[list[Reason], msgspec.Meta(min_length=1)],
        make=_finish,
        example={"finish": ["stop", "tool_calls"]},
    ),
)
