"""What a chunk failed of, in the ledger's kinds."""

from __future__ import annotations

import redis
from billiard.common import terminate_handler_fired

from evalq.workers.ledger.failures import Kind

__all__ = ["ChunkFailed", "kind_of", "raise_if_told_to_stop"]


class ChunkFailed(Exception):
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
