"""What may stand in a suite file: keys of a suite and its runs, what a run asks a target for, and where a fault is."""

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
from evalq.evalcore.contract.evaluator import Calls, Option, Params
from evalq.evalcore.contract.params import as_json, line_of, list_faults
from evalq.evalcore.errors import ConfigError, UsageError
from evalq.evalcore.files import open_input
from evalq.evalcore.model.calls import WHEN_DECIDED
from evalq.evalcore.trust import Thing, Writer, allows
from evalq.producer.folder.files import RUNS
from evalq.producer.folder.run_folder import RunFolder
from evalq.producer.sweep.options import PLACE, SweepOptions, Wording

# Where a suite file is wrong: its line, the key path, and why.

M = TypeVar("M", bound=Params)
Key = tuple[str | int, ...]
"""The keys that lead to a place, from the top of the file."""


class FilePlace(NamedTuple):
    """Where something stands in a suite file; ``moved``: {a key of it: where that stands instead}, as in a matrix."""

    path: str | Path
    key: Key
    moved: Mapping[str, Key] = {}

    def under(self, *keys: str | int) -> Key:
        """Where these of its keys stand."""
        moved = self.moved.get(str(keys[0])) if keys else None
        return (*self.key, *keys) if moved is None else (*moved, *keys[1:])

    def checked(self, model: type[M], data: Mapping[str, Any]) -> M:
        """What stands there. Raises ConfigError with a line for each that is wrong."""
        try:
            return model.model_validate_json(as_json(data), strict=True)
        except ValidationError as error:
            faults = [(self.under(*where), reason) for where, reason in list_faults(error, model)]
            raise wrong(self.path, faults) from None
        except (TypeError, ValueError) as error:
            raise ConfigError(f"{location_of(self.path, self.key)}: not plain JSON data: {error}") from None

    def wrong(self, keys: Key, reason: str) -> ConfigError:
        """The error that says what is wrong under ``keys``."""
        return wrong(self.path, [(self.under(*keys), reason)])


def checked(model: type[M], data: Mapping[str, Any], path: str | Path, key: Key = ()) -> M:
    """What stands under ``key``. Raises ConfigError with a line for each that is wrong."""
    return FilePlace(path, key).checked(model, data)


def wrong(path: str | Path, faults: Sequence[tuple[Key, str]]) -> ConfigError:
    """The error that says each of ``faults``, (where, why)."""
    return ConfigError("\n  ".join(f"{location_of(path, key)}: {reason}" for key, reason in faults))


def location_of(path: str | Path, key: Key) -> str:
    """File, line and key path."""
    line = line_of(path, key)
    at = f"{path}:{line}" if line else str(path)
    return f"{at}: {'.'.join(map(str, key))}" if key else at


def beside(base: Path, name: str) -> str:
    """A path as it is seen from the suite file; "-" stays what it is."""
    return name if name == "-" else os.path.normpath(base / name)


_KINDS: dict[str, Any] = {"str": str, "int": int, "float": float, "bool": bool, "path": str}


def _listed(value: Any) -> Any:
    """One value where several may stand."""
    return tuple(value) if isinstance(value, list) else (value,)


def _name(value: str) -> str:
    if value and not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}", value):
        raise PydanticCustomError("name", "letters, digits, '.', '_' and '-' are needed")
    return value


def _text(value: Any) -> str | FileKey:
    """Of the two forms the one that was meant, so that a fault is told once, and by the keys of the file."""
    if isinstance(value, str):
        return value
    if isinstance(value, dict) and value.keys() == {"file"} and isinstance(value["file"], str):
        return FileKey(file=value["file"])
    raise PydanticCustomError(
        "text", "a text is needed, or the name of a file ({example})", {"example": "{file: NAME}"}
    )


def _words(value: Any) -> Any:
    return {"template": value} if isinstance(value, str) else value


_Count = Annotated[int, Field(ge=1)]
_Files = Annotated[tuple[str, ...], BeforeValidator(_listed)]


class SuiteKeys(Params):
    """The top level. ``policy`` is a file, or a policy as it would stand in one."""

    suite: str = ""
    runs: tuple[dict[str, Any], ...] = Field(min_length=1)
    policy: str | dict[str, Any] | None = None
    baseline: str = ""
    outputs: _Files = ()


class FileKey(Params):
    """Text that stands in a file."""

    file: str


class PromptKeys(Params):
    """The words around each case's question."""

    template: Annotated[str | FileKey, PlainValidator(_text)] = ""
    system: Annotated[str | FileKey, PlainValidator(_text)] = ""


class SuiteRunKeys(Params):
    """What every run may have; one with a ``matrix`` stands for several."""

    evaluator: str
    name: Annotated[str, AfterValidator(_name)] = ""
    params: dict[str, Any] = Field(default_factory=dict)
    chunk_size: _Count | None = None
    limit: _Count | None = None
    output: _Files = ()
    matrix: dict[str, Any] | None = None


class AnyRun(Params):
    """A run of which only the evaluator is looked at."""

    model_config = ConfigDict(extra="ignore")

    evaluator: str
    name: Annotated[str, AfterValidator(_name)] = ""
    matrix: dict[str, Any] | None = None


@cache
def run_model(evaluator: str) -> type[SuiteRunKeys]:
    """The model of a run of ``evaluator``. Raises UnknownEvaluator."""
    found = plugins.get(evaluator)
    fields: dict[str, Any] = {option.name: (_kind(option), None) for option in found.command.options}
    fields |= {name: (kind, None) for name, kind in _live_keys(found.calls).items()}
    fields[found.command.positional] = (_Files, ())
    made: type[SuiteRunKeys] = create_model(f"Run of {evaluator}", __base__=SuiteRunKeys, **fields)
    return made


def _live_keys(calls: Calls | None) -> dict[str, Any]:
    """The keys of a run that asks a target, with the types of their values."""
    if calls is None:
        return {}
    above = Annotated[float, Field(gt=0)]
    keys: dict[str, Any] = {calls.option: str, "max_calls": _Count, "max_cost": above, "cache": str, "reuse": _Files}
    keys["prompt"] = Annotated[PromptKeys, BeforeValidator(_words)]
    return keys | ({"repeat": _Count, "stop": Literal[WHEN_DECIDED]} if calls.repeats else {})


def _kind(option: Option) -> Any:
    """The type of an option's value in the file; None is as if it were not there."""
    kind: Any = Literal.__getitem__(option.choices) if option.choices else _KINDS[option.kind]
    if option.many:
        kind = Annotated[tuple.__class_getitem__((kind, ...)), BeforeValidator(_listed)]
    return Union[kind, None]  # noqa: UP007 - made of values


# What a run of a suite asks a target for: how often, in which words, and what may be taken from earlier runs.


def live_options(
    at: FilePlace, calls: Calls | None, written: dict[str, Any], base: Path, *, recorded: bool = False
) -> SweepOptions | None:
    """What a run asks a target for, or (``recorded``) about outputs; None where it asks none.

    Raises ConfigError for what goes with a target only.
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


def _wording(at: FilePlace, given: PromptKeys) -> Wording:
    template, system = (_prompt_text(at, name, getattr(given, name)) for name in ("template", "system"))
    if not template and not system:
        raise at.wrong(("prompt",), "a template or a system prompt is needed")
    if template and PLACE not in template:
        raise at.wrong(("prompt",), f"the template has no place for a case's question: {PLACE}")
    return Wording(template, system)


def _prompt_text(at: FilePlace, name: str, given: str | FileKey) -> str:
    """Text, or what is in a file beside the suite file or below it. Raises ConfigError."""
    if isinstance(given, str):
        return given
    folder, place = Path(at.path).resolve().parent, ("prompt", name, "file")
    try:
        file = (folder / given.file).resolve()
        if not allows(Writer.SUITE, Thing.PATH, file, (folder,)):
            raise at.wrong(place, "must be a file in the suite file's folder, or below it")
        with open_input(file) as stream:
            return stream.read().decode().removesuffix("\n")
    except (OSError, ValueError) as error:  # ValueError: no UTF-8, or a name that has a zero byte
        raise at.wrong(place, f"{given.file} cannot be read: {error}") from None


def _reused_folder(at: FilePlace, base: Path, name: str) -> str:
    """The folder of a run that a suite names: seen from the file, or by its id. Raises ConfigError."""
    near = Path(beside(base, name))
    try:
        return str(RunFolder.existing(near if near.is_dir() else RUNS / name).path.absolute())
    except UsageError as error:
        raise at.wrong(("reuse",), str(error)) from None
