"""Agents under test that can be called, named in the workers' own configuration and only there.

`load_targets` reads the file, a `Caller` calls one target, `call_paced` does so at the fleet's common pace.

A name is imported when it is first used: to call takes a client of Redis and one of HTTP, .3 s of CPU, and every suite
asks a module of this package how a target's choices are written.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from evalq.workers.targets.answers import KINDS, Answered, Call, CallFailed, Failure, FailureKind
    from evalq.workers.targets.caller import Caller, Tries, attempt, call_paced
    from evalq.workers.targets.config import key_names, load_targets
    from evalq.workers.targets.target import NamedTarget, Target

__all__ = [
    "KINDS",
    "Answered",
    "Call",
    "CallFailed",
    "Caller",
    "Failure",
    "FailureKind",
    "NamedTarget",
    "Target",
    "Tries",
    "attempt",
    "call_paced",
    "key_names",
    "load_targets",
]

_PLACES = {
    **dict.fromkeys(("KINDS", "Answered", "Call", "CallFailed", "Failure", "FailureKind"), "answers"),
    **dict.fromkeys(("Caller", "Tries", "attempt", "call_paced"), "caller"),
    **dict.fromkeys(("key_names", "load_targets"), "config"),
    **dict.fromkeys(("NamedTarget", "Target"), "target"),
}
"""{name: the module here that it is defined in}."""

if not TYPE_CHECKING:  # for a checker the package has its public names and no others

    def __getattr__(name: str) -> Any:
        """Import a public name when it is first used."""
        if name not in _PLACES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        value = globals()[name] = getattr(import_module(f"{__name__}.{_PLACES[name]}"), name)
        return value
