"""Read cases files: the cases as written, each with its location, all faults at once, and placeholders filled in."""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from difflib import get_close_matches
from io import BufferedReader
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from evalq.evalcore.contract.params import as_json, load_mapping
from evalq.evalcore.errors import ConfigError
from evalq.evalcore.files import open_given, read_up_to
from evalq.evalcore.model.manifest import BOM, MAX_RECORD_BYTES
from evalq.evalcore.naming import join, shorten
from evalq.evalcore.naming import kind_of as json_kind
from evalq.evalcore.records.batch import Batch
from evalq.evalcore.records.inputs import HEAD_BYTES, file_encoding, file_kind
from evalq.evalcore.records.json_values import RecordFault, read_object
from evalq.evalcore.records.yaml import KeyLines
from evalq.evalcore.trust import Thing, Writer, allows

_SHOWN_FAULTS = 20


class Location(NamedTuple):
    """A position in a cases file: the keys from the top of the file, or the line if it is known."""

    file: str
    keys: tuple[str | int, ...] = ()
    line: int | None = None

    def at(self, *keys: str | int) -> Location:
        """The location below this one."""
        return Location(self.file, (*self.keys, *keys), self.line)

    @property
    def path(self) -> str:
        """The keys as a path."""
        path = ""
        for key in self.keys:
            path = join(path, key)
        return path


_OTHER_NAMES = {
    **dict.fromkeys(("prompt", "question", "query", "messages", "user"), "input"),
    **dict.fromkeys(("assert", "asserts", "assertions", "check", "tests", "scorers", "metrics"), "checks"),
    **dict.fromkeys(("answer", "ideal", "gold", "target", "reference", "expected_output", "output"), "expected"),
    **dict.fromkeys(("name", "case", "case_id", "key"), "id"),
    **dict.fromkeys(("labels", "metadata"), "tags"),
}
"""What other tools call keys of a case."""


class CaseFileFaults:
    """Collects faults, so that a user can correct all of them at once."""

    def __init__(self) -> None:
        self.entries: list[tuple[Location, str]] = []
        self._seen: set[tuple[Location, str]] = set()

    def add(self, location: Location, reason: str) -> None:
        """Note a fault at ``location``."""
        # Every case of a template repeats its fault.
        if (location, reason) not in self._seen:
            self._seen.add((location, reason))
            self.entries.append((location, reason))

    def unknown(self, data: Mapping[Any, Any], known: tuple[str, ...], location: Location) -> None:
        """Note the keys of ``data`` that are not in ``known``."""
        for key in data:
            if key not in known:
                other = _OTHER_NAMES.get(str(key).lower(), "")
                near = other if other in known else next(iter(get_close_matches(str(key), known, 1)), "")
                meant = f"; did you mean {near}?" if near else ""
                self.add(location.at(str(key)), f"unknown key{meant} (known here: {', '.join(known)})")

    def raise_any(self, what: str = "the cases") -> None:
        """Raise ConfigError with the first faults of ``what`` by file, line and key path, if there are any."""
        if not self.entries:
            return
        shown = self.entries[:_SHOWN_FAULTS]
        line_numbers = _line_numbers(shown)
        lines = []
        for location, reason in shown:
            line = location.line or line_numbers.get((location.file, location.keys))
            where = f"{location.file}:{line}" if line else location.file
            lines.append(f"{where}: {location.path}: {reason}" if location.keys else f"{where}: {reason}")
        if len(self.entries) > len(shown):
            lines.append(f"and {len(self.entries) - len(shown)} more")
        raise ConfigError("\n  ".join([f"{what} are not valid", *lines]))


def _line_numbers(faults: list[tuple[Location, str]]) -> dict[tuple[str, tuple[str | int, ...]], int]:
    """The lines of faults that have none yet; each file is parsed once."""
    numbers = {}
    for file in {location.file for location, _ in faults if location.line is None}:
        keys = [location.keys for location, _ in faults if location.file == file]
        try:
            text = Path(file).read_text(encoding="utf-8-sig")
            lines = KeyLines(text, file)
            numbers.update({(file, key): lines.line(key) for key in keys})
        # If the file is gone or has changed by now, the path of keys has to do.
        except (OSError, ValueError):
            continue
    return numbers


# YAML, JSON, JSONL or CSV to cases as written.

_CASE_KEYS = (
    *("id", "template", "input", "vars", "expected", "checks", "judge", "tags", "weight", "thresholds"),
    *("diversity", "turns", "tool_results", "user"),
)
"""The keys of a case; a template and the defaults have all but the first two."""
_LAYER_KEYS = _CASE_KEYS[2:]
_ENDINGS = (".yaml", ".yml", ".json", ".jsonl", ".ndjson", ".csv")
_DOCUMENT = ("defaults", "templates", "cases")
_CASE_KEY_SET = frozenset(_CASE_KEYS)
_MOST_BYTES = 256 << 20
"""The longest table: it is in memory as a whole."""
_MOST_LINES_BYTES = 8 << 30
_JSON_COLUMNS = ("checks", "vars", "thresholds", "turns", "tool_results")
_JSON_OR_TEXT = ("input", "diversity", "user")


class WrittenCase(NamedTuple):
    """A case as written, and the layers below it, the lowest first, each with its location."""

    case: dict[str, Any]
    location: Location
    layers: tuple[tuple[Mapping[str, Any], Location], ...]


class Verbatim(NamedTuple):
    """A value that stays as it is: braces in what users asked in production are no placeholders."""

    value: Any


class RecordedCase(NamedTuple):
    """The keys of a case that recorded outputs have, the first record of the case, and the attributes of a trace."""

    values: dict[str, Any]
    location: Location
    attributes: Mapping[str, Any] = {}


def with_recorded(
    cases: Iterable[WrittenCase], recorded: Mapping[str, RecordedCase], *, alone: bool
) -> Iterator[WrittenCase]:
    """``cases``, each with what is recorded of it and it does not have itself; ``alone``: only the recorded ones."""
    if alone:
        for name, known in recorded.items():
            yield WrittenCase({"id": name, **known.values}, known.location, ())
    for written in cases:
        own = recorded.get(str(written.case.get("id")))
        yield written if own is None else written._replace(layers=(*written.layers, own[:2]))


def read_cases(
    path: str | Path, faults: CaseFileFaults, recorded: Mapping[str, RecordedCase] | None = None
) -> Iterator[WrittenCase]:
    """The cases of one file, in its order; errors in the form of the file go to ``faults``.

    A file of ``defaults`` alone stands for the cases that are ``recorded``. Raises ConfigError if nothing of it can be
    read.
    """
    ending = Path(path).suffix.lower()
    if ending in (".yaml", ".yml", ".json"):
        yield from _read_document(path, faults, recorded)
    elif ending in _ENDINGS:
        for case, location in _read_rows(path, faults):
            # The file has no templates, so a case that names one is at fault.
            yield WrittenCase(case, location, tuple(_template_layers(case, location, {}, faults)))
    else:
        raise ConfigError(f"{path}: a cases file ends in {', '.join(_ENDINGS)}")


def _read_document(
    path: str | Path, faults: CaseFileFaults, recorded: Mapping[str, RecordedCase] | None
) -> Iterator[WrittenCase]:
    data, top = _plain_json(load_mapping(path), path), Location(str(path))
    faults.unknown(data, _DOCUMENT, top)
    defaults = _check_layer(data.get("defaults") or {}, top.at("defaults"), faults)
    named = data.get("templates") or {}
    templates: dict[str, tuple[Mapping[str, Any], Location]] = {}
    if isinstance(named, dict):
        for name, layer in named.items():
            templates[str(name)] = _check_layer(layer, top.at("templates", str(name)), faults)
    else:
        faults.add(top.at("templates"), f"must be a mapping of names to templates, found {json_kind(named)}")
    cases = data.get("cases")
    if (
        recorded is not None
        and isinstance(cases, list)
        and any(isinstance(each, dict) and "where" in each for each in cases)
    ):
        yield from _read_selected(cases, top, (defaults,), templates, faults, recorded)
        return
    if "cases" not in data and recorded is not None:
        yield from (WrittenCase({"id": name}, known.location, (defaults,)) for name, known in recorded.items())
        return
    if not isinstance(cases, list) or not cases:
        faults.add(top.at("cases") if "cases" in data else top, "cases: must be a list of at least one case")
        return
    for index, entry in enumerate(cases):
        location = top.at("cases", index)
        if not isinstance(entry, dict):
            faults.add(location, f"must be a mapping, found {json_kind(entry)}")
        elif "file" in entry:
            yield from _read_included(entry, location, [defaults], templates, faults)
        else:
            layers = [defaults, *_template_layers(entry, location, templates, faults)]
            faults.unknown(entry, _CASE_KEYS, location)
            yield WrittenCase(entry, location, tuple(layers))


def _read_selected(
    entries: list[Any],
    top: Location,
    below: tuple[tuple[Mapping[str, Any], Location], ...],
    templates: Mapping[str, tuple[Mapping[str, Any], Location]],
    faults: CaseFileFaults,
    recorded: Mapping[str, RecordedCase],
) -> Iterator[WrittenCase]:
    """The recorded cases that an entry selects by `where`, each with the layers of all such entries."""
    layers = []
    for index, entry in enumerate(entries):
        location = top.at("cases", index)
        where = entry.get("where") if isinstance(entry, dict) else None
        if not isinstance(where, dict):
            faults.add(location.at("where"), "each entry, or none, selects recorded cases by a mapping of attributes")
            continue
        faults.unknown(entry, ("where", "template", *_LAYER_KEYS), location)
        rest = {key: value for key, value in entry.items() if key in _LAYER_KEYS}
        layers.append((where, (*_template_layers(entry, location, templates, faults), (rest, location))))
    for name, known in recorded.items():
        found = [layer for where, own in layers if selects(where, known.attributes) for layer in own]
        if found:
            yield WrittenCase({"id": name}, known.location, (*below, *found))


def selects(where: Mapping[str, Any], attributes: Mapping[str, Any]) -> bool:
    """Whether each attribute that ``where`` names has its value, or one of its values."""
    for name, wanted in where.items():
        value = attributes.get(name)
        values = value if isinstance(value, list) else () if value is None else (value,)
        options = {as_label(each) for each in (wanted if isinstance(wanted, list) else (wanted,))}
        if not any(as_label(each) in options for each in values):
            return False
    return True


def as_label(value: Any) -> str:
    """A value of an attribute as text: 1 and 1.0 and "1" are the same, as true and "true"."""
    if isinstance(value, bool):
        return str(value).lower()
    return str(int(value)) if isinstance(value, float) and value.is_integer() else str(value)


def _plain_json(data: dict[str, Any], path: str | Path) -> dict[str, Any]:
    """``data`` as JSON, with dates and keys as texts. Raises ConfigError for data that JSON cannot hold."""
    try:
        plain: dict[str, Any] = json.loads(as_json(data), object_pairs_hook=_unique_keys)
        json.dumps(plain, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        raise ConfigError(f"{path}: it holds half of a surrogate pair") from None
    except (TypeError, ValueError, RecursionError) as error:
        raise ConfigError(f"{path}: not plain JSON data: {error}") from None
    return plain


def _unique_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Raises ValueError for keys that are equal as texts, such as 1 and "1": one would be lost silently."""
    mapping = dict(pairs)
    if len(mapping) < len(pairs):
        twice = next(key for at, (key, _) in enumerate(pairs) if any(key == each for each, _ in pairs[:at]))
        raise ValueError(f"the key {shorten(twice)!r} occurs twice, once without quotes")
    return mapping


def _check_layer(layer: Any, location: Location, faults: CaseFileFaults) -> tuple[Mapping[str, Any], Location]:
    if not isinstance(layer, dict):
        faults.add(location, f"must be a mapping, found {json_kind(layer)}")
        return {}, location
    faults.unknown(layer, _LAYER_KEYS, location)
    return layer, location


def _template_layers(
    entry: Mapping[str, Any],
    location: Location,
    templates: Mapping[str, tuple[Mapping[str, Any], Location]],
    faults: CaseFileFaults,
) -> list[tuple[Mapping[str, Any], Location]]:
    name = entry.get("template")
    if name is None:
        return []
    if not isinstance(name, str) or name not in templates:
        known = ", ".join(templates) or "none"
        faults.add(location.at("template"), f"{shorten(str(name))!r} is not a template (there are: {known})")
        return []
    return [templates[name]]


def _is_below(folder: Path, name: Any) -> bool:
    """Whether ``name`` is a file below ``folder``, after following links."""
    if not isinstance(name, str) or not name or Path(name).is_absolute() or ".." in Path(name).parts:
        return False
    return allows(Writer.CASES_FILE, Thing.PATH, folder / name, (folder,))


def _read_included(
    entry: dict[str, Any],
    location: Location,
    layers: list[tuple[Mapping[str, Any], Location]],
    templates: Mapping[str, tuple[Mapping[str, Any], Location]],
    faults: CaseFileFaults,
) -> Iterator[WrittenCase]:
    """The cases of a file that an entry names; the other keys of the entry are a layer below each of them."""
    faults.unknown(entry, ("file", "template", *_LAYER_KEYS), location)
    name = entry["file"]
    # Anybody may have written the cases file, as in a pull request: it must not make evalq read other files.
    if not _is_below(Path(location.file).parent, name) or Path(name).suffix.lower() not in (
        ".jsonl",
        ".ndjson",
        ".csv",
    ):
        faults.add(location.at("file"), "must name a .jsonl or .csv file next to this one, or below it")
        return
    under = [*layers, *_template_layers(entry, location, templates, faults)]
    shared = {key: value for key, value in entry.items() if key in _LAYER_KEYS}
    under += [(shared, location)] if shared else []
    for case, at in _read_rows(Path(location.file).parent / name, faults):
        yield WrittenCase(case, at, (*under, *_template_layers(case, at, templates, faults)))


def open_table(path: str | Path) -> Batch:
    """The whole of a CSV file. Raises ConfigError if it cannot be read."""
    try:
        with open_given(path) as stream:
            data = read_up_to(stream, _MOST_BYTES)
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read: {error.strerror}") from None
    if len(data) > _MOST_BYTES:
        raise ConfigError(f"{path}: longer than {_MOST_BYTES >> 20} MiB; split it into several files, or use JSONL")
    return Batch(str(path), 1, data.removeprefix(BOM))


def columns_of(batch: Batch, known: Callable[[str], bool]) -> tuple[str, ...]:
    """The names in a CSV's header. If none is known, ConfigError says which kind of file it seems to be."""
    try:
        columns = tuple(name.strip() for name in _first_row(batch))
        fault = None
    except (UnicodeDecodeError, csv.Error) as error:
        columns, fault = (), str(error)
    if not any(map(known, columns)) and (kind := file_kind(batch.data[:HEAD_BYTES])):
        raise ConfigError(f"{batch.source}:1: {kind}")
    if fault:
        raise ConfigError(f"{batch.source}:1: the header cannot be read: {fault}")
    return columns


def _first_row(batch: Batch) -> tuple[str, ...]:
    # Only this record: bytes of another encoding further down are a fault of their own line.
    start = 0
    for end in batch.ends("csv"):
        if row := Batch(batch.source, 1, batch.data[start:end]).first_row():
            return row
        start = end
    return ()


def _read_rows(path: str | Path, faults: CaseFileFaults) -> Iterator[tuple[dict[str, Any], Location]]:
    """The cases of a JSONL or CSV file."""
    if str(path).lower().endswith(".csv"):
        cases = _read_table(open_table(path), str(path), faults)
    else:
        cases = read_jsonl(str(path), faults)
    for case, location in cases:
        if not _CASE_KEY_SET.issuperset(case):
            faults.unknown(case, _CASE_KEYS, location)
        yield case, location


def read_jsonl(path: str, faults: CaseFileFaults) -> Iterator[tuple[dict[str, Any], Location]]:
    """The objects of a JSONL file, each with its location, a line at a time.

    Raises ConfigError if it cannot be read.
    """
    try:
        with open_given(path) as stream:
            if encoding := file_encoding(stream.peek(HEAD_BYTES)[:HEAD_BYTES]):
                raise ConfigError(f"{path}:1: {encoding}")
            for number, data in enumerate(_lines_of(stream, path), start=1):
                if not data or data.isspace():
                    continue
                location = Location(path, (), number)
                try:
                    yield read_object(data), location
                except RecordFault as error:
                    faults.add(location, str(error).removeprefix("$: "))
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read: {error.strerror}") from None


def _lines_of(stream: BufferedReader, path: str) -> Iterator[bytes]:
    """The lines without their ends, and without the mark at the beginning. Raises ConfigError for too many bytes."""
    left, first = _MOST_LINES_BYTES, True
    while line := stream.readline(min(left, MAX_RECORD_BYTES) + 1):
        left -= len(line)
        if left < 0:
            raise ConfigError(f"{path}: longer than {_MOST_LINES_BYTES >> 30} GiB; split it into several files")
        if len(line) > MAX_RECORD_BYTES:
            raise ConfigError(f"{path}: a line is longer than {MAX_RECORD_BYTES >> 20} MiB")
        yield (line.removeprefix(BOM) if first else line).removesuffix(b"\n")
        first = False


def _read_table(batch: Batch, path: str, faults: CaseFileFaults) -> Iterator[tuple[dict[str, Any], Location]]:
    columns = columns_of(batch, lambda name: name in _CASE_KEYS or bool(_mapping_of_column(name)))
    top = Location(path, (), 1)
    unknown = [name for name in columns if name not in _CASE_KEYS and not _mapping_of_column(name)]
    for name in unknown:
        known = ", ".join([*_CASE_KEYS, "vars.NAME", "thresholds.NAME"])
        faults.add(top, f"{shorten(name)!r} is not a column of cases (known: {known})")
    if len(set(columns)) < len(columns):
        faults.add(top, "the header names a column twice")
        return
    table = msgspec.structs.replace(batch, columns=columns)
    rows = table.rows(lambda line, reason: faults.add(Location(path, (), line), reason))
    # Skip the header: `first_row` left it in the batch.
    next(rows, None)
    for line, row in rows:
        location = Location(path, (), line)
        case: dict[str, Any] = {}
        for name, text in zip(columns, row, strict=True):
            # An empty cell leaves the key to the layers below, as null does.
            if text != "" and name not in unknown:
                _set_cell(case, name, text, location, faults)
        yield case, location


def _mapping_of_column(name: str) -> str:
    """The mapping that a column such as vars.NAME fills; empty for other columns."""
    holder, _, key = name.partition(".")
    return holder if key and holder in ("vars", "thresholds") else ""


def _set_cell(case: dict[str, Any], name: str, text: str, location: Location, faults: CaseFileFaults) -> None:
    """Store one cell of a table: numbers and JSON are parsed, all else is text."""
    if mapping_name := _mapping_of_column(name):
        mapping = case.setdefault(mapping_name, {})
        key = name.partition(".")[2]
        if isinstance(mapping, dict):
            mapping[key] = text if mapping_name == "vars" else _parse_number(text, location.at(name), faults)
    elif name == "weight":
        case[name] = _parse_number(text, location.at(name), faults)
    # Comma-separated, as people write them; a JSON list if a tag contains a comma.
    elif name == "tags" and not text.lstrip().startswith("["):
        case[name] = [tag.strip() for tag in text.split(",") if tag.strip()]
    elif name in (*_JSON_COLUMNS, "tags") or (name in _JSON_OR_TEXT and text.lstrip()[:1] in ("[", "{")):
        try:
            case[name] = msgspec.json.decode(text)
        except (msgspec.DecodeError, RecursionError) as error:
            # An input that begins with a bracket may be text; the other columns must be JSON.
            if name != "input":
                faults.add(location.at(name), f"not JSON: {error}")
            case[name] = text
    else:
        case[name] = text


def _parse_number(text: str, location: Location, faults: CaseFileFaults) -> Any:
    try:
        return float(text)
    except ValueError:
        faults.add(location, f"{shorten(text)!r} where a number is wanted")
        # Any number will do: a case with a fault never runs, and reading on finds further faults.
        return 1.0


# Placeholders such as ``{{name}}`` in the values of a case, with a limit on the size of the result.

_PLACEHOLDER = re.compile(r"(\\?)\{\{\s*([A-Za-z_][\w.-]*)\s*\}\}", re.ASCII)
_MOST_EXPANDED = 256 << 20
_VALUE = 8
"""Bytes that each value counts in addition to its text: a list of a billion empty texts is not free."""


class SizeBudget:
    """Limits the size of all expanded cases: a few lines of templates can mean terabytes."""

    def __init__(self) -> None:
        self._left = _MOST_EXPANDED

    def count_value(self, characters: int = 0) -> None:
        """Count one value without its parts. Raises ConfigError if the limit is passed."""
        self._left -= _VALUE + characters
        if self._left < 0:
            most = f"{_MOST_EXPANDED >> 20} MiB"
            raise ConfigError(f"the cases hold more than {most} with defaults, templates and placeholders filled in")

    def count(self, value: Any) -> Any:
        """Count ``value`` and return it. Raises ConfigError if the limit is passed."""
        waiting = [value]
        while waiting:
            part = waiting.pop()
            self.count_value(len(part) if isinstance(part, str) else 0)
            if isinstance(part, dict):
                waiting += (*part, *part.values())
            elif isinstance(part, list):
                waiting += part
        return value


class UnknownPlaceholder(ValueError):
    """A placeholder names no variable."""


def fill(value: Any, values: Mapping[str, Any], budget: SizeBudget) -> Any:
    """``value`` with its placeholders replaced in one pass, so that braces in a variable's value stay.

    A text that is only a placeholder becomes the value itself. Raises UnknownPlaceholder.
    """
    if isinstance(value, str):
        budget.count_value(len(value))
        if "{{" not in value:
            return value
        whole = _PLACEHOLDER.fullmatch(value)
        # Not as text: checks compare a number or list of a variable as such.
        if whole and not whole[1]:
            return budget.count(_look_up(whole[2], values))
        return _PLACEHOLDER.sub(lambda match: str(budget.count(_substitute(match, values))), value)
    budget.count_value()
    if isinstance(value, dict):
        return {key: fill(inner, values, budget) for key, inner in value.items()}
    if isinstance(value, list):
        return [fill(inner, values, budget) for inner in value]
    return value


def _substitute(match: re.Match[str], values: Mapping[str, Any]) -> str:
    # After a backslash, the braces are plain text.
    if match[1]:
        return match[0][1:]
    value = _look_up(match[2], values)
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()


def _look_up(name: str, values: Mapping[str, Any]) -> Any:
    # A variable with a dot in its name takes precedence over a path into another one.
    if name in values:
        return values[name]
    value: Any = values
    for part in name.split("."):
        if not isinstance(value, Mapping) or part not in value:
            # An error, not an empty text: a misspelt name would waste every repeat, and nobody would notice.
            known = ", ".join(sorted(values))
            problem = f"{{{{{shorten(name)}}}}} is not a variable (known: {shorten(known, 200)})"
            raise UnknownPlaceholder(f"{problem}; write \\{{{{...}}}} for the text")
        value = value[part]
    return value
