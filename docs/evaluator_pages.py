"""The generated half of an evaluator's page: its options, commands and parameters, from their declarations."""

from __future__ import annotations

import json
import types
import typing
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from annotated_types import BaseMetadata
from pydantic.fields import FieldInfo

from evalq.evalcore.contract import plugins
from evalq.evalcore.contract.evaluator import Evaluator, Option, Params
from evalq.evalcore.contract.params import shown_fields
from evalq.evalcore.views.markdown import table

FOLDER = Path(__file__).parent / "reference" / "evaluators"
_CUT = "\n## Options\n"
_SHOWN = 60
_SIGNS = {"ge": ">=", "gt": ">", "le": "<=", "lt": "<"}


def evaluator_page(name: str) -> str:
    """What is written by hand, up to its options, and behind it what the code declares."""
    evaluator = plugins.get(name)
    page = FOLDER / f"{name}.md"
    # A new evaluator's page begins with what its command says; the rest of the upper half is to be written.
    written = page.read_text(encoding="utf-8") if page.exists() else f"# evalq {name}\n\n{evaluator.summary}\n"
    written = written.partition(_CUT)[0].rstrip("\n")
    own = _options(evaluator.command.options) if evaluator.command.options else "None but those of every command.\n"
    parts = [written, _CUT, f"`evalq {name} --help-all` names those of every evaluator, too.\n\n{own}"]
    further = evaluator.command.commands
    if further:
        parts.append("\n## Further commands\n")
        parts += [f"\n`evalq {each.name}`: {each.help}\n\n{_options(each.options)}" for each in further]
    parts.append(
        f"\n## Parameters\n\nIn a file for `--params`, in a suite's `params`, or from Python.\n\n{_params(evaluator)}"
    )
    return "".join(parts)


def _options(options: tuple[Option, ...]) -> str:
    rows: list[tuple[object, ...]] = [
        (", ".join(option.flags), " or ".join(option.choices) or _WORDS[option.kind], option.help) for option in options
    ]
    return table(("option", "takes", "meaning"), rows)


_WORDS = {"str": "text", "int": "a whole number", "float": "a number", "bool": "nothing", "path": "a file or folder"}


def _params(evaluator: Evaluator[Any, Any]) -> str:
    """A table of all keys; a list of objects has a table of its own behind it."""
    inner: dict[str, type[Params]] = {}
    parts = [table(("key", "takes", "default"), list(_rows(evaluator.Params, "", inner)))]
    shown: set[str] = set()
    while waiting := [name for name in inner if name not in shown]:
        for name in waiting:
            shown.add(name)
            said = " ".join((inner[name].__doc__ or "").split("\n\n")[0].split())
            parts.append(
                f"\n{name}: {said}\n\n" + table(("key", "takes", "default"), list(_rows(inner[name], "", inner)))
            )
    return "".join(parts)


def _rows(model: type[Params], prefix: str, inner: dict[str, type[Params]]) -> Iterator[tuple[object, ...]]:
    for name, field in shown_fields(model).items():
        nested = _model(field.annotation)
        if nested is not None and not field.is_required() and typing.get_origin(field.annotation) is None:
            yield from _rows(nested, f"{prefix}{name}.", inner)
            continue
        yield f"{prefix}{name}", _takes(field, inner), _default(field)


def _model(kind: Any) -> type[Params] | None:
    return kind if isinstance(kind, type) and issubclass(kind, Params) else None


def _takes(field: FieldInfo, inner: dict[str, type[Params]]) -> str:
    bounds = [
        f"{sign} {getattr(limit, key):g}"
        for limit in field.metadata
        if isinstance(limit, BaseMetadata)
        for key, sign in _SIGNS.items()
        if getattr(limit, key, None) is not None
    ]
    return ", ".join([_words(field.annotation, inner), *bounds])


def _words(kind: Any, inner: dict[str, type[Params]]) -> str:
    """A type in words; the models of lists are noted in ``inner``."""
    origin, args = typing.get_origin(kind), typing.get_args(kind)
    if origin is typing.Annotated:
        return _words(args[0], inner)
    if origin is typing.Literal:
        return " or ".join(str(arg) for arg in args)
    if origin in (typing.Union, types.UnionType):
        return " or ".join(dict.fromkeys(_words(arg, inner) for arg in args))
    if origin is tuple:
        if len(args) == 2 and args[1] is Ellipsis:
            return f"list of {_words(args[0], inner)}"
        return "list of " + ", ".join(_words(arg, inner) for arg in args)
    model = _model(kind)
    if model is not None:
        inner.setdefault(model.__name__, model)
        return model.__name__
    return {str: "text", int: "whole number", float: "number", bool: "true or false", type(None): "null"}.get(
        kind, "text"
    )


def _default(field: FieldInfo) -> str:
    if field.is_required():
        return "required"
    value = field.get_default(call_default_factory=True)
    if isinstance(value, Params):
        value = value.model_dump(mode="json")
    elif isinstance(value, tuple):
        value = [item.model_dump(mode="json") if isinstance(item, Params) else item for item in value]
    text = json.dumps(value, ensure_ascii=False)
    if len(text) <= _SHOWN:
        return text
    return f"{len(value)} entries" if isinstance(value, list) else "as in the report's `params`"
