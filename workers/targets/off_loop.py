"""Work on long texts, out of the way of the calls that wait for the event loop."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, TypeVar

__all__ = ["off_loop"]

T = TypeVar("T")

_LONG = 1 << 18


async def off_loop(size: int, work: Callable[..., T], *args: Any) -> T:
    """What ``work`` returns: from a thread where ``size`` bytes are so many that other calls would wait for it."""
    return work(*args) if size <= _LONG else await asyncio.to_thread(work, *args)
