"""A user's own function, which evalq calls with one dict: whether it fits, and where it failed."""

from __future__ import annotations

import inspect
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

_TEXTS = frozenset(
    ("answer", "completion", "input", "message", "output", "prediction", "prompt", "query", "question", "response")
)
"""Names of a parameter that expects a text. The dict in its place often fails nothing: `len(output)` is its size."""


_PROMPTS = frozenset(("input", "message", "prompt", "query", "question", "text", "user_input", "user_message"))


def takes_prompt(function: Callable[..., Any]) -> bool:
    """Whether an agent's ``function`` expects the text of a prompt: by its one parameter's name, or by its type."""
    try:
        signature = inspect.signature(function)
        signature.bind("")
        first = next(iter(signature.parameters.values()))
    except Exception:  # Python knows no signature of many functions written in C; objects may raise anything
        return False
    if first.kind is first.VAR_POSITIONAL:
        return False
    return first.name in _PROMPTS if first.annotation is first.empty else first.annotation in (str, "str")


def misfit(function: Callable[..., Any], value: str, key: str) -> str | None:
    """Why ``function`` cannot be called with a dict named ``value``, and how to write it; None if it can.

    ``key`` is the key of the dict that most functions read.
    """
    try:
        signature = inspect.signature(function)
    except Exception:  # Python knows no signature of many functions written in C; objects may raise anything
        return None
    try:
        signature.bind({})
        first = next(iter(signature.parameters.values()))
        named = first.kind is not first.VAR_POSITIONAL and (
            first.name in _TEXTS if first.annotation is first.empty else first.annotation in (str, "str")
        )
        if not named:
            return None
    except TypeError:
        pass
    name = getattr(function, "__name__", type(function).__name__)
    bare = inspect.Signature([one.replace(annotation=one.empty) for one in signature.parameters.values()])
    return (
        f"{name}{bare} expects something else than evalq gives it, which is one dict, the {value}: write "
        f'def {name}({value}), and read {value}["{key}"] in it'
    )


def place(error: BaseException, folder: Path) -> str:
    """The line of the user's code in ``folder`` that ``error`` came through last, as " (in agent.py:4, answer)"."""
    for frame in reversed(traceback.extract_tb(error.__traceback__)):
        file = Path(frame.filename).resolve()
        if file.is_relative_to(folder) and file.suffix == ".py" and "site-packages" not in file.parts:
            return f" (in {file.relative_to(folder)}:{frame.lineno}, {frame.name})"
    return ""
