"""How long an event loop stood still: what a call does to all others beside it."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Callable

from tests.awake import awake


@contextlib.asynccontextmanager
async def standstill() -> AsyncIterator[Callable[[], float]]:
    """For the length of a block, the longest time so far that this loop computed or waited without taking a turn.

    In seconds in which it had a core: those that the machine gave to others are nobody's fault here.
    """
    longest = 0.0
    with awake() as seconds:

        async def turns() -> None:
            nonlocal longest
            while True:
                waited, computed = seconds(), time.thread_time()
                await asyncio.sleep(0.005)
                longest = max(longest, seconds() - waited, time.thread_time() - computed)

        watch = asyncio.create_task(turns())
        await asyncio.sleep(0)
        try:
            yield lambda: longest
        finally:
            watch.cancel()
