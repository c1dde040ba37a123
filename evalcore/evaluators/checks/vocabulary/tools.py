"""Checks of the agent's work: which tools it called, with what arguments, in which order, and what came of it."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import Annotated, Any, Literal

import msgspec

from evalq.evalcore.evaluators.checks.answer import CheckedAnswer, ToolCall, Uncomputable, Unfit
from evalq.evalcore.evaluators.checks.vocabulary.data import Yes, refuse_false
from evalq.evalcore.evaluators.checks.vocabulary.declaring import (
    BadCheck,
    Finding,
    Kind,
    Made,
    NoOptions,
    Run,
    holds,
    same_json,
)
from evalq.evalcore.evaluators.checks.vocabulary.schema import conforms
from evalq.evalcore.model.canonical import canonical_json
from evalq.evalcore.naming import shorten

_MOST_WANTED = 200
Name = Annotated[str, msgspec.Meta(min_length=1)]
Names = Annotated[list[Name], msgspec.Meta(min_length=1)]
Count = Annotated[int, msgspec.Meta(ge=0)]
Place = Annotated[int, msgspec.Meta(ge=1, le=1_000_000)]
Schema = dict[str, Any] | bool | msgspec.UnsetType
Arguments = Annotated[dict[str, Any], msgspec.Meta(description="arguments it must have; it may have others")]
Exact = Annotated[bool, msgspec.Meta(description="it has these arguments and no others")]
ArgumentsSchema = Annotated[Schema, msgspec.Meta(description="a JSON Schema of its arguments")]
Tolerance = Annotated[
    float, msgspec.Meta(ge=0, description="how much a number in the arguments may differ from the one wanted")
]
Relative = Annotated[float, msgspec.Meta(ge=0, description="the share of the number wanted by which it may differ")]
Which = Annotated[
    Literal["every", "any", "first", "last"] | Place,
    msgspec.Meta(description="which of the calls of this tool: `every`, `any`, `first`, `last`, or its number, from 1"),
]


class WantedCall(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A call wanted: its tool, arguments that it must have, and a JSON Schema of its arguments."""

    name: Name
    arguments: dict[str, Any] = {}
    schema: Schema = msgspec.UNSET


class ArgumentOptions(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename="kebab"):
    """The arguments of a call."""

    arguments: Arguments = {}
    exact: Exact = False
    schema: ArgumentsSchema = msgspec.UNSET
    tolerance: Tolerance = 0.0
    relative: Relative = 0.0


class CallOptions(ArgumentOptions, frozen=True, forbid_unknown_fields=True, rename="kebab"):
    """The arguments of the call, and how often the agent makes it."""

    min: Annotated[Count, msgspec.Meta(description="the fewest such calls")] = 1
    max: Annotated[Count | None, msgspec.Meta(description="the most such calls")] = None


class WhichOptions(ArgumentOptions, frozen=True, forbid_unknown_fields=True, rename="kebab"):
    """The arguments wanted, and which calls have them."""

    which: Which = "every"


Order = Literal["any", "kept", "exact", "prefix", "unordered"]
_ORDERS = (
    "`any`: all of them are among the calls; `kept`: in this order, others between; `exact`: these calls and no "
    "others, in this order; `prefix`: the first calls are these, in this order; `unordered`: these calls and no "
    "others, in any order"
)


class CallsOptions(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename="kebab"):
    """How to compare the calls with those wanted."""

    order: Annotated[Order, msgspec.Meta(description=_ORDERS)] = "any"
    exact: Annotated[bool, msgspec.Meta(description="each has the arguments named and no others")] = False
    tolerance: Tolerance = 0.0
    relative: Relative = 0.0


class SequenceOptions(CallsOptions, frozen=True, forbid_unknown_fields=True, rename="kebab"):
    """How to compare the calls with the sequence."""

    order: Annotated[Order, msgspec.Meta(description=_ORDERS)] = "kept"


def _name_matches(wanted: str) -> Callable[[str], bool]:
    """Whether a tool's name is ``wanted``, in which * stands for any characters."""
    if "*" not in wanted:
        return wanted.__eq__
    # Each part is found once, from left to right: linear time, and no backtracking.
    pattern = re.compile("(?s:" + "".join(f"(?>.*?{re.escape(part)})" for part in wanted.split("*")[1:-1]) + ")")
    first, *_, last = wanted.split("*")

    def matches(name: str) -> bool:
        if len(name) < len(first) + len(last) or not name.startswith(first) or not name.endswith(last):
            return False
        return pattern.match(name[len(first) : len(name) - len(last)]) is not None

    return matches


class _Matcher:
    """Whether a call is the one wanted."""

    __slots__ = ("_conforms", "_decides", "_named", "_near", "exact", "wanted")

    def __init__(self, wanted: WantedCall, exact: bool, tolerance: float, relative: float, path: str = "") -> None:
        self.wanted, self.exact = wanted, exact
        self._named = _name_matches(wanted.name)
        self._near = (tolerance, relative)
        try:
            self._conforms = None if wanted.schema is msgspec.UNSET else conforms(wanted.schema)
        except BadCheck as error:
            raise BadCheck(str(error), f"{path}schema") from None
        # Without any condition on arguments, unreadable ones do not matter.
        self._decides = exact or bool(wanted.arguments) or self._conforms is not None

    def names(self, call: ToolCall) -> bool:
        return self._named(call.name)

    def fits(self, call: ToolCall, unread: bool) -> bool:
        """Whether ``call`` is the one wanted; ``unread`` is the result if unreadable arguments decide."""
        return self.names(call) and not self.fault(call, unread)

    def fault(self, call: ToolCall, unread: bool) -> str:
        """What is wrong with the arguments of ``call``; empty if they are those wanted."""
        if call.unread:
            return "" if unread or not self._decides else "cannot be read"
        arguments, wanted = call.arguments, self.wanted.arguments
        for key, value in wanted.items():
            if key not in arguments:
                return f"no {shorten(key, 40)}"
            if not same_json(arguments[key], value, *self._near):
                return f"another {shorten(key, 40)}"
        if self.exact and len(arguments) > len(wanted):
            return f"also {shorten(next(key for key in arguments if key not in wanted), 40)}"
        if self._conforms is not None:
            score, found = self._conforms(arguments)
            return "" if score else found
        return ""


def _list_calls(calls: Sequence[ToolCall | WantedCall]) -> str:
    if not calls:
        return "no calls"
    texts = [_call_text(call) for call in calls[:20]]
    return ", ".join(texts) + (f", and {len(calls) - 20} more" if len(calls) > 20 else "")


def _call_text(call: ToolCall | WantedCall) -> str:
    shown = shorten(msgspec.json.encode(call.arguments).decode()) if call.arguments else ""
    if isinstance(call, ToolCall):
        return f"{call.name}({shown}: {call.unread})" if call.unread else f"{call.name}({shown})"
    if call.schema is msgspec.UNSET:
        return f"{call.name}({shown})"
    return f"{call.name}({shown}{', ' if shown else ''}by a schema)"


def _certain(calls: Sequence[ToolCall], may: bool, must: bool) -> Finding:
    """The finding if it does not depend on unreadable arguments: it ``may`` hold with some, and ``must`` with any.

    Raises Unfit if it depends on them: then neither a check nor its opposite passes.
    """
    if may != must:
        raise Unfit(f"arguments that decide cannot be read: {_list_calls(calls)}")
    return holds(must, _list_calls(calls))


def _may_and_must(calls: Sequence[ToolCall], compare: Callable[[bool], bool]) -> tuple[bool, bool]:
    may = compare(True)
    # The second comparison differs only if there are unreadable arguments.
    return may, (compare(False) if any(call.unread for call in calls) else may)


def _calls_tool(value: str, options: CallOptions) -> Made:
    wanted = WantedCall(value, options.arguments, options.schema)
    matcher = _Matcher(wanted, options.exact, options.tolerance, options.relative)
    range_text = f" {options.min} to {options.max} times" if options.max is not None else ""
    minimum_text = f" at least {options.min} times" if options.max is None and options.min != 1 else ""

    def run(answer: CheckedAnswer) -> Finding:
        calls = answer.tool_calls
        # Every count from the fewest to the most calls that fit is possible.
        fewest, most = (sum(matcher.fits(call, unread) for call in calls) for unread in (False, True))
        counts = range(fewest, most + 1)
        fits = [count >= options.min and (options.max is None or count <= options.max) for count in counts]
        return _certain(calls, any(fits), all(fits))

    return Made(f"{_list_calls([wanted])}{range_text or minimum_text}", run, wants_calls=options.min > 0)


_ORDER_WORDS = {
    "any": "in any order",
    "kept": "in this order, others between",
    "exact": "these and no others",
    "prefix": "these first, in this order",
    "unordered": "these and no others, in any order",
}


def _tool_calls(name: str) -> Callable[[list[str | WantedCall], CallsOptions], Made]:
    def make(value: list[str | WantedCall], options: CallsOptions) -> Made:
        # The matching below compares each with each call, and recurses as deep as this list is long.
        if len(value) > _MOST_WANTED:
            raise BadCheck(f"{len(value)} calls in one list; the limit is {_MOST_WANTED}")
        wanted = [WantedCall(each) if isinstance(each, str) else each for each in value]
        matchers = [
            _Matcher(each, options.exact, options.tolerance, options.relative, f"{name}[{index}].")
            for index, each in enumerate(wanted)
        ]
        compare = _COMPARE[options.order]

        def run(answer: CheckedAnswer) -> Finding:
            calls = answer.tool_calls
            return _certain(calls, *_may_and_must(calls, lambda unread: compare(calls, matchers, unread)))

        return Made(f"{_list_calls(wanted)} ({_ORDER_WORDS[options.order]})", run, wants_calls=bool(wanted))

    return make


def _all_called(calls: Sequence[ToolCall], wanted: Sequence[_Matcher], unread: bool) -> bool:
    """Whether each call wanted can be matched with a different call (Kuhn 1955)."""
    if len(wanted) > len(calls):
        return False
    fitting = [[position for position, call in enumerate(calls) if each.fits(call, unread)] for each in wanted]
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


def _in_order(calls: Sequence[ToolCall], wanted: Sequence[_Matcher], unread: bool) -> bool:
    # One iterator: each call counts once, and the first that fits leaves the most calls for the others.
    left = iter(calls)
    return all(any(each.fits(call, unread) for call in left) for each in wanted)


def _only_these(calls: Sequence[ToolCall], wanted: Sequence[_Matcher], unread: bool) -> bool:
    return len(calls) == len(wanted) and _these_first(calls, wanted, unread)


def _these_first(calls: Sequence[ToolCall], wanted: Sequence[_Matcher], unread: bool) -> bool:
    return len(calls) >= len(wanted) and all(each.fits(call, unread) for call, each in zip(calls, wanted, strict=False))


def _these_in_any_order(calls: Sequence[ToolCall], wanted: Sequence[_Matcher], unread: bool) -> bool:
    return len(calls) == len(wanted) and _all_called(calls, wanted, unread)


_COMPARE: dict[str, Callable[[Sequence[ToolCall], Sequence[_Matcher], bool], bool]] = {
    "any": _all_called,
    "kept": _in_order,
    "exact": _only_these,
    "prefix": _these_first,
    "unordered": _these_in_any_order,
}


def _forbidden_tools(value: list[str], options: NoOptions) -> Made:
    forbidden = [_name_matches(name) for name in value]

    def run(answer: CheckedAnswer) -> Finding:
        calls = answer.tool_calls
        called = [call for call in calls if any(matches(call.name) for matches in forbidden)]
        return holds(not called, _list_calls(called or calls))

    return Made(f"no call of {', '.join(value)}", run)


# Checks of some calls of a tool: all of them, any, or one by its place.


def _chosen(calls: Sequence[ToolCall], which: str | int, name: str) -> Sequence[ToolCall]:
    """The calls that the check is about. Raises Unfit if there is none."""
    if not calls:
        raise Unfit(f"no call of {name}")
    if isinstance(which, int):
        if which > len(calls):
            raise Unfit(f"{len(calls)} calls of {name}, no number {which}")
        return calls[which - 1 : which]
    return {"first": calls[:1], "last": calls[-1:]}.get(which, calls)


def _which_text(which: str | int, name: str) -> str:
    return f"call {which} of {name}" if isinstance(which, int) else f"{which} call of {name}"


def _tool_args(value: str, options: WhichOptions) -> Made:
    if not (options.arguments or options.exact or options.schema is not msgspec.UNSET):
        raise BadCheck("needs arguments, exact or schema; calls-tool checks that a tool is called")
    if (options.tolerance or options.relative) and not options.arguments:
        raise BadCheck("is for numbers in `arguments`", "tolerance" if options.tolerance else "relative")
    wanted = WantedCall(value, options.arguments, options.schema)
    matcher = _Matcher(wanted, options.exact, options.tolerance, options.relative)
    quantify = any if options.which == "any" else all

    def run(answer: CheckedAnswer) -> Finding:
        calls = _chosen([call for call in answer.tool_calls if matcher.names(call)], options.which, value)
        may, must = _may_and_must(calls, lambda unread: quantify(not matcher.fault(call, unread) for call in calls))
        if may or must:
            return _certain(calls, may, must)
        call, fault = next((call, fault) for call in calls if (fault := matcher.fault(call, unread=True)))
        return holds(False, f"{fault}: {_call_text(call)}")

    return Made(f"{_which_text(options.which, value)}: {_call_text(wanted)}", run, wants_calls=True)


def _no_repeat(value: bool | None, options: RepeatOptions) -> Made:
    refuse_false(value)
    about = [_name_matches(name) for name in options.tools]

    def run(answer: CheckedAnswer) -> Finding:
        calls = [call for call in answer.tool_calls if not about or any(matches(call.name) for matches in about)]
        counts = Counter(_identity(call) for call in calls)
        repeated = [call for call in calls if counts[_identity(call)] > options.max]
        if repeated:
            return holds(False, f"{counts[_identity(repeated[0])]} times {_call_text(repeated[0])}")
        # Unreadable arguments could be the same as others of their tool.
        for name, unread in Counter(call.name for call in calls if call.unread).items():
            of_tool = [count for key, count in counts.items() if key[0] == name and not key[1]]
            if unread + max(of_tool, default=0) > options.max:
                raise Unfit(f"arguments that decide cannot be read: {_list_calls(calls)}")
        return holds(True, _list_calls(calls))

    times = "no call is repeated" if options.max == 1 else f"no call is made more than {options.max} times"
    return Made(f"{times} ({', '.join(options.tools)})" if options.tools else times, run)


def _identity(call: ToolCall) -> tuple[str, str, bytes]:
    """Equal for the same call with the same arguments; of unreadable arguments, for the same text."""
    return call.name, call.unread, canonical_json(_plain_numbers(call.arguments))


def _plain_numbers(value: Any) -> Any:
    """``value`` with 2.0 as 2: numbers are compared by value."""
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, dict):
        return {key: _plain_numbers(each) for key, each in value.items()}
    return [_plain_numbers(each) for each in value] if isinstance(value, list) else value


# What came of calls: results and errors.


class RepeatOptions(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename="kebab"):
    """Which calls may be repeated, and how often."""

    max: Annotated[Place, msgspec.Meta(description="how often the same call may be made")] = 1
    tools: Annotated[list[Name], msgspec.Meta(description="only calls of these tools; by default of all")] = []


class RecoverOptions(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename="kebab"):
    """Which later call counts."""

    by: Annotated[Literal["same-tool", "any-tool"], msgspec.Meta(description="whose later call must succeed")] = (
        "same-tool"
    )


class ResultOptions(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename="kebab"):
    """What the tool gave; without options, any result that is not an error."""

    check: Annotated[
        dict[str, Any] | Name | msgspec.UnsetType,
        msgspec.Meta(description="a check of the result, such as `{contains: Seoul}`; with `failed` of the error"),
    ] = msgspec.UNSET
    failed: Annotated[bool, msgspec.Meta(description="the call failed")] = False
    which: Which = "every"


def _outcome_known(call: ToolCall) -> bool:
    return call.error is not None or call.result is not None


def _tool_result(value: str, options: ResultOptions) -> Made:
    matches = _name_matches(value)
    outcome = "fails" if options.failed else "gives a result"

    def make(check: Run | None, wanted: str) -> Made:
        def run(answer: CheckedAnswer) -> Finding:
            calls = _chosen([call for call in answer.tool_calls if matches(call.name)], options.which, value)
            return _quantified(calls, options.which, lambda call: _came_as_wanted(answer, call, options.failed, check))

        words = f"{_which_text(options.which, value)}: {outcome}{wanted and f': {wanted}'}"
        return Made(words, run, wants_calls=True)

    return make(None, "") if options.check is msgspec.UNSET else Made("", _never, inner=(options.check, make))


def _never(answer: CheckedAnswer) -> Finding:
    raise AssertionError("the check in the option is not compiled")


def _came_as_wanted(answer: CheckedAnswer, call: ToolCall, failed: bool, check: Run | None) -> bool:
    """Whether the outcome of ``call`` is the one wanted. Raises Uncomputable, and Unfit."""
    if not _outcome_known(call):
        raise Uncomputable(f"the record says nothing of what came of {_call_text(call)}")
    if failed != (call.error is not None):
        return False
    return check is None or check(answer.part(call.error if failed else call.result)).score == 1.0


def _quantified(calls: Sequence[ToolCall], which: str | int, holds_of: Callable[[ToolCall], bool]) -> Finding:
    """The finding over calls: one call decides by itself, for `any` if it holds, for the others if it does not.

    Raises Uncomputable or Unfit if calls without a verdict could decide.
    """
    undecided: list[Uncomputable | Unfit] = []
    last = calls[-1]
    for call in calls:
        try:
            fits = holds_of(call)
        except (Uncomputable, Unfit) as error:
            undecided.append(error)
            continue
        last = call
        if fits == (which == "any"):
            return holds(fits, _outcome_text(call))
    if undecided:
        raise next((error for error in undecided if isinstance(error, Uncomputable)), undecided[0])
    return holds(which != "any", _outcome_text(last))


def _outcome_text(call: ToolCall) -> str:
    if call.error is not None:
        return f"{_call_text(call)} failed: {call.error}"
    shown = call.result if isinstance(call.result, str) else msgspec.json.encode(call.result).decode()
    return f"{_call_text(call)} gave {shown}"


def _recovers(value: bool | None, options: RecoverOptions) -> Made:
    refuse_false(value)

    def left(calls: Sequence[ToolCall], unknown_fails: bool) -> Iterator[ToolCall]:
        """The failed calls after which none succeeded; ``unknown_fails``: calls of unknown outcome failed, too."""
        waiting: dict[str, ToolCall] = {}
        for call in calls:
            tool = call.name if options.by == "same-tool" else ""
            if call.error is not None or (unknown_fails and not _outcome_known(call)):
                waiting.setdefault(tool, call)
            else:
                waiting.pop(tool, None)
        yield from waiting.values()

    def run(answer: CheckedAnswer) -> Finding:
        calls = answer.tool_calls
        # Unknown outcomes decide only if they can: with all of them well, and with all of them failed.
        failing, at_worst = (list(left(calls, unknown_fails)) for unknown_fails in (False, True))
        if not failing and at_worst:
            raise Uncomputable(f"the record says nothing of what came of {_call_text(at_worst[0])}")
        failed = sum(call.error is not None for call in calls)
        if failing:
            return holds(False, f"no success after {_call_text(failing[0])}: {failing[0].error}")
        return holds(True, f"{failed} of {len(calls)} calls failed")

    return Made(f"a success of {'any' if options.by == 'any-tool' else 'the same'} tool after each error", run)


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
        summary="The agent made these calls, each a tool's name or `{name, arguments, schema}`.",
        value=list[str | WantedCall],
        options=CallsOptions,
        make=_tool_calls("tool-calls"),
        example={"tool-calls": ["search", {"name": "book", "arguments": {"seats": 2}}], "order": "unordered"},
    ),
    Kind(
        name="tool-sequence",
        summary="The same as `tool-calls`, in this order if `order` does not say otherwise.",
        value=list[str | WantedCall],
        options=SequenceOptions,
        make=_tool_calls("tool-sequence"),
        example={"tool-sequence": ["search", {"name": "book", "arguments": {"seats": 2}}], "order": "prefix"},
    ),
    Kind(
        name="tool-args",
        summary="The calls of this tool, all or one of them, have these arguments. Without a call, it fails.",
        value=Name,
        options=WhichOptions,
        make=_tool_args,
        example={"tool-args": "book", "arguments": {"price": 9.5}, "tolerance": 0.01, "which": "last"},
    ),
    Kind(
        name="tool-result",
        summary="This tool gave what `check` wants, in all of its calls or one of them. Without a call, it fails.",
        value=Name,
        options=ResultOptions,
        make=_tool_result,
        applies_another=True,
        example={"tool-result": "search", "check": {"contains": "Seoul"}, "which": "any"},
    ),
    Kind(
        name="forbidden-tools",
        summary="The agent called none of these tools. In a tool's name, `*` stands for any characters.",
        value=Names,
        make=_forbidden_tools,
        example={"forbidden-tools": ["delete_*", "pay"]},
    ),
    Kind(
        name="no-repeat",
        summary="The agent did not make the same call with the same arguments again.",
        value=Yes,
        options=RepeatOptions,
        make=_no_repeat,
        example={"no-repeat": True, "max": 2},
    ),
    Kind(
        name="recovers",
        summary="After each call that failed, a later call of the same tool succeeds. Without a failed call, it holds.",
        value=Yes,
        options=RecoverOptions,
        make=_recovers,
        example={"recovers": True, "by": "any-tool"},
    ),
)
