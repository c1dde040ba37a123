"""DeepEval: goldens and test cases as datasets save them (.json, .jsonl, .csv), and the record of a test run."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec

from evalq.evalcore.errors import ConfigError
from evalq.evalcore.records.tool_calls import recorded_call
from evalq.producer.importing.imported import Imported, ImportRequest, cut, verdict_of
from evalq.producer.importing.reading import csv_rows, read_json, read_lines

_PROGRAMS = ("Pattern Match", "Json Correctness")
_DROPPED = ("context", "retrieval_context", "comments", "expectations", "source_file", "mcp_servers", "multimodal")
_TOOK: Mapping[str, tuple[str, type[int] | type[float]]] = {
    "token_cost": ("cost", float),
    "completion_time": ("latency_seconds", float),
    "input_token_count": ("prompt_tokens", int),
    "output_token_count": ("completion_tokens", int),
}
"""{their name: (name in recorded outputs, type)}."""
_NUMBERED = re.compile(r"(?:conversational_)?test_case_\d+")
"""DeepEval's names for test cases without one."""
_MOST = 1e15
"""Recorded outputs have smaller amounts."""
_JSON_CELLS = ("tools_called", "expected_tools", "additional_metadata", "custom_column_key_values")


def read(path: Path, request: ImportRequest, imported: Imported) -> None:
    """Fill ``imported`` from a dataset or a test run. Raises ConfigError for other files."""
    reader = _CaseReader(imported, request)
    for where, given in _entries(path, imported):
        if isinstance(given, Mapping) and isinstance(given.get("input"), str):
            reader.add({_snake(str(key)): value for key, value in given.items()}, where)
        else:
            what = "a conversation" if isinstance(given, Mapping) and "turns" in given else "an entry"
            imported.note("none", where, what, "evalq's cases have an input of their own, and one answer to it")


def _entries(path: Path, imported: Imported) -> Iterator[tuple[str, Any]]:
    """(location, golden or test case) of a file, by its suffix."""
    if path.suffix == ".csv":
        for line, row in csv_rows(path):
            yield f"{path}:{line}", {key: _cell(key, text) for key, text in row.items() if text}
    elif path.suffix == ".jsonl":
        for line, value in read_lines(path):
            yield f"{path}:{line}", value
    else:
        data = read_json(path)
        run = data.get("testRunData", data) if isinstance(data, dict) else data
        cases = run.get("testCases") if isinstance(run, dict) else run
        if not isinstance(cases, list):
            raise ConfigError(f"{path}: neither a list of goldens nor a test run with testCases")
        at = "" if cases is data else "testCases"
        for index, case in enumerate(cases):
            yield f"{path}: {at}[{index}]", case
        turns = run.get("conversationalTestCases") if isinstance(run, dict) else None
        for index, _ in enumerate(turns if isinstance(turns, list) else []):
            why = "evalq's cases have an input of their own, and one answer to it"
            imported.note("none", f"{path}: conversationalTestCases[{index}]", "a conversation", why)


def _cell(key: str, text: str) -> Any:
    if key not in _JSON_CELLS:
        return text
    try:
        return msgspec.json.decode(text)
    except msgspec.DecodeError:
        return text


def _tools_of(text: str) -> Any:
    """Tools in a text: JSON, or names separated by ; as DeepEval reads CSV."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        pass
    # The printed form of Python objects is not a list of names.
    if any(sign in text for sign in "[]{}()="):
        return text
    return [name for part in text.split(";") if (name := part.strip())]


def _snake(name: str) -> str:
    """A field's name in snake case: test runs write actualOutput."""
    return "".join(f"_{sign.lower()}" if sign.isupper() else sign for sign in name)


class _CaseReader:
    def __init__(self, imported: Imported, request: ImportRequest) -> None:
        self._imported, self._request = imported, request

    def add(self, given: dict[str, Any], where: str) -> None:
        """Add a golden or a test case as a case, with its output, if any."""
        name = given.get("name")
        named = isinstance(name, str) and bool(name) and not _NUMBERED.fullmatch(name)
        case: dict[str, Any] = {"id": name if named else "case", "input": given["input"]}
        if isinstance(given.get("expected_output"), str):
            case["expected"] = given["expected_output"]
        checks = [*self._metrics(given, where), *((check, None) for check in self._tools(given, where))]
        case["checks"] = [check for check, _ in checks]
        tags = self._tags(given)
        if tags:
            case["tags"] = tags
        for key in _DROPPED:
            if given.get(key):
                self._imported.note("none", where, key, "no check of evalq looks at it")
        identity = self._imported.add_case(case, where, self._request, named=named)
        if identity and isinstance(given.get("actual_output"), str):
            self._imported.add_output(
                "outputs", identity, self._answer(given, where), [verdict for _, verdict in checks]
            )

    def _metrics(self, given: dict[str, Any], where: str) -> Iterator[tuple[dict[str, Any], bool | None]]:
        """The recorded metrics that have a check, each with its verdict."""
        listed = given.get("metrics_data")
        for index, metric in enumerate(listed if isinstance(listed, list) else []):
            name = str(metric.get("name")) if isinstance(metric, dict) else "a metric"
            location = f"{where}.metricsData[{index}]"
            if name == "Exact Match" and isinstance(given.get("expected_output"), str):
                # It ignores white space around both.
                check = {"equals": given["expected_output"], "trim": True, "name": name}
                yield check, verdict_of(metric.get("success"))
            elif name in _PROGRAMS:
                self._imported.note("none", location, name, "the file does not say what it compares with")
            elif name != "Tool Correctness":
                why = "a model judges, or code of yours: write a check rubric, factual or score"
                self._imported.note("later", location, name, why)

    def _tools(self, given: dict[str, Any], where: str) -> Iterator[dict[str, Any]]:
        names = [call["name"] for call in self._calls(given, "expected_tools", where) or ()]
        if names:
            yield {"tool-calls": names}
            why = "all of these tools have to be called; Tool Correctness passes from a share on"
            self._imported.note("differs", where, "expected_tools", why)

    def _calls(self, given: Mapping[str, Any], key: str, where: str) -> list[dict[str, Any]] | None:
        """The tools under ``key``: a list, its JSON as text, or names separated by ;. None without any."""
        tools = given.get(key)
        if isinstance(tools, str):
            tools = _tools_of(tools)
        if isinstance(tools, dict):
            tools = [tools]
        if not isinstance(tools, list):
            if tools is not None:
                self._imported.note("none", where, key, "it is neither a list of tools nor one as text")
            return None
        calls = []
        for tool in tools:
            call = recorded_call(tool) if isinstance(tool, str | dict) else {}
            if call.get("name"):
                calls.append(call)
            else:
                self._imported.note("none", where, f"{key}: a tool", "it has no name")
        return calls

    def _tags(self, given: Mapping[str, Any]) -> list[str]:
        listed = given.get("tags")
        tags = [tag for tag in (listed if isinstance(listed, list) else []) if isinstance(tag, str) and tag]
        for key in ("additional_metadata", "metadata", "custom_column_key_values"):
            values = given.get(key)
            if isinstance(values, dict):
                tags += [f"{name}:{value}" for name, value in values.items() if isinstance(value, str | int | float)]
        return tags[:50]

    def _answer(self, given: Mapping[str, Any], where: str) -> dict[str, Any]:
        line: dict[str, Any] = {"output": given["actual_output"]}
        calls = self._calls(given, "tools_called", where)
        if calls is not None:
            line["tool_calls"] = calls
        elif given.get("expected_tools"):
            line["tool_calls"] = []
        for theirs, (ours, kind) in _TOOK.items():
            value = given.get(theirs)
            if isinstance(value, bool) or not isinstance(value, int | float):
                continue
            if 0 <= value < _MOST:
                line[ours] = kind(value)
            else:
                self._imported.note("none", where, theirs, f"{cut(value)} is no amount that an answer can take")
        return line
