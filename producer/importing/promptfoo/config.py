"""A promptfoo configuration: prompts x tests as cases, providers as targets."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from evalq.evalcore.errors import ConfigError
from evalq.producer.importing.imported import Imported, ImportRequest
from evalq.producer.importing.promptfoo.assertions import OTHER_GRADER, checks_of
from evalq.producer.importing.promptfoo.counterparts import Setting
from evalq.producer.importing.promptfoo.judges import GRADERS
from evalq.producer.importing.promptfoo.prompts import Prompt, filled, matches, prompts_of
from evalq.producer.importing.promptfoo.providers import add_target
from evalq.producer.importing.promptfoo.references import resolved
from evalq.producer.importing.promptfoo.tests import Test, combinations, default_of, load_file, tests_of
from evalq.producer.importing.promptfoo.texts import NoText, slug
from evalq.producer.importing.reading import Document, Outside, read_yaml

__all__ = ["MOST_CASES", "read_config", "tags_of", "threshold_of"]

MOST_CASES = 1_000_000
"""So many cases one import makes at most: a few lists of variables multiply to any number."""
_READ = {"description", "prompts", "providers", "targets", "tests", "defaultTest", "scenarios", "$schema"}
_OPTIONS = {"prefix", "suffix", "disableDefaultAsserts", "disableVarExpansion"}
_TEST = {"description", "vars", "assert", "options", "metadata", "threshold", "prompts", "providerOutput"}
_WHY = {
    "evaluateOptions": "how often and how fast is said when the sweep starts: --repeat, and limits in the targets file",
    "commandLineOptions": "options of evalq's commands take their place",
    "env": "variables of the environment are set where the worker starts",
    "redteam": "it generates attacks with a model",
    "nunjucksFilters": "they are programs",
    "extensions": "they are programs",
    "derivedMetrics": "evalq computes nothing from the names of metrics",
}
_TEST_WHY = {
    "provider": "give the target when the sweep starts",
    "providers": "give the target when the sweep starts",
    "assertScoringFunction": "it is a program",
}


def read_config(path: Path, asked: ImportRequest, imported: Imported) -> None:
    """Fill ``imported`` from a configuration. Raises ConfigError for what is none."""
    if path.suffix in (".js", ".ts", ".mjs", ".cjs", ".py"):
        raise ConfigError(f"{path}: a program, which no import runs: import what promptfoo eval -o results.json writes")
    document = read_yaml(path)
    if not isinstance(document.data, dict):
        raise ConfigError(f"{path}: the top level must be a mapping, as in promptfooconfig.yaml")
    document.data = resolved(document, asked, imported)
    for key in document.data:
        # What others refer to by $ref may have any name.
        if (key not in _READ and not isinstance(document.data[key], dict | list)) or key in _WHY:
            imported.note("none", document.where([str(key)]), str(key), _WHY.get(str(key), "evalq has no such setting"))
    calls = _Suite(document, asked, imported).read()
    for name in ("providers", "targets"):
        given = document.data.get(name)
        for index, provider in enumerate(given if isinstance(given, list) else [] if given is None else [given]):
            add_target(imported, provider, document.where([name, index]), calls)


class _Suite:
    def __init__(self, document: Document, asked: ImportRequest, imported: Imported) -> None:
        self._document, self._asked, self._imported = document, asked, imported
        self._folder = document.path.parent
        self._prompts = prompts_of(document, imported, asked)
        self._made = 0
        self._calls: list[Mapping[str, Any]] = []
        try:
            self._default, self._default_keys, self._default_place = default_of(document, asked)
        except (NoText, Outside, ConfigError) as error:
            imported.note("none", document.where(["defaultTest"]), "defaultTest", str(error))
            self._default, self._default_keys, self._default_place = {}, [], document.where

    def read(self) -> list[Mapping[str, Any]]:
        """Add the cases; the variables of each."""
        for test in tests_of(self._document, self._imported, self._asked):
            self._test(test)
        return self._calls

    def _test(self, test: Test) -> None:
        options = {**_mapping(self._default.get("options")), **_mapping(test.data.get("options"))}
        self._leftovers(test, options)
        try:
            variables = {**self._vars(self._default.get("vars")), **self._vars(test.data.get("vars"))}
        except NoText as error:
            self._imported.note("none", test.where(), "vars", str(error))
            return
        alone = options.get("disableVarExpansion") is True
        name = slug(str(test.data.get("description") or ""))
        sizes = [len(value) for value in variables.values() if isinstance(value, list) and value and not alone]
        self._made += math.prod(sizes) * len(self._prompts)
        if self._made > MOST_CASES:
            raise ConfigError(f"{self._document.path}: prompts and variables multiply to more than {MOST_CASES} cases")
        wanted = test.data.get("prompts", self._default.get("prompts"))
        prompts = [prompt for prompt in self._prompts if matches(prompt, wanted)]
        if not prompts and self._prompts:
            self._imported.note("none", test.where(), "prompts", "no prompt has the label that it asks for", name)
        for each in [variables] if alone else combinations(variables):
            for prompt in prompts:
                self._case(name, test, options, each, prompt)

    def _case(self, name: str, test: Test, options: Mapping[str, Any], given: dict[str, Any], prompt: Prompt) -> None:
        where = test.where()
        try:
            variables = {key: self._variable(value) for key, value in given.items()}
            around = (str(options.get("prefix") or ""), str(options.get("suffix") or ""))
            value = filled(prompt.template, variables, around)
        except NoText as error:
            self._imported.note("none", where, "a prompt", str(error), name)
            return
        checks, lost = self._checks(test, options, variables)
        case: dict[str, Any] = {"id": name or "test", "input": value, "checks": checks}
        threshold_of(case, test.data.get("threshold", self._default.get("threshold")), lost, where, self._imported)
        tags = tags_of({**_mapping(self._default.get("metadata")), **_mapping(test.data.get("metadata"))})
        if len(self._prompts) > 1:
            tags.append(f"prompt:{slug(prompt.label) or prompt.label[:60]}")
        if tags:
            case["tags"] = tags
        identity = self._imported.add_case(case, where, self._asked, named=bool(name))
        if identity:
            self._calls.append(variables)
        recorded = test.data.get("providerOutput")
        if identity and recorded not in (None, ""):
            self._imported.add_output("outputs", identity, {"output": recorded})

    def _checks(
        self, test: Test, options: Mapping[str, Any], variables: Mapping[str, Any]
    ) -> tuple[list[dict[str, Any]], bool]:
        program = options.get("transform") or options.get("postprocess")
        setting = Setting(variables, lambda name: load_file(self._folder, name, self._asked), program)
        shared = [] if options.get("disableDefaultAsserts") is True else _list(self._default.get("assert"))
        own = _list(test.data.get("assert"))
        listed = [
            (each, [*self._default_keys, "assert", index], self._default_place) for index, each in enumerate(shared)
        ]
        listed += [(each, [*test.keys, "assert", index], test.place) for index, each in enumerate(own)]
        checks, _, lost = checks_of(listed, setting, self._imported)
        return checks, lost

    def _vars(self, given: Any) -> Mapping[str, Any]:
        if isinstance(given, str) or (isinstance(given, list) and all(isinstance(each, str) for each in given)):
            files = [
                load_file(self._folder, name, self._asked) for name in ([given] if isinstance(given, str) else given)
            ]
            given = {key: value for file in files if isinstance(file, Mapping) for key, value in file.items()}
        return {str(key): value for key, value in given.items()} if isinstance(given, Mapping) else {}

    def _variable(self, value: Any) -> Any:
        if not isinstance(value, str):
            return value
        if value.startswith("file://"):
            loaded = load_file(self._folder, value, self._asked)
            if not isinstance(loaded, str):
                return json.dumps(loaded, ensure_ascii=False, separators=(",", ":"), default=str)
            return loaded
        return value.removesuffix("\n")

    def _leftovers(self, test: Test, options: Mapping[str, Any]) -> None:
        for key in sorted(set(map(str, test.data)) - _TEST):
            why = _TEST_WHY.get(key, "evalq's cases have no such key")
            self._imported.note("none", test.place([*test.keys, key]), key, why)
        for key in sorted(set(map(str, options)) - _OPTIONS - {"transform", "postprocess"}):
            place = test.place([*test.keys, "options", key])
            if key in GRADERS:
                self._imported.note("differs", place, f"options.{key}", OTHER_GRADER)
                continue
            why = "--repeat says it when the sweep starts" if key == "repeat" else "evalq's cases have no such option"
            self._imported.note("none", place, f"options.{key}", why)


def threshold_of(case: dict[str, Any], least: Any, lost: bool, where: str, imported: Imported) -> None:
    """Put a test's threshold into its case, and note where it is over other checks than promptfoo's."""
    if isinstance(least, bool) or not isinstance(least, int | float):
        return
    if not 0 <= least <= 1:
        imported.note(
            "none", where, "threshold", "a score is from 0 to 1: with this threshold the test always ends the same"
        )
        return
    if case["checks"] and not any(check.get("weight", 1) for check in case["checks"]):
        imported.note("differs", where, "threshold", "no check has a weight: promptfoo's score is 0 then, evalq's 1")
    case["thresholds"] = {"score": least}
    if lost:
        imported.note("differs", where, "threshold", "it is over the checks that have a counterpart alone")


def tags_of(metadata: Mapping[str, Any]) -> list[str]:
    """A test's metadata as tags, `key:value`."""
    tags: list[str] = []
    for key, value in metadata.items():
        for each in value if isinstance(value, list) else [value]:
            if isinstance(each, str | int | float) and not str(key).startswith(("_promptfoo", "conversationId")):
                tags.append(f"{key}:{each}")  # noqa: PERF401 - two loops and a condition in one line say nothing
    return tags


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []
