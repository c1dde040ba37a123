"""The files that an import makes."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import yaml

from evalq.evalcore.errors import ConfigError, StorageError
from evalq.evalcore.files import write_atomic
from evalq.evalcore.records import yaml as core_yaml
from evalq.producer.importing.imported import Imported, whole

__all__ = ["Wrote", "write"]

_PLACEHOLDER = re.compile(r"\{\{\s*[A-Za-z_][\w.-]*\s*\}\}", re.ASCII)
_MADE = ".imported.json"
"""The files of the last import and their digests: it is known by them what a next one may remove."""
_OURS = re.compile(r"cases\.(yaml|jsonl)|targets\.yaml|outputs(-[A-Za-z0-9._-]+)?\.jsonl|not-imported\.jsonl")
_IN_YAML = 200
"""With more cases than these they are written as lines of JSON, which no editor has to hold."""


class Wrote(NamedTuple):
    """What an import wrote, what it removed of one before it, and what it left of that because somebody changed it."""

    files: list[Path]
    removed: list[Path]
    left: list[Path]


def write(imported: Imported, folder: Path, *, force: bool) -> Wrote:
    """Write cases, targets, recorded outputs and notes into ``folder``.

    With ``force`` files of an import before go, those that this one does not make included: they would be taken for
    its own. Raises ConfigError where one is there already (without ``force``), and StorageError.
    """
    files = _files(imported)
    # An import of another length before this one left the cases in the other form.
    others = {"cases.yaml", "cases.jsonl"} - files.keys() if imported.cases else set()
    before = _before(folder)
    stale = sorted((others | before.keys()) - files.keys())
    for name in (*files, *stale):
        if (folder / name).exists() and not force:
            raise ConfigError(f"{folder / name}: already exists: name another folder with -d, or give --force")
    made = {name: make() for name, make in files.items()}
    removed, left = [], []
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name, data in made.items():
            write_atomic(folder / name, data)
        for path in (folder / name for name in stale if (folder / name).is_file()):
            if path.name in others or _digest(path.read_bytes()) == before[path.name]:
                path.unlink()
                removed.append(path)
            else:
                left.append(path)
        write_atomic(folder / _MADE, msgspec.json.encode({name: _digest(data) for name, data in made.items()}) + b"\n")
    except OSError as error:
        raise StorageError.of(error, folder, "free some room, then import again with --force") from error
    return Wrote([folder / name for name in files], removed, left)


def _before(folder: Path) -> dict[str, str]:
    """What the import before wrote there: its files and their digests. Empty where none is known."""
    try:
        found = msgspec.json.decode((folder / _MADE).read_bytes(), type=dict[str, str])
    except (OSError, msgspec.DecodeError):
        return {}
    return {name: of for name, of in found.items() if _OURS.fullmatch(name)}


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


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


class _Dumper(core_yaml.Dumper):
    """Plain mappings in their order, without aliases."""

    def ignore_aliases(self, data: Any) -> bool:
        return True


def _yaml(data: Any) -> bytes:
    text: str = yaml.dump(data, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=120)
    return text.encode()
