"""Plain data from YAML, JSON or the command line into an evaluator's params, with errors that name the key."""

from __future__ import annotations

import contextlib
import io
import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar, get_args

from pydantic import ValidationError
from pydantic.fields import FieldInfo

from evalq.evalcore.contract.evaluator import Option, Params
from evalq.evalcore.errors import ConfigError
from evalq.evalcore.files import open_given
from evalq.evalcore.records.yaml import DocumentFault, KeyLines, read_document

P = TypeVar("P", bound=Params)

_FORMER_BOOLEANS = {"yes": True, "on": True, "y": True, "no": False, "off": False, "n": False}
MAX_FILE_CHARACTERS = 16 << 20
"""The longest file of parameters, settings or test cases that is read."""


def validate(model: type[P], data: Mapping[str, Any], where: str, *, show_values: bool = True) -> P:
    """``data`` as ``model``. Raises ConfigError with ``where``, and the path and the fault of every wrong key.

    Without ``show_values`` the error repeats no value, since a value may be a secret under a wrong key.
    """
    try:
        # Through JSON, where strict validation accepts a list for a tuple.
        return model.model_validate_json(as_json(data), strict=True)
    except ValidationError as error:
        faults = list_faults(error, model, show_values=show_values)
        lines = [f"{'.'.join(map(str, key)) or '(top level)'}: {reason}" for key, reason in faults]
        raise ConfigError("\n  ".join([f"{where}: wrong parameters", *lines])) from None
    except (TypeError, ValueError, RecursionError) as error:
        raise ConfigError(f"{where}: not plain JSON data: {error}") from None


def as_json(data: Mapping[str, Any]) -> str:
    """``data`` as JSON. Raises TypeError, ValueError or RecursionError for data that JSON cannot hold."""
    return json.dumps(data, allow_nan=False)


def list_faults(
    error: ValidationError, model: type[Params], *, show_values: bool = True
) -> Iterator[tuple[tuple[str | int, ...], str]]:
    """(path of keys, fault) for each value that ``model`` refused."""
    errors = error.errors(include_url=False)
    paths = [detail["loc"] for detail in errors]
    for detail in errors:
        path = detail["loc"]
        within = (each for each in paths if len(each) > len(path) and each[: len(path)] == path)
        # Pydantic drops wrong entries before it counts a list. The list is not too short; its entries are listed here.
        if detail["type"] == "too_short" and any(within):
            continue
        if detail["type"] == "extra_forbidden":
            yield detail["loc"], f"unknown key (known here: {', '.join(_known(model, detail['loc'][:-1]))})"
        else:
            got = f", got {json.dumps(detail['input'], ensure_ascii=False)[:80]}" if show_values else ""
            meant = boolean_meant(detail["input"]) if detail["type"] == "bool_type" else ""
            yield detail["loc"], f"{detail['msg']}{got}{meant and '; '}{meant}"


def boolean_meant(value: object) -> str:
    """A hint for text that was a boolean in YAML 1.1; empty for all other values."""
    if not isinstance(value, str) or value.lower() not in _FORMER_BOOLEANS:
        return ""
    return f"{value} is text in YAML 1.2: write {'true' if _FORMER_BOOLEANS[value.lower()] else 'false'}"


def _known(model: type[Params], path: tuple[Any, ...]) -> list[str]:
    for part in path:
        if isinstance(part, int):
            continue
        field = model.model_fields.get(str(part))
        inner = _model_in(field.annotation) if field else None
        if inner is None:
            return ["see the documentation"]
        model = inner
    return sorted(shown_fields(model))


def shown_fields(model: type[Params]) -> dict[str, FieldInfo]:
    """The fields that users set, without those that only evalq does (``repr=False``)."""
    return {name: field for name, field in model.model_fields.items() if field.repr}


def _model_in(annotation: Any) -> type[Params] | None:
    """The model in a field's type: the type itself, or inside a tuple or a union."""
    if isinstance(annotation, type) and issubclass(annotation, Params):
        return annotation
    return next((model for each in get_args(annotation) if (model := _model_in(each)) is not None), None)


def load_mapping(path: str | Path, *, empty: bool = False) -> dict[str, Any]:
    """The mapping at the top level of a YAML or JSON file; with ``empty``, a file without content is an empty mapping.

    Raises ConfigError with file and line.
    """
    try:
        with io.TextIOWrapper(open_given(path), encoding="utf-8-sig") as stream:
            # One more than allowed shows that there is more, without reading the rest.
            text = stream.read(MAX_FILE_CHARACTERS + 1)
        if len(text) > MAX_FILE_CHARACTERS:
            raise ConfigError(f"{path}: longer than {MAX_FILE_CHARACTERS >> 20} MiB, the limit for such a file")
        data = read_document(text, str(path))
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise ConfigError(f"{path}: not UTF-8") from None
    except DocumentFault as fault:
        raise ConfigError(f"{path}{f':{fault.line}' if fault.line else ''}: {fault.reason}") from None
    if data is None and empty:
        return {}
    if not isinstance(data, dict) or not all(isinstance(key, str) for key in data):
        nothing = ", but the file is empty" if data is None else ""
        raise ConfigError(f"{path}: the top level must be a mapping of names to values{nothing}")
    return data


def line_of(path: str | Path, key: Sequence[str | int]) -> int | None:
    """The line of ``key`` in a loaded file, or of the longest part of ``key`` that the file has; None if unknown."""
    if not Path(path).is_file():
        return None
    with contextlib.suppress(OSError, ValueError):
        return KeyLines(Path(path).read_text(encoding="utf-8-sig"), str(path)).line(key)
    return None


def merged(base: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    """``base`` with its values replaced by those of ``over``, key by key, in nested mappings too."""
    result = dict(base)
    for key, value in over.items():
        old = result.get(key)
        result[key] = merged(old, value) if isinstance(old, dict) and isinstance(value, dict) else value
    return result


def option_params(options: tuple[Option, ...], values: Mapping[str, Any], params: dict[str, Any]) -> dict[str, Any]:
    """``params`` with the values of the options that name a parameter."""
    for option in options:
        value = values.get(option.name)
        # A repeatable option that is absent is ().
        if option.param and value is not None and value != ():
            nested: Any = list(value) if option.many else value
            for key in reversed(option.param.split(".")):
                nested = {key: nested}
            params = merged(params, nested)
    return params


# Parameters that take a known name, or the user's own patterns.

T = TypeVar("T")


def by_name(value: Any, known: Mapping[str, T]) -> T | Any:
    """The known value that the name ``value`` stands for; other data ready for strict validation. Raises ValueError."""
    if not isinstance(value, str):
        return _with_tuples(value)
    if value not in known:
        raise ValueError(f"no such name (there are: {', '.join(known)}; or give one of your own)")
    return known[value]


def name_of(value: T, known: Mapping[str, T]) -> str | None:
    """The name of ``value``, if it has one."""
    return next((name for name, named in known.items() if named == value), None)


def _with_tuples(value: Any) -> Any:
    # Strict validation accepts a list for a tuple in JSON, but not in a value that a validator returns.
    if isinstance(value, list):
        return tuple(map(_with_tuples, value))
    if isinstance(value, dict):
        return {key: _with_tuples(value) for key, value in value.items()}
    return value
