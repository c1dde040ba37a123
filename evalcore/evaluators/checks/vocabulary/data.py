"""Checks of the JSON in an answer: whether it has any, and the value at a path."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec

from evalq.evalcore.evaluators.checks.answer import CheckedAnswer, Unfit
from evalq.evalcore.evaluators.checks.vocabulary.declaring import (
    BadCheck,
    Bounds,
    Finding,
    Kind,
    Made,
    format_number,
    holds,
    same_json,
)
from evalq.evalcore.naming import kind_of
from evalq.evalcore.records.json_values import Malformed, NoJson, NothingThere, decode, find_at, parse_path

Yes = bool | None


class PathOptions(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename="kebab"):
    """The value wanted at the path; without options, any value."""

    is_: Annotated[Any, msgspec.Meta(description="the value there, as JSON")] = msgspec.field(
        default=msgspec.UNSET, name="is"
    )
    min: Annotated[int | float | None, msgspec.Meta(description="the lowest number that passes")] = None
    max: Annotated[int | float | None, msgspec.Meta(description="the highest number that passes")] = None
    tolerance: Annotated[float, msgspec.Meta(ge=0, description="how much a number may differ from `is`")] = 0.0
    relative: Annotated[float, msgspec.Meta(ge=0, description="the share of `is` by which it may differ")] = 0.0


def refuse_false(value: bool | None) -> None:
    """Raise BadCheck for false as the value of a check that takes none."""
    if value is False:
        raise BadCheck("write `not-` before the name instead")


def _is_json(value: bool | None, options: Any) -> Made:
    refuse_false(value)

    def run(answer: CheckedAnswer) -> Finding:
        # An answer of tool calls alone has no JSON, even if an empty text is recorded with it.
        if not isinstance(answer.output, str) or not answer.has_text:
            return holds(True, kind_of(answer.json))
        try:
            # Strip only the white space of JSON: any other makes it invalid.
            return holds(True, kind_of(decode(answer.output.strip(" \t\n\r").encode("utf-8", "surrogatepass"))))
        except Malformed as error:
            return holds(False, f"{error}: {answer.output}")

    return Made("JSON and nothing else", run)


def _contains_json(value: bool | None, options: Any) -> Made:
    refuse_false(value)

    def run(answer: CheckedAnswer) -> Finding:
        try:
            return holds(True, kind_of(answer.json))
        except NoJson as error:
            return holds(False, str(error))

    return Made("JSON, alone or in one fenced block", run)


def _json_path(path: str, options: PathOptions) -> Made:
    try:
        steps = parse_path(path)
    except ValueError as error:
        raise BadCheck(str(error)) from None
    numeric = isinstance(options.is_, int | float) and not isinstance(options.is_, bool)
    # An error for lists, since evalq would compare their numbers exactly.
    if (options.tolerance or options.relative) and not numeric:
        raise BadCheck("needs a number as `is`", "tolerance" if options.tolerance else "relative")

    within = Bounds(options.is_, options.tolerance, options.relative) if numeric else None

    def run(answer: CheckedAnswer) -> Finding:
        try:
            value = find_at(answer.json, steps, "the answer")
        except NoJson as error:
            # Without JSON there are no paths; with JSON, a missing value is a finding (decision 19).
            raise Unfit(str(error)) from None
        except NothingThere as error:
            return holds(False, str(error))
        return holds(_matches(value, options, within), msgspec.json.encode(value).decode())

    return Made(_wanted(path, options), run)


def _matches(value: Any, options: PathOptions, within: Bounds | None) -> bool:
    # True is not 1, except in Python.
    number = value if isinstance(value, int | float) and not isinstance(value, bool) else None
    if within is not None and number is not None:
        equal = number in within
    else:
        # UNSET, since null is a value, too.
        equal = options.is_ is msgspec.UNSET or same_json(value, options.is_)
    if not equal:
        return False
    if options.min is None and options.max is None:
        return True
    if number is None:
        return False
    return (options.min is None or number >= options.min) and (options.max is None or number <= options.max)


def _wanted(path: str, options: PathOptions) -> str:
    parts = []
    if options.is_ is not msgspec.UNSET:
        about = options.tolerance or options.relative
        parts.append(f"{'about ' if about else ''}{msgspec.json.encode(options.is_).decode()}")
    if options.min is not None:
        parts.append(f"at least {format_number(options.min)}")
    if options.max is not None:
        parts.append(f"at most {format_number(options.max)}")
    return f"{path}: {', '.join(parts) or 'something'}"


KINDS = (
    Kind(
        name="is-json",
        summary="The whole answer is JSON.",
        value=Yes,
        make=_is_json,
        example={"is-json": True},
    ),
    Kind(
        name="contains-json",
        summary="The answer is JSON, or has one fenced block of it.",
        value=Yes,
        make=_contains_json,
        example={"contains-json": True},
    ),
    Kind(
        name="json-path",
        summary="The value at a path in the answer's JSON: any value, this value, or a number within bounds.",
        value=str,
        options=PathOptions,
        make=_json_path,
        example={"json-path": "$.items[0].price", "is": 9.5, "tolerance": 0.01},
    ),
)
