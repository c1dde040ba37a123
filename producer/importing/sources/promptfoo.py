"""promptfoo: a configuration, or the results of an evaluation."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from evalq.evalcore.errors import ConfigError
from evalq.producer.importing.imported import Imported, ImportRequest, verdict_of
from evalq.producer.importing.promptfoo.assertions import Setting, checks_of, graded
from evalq.producer.importing.promptfoo.config import filled, read_config, tags_of, threshold_of
from evalq.producer.importing.promptfoo.providers import add_target, harmless_name
from evalq.producer.importing.promptfoo.tests import load_file
from evalq.producer.importing.promptfoo.texts import slug
from evalq.producer.importing.reading import Document, read_json

# The output of `promptfoo eval -o results.json`: cases with their final prompts, and every answer.


def _is_results(data: Any) -> bool:
    """Whether a JSON value is promptfoo's results of an evaluation."""
    return isinstance(data, dict) and isinstance(data.get("results"), dict) and "results" in data["results"]


def _read_results(path: Path, data: dict[str, Any], request: ImportRequest, imported: Imported) -> None:
    """Fill ``imported`` from an evaluation's results. Raises ConfigError for other values."""
    document = Document(path, data)
    rows = data["results"]["results"]
    if not isinstance(rows, list):
        raise ConfigError(f"{path}: results.results: must be a list")
    config = data.get("config")
    providers = config.get("providers", config.get("targets")) if isinstance(config, Mapping) else None
    reader = _Rows(document, request, imported)
    for index, row in enumerate(rows):
        reader.add(row, ["results", "results", index])
    for index, provider in enumerate(providers if isinstance(providers, list) else []):
        add_target(imported, provider, document.where(["config", "providers", index]), reader.calls)


class _Rows:
    def __init__(self, document: Document, request: ImportRequest, imported: Imported) -> None:
        self._document, self._request, self._imported = document, request, imported
        self._ids: dict[str, str] = {}
        self._kept: dict[str, list[Any]] = {}
        self.calls: list[Mapping[str, Any]] = []

    def add(self, row: Any, keys: Sequence[str | int]) -> None:
        """Add a row: the case, if it is new, and the answer."""
        where = self._document.where(keys)
        test = row.get("testCase") if isinstance(row, Mapping) else None
        if not isinstance(row, Mapping) or not isinstance(test, Mapping):
            self._imported.note("none", where, "a result", "it has no testCase")
            return
        prompt = _part(row, "prompt").get("raw")
        variables = _part(row, "vars") or _part(test, "vars")
        key = json.dumps([prompt, variables, test.get("assert"), test.get("threshold")], sort_keys=True)
        if key not in self._ids:
            self._ids[key] = self._case(row, test, prompt, variables, keys)
        identity = self._ids[key]
        if identity:
            provider = _part(row, "provider")
            name = harmless_name(str(provider.get("label") or provider.get("id") or "outputs"))
            verdicts = _verdicts(row, test, self._kept[identity])
            self._imported.add_output(name, identity, _answer(row), verdicts)

    def _case(
        self,
        row: Mapping[str, Any],
        test: Mapping[str, Any],
        prompt: Any,
        variables: Mapping[str, Any],
        keys: Sequence[str | int],
    ) -> str:
        where = self._document.where(keys)
        name = slug(str(test.get("description") or ""))
        setting = Setting(variables, lambda name: load_file(self._document.path.parent, name, self._request))
        asserts = test.get("assert")
        listed = [
            (each, [*keys, "testCase", "assert", index], self._document.where)
            for index, each in enumerate(asserts if isinstance(asserts, list) else [])
        ]
        checks, kept, lost = checks_of(listed, setting, self._imported)
        case: dict[str, Any] = {"id": name or "test", "checks": checks}
        if isinstance(prompt, str):
            # Already filled in: anything that looks like a template is from a variable.
            case["input"] = _prompt_input(prompt)
        threshold_of(case, test.get("threshold"), lost, where, self._imported)
        for key in ("assertScoringFunction",):
            if key in test:
                self._imported.note("none", where, key, "it is a program")
        tags = tags_of(_part(test, "metadata"))
        case |= {"tags": tags} if tags else {}
        identity = self._imported.add_case(case, where, self._request, named=bool(name))
        self._kept[identity] = kept
        if identity:
            self.calls.append(variables)
        return identity


def _verdicts(row: Mapping[str, Any], test: Mapping[str, Any], kept: Sequence[Any]) -> list[bool | None]:
    """promptfoo's verdict on each imported assertion (``kept``) of a test; None if the row does not have it.

    componentResults are in the order of the assertions; the parts of a set follow it.
    """
    parts = _part(row, "gradingResult").get("componentResults")
    waiting = [part for part in parts if isinstance(part, Mapping)] if isinstance(parts, list) else []
    if row.get("failureReason") == 2:
        waiting = []
    verdicts: list[tuple[Any, bool | None]] = []
    asserts = test.get("assert")
    for assertion in asserts if isinstance(asserts, list) else []:
        found = _part(waiting[0], "assertion") if waiting else {}
        inner = assertion.get("assert") if isinstance(assertion, Mapping) else None
        is_set = isinstance(inner, list) and bool(waiting) and "assertionSet" in _part(waiting[0], "metadata")
        same = isinstance(assertion, Mapping) and bool(found) and found.get("type") == assertion.get("type")
        if not (is_set or same):
            verdicts.append((assertion, None))
            continue
        verdicts.append((assertion, verdict_of(waiting[0].get("pass"))))
        waiting = waiting[1 + (len(inner) if is_set and isinstance(inner, list) else 0) :]
    # No verdict of a grader: evalq's judge has not judged the output.
    return [
        None
        if graded(wanted)
        else next((verdict for each, verdict in verdicts if each is wanted or each == wanted), None)
        for wanted in kept
    ]


def _prompt_input(prompt: str) -> Any:
    return filled(prompt, {}) if "{{" not in prompt and "{%" not in prompt and "{#" not in prompt else prompt


def _answer(row: Mapping[str, Any]) -> dict[str, Any]:
    """A line of recorded outputs."""
    response = _part(row, "response")
    line: dict[str, Any] = {}
    error = response.get("error") or (row.get("error") if row.get("failureReason") == 2 or not response else None)
    if error or "output" not in response:
        line["error"] = str(error or "no output was recorded")
    else:
        line["output"] = response["output"]
    latency, cost = row.get("latencyMs"), response.get("cost", row.get("cost"))
    # The latency of a cached answer is meaningless.
    if isinstance(latency, int | float) and _amount(latency) and response.get("cached") is not True:
        line["latency_seconds"] = latency / 1000
    if _amount(cost):
        line["cost"] = cost
    if isinstance(response.get("finishReason"), str):
        line["finish"] = response["finishReason"].lower()
    usage = _part(response, "tokenUsage")
    for key in ("prompt", "completion"):
        if isinstance(usage.get(key), int) and usage[key] > 0:
            line[f"{key}_tokens"] = usage[key]
    return line


def _amount(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and value >= 0


def _part(holder: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    found = holder.get(key)
    return found if isinstance(found, Mapping) else {}


def read(path: Path, request: ImportRequest, imported: Imported) -> None:
    """Fill ``imported`` from promptfooconfig.yaml or results.json. Raises ConfigError."""
    data = read_json(path) if path.suffix == ".json" else None
    if isinstance(data, dict) and _is_results(data):
        _read_results(path, data, request, imported)
    else:
        read_config(path, request, imported)
