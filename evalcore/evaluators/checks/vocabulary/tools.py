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
    """A call wanted: its tool, and arguments that it must have."""

    name: Name
    arguments: dict[str, Any] = {}


class CallOptions(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename="kebab"):
    """The arguments of the call, and how often the agent makes it."""

    arguments: Annotated[dict[str, Any], msgspec.Meta(description="arguments it must have; it may have others")] = {}
    exact: Annotated[bool, msgspec.Meta(description="it has these arguments and no others")] = False
    min: Annotated[Count, msgspec.Meta(description="the fewest such calls")] = 1
    max: Annotated[Count | None, msgspec.Meta(description="the most such calls")] = None


class CallsOptions(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename="kebab"):
    """How to compare the calls with those wanted."""

    order: Annotated[
        Literal["any", "kept", "exact"],
        msgspec.Meta(
            description="`any`: all of them are among the calls; `kept`: in this order, others between; "
            "`exact`: these calls and no others, in this order"
        ),
    ] = "any"
    exact: Annotated[bool, msgspec.Meta(description="each has the arguments named and no others")] = False


def _fits(call: ToolCall, wanted: WantedCall, exact: bool, unread: bool) -> bool:
    """Whether a call is the one wanted; ``unread`` is the result if unreadable arguments decide."""
    if call.name != wanted.name:
        return False
    if call.unread:
        return unread or not (exact or wanted.arguments)
    arguments = call.arguments
    if exact and arguments.keys() != wanted.arguments.keys():
        return False
    return all(key in arguments and same_json(arguments[key], value) for key, value in wanted.arguments.items())


def _list_calls(calls: Sequence[ToolCall | WantedCall]) -> str:
    if not calls:
        return "no calls"
    texts = [f"{call.name}({_arguments(call)})" for call in calls[:20]]
    return ", ".join(texts) + (f", and {len(calls) - 20} more" if len(calls) > 20 else "")


def _arguments(call: ToolCall | WantedCall) -> str:
    shown = shorten(msgspec.json.encode(call.arguments).decode()) if call.arguments else ""
    return f"{shown}: {call.unread}" if isinstance(call, ToolCall) and call.unread else shown


def _certain(calls: Sequence[ToolCall], may: bool, must: bool) -> Finding:
    """The finding if it does not depend on unreadable arguments: it ``may`` hold with some, and ``must`` with any.

    Raises Unfit if it depends on them: then neither a check nor its opposite passes.
    """
    if may != must:
        raise Unfit(f"arguments that decide cannot be read: {_list_calls(calls)}")
    return holds(must, _list_calls(calls))


def _calls_tool(value: str, options: CallOptions) -> Made:
    wanted = WantedCall(value, options.arguments)
    range_text = f" {options.min} to {options.max} times" if options.max is not None else ""
    minimum_text = f" at least {options.min} times" if options.max is None and options.min != 1 else ""

    def run(answer: Answer) -> Finding:
        calls = answer.tool_calls
        # Every count from the fewest to the most calls that fit is possible.
        fewest, most = (sum(_fits(call, wanted, options.exact, unread) for call in calls) for unread in (False, True))
        counts = range(fewest, most + 1)
        fits = [count >= options.min and (options.max is None or count <= options.max) for count in counts]
        return _certain(calls, any(fits), all(fits))

    return Made(f"{_list_calls([wanted])}{range_text or minimum_text}", run)


def _tool_calls(value: list[str | WantedCall], options: CallsOptions) -> Made:
    # The matching below compares each with each call, and recurses as deep as this list is long.
    if len(value) > _MOST_WANTED:
        raise BadCheck(f"{len(value)} calls in one list; the limit is {_MOST_WANTED}")
    wanted = [WantedCall(each) if isinstance(each, str) else each for each in value]
    compare = {"any": _all_called, "kept": _in_order, "exact": _only_these}[options.order]
    words = {"any": "in any order", "kept": "in this order, others between", "exact": "these and no others"}

    def run(answer: Answer) -> Finding:
        calls = answer.tool_calls
        may, must = (compare(calls, wanted, options.exact, unread) for unread in (True, False))
        return _certain(calls, may, must)

    return Made(f"{_list_calls(wanted)} ({words[options.order]})", run)


def _all_called(calls: Sequence[ToolCall], wanted: Sequence[WantedCall], exact: bool, unread: bool) -> bool:
    """Whether each call wanted can be matched with a different call (Kuhn 1955)."""
    if len(wanted) > len(calls):
        return False
    fitting = [[position for position, call in enumerate(calls) if _fits(call, each, exact, unread)] for each in wanted]
    matched: dict[int, int] = {}

    def match(index: int, tried: set[int]) -> bool:
        for position in fitting[index]:
            if position in tried:
                continue
            tried.add(position)
            if position not in matched or match(matched[position], tried):
                matched[position] = index
                return True
        return False

    # A new set for each: an earlier match may have moved in the meantime.
    return all(match(index, set()) for index in range(len(wanted)))


def _in_order(calls: Sequence[ToolCall], wanted: Sequence[WantedCall], exact: bool, unread: bool) -> bool:
    # One iterator: each call counts once, and the first that fits leaves the most calls for the others.
    left = iter(calls)
    return all(any(_fits(call, each, exact, unread) for call in left) for each in wanted)


def _only_these(calls: Sequence[ToolCall], wanted: Sequence[WantedCall], exact: bool, unread: bool) -> bool:
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
        summary="The agent called this tool with these arguments, from `min` to `max` times.",
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
        summary="The agent made at most this many calls.",
        value=Count,
        make=_max_tool_calls,
        example={"max-tool-calls": 3},
    ),
)


# Limits on the cost, seconds and tokens of an answer.

Amount = Annotated[float, msgspec.Meta(ge=0)]


class TokenOptions(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename="kebab"):
    """Which tokens to count."""

    of: Annotated[Literal["total", "prompt", "completion"], msgspec.Meta(description="which tokens to count")] = "total"


_BOTH = ("prompt_tokens", "completion_tokens")


def _make_limit(what: str, unit: str, take: Callable[[Answer], float | None]) -> Callable[[float, Any], Made]:
    def make(value: float, options: Any) -> Made:
        return Made(f"at most {value:.15g}{unit}", _compare_with_limit(what, unit, take, value))

    return make


def _compare_with_limit(
    what: str, unit: str, take: Callable[[Answer], float | None], most: float
) -> Callable[[Answer], Finding]:
    limit_text = f"{most:.15g}"

    def run(answer: Answer) -> Finding:
        amount = take(answer)
        if amount is None:
            raise Uncomputable(f"the record has no {what}")
        # Compared as shown, too: in floats, attempts that cost .1 and .2 cost a little more than .3.
        amount_text = f"{amount:.15g}"
        return holds(amount <= most or amount_text == limit_text, f"{amount_text}{unit}")

    return run


def _tokens(value: float, options: TokenOptions) -> Made:
    names = {"prompt": ("prompt_tokens",), "completion": ("completion_tokens",)}.get(options.of, _BOTH)

    def count(answer: Answer) -> float | None:
        # With one of two counts, the sum would be too low.
        counts = [getattr(answer.usage, name) for name in names]
        return None if None in counts else sum(counts)

    return Made(f"at most {value:.15g} tokens", _compare_with_limit(" or ".join(names), " tokens", count, value))


USAGE_KINDS = (
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
        name="max-tokens",
        summary="The answer took at most this many tokens, with retries.",
        value=Amount,
        options=TokenOptions,
        make=_tokens,
        example={"max-tokens": 500, "of": "completion"},
    ),
)
