"""Checks of the agent's work: which tools it called and how, and what the answer cost."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Annotated, Any, Literal

import msgspec

from evalq.evalcore.evaluators.checks.answer import Answer, ToolCall, Uncomputable, Unfit
from evalq.evalcore.evaluators.checks.vocabulary.declaring import (
    BadCheck,
    Finding,
    Kind,
    Made,
    NoOptions,
    holds,
    same_json,
)
from evalq.evalcore.naming import shorten

_MOST_WANTED = 200
Name = Annotated[str, msgspec.Meta(min_length=1)]
Count = Annotated[int, msgspec.Meta(ge=0)]


class WantedCall(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A call that is wanted: its tool, and arguments that it must have among others."""

    name: Name
    arguments: dict[str, Any] = {}


class CallOptions(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename="kebab"):
    """What the call has to be, and how often it comes."""

    arguments: Annotated[dict[str, Any], msgspec.Meta(description="arguments it must have, others aside")] = {}
    exact: Annotated[bool, msgspec.Meta(description="it has these arguments and no others")] = False
    min: Annotated[Count, msgspec.Meta(description="so many such calls, at least")] = 1
    max: Annotated[Count | None, msgspec.Meta(description="so many such calls, at most")] = None


class CallsOptions(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename="kebab"):
    """How the calls made are held against those wanted."""

    order: Annotated[
        Literal["any", "kept", "exact"],
        msgspec.Meta(
            description="`any`: all of them are among the calls; `kept`: in this order, others between; "
            "`exact`: these calls and no others, in this order"
        ),
    ] = "any"
    exact: Annotated[bool, msgspec.Meta(description="each has the arguments named and no others")] = False


def _fits(call: ToolCall, wanted: WantedCall, exact: bool, unread: bool) -> bool:
    """Whether a call is one that is wanted; ``unread`` is the answer where its arguments decide and are not known."""
    if call.name != wanted.name:
        return False
    if call.unread:
        return unread or not (exact or wanted.arguments)
    given = call.arguments
    if exact and given.keys() != wanted.arguments.keys():
        return False
    return all(key in given and same_json(given[key], value) for key, value in wanted.arguments.items())


def _shown(calls: Sequence[ToolCall | WantedCall]) -> str:
    if not calls:
        return "no calls"
    told = [f"{call.name}({_arguments(call)})" for call in calls[:20]]
    return ", ".join(told) + (f", and {len(calls) - 20} more" if len(calls) > 20 else "")


def _arguments(call: ToolCall | WantedCall) -> str:
    shown = shorten(msgspec.json.encode(call.arguments).decode()) if call.arguments else ""
    return f"{shown}: {call.unread}" if isinstance(call, ToolCall) and call.unread else shown


def _surely(calls: Sequence[ToolCall], may: bool, must: bool) -> Finding:
    """Whether something holds of the calls, which it ``may`` and ``must`` whatever stands in unreadable arguments.

    Raises Unfit where it depends on these: then neither a check nor its opposite passes.
    """
    if may != must:
        raise Unfit(f"arguments that decide cannot be read: {_shown(calls)}")
    return holds(must, _shown(calls))


def _calls_tool(value: str, options: CallOptions) -> Made:
    wanted = WantedCall(value, options.arguments)
    bound = f" {options.min} to {options.max} times" if options.max is not None else ""
    least = f" at least {options.min} times" if options.max is None and options.min != 1 else ""

    def run(answer: Answer) -> Finding:
        calls = answer.tool_calls
        # So many calls surely fit, and so many may; every count between them is possible.
        sure, most = (sum(_fits(call, wanted, options.exact, unread) for call in calls) for unread in (False, True))
        counts = range(sure, most + 1)
        fine = [count >= options.min and (options.max is None or count <= options.max) for count in counts]
        return _surely(calls, any(fine), all(fine))

    return Made(f"{_shown([wanted])}{bound or least}", run)


def _tool_calls(value: list[str | WantedCall], options: CallsOptions) -> Made:
    # Each is held against each call, and places that calls give up for one another nest as deep as this list is long.
    if len(value) > _MOST_WANTED:
        raise BadCheck(f"{len(value)} calls in one list; {_MOST_WANTED} are the most")
    wanted = [WantedCall(each) if isinstance(each, str) else each for each in value]
    held = {"any": _all_there, "kept": _in_order, "exact": _these_alone}[options.order]
    words = {"any": "in any order", "kept": "in this order, others between", "exact": "these and no others"}

    def run(answer: Answer) -> Finding:
        calls = answer.tool_calls
        may, must = (held(calls, wanted, options.exact, unread) for unread in (True, False))
        return _surely(calls, may, must)

    return Made(f"{_shown(wanted)} ({words[options.order]})", run)


def _all_there(calls: Sequence[ToolCall], wanted: Sequence[WantedCall], exact: bool, unread: bool) -> bool:
    """Whether each wanted call has a call of its own: the most that can be matched is all of them (Kuhn 1955)."""
    if len(wanted) > len(calls):
        return False
    fitting = [[at for at, call in enumerate(calls) if _fits(call, each, exact, unread)] for each in wanted]
    taken: dict[int, int] = {}

    def place(index: int, tried: set[int]) -> bool:
        for at in fitting[index]:
            if at in tried:
                continue
            tried.add(at)
            if at not in taken or place(taken[at], tried):
                taken[at] = index
                return True
        return False

    # Tried anew for each: what one could not move may be free for the next.
    return all(place(index, set()) for index in range(len(wanted)))


def _in_order(calls: Sequence[ToolCall], wanted: Sequence[WantedCall], exact: bool, unread: bool) -> bool:
    # One for all: a call serves once, and the first that fits leaves the most for those behind it.
    left = iter(calls)
    return all(any(_fits(call, each, exact, unread) for call in left) for each in wanted)


def _these_alone(calls: Sequence[ToolCall], wanted: Sequence[WantedCall], exact: bool, unread: bool) -> bool:
    return len(calls) == len(wanted) and all(
        _fits(call, each, exact, unread) for call, each in zip(calls, wanted, strict=True)
    )


def _max_tool_calls(value: int, options: NoOptions) -> Made:
    def run(answer: Answer) -> Finding:
        count = len(answer.tool_calls)
        return holds(count <= value, f"{count} calls")

    return Made(f"at most {value} calls", run)


KINDS = (
    Kind(
        name="calls-tool",
        summary="The agent called this tool, with these arguments, so often.",
        value=Name,
        options=CallOptions,
        make=_calls_tool,
        example={"calls-tool": "search", "arguments": {"query": "weather"}, "max": 2},
    ),
    Kind(
        name="tool-calls",
        summary="The agent made these calls, each a tool's name or `{name, arguments}`.",
        value=list[str | WantedCall],
        options=CallsOptions,
        make=_tool_calls,
        example={"tool-calls": ["search", {"name": "book", "arguments": {"seats": 2}}], "order": "kept"},
    ),
    Kind(
        name="max-tool-calls",
        summary="The agent made at most so many calls.",
        value=Count,
        make=_max_tool_calls,
        example={"max-tool-calls": 3},
    ),
)


# Checks of what an answer took: money, seconds, tokens.

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


USAGE_KINDS = (
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
