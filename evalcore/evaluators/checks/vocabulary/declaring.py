"""How a check is declared: its name, value, options and run; with comparison of JSON values, and RE2 patterns."""

from __future__ import annotations

from collections.abc import Callable
from decimal import Context, Decimal, Inexact, localcontext
from functools import lru_cache
from typing import Any, NamedTuple

import msgspec
import re2

from evalq.evalcore.evaluators.checks.answer import Answer
from evalq.evalcore.records.prompts import Asked


class BadCheck(ValueError):
    """What is written there is no check; ``path`` leads to what is wrong, from the check on."""

    def __init__(self, reason: str, path: str = "") -> None:
        super().__init__(reason)
        self.path = path


class Finding(NamedTuple):
    """What a check found: a score from 0 to 1, and what came, in words."""

    score: float
    found: str


Run = Callable[[Answer], Finding]


class JudgeQuestion(NamedTuple):
    """What a check asks a judge about an answer, ``votes`` times in each of so many ``orders`` of two texts.

    ``key`` names it in recorded judgements: the same for the same question, however it is weighed. ``judge`` is the
    target that the check itself names, else empty. ``template`` is the digest of the words around the texts. ``prompt``
    is given what the program was asked, its answer, the other text (empty where the check has its own) and the order.
    ``read`` takes the verdict out of a reply and raises `Unreadable`. ``against``: the other text is an output of
    another run.
    """

    key: str
    judge: str
    votes: int
    orders: int
    template: str
    prompt: Callable[[str | None, str, str, int], Asked]
    read: Callable[[dict[str, Any]], Any]
    against: bool = False


class Made(NamedTuple):
    """A check made ready: what it wants, in words, and how it looks at an answer.

    ``run`` raises `Uncomputable` where the record of an answer lacks what it is about. ``least`` is the score that
    passes, where that depends on the options; ``scaled`` makes one of a ``threshold`` that is in units of its own, and
    raises BadCheck. ``asked`` is there where judges decide.
    """

    wanted: str
    run: Run
    least: float | None = None
    scaled: Callable[[float], float] | None = None
    asked: JudgeQuestion | None = None


class NoOptions(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The options of a check that has none of its own."""


class Kind(msgspec.Struct, frozen=True, kw_only=True):
    """One check of the vocabulary.

    ``value`` is the type of what stands behind the name, as msgspec names types; None where nothing does. ``options``
    is a msgspec struct of the options beside it, each with a default. ``make`` gets both and raises BadCheck.
    ``threshold`` is the least score that passes where a file does not say: None for checks that hold or do not.
    ``needs`` is the extra that installs what it takes; ``example`` a check as it stands in a file. ``fallible``: its
    verdict may be wrong, as that of a model is; people label some answers to know how often.
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


def holds(fine: bool, found: str) -> Finding:
    """The finding of a check that holds or does not."""
    return Finding(1.0 if fine else 0.0, found)


# When two JSON values are the same.

_DIGITS = 17
"""Significant digits with which every float is told from its neighbours."""
_ROOM = Context(prec=10_000, Emin=-1_000_000, Emax=1_000_000, traps=[Inexact])
"""Floats have 1,074 decimals at most, their products twice that, and whole numbers in a file some thousand digits."""


def same_json(one: Any, other: Any) -> bool:
    """Whether two JSON values are equal: numbers by value, keys in any order; true is not 1."""
    # Walked with a list of its own: an answer may nest deeper than the interpreter's stack likes.
    pairs = [(one, other)]
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
            # By identity, since True == 1 in Python; a dict or list here stands against another type, and differs.
            if left is not right:
                return False
        elif left != right:
            return False
    return True


def exact(value: float | Decimal) -> Decimal:
    """A number as it was written: 0.1 is a tenth, not the float next to it, and whole numbers keep every digit."""
    return Decimal(repr(value)) if type(value) is float else Decimal(value)


class Bounds:
    """The numbers within ``tolerance`` of ``wanted``, or within ``relative`` times its size, both bounds included.

    Everything is compared as it was written, in decimals. A number of more digits than a float has is also ``wanted``
    itself where that is the float nearest to it: a file's fractions were read as floats.
    """

    __slots__ = ("_fraction", "_high", "_low")

    def __init__(self, wanted: float, tolerance: float = 0.0, relative: float = 0.0) -> None:
        middle = exact(wanted)
        with localcontext(_ROOM):
            bound = max(exact(tolerance), exact(relative) * abs(middle))
            self._low, self._high = middle - bound, middle + bound
        self._fraction = wanted if type(wanted) is float else None

    def __contains__(self, value: float | Decimal) -> bool:
        """Whether ``value`` is one of them."""
        number = exact(value)
        if self._low <= number <= self._high:
            return True
        return float(number) == self._fraction and len(number.as_tuple().digits) > _DIGITS


def told(value: float | Decimal) -> str:
    """A number for people: as short as it can be without becoming another one."""
    number = exact(value)
    short = f"{float(number):.15g}"
    return short if Decimal(short) == number else str(number)


# Patterns of checks, in RE2's syntax: a user's own pattern takes linear time over any answer.


@lru_cache(maxsize=1024)
def compile_pattern(pattern: str, *, ignore_case: bool = False, dotall: bool = False) -> Any:
    """The pattern over UTF-8 bytes. Raises BadCheck for what is none to RE2."""
    options = re2.Options()
    options.log_errors = False
    options.case_sensitive = not ignore_case
    options.dot_nl = dotall
    try:
        return re2.compile(pattern.encode(), options)
    except (re2.error, UnicodeEncodeError) as error:
        said = error.args[0]
        raise BadCheck(f"no regular expression: {said.decode() if isinstance(said, bytes) else said}") from None
