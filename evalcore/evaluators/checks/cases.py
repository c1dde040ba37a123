"""From written cases to params: layers and placeholders, checks held to their grammar, diversity, and labels."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, get_args

import msgspec
from pydantic import ValidationError

from evalq.evalcore.errors import ConfigError
from evalq.evalcore.evaluators.checks.case_files import (
    CaseFileFaults,
    Place,
    Room,
    UnknownPlaceholder,
    WrittenCase,
    columns_of,
    fill,
    lines_of_table,
    open_table,
    read_cases,
)
from evalq.evalcore.evaluators.checks.check import COMPOSED, compile_check, compiled, spelled
from evalq.evalcore.evaluators.checks.params import NO_WEIGHT, Diversity, Threshold, weightless
from evalq.evalcore.evaluators.checks.vocabulary.declaring import BadCheck
from evalq.evalcore.model.canonical import canonical_json
from evalq.evalcore.naming import found, kind_of, shorten
from evalq.evalcore.records.batch import Batch

_WAYS = get_args(Diversity.model_fields["by"].annotation)
_TOLD = f"{', '.join(_WAYS[:-1])} or {_WAYS[-1]}"
_SPELLED = {name.replace("_", "-"): name for name in Diversity.model_fields}


def _layered_diversity(
    layers: Sequence[tuple[Mapping[str, Any], Place]], faults: CaseFileFaults
) -> dict[str, Any] | None:
    """The options of all layers, name by name, as params have them; None where no layer has any."""
    options: dict[str, Any] = {}
    for layer, under in layers:
        given = layer.get("diversity")
        # `diversity: exact` alone says how; most files need no more.
        given = {"by": given} if isinstance(given, str) else given
        if given is None:
            continue
        place = under.at("diversity")
        if not isinstance(given, dict):
            faults.add(place, f"must be {_TOLD}, or a mapping with `by`, found {kind_of(given)}")
            continue
        for name, value in given.items():
            if wrong := _fault(str(name), value):
                faults.add(place.at(str(name)), wrong)
            else:
                options[_SPELLED[name]] = value
    return options or None


def _fault(name: str, value: Any) -> str:
    """What is wrong with the option ``name`` as a file spells it; empty where nothing is."""
    if name not in _SPELLED:
        return f"unknown key (known here: {', '.join(_SPELLED)})"
    if name == "by":
        return "" if value in _WAYS else f"must be {_TOLD}"
    if name == "embedder":
        return "" if isinstance(value, str) and value else "must be the name of a target"
    if name == "judge":
        return (
            "" if isinstance(value, bool) else "must be true or false; --judge, or the case's own `judge`, names whom"
        )
    # First, since YAML's yes and no are whole numbers to Python, and 1 is a fine threshold.
    if isinstance(value, bool) or not isinstance(value, int | float):
        return "must be a number between 0 and 1"
    try:
        Diversity.model_validate({_SPELLED[name]: value})
    except ValidationError as error:
        return str(error.errors()[0]["msg"])
    return ""


# From cases as they are written to plain ones: layers laid over one another, placeholders filled, checks held to
# their grammar.

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
    faults = CaseFileFaults()
    reader = _Reader(faults)
    # Read to the end before anything is raised, so that a user can correct all faults at once.
    loaded = [case for path in paths for written in read_cases(path, faults) if (case := reader.case(written))]
    faults.raise_any()
    if not loaded:
        raise ConfigError(f"no case in {', '.join(map(str, paths))}")
    return loaded


class _Reader:
    def __init__(self, faults: CaseFileFaults) -> None:
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
            "diversity": _layered_diversity(layers, self._faults),
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


# Reading a file of labels: who said of which check of which output that it passes.

_KEYS = ("case", "repeat", "check", "passed", "note")
_ENDINGS = (".jsonl", ".ndjson", ".csv")
# As a CSV has them, in any case: spreadsheets write TRUE and FALSE.
_TRUTH = {"true": True, "false": False}
_MOST_REPEATS = 2**53
_MOST = 1_000_000


def load_labels(path: str) -> dict[str, dict[str, dict[str, list[int]]]]:
    """Repeats by case, check, and whether they ``passed`` or ``failed``: `ChecksParams.labels`, plain.

    JSONL or CSV of ``case``, ``repeat`` (0 where it is missing), ``check``, ``passed``, and ``note``, which is passed
    over. Raises ConfigError that lists by line what is no label, and labels that contradict one another, and for a
    file without any.
    """
    faults, said = CaseFileFaults(), dict[tuple[str, str, int], tuple[bool, Place]]()
    for row, place in _rows(path, faults):
        label = _label(row, place, faults)
        if label is None:
            continue
        key, passed = label
        before = said.setdefault(key, (passed, place))
        if before[0] is not passed:
            case, check, repeat = key
            one = f"{shorten(case)} repeat {repeat}, {shorten(check)!r}"
            told = "passes" if before[0] else "fails"
            faults.add(place, f"{one}: contradicts line {before[1].line}, by which it {told}")
    faults.raise_any("the labels")
    if not said:
        # Whoever names a file means its labels: an export that failed shall not pass for nobody having labelled.
        raise ConfigError(f"{path}: no label is in it; put one in (a line of case, check and passed), or omit the file")
    if len(said) > _MOST:
        raise ConfigError(f"{path}: more than {_MOST:,} labels")
    labels: dict[str, dict[str, dict[str, list[int]]]] = {}
    # Sorted: the params' digest must not go by the order in which people labelled.
    for (case, check, repeat), (passed, _) in sorted(said.items(), key=lambda item: item[0]):
        own = labels.setdefault(case, {}).setdefault(check, {"passed": [], "failed": []})
        own["passed" if passed else "failed"].append(repeat)
    return labels


def _rows(path: str, faults: CaseFileFaults) -> Iterator[tuple[dict[str, Any], Place]]:
    if not path.lower().endswith(_ENDINGS):
        raise ConfigError(f"{path}: a file of labels ends in {', '.join(_ENDINGS)}")
    batch = open_table(path)
    yield from _table(batch, path, faults) if path.lower().endswith(".csv") else lines_of_table(batch, faults)


def _table(batch: Batch, path: str, faults: CaseFileFaults) -> Iterator[tuple[dict[str, Any], Place]]:
    """Rows of a CSV, their cells as JSONL would have them."""
    columns = columns_of(batch, _KEYS.__contains__)
    if len(set(columns)) < len(columns):
        faults.add(Place(path, (), 1), "a column stands there twice")
        return
    if any(columns) and not _heads(columns, Place(path, (), 1), faults):
        return
    given = msgspec.structs.replace(batch, columns=columns)
    rows = given.rows(lambda line, reason: faults.add(Place(path, (), line), reason))
    next(rows, None)
    for line, cells in rows:
        row: dict[str, Any] = {name: text for name, text in zip(columns, cells, strict=True) if text != ""}
        row["passed"] = _TRUTH.get(str(row.get("passed", "")).strip().lower(), row.get("passed"))
        repeat = str(row.get("repeat", "0")).strip()
        # 2^53 has 16 digits. What is longer, or no number, stays as it is and is told with its line below.
        row["repeat"] = int(repeat) if repeat.isascii() and repeat.isdigit() and len(repeat) < 17 else row["repeat"]
        yield row, Place(path, (), line)


def _heads(columns: tuple[str, ...], place: Place, faults: CaseFileFaults) -> bool:
    """Whether a header names what labels have: a file without one would lose its first label, or its only one."""
    before = len(faults.found)
    faults.unknown(dict.fromkeys(columns), _KEYS, place)
    if lacking := [name for name in ("case", "check", "passed") if name not in columns]:
        faults.add(place, f"the header lacks {', '.join(lacking)}")
    return len(faults.found) == before


def _label(row: dict[str, Any], place: Place, faults: CaseFileFaults) -> tuple[tuple[str, str, int], bool] | None:
    """((case, check, repeat), passed); None where a fault was noted."""
    before = len(faults.found)
    faults.unknown(row, _KEYS, place)
    for key in ("case", "check"):
        if not isinstance(row.get(key), str) or not row[key]:
            faults.add(place.at(key), f"{found(row, key)} where a text is wanted")
    repeat = row.get("repeat", 0)
    if type(repeat) is not int or not 0 <= repeat < _MOST_REPEATS:
        faults.add(place.at("repeat"), f"{found(row, 'repeat')} where a whole number from 0 is wanted")
    if not isinstance(row.get("passed"), bool):
        faults.add(place.at("passed"), f"{found(row, 'passed')} where true or false is wanted")
    if len(faults.found) > before:
        return None
    return (row["case"], row["check"], repeat), row["passed"]
