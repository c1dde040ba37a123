"""Checks of the JSON in an answer: that there is some, its schema, and what is at a path."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec

from evalq.evalcore.evaluators.checks.answer import Answer, Unfit
from evalq.evalcore.evaluators.checks.vocabulary.declaring import (
    BadCheck,
    Bounds,
    Finding,
    Kind,
    Made,
    holds,
    same_json,
    told,
)
from evalq.evalcore.naming import kind_of
from evalq.evalcore.records.json_values import Malformed, NoJson, NothingThere, decode, find_at, parse_path

Yes = bool | None


class PathOptions(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename="kebab"):
    """What is wanted at the path; nothing of it: that something is there."""

    is_: Annotated[Any, msgspec.Meta(description="what stands there, as JSON")] = msgspec.field(
        default=msgspec.UNSET, name="is"
    )
    min: Annotated[int | float | None, msgspec.Meta(description="a number that is no smaller")] = None
    max: Annotated[int | float | None, msgspec.Meta(description="a number that is no larger")] = None
    tolerance: Annotated[float, msgspec.Meta(ge=0, description="by so much a number may differ from `is`")] = 0.0
    relative: Annotated[float, msgspec.Meta(ge=0, description="by such a share of `is` it may differ")] = 0.0


def yes_alone(value: bool | None) -> None:
    """Raise BadCheck for a check that takes nothing and was given false."""
    if value is False:
        raise BadCheck("write `not-` before the name instead")


def _is_json(value: bool | None, options: Any) -> Made:
    yes_alone(value)

    def run(answer: Answer) -> Finding:
        if not isinstance(answer.output, str):
            return holds(True, kind_of(answer.output))
        try:
            # Without JSON's own white space: any other around it is no JSON.
            return holds(True, kind_of(decode(answer.output.strip(" \t\n\r").encode("utf-8", "surrogatepass"))))
        except Malformed as error:
            return holds(False, f"{error}: {answer.output}")

    return Made("JSON and nothing else", run)


def _contains_json(value: bool | None, options: Any) -> Made:
    yes_alone(value)

    def run(answer: Answer) -> Finding:
        try:
            return holds(True, kind_of(answer.json))
        except NoJson as error:
            return holds(False, str(error))

    return Made("JSON, alone or in one fenced block", run)


def _json_path(value: str, options: PathOptions) -> Made:
    try:
        steps = parse_path(value)
    except ValueError as error:
        raise BadCheck(str(error)) from None
    numeric = isinstance(options.is_, int | float) and not isinstance(options.is_, bool)
    # A list's numbers would be compared exactly all the same, and the tolerance be passed over.
    if (options.tolerance or options.relative) and not numeric:
        raise BadCheck("goes with a number under `is`", "tolerance" if options.tolerance else "relative")

    within = Bounds(options.is_, options.tolerance, options.relative) if numeric else None

    def run(answer: Answer) -> Finding:
        try:
            there = find_at(answer.json, steps, "the answer")
        except NoJson as error:
            # Without JSON there is no path to look at; with it, that nothing stands there is the finding (decision 19).
            raise Unfit(str(error)) from None
        except NothingThere as error:
            return holds(False, str(error))
        return holds(_as_wanted(there, options, within), msgspec.json.encode(there).decode())

    return Made(_wanted(value, options), run)


def _as_wanted(there: Any, options: PathOptions, within: Bounds | None) -> bool:
    # True is no 1, though Python has it so.
    number = there if isinstance(there, int | float) and not isinstance(there, bool) else None
    if within is not None and number is not None:
        fine = number in within
    else:
        # Unset and not None: null is a value that can be wanted.
        fine = options.is_ is msgspec.UNSET or same_json(there, options.is_)
    if not fine:
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
        parts.append(f"at least {told(options.min)}")
    if options.max is not None:
        parts.append(f"at most {told(options.max)}")
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
        summary="What is at a path in the answer's JSON: there at all, a value, or a number within bounds.",
        value=str,
        options=PathOptions,
        make=_json_path,
        example={"json-path": "$.items[0].price", "is": 9.5, "tolerance": 0.01},
    ),
)
