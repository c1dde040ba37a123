"""Digests of what a target's answers depend on, by which outputs of two settings are told apart."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path

from evalq.evalcore.model.canonical import Json, canonical_json
from evalq.workers.targets.files import files_of
from evalq.workers.targets.target import NamedTarget
from evalq.workers.targets.variable import labels

__all__ = [
    "chosen_digest",
    "config_digest",
    "core_digest",
    "files_seen",
    "given_digests",
    "listed_digests",
    "setting_digests",
    "value_digest",
]

# Keys, prices and limits differ between hosts, and change, without an answer becoming another: a digest with them in
# it would empty every cache.
_NO_PART_OF_ANSWERS = (
    *("headers", "api_key_header", "api_key_env", "price", "retries", "timeout_seconds", "max_bytes", "max_megabytes"),
    *("variable", "max_concurrency", "requests_per_minute", "tokens_per_minute", "tokens_per_call"),
)
_SHOWN = 16
"""Letters of a digest."""


def config_digest(named: NamedTarget) -> str:
    """What the answers depend on: the target's settings without keys and limits, and the files that it names.

    Of one with choices: of all that nobody may choose, and of what is chosen or given for the rest.
    """
    if named.of is None:
        return _digest(named)
    choices = named.of.target.choices
    values = {name: choices[name].value(label) for name, label in named.chosen.items()}
    chosen = {name: _value_of(named.of, name, value) for name, value in values.items()}
    return chosen_digest(core_digest(named.of), {**given_digests(named.of), **chosen})


def chosen_digest(core: str, values: Mapping[str, str]) -> str:
    """Of a target with choices, from the digests of what cannot be chosen and of each value."""
    return hashlib.sha256(canonical_json([core, dict(values)])).hexdigest()[:_SHOWN]


def core_digest(named: NamedTarget) -> str:
    """Of what nobody may choose of it; empty where all is as the file has it."""
    return _digest(named, named.target.variable) if named.target.variable else ""


def given_digests(named: NamedTarget) -> dict[str, str]:
    """{parameter: digest of what it takes where nothing is chosen}."""
    target = named.target
    return {name: _value_of(named, name, target.value_of(name)) for name in target.variable}


def setting_digests(named: NamedTarget) -> dict[str, str]:
    """{key path: digest} of each setting that answers depend on, so that what differs between two can be named."""
    target = named.target
    found: dict[str, str] = {}
    for key, value in target.model_dump(mode="json").items():
        if key in _NO_PART_OF_ANSWERS:
            continue
        inner = {f"{key}.{name}": each for name, each in value.items()} if isinstance(value, dict) else {key: value}
        found |= {path: value_digest(each) for path, each in inner.items() if each is not None}
    for key, pattern in target.files().items():
        if pattern:
            found[key] = hashlib.sha256(b"".join(_contents(named, pattern))).hexdigest()[:_SHOWN]
    return found


def listed_digests(named: NamedTarget) -> dict[str, dict[str, str]]:
    """{parameter: {name of a value: its digest}} of those that list their values."""
    return {
        name: {label: _value_of(named, name, value) for label, value in choices.values.items()}
        for name, choices in named.target.choices.items()
        if choices.values
    }


def value_digest(value: Json) -> str:
    """The digest of a value that is not a file."""
    return hashlib.sha256(canonical_json(value)).hexdigest()[:_SHOWN]


def _value_of(named: NamedTarget, parameter: str, value: Json) -> str:
    """The digest of a value: of what is in its file, if it names one."""
    if parameter not in named.target.files() or not isinstance(value, str):
        return value_digest(value)
    return hashlib.sha256(b"".join(_contents(named, value))).hexdigest()[:_SHOWN]


def _digest(named: NamedTarget, but: Collection[str] = ()) -> str:
    """The digest of all settings but the parameters in ``but``."""
    target = named.target
    settings = target.model_dump(mode="json")
    for name in (*_NO_PART_OF_ANSWERS, *but):
        settings.pop(name, None)
    for name in ("options", "parameters"):
        if name in settings:
            settings[name] = {key: value for key, value in settings[name].items() if key not in but}
    if not settings.get("parameters"):
        settings.pop("parameters", None)  # as before there were any: what was recorded then is still of these settings
    whole = hashlib.sha256(canonical_json(settings))
    for key, pattern in target.files().items():
        for content in _contents(named, pattern) if pattern and key not in but else ():
            whole.update(content)
    return whole.hexdigest()[:_SHOWN]


def files_seen(named: NamedTarget) -> tuple[object, ...]:
    """What shows that the files were changed which its digests are of, those that may be chosen too; none is read."""
    target = named.target
    chosen = (value for name, _, value in labels(target.choices) if name in target.files() and isinstance(value, str))
    patterns = {*filter(None, target.files().values()), *chosen}
    return tuple(_seen(path) for pattern in sorted(patterns) for path in files_of(named.folder, pattern))


def _seen(path: Path) -> object:
    try:
        stat = path.stat()
    except OSError:  # removed since it was listed
        return None
    return str(path), stat.st_ctime_ns, stat.st_mtime_ns, stat.st_size


def _contents(named: NamedTarget, pattern: str) -> Iterator[bytes]:
    """Of each file that a path of the targets file may stand for, whichever agent is called: its name and content.

    Where a folder is the agent's, the name begins with that: it says whose prompt the file is.
    """
    parts = Path(os.path.relpath(named.folder / pattern, named.folder)).parts
    agents = next((number for number, part in enumerate(parts) if "{agent}" in part), len(parts) - 1)
    for path in files_of(named.folder, pattern):
        name = str(Path(*path.relative_to(named.folder).parts[agents:]))
        try:
            content = hashlib.sha256(path.read_bytes()).digest()
        except FileNotFoundError:  # removed since it was listed
            continue
        except OSError:  # whoever calls its agent is told, and all others are called
            content = b""
        # By its bytes: no agent is called as a file that is not named in UTF-8, but it may lie there.
        yield os.fsencode(name) + b"\0" + content
