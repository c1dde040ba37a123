"""The targets file: which agents a worker can call, how, and how often. Read by workers; producers know names only.

Nothing in it is a secret but header values and what a URL may hold; keys of services are named by the environment
variable that has them. No error shows a value of the file.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Literal, get_args, get_origin

import msgspec

from evalq.evalcore.contract.params import load_mapping, validate
from evalq.evalcore.contract.plugins import TARGETS, load, plug_ins
from evalq.evalcore.errors import ConfigError
from evalq.evalcore.model.canonical import Json
from evalq.evalcore.trust import Thing, Writer, allows
from evalq.workers.targets.spec import entries, is_spec
from evalq.workers.targets.target import NamedTarget, Target, usable_name
from evalq.workers.targets.variable import chosen_values, labels, named, split_name

OWN_KINDS: Mapping[str, str] = {
    "anthropic": "providers.anthropic:AnthropicTarget",
    "azure": "providers.azure:AzureTarget",
    "bedrock": "providers.bedrock:BedrockTarget",
    "command": "command:CommandTarget",
    "embeddings": "providers.openai:EmbeddingsTarget",
    "gemini": "providers.gemini:GeminiTarget",
    "http": "http:HttpTarget",
    "openai": "providers.openai:OpenAiTarget",
    "python": "python:PythonTarget",
    "responses": "providers.responses:ResponsesTarget",
    "vertex": "providers.vertex:VertexTarget",
}
"""{kind: where its class is, below this package}; packages register further ones under the group `TARGETS`.

A kind is imported when a file names it: all of them together take longer than the rest of a command.
"""
_KIND = re.compile(r"[a-z][a-z0-9-]{0,39}")


@cache
def kind_of(name: str) -> type[Target] | None:
    """The kind of this name, of evalq or of an installed package; None without one.

    Raises ConfigError for one of a package that cannot be used.
    """
    if name in OWN_KINDS:
        module, _, cls = OWN_KINDS[name].partition(":")
        own: type[Target] = getattr(import_module(f"evalq.workers.targets.{module}"), cls)
        return own
    points = [point for point in plug_ins(TARGETS) if point.name == name]
    if len(points) > 1:
        raise ConfigError(f"several packages register a kind of target {name!r}: {', '.join(p.value for p in points)}")
    if not points:
        return None
    loaded = load(points[0], "kind of target")
    if not isinstance(loaded, type) or not issubclass(loaded, Target):
        raise ConfigError(f"the kind of target {name!r} ({points[0].value}) is no subclass of evalq.targets.Target")
    field = loaded.model_fields.get("kind")
    if field is None or get_origin(field.annotation) is not Literal or get_args(field.annotation) != (name,):
        raise ConfigError(f"the kind of target {name!r} ({points[0].value}) needs the field `kind: Literal[{name!r}]`")
    return loaded


def kind_names() -> list[str]:
    """The names of all kinds; nothing is imported."""
    return sorted({*OWN_KINDS, *(point.name for point in plug_ins(TARGETS) if _KIND.fullmatch(point.name))})


def load_targets(path: str | Path) -> dict[str, NamedTarget]:
    """The targets of a file, by name, in its order; or those that the command line named (`spec`).

    Raises ConfigError that names the file and every wrong key.
    """
    if is_spec(str(path)):
        specs, folder = entries(str(path))
        return _named({name: _target(name, entry, "--target", folder) for name, entry in specs.items()}, "", folder)
    data = load_mapping(path)
    unknown = sorted(set(data) - {"targets"})
    if unknown:
        raise ConfigError(f"{path}: {unknown[0]}: unknown key (known here: targets)")
    listed = data.get("targets")
    if not isinstance(listed, dict) or not listed:
        raise ConfigError(f"{path}: targets: must be a mapping of names to targets")
    folder = Path(path).resolve().parent
    return _named({name: _target(name, entry, path, folder) for name, entry in listed.items()}, path, folder)


def _named(made: Mapping[str, Target], path: str | Path, folder: Path) -> dict[str, NamedTarget]:
    others = tuple(dict.fromkeys(key for target in made.values() if (key := target.api_key_env)))
    named = {name: NamedTarget(name, target, folder, keys=others) for name, target in made.items()}
    for name, target in made.items():
        if target.user is not None:
            if fault := _fault_of_user(target.user, made):
                raise ConfigError(f"{path}: targets.{name}.user: {fault}")
            named[name] = msgspec.structs.replace(named[name], user=named[target.user])
    return named


def _fault_of_user(name: str, made: Mapping[str, Target]) -> str:
    """Why the target of that name can simulate no user; empty if it can."""
    if name not in made:
        return f"there is no target {name!r} in this file (known: {', '.join(sorted(made))})"
    simulator, tools = made[name], getattr(made[name], "tools", None)
    if simulator.user is not None:
        return f"{name!r} has a user of its own: name a target without one"
    if getattr(simulator, "kind", "") == "embeddings":
        return f"{name!r} gives vectors, and a user says texts"
    if simulator.output == "json":
        return f"{name!r} has `output: json`, and a user says texts: remove it there"
    if tools is not None:
        return f"{name!r} has tools, and a simulated user calls none: remove them there, or name another target"
    return ""


def key_names(targets: Mapping[str, NamedTarget]) -> set[str]:
    """The variables of the environment that the targets of a file name: keys, and what programs are granted."""
    granted = (name for named in targets.values() for name in named.target.granted())
    return {*granted, *(key for named in targets.values() for key in named.keys)}


def _target(name: object, entry: object, path: str | Path, folder: Path) -> Target:
    where = f"{path}: targets.{name}"
    if not isinstance(name, str):
        raise ConfigError(f"{where}: a name must be text, and YAML reads this one as something else: put it in quotes")
    if not usable_name(name):
        raise ConfigError(f"{where}: a name is up to 64 letters, digits, '.', '_' and '-'")
    if not isinstance(entry, dict):
        raise ConfigError(f"{where}: must be a mapping with a kind ({', '.join(kind_names())})")
    kind = entry.get("kind")
    model = kind_of(kind) if isinstance(kind, str) else None
    if model is None:
        raise ConfigError(f"{where}.kind: must be one of {', '.join(kind_names())}")
    # No values in messages: headers and URLs may hold secrets.
    target = validate(model, entry, where, show_values=False)
    for each in (target, *_chosen(target, where)):
        _refuse_files(each, where, folder)
    return target


def _chosen(target: Target, where: str) -> Iterator[Target]:
    """The target with each value that may be chosen. Raises ConfigError for one that it cannot have."""
    for parameter, label, value in labels(target.choices):
        yield _with_choices(target, {parameter: value}, f"{where}.variable.{parameter}.{label}")


def _with_choices(target: Target, values: Mapping[str, Json], where: str) -> Target:
    """A target with these values in place of its own. Raises ConfigError, which gives ``where``."""
    entry = {**target.model_dump(mode="json", exclude_unset=True), **target.with_values(values)}
    return validate(type(target), entry, where, show_values=False)


def choose(targets: Mapping[str, NamedTarget], name: str) -> NamedTarget | None:
    """The target that a name means, with what it chooses; None for one that is not in the file.

    Raises UsageError for what may not be chosen.
    """
    base, chosen = split_name(name)
    known = targets.get(base)
    if known is None or not chosen:
        return known
    values = chosen_values(base, known.target.choices, chosen)
    varied = _with_choices(known.target, values, f"target {base}")
    return NamedTarget(named(base, chosen), varied, known.folder, known, chosen, known.keys, known.user)


def _refuse_files(target: Target, where: str, folder: Path) -> None:
    for key, file in target.files().items():
        if file is not None and not _below(file.replace("{agent}", "agent"), folder):
            raise ConfigError(f"{where}.{key}: must be a file in the targets file's folder, or below it")
        # Which agents there are shows only when they are called.
        if file is not None and "{agent}" not in file and not (folder / file).is_file():
            raise ConfigError(f"{where}.{key}: no such file in {folder}")


def _below(file: str, folder: Path) -> bool:
    return allows(Writer.CASES_FILE, Thing.PATH, folder / file, (folder,))
