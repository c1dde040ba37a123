"""From cases as they are written to plain ones: layers laid over one another, placeholders filled, checks held to their
grammar.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from evalq.evalcore.errors import ConfigError
from evalq.evalcore.evaluators.checks.compiling import COMPOSED, compile_check, compiled, spelled
from evalq.evalcore.evaluators.checks.diversity.options import layered_diversity
from evalq.evalcore.evaluators.checks.faults import Faults, Place
from evalq.evalcore.evaluators.checks.filling import Room, UnknownPlaceholder, fill
from evalq.evalcore.evaluators.checks.params import NO_WEIGHT, Threshold, weightless
from evalq.evalcore.evaluators.checks.reading import WrittenCase, read_cases
from evalq.evalcore.evaluators.checks.vocabulary.declaring import BadCheck
from evalq.evalcore.model.canonical import canonical_json
from evalq.evalcore.naming import kind_of, shorten

__all__ = ["ExpandedCase", "load_cases"]

_LONGEST_ID = 500
_MOST_TAGS = 100
_ROLES = ("system", "developer", "user", "assistant", "tool", "function")


class ExpandedCase(NamedTuple):
    """A case, expanded: its ``params`` as plain data, and its ``input``, None where it has none.

    ``judge`` is the target that judges where neither a check nor the command names one.
    """

    params: dict[str, Any]
    input: Any
    place: Place
    judge: str = ""


def load_cases(paths: Iterable[str | Path]) -> list[ExpandedCase]:
    """The cases of all files, in their order.

    Raises ConfigError that lists what is wrong by file, line and key path, or says that a file cannot be read.
    """
    faults = Faults()
    reader = _Reader(faults)
    # Read to the end before anything is raised, so that a user can correct all faults at once.
    loaded = [case for path in paths for written in read_cases(path, faults) if (case := reader.case(written))]
    faults.raise_any()
    if not loaded:
        raise ConfigError(f"no case in {', '.join(map(str, paths))}")
    return loaded


class _Reader:
    def __init__(self, faults: Faults) -> None:
        self._faults = faults
        self._first: dict[str, Place] = {}
        self._refused: dict[bytes, BadCheck] = {}
        self._now: WrittenCase | None = None
        self._room = Room()

    def _fault(self, place: Place, reason: str) -> None:
        """Note what is wrong at ``place``; where that is in a layer under the case, the case is named."""
        now = self._now
        own = now is None or (place.file == now.place.file and place.keys[: len(now.place.keys)] == now.place.keys)
        told = "" if own or now is None else f" (in the case {shorten(str(now.case.get('id')))!r})"
        self._faults.add(place, f"{reason}{told}")

    def case(self, written: WrittenCase) -> ExpandedCase | None:
        """One case; None where its faults leave nothing of it."""
        place, before, self._now = written.place, len(self._faults.found), written
        identity = self._id(written)
        layers = [*written.layers, (written.case, place)]
        values = self._values(layers, identity, place)
        given, at = _topmost(layers, "input")
        asked = self._filled(given, values, at, "input")
        self._check_input(asked, at)
        params: dict[str, Any] = {
            "id": identity,
            # Its digest alone: params go to every worker and stand in the report, inputs may be long (decision 19).
            "input_sha256": _digest(asked),
            "checks": self._checks(layers, values, place),
            "tags": self._tags(layers),
            "thresholds": self._thresholds(layers),
            "diversity": layered_diversity(layers, self._faults),
        }
        weight, at = _topmost(layers, "weight")
        if weight is not None:
            params["weight"] = self._weight(weight, at.at("weight"))
        judge = self._judge(*_topmost(layers, "judge"))
        return ExpandedCase(params, asked, place, judge) if len(self._faults.found) == before else None

    def _id(self, written: WrittenCase) -> str:
        identity = written.case.get("id")
        if isinstance(identity, str) and 0 < len(identity) <= _LONGEST_ID and identity not in self._first:
            self._first[identity] = written.place
            return identity
        place = written.place.at("id")
        if not isinstance(identity, str) or not identity:
            what = (
                "missing: a case is known by its id" if identity is None else f"must be text, found {kind_of(identity)}"
            )
            self._faults.add(place, what)
            return ""
        if len(identity) > _LONGEST_ID:
            self._faults.add(place, f"longer than {_LONGEST_ID} characters")
        else:
            first = self._first[identity]
            where = f"{first.file}:{first.line}" if first.line else f"{first.file}, {first.path}"
            self._faults.add(place, f"{shorten(identity)!r} is already the id of {where}")
        return identity

    def _values(self, layers: Sequence[tuple[Mapping[str, Any], Place]], identity: str, place: Place) -> dict[str, Any]:
        """What placeholders may name: the variables, `id` and `expected`."""
        values: dict[str, Any] = {}
        for layer, at in layers:
            given = layer.get("vars") or {}
            if isinstance(given, dict):
                values.update({str(name): value for name, value in given.items()})
            else:
                self._faults.add(at.at("vars"), f"must be a mapping, found {kind_of(given)}")
        for name in ("id", "expected"):
            if name in values:
                self._faults.add(place.at("vars", name), f"{name!r} is a placeholder of its own, not a variable")
        # After the check above, so that a variable of that name is told as a fault and never used.
        values["id"] = identity
        expected, at = _topmost(layers, "expected")
        if expected is not None:
            values["expected"] = self._filled(expected, values, at, "expected")
        return values

    def _filled(self, value: Any, values: Mapping[str, Any], under: Place, *keys: str | int) -> Any:
        # Where it is, only where that is told: making places takes as long as filling most values.
        try:
            return fill(value, values, self._room)
        except UnknownPlaceholder as error:
            self._fault(under.at(*keys), str(error))
        except RecursionError:
            self._fault(under.at(*keys), "nested too deeply")
        return value

    def _check_input(self, asked: Any, under: Place) -> None:
        if asked is None or isinstance(asked, str | dict):
            return
        place = under.at("input")
        if not isinstance(asked, list) or not asked:
            self._faults.add(place, f"must be text, a list of chat messages or a mapping, found {kind_of(asked)}")
            return
        for index, message in enumerate(asked):
            role = message.get("role") if isinstance(message, dict) else None
            if role not in _ROLES or "content" not in message:
                wanted = f"a message {{role, content}} is wanted there, with a role of {', '.join(_ROLES)}"
                self._faults.add(place.at(index), wanted)

    def _checks(
        self, layers: Sequence[tuple[Mapping[str, Any], Place]], values: Mapping[str, Any], place: Place
    ) -> list[dict[str, Any]]:
        expected = values.get("expected", msgspec.UNSET)
        found = []
        for layer, under in layers:
            listed = layer.get("checks")
            if listed is None:
                continue
            # Checks and tags of all layers add up; vars, thresholds and diversity merge by name, all else is replaced.
            if not isinstance(listed, list):
                self._faults.add(under.at("checks"), f"must be a list of checks, found {kind_of(listed)}")
                continue
            for index, written in enumerate(listed):
                before = len(self._faults.found)
                filled = self._filled(written, values, under, "checks", index)
                # Only where all of it could be filled: a placeholder that is left would be told as a second fault.
                check = self._check(filled, expected, under, index) if len(self._faults.found) == before else None
                if check is not None:
                    found.append(check)
        # Only where nobody wrote any: an empty list is no wish for equality, and is told as a fault below.
        if not found and not any("checks" in layer for layer, _ in layers) and expected is not msgspec.UNSET:
            found = [{"equals": expected}]
        if not found and not self._faults.found:
            self._faults.add(place, "nothing is checked: the case needs `checks`, or `expected` for one of equality")
        if found and weightless(found):
            self._faults.add(place.at("checks"), NO_WEIGHT)
        return found

    def _check(self, written: Any, expected: Any, under: Place, index: int) -> dict[str, Any] | None:
        try:
            check = _spelled(written, expected)
            self._compile(check)
        except BadCheck as error:
            place = under.at("checks", index)
            self._fault(place.at(error.path) if error.path else place, str(error))
            return None
        return check

    def _compile(self, check: dict[str, Any]) -> None:
        """Hold a check to its grammar; once, since templates give many cases the same."""
        known = self._refused.get(canonical_json(check)) if self._refused else None
        if known is not None:
            raise known
        try:
            compiled(check)
        except BadCheck:
            try:
                compile_check(check)  # what is wrong, in the order in which it is written
            except BadCheck as error:
                self._refused[canonical_json(check)] = error
                raise
            raise

    def _tags(self, layers: Sequence[tuple[Mapping[str, Any], Place]]) -> list[str]:
        tags: dict[str, None] = {}
        for layer, place in layers:
            given = layer.get("tags") or []
            if not isinstance(given, list) or not all(isinstance(tag, str) and tag for tag in given):
                self._faults.add(place.at("tags"), "must be a list of texts")
                continue
            # Counted: a few lines of defaults may give their tags to a million cases.
            tags |= dict.fromkeys(self._room.take(given))
            if len(tags) > _MOST_TAGS:
                self._faults.add(place.at("tags"), f"more than {_MOST_TAGS} tags")
        return list(tags)

    def _weight(self, weight: Any, place: Place) -> float:
        if (
            isinstance(weight, bool)
            or not isinstance(weight, int | float)
            or not (weight == 0 or 1e-9 <= weight <= 1e9)
        ):
            self._faults.add(place, "must be 0, or a number from 1e-9 to 1e9")
            return 1.0
        return float(weight)

    def _judge(self, name: Any, under: Place) -> str:
        if name is not None and (not isinstance(name, str) or not name):
            self._faults.add(under.at("judge"), f"must be the name of a target, found {kind_of(name)}")
        return name if isinstance(name, str) else ""

    def _thresholds(self, layers: Sequence[tuple[Mapping[str, Any], Place]]) -> dict[str, Any]:
        rates: dict[str, float] = {}
        score: float | None = None
        for layer, under in layers:
            given = layer.get("thresholds") or {}
            if given == {}:
                continue
            place = under.at("thresholds")
            if not isinstance(given, dict):
                self._faults.add(place, f"must be a mapping such as {{pass-rate: 0.9}}, found {kind_of(given)}")
                continue
            for name, least in given.items():
                at = place.at(str(name))
                # To Python `true` is 1: the strictest demand, where none was meant.
                if isinstance(least, bool) or not isinstance(least, int | float) or not 0 <= least <= 1:
                    self._faults.add(at, "must be a number from 0 to 1")
                elif name == "score":
                    score = float(least)
                else:
                    self._rate(rates, str(name), float(least), at)
        return {"score": score, "rates": [{"number": name, "least": least} for name, least in rates.items()]}

    def _rate(self, rates: dict[str, float], name: str, least: float, place: Place) -> None:
        if least == 0.0:
            rates.pop(name, None)  # says that what a layer below demands does not hold here
            return
        try:
            Threshold(number=name, least=least)
        except ValueError:
            self._faults.add(place, "unknown key (known here: score, pass-rate, pass@K, pass^K)")
            return
        rates[name] = least


def _spelled(written: Any, expected: Any) -> dict[str, Any]:
    """A check as a mapping, and those in it, too."""
    check = spelled(written, expected)
    for name, value in check.items():
        if str(name).removeprefix("not-") in COMPOSED and isinstance(value, list):
            parts = []
            for index, part in enumerate(value):
                try:
                    # Parts, too: a name alone in them means the same `expected`.
                    parts.append(_spelled(part, expected))
                except BadCheck as error:
                    path = f"{name}[{index}]"
                    raise BadCheck(str(error), f"{path}.{error.path}" if error.path else path) from None
            check[name] = parts
    return check


def _topmost(layers: Sequence[tuple[Mapping[str, Any], Place]], key: str) -> tuple[Any, Place]:
    """What the highest layer has under ``key``, and the place of that layer."""
    for layer, place in reversed(layers):
        # Null is what nobody wrote, so that the layer below it holds.
        if layer.get(key) is not None:
            return layer[key], place
    return None, layers[-1][1]


def _digest(asked: Any) -> str:
    """Of a case's input; empty where it has none."""
    return "" if asked is None else hashlib.sha256(msgspec.json.encode(asked, order="deterministic")).hexdigest()
