"""What a golden set expects of an output beyond its level: looking a key up, and comparing what is found."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator
from typing import Any

import msgspec

from evalq.evalcore.evaluators.vs.params import Case, Expectation, VsParams
from evalq.evalcore.naming import kind_of, shorten

__all__ = ["Check", "Unmet", "checks_of", "t_score_range_check", "unmet"]

_ABSENT = object()
_OPERATORS: dict[str, Callable[[Any, Any], bool]] = {
    ">=": operator.ge,
    ">": operator.gt,
    "<=": operator.le,
    "<": operator.lt,
    "==": operator.eq,
    "!=": operator.ne,
}


class Unmet(msgspec.Struct, frozen=True):
    """An expectation that an output does not meet: ``kind`` in words alike for every output, ``issue`` for this one."""

    kind: str
    issue: str


class Check(msgspec.Struct, frozen=True):
    """An expectation ready to be held against outputs: keys to follow from the top, and how to take what is there."""

    expectation: Expectation
    paths: tuple[tuple[str, ...], ...]
    take: str


def checks_of(case: Case, params: VsParams) -> tuple[Check, ...]:
    """The checks of a case, with the lookup table of ``params``."""
    table = {lookup.key: (lookup.paths, lookup.take) for lookup in params.lookups}
    checks = []
    for expectation in case.expected:
        # A key that nobody listed is looked for where all unlisted ones are.
        paths, take = table.get(expectation.key, (params.unlisted, "value"))
        split = tuple(_split(path, expectation.key) for path in paths)
        checks.append(Check(expectation, split, take))
    return tuple(checks)


def _split(path: str, key: str) -> tuple[str, ...]:
    return tuple(key if part == "{key}" else part for part in path.split("."))


def unmet(check: Check, output: dict[str, Any]) -> Unmet | None:
    """Why ``output`` fails the check, or None when it meets it."""
    expected = check.expectation
    # Without the output's own value: outputs that fail alike are counted together.
    kind = f"{expected.key} is not {_in_words(expected)}"
    value = _taken(check, output)
    if value is _ABSENT:
        places = " and ".join(".".join(path) for path in check.paths)
        return Unmet(f"{expected.key} not found", f"{expected.key} not found (looked at {places})")
    compared, problem = _comparable(value, expected.want, check.take)
    if problem:
        return Unmet(kind, f"{expected.key} is {problem}, expected {_in_words(expected)}")
    if _OPERATORS[expected.op](compared, expected.want):
        return None
    return Unmet(kind, f"{expected.key} is {_shown(compared)}, expected {_in_words(expected)}")


def _taken(check: Check, output: dict[str, Any]) -> Any:
    found = _found(check, output)
    # SPEC, section 1: at any of its places, since agents keep alternatives in different ones.
    if check.take == "non_empty":
        return any(found)
    return next(found, _ABSENT)


def _found(check: Check, output: dict[str, Any]) -> Iterator[Any]:
    """The values at those of the check's paths that exist, in its order."""
    for path in check.paths:
        value: Any = output
        for key in path:
            value = value.get(key, _ABSENT) if isinstance(value, dict) else _ABSENT
        if value is not _ABSENT:
            yield value


def _comparable(value: Any, want: bool | float | str, take: str) -> tuple[Any, str]:
    """``value`` as ``want`` is to be compared with, or what is wrong with it."""
    if take == "length" and not isinstance(value, list):
        return value, kind_of(value)
    # Before numbers, since Python's True is the number 1.
    if isinstance(want, bool):
        return bool(value), ""
    if isinstance(want, str):
        return value, "" if isinstance(value, str) else kind_of(value)
    # A number that is expected of a list is its length.
    if isinstance(value, list):
        return len(value), ""
    number = isinstance(value, int | float) and not isinstance(value, bool)
    return value, "" if number else kind_of(value)


def _in_words(expected: Expectation) -> str:
    return _shown(expected.want) if expected.op == "==" else f"{expected.op} {expected.want}"


def _shown(value: Any) -> str:
    if isinstance(value, str):
        return repr(shorten(value))
    return str(value).lower() if isinstance(value, bool) else shorten(repr(value))


def t_score_range_check(case: Case, output: dict[str, Any]) -> Unmet | None:
    """Why the T-scores are not all within the case's range; scores that are no numbers are the contract's fault."""
    if case.t_score_range is None:
        return None
    low, high = case.t_score_range
    metadata = output.get("vs_metadata")
    entries = metadata.get("t_scores") if isinstance(metadata, dict) else None
    scores = [entry.get("score") for entry in entries if isinstance(entry, dict)] if isinstance(entries, list) else []
    # Scores of other kinds are told by the contract; here they would be told twice.
    numbers = [s for s in scores if isinstance(s, int | float) and not isinstance(s, bool)]
    kind = f"T-scores are not within {low:g} to {high:g}"
    if not numbers:
        return Unmet(kind, f"no T-scores, expected some within {low:g} to {high:g}")
    outside = [s for s in numbers if not low <= s <= high]
    if not outside:
        return None
    return Unmet(kind, f"{len(outside)} of {len(numbers)} T-scores outside {low:g} to {high:g}")
