"""Variable parameters of a target: callers can set only the parameters and values that the target's entry lists.

    chat[model=large,temperature=0.2]

names the target ``chat`` with these values. The entry lists the possible values under ``variable``. A suite may come
from anyone; it can choose no host, program, key or text that is not in the targets file of the machine that calls.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from math import isfinite
from typing import Any

import msgspec

from evalq.evalcore.errors import UsageError
from evalq.evalcore.model.canonical import Json

_FULL = re.compile(r"(?P<base>[^\[\]]+)\[(?P<chosen>[^\[\]]*)\]")
PARAMETER = re.compile(r"[a-z][a-z0-9_]{0,39}")
_LABEL = re.compile(r"[A-Za-z0-9._:+-]{1,60}")
_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d{1,3})?")
_MOST = 64


class Choices(msgspec.Struct, frozen=True):
    """The possible values of one parameter: ``values`` by name, or any number from ``low`` to ``high``."""

    values: dict[str, Json] = {}
    low: float | None = None
    high: float | None = None

    @property
    def bounds(self) -> tuple[float, float] | None:
        """The bounds of a range of numbers; None for listed values."""
        return None if self.low is None or self.high is None else (self.low, self.high)

    def value(self, label: str) -> Json:
        """The value named ``label``. Raises ValueError if it is not among the possible ones."""
        if self.bounds is None:
            if label not in self.values:
                raise ValueError(f"is one of {', '.join(self.values)}")
            return self.values[label]
        (low, high), number = self.bounds, _number(label)
        if number is None or not low <= number <= high:
            raise ValueError(f"is a number from {low:g} to {high:g}")
        # 1.0 and 1 are the same name, so they must be the same value in the request.
        return int(number) if number == int(number) else number


def choices_of(given: Any) -> Choices:
    """The possible values from a targets file: a list of values, {name: value}, or {min, max}. Raises ValueError."""
    if isinstance(given, Mapping) and given.keys() == {"min", "max"}:
        low, high = given["min"], given["max"]
        if not all(isinstance(each, int | float) and not isinstance(each, bool) for each in (low, high)) or low > high:
            raise ValueError("min and max are numbers, min the smaller one")
        return Choices({}, low, high)
    pairs = list(given.items()) if isinstance(given, Mapping) else [(_text(each), each) for each in given]
    values = {label_of(name): value for name, value in pairs}
    if not 0 < len(values) <= _MOST or len(values) < len(pairs):
        raise ValueError(f"1 to {_MOST} values are needed, each of another name")
    return Choices(values)


def chosen_values(base: str, declared: Mapping[str, Choices], chosen: Mapping[str, str]) -> dict[str, Json]:
    """{parameter: value} for the labels ``chosen`` of target ``base``. Raises UsageError for others than declared."""
    values = {}
    for parameter, label in chosen.items():
        if parameter not in declared:
            known = ", ".join(declared) or "nothing"
            raise UsageError(f"target {base}: callers cannot override {parameter} (variable there: {known})")
        try:
            values[parameter] = declared[parameter].value(label)
        except ValueError as error:
            raise UsageError(f"target {base}: {parameter} {error}, and {label} is not") from None
    return values


def split_name(name: str) -> tuple[str, dict[str, str]]:
    """(target, {parameter: label}) from a target's name. Raises UsageError for a malformed name."""
    if "[" not in name:
        return name, {}
    found = _FULL.fullmatch(name)
    pairs = [part.partition("=") for part in found["chosen"].split(",")] if found else []
    chosen = {key.strip(): _canonical(value.strip()) for key, _, value in pairs}
    if found is None or len(chosen) < len(pairs) or not all(map(PARAMETER.fullmatch, chosen)):
        raise UsageError(f"target {name!r}: choices are written as NAME[parameter=value,...], each once")
    bad = [value for value in chosen.values() if not _LABEL.fullmatch(value)]
    if bad:
        raise UsageError(f"target {name!r}: {bad[0]!r} is not the name of a value: use letters, digits and .:_+-")
    return found["base"], chosen


def named(base: str, chosen: Mapping[str, str]) -> str:
    """The canonical name of target ``base`` with these labels."""
    pairs = ",".join(f"{key}={_canonical(chosen[key])}" for key in sorted(chosen))
    return f"{base}[{pairs}]" if pairs else base


def canonical_name(name: str) -> str:
    """The canonical form of a target's name. Raises UsageError."""
    return named(*split_name(name))


def _canonical(label: str) -> str:
    """The canonical label: 0.20, 2e-1 and 0.2 are one number, so they get one label."""
    number = _number(label)
    return label if number is None else _text(number)


def _number(label: str) -> float | None:
    number = float(label) if _NUMBER.fullmatch(label) else None
    return number if number is not None and isfinite(number) else None


def _text(value: Any) -> str:
    """The name of a value in a list."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float) and isfinite(value):
        return str(int(value)) if value == int(value) and abs(value) < 1 << 53 else repr(float(value))
    return value if isinstance(value, str) else ""


def label_of(name: Any) -> str:
    """The label of a value: the value itself if it is a number or a short word. Raises ValueError."""
    label = _canonical(_text(name))
    if not _LABEL.fullmatch(label):
        raise ValueError("name its values: {name: value}, each name of up to 60 letters, digits and .:_+-")
    return label


def labels(declared: Mapping[str, Choices]) -> Iterator[tuple[str, str, Json]]:
    """(parameter, label, value) of all listed values, and of the bounds of ranges."""
    for parameter, choices in declared.items():
        for label, value in choices.values.items():
            yield parameter, label, value
        for bound in (choices.low, choices.high):
            if bound is not None:
                yield parameter, _text(bound), choices.value(_text(bound))
