"""Reading cases files: cases as they are written, each with its place, all faults at once, placeholders filled in."""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Callable, Iterator, Mapping
from difflib import get_close_matches
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from evalq.evalcore.contract.params import as_json, load_mapping
from evalq.evalcore.errors import ConfigError
from evalq.evalcore.files import open_given, read_up_to
from evalq.evalcore.model.manifest import BOM
from evalq.evalcore.naming import join, shorten
from evalq.evalcore.naming import kind_of as json_kind
from evalq.evalcore.records.batch import Batch
from evalq.evalcore.records.inputs import HEAD_BYTES, file_encoding, file_kind
from evalq.evalcore.records.json_values import RecordFault, read_object
from evalq.evalcore.records.yaml import KeyLines
from evalq.evalcore.trust import Thing, Writer, allows

_SHOWN_FAULTS = 20


class Place(NamedTuple):
    """Where something is written: a file, the keys that lead there from its top, or its line where that is known."""

    file: str
    keys: tuple[str | int, ...] = ()
    line: int | None = None

    def at(self, *keys: str | int) -> Place:
        """The place below this one."""
        return Place(self.file, (*self.keys, *keys), self.line)

    @property
    def path(self) -> str:
        """The keys as a path."""
        path = ""
        for key in self.keys:
            path = join(path, key)
        return path


class CaseFileFaults:
    """Collects what is wrong, so that a user can correct all of it at once."""

    def __init__(self) -> None:
        self.found: list[tuple[Place, str]] = []
        self._seen: set[tuple[Place, str]] = set()

    def add(self, place: Place, reason: str) -> None:
        """Note that something is wrong at ``place``."""
        # A template's fault is met again with every case.
        if (place, reason) not in self._seen:
            self._seen.add((place, reason))
            self.found.append((place, reason))

    def unknown(self, data: Mapping[Any, Any], known: tuple[str, ...], place: Place) -> None:
        """Note keys of ``data`` that are none of ``known``."""
        for key in data:
            if key not in known:
                near = next(iter(get_close_matches(str(key), known, 1)), "")
                meant = f"; did you mean {near}?" if near else ""
                self.add(place.at(str(key)), f"unknown key{meant} (known here: {', '.join(known)})")

    def raise_any(self, what: str = "the cases") -> None:
        """Raise ConfigError that lists the first faults of ``what`` by file, line and key path, where there is any."""
        if not self.found:
            return
        shown = self.found[:_SHOWN_FAULTS]
        lines = _lines(shown)
        told = []
        for place, reason in shown:
            line = place.line or lines.get((place.file, place.keys))
            where = f"{place.file}:{line}" if line else place.file
            told.append(f"{where}: {place.path}: {reason}" if place.keys else f"{where}: {reason}")
        if len(self.found) > len(shown):
            told.append(f"and {len(self.found) - len(shown)} more")
        raise ConfigError("\n  ".join([f"{what} are not valid", *told]))


def _lines(faults: list[tuple[Place, str]]) -> dict[tuple[str, tuple[str | int, ...]], int]:
    """The lines of those faults that have none yet, each file composed once."""
    found = {}
    for file in {place.file for place, _ in faults if place.line is None}:
        keys = [place.keys for place, _ in faults if place.file == file]
        try:
            text = Path(file).read_text(encoding="utf-8-sig")
            lines = KeyLines(text, file)
            found.update({(file, key): lines.line(key) for key in keys})
        # A line is a help: where the file is gone or another by now, its fault is told by the path of keys alone.
        except (OSError, ValueError):
            continue
    return found


# Reading cases files: YAML, JSON, JSONL or CSV into cases as they are written, each with its place.

_CASE_KEYS = (
    *("id", "template", "input", "vars", "expected", "checks", "judge", "tags", "weight", "thresholds"),
    "diversity",
)
"""The keys of a case; a template and the defaults have all but the first two."""
_LAYER_KEYS = _CASE_KEYS[2:]
_ENDINGS = (".yaml", ".yml", ".json", ".jsonl", ".ndjson", ".csv")
_DOCUMENT = ("defaults", "templates", "cases")
_MOST_BYTES = 256 << 20
_JSON_COLUMNS = ("checks", "vars", "thresholds")


class WrittenCase(NamedTuple):
    """A case as it is written, and the layers that lie under it, the lowest first, each with its place."""

    case: dict[str, Any]
    place: Place
    layers: tuple[tuple[Mapping[str, Any], Place], ...]


def read_cases(path: str | Path, faults: CaseFileFaults) -> Iterator[WrittenCase]:
    """The cases of one file, in its order; what is wrong with the file's own form goes to ``faults``.

    Raises ConfigError where nothing of it can be read.
    """
    ending = Path(path).suffix.lower()
    if ending in (".yaml", ".yml", ".json"):
        yield from _document(path, faults)
    elif ending in _ENDINGS:
        for case, place in _rows(path, faults):
            # It has no templates of its own: a case that names one is told so.
            yield WrittenCase(case, place, tuple(_template(case, place, {}, faults)))
    else:
        raise ConfigError(f"{path}: a cases file ends in {', '.join(_ENDINGS)}")


def _document(path: str | Path, faults: CaseFileFaults) -> Iterator[WrittenCase]:
    data, top = _plain(load_mapping(path), path), Place(str(path))
    faults.unknown(data, _DOCUMENT, top)
    defaults = _layer(data.get("defaults") or {}, top.at("defaults"), faults)
    named = data.get("templates") or {}
    templates: dict[str, tuple[Mapping[str, Any], Place]] = {}
    if isinstance(named, dict):
        for name, layer in named.items():
            templates[str(name)] = _layer(layer, top.at("templates", str(name)), faults)
    else:
        faults.add(top.at("templates"), f"must be a mapping of names to templates, found {json_kind(named)}")
    cases = data.get("cases")
    if not isinstance(cases, list) or not cases:
        faults.add(top.at("cases") if "cases" in data else top, "cases: must be a list of cases, at least one")
        return
    for index, entry in enumerate(cases):
        place = top.at("cases", index)
        if not isinstance(entry, dict):
            faults.add(place, f"must be a mapping, found {json_kind(entry)}")
        elif "file" in entry:
            yield from _included(entry, place, [defaults], templates, faults)
        else:
            layers = [defaults, *_template(entry, place, templates, faults)]
            faults.unknown(entry, _CASE_KEYS, place)
            yield WrittenCase(entry, place, tuple(layers))


def _plain(data: dict[str, Any], path: str | Path) -> dict[str, Any]:
    """``data`` as JSON has it: days as texts, keys as texts. Raises ConfigError for what has no form in it."""
    try:
        plain: dict[str, Any] = json.loads(as_json(data), object_pairs_hook=_once)
        json.dumps(plain, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        raise ConfigError(f"{path}: half of a surrogate pair stands in it") from None
    except (TypeError, ValueError, RecursionError) as error:
        raise ConfigError(f"{path}: not plain JSON data: {error}") from None
    return plain


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Raises ValueError for keys that are one as texts, such as 1 and "1": one of them would be dropped in silence."""
    made = dict(pairs)
    if len(made) < len(pairs):
        twice = next(key for at, (key, _) in enumerate(pairs) if any(key == each for each, _ in pairs[:at]))
        raise ValueError(f"the key {shorten(twice)!r} occurs twice, once without quotes")
    return made


def _layer(layer: Any, place: Place, faults: CaseFileFaults) -> tuple[Mapping[str, Any], Place]:
    if not isinstance(layer, dict):
        faults.add(place, f"must be a mapping, found {json_kind(layer)}")
        return {}, place
    faults.unknown(layer, _LAYER_KEYS, place)
    return layer, place


def _template(
    entry: Mapping[str, Any],
    place: Place,
    templates: Mapping[str, tuple[Mapping[str, Any], Place]],
    faults: CaseFileFaults,
) -> list[tuple[Mapping[str, Any], Place]]:
    name = entry.get("template")
    if name is None:
        return []
    if not isinstance(name, str) or name not in templates:
        known = ", ".join(templates) or "none"
        faults.add(place.at("template"), f"{shorten(str(name))!r} is no template (there are: {known})")
        return []
    return [templates[name]]


def _inside(folder: Path, name: Any) -> bool:
    """Whether ``name`` is a file below ``folder``, links followed."""
    if not isinstance(name, str) or not name or Path(name).is_absolute() or ".." in Path(name).parts:
        return False
    return allows(Writer.CASES_FILE, Thing.PATH, folder / name, (folder,))


def _included(
    entry: dict[str, Any],
    place: Place,
    layers: list[tuple[Mapping[str, Any], Place]],
    templates: Mapping[str, tuple[Mapping[str, Any], Place]],
    faults: CaseFileFaults,
) -> Iterator[WrittenCase]:
    """The cases of a file that an entry names; what else stands in the entry lies under each of them."""
    faults.unknown(entry, ("file", "template", *_LAYER_KEYS), place)
    name = entry["file"]
    # A cases file may be anybody's, as in a pull request: it must not have files read that lie elsewhere.
    if not _inside(Path(place.file).parent, name) or Path(name).suffix.lower() not in (".jsonl", ".ndjson", ".csv"):
        faults.add(place.at("file"), "must name a .jsonl or .csv file next to this one, or below it")
        return
    under = [*layers, *_template(entry, place, templates, faults)]
    own = {key: value for key, value in entry.items() if key in _LAYER_KEYS}
    under += [(own, place)] if own else []
    for case, at in _rows(Path(place.file).parent / name, faults):
        yield WrittenCase(case, at, (*under, *_template(case, at, templates, faults)))


def open_table(path: str | Path) -> Batch:
    """A JSONL or CSV file of something for cases, all of it. Raises ConfigError where it cannot be read."""
    try:
        with open_given(path) as stream:
            data = read_up_to(stream, _MOST_BYTES)
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read: {error.strerror}") from None
    if len(data) > _MOST_BYTES:
        raise ConfigError(f"{path}: longer than {_MOST_BYTES >> 20} MiB, which no list of cases needs")
    table = str(path).lower().endswith(".csv")
    if not table and (encoding := file_encoding(data[:HEAD_BYTES])):
        raise ConfigError(f"{path}:1: {encoding}")
    return Batch(str(path), 1, data.removeprefix(BOM))


def columns_of(batch: Batch, known: Callable[[str], bool]) -> tuple[str, ...]:
    """The names in a CSV's header. Raises ConfigError, where none is known, with what the file seems to be."""
    try:
        columns = tuple(name.strip() for name in _first_row(batch))
        fault = None
    except (UnicodeDecodeError, csv.Error) as error:
        columns, fault = (), str(error)
    if not any(map(known, columns)) and (kind := file_kind(batch.data[:HEAD_BYTES])):
        raise ConfigError(f"{batch.source}:1: {kind}")
    if fault:
        raise ConfigError(f"{batch.source}:1: no header that can be read: {fault}")
    return columns


def _first_row(batch: Batch) -> tuple[str, ...]:
    # The record alone: bytes of another encoding further down are a fault of their own line.
    start = 0
    for end in batch.ends("csv"):
        if row := Batch(batch.source, 1, batch.data[start:end]).first_row():
            return row
        start = end
    return ()


def _rows(path: str | Path, faults: CaseFileFaults) -> Iterator[tuple[dict[str, Any], Place]]:
    """The cases of a JSONL or CSV file."""
    batch = open_table(path)
    found = _table(batch, str(path), faults) if str(path).lower().endswith(".csv") else lines_of_table(batch, faults)
    for case, place in found:
        faults.unknown(case, _CASE_KEYS, place)
        yield case, place


def lines_of_table(batch: Batch, faults: CaseFileFaults) -> Iterator[tuple[dict[str, Any], Place]]:
    """The objects of a JSONL file, each with its place."""
    for line, data in batch.lines():
        place = Place(batch.source, (), line)
        try:
            yield read_object(data), place
        except RecordFault as error:
            faults.add(place, str(error).removeprefix("$: "))


def _table(batch: Batch, path: str, faults: CaseFileFaults) -> Iterator[tuple[dict[str, Any], Place]]:
    columns = columns_of(batch, lambda name: name in _CASE_KEYS or bool(_holder(name)))
    top = Place(path, (), 1)
    wrong = [name for name in columns if name not in _CASE_KEYS and not _holder(name)]
    for name in wrong:
        known = ", ".join([*_CASE_KEYS, "vars.NAME", "thresholds.NAME"])
        faults.add(top, f"{shorten(name)!r} is no column of cases (known: {known})")
    if len(set(columns)) < len(columns):
        faults.add(top, "a column stands there twice")
        return
    given = msgspec.structs.replace(batch, columns=columns)
    rows = given.rows(lambda line, reason: faults.add(Place(path, (), line), reason))
    # The header once more, which `first_row` looked at without taking it.
    next(rows, None)
    for line, row in rows:
        place = Place(path, (), line)
        case: dict[str, Any] = {}
        for name, text in zip(columns, row, strict=True):
            # An empty cell is what nobody wrote, as null is: what lies under the case holds.
            if text != "" and name not in wrong:
                _fill(case, name, text, place, faults)
        yield case, place


def _holder(name: str) -> str:
    """The mapping that a column such as vars.NAME fills; empty where it is none."""
    holder, _, key = name.partition(".")
    return holder if key and holder in ("vars", "thresholds") else ""


def _fill(case: dict[str, Any], name: str, text: str, place: Place, faults: CaseFileFaults) -> None:
    """One cell of a table: text, but for numbers and what JSON is written for."""
    if holder := _holder(name):
        inner = case.setdefault(holder, {})
        key = name.partition(".")[2]
        if isinstance(inner, dict):
            inner[key] = text if holder == "vars" else _number(text, place.at(name), faults)
    elif name == "weight":
        case[name] = _number(text, place.at(name), faults)
    # As people write them in a cell; a JSON list where a tag has a comma itself.
    elif name == "tags" and not text.lstrip().startswith("["):
        case[name] = [tag.strip() for tag in text.split(",") if tag.strip()]
    elif name in (*_JSON_COLUMNS, "tags") or (name in ("input", "diversity") and text.lstrip()[:1] in ("[", "{")):
        try:
            case[name] = msgspec.json.decode(text)
        except (msgspec.DecodeError, RecursionError) as error:
            # An input that begins with a bracket may well be text; what the other columns hold may not.
            if name != "input":
                faults.add(place.at(name), f"not JSON: {error}")
            case[name] = text
    else:
        case[name] = text


def _number(text: str, place: Place, faults: CaseFileFaults) -> Any:
    try:
        return float(text)
    except ValueError:
        faults.add(place, f"{shorten(text)!r} where a number is wanted")
        # Any number will do, since a case with a fault is never run: reading on finds the faults behind it.
        return 1.0


# Filling placeholders such as ``{{name}}`` in the values of a case, within a bound on what they may come to.

_PLACEHOLDER = re.compile(r"(\\?)\{\{\s*([A-Za-z_][\w.-]*)\s*\}\}", re.ASCII)
_MOST_WRITTEN_OUT = 256 << 20
_VALUE = 8
"""Bytes that any value counts for beside its text: a list of a billion empty texts is not free."""


class Room:
    """How much cases may hold with their layers and placeholders written out, where a few lines can mean terabytes."""

    def __init__(self) -> None:
        self._left = _MOST_WRITTEN_OUT

    def take_one(self, characters: int = 0) -> None:
        """Count a value that holds no others. Raises ConfigError."""
        self._left -= _VALUE + characters
        if self._left < 0:
            most = f"{_MOST_WRITTEN_OUT >> 20} MiB"
            raise ConfigError(f"the cases hold more than {most} with defaults, templates and placeholders filled in")

    def take(self, value: Any) -> Any:
        """``value``, counted. Raises ConfigError."""
        waiting = [value]
        while waiting:
            part = waiting.pop()
            self.take_one(len(part) if isinstance(part, str) else 0)
            if isinstance(part, dict):
                waiting += (*part, *part.values())
            elif isinstance(part, list):
                waiting += part
        return value


class UnknownPlaceholder(ValueError):
    """A placeholder names nothing that is known."""


def fill(value: Any, values: Mapping[str, Any], room: Room) -> Any:
    """``value`` with its placeholders replaced in one pass, so that a variable's own braces stay what they are.

    Text that is nothing but a placeholder becomes the value itself. Raises UnknownPlaceholder.
    """
    if isinstance(value, str):
        room.take_one(len(value))
        if "{{" not in value:
            return value
        whole = _PLACEHOLDER.fullmatch(value)
        # Not as text: a number or a list of a variable stays one, so that checks compare it as such.
        if whole and not whole[1]:
            return room.take(_value(whole[2], values))
        return _PLACEHOLDER.sub(lambda match: str(room.take(_filled(match, values))), value)
    room.take_one()
    if isinstance(value, dict):
        return {key: fill(inner, values, room) for key, inner in value.items()}
    if isinstance(value, list):
        return [fill(inner, values, room) for inner in value]
    return value


def _filled(match: re.Match[str], values: Mapping[str, Any]) -> str:
    # Behind a backslash it is meant as it stands.
    if match[1]:
        return match[0][1:]
    found = _value(match[2], values)
    return found if isinstance(found, str) else msgspec.json.encode(found).decode()


def _value(name: str, values: Mapping[str, Any]) -> Any:
    # A variable whose name has a dot in it goes before a path into another one.
    if name in values:
        return values[name]
    found: Any = values
    for part in name.split("."):
        if not isinstance(found, Mapping) or part not in found:
            # Refused, not left empty: a misspelt name would ask every repeat for nothing, and nobody would see it.
            known = ", ".join(sorted(values))
            what = f"{{{{{shorten(name)}}}}} is no variable (known: {shorten(known, 200)})"
            raise UnknownPlaceholder(f"{what}; write \\{{{{...}}}} for the text")
        found = found[part]
    return found
