"""Checks of the numbers in a text."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from decimal import Decimal
from typing import Annotated, Literal

import msgspec

from evalq.evalcore.evaluators.checks.answer import Answer, Unfit
from evalq.evalcore.evaluators.checks.likeness import Bounds, told
from evalq.evalcore.evaluators.checks.vocabulary.declaring import Finding, Kind, Made, holds

__all__ = ["KINDS", "numbers_in"]

# One pass, no part of which can be matched in two ways: linear in the text, whatever it is.
# A sign after a digit, a letter or a bracket is a dash or an operator: 3-5 has no -5 in it.
_TOKEN = re.compile(
    r"(?:(?<![\w)])[-+\u2212])?(?:\d+(?:,\d+)*(?:\.\d+)?|(?<![\w.])\.\d+)(?:[eE][-+]?\d{1,4}(?!\d))?", re.ASCII
)
_GROUPED = re.compile(r"\d{1,3}(?:,\d{3})+", re.ASCII)


class NumberOptions(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename="kebab"):
    """Which of an answer's numbers is meant, and how near it has to be."""

    which: Annotated[
        Literal["any", "first", "last", "only"], msgspec.Meta(description="which number of the answer")
    ] = "any"
    tolerance: Annotated[float, msgspec.Meta(ge=0, description="by so much it may differ")] = 0.0
    relative: Annotated[float, msgspec.Meta(ge=0, description="by such a share it may differ")] = 0.0


def numbers_in(text: str) -> Iterator[Decimal]:
    """The numbers that a text has, thousands set off by commas or not; what is no finite float is left out."""
    for match in _TOKEN.finditer(text):
        token = match[0].replace("\u2212", "-")
        sign, digits = (token[0], token[1:]) if token[0] in "-+" else ("", token)
        whole = digits.partition(".")[0].partition("e")[0].partition("E")[0]
        # "1,234" is one number, "1,2" are two.
        parts = [digits.replace(",", "")] if "," not in whole or _GROUPED.fullmatch(whole) else digits.split(",")
        for index, part in enumerate(filter(None, parts)):
            written = sign + part if index == 0 else part
            if math.isfinite(float(written)):
                yield Decimal(written)


def _number(value: int | float, options: NumberOptions) -> Made:
    within = Bounds(value, options.tolerance, options.relative)
    about = "about " if options.tolerance or options.relative else ""
    which = {"any": "a number", "first": "the first number", "last": "the last number", "only": "the only number"}

    def run(answer: Answer) -> Finding:
        found = list(numbers_in(answer.text))
        if options.which == "any":
            return holds(any(each in within for each in found), _shown(found) or f"no number: {answer.text}")
        # Unlike for any of them: of a first or a last number, where there is none, nothing is true
        # (docs/decisions/0019).
        if not found:
            raise Unfit(f"no number: {answer.text}")
        if options.which == "only" and len(found) > 1:
            raise Unfit(f"{len(found)} numbers: {_shown(found)}")
        meant = found[-1 if options.which == "last" else 0]
        return holds(meant in within, told(meant))

    return Made(f"{which[options.which]} {about}{told(value)}", run)


def _shown(found: list[Decimal]) -> str:
    return ", ".join(map(told, found[:10])) + (", ..." if len(found) > 10 else "")


KINDS = (
    Kind(
        name="number",
        summary="A number in the answer is this one, in decimals: any of them, the first, the last, or the only one.",
        value=int | float,
        options=NumberOptions,
        make=_number,
        example={"number": 42, "which": "last", "tolerance": 0.5},
    ),
)
