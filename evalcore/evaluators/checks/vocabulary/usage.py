"""Checks of what an answer took: money, seconds, tokens."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any, Literal

import msgspec

from evalq.evalcore.evaluators.checks.answer import Answer, Uncomputable
from evalq.evalcore.evaluators.checks.vocabulary.declaring import Finding, Kind, Made, holds

__all__ = ["KINDS"]

Amount = Annotated[float, msgspec.Meta(ge=0)]


class TokenOptions(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename="kebab"):
    """Which tokens are counted."""

    of: Annotated[Literal["total", "prompt", "completion"], msgspec.Meta(description="which tokens are counted")] = (
        "total"
    )


_BOTH = ("prompt_tokens", "completion_tokens")


def _at_most(what: str, unit: str, take: Callable[[Answer], float | None]) -> Callable[[float, Any], Made]:
    def make(value: float, options: Any) -> Made:
        return Made(f"at most {value:.15g}{unit}", _run(what, unit, take, value))

    return make


def _run(what: str, unit: str, take: Callable[[Answer], float | None], most: float) -> Callable[[Answer], Finding]:
    bound = f"{most:.15g}"

    def run(answer: Answer) -> Finding:
        found = take(answer)
        if found is None:
            raise Uncomputable(f"the record has no {what}")
        # Also what is told as the bound itself: in floats attempts that cost .1 and .2 cost a little more than .3.
        told = f"{found:.15g}"
        return holds(found <= most or told == bound, f"{told}{unit}")

    return run


def _tokens(value: float, options: TokenOptions) -> Made:
    names = {"prompt": ("prompt_tokens",), "completion": ("completion_tokens",)}.get(options.of, _BOTH)

    def count(answer: Answer) -> float | None:
        # Of one kind alone the sum is not known: it would be too low.
        counts = [getattr(answer.usage, name) for name in names]
        return None if None in counts else sum(counts)

    return Made(f"at most {value:.15g} tokens", _run(" or ".join(names), " tokens", count, value))


KINDS = (
    Kind(
        name="max-cost",
        summary="The answer cost at most so much, retries included.",
        value=Amount,
        make=_at_most("cost", "", lambda answer: answer.usage.cost),
        example={"max-cost": 0.01},
    ),
    Kind(
        name="max-latency",
        summary="The answer took at most so many seconds, from sending to its last byte.",
        value=Amount,
        make=_at_most("latency_seconds", " s", lambda answer: answer.usage.latency),
        example={"max-latency": 2.5},
    ),
    Kind(
        name="max-tokens",
        summary="The answer took at most so many tokens, retries included.",
        value=Amount,
        options=TokenOptions,
        make=_tokens,
        example={"max-tokens": 500, "of": "completion"},
    ),
)
