"""Functions for targets of kind python: well-behaved ones, and those that end, block or bloat their process.

Tests copy this file beside their targets file.
"""

from __future__ import annotations

import asyncio
import ctypes
import json
import os
import sys
import time
from pathlib import Path
from typing import Any


def exits(call: dict[str, Any]) -> None:
    """As a script's main function does."""
    sys.exit(f"no {call['prompt']}")


async def exits_async(call: dict[str, Any]) -> None:
    """The same in the event loop."""
    exits(call)


async def gives_up(_call: dict[str, Any]) -> None:
    """Cancelled by what it called, not by evalq."""
    raise asyncio.CancelledError("given up")


def half_a_pair(_call: dict[str, Any]) -> str:
    """Text that no UTF-8 file can hold."""
    return '"a\ud800b"'


def says_half_a_pair(_call: dict[str, Any]) -> str:
    """The same in an error."""
    raise ValueError("a\ud800b")


def much(_call: dict[str, Any]) -> str:
    """More than may be kept."""
    return json.dumps("한" * 2000)


def blocks(_call: dict[str, Any]) -> None:
    """Longer than anybody waits."""
    time.sleep(60)


class Agent:
    """Called like a function."""

    async def __call__(self, call: dict[str, Any]) -> Any:
        """Its repeat."""
        return [call["repeat"]]


agent = Agent()


def sync_agent(call: dict[str, Any]) -> Any:
    """A target of kind python."""
    if call["prompt"] == "raise":
        raise ValueError("it broke")
    if call["prompt"] == "limit":
        # As late as here: a process for calls starts in a third of the time without them.
        from evalq.workers.targets import CallFailed, Failure

        raise CallFailed(Failure(kind="rate_limit", reason="enough", retry_after_seconds=3))
    return {"got": call["prompt"]}


async def async_agent(call: dict[str, Any]) -> str:
    """The same, async, with text."""
    await asyncio.sleep(0 if call["prompt"] != "hang" else 60)
    return f"```json\n[{call['repeat']}]\n```"


async def kills(call: dict[str, Any]) -> str:
    """Ends its process where the prompt says how, and is in flight with others by then."""
    await asyncio.sleep(0.05)
    print("a function may print")  # noqa: T201 - it must not get among the answers
    if call["prompt"] == "exit":
        os._exit(0)
    if call["prompt"] == "fault":
        ctypes.string_at(0)
    if call["prompt"] == "memory":
        return str(len(bytearray(1 << 40)))
    return json.dumps(call["prompt"])


async def blocks_the_loop(call: dict[str, Any]) -> str:
    """Asynchronous in name only."""
    if call["prompt"] == "block":
        time.sleep(60)
    return "{}"


def where(_call: dict[str, Any]) -> list[str]:
    """The process, its folder, and whether it knows the broker."""
    return [str(os.getpid()), str(Path.cwd()), os.environ.get("EVALQ_BROKER", "")]
