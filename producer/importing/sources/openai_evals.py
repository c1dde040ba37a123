"""OpenAI's evals: a hosted eval with the output items of a run, or YAML and samples of the registry.

The eval is the answer of ``GET /evals/ID``, an object with testing_criteria. The output items are the answer of
``GET /evals/ID/runs/RUN/output_items``, under output_items in the same file, or in output_items.json(l) beside it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from evalq.evalcore.errors import ConfigError
from evalq.evalcore.files import open_given
from evalq.producer.importing.imported import Imported, ImportRequest, Kind, same_case, verdict_of
from evalq.producer.importing.patterns import NoCounterpart, accepted
from evalq.producer.importing.reading import Document, Outside, below, read_json, read_lines, read_yaml

# OpenAI's public registry of evals (github.com/openai/evals): a YAML file of evals, and samples as lines of JSON.
# An eval's samples are in registry/data, beside registry/evals with the YAML, or below the YAML's folder. Classes are
# never run: some of evals.elsuite.basic become checks, and the others are listed by name.

_BASIC = "evals.elsuite.basic."
CLASSES: Mapping[str, str] = {
    f"{_BASIC}match:Match": "starts-with",
    f"{_BASIC}includes:Includes": "contains",
    f"{_BASIC}json_validator:JsonValidator": "is-json",
}
"""{class of an eval: its check}."""
_JUDGED = "evals.elsuite.modelgraded."
_ARGS = {"samples_jsonl", "max_tokens", "num_few_shot", "few_shot_jsonl", "ignore_case"}


def _read_registry(path: Path, request: ImportRequest, imported: Imported) -> None:
    """Fill ``imported`` from a YAML file of evals. Raises ConfigError for other files."""
    document = read_yaml(path)
    entries = document.data if isinstance(document.data, dict) else {}
    evals = {str(name): each for name, each in entries.items() if isinstance(each, dict) and "class" in each}
    if not evals:
        raise ConfigError(f"{path}: not a file of OpenAI's registry of evals: no entry has a class")
    for name, entry in evals.items():
        where = document.where([name])
        kind, args = str(entry["class"]), entry.get("args")
        args = args if isinstance(args, dict) else {}
        try:
            _require_known(kind, args)
            samples = _samples(document, args.get("samples_jsonl"), request)
        except (NoCounterpart, Outside) as error:
            judged = kind.startswith(_JUDGED)
            imported.note("later" if judged else "none", where, f"{name} ({kind})", str(error))
            continue
        _add(samples, name, (kind, args), request, imported)


def _read_samples(path: Path, request: ImportRequest, imported: Imported) -> None:
    """Fill ``imported`` from samples alone: which check they are for is said by ``asked``."""
    _add(path, path.parent.name or "sample", None, request, imported)


def _require_known(kind: str, args: Mapping[str, Any]) -> None:
    if kind.startswith(_JUDGED):
        raise NoCounterpart("a model judges: write a check rubric, factual or score")
    if kind not in CLASSES:
        raise NoCounterpart("evalq has no check that decides as this class does: write a check of your own")
    odd = sorted(map(str, args.keys() - _ARGS))
    if odd:
        raise NoCounterpart(f"it is given {odd[0]}, which evalq does not know")
    if args.get("num_few_shot"):
        raise NoCounterpart("it puts other samples before each of its questions: give prompts as they are asked")


def _samples(document: Document, name: Any, request: ImportRequest) -> Path:
    """The file of samples that an eval names. Raises NoCounterpart and Outside."""
    if not isinstance(name, str) or not name.endswith(".jsonl"):
        raise NoCounterpart("its samples_jsonl is no file of JSON lines")
    folder = document.path.parent
    data = folder.resolve().parent / "data"
    folders = [data, folder] if folder.resolve().name == "evals" else [folder]
    paths = [below(each, name, anywhere=request.anywhere) for each in folders]
    found = next((path for path in paths if path.is_file()), None)
    if found is None:
        raise NoCounterpart(f"its samples are at none of {', '.join(map(str, paths))}")
    return found


def _add(
    path: Path, name: str, judged_by: tuple[str, Mapping[str, Any]] | None, request: ImportRequest, imported: Imported
) -> None:
    for where, sample in _lines(path):
        given = sample.get("input") if isinstance(sample, dict) else None
        if not isinstance(given, str | list) or not given:
            imported.note("none", where, "a sample", "it has no input")
            continue
        ideal = sample.get("ideal")
        case: dict[str, Any] = {"id": name, "input": _registry_input(given)}
        if ideal is not None:
            case["expected"] = ideal[0] if isinstance(ideal, list) and len(ideal) == 1 else ideal
        if judged_by is not None:
            try:
                check = _check(*judged_by, ideal)
                accepted(check)
            except NoCounterpart as error:
                imported.note("none", where, f"{name}: its ideal", str(error))
                continue
            case["checks"] = [check]
        imported.add_case(case, where, request, named=False)


def _lines(path: Path) -> Iterator[tuple[str, Any]]:
    """(location, sample). Raises ConfigError, also for a pointer of Git LFS."""
    try:
        with open_given(path) as stream:
            pointer = stream.read(40).startswith(b"version https://git-lfs")
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read: {error.strerror}") from None
    if pointer:
        raise ConfigError(f"{path}: a pointer of Git LFS, not the samples: run git lfs pull")
    return ((f"{path}:{line}", sample) for line, sample in read_lines(path))


def _registry_input(given: str | list[Any]) -> Any:
    if isinstance(given, list) and all(isinstance(each, dict) for each in given):
        return [{"role": str(each.get("role")), "content": each.get("content")} for each in given]
    return given


def _check(kind: str, args: Mapping[str, Any], ideal: Any) -> dict[str, Any]:
    """The check of a class for a sample. Raises NoCounterpart."""
    name = CLASSES[kind]
    if name == "is-json":
        return {name: True}
    texts = ideal if isinstance(ideal, list) else [ideal]
    if not texts or not all(isinstance(text, str) and text for text in texts):
        raise NoCounterpart("it is no text, or an empty one, which every answer has")
    if name == "contains":
        check: dict[str, Any] = {name: texts[0]} if len(texts) == 1 else {"contains-any": texts}
        return check | ({"ignore-case": True} if args.get("ignore_case") else {})
    parts: list[dict[str, Any]] = [{name: text} for text in texts]
    return parts[0] if len(parts) == 1 else {"any": parts}


_NAME = re.compile(r"\{\{\s*item\.([A-Za-z0-9_.]+)\s*\}\}")
_OUTPUT = re.compile(r"\s*\{\{\s*sample\.(?:output_text|output_json(?:\.(?P<path>[A-Za-z0-9_.]+))?)\s*\}\}\s*")
_OPERATIONS = {"eq": "equals", "ne": "not-equals", "like": "contains", "ilike": "contains"}
_REASONS: dict[str, tuple[Kind, str]] = {
    "label_model": ("later", "a model judges: write a check rubric, factual or score"),
    "score_model": ("later", "a model judges: write a check rubric, factual or score"),
    "python": ("none", "it is a program, which no import runs: write a check of your own"),
    "endpoint": ("none", "another service judges"),
    "multi": ("none", "it computes a number from other graders"),
    "text_similarity": ("none", "evalq has no measure that gives the same number"),
}


def read(path: Path, request: ImportRequest, imported: Imported) -> None:
    """Fill ``imported`` from an eval and its output items. Raises ConfigError for other files."""
    if path.suffix in (".yaml", ".yml"):
        _read_registry(path, request, imported)
        return
    if path.suffix == ".jsonl":
        _read_samples(path, request, imported)
        return
    data = read_json(path)
    criteria = data.get("testing_criteria") if isinstance(data, dict) else None
    if not isinstance(data, dict) or not isinstance(criteria, list):
        raise ConfigError(f"{path}: not an eval of OpenAI: it has no testing_criteria")
    cases: dict[bytes, str] = {}
    kept: dict[str, list[str]] = {}
    found = False
    for where, item in _items(path, data, imported):
        found = True
        if not isinstance(item, dict) or not isinstance(item.get("datasource_item"), dict):
            imported.note("none", where, "an output item", "it has no datasource_item")
            continue
        number = item.get("datasource_item_id", len(cases))
        key = same_case(number, item["datasource_item"])
        if key not in cases:
            cases[key], names = _case(path, criteria, item, where, imported, request)
            kept[cases[key]] = names
        if cases[key]:
            sample = item.get("sample")
            sample = sample if isinstance(sample, dict) else {}
            verdicts = _verdicts(item, kept[cases[key]])
            imported.add_output(str(sample.get("model") or "outputs"), cases[key], _answer(sample), verdicts)
    if not found:
        raise ConfigError(f"{path}: no output items: under output_items, or in output_items.json(l) beside it")


def _items(path: Path, data: Mapping[str, Any], imported: Imported) -> Iterator[tuple[str, Any]]:
    """(location, output item) of all output items."""
    given, source, at = data.get("output_items"), path, "output_items"
    beside = path.with_name("output_items.jsonl")
    if given is None and beside.exists():
        yield from ((f"{beside}:{line}", value) for line, value in read_lines(beside))
        return
    if given is None and path.with_name("output_items.json").exists():
        source, at = path.with_name("output_items.json"), ""
        given = read_json(source)
    if isinstance(given, dict):
        if given.get("has_more") is True:
            why = "the API gives them page by page, and has more than are in the file: add their pages to data"
            imported.note("none", f"{source}: {at}.has_more".replace(": .", ": "), "further output items", why)
        given, at = given.get("data"), f"{at}.data".lstrip(".")
    for index, item in enumerate(given if isinstance(given, list) else []):
        yield f"{source}: {at}[{index}]", item


def _case(
    path: Path,
    criteria: list[Any],
    item: dict[str, Any],
    where: str,
    imported: Imported,
    request: ImportRequest,
) -> tuple[str, list[str]]:
    """The id of an item's case, and the names of its checks."""
    row = item["datasource_item"]
    checks = []
    for index, grader in enumerate(criteria):
        location = f"{path}: testing_criteria[{index}]"
        kind = str(grader.get("type")) if isinstance(grader, dict) else "a grader"
        name = str(grader.get("name") or kind) if isinstance(grader, dict) else kind
        if kind != "string_check":
            why = _REASONS.get(kind, ("none", "evalq has no such check"))
            imported.note(why[0], location, f"{name} ({kind})", why[1])
            continue
        try:
            check = _string_check(grader, row)
            accepted(check)
        except NoCounterpart as error:
            imported.note("none", location, name, str(error))
            continue
        checks.append({**check, "name": name})
    sample = item.get("sample")
    messages = sample.get("input") if isinstance(sample, dict) else None
    case: dict[str, Any] = {"id": "item", "input": _input(messages, row), "checks": checks}
    return imported.add_case(case, where, request, named=False), [check["name"] for check in checks]


def _verdicts(item: Mapping[str, Any], names: list[str]) -> list[bool | None]:
    """The service's verdict of each grader; None without one, or if two graders have one name."""
    results = item.get("results")
    verdicts = (
        [(str(each.get("name")), each.get("passed")) for each in results if isinstance(each, dict)]
        if isinstance(results, list)
        else []
    )
    found = {name: verdict_of(passed) for name, passed in verdicts if sum(name == other for other, _ in verdicts) == 1}
    return [found.get(name) for name in names]


def _string_check(grader: Mapping[str, Any], row: Mapping[str, Any]) -> dict[str, Any]:
    operation = str(grader.get("operation"))
    if operation not in _OPERATIONS:
        raise NoCounterpart(f"an operation that is not known: {operation[:40]}")
    left, right = str(grader.get("input", "")), str(grader.get("reference", ""))
    found = _OUTPUT.fullmatch(left)
    if found is None and operation in ("eq", "ne") and _OUTPUT.fullmatch(right):
        found, right = _OUTPUT.fullmatch(right), left
    if found is None:
        raise NoCounterpart("it compares something else than the answer, or a part of its JSON")
    check: dict[str, Any] = {_OPERATIONS[operation]: _filled(right, row)}
    if operation == "ilike":
        check["ignore-case"] = True
    if found["path"]:
        check["at"] = found["path"]
    return check


def _filled(template: str, row: Mapping[str, Any]) -> str:
    """A template filled with the row's values. Raises NoCounterpart if it has anything else."""

    def value(match: re.Match[str]) -> str:
        found: Any = row
        for part in match[1].split("."):
            if not isinstance(found, dict) or part not in found:
                raise NoCounterpart(f"the row has no {match[1]}")
            found = found[part]
        return found if isinstance(found, str) else json.dumps(found, ensure_ascii=False)

    if "{{" in _NAME.sub("", template):
        raise NoCounterpart("a template that is more than {{item.name}}")
    return _NAME.sub(value, template)


def _input(messages: Any, row: Mapping[str, Any]) -> Any:
    """The messages of the call, or the row if the run did not keep them."""
    if isinstance(messages, list) and messages and all(isinstance(each, dict) for each in messages):
        return [{"role": str(each.get("role")), "content": _text(each.get("content"))} for each in messages]
    return dict(row)


def _text(content: Any) -> str:
    if isinstance(content, list):
        return "\n".join(str(part.get("text", "")) for part in content if isinstance(part, dict))
    return str(content if content is not None else "")


def _answer(sample: Mapping[str, Any]) -> dict[str, Any]:
    """A line of recorded outputs."""
    line: dict[str, Any] = {}
    error, messages, usage = sample.get("error"), sample.get("output"), sample.get("usage")
    if isinstance(error, dict) and (error.get("message") or error.get("code")):
        line["error"] = str(error.get("message") or error.get("code"))
    elif isinstance(messages, list) and messages and isinstance(messages[-1], dict):
        line["output"] = _text(messages[-1].get("content"))
    elif isinstance(sample.get("output_text"), str):
        line["output"] = sample["output_text"]
    else:
        line["error"] = "no output was recorded"
    for key in ("prompt_tokens", "completion_tokens"):
        if isinstance(usage, dict) and isinstance(usage.get(key), int):
            line[key] = usage[key]
    return line
