"""The tests of a promptfoo configuration: written in it, in files, in spreadsheets, and as scenarios."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

from evalq.evalcore.errors import ConfigError
from evalq.producer.importing.imported import Imported, ImportRequest
from evalq.producer.importing.promptfoo.assertions import COUNTERPARTS, JUDGED, REASONS
from evalq.producer.importing.promptfoo.texts import NoText, parse_commas
from evalq.producer.importing.reading import (
    Document,
    Outside,
    below,
    csv_rows,
    globbed,
    read_json,
    read_lines,
    read_text,
    read_yaml,
)

Place = Callable[[Sequence[str | int]], str]
_PROGRAMS = (".js", ".ts", ".mjs", ".cjs", ".py")
_CELL = re.compile(
    r"^(?P<inverse>not-)?(?P<type>"
    + "|".join(sorted(map(re.escape, [*COUNTERPARTS, *JUDGED, *REASONS]), key=len, reverse=True))
    + r")(?:\((?P<threshold>\d+(?:\.\d+)?)\))?(?::(?P<value>.*))?$",
    re.DOTALL,
)
_LISTED = ("contains-all", "contains-any", "icontains-all", "icontains-any")
_THRESHOLD = ("cost", "latency", "levenshtein", "rouge-n", "similar", "starts-with", "perplexity", "classifier")


class Test(NamedTuple):
    """A test of promptfoo, its key path, and the function that makes a location of keys."""

    data: Mapping[str, Any]
    keys: Sequence[str | int]
    place: Place

    def where(self) -> str:
        """Its location."""
        return self.place(self.keys)


def tests_of(document: Document, imported: Imported, request: ImportRequest) -> list[Test]:
    """All tests, also those of files and scenarios; adds a note for other values."""
    given = document.data.get("tests")
    listed = given if isinstance(given, list) else [] if given is None else [given]
    keys: list[list[str | int]] = [
        ["tests", index] if isinstance(given, list) else ["tests"] for index in range(len(listed))
    ]
    tests: list[Test] = []
    for each, at in zip(listed, keys, strict=True):
        try:
            tests += _entry(each, at, document, request, imported)
        except (NoText, Outside, ConfigError) as error:
            imported.note("none", document.where(at), "tests", str(error))
    scenarios = document.data.get("scenarios")
    for index, scenario in enumerate(scenarios if isinstance(scenarios, list) else []):
        try:
            tests += _scenario(scenario, ["scenarios", index], document)
        except NoText as error:
            imported.note("none", document.where(["scenarios", index]), "scenario", str(error))
    if not tests and not listed and not scenarios:
        tests.append(Test({}, [], document.where))
    return tests


def _entry(
    entry: Any, keys: Sequence[str | int], document: Document, request: ImportRequest, imported: Imported
) -> Iterator[Test]:
    if isinstance(entry, Mapping) and "path" in entry and "vars" not in entry:
        raise NoText("a program writes them: write them to a file, and name that")
    if isinstance(entry, Mapping):
        yield Test(entry, keys, document.where)
        return
    if not isinstance(entry, str):
        raise NoText("a test is a mapping, or names a file")
    if entry.startswith(("http://", "https://", "huggingface://", "az://")):
        raise NoText("they are kept by another service: save them to a file")
    name = entry.removeprefix("file://")
    folder = document.path.parent
    many = any(sign in name for sign in "*?[") and not Path(name).is_absolute()
    # Of a folder that is named by where the user stands, no path leads on from the folder itself.
    found = [str(path.resolve()) for path in globbed(folder, name, anywhere=request.anywhere)] if many else [name]
    for each in found:
        yield from _of_file(below(folder, each, anywhere=request.anywhere), imported)


def _of_file(path: Path, imported: Imported) -> Iterator[Test]:
    """The tests of a file; adds a note for other values, and goes on."""
    if path.suffix in (".csv", ".jsonl"):
        for line, value in csv_rows(path) if path.suffix == ".csv" else read_lines(path):
            try:
                test = _row(value) if path.suffix == ".csv" else _given(value)
            except NoText as error:
                imported.note("none", f"{path}:{line}", "a test", str(error))
                continue
            yield Test(test, [], lambda keys, line=line: f"{path}:{line}")  # type: ignore[misc]  # a default for a closure
        return
    if path.suffix not in (".json", ".yaml", ".yml"):
        raise NoText(f"{path.name} is a program or a format that only promptfoo reads")
    document = read_yaml(path)
    listed = document.data if isinstance(document.data, list) else [document.data]
    for index, value in enumerate(listed):
        keys: list[str | int] = [index] if isinstance(document.data, list) else []
        try:
            yield Test(_given(value), keys, document.where)
        except NoText as error:
            imported.note("none", document.where(keys), "a test", str(error))


def _given(value: Any) -> Mapping[str, Any]:
    """A test of a file. Raises NoText for other values."""
    if not isinstance(value, Mapping):
        raise NoText("a test of a file is a mapping")
    return value


def _scenario(scenario: Any, keys: Sequence[str | int], document: Document) -> Iterator[Test]:
    """Every test of a scenario with every set of its data."""
    if not isinstance(scenario, Mapping) or not isinstance(scenario.get("config"), list):
        raise NoText("a scenario has config, a list of sets of data, and tests")
    tests = scenario.get("tests", [{}])
    if not isinstance(tests, list) or not all(isinstance(each, Mapping) for each in [*tests, *scenario["config"]]):
        raise NoText("its tests or data are kept in files that a scenario names: write them into tests")
    for data in scenario["config"]:
        for index, test in enumerate(tests):
            joined = {**data, **test}
            for key in ("vars", "options", "metadata"):
                joined[key] = {**_mapping(data.get(key)), **_mapping(test.get(key))}
            joined["assert"] = [*_list(data.get("assert")), *_list(test.get("assert"))]
            yield Test(joined, [*keys, "tests", index], document.where)


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _row(row: Mapping[str, str]) -> dict[str, Any]:
    """A row of a spreadsheet as a test."""
    test: dict[str, Any] = {"vars": {}, "assert": [], "metadata": {}, "options": {}}
    limits: dict[int, float] = {}
    for name, cell in row.items():
        if name.startswith("__expected"):
            if cell.strip():
                test["assert"].append(_assertion(cell.strip()))
        elif name in ("__prefix", "__suffix"):
            test["options"][name[2:]] = cell
        elif name in ("__description", "__providerOutput"):
            if cell:
                test[name[2:]] = cell
        elif name == "__threshold":
            if (number := _finite(cell)) is not None:
                test["threshold"] = number
        elif name.startswith("__metadata:"):
            if cell.strip():
                test["metadata"][name[11:].removesuffix("[]")] = cell.split(",") if name.endswith("[]") else cell
        elif name.startswith("__config:__expected") and name.endswith(":threshold"):
            at = name.removeprefix("__config:__expected").removesuffix(":threshold")
            if (number := _finite(cell)) is not None:
                limits[int(at or 1) - 1 if (at or "1").isdigit() else -1] = number
        elif name != "__metric":
            test["vars"][name] = cell
    for index, assertion in enumerate(test["assert"]):
        if row.get("__metric"):
            assertion["metric"] = row["__metric"]
        if index in limits:
            assertion["threshold"] = limits[index]
    return test


def _finite(cell: str) -> float | None:
    # Longer texts are no numbers, and the pattern would take quadratic time.
    return (
        float(cell) if len(cell) < 50 and re.fullmatch(r"\s*[-+]?(\d+\.?\d*|\.\d+)([eE][-+]?\d+)?\s*", cell) else None
    )


def _assertion(cell: str) -> dict[str, Any]:
    """What a cell of a column of expectations means: `type: value`, or the text that is wanted."""
    for prefix, name in (("javascript:", "javascript"), ("fn:", "javascript"), ("eval:", "javascript")):
        if cell.startswith(prefix):
            return {"type": name, "value": cell[len(prefix) :].strip()}
    if cell.startswith(("grade:", "llm-rubric:")):
        return {"type": "llm-rubric", "value": cell.partition(":")[2].strip()}
    if cell.startswith("python:") or (cell.startswith("file://") and ".py" in cell):
        return {"type": "python", "value": cell.partition(":")[2].strip()}
    if cell.startswith("file://") and cell.endswith((".js", ".ts", ".mjs", ".cjs")):
        return {"type": "javascript", "value": cell}
    found = _CELL.match(cell)
    if found is None:
        return {"type": "equals", "value": cell}
    name, value = found["type"], found["value"]
    full = f"{found['inverse'] or ''}{name}"
    if name in _LISTED:
        return {"type": full, "value": parse_commas(value) if value else value}
    if name in ("contains-json", "is-json"):
        return {"type": full, "value": value}
    assertion: dict[str, Any] = {"type": full, "value": None if value is None else value.strip()}
    if name in _THRESHOLD:
        assertion["threshold"] = float(found["threshold"]) if found["threshold"] else 0.75
    return assertion


def default_of(document: Document, request: ImportRequest) -> tuple[Mapping[str, Any], Sequence[str | int], Place]:
    """The default test, with its location. Raises NoText, Outside and ConfigError."""
    given = document.data.get("defaultTest")
    if isinstance(given, str):
        path = below(document.path.parent, given.removeprefix("file://"), anywhere=request.anywhere)
        if path.suffix not in (".yaml", ".yml", ".json"):
            raise NoText("it is a program")
        other = read_yaml(path)
        return _mapping(other.data), [], other.where
    return _mapping(given), ["defaultTest"], document.where


def combinations(variables: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """A variable that is a list of texts stands for a test each."""
    many = [
        value if isinstance(value, list) and value and isinstance(value[0], str) else [value]
        for value in variables.values()
    ]
    for values in product(*many):
        yield dict(zip(variables, values, strict=True))


def load_file(folder: Path, name: str, request: ImportRequest) -> Any:
    """The content of a named file: data of YAML or JSON, else text. Raises NoText."""
    bare = name.removeprefix("file://")
    if (bare.rpartition(":")[0] or bare).endswith((*_PROGRAMS, ".rb")) or bare.endswith((*_PROGRAMS, ".rb")):
        raise NoText("it runs a program, which no import does")
    try:
        path = below(folder, bare, anywhere=request.anywhere)
        if path.suffix in (".yaml", ".yml"):
            return read_yaml(path).data
        return read_json(path) if path.suffix == ".json" else read_text(path).strip()
    except (Outside, ConfigError) as error:
        raise NoText(str(error)) from None
