"""How to declare a check: name, value, options and run; and how checks compare JSON values and compile patterns."""

from __future__ import annotations

from collections.abc import Callable
from decimal import Context, Decimal, Inexact, localcontext
from functools import lru_cache
from typing import Any, Literal, NamedTuple

import msgspec
import re2

from evalq.evalcore.evaluators.checks.answer import CheckedAnswer
from evalq.evalcore.records.prompts import Asked


class BadCheck(ValueError):
    """A check is not valid; ``path`` leads to the fault inside it."""

    def __init__(self, reason: str, path: str = "") -> None:
        super().__init__(reason)
        self.path = path


class Finding(NamedTuple):
    """The finding of a check: a score from 0 to 1, and what the answer has, in words."""

    score: float
    found: str


Run = Callable[[CheckedAnswer], Finding]


class JudgeQuestion(NamedTuple):
    """A check's question to a judge about an answer: ``votes`` calls in each of ``orders`` orders of two texts.

    ``key`` names it in recorded judgements; it is the same for the same question, whatever its weight. ``judge`` is the
    target that the check names, or empty. ``template`` is the digest of the words around the texts. ``prompt`` takes
    the input of the program, its answer, the other text (empty if the check has its own) and the order. ``read``
    parses the verdict from a reply and raises `Unreadable`. ``against``: the other text is an output of another run.
    ``of``: what the judge gets: the answer, the whole conversation, or the whole record.
    """

    key: str
    judge: str
    votes: int
    orders: int
    template: str
    prompt: Callable[[str | None, str, str, int], Asked]
    read: Callable[[dict[str, Any]], Any]
    against: bool = False
    of: Literal["answer", "conversation", "record"] = "answer"


class Made(NamedTuple):
    """A check ready to run: what it wants, in words, and the function that examines an answer.

    ``run`` raises `Uncomputable` if the record lacks the data for the check. ``least`` is the lowest score that passes,
    if that depends on the options. ``scaled`` converts a ``threshold`` in other units to a score, and raises BadCheck.
    ``question`` is for checks that judges decide. ``inner`` is for a check that applies another one, which stands in
    its option ``check``: as it is written, and the function that makes the whole from its run and its words.
    ``reads_record`` says whether that check looks at the record. ``wants_calls``: it wants tool calls to be there.
    """

    wanted: str
    run: Run
    least: float | None = None
    scaled: Callable[[float], float] | None = None
    question: JudgeQuestion | None = None
    inner: tuple[Any, Callable[[Run, str], Made]] | None = None
    reads_record: bool = False
    wants_calls: bool = False


class NoOptions(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """No options."""


class Kind(msgspec.Struct, frozen=True, kw_only=True):
    """One check of the vocabulary.

    ``value`` is the type of the value after the name, for msgspec; None if there is none. ``options`` is a msgspec
    struct of its options, each with a default. ``make`` gets both and raises BadCheck. ``threshold`` is the default for
    the lowest score that passes; None for checks that hold or do not. ``needs`` is the extra that installs its
    requirements; ``example`` is a check in a cases file. ``fallible``: its verdict may be wrong, like that of a model;
    people label some answers to measure how often. ``applies_another``: its option ``check`` is a check. ``quick``:
    every value of this type is valid, a text that is not empty or a number from 0, and the check is made as fast as it
    would be found in a cache.
    """

    name: str
    summary: str
    value: Any
    make: Callable[[Any, Any], Made]
    example: dict[str, Any]
    options: type[Any] = NoOptions
    threshold: float | None = None
    needs: str = ""
    fallible: bool = False
    applies_another: bool = False
    quick: type[str | int] | None = None


def holds(fine: bool, found: str) -> Finding:
    """The finding of a check that holds or does not."""
    return Finding(1.0 if fine else 0.0, found)


# Comparing JSON values.

_DIGITS = 17
"""Significant digits that distinguish every float from its neighbours."""
_ROOM = Context(prec=10_000, Emin=-1_000_000, Emax=1_000_000, traps=[Inexact])
"""Floats have 1,074 decimals at most, their products twice that, and whole numbers in a file some thousand digits."""


def same_json(left_value: Any, right_value: Any, tolerance: float = 0.0, relative: float = 0.0) -> bool:
    """Whether two JSON values are equal: numbers by value, keys in any order; true is not 1.

    With a tolerance, numbers are equal within the `Bounds` of the right one.
    """
    # No recursion: an answer may nest deeper than the interpreter's stack.
    pairs = [(left_value, right_value)]
    while pairs:
        left, right = pairs.pop()
        if isinstance(left, dict) and isinstance(right, dict):
            if left.keys() != right.keys():
                return False
            pairs += [(value, right[key]) for key, value in left.items()]
        elif isinstance(left, list) and isinstance(right, list):
            if len(left) != len(right):
                return False
            pairs += zip(left, right, strict=True)
        elif isinstance(left, bool) or isinstance(right, bool) or type(left) is dict or type(left) is list:
            # By identity, since True == 1 in Python; a dict or list here meets another type, and differs.
            if left is not right:
                return False
        elif left != right and not _is_near(left, right, tolerance, relative):
            return False
    return True


def _is_near(left: Any, right: Any, tolerance: float, relative: float) -> bool:
    if not (tolerance or relative) or not isinstance(left, int | float) or not isinstance(right, int | float):
        return False
    return left in Bounds(right, tolerance, relative)


def exact(value: float | Decimal) -> Decimal:
    """A number as it was written: 0.1 is a tenth, not the float next to it, and whole numbers keep every digit."""
    return Decimal(repr(value)) if type(value) is float else Decimal(value)


class Bounds:
    """The numbers within ``tolerance`` of ``wanted``, or within ``relative`` times its size, bounds included.

    Numbers are compared in decimals, as written. A number with more digits than a float equals ``wanted`` if that is
    the nearest float, since the fractions of a file were read as floats.
    """

    __slots__ = ("_fraction", "_high", "_low")

    def __init__(self, wanted: float, tolerance: float = 0.0, relative: float = 0.0) -> None:
        middle = exact(wanted)
        with localcontext(_ROOM):
            bound = max(exact(tolerance), exact(relative) * abs(middle))
            self._low, self._high = middle - bound, middle + bound
        self._fraction = wanted if type(wanted) is float else None

    def __contains__(self, value: float | Decimal) -> bool:
        """Whether ``value`` is within the bounds."""
        number = exact(value)
        if self._low <= number <= self._high:
            return True
        return float(number) == self._fraction and len(number.as_tuple().digits) > _DIGITS


def format_number(value: float | Decimal) -> str:
    """A number for people, as short as possible without changing its value."""
    number = exact(value)
    short = f"{float(number):.15g}"
    return short if Decimal(short) == number else str(number)


# Patterns are RE2's: they take linear time over any answer.


@lru_cache(maxsize=1024)
def compile_pattern(pattern: str, *, ignore_case: bool = False, dotall: bool = False) -> Any:
    """The pattern over UTF-8 bytes. Raises BadCheck if RE2 cannot compile it."""
    options = re2.Options()
    options.log_errors = False
    options.case_sensitive = not ignore_case
    options.dot_nl = dotall
    try:
        return re2.compile(pattern.encode(), options)
    except (re2.error, UnicodeEncodeError) as error:
        reason = error.args[0]
        raise BadCheck(
            f"not a regular expression: {reason.decode() if isinstance(reason, bytes) else reason}"
        ) from None
