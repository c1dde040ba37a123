"""The keys of a suite file: of a suite, its runs and their live options, and the locations of faults."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple, TypeVar, Union

from pydantic import AfterValidator, BeforeValidator, ConfigDict, Field, PlainValidator, ValidationError, create_model
from pydantic_core import PydanticCustomError

from evalq.evalcore.contract import plugins
from evalq.evalcore.contract.evaluator import Calls, Option, Params, options_of
from evalq.evalcore.contract.params import as_json, line_of, list_faults
from evalq.evalcore.errors import ConfigError, UsageError
from evalq.evalcore.files import open_input
from evalq.evalcore.model.calls import WHEN_DECIDED
from evalq.evalcore.trust import Thing, Writer, allows
from evalq.producer.folder.files import RUNS
from evalq.producer.folder.run_folder import RunFolder
from evalq.producer.sweep.options import PLACE, SweepOptions, Wording

# Faults in a suite file: line, key path and reason.

M = TypeVar("M", bound=Params)
Key = tuple[str | int, ...]
"""A key path from the top of the file."""


class FileLocation(NamedTuple):
    """A location in a suite file; ``moved``: {key: its real key path}, for values of a matrix."""

    path: str | Path
    key: Key
    moved: Mapping[str, Key] = {}

    def under(self, *keys: str | int) -> Key:
        """The key path of ``keys`` below it."""
        moved = self.moved.get(str(keys[0])) if keys else None
        return (*self.key, *keys) if moved is None else (*moved, *keys[1:])

    def checked(self, model: type[M], data: Mapping[str, Any]) -> M:
        """The model of ``data`` there. Raises ConfigError with a line for each fault."""
        try:
            return model.model_validate_json(as_json(data), strict=True)
        except ValidationError as error:
            faults = [(self.under(*where), reason) for where, reason in list_faults(error, model)]
            raise wrong(self.path, faults) from None
        except (TypeError, ValueError) as error:
            raise ConfigError(f"{location_of(self.path, self.key)}: not plain JSON data: {error}") from None

    def wrong(self, keys: Key, reason: str) -> ConfigError:
        """The error for ``keys``."""
        return wrong(self.path, [(self.under(*keys), reason)])


def checked(model: type[M], data: Mapping[str, Any], path: str | Path, key: Key = ()) -> M:
    """The model of ``data`` under ``key``. Raises ConfigError with a line for each fault."""
    return FileLocation(path, key).checked(model, data)


def wrong(path: str | Path, faults: Sequence[tuple[Key, str]]) -> ConfigError:
    """The error that lists ``faults``, (key path, reason)."""
    return ConfigError("\n  ".join(f"{location_of(path, key)}: {reason}" for key, reason in faults))


def location_of(path: str | Path, key: Key) -> str:
    """File, line and key path."""
    line = line_of(path, key)
    at = f"{path}:{line}" if line else str(path)
    return f"{at}: {'.'.join(map(str, key))}" if key else at


def beside(base: Path, name: str) -> str:
    """A path relative to the suite file; "-" stays."""
    return name if name == "-" else os.path.normpath(base / name)


_KINDS: dict[str, Any] = {"str": str, "int": int, "float": float, "bool": bool, "path": str}


def _as_tuple(value: Any) -> Any:
    """A single value as a tuple."""
    return tuple(value) if isinstance(value, list) else (value,)


def _name(value: str) -> str:
    if value and not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}", value):
        raise PydanticCustomError("name", "letters, digits, '.', '_' and '-' are needed")
    return value


def _text(value: Any) -> str | FileKey:
    """Choose between the two forms here, so that a fault is reported once, with the keys of the file."""
    if isinstance(value, str):
        return value
    if isinstance(value, dict) and value.keys() == {"file"} and isinstance(value["file"], str):
        return FileKey(file=value["file"])
    raise PydanticCustomError(
        "text", "a text is needed, or the name of a file ({example})", {"example": "{file: NAME}"}
    )


def _as_prompt(value: Any) -> Any:
    return {"template": value} if isinstance(value, str) else value


_Count = Annotated[int, Field(ge=1)]
_Files = Annotated[tuple[str, ...], BeforeValidator(_as_tuple)]


class SuiteKeys(Params):
    """The top level. ``policy`` is a file or a whole policy; ``parallel`` runs make their live calls at once."""

    suite: str = ""
    runs: tuple[dict[str, Any], ...] = Field(min_length=1)
    policy: str | dict[str, Any] | None = None
    baseline: str = ""
    outputs: _Files = ()
    parallel: int = Field(default=1, ge=1, le=64)


class FileKey(Params):
    """Text in a file."""

    file: str


class PromptKeys(Params):
    """The prompt around each case's question."""

    template: Annotated[str | FileKey, PlainValidator(_text)] = ""
    system: Annotated[str | FileKey, PlainValidator(_text)] = ""


class SuiteRunKeys(Params):
    """The keys of every run; one with a ``matrix`` stands for several."""

    evaluator: str
    name: Annotated[str, AfterValidator(_name)] = ""
    params: dict[str, Any] = Field(default_factory=dict)
    chunk_size: _Count | None = None
    limit: _Count | None = None
    output: _Files = ()
    matrix: dict[str, Any] | None = None


class AnyRun(Params):
    """A run, checked only for its evaluator."""

    model_config = ConfigDict(extra="ignore")

    evaluator: str
    name: Annotated[str, AfterValidator(_name)] = ""
    matrix: dict[str, Any] | None = None


@cache
def run_model(evaluator: str) -> type[SuiteRunKeys]:
    """The model of a run of ``evaluator``. Raises UnknownEvaluator."""
    definition = plugins.get(evaluator)
    fields: dict[str, Any] = {option.name: (_kind(option), None) for option in options_of(definition)}
    fields |= {name: (kind, None) for name, kind in _live_keys(definition.calls).items()}
    fields[definition.command.positional] = (_Files, ())
    model: type[SuiteRunKeys] = create_model(f"Run of {evaluator}", __base__=SuiteRunKeys, **fields)
    return model


def _live_keys(calls: Calls | None) -> dict[str, Any]:
    """The keys of a run that calls a target, with the types of their values."""
    if calls is None:
        return {}
    above = Annotated[float, Field(gt=0)]
    keys: dict[str, Any] = {calls.option: str, "max_calls": _Count, "max_cost": above, "cache": str, "reuse": _Files}
    keys["keep_prompts"] = bool
    keys["prompt"] = Annotated[PromptKeys, BeforeValidator(_as_prompt)]
    return keys | ({"repeat": _Count, "stop": Literal[WHEN_DECIDED]} if calls.repeats else {})


def _kind(option: Option) -> Any:
    """The type of an option's value in the file; None is like a missing key."""
    kind: Any = Literal.__getitem__(option.choices) if option.choices else _KINDS[option.kind]
    if option.many:
        kind = Annotated[tuple.__class_getitem__((kind, ...)), BeforeValidator(_as_tuple)]
    return Union[kind, None]  # noqa: UP007 - made of values


# The live options of a run: repeats, prompt, and outputs of earlier runs.


def live_options(
    at: FileLocation, calls: Calls | None, written: dict[str, Any], base: Path, *, recorded: bool = False
) -> SweepOptions | None:
    """The options of live calls to a target, or (``recorded``) about outputs; None without calls.

    Raises ConfigError for options that need a target.
    """
    given = {name: written[name] for name in _live_keys(calls) if name in written}
    if calls is None or (calls.option not in given and not recorded):
        if calls is not None and given:
            raise at.wrong((min(given),), f"goes with {calls.option} only")
        return None
    if "cache" in given:
        given["cache"] = beside(base, given["cache"])
    if "prompt" in given:
        given["wording"] = _wording(at, given.pop("prompt"))
    if "reuse" in given:
        given["reuse"] = tuple(_reused_folder(at, base, name) for name in given["reuse"])
    return SweepOptions(target=given.pop(calls.option, ""), **given)


def _wording(at: FileLocation, given: PromptKeys) -> Wording:
    template, system = (_prompt_text(at, name, getattr(given, name)) for name in ("template", "system"))
    if not template and not system:
        raise at.wrong(("prompt",), "a template or a system prompt is needed")
    if template and PLACE not in template:
        raise at.wrong(("prompt",), f"the template needs {PLACE} for a case's question")
    return Wording(template, system)


def _prompt_text(at: FileLocation, name: str, given: str | FileKey) -> str:
    """The text, or that of a file beside the suite file or below it. Raises ConfigError."""
    if isinstance(given, str):
        return given
    folder, key = Path(at.path).resolve().parent, ("prompt", name, "file")
    try:
        file = (folder / given.file).resolve()
        if not allows(Writer.SUITE, Thing.PATH, file, (folder,)):
            raise at.wrong(key, "must be a file in the suite file's folder, or below it")
        with open_input(file) as stream:
            return stream.read().decode().removesuffix("\n")
    except (OSError, ValueError) as error:  # ValueError: not UTF-8, or a zero byte in the name
        raise at.wrong(key, f"{given.file} cannot be read: {error}") from None


def _reused_folder(at: FileLocation, base: Path, name: str) -> str:
    """The folder of a run that a suite names by a path from the file, or by its id. Raises ConfigError."""
    near = Path(beside(base, name))
    try:
        return str(RunFolder.existing(near if near.is_dir() else RUNS / name).path.absolute())
    except UsageError as error:
        raise at.wrong(("reuse",), str(error)) from None
