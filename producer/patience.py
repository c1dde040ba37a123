"""Waiting for a server that is away, loading, full, or unable to write to its disk: it may do better soon."""

from __future__ import annotations

import time
from collections.abc import Callable

import redis

from evalcore.errors import BrokerUnreachable

__all__ = ["PATIENCE_SECONDS", "patiently"]

PATIENCE_SECONDS = 120.0
_PASSING = (redis.ConnectionError, redis.TimeoutError, redis.OutOfMemoryError, redis.ReadOnlyError, BrokerUnreachable)


def patiently(step: Callable[[], bool]) -> bool:
    """Take a step; while the server cannot, wait for it and take the step again.

    Raises BrokerUnreachable when that lasts longer than PATIENCE_SECONDS, and what is no passing trouble at once.
    """
    deadline, pause = time.monotonic() + PATIENCE_SECONDS, 0.1
    while True:
        try:
            return step()
        except (redis.RedisError, BrokerUnreachable) as error:
            if not isinstance(error, _PASSING) and not str(error).startswith("MISCONF"):
                raise
            if time.monotonic() > deadline:
                raise BrokerUnreachable(f"the server is away: {error}") from error
            time.sleep(pause)
            pause = min(2 * pause, 2.0)
