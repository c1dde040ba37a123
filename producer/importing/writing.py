"""The files that an import makes."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import yaml

from evalq.evalcore.errors import ConfigError, StorageError
from evalq.evalcore.files import write_atomic
from evalq.producer.importing.imported import Imported, whole

__all__ = ["write"]

_PLACEHOLDER = re.compile(r"\{\{\s*[A-Za-z_][\w.-]*\s*\}\}", re.ASCII)
_IN_YAML = 200
"""With more cases than these they are written as lines of JSON, which no editor has to hold."""


def write(imported: Imported, folder: Path, *, force: bool) -> list[Path]:
    """Write cases, targets, recorded outputs and notes into ``folder``; returns their paths.

    Raises ConfigError where one of them is there already (without ``force``), and StorageError.
    """
    files = _files(imported)
    # An import of another length before this one left the cases in the other form.
    stale = {"cases.yaml", "cases.jsonl"} - files.keys() if imported.cases else set()
    for name in (*files, *sorted(stale)):
        if (folder / name).exists() and not force:
            raise ConfigError(f"{folder / name}: is there already: name another folder with -d, or give --force")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name, make in files.items():
            write_atomic(folder / name, make())
        for name in stale:
            (folder / name).unlink(missing_ok=True)
    except OSError as error:
        raise StorageError.of(error, folder, "free some room, then import again with --force") from error
    return [folder / name for name in files]


def _files(imported: Imported) -> dict[str, Callable[[], bytes]]:
    files: dict[str, Callable[[], bytes]] = {}
    cases = [whole(_escaped(case)) for case in imported.cases]
    if len(cases) > _IN_YAML:
        files["cases.jsonl"] = lambda: _lines(cases)
    elif cases:
        files["cases.yaml"] = lambda: _yaml({"cases": cases})
    if imported.targets:
        files["targets.yaml"] = lambda: _yaml(whole({"targets": imported.targets}))
    used: set[str] = set()
    for source, lines in imported.outputs.items():
        name = "outputs" if len(imported.outputs) == 1 else _named(f"outputs-{source}", used)
        files[f"{name}.jsonl"] = lambda lines=lines: _lines([whole(line) for line in lines])  # type: ignore[misc]  # a default for a closure
    if imported.notes:
        files["not-imported.jsonl"] = lambda: _lines([whole(msgspec.to_builtins(note)) for note in imported.notes])
    return files


def _named(wanted: str, used: set[str]) -> str:
    plain = re.sub(r"[^A-Za-z0-9._-]+", "-", wanted)[:80].strip("-.")
    name, number = plain, 1
    while name.lower() in used:
        number += 1
        name = f"{plain}-{number}"
    used.add(name.lower())
    return name


def _escaped(value: Any) -> Any:
    """``value`` as a cases file has it: what looks like a placeholder there is one."""
    if isinstance(value, str):
        return _PLACEHOLDER.sub(r"\\\g<0>", value)
    if isinstance(value, dict):
        return {key: _escaped(each) for key, each in value.items()}
    if isinstance(value, list):
        return [_escaped(each) for each in value]
    return value


def _lines(values: list[Any]) -> bytes:
    encode = msgspec.json.Encoder().encode
    return b"".join(encode(value) + b"\n" for value in values)


class _Dumper(yaml.SafeDumper):
    """Plain mappings in their order, without aliases."""

    def ignore_aliases(self, data: Any) -> bool:
        return True


def _yaml(data: Any) -> bytes:
    text: str = yaml.dump(data, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=120)
    return text.encode()
