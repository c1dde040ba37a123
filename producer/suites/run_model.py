"""What may stand in a run of a suite file: a model for each evaluator, made from the options of its command."""

from __future__ import annotations

import re
from functools import cache
from typing import Annotated, Any, Literal, Union

from pydantic import AfterValidator, BeforeValidator, ConfigDict, Field, PlainValidator, create_model
from pydantic_core import PydanticCustomError

from evalq.evalcore.contract import registry
from evalq.evalcore.contract.evaluator import Calls, Option, Params
from evalq.evalcore.model.calls import WHEN_DECIDED

__all__ = ["AnyRun", "FileKey", "PromptKeys", "RunKeys", "SuiteKeys", "live_keys", "run_model"]

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


class RunKeys(Params):
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
def run_model(evaluator: str) -> type[RunKeys]:
    """The model of a run of ``evaluator``. Raises UnknownEvaluator."""
    found = registry.get(evaluator)
    fields: dict[str, Any] = {option.name: (_kind(option), None) for option in found.command.options}
    fields |= {name: (kind, None) for name, kind in live_keys(found.calls).items()}
    fields[found.command.positional] = (_Files, ())
    made: type[RunKeys] = create_model(f"Run of {evaluator}", __base__=RunKeys, **fields)
    return made


def live_keys(calls: Calls | None) -> dict[str, Any]:
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
