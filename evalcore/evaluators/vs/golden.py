"""Read the golden set into plain params, with all faults by key path, and check its expectations."""

from __future__ import annotations

import hashlib
import math
import operator
import re
from collections.abc import Callable, Collection, Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec

from evalq.evalcore.contract.params import load_mapping
from evalq.evalcore.errors import ConfigError
from evalq.evalcore.evaluators.vs.params import Agent, Expectation, GoldenCase, Level, VsParams
from evalq.evalcore.naming import join, kind_of, shorten

_KEYS = ("id", "agent", "input", "expected")
_MOST_DIGITS = 300
"""With more digits, int() and floats reach their own limits."""
_COMPARISON = re.compile(r"\s*(>=|<=|==|!=|>|<)\s*(-?\d+(?:\.\d+)?)\s*")


def load_golden(path: str | Path, agents: Sequence[Agent], levels: Sequence[Level]) -> list[dict[str, Any]]:
    """The cases of a golden set as plain params, in the file's order.

    Raises ConfigError with every fault by key path, or if the file cannot be read.
    """
    data = load_mapping(path)
    reader = _GoldenReader({agent.id: agent.level for agent in agents})
    # Read to the end first, so that a user can correct all faults at once.
    cases = list(reader.read(data, {f"{level.key}_tests": level.name for level in levels}))
    if not cases and not reader.faults:
        reader.fault("test_cases", "has no case")
    if reader.faults:
        raise ConfigError("\n  ".join([f"{path}: the golden set is not valid", *reader.faults]))
    return cases


def load_inputs(path: str | Path, wanted: Collection[str]) -> dict[str, str]:
    """The input of each ``wanted`` case in a golden set that `load_golden` accepts: text unchanged, other data as JSON.

    Raises ConfigError for cases without an input.
    """
    texts, faults = {}, []
    for group, entries in load_mapping(path)["test_cases"].items():
        for index, entry in enumerate(entries or []):
            if entry["id"] not in wanted:
                continue
            # load_golden does not check this, because only a target needs it.
            value = entry.get("input")
            if value is None or value == "":
                faults.append(f"{join(join(join('test_cases', group), index), 'input')}: missing; the target needs it")
            texts[entry["id"]] = value if isinstance(value, str) else msgspec.json.encode(value).decode()
    if faults:
        raise ConfigError("\n  ".join([f"{path}: these cases have no input to send to the target", *faults]))
    return texts


class _GoldenReader:
    """Collects faults while reading, so that a user can correct them all at once."""

    def __init__(self, level_of: dict[str, str]) -> None:
        self.faults: list[str] = []
        self._level_of = level_of
        self._paths: dict[str, str] = {}

    def fault(self, path: str, reason: str) -> None:
        self.faults.append(f"{path}: {reason}")

    def read(self, data: dict[str, Any], groups: dict[str, str]) -> Iterator[dict[str, Any]]:
        """The valid cases below ``test_cases``; ``groups`` maps a group's key to its level."""
        self._check_keys(data, ("test_cases",), "")
        top = data.get("test_cases")
        if not isinstance(top, dict):
            return self.fault("test_cases", f"must be a mapping of groups ({', '.join(groups)}), found {kind_of(top)}")
        self._check_keys(top, tuple(groups), "test_cases")
        for group, level in groups.items():
            path = join("test_cases", group)
            entries = top.get(group) or []
            if not isinstance(entries, list):
                self.fault(path, f"must be a list of cases, found {kind_of(entries)}")
                continue
            for index, entry in enumerate(entries):
                case = self._case(entry, level, join(path, index))
                if case is not None:
                    yield case
        return None

    def _check_keys(self, data: dict[Any, Any], known: tuple[str, ...], path: str) -> None:
        for key in data:
            if key not in known:
                self.fault(join(path, str(key)), f"unknown key (known here: {', '.join(known)})")

    def _case(self, entry: Any, level: str, path: str) -> dict[str, Any] | None:
        if not isinstance(entry, dict):
            self.fault(path, f"must be a mapping, found {kind_of(entry)}")
            return None
        self._check_keys(entry, _KEYS, path)
        identity, agent = entry.get("id"), entry.get("agent")
        self._check_id(identity, path)
        registered_level = self._level_of.get(agent) if isinstance(agent, str) else None
        if registered_level is None:
            described = repr(shorten(agent)) if isinstance(agent, str) else kind_of(agent)
            self.fault(join(path, "agent"), f"{described} is not in the registry of agents")
        elif registered_level != level:
            self.fault(join(path, "agent"), f"{agent} is registered as {registered_level}, but this is a {level} case")
        expected = self._expected(entry.get("expected"), join(path, "expected"))
        return {"id": identity, "agent": agent, "input_sha256": self._digest(entry.get("input"), path), **expected}

    def _check_id(self, identity: Any, path: str) -> None:
        where = join(path, "id")
        if not isinstance(identity, str) or not identity:
            self.fault(where, "missing" if identity is None else f"must be text, found {kind_of(identity)}")
        elif identity in self._paths:
            self.fault(where, f"{shorten(identity)!r} is already the id of {self._paths[identity]}")
        else:
            self._paths[identity] = path

    def _digest(self, value: Any, path: str) -> str:
        try:
            return hashlib.sha256(msgspec.json.encode(value, order="deterministic")).hexdigest()
        except (TypeError, ValueError, RecursionError) as error:
            self.fault(join(path, "input"), f"not plain data: {error}")
            return ""

    def _expected(self, data: Any, path: str) -> dict[str, Any]:
        if data is None:
            return {}
        if not isinstance(data, dict):
            self.fault(path, f"must be a mapping, found {kind_of(data)}")
            return {}
        params: dict[str, Any] = {"expected": []}
        for key, value in data.items():
            where = join(path, str(key))
            if key == "vs_phases":
                params["phases"] = self._phases(value, where)
            elif key == "t_score_range":
                params["t_score_range"] = self._range(value, where)
            else:
                params["expected"].append({"key": str(key), **self._relation(value, where)})
        return params

    def _phases(self, value: Any, path: str) -> list[int]:
        if not isinstance(value, list) or not value or not all(type(phase) is int for phase in value):
            self.fault(path, "must be a list of at least one phase number")
            return []
        # Once each: a repeated phase would count twice in the share of phases.
        return sorted(set(value))

    def _range(self, value: Any, path: str) -> list[float]:
        if not isinstance(value, list) or len(value) != 2 or not all(_is_number(bound) for bound in value):
            self.fault(path, "must be two numbers, the lowest and the highest score allowed")
            return []
        if value[0] > value[1]:
            self.fault(path, f"the lowest score, {value[0]}, is above the highest, {value[1]}")
        return value

    def _relation(self, value: Any, path: str) -> dict[str, Any]:
        """``op`` and ``want`` of an expectation."""
        if isinstance(value, bool) or _is_number(value):
            return {"want": value}
        if not isinstance(value, str):
            self.fault(path, f"must be a comparison, a boolean, a number or text, found {kind_of(value)}")
            return {}
        # Text that begins like a comparison must be one; any other text is the text to find.
        if not value.lstrip().startswith((">", "<", "=", "!")):
            return {"want": value}
        match = _COMPARISON.fullmatch(value)
        if match is None:
            reason = "is not a comparison: write one of >= > <= < == != and a number"
            self.fault(path, f"{shorten(value)!r} {reason}")
            return {}
        number = match[2]
        if len(number) > _MOST_DIGITS:
            self.fault(path, f"{shorten(number)} is longer than {_MOST_DIGITS} digits")
            return {}
        # Whole numbers stay whole, so that messages show them as written.
        return {"op": match[1], "want": float(number) if "." in number else int(number)}


def _is_number(value: Any) -> bool:
    if isinstance(value, float):
        return math.isfinite(value)
    return isinstance(value, int) and not isinstance(value, bool)


# Checking expectations: look up a key, and compare its value

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
    """An expectation that an output does not meet: ``kind`` is the same for all outputs, ``issue`` for this one."""

    kind: str
    issue: str


class ExpectationCheck(msgspec.Struct, frozen=True):
    """An expectation ready for outputs: the key paths to follow, and how to take the value."""

    expectation: Expectation
    paths: tuple[tuple[str, ...], ...]
    take: str


def checks_of(case: GoldenCase, params: VsParams) -> tuple[ExpectationCheck, ...]:
    """The checks of a case, with the lookup table of ``params``."""
    table = {lookup.key: (lookup.paths, lookup.take) for lookup in params.lookups}
    checks = []
    for expectation in case.expected:
        # A key without a lookup is searched at the paths for all unlisted keys.
        paths, take = table.get(expectation.key, (params.unlisted, "value"))
        split = tuple(_split(path, expectation.key) for path in paths)
        checks.append(ExpectationCheck(expectation, split, take))
    return tuple(checks)


def _split(path: str, key: str) -> tuple[str, ...]:
    return tuple(key if part == "{key}" else part for part in path.split("."))


def unmet(check: ExpectationCheck, output: dict[str, Any]) -> Unmet | None:
    """Why ``output`` fails the check; None if it passes."""
    expected = check.expectation
    # Without the output's own value, so that outputs with the same failure are counted together.
    kind = f"{expected.key} is not {_describe_expected(expected)}"
    value = _look_up(check, output)
    if value is _ABSENT:
        paths = " and ".join(".".join(path) for path in check.paths)
        return Unmet(f"{expected.key} not found", f"{expected.key} not found (looked at {paths})")
    compared, problem = _to_comparable(value, expected.want, check.take)
    if problem:
        return Unmet(kind, f"{expected.key} is {problem}, expected {_describe_expected(expected)}")
    if _OPERATORS[expected.op](compared, expected.want):
        return None
    return Unmet(kind, f"{expected.key} is {_format_value(compared)}, expected {_describe_expected(expected)}")


def _look_up(check: ExpectationCheck, output: dict[str, Any]) -> Any:
    values = _values_at_paths(check, output)
    # SPEC, section 1: at any of its paths, because agents keep alternatives at different ones.
    if check.take == "non_empty":
        return any(values)
    return next(values, _ABSENT)


def _values_at_paths(check: ExpectationCheck, output: dict[str, Any]) -> Iterator[Any]:
    """The values at the check's paths, in order, without paths that do not exist."""
    for path in check.paths:
        value: Any = output
        for key in path:
            value = value.get(key, _ABSENT) if isinstance(value, dict) else _ABSENT
        if value is not _ABSENT:
            yield value


def _to_comparable(value: Any, want: bool | float | str, take: str) -> tuple[Any, str]:
    """``value`` in a form to compare with ``want``, or what is wrong with it."""
    if take == "length" and not isinstance(value, list):
        return value, kind_of(value)
    # Before numbers, because Python's True is the number 1.
    if isinstance(want, bool):
        return bool(value), ""
    if isinstance(want, str):
        return value, "" if isinstance(value, str) else kind_of(value)
    # For a list, an expected number is its length.
    if isinstance(value, list):
        return len(value), ""
    number = isinstance(value, int | float) and not isinstance(value, bool)
    return value, "" if number else kind_of(value)


def _describe_expected(expected: Expectation) -> str:
    return _format_value(expected.want) if expected.op == "==" else f"{expected.op} {expected.want}"


def _format_value(value: Any) -> str:
    if isinstance(value, str):
        return repr(shorten(value))
    return str(value).lower() if isinstance(value, bool) else shorten(repr(value))


def t_score_range_check(case: GoldenCase, output: dict[str, Any]) -> Unmet | None:
    """Why the T-scores are not all within the case's range. Scores of other types are contract faults."""
    if case.t_score_range is None:
        return None
    low, high = case.t_score_range
    metadata = output.get("vs_metadata")
    entries = metadata.get("t_scores") if isinstance(metadata, dict) else None
    scores = [entry.get("score") for entry in entries if isinstance(entry, dict)] if isinstance(entries, list) else []
    # The contract reports scores of other types.
    numbers = [s for s in scores if isinstance(s, int | float) and not isinstance(s, bool)]
    kind = f"T-scores are not within {low:g} to {high:g}"
    if not numbers:
        return Unmet(kind, f"no T-scores, expected some within {low:g} to {high:g}")
    outside = [s for s in numbers if not low <= s <= high]
    if not outside:
        return None
    return Unmet(kind, f"{len(outside)} of {len(numbers)} T-scores outside {low:g} to {high:g}")
