"""The prompts of a promptfoo configuration, and how one is filled with variables."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from evalq.evalcore.errors import ConfigError
from evalq.evalcore.records.yaml import DocumentFault, read_document
from evalq.producer.importing.imported import Imported, ImportRequest
from evalq.producer.importing.promptfoo.texts import NoText, rendered
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

__all__ = ["Prompt", "filled", "matches", "prompts_of"]

_PROGRAMS = (".js", ".ts", ".mjs", ".cjs", ".py", ".sh", ".rb", ".go")
_TEXTS = (".txt", ".md", ".j2", ".json", ".jsonl", ".yaml", ".yml", ".csv")


class Prompt(NamedTuple):
    """A prompt's label and template, and where it stands."""

    label: str
    template: str
    where: str


def prompts_of(document: Document, imported: Imported, asked: ImportRequest) -> list[Prompt]:
    """The prompts of a configuration; those that are programs are noted."""
    given = document.data.get("prompts")
    entries: list[tuple[Any, str]]
    if isinstance(given, Mapping):
        # The old form: files with their labels.
        entries = [({"id": key, "label": label}, document.where(["prompts", str(key)])) for key, label in given.items()]
    else:
        listed = given if isinstance(given, list) else [given] if given is not None else ["{{prompt}}"]
        entries = [(each, document.where(["prompts", index])) for index, each in enumerate(listed)]
    found: list[Prompt] = []
    for entry, where in entries:
        try:
            found += _entry(entry, where, document.path.parent, asked)
        except (NoText, Outside, ConfigError) as error:
            imported.note("none", where, "prompt", str(error))
    return found


def _entry(entry: Any, where: str, folder: Path, asked: ImportRequest) -> Iterator[Prompt]:
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
        yield from _of_files(folder, name, label, where, asked)
    else:
        yield Prompt(label or entry, entry, where)


def _of_files(folder: Path, name: str, label: str, where: str, asked: ImportRequest) -> Iterator[Prompt]:
    below(folder, name, anywhere=asked.anywhere)
    many = any(sign in name for sign in "*?[") and not Path(name).is_absolute()
    paths = globbed(folder, name, anywhere=asked.anywhere) if many else None
    for path in [below(folder, name, anywhere=asked.anywhere)] if paths is None else paths:
        path = below(folder, str(path.resolve()), anywhere=asked.anywhere)
        for index, text in enumerate(_texts(path)):
            yield Prompt(label or f"{path.name}{f' {index + 1}' if index else ''}", text, where)


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


def matches(prompt: Prompt, wanted: Any) -> bool:
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
