"""The one way in which a command is declared."""

from __future__ import annotations

import inspect
import os
import sys
from collections.abc import Callable
from typing import Any

import click

from evalq.evalcore.errors import UsageError
from evalq.evalcore.naming import is_text
from evalq.producer.invocation.invocation import Invocation

__all__ = ["DECIDING", "command"]

DECIDING = ("check-regressions", "gate", "run")
"""They find what is no text by themselves: a file of an earlier decision gets the error in its place."""


def command(
    call: Callable[..., int | None],
    *params: click.Parameter,
    name: str = "",
    text: str = "",
    kind: type[click.Command] = click.Command,
) -> click.Command:
    """A command that calls ``call`` with the `Invocation` and, by their names, with the parameters it names itself.

    What it returns is the exit code (None: 0). The command is called like its module (or ``name``), and the module's
    docstring is its help (or ``text``); the first line of that stands in ``evalq --help``. ``kind`` is its class.
    """
    module = sys.modules[call.__module__]
    mine = inspect.signature(call).parameters.keys() - {"invocation"}
    # An option that neither of them takes would be accepted and ignored: fail when the program starts.
    lost = [param.name for param in params if param.name not in mine and not Invocation.holds(str(param.name))]
    if lost:
        raise TypeError(f"{call.__module__}: neither {call.__name__} nor Invocation takes {', '.join(map(str, lost))}")

    def callback(**given: Any) -> int | None:
        _refuse_bytes(click.get_current_context())
        own = {key: given.pop(key) for key in mine}
        return call(Invocation.of(given), **own)

    return kind(
        name or call.__module__.rpartition(".")[2].replace("_", "-"),
        callback=callback,
        params=list(params),
        help=text or inspect.cleandoc(module.__doc__ or ""),
    )


def _refuse_bytes(ctx: click.Context) -> None:
    """Raise UsageError for an option's variable that is no text in UTF-8; the command line is refused before."""
    for param in ctx.command.params if ctx.command.name not in DECIDING else ():
        source = ctx.get_parameter_source(param.name or "")
        told = os.environ.get(str(param.envvar), "") if source is click.core.ParameterSource.ENVIRONMENT else ""
        if not is_text(told):
            raise UsageError(f"{param.envvar}: {told!a} is not text in UTF-8")
