"""Checks of the numbers in a text."""

from __future__ import annotations

import math
import re
import unicodedata
from collections.abc import Iterator
from decimal import Decimal
from typing import Annotated, Literal

import msgspec

from evalq.evalcore.evaluators.checks.answer import Answer, Unfit
from evalq.evalcore.evaluators.checks.likeness import Bounds, told
from evalq.evalcore.evaluators.checks.vocabulary.declaring import BadCheck, Finding, Kind, Made, holds
from evalq.evalcore.naming import shorten

__all__ = ["KINDS", "numbers_in"]

# One pass, no part of which can be matched in two ways: linear in the text, whatever it is.
# A sign after a digit, a letter or a bracket is a dash or an operator: 3-5 has no -5 in it. Narrow and fixed spaces and
# apostrophes stand between groups of three, and are no part of a number elsewhere.
_TOKEN = re.compile(
    r"(?:(?<![\w)])[-+])?"
    r"(?:\d{1,3}(?P<apart>[\u00a0\u2007\u2009\u202f'\u2019])\d{3}(?:(?P=apart)\d{3})*+(?!\d)(?:\.\d+)?"
    r"|\d+(?:,\d+)*(?:\.\d+)?|(?<![\w.])\.\d+)(?:[eE][-+]?\d{1,4}(?!\d))?",
    re.ASCII,
)
_GROUPED = re.compile(r"\d{1,3}(?:,\d{3})+", re.ASCII)
_APART = re.compile("[\u00a0\u2007\u2009\u202f'\u2019]")
_OTHER_DIGIT = re.compile(r"[^\x00-\x7f]")
_WIDE_COMMA = re.compile(r"(?<=\d)\uff0c(?=\d{3}(?!\d))")
# The minus sign, the dashes that stand for it, and what East Asian and Arabic keyboards write.
_SIGNS = str.maketrans("\u2212\u2013\u2012\ufe63\uff0d\uff0b\uff0e\u066b\u066c", "-----+..,")
_WHOLE = 10**17
_SWAPPED = str.maketrans(",.", ".,")


class NumberOptions(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename="kebab"):
    """Which of an answer's numbers is meant, and how near it has to be."""

    which: Annotated[
        Literal["any", "first", "last", "only"], msgspec.Meta(description="which number of the answer")
    ] = "any"
    tolerance: Annotated[float, msgspec.Meta(ge=0, description="by so much it may differ")] = 0.0
    relative: Annotated[float, msgspec.Meta(ge=0, description="by such a share it may differ")] = 0.0
    decimal_comma: Annotated[bool, msgspec.Meta(description="3,5 is three and a half, and 1.234 a thousand")] = False


def numbers_in(text: str, *, decimal_comma: bool = False) -> Iterator[Decimal]:
    """The numbers that a text has, in decimal digits of any script; what is no finite float is left out.

    Groups of three may be set off by commas, apostrophes, or spaces that do not break; with ``decimal_comma`` a comma
    begins the fraction, and points set groups off.
    """
    text = _plain(text)
    if decimal_comma:
        text = text.translate(_SWAPPED)
    for match in _TOKEN.finditer(text):
        token = _APART.sub("", match[0]) if match["apart"] else match[0]
        sign, digits = (token[0], token[1:]) if token[0] in "-+" else ("", token)
        whole = digits.partition(".")[0].partition("e")[0].partition("E")[0]
        # "1,234" is one number, "1,2" are two.
        parts = [digits.replace(",", "")] if "," not in whole or _GROUPED.fullmatch(whole) else digits.split(",")
        for index, part in enumerate(filter(None, parts)):
            written = sign + part if index == 0 else part
            if math.isfinite(float(written)):
                yield Decimal(written)


def _plain(text: str) -> str:
    """A text with ASCII digits and signs in place of those of other scripts."""
    if text.isascii():
        return text
    text = _OTHER_DIGIT.sub(lambda found: str(unicodedata.decimal(found[0], found[0])), text)
    return _WIDE_COMMA.sub(",", text.translate(_SIGNS))


def _wanted(value: int | float | str, decimal_comma: bool) -> int | float:
    """The number that is wanted, which spreadsheets give as a text. Raises BadCheck."""
    if not isinstance(value, str):
        return value
    text = _plain(value.strip())
    found = list(numbers_in(text, decimal_comma=decimal_comma))
    if len(found) != 1 or not _TOKEN.fullmatch(text.translate(_SWAPPED) if decimal_comma else text):
        raise BadCheck(f"expected a number, got {shorten(value)!r}")
    return int(found[0]) if found[0] == found[0].to_integral_value() and abs(found[0]) < _WHOLE else float(found[0])


def _number(given: int | float | str, options: NumberOptions) -> Made:
    value = _wanted(given, options.decimal_comma)
    within = Bounds(value, options.tolerance, options.relative)
    about = "about " if options.tolerance or options.relative else ""
    which = {"any": "a number", "first": "the first number", "last": "the last number", "only": "the only number"}

    def run(answer: Answer) -> Finding:
        found = list(numbers_in(answer.text, decimal_comma=options.decimal_comma))
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
        value=int | float | str,
        options=NumberOptions,
        make=_number,
        example={"number": 42, "which": "last", "tolerance": 0.5},
    ),
)
