"""OpenAI's public registry of evals (github.com/openai/evals): a YAML file of evals, and samples as lines of JSON.

An eval's samples stand in registry/data, beside registry/evals with the YAML, or below the YAML's own folder. No class
is run: those of evals.elsuite.basic that a check is like become it, the others are listed by their names.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from evalq.evalcore.errors import ConfigError
from evalq.evalcore.files import open_given
from evalq.producer.importing.accepting import accepted
from evalq.producer.importing.imported import Imported, ImportRequest
from evalq.producer.importing.patterns import NoCounterpart
from evalq.producer.importing.reading import Document, Outside, below, read_lines, read_yaml

__all__ = ["CLASSES", "read_registry", "read_samples"]

_BASIC = "evals.elsuite.basic."
CLASSES: Mapping[str, str] = {
    f"{_BASIC}match:Match": "starts-with",
    f"{_BASIC}includes:Includes": "contains",
    f"{_BASIC}json_validator:JsonValidator": "is-json",
}
"""By the class of an eval: the check that it is of one answer."""
_JUDGED = "evals.elsuite.modelgraded."
_ARGS = {"samples_jsonl", "max_tokens", "num_few_shot", "few_shot_jsonl", "ignore_case"}


def read_registry(path: Path, asked: ImportRequest, imported: Imported) -> None:
    """Fill ``imported`` from a YAML file of evals. Raises ConfigError for what is none."""
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
            samples = _samples(document, args.get("samples_jsonl"), asked)
        except (NoCounterpart, Outside) as error:
            judged = kind.startswith(_JUDGED)
            imported.note("later" if judged else "none", where, f"{name} ({kind})", str(error))
            continue
        _add(samples, name, (kind, args), asked, imported)


def read_samples(path: Path, asked: ImportRequest, imported: Imported) -> None:
    """Fill ``imported`` from samples alone: which check they are for is said by ``asked``."""
    _add(path, path.parent.name or "sample", None, asked, imported)


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


def _samples(document: Document, name: Any, asked: ImportRequest) -> Path:
    """The file of samples that an eval names. Raises NoCounterpart and Outside."""
    if not isinstance(name, str) or not name.endswith(".jsonl"):
        raise NoCounterpart("its samples_jsonl is no file of JSON lines")
    folder = document.path.parent
    data = folder.resolve().parent / "data"
    folders = [data, folder] if folder.resolve().name == "evals" else [folder]
    paths = [below(each, name, anywhere=asked.anywhere) for each in folders]
    found = next((path for path in paths if path.is_file()), None)
    if found is None:
        raise NoCounterpart(f"its samples are at none of {', '.join(map(str, paths))}")
    return found


def _add(
    path: Path, name: str, judged_by: tuple[str, Mapping[str, Any]] | None, asked: ImportRequest, imported: Imported
) -> None:
    for where, sample in _lines(path):
        given = sample.get("input") if isinstance(sample, dict) else None
        if not isinstance(given, str | list) or not given:
            imported.note("none", where, "a sample", "it has no input")
            continue
        ideal = sample.get("ideal")
        case: dict[str, Any] = {"id": name, "input": _input(given)}
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
        imported.add_case(case, where, asked, named=False)


def _lines(path: Path) -> Iterator[tuple[str, Any]]:
    """(place, sample). Raises ConfigError, also for the pointer that a repository has in place of a large file."""
    try:
        with open_given(path) as stream:
            pointer = stream.read(40).startswith(b"version https://git-lfs")
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read: {error.strerror}") from None
    if pointer:
        raise ConfigError(f"{path}: a pointer of Git LFS, not the samples: run git lfs pull")
    return ((f"{path}:{line}", sample) for line, sample in read_lines(path))


def _input(given: str | list[Any]) -> Any:
    if isinstance(given, list) and all(isinstance(each, dict) for each in given):
        return [{"role": str(each.get("role")), "content": each.get("content")} for each in given]
    return given


def _check(kind: str, args: Mapping[str, Any], ideal: Any) -> dict[str, Any]:
    """The check that a class is for a sample. Raises NoCounterpart."""
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
