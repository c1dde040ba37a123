"""The check of what a pattern takes out of an answer: how most benchmarks find the answer in a text."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec

from evalq.evalcore.evaluators.checks.answer import Answer, Unfit
from evalq.evalcore.evaluators.checks.vocabulary.declaring import BadCheck, Finding, Kind, Made, holds
from evalq.evalcore.evaluators.checks.vocabulary.patterns import compiled

__all__ = ["KINDS"]

_SHOWN = 5
_MOST_STEPS = 1_000_000_000
"""Matches times bytes: each match may look through all of the text that is left."""
Pattern = Annotated[str, msgspec.Meta(min_length=1)]
Patterns = Annotated[list[Pattern], msgspec.Meta(min_length=1, max_length=20)]


class CaptureOptions(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename="kebab"):
    """What was taken has to be one of ``is``."""

    is_: Annotated[Any, msgspec.Meta(description="the text wanted, or a list of them: any one")] = msgspec.field(
        default=msgspec.UNSET, name="is"
    )
    which: Annotated[Literal["first", "last"], msgspec.Meta(description="which match in the answer")] = "first"
    ignore_case: Annotated[bool, msgspec.Meta(description="upper and lower case are one in what was taken")] = False
    trim: Annotated[bool, msgspec.Meta(description="white space around what was taken does not count")] = False


def _captures(value: str | list[str], options: CaptureOptions) -> Made:
    wanted = [options.is_] if isinstance(options.is_, str) else options.is_
    if not isinstance(wanted, list) or not wanted or not all(isinstance(each, str) for each in wanted):
        raise BadCheck("must be a text, or a list of texts: what the pattern has to take", "is")
    patterns = [compiled(each) for each in ([value] if isinstance(value, str) else value)]
    known = {_plain(each, options) for each in wanted}

    def run(answer: Answer) -> Finding:
        # The first pattern that occurs decides, as a strict form and a lenient one for the rest.
        taken = next(filter(None, (_taken(pattern, answer.encoded, options.which) for pattern in patterns)), None)
        if taken is None:
            # No wrong answer but none: its opposite is not true of it either (decision 19).
            raise Unfit(f"the pattern does not occur: {answer.text}")
        fine = any(_plain(each, options) in known for each in taken)
        return holds(fine, ", ".join(f'"{each}"' for each in taken[:_SHOWN]))

    told = " or ".join(f'"{each}"' for each in wanted[:_SHOWN])
    return Made(f"{told} by {value if isinstance(value, str) else value[0]}", run)


def _taken(pattern: Any, text: bytes, which: str) -> list[str] | None:
    """What the groups of the first or last match took, the whole match where there are none; None without one."""
    found, most = None, max(100, _MOST_STEPS // (len(text) + 1))
    for number, match in enumerate(pattern.finditer(text)):
        found = match
        # RE2 searches forwards only: which match is the last is known when all are found.
        if which == "first":
            break
        if number >= most:
            raise Unfit(f"more than {most} matches in {len(text)} bytes, too many to find the last")
    if found is None:
        return None
    groups = found.groups() or (found.group(),)
    # A group in a part of the pattern that was not taken is None; where all are, the match took nothing.
    return [each.decode(errors="replace") for each in groups if each is not None] or [""]


def _plain(text: str, options: CaptureOptions) -> str:
    text = text.strip() if options.trim else text
    return text.casefold() if options.ignore_case else text


KINDS = (
    Kind(
        name="captures",
        summary="What a pattern takes out of the answer, by its groups, is the text wanted. "
        "Of several patterns the first that occurs decides.",
        value=Pattern | Patterns,
        options=CaptureOptions,
        make=_captures,
        example={"captures": r"(?i)answer:\s*([A-D])", "is": "B", "which": "last"},
    ),
)
