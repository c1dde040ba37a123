"""Whether an object of grafana-foundation-sdk holds what its class says it holds, all the way down."""

from __future__ import annotations

import enum
import sys
import types
import typing
from collections.abc import Iterator
from typing import Any


def faults(value: Any, hint: Any = None, at: str = "dashboard") -> Iterator[str]:
    """A sentence for each attribute whose value is not of the type that its class declares."""
    if hint is None:
        hint = type(value)
    if not _fits(value, hint):
        yield f"{at}: {value!r} is no {hint}"
        return
    if type(value).__module__.startswith("grafana_foundation_sdk") and not isinstance(value, enum.Enum):
        module = sys.modules[type(value).__module__]
        for name, inner in typing.get_type_hints(type(value), vars(module)).items():
            yield from faults(getattr(value, name), inner, f"{at}.{name}")
    elif isinstance(value, list):
        for index, each in enumerate(value):
            yield from faults(each, _element(value, hint, each), f"{at}[{index}]")


def _fits(value: Any, hint: Any) -> bool:
    origin, inner = typing.get_origin(hint), typing.get_args(hint)
    if hint in (Any, object):
        return True
    if origin in (typing.Union, types.UnionType):
        return any(_fits(value, each) for each in inner)
    if origin is typing.Literal:
        return value in inner
    if origin is not None:
        return isinstance(value, origin)
    if hint is float:
        return isinstance(value, int | float) and not isinstance(value, bool)
    if hint is int:
        return isinstance(value, int) and not isinstance(value, bool)
    return isinstance(value, hint)


def _element(value: list[Any], hint: Any, each: Any) -> Any:
    """The hint of a list's elements, where it is a list's or one of a union."""
    candidates = typing.get_args(hint) if typing.get_origin(hint) in (typing.Union, types.UnionType) else (hint,)
    lists = [one for one in candidates if typing.get_origin(one) is list]
    return typing.get_args(lists[0])[0] if lists else type(each)
