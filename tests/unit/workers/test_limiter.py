"""A process's part in the pace of its fleet, without a server."""

from __future__ import annotations

import asyncio
import traceback
from collections.abc import Callable
from typing import Any, NoReturn

import redis

from evalq.evalcore.errors import BrokerUnreachable
from evalq.workers.ratelimit import PoolLimits, RateLimiter


class Away:
    """A client of a server that is away."""

    def register_script(self, text: str) -> Callable[..., NoReturn]:
        """A script that cannot be run."""

        def run(*_: Any) -> NoReturn:
            raise redis.ConnectionError("away")

        return run


async def _refusals(count: int) -> list[int]:
    """How long the tracebacks are of so many calls that ask in turn while the server is lost."""
    lengths: list[int] = []
    client: Any = Away()
    async with RateLimiter(client, "t", PoolLimits(), patience_seconds=0.0) as pacer:
        while len(lengths) < count:
            try:
                await pacer.acquire()
            except BrokerUnreachable as error:
                lengths.append(len(traceback.extract_tb(error.__traceback__)))
    return lengths


def test_a_lost_server_is_reported_to_each_call_by_an_error_of_its_own() -> None:
    """Raised again and again, one error would keep the frames of each call that it was told to."""
    assert len(set(asyncio.run(_refusals(6))[1:])) == 1
