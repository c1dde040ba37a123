"""Agents under test that can be called, named in the workers' own configuration and only there.

`load_targets` reads the file, a `Caller` calls one target, `call_paced` does so at the fleet's common pace.
"""

from evalq.workers.targets.answers import KINDS, Answer, Call, Failure, FailureKind
from evalq.workers.targets.caller import Caller, Tries, attempt, call_paced, limits_of
from evalq.workers.targets.config import load_targets
from evalq.workers.targets.target import NamedTarget, Target

__all__ = [
    "KINDS",
    "Answer",
    "Call",
    "Caller",
    "Failure",
    "FailureKind",
    "NamedTarget",
    "Target",
    "Tries",
    "attempt",
    "call_paced",
    "limits_of",
    "load_targets",
]
