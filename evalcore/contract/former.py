"""The contract as it was: members of an evaluator that are not read any more, and where what they said goes now."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from evalq.evalcore.contract.capabilities import Sample
from evalq.evalcore.contract.evaluator import Evaluator

__all__ = ["former_members"]

_PLACES: dict[str, tuple[str, dict[str, str]]] = {
    "records": ("Records", {"format": "format", "columns": "columns", "unit": "unit"}),
    "gathering": ("Gathering", {"gathers": "endings", "gather": "line"}),
    "command": (
        "CommandLine",
        {"options": "options", "commands": "commands", "positional": "positional", "request": "request"},
    ),
    "calls": ("Calls", {name: name for name in ("prompts", "answered", "answers_suffice", "repeats", "stopping")}),
    "sample": ("Sample", {"demo_records": "records"}),
    "views": (
        "Views",
        {name: name for name in ("metrics", "panels", "markdown", "notices", "document", "exports")},
    ),
    "whole": ("WholeInput", {"settle": "settle", "close": "finish_input", "dead": "dead", "follows": "follows"}),
}
"""{member of today: (its type, {former member: field of that type})}."""


def former_members(evaluator: Evaluator[Any, Any]) -> Iterator[str]:
    """What of ``evaluator`` would be ignored silently: "options (now command = CommandLine(options=...))".

    A member of such a name that has its place in today's contract too is the evaluator's own business.
    """
    for member, (kind, fields) in _PLACES.items():
        value, default = getattr(evaluator, member), getattr(Evaluator, member)
        for former, field in fields.items():
            given = value is not None and getattr(value, field, None) != getattr(default, field, None)
            if hasattr(evaluator, former) and not given:
                yield f"{former} (now {member} = {kind}({field}=...))"
    if hasattr(evaluator, "asks") and evaluator.calls is None:
        yield "asks (now calls = Calls(option=...))"
    if evaluator.sample is not None and not isinstance(evaluator.sample, Sample):
        yield "sample() (now sample = Sample(write=...))"
