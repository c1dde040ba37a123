"""The time that the ledger goes by: its server's, so that no machine of a fleet needs the right one."""

from __future__ import annotations

from typing import Any

__all__ = ["server_micros", "server_seconds"]


def server_micros(client: Any) -> int:
    """Microseconds since 1970 by the server's clock. Raises redis.RedisError."""
    seconds, micros = client.time()
    # Whole numbers: scripts compare times for equality and order, which sums of floats would blur.
    return int(seconds) * 1_000_000 + int(micros)


def server_seconds(client: Any) -> float:
    """Seconds since 1970 by the server's clock. Raises redis.RedisError."""
    return server_micros(client) / 1_000_000
