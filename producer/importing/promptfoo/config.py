"""A promptfoo configuration: prompts x tests as cases, providers as targets."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from evalq.evalcore.errors import ConfigError
from evalq.evalcore.records.yaml import DocumentFault, read_document
from evalq.producer.importing.imported import Imported, ImportRequest
from evalq.producer.importing.promptfoo.assertions import GRADERS, OTHER_GRADER, Setting, checks_of
from evalq.producer.importing.promptfoo.providers import add_target
from evalq.producer.importing.promptfoo.tests import Test, combinations, default_of, load_file, tests_of
from evalq.producer.importing.promptfoo.texts import NoText, rendered, slug
from evalq.producer.importing.reading import (
    Document,
    Outside,
    below,
    csv_rows,
    globbed,
    read_json,
    read_text,
    read_yaml,
)

# `$ref` in a configuration: to another part of it, or to a file of data beside it.

_DEEPEST = 100
_MOST = 2_000_000
_SHOWN = 8
"""Keys of a long key path that a note shows."""


class _Unresolved(ValueError):
    """A reference to nothing, or to itself."""


def _resolved(document: Document, request: ImportRequest, imported: Imported) -> dict[str, Any]:
    """The configuration with every `$ref` replaced; adds a note for one that cannot be."""
    walker = _Walker(document, request, imported)
    made: dict[str, Any] = walker.value(document.data, document, [], ())
    return made


class _Walker:
    def __init__(self, document: Document, request: ImportRequest, imported: Imported) -> None:
        self._request, self._imported = request, imported
        self._files: dict[str, Document] = {str(document.path.resolve()): document}
        self._folder = document.path.parent
        self._count = 0

    def value(self, value: Any, document: Document, keys: list[str | int], above: tuple[str, ...]) -> Any:
        self._count += 1
        if self._count > _MOST:
            raise ConfigError(f"{document.path}: has more than {_MOST} values with its references written out")
        if len(keys) > _DEEPEST:
            why = f"nested deeper than {_DEEPEST} levels: what lies further in is left out"
            self._imported.note("none", document.where(keys[:_SHOWN]), "what stands below it", why)
            return None
        if isinstance(value, Mapping):
            name = value.get("$ref")
            if isinstance(name, str) and "properties" not in keys:
                try:
                    return self._named(name, value, document, keys, above)
                except (_Unresolved, Outside, ConfigError) as error:
                    self._imported.note("none", document.where([*keys, "$ref"]), f"$ref {name}", str(error))
                    return {}
            return {key: self.value(each, document, [*keys, str(key)], above) for key, each in value.items()}
        if isinstance(value, list):
            return [self.value(each, document, [*keys, index], above) for index, each in enumerate(value)]
        return value

    def _named(
        self, name: str, value: Mapping[str, Any], document: Document, keys: list[str | int], above: tuple[str, ...]
    ) -> Any:
        file, _, pointer = name.partition("#")
        if "://" in file and not file.startswith("file://"):
            raise _Unresolved("it is kept by another service")
        other = self._file(file.removeprefix("file://")) if file else document
        token = f"{other.path}#{pointer}"
        if token in above:
            raise _Unresolved("it leads round to itself")
        found: Any = other.data
        for part in filter(None, pointer.split("/")):
            part = part.replace("~1", "/").replace("~0", "~")
            if isinstance(found, Mapping) and part in found:
                found = found[part]
            elif isinstance(found, list) and part.isdigit() and int(part) < len(found):
                found = found[int(part)]
            else:
                raise _Unresolved(f"nothing is at {part}")
        made = self.value(found, other, keys, (*above, token))
        extra = {key: self.value(each, document, keys, above) for key, each in value.items() if key != "$ref"}
        return {**made, **extra} if extra and isinstance(made, Mapping) else made

    def _file(self, name: str) -> Document:
        path = below(self._folder, name, anywhere=self._request.anywhere)
        if str(path) not in self._files:
            self._files[str(path)] = read_yaml(path)
        return self._files[str(path)]


# The prompts of a promptfoo configuration, and how one is filled with variables.

_PROGRAMS = (".js", ".ts", ".mjs", ".cjs", ".py", ".sh", ".rb", ".go")
_TEXTS = (".txt", ".md", ".j2", ".json", ".jsonl", ".yaml", ".yml", ".csv")


class PromptFile(NamedTuple):
    """A prompt's label and template, and its location."""

    label: str
    template: str
    where: str


def _prompts_of(document: Document, imported: Imported, request: ImportRequest) -> list[PromptFile]:
    """The prompts of a configuration; those that are programs are noted."""
    given = document.data.get("prompts")
    entries: list[tuple[Any, str]]
    if isinstance(given, Mapping):
        # The old form: files with their labels.
        entries = [({"id": key, "label": label}, document.where(["prompts", str(key)])) for key, label in given.items()]
    else:
        listed = given if isinstance(given, list) else [given] if given is not None else ["{{prompt}}"]
        entries = [(each, document.where(["prompts", index])) for index, each in enumerate(listed)]
    found: list[PromptFile] = []
    for entry, where in entries:
        try:
            found += _entry(entry, where, document.path.parent, request)
        except (NoText, Outside, ConfigError) as error:
            imported.note("none", where, "prompt", str(error))
    return found


def _entry(entry: Any, where: str, folder: Path, request: ImportRequest) -> Iterator[PromptFile]:
    label = ""
    if isinstance(entry, Mapping):
        label = str(entry.get("label") or "")
        entry = entry.get("raw") or entry.get("file") or entry.get("id") or entry.get("template")
    if not isinstance(entry, str):
        raise NoText("a prompt is a text, or names a file")
    name = entry.removeprefix("file://")
    program = name.rpartition(":")[0] or name
    if program.endswith(_PROGRAMS) or entry.startswith("exec:"):
        raise NoText("it is a program, which no import runs: record its prompts with promptfoo eval -o results.json")
    if entry.startswith(("langfuse://", "portkey://", "helicone://", "http://", "https://")):
        raise NoText("it is kept by another service")
    if entry.startswith("file://") or (name.endswith(_TEXTS) and "\n" not in name and "{{" not in name):
        yield from _of_files(folder, name, label, where, request)
    else:
        yield PromptFile(label or entry, entry, where)


def _of_files(folder: Path, name: str, label: str, where: str, request: ImportRequest) -> Iterator[PromptFile]:
    below(folder, name, anywhere=request.anywhere)
    many = any(sign in name for sign in "*?[") and not Path(name).is_absolute()
    paths = globbed(folder, name, anywhere=request.anywhere) if many else None
    for path in [below(folder, name, anywhere=request.anywhere)] if paths is None else paths:
        path = below(folder, str(path.resolve()), anywhere=request.anywhere)
        for index, text in enumerate(_texts(path)):
            yield PromptFile(label or f"{path.name}{f' {index + 1}' if index else ''}", text, where)


def _texts(path: Path) -> list[str]:
    if path.suffix == ".csv":
        return [row["prompt"] for _, row in csv_rows(path) if row.get("prompt")]
    if path.suffix == ".jsonl":
        return [line for line in read_text(path).split("\n") if line.strip()]
    if path.suffix == ".json":
        return [json.dumps(read_json(path), ensure_ascii=False)]
    if path.suffix in (".yaml", ".yml"):
        return [json.dumps(read_yaml(path).data, ensure_ascii=False, default=str)]
    text = read_text(path)
    if path.suffix == ".txt":
        return [part.strip() for part in text.replace("\r\n", "\n").split("\n---\n") if part.strip()]
    return [text]


def _matches(prompt: PromptFile, wanted: Any) -> bool:
    """Whether a test that lists the prompts ``wanted`` (None: all) is for this one."""
    if not isinstance(wanted, list):
        return True
    return any(
        prompt.label == each
        or prompt.label.startswith(f"{each}:")
        or (str(each).endswith("*") and prompt.label.startswith(str(each)[:-1]))
        for each in wanted
    )


def filled(template: str, variables: Mapping[str, Any], around: Sequence[str] = ("", "")) -> Any:
    """The input that a prompt makes: a text, or chat messages where it is a list of them. Raises NoText."""
    before, after = around
    try:
        data = json.loads(template) if template.lstrip()[:1] in ("[", "{") and not (before or after) else None
    except (ValueError, RecursionError):
        data = None
    if isinstance(data, dict | list):
        value = _inside(data, variables)
        return value if _messages(value) else json.dumps(value, ensure_ascii=False, indent=2)
    text = rendered(before, variables) + rendered(template, variables) + rendered(after, variables)
    return _chat(text) or text


def _chat(text: str) -> Any:
    """The chat messages that a text is, in JSON or YAML; None where it is none. Raises NoText."""
    start = text.lstrip()
    if start.startswith("- role:"):
        try:
            value = read_document(text, "prompt.yaml")
        except DocumentFault as error:
            raise NoText(f"a chat that is not YAML: {error}") from None
    elif start.startswith("["):
        try:
            value = json.loads(text)
        except (ValueError, RecursionError):
            return None
    else:
        return None
    return value if _messages(value) else None


def _inside(value: Any, variables: Mapping[str, Any]) -> Any:
    if isinstance(value, str):
        return rendered(value, variables)
    if isinstance(value, dict):
        return {key: _inside(each, variables) for key, each in value.items()}
    if isinstance(value, list):
        return [_inside(each, variables) for each in value]
    return value


def _messages(value: Any) -> bool:
    return (
        isinstance(value, list)
        and bool(value)
        and all(isinstance(each, dict) and isinstance(each.get("role"), str) and "content" in each for each in value)
    )


MOST_CASES = 1_000_000
"""The most cases of an import: lists of variables multiply."""
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


def read_config(path: Path, request: ImportRequest, imported: Imported) -> None:
    """Fill ``imported`` from a configuration. Raises ConfigError for other files."""
    if path.suffix in (".js", ".ts", ".mjs", ".cjs", ".py"):
        raise ConfigError(f"{path}: a program, which no import runs: import what promptfoo eval -o results.json writes")
    document = read_yaml(path)
    if not isinstance(document.data, dict):
        raise ConfigError(f"{path}: the top level must be a mapping, as in promptfooconfig.yaml")
    document.data = _resolved(document, request, imported)
    for key in document.data:
        # Parts that a $ref names may have any key.
        if (key not in _READ and not isinstance(document.data[key], dict | list)) or key in _WHY:
            imported.note("none", document.where([str(key)]), str(key), _WHY.get(str(key), "evalq has no such setting"))
    calls = _Suite(document, request, imported).read()
    for name in ("providers", "targets"):
        given = document.data.get(name)
        for index, provider in enumerate(given if isinstance(given, list) else [] if given is None else [given]):
            add_target(imported, provider, document.where([name, index]), calls)


class _Suite:
    def __init__(self, document: Document, request: ImportRequest, imported: Imported) -> None:
        self._document, self._request, self._imported = document, request, imported
        self._folder = document.path.parent
        self._prompts = _prompts_of(document, imported, request)
        self._made = 0
        self._calls: list[Mapping[str, Any]] = []
        try:
            self._default, self._default_keys, self._default_place = default_of(document, request)
        except (NoText, Outside, ConfigError) as error:
            imported.note("none", document.where(["defaultTest"]), "defaultTest", str(error))
            self._default, self._default_keys, self._default_place = {}, [], document.where

    def read(self) -> list[Mapping[str, Any]]:
        """Add the cases; the variables of each."""
        for test in tests_of(self._document, self._imported, self._request):
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
        prompts = [prompt for prompt in self._prompts if _matches(prompt, wanted)]
        if not prompts and self._prompts:
            self._imported.note("none", test.where(), "prompts", "no prompt has the label that it asks for", name)
        for each in [variables] if alone else combinations(variables):
            for prompt in prompts:
                self._case(name, test, options, each, prompt)

    def _case(
        self, name: str, test: Test, options: Mapping[str, Any], given: dict[str, Any], prompt: PromptFile
    ) -> None:
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
        identity = self._imported.add_case(case, where, self._request, named=bool(name))
        if identity:
            self._calls.append(variables)
        recorded = test.data.get("providerOutput")
        if identity and recorded not in (None, ""):
            self._imported.add_output("outputs", identity, {"output": recorded})

    def _checks(
        self, test: Test, options: Mapping[str, Any], variables: Mapping[str, Any]
    ) -> tuple[list[dict[str, Any]], bool]:
        program = options.get("transform") or options.get("postprocess")
        setting = Setting(variables, lambda name: load_file(self._folder, name, self._request), program)
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
                load_file(self._folder, name, self._request) for name in ([given] if isinstance(given, str) else given)
            ]
            given = {key: value for file in files if isinstance(file, Mapping) for key, value in file.items()}
        return {str(key): value for key, value in given.items()} if isinstance(given, Mapping) else {}

    def _variable(self, value: Any) -> Any:
        if not isinstance(value, str):
            return value
        if value.startswith("file://"):
            loaded = load_file(self._folder, value, self._request)
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
    """Put a test's threshold into its case, and note if it is over other checks than promptfoo's."""
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
