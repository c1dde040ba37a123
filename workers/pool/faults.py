"""What a chunk failed of, in the ledger's kinds and in a line."""

from __future__ import annotations

import traceback
from pathlib import Path

import redis
from billiard.common import terminate_handler_fired

from evalq.evalcore.errors import EvalqError
from evalq.workers.ledger.failures import Kind

__all__ = ["Failed", "brief", "kind_of", "raise_if_told_to_stop"]


class Failed(Exception):
    """A chunk failed here, for a reason that is known."""

    def __init__(self, kind: Kind, reason: str) -> None:
        super().__init__(reason)
        self.kind = kind
        self.reason = reason


def raise_if_told_to_stop(error: BaseException) -> None:
    """Raise a SystemExit that this process's handler of signals raised: nothing failed, the worker is drained."""
    if isinstance(error, SystemExit) and terminate_handler_fired():
        raise error


def kind_of(error: BaseException) -> Kind:
    if isinstance(error, redis.RedisError):
        return "ledger"
    return "environment" if isinstance(error, (OSError, MemoryError)) else "evaluator"


def brief(error: BaseException) -> str:
    told, trace = str(error), traceback.extract_tb(error.__traceback__)
    # What evalq raises says where the trouble is; of what plug-ins raise the line is told.
    if trace and not isinstance(error, EvalqError):
        at = trace[-1]
        told = f"{type(error).__name__}: {told} (in {Path(at.filename).name}:{at.lineno}, {at.name})"
    return told.encode(errors="backslashreplace").decode()  # no server can be told half of a surrogate pair
