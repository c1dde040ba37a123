"""Turn written cases into params: merge layers, fill placeholders, validate checks, and read labels."""

from __future__ import annotations

import hashlib
from array import array
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, get_args

import msgspec
from pydantic import ValidationError

from evalq.evalcore.errors import ConfigError
from evalq.evalcore.evaluators.checks.case_files import (
    CaseFileFaults,
    Location,
    RecordedCase,
    SizeBudget,
    UnknownPlaceholder,
    Verbatim,
    WrittenCase,
    fill,
    read_cases,
    with_recorded,
)
from evalq.evalcore.evaluators.checks.check import COMPOSED, as_mapping, compile_check, compiled, is_quick
from evalq.evalcore.evaluators.checks.params import NO_WEIGHT, Diversity, Threshold, weightless
from evalq.evalcore.evaluators.checks.vocabulary.declaring import BadCheck
from evalq.evalcore.model.calls import SimulatedUser
from evalq.evalcore.model.canonical import canonical_json
from evalq.evalcore.naming import kind_of, shorten

_METHODS = get_args(Diversity.model_fields["by"].annotation)
_METHODS_LISTED = f"{', '.join(_METHODS[:-1])} or {_METHODS[-1]}"
_OPTIONS = {name.replace("_", "-"): name for name in Diversity.model_fields}


def _layered_diversity(
    layers: Sequence[tuple[Mapping[str, Any], Location]], faults: CaseFileFaults
) -> dict[str, Any] | None:
    """The options of all layers, merged by name, as in params; None if no layer has any."""
    options: dict[str, Any] = {}
    for layer, under in layers:
        written = layer.get("diversity")
        # Most files need only the method, as in `diversity: text`.
        written = {"by": written} if isinstance(written, str) else written
        if written is None:
            continue
        location = under.at("diversity")
        if not isinstance(written, dict):
            faults.add(location, f"must be {_METHODS_LISTED}, or a mapping with `by`, found {kind_of(written)}")
            continue
        for name, value in written.items():
            if wrong := _fault(str(name), value):
                faults.add(location.at(str(name)), wrong)
            else:
                options[_OPTIONS[name]] = value
    return options or None


def _fault(name: str, value: Any) -> str:
    """Why the option ``name`` of a file is not valid; empty if it is."""
    if name not in _OPTIONS:
        return f"unknown key (known here: {', '.join(_OPTIONS)})"
    if name == "by":
        return "" if value in _METHODS else f"must be {_METHODS_LISTED}"
    if name == "embedder":
        return "" if isinstance(value, str) and value else "must be the name of a target"
    if name == "judge":
        return (
            ""
            if isinstance(value, bool)
            else "must be true or false; name the judge with --judge or the case's `judge`"
        )
    # Booleans first: YAML's yes and no are whole numbers to Python, and 1 is a valid threshold.
    if isinstance(value, bool) or not isinstance(value, int | float):
        return "must be a number between 0 and 1"
    try:
        Diversity.model_validate({_OPTIONS[name]: value})
    except ValidationError as error:
        return str(error.errors()[0]["msg"])
    return ""


# Expanding cases: merge layers, fill placeholders, validate checks.

_LONGEST_ID = 500
_MOST_TAGS = 100
_PLAIN_KEYS = frozenset(("id", "input", "checks", "tags"))
_LINE_BITS = 40
_VALUES = 8
"""What the list of tags counts beside the input."""
_ROLES = ("system", "developer", "user", "assistant", "tool", "function")


class ExpandedCase(NamedTuple):
    """An expanded case: its ``params`` as plain data, and its ``input`` or None.

    ``judge`` is the target that judges if neither a check nor the command names one. ``turns`` are what the user says
    after each answer, ``tool_results`` the answers to calls of tools. ``user`` is simulated in place of turns.
    ``plain``: its checks are quick, each of one key, and it has nothing else but tags.
    """

    params: dict[str, Any]
    input: Any
    location: Location
    judge: str = ""
    turns: tuple[str, ...] = ()
    tool_results: tuple[dict[str, Any], ...] = ()
    plain: bool = False
    user: SimulatedUser | None = None


def load_cases(paths: Sequence[str | Path], recorded: Mapping[str, RecordedCase] | None = None) -> list[ExpandedCase]:
    """The cases of all files, in their order; those of the ``recorded`` outputs if no file has cases.

    A case takes from ``recorded`` what it does not have itself.

    Raises ConfigError, with all faults by file, line and key path, or if a file cannot be read.
    """
    loaded: list[ExpandedCase] = []
    read_all(paths, recorded, loaded.append)
    return loaded


def read_all(
    paths: Sequence[str | Path], recorded: Mapping[str, RecordedCase] | None, take: Callable[[ExpandedCase], object]
) -> Mapping[str, int]:
    """Give each case to ``take``, as `load_cases` reads them; returns their ids with their numbers.

    Raises ConfigError as `load_cases` does.
    """
    faults = CaseFileFaults()
    reader = _Reader(faults)
    # Read all files before raising, so that a user can correct all faults at once.
    every = (written for path in paths for written in read_cases(path, faults, recorded))
    written_cases = every if recorded is None else with_recorded(every if paths else (), recorded, alone=not paths)
    for written in written_cases:
        case = reader.expand(written)
        if case is not None and not faults.entries:
            take(case)
    faults.raise_any()
    if not reader.ids:
        raise ConfigError(f"no case in {', '.join(map(str, paths))}")
    return reader.ids


class _Reader:
    def __init__(self, faults: CaseFileFaults) -> None:
        self._faults = faults
        self.ids: dict[str, int] = {}
        """The number of each case, in the order of the files."""
        self._files: list[str] = []
        self._lines = array("Q")
        self._elsewhere: dict[int, Location] = {}
        self._invalid: dict[bytes, BadCheck] = {}
        self._current: WrittenCase | None = None
        self._budget = SizeBudget()

    def _fault(self, location: Location, reason: str) -> None:
        """Note a fault at ``location``; if that is in a layer below the case, name the case."""
        case = self._current
        inside = case is None or (
            location.file == case.location.file and location.keys[: len(case.location.keys)] == case.location.keys
        )
        context = "" if inside or case is None else f" (in the case {shorten(str(case.case.get('id')))!r})"
        self._faults.add(location, f"{reason}{context}")

    def expand(self, written: WrittenCase) -> ExpandedCase | None:
        """One case; None if it has faults."""
        return self._expand_plain(written) or self._expand(written)

    def _expand_plain(self, written: WrittenCase) -> ExpandedCase | None:
        """A valid case with nothing to merge or to fill in: as `_expand` in less time. None for others."""
        case = written.case
        if written.layers or not _PLAIN_KEYS.issuperset(case):
            return None
        identity, text, checks, tags = case.get("id"), case.get("input"), case.get("checks"), case.get("tags") or []
        if type(identity) is not str or not 0 < len(identity) <= _LONGEST_ID or identity in self.ids:
            return None
        if type(text) is not str or "{{" in text or type(checks) is not list or not checks:
            return None
        size = _VALUES + len(text)
        for check in checks:
            if type(check) is not dict or len(check) != 1:
                return None
            ((name, value),) = check.items()
            if not is_quick(name, value):
                return None
            if type(value) is str:
                if "{{" in value:
                    return None
                size += len(value)
        if tags:
            if type(tags) is not list or len(tags) > _MOST_TAGS:
                return None
            for tag in tags:
                if type(tag) is not str or not tag:
                    return None
                size += len(tag)
            if len(tags) > 1 and len(set(tags)) < len(tags):
                return None
        self._budget.count_value(size + 16 * len(checks) + 8 * len(tags))
        self._note(identity, written.location)
        params: dict[str, Any] = {
            "id": identity,
            "input_sha256": _input_digest(text),
            "checks": checks,
            "tags": list(tags),
            "thresholds": {"score": None, "rates": []},
            "diversity": None,
        }
        return ExpandedCase(params, text, written.location, plain=True)

    def _expand(self, written: WrittenCase) -> ExpandedCase | None:
        location, before, self._current = written.location, len(self._faults.entries), written
        identity = self._id(written)
        layers = [*written.layers, (written.case, location)]
        values = self._values(layers, identity, location)
        written_input, under = _highest(layers, "input")
        case_input = self._fill(written_input, values, under, "input")
        self._check_input(case_input, under)
        turns, results = self._turns(layers, values), self._tool_results(layers, values)
        user = self._user(layers, values, location)
        asked = {"input": case_input, "turns": turns, "tool_results": results} if turns or results else case_input
        if user is not None:
            if turns:
                reason = "give `user` (a simulated user) or `turns` (what the user says), not both"
                self._fault(_highest(layers, "turns")[1].at("turns"), reason)
            asked = {"input": case_input, "tool_results": results, "user": msgspec.to_builtins(user)}
        params: dict[str, Any] = {
            "id": identity,
            # Only the digest: params go to every worker and into the report, and inputs may be long (decision 19).
            "input_sha256": _input_digest(asked),
            "checks": self._checks(layers, values, location),
            "tags": self._tags(layers),
            **self._cluster(layers),
            "thresholds": self._thresholds(layers),
            "diversity": _layered_diversity(layers, self._faults),
        }
        weight, under = _highest(layers, "weight")
        if weight is not None:
            params["weight"] = self._weight(weight, under.at("weight"))
        judge = self._judge(*_highest(layers, "judge"))
        if len(self._faults.entries) > before:
            return None
        return ExpandedCase(params, case_input, location, judge, tuple(turns), tuple(results), user=user)

    def _note(self, identity: str, location: Location) -> None:
        """Remember where the next case is, in few bytes if that is a line."""
        number = self.ids[identity] = len(self.ids)
        if location.keys or location.line is None:
            self._elsewhere[number] = location
            self._lines.append(0)
            return
        if not self._files or self._files[-1] != location.file:
            self._files.append(location.file)
        self._lines.append(len(self._files) - 1 << _LINE_BITS | location.line)

    def _location_of(self, number: int) -> Location:
        line = self._lines[number]
        return self._elsewhere.get(number) or Location(
            self._files[line >> _LINE_BITS], (), line & (1 << _LINE_BITS) - 1
        )

    def _id(self, written: WrittenCase) -> str:
        identity = written.case.get("id")
        if isinstance(identity, str) and 0 < len(identity) <= _LONGEST_ID and identity not in self.ids:
            self._note(identity, written.location)
            return identity
        location = written.location.at("id")
        if not isinstance(identity, str) or not identity:
            reason = (
                "missing: every case needs an id" if identity is None else f"must be text, found {kind_of(identity)}"
            )
            self._faults.add(location, reason)
            return ""
        if len(identity) > _LONGEST_ID:
            self._faults.add(location, f"longer than {_LONGEST_ID} characters")
        else:
            first = self._location_of(self.ids[identity])
            first_location = f"{first.file}:{first.line}" if first.line else f"{first.file}, {first.path}"
            self._faults.add(location, f"{shorten(identity)!r} is already the id of {first_location}")
        return identity

    def _values(
        self, layers: Sequence[tuple[Mapping[str, Any], Location]], identity: str, location: Location
    ) -> dict[str, Any]:
        """The values that placeholders can name: the variables, `id` and `expected`."""
        values: dict[str, Any] = {}
        for layer, at in layers:
            variables = layer.get("vars") or {}
            if isinstance(variables, dict):
                values.update({str(name): value for name, value in variables.items()})
            else:
                self._faults.add(at.at("vars"), f"must be a mapping, found {kind_of(variables)}")
        for name in ("id", "expected"):
            if name in values:
                self._faults.add(location.at("vars", name), f"{name!r} cannot be a variable: it is a key of the case")
        # After the check above, so that a variable with this name is a fault and never used.
        values["id"] = identity
        expected, at = _highest(layers, "expected")
        if expected is not None:
            values["expected"] = self._fill(expected, values, at, "expected")
        return values

    def _fill(self, value: Any, values: Mapping[str, Any], under: Location, *keys: str | int) -> Any:
        if isinstance(value, Verbatim):
            return self._budget.count(value.value)
        # Locations are made only for errors: making one takes as long as filling most values.
        try:
            return fill(value, values, self._budget)
        except UnknownPlaceholder as error:
            self._fault(under.at(*keys), str(error))
        except RecursionError:
            self._fault(under.at(*keys), "nested too deeply")
        return value

    def _check_input(self, case_input: Any, under: Location) -> None:
        if case_input is None or isinstance(case_input, str | dict):
            return
        location = under.at("input")
        if not isinstance(case_input, list) or not case_input:
            self._faults.add(
                location, f"must be text, a list of chat messages or a mapping, found {kind_of(case_input)}"
            )
            return
        for index, message in enumerate(case_input):
            role = message.get("role") if isinstance(message, dict) else None
            if role not in _ROLES or "content" not in message:
                reason = f"must be a message {{role, content}}, with a role of {', '.join(_ROLES)}"
                self._faults.add(location.at(index), reason)

    def _turns(self, layers: Sequence[tuple[Mapping[str, Any], Location]], values: Mapping[str, Any]) -> list[str]:
        """What the user says after each answer."""
        written, under = _highest(layers, "turns")
        if written is None:
            return []
        filled = self._fill(written, values, under, "turns")
        location = under.at("turns")
        if not isinstance(filled, list):
            self._faults.add(location, f"must be a list of texts that the user says, found {kind_of(filled)}")
            return []
        for index, said in enumerate(filled):
            if not isinstance(said, str) or not said.strip():
                what = "an empty text" if isinstance(said, str) else kind_of(said)
                self._faults.add(location.at(index), f"must be a text that the user says, found {what}")
        return filled

    def _user(
        self, layers: Sequence[tuple[Mapping[str, Any], Location]], values: Mapping[str, Any], location: Location
    ) -> SimulatedUser | None:
        """The simulated user, merged by name over the layers; None if no layer has one."""
        merged: dict[str, Any] = {}
        at = location
        for layer, under in layers:
            written = layer.get("user")
            if written is None:
                continue
            at = under.at("user")
            filled = self._fill(written, values, under, "user")
            # Most cases have only the goal.
            filled = {"goal": filled} if isinstance(filled, str) else filled
            if not isinstance(filled, dict):
                what = "must be the goal as a text, or a mapping with persona, goal, stop and max_turns"
                self._fault(at, f"{what}, found {kind_of(filled)}")
                return None
            for name, value in filled.items():
                if fault := _fault_of_user(name, value):
                    self._fault(at.at(name), fault)
                else:
                    merged[name] = value
        if at == location:
            return None
        if not (merged.get("persona") or merged.get("goal")):
            self._fault(at, "must say whom the simulated user plays: give it a goal, or a persona")
        return SimulatedUser(**merged)

    def _tool_results(
        self, layers: Sequence[tuple[Mapping[str, Any], Location]], values: Mapping[str, Any]
    ) -> list[dict[str, Any]]:
        """{name, arguments, result or error} for calls of tools; written so, or as {name: result}."""
        written, under = _highest(layers, "tool_results")
        if written is None:
            return []
        filled = self._fill(written, values, under, "tool_results")
        location = under.at("tool_results")
        if isinstance(filled, dict):
            return [{"name": str(name), "result": result} for name, result in filled.items()]
        if not isinstance(filled, list):
            what = f"must be {{tool: result}} or a list of {{name, arguments, result}}, found {kind_of(filled)}"
            self._faults.add(location, what)
            return []
        for index, each in enumerate(filled):
            if fault := _fault_of_result(each):
                self._faults.add(location.at(index), fault)
        return filled

    def _checks(
        self, layers: Sequence[tuple[Mapping[str, Any], Location]], values: Mapping[str, Any], location: Location
    ) -> list[dict[str, Any]]:
        expected = values.get("expected", msgspec.UNSET)
        checks = []
        for layer, under in layers:
            listed = layer.get("checks")
            if listed is None:
                continue
            # Checks and tags of all layers add up; vars, thresholds and diversity merge by name; all else is replaced.
            if not isinstance(listed, list):
                self._faults.add(under.at("checks"), f"must be a list of checks, found {kind_of(listed)}")
                continue
            for index, written in enumerate(listed):
                before = len(self._faults.entries)
                filled = self._fill(written, values, under, "checks", index)
                # Not after a fault: a placeholder that could not be filled would cause a second one.
                check = self._check(filled, expected, under, index) if len(self._faults.entries) == before else None
                if check is not None:
                    checks.append(check)
        # Only if no layer has the key: an empty list does not ask for equality, and is a fault below.
        if not checks and not any("checks" in layer for layer, _ in layers) and expected is not msgspec.UNSET:
            checks = [{"equals": expected}]
        if not checks and not self._faults.entries:
            self._faults.add(
                location, "nothing is checked: give the case `checks`, or `expected` to check for equality"
            )
        if checks and weightless(checks):
            self._faults.add(location.at("checks"), NO_WEIGHT)
        return checks

    def _check(self, written: Any, expected: Any, under: Location, index: int) -> dict[str, Any] | None:
        try:
            check = _check_as_mapping(written, expected)
            self._compile(check)
        except BadCheck as error:
            location = under.at("checks", index)
            self._fault(location.at(error.path) if error.path else location, str(error))
            return None
        return check

    def _compile(self, check: dict[str, Any]) -> None:
        """Validate a check; once, since templates give many cases the same check. Raises BadCheck."""
        known = self._invalid.get(canonical_json(check)) if self._invalid else None
        if known is not None:
            raise known
        try:
            compiled(check)
        except BadCheck:
            try:
                compile_check(check)  # for the fault that comes first in the file
            except BadCheck as error:
                self._invalid[canonical_json(check)] = error
                raise
            raise

    def _tags(self, layers: Sequence[tuple[Mapping[str, Any], Location]]) -> list[str]:
        tags: dict[str, None] = {}
        for layer, location in layers:
            added = layer.get("tags") or []
            if not isinstance(added, list) or not all(isinstance(tag, str) and tag for tag in added):
                self._faults.add(location.at("tags"), "must be a list of texts")
                continue
            # Counted, since a few lines of defaults can give their tags to a million cases.
            tags |= dict.fromkeys(self._budget.count(added))
            if len(tags) > _MOST_TAGS:
                self._faults.add(location.at("tags"), f"more than {_MOST_TAGS} tags")
        return list(tags)

    def _cluster(self, layers: Sequence[tuple[Mapping[str, Any], Location]]) -> dict[str, str]:
        """The session of a trace; nothing for other cases."""
        cluster, _ = _highest(layers, "cluster")
        return {"cluster": str(cluster)} if cluster else {}

    def _weight(self, weight: Any, location: Location) -> float:
        if (
            isinstance(weight, bool)
            or not isinstance(weight, int | float)
            or not (weight == 0 or 1e-9 <= weight <= 1e9)
        ):
            self._faults.add(location, "must be 0, or a number from 1e-9 to 1e9")
            return 1.0
        return float(weight)

    def _judge(self, name: Any, under: Location) -> str:
        if name is not None and (not isinstance(name, str) or not name):
            self._faults.add(under.at("judge"), f"must be the name of a target, found {kind_of(name)}")
        return name if isinstance(name, str) else ""

    def _thresholds(self, layers: Sequence[tuple[Mapping[str, Any], Location]]) -> dict[str, Any]:
        rates: dict[str, float] = {}
        score: float | None = None
        for layer, under in layers:
            thresholds = layer.get("thresholds") or {}
            if thresholds == {}:
                continue
            location = under.at("thresholds")
            if not isinstance(thresholds, dict):
                self._faults.add(location, f"must be a mapping such as {{pass-rate: 0.9}}, found {kind_of(thresholds)}")
                continue
            for name, least in thresholds.items():
                at = location.at(str(name))
                # To Python `true` is 1, the strictest threshold, which nobody meant.
                if isinstance(least, bool) or not isinstance(least, int | float) or not 0 <= least <= 1:
                    self._faults.add(at, "must be a number from 0 to 1")
                elif name == "score":
                    score = float(least)
                else:
                    self._rate(rates, str(name), float(least), at)
        return {"score": score, "rates": [{"number": name, "least": least} for name, least in rates.items()]}

    def _rate(self, rates: dict[str, float], name: str, least: float, location: Location) -> None:
        if least == 0.0:
            rates.pop(name, None)  # 0 lifts the threshold of a layer below
            return
        try:
            Threshold(number=name, least=least)
        except ValueError:
            self._faults.add(location, "unknown key (known here: score, pass-rate, pass@K, pass^K)")
            return
        rates[name] = least


def _check_as_mapping(written: Any, expected: Any) -> dict[str, Any]:
    """A check, and each check in it, as a mapping. Raises BadCheck."""
    check = as_mapping(written, expected)
    for name, value in check.items():
        if str(name).removeprefix("not-") in COMPOSED and isinstance(value, list):
            parts = []
            for index, part in enumerate(value):
                try:
                    # A bare name among the parts means the same `expected`.
                    parts.append(_check_as_mapping(part, expected))
                except BadCheck as error:
                    path = f"{name}[{index}]"
                    raise BadCheck(str(error), f"{path}.{error.path}" if error.path else path) from None
            check[name] = parts
    return check


def _highest(layers: Sequence[tuple[Mapping[str, Any], Location]], key: str) -> tuple[Any, Location]:
    """The value of ``key`` in the highest layer that has it, and the location of that layer."""
    for layer, location in reversed(layers):
        # Null leaves the key to the layer below.
        if layer.get(key) is not None:
            return layer[key], location
    return None, layers[-1][1]


_RESULT_KEYS = ("name", "arguments", "result", "error")


def _fault_of_result(written: Any) -> str:
    """What is wrong with an entry of `tool_results`; empty if nothing is."""
    if not isinstance(written, dict):
        return f"must be {{name, arguments, result}}, found {kind_of(written)}"
    if unknown := [key for key in written if key not in _RESULT_KEYS]:
        return f"{shorten(str(unknown[0]))}: unknown key (known here: {', '.join(_RESULT_KEYS)})"
    if not isinstance(written.get("name"), str) or not written["name"]:
        return "name: must be the name of a tool"
    if not isinstance(written.get("arguments", {}), dict):
        return f"arguments: must be a mapping, found {kind_of(written['arguments'])}"
    if ("result" in written) == ("error" in written):
        return "must have a result or an error, and not both"
    return ""


_USER_KEYS = SimulatedUser.__struct_fields__
_MOST_TURNS = 1000


def _fault_of_user(name: str, value: Any) -> str:
    """What is wrong with a key of `user`; empty if nothing is."""
    if name not in _USER_KEYS:
        return f"unknown key (known here: {', '.join(_USER_KEYS)})"
    if name == "max_turns":
        whole = type(value) is int and 1 <= value <= _MOST_TURNS
        return "" if whole else f"must be a whole number from 1 to {_MOST_TURNS}, how often the user speaks at most"
    if not isinstance(value, str) or not value.strip():
        return f"must be a text, found {'an empty one' if isinstance(value, str) else kind_of(value)}"
    return ""


def _input_digest(case_input: Any) -> str:
    """The digest of a case's input; empty if it has none."""
    return (
        "" if case_input is None else hashlib.sha256(msgspec.json.encode(case_input, order="deterministic")).hexdigest()
    )
