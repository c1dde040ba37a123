"""An MCP server of the official package, for tests: `python mcp_tools.py LOG`; each call is a line of LOG.

Its tools do what tools do at worst. `die_once` ends the process at its first call, with the file LOG.died.
"""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path
from typing import Any

from mcp.server.mcpserver import Image, MCPServer

LOG = Path(sys.argv[1])
server = MCPServer("shop")


def note(*words: object) -> None:
    """One line, by one write: several calls run at once."""
    with LOG.open("ab", buffering=0) as stream:
        stream.write((" ".join(map(str, words)) + "\n").encode())


@server.tool()
def weather(city: str) -> dict[str, str]:
    """The weather of a city"""
    note("weather", city, os.getpid())
    if city == "Atlantis":
        raise LookupError("no such city")
    return {"sky": "sunny", "city": city}


@server.tool()
def say(text: str, times: int = 1) -> str:
    """A text, repeated"""
    note("say", len(text), os.getpid())
    return text * times


@server.tool()
def wait(seconds: float) -> str:
    """Wait"""
    note("wait", seconds)
    time.sleep(seconds)
    return "waited"


@server.tool()
def die_once() -> str:
    """End the process"""
    died = LOG.with_suffix(".died")
    if died.exists():
        return "alive"
    died.touch()
    print("the disk is full", file=sys.stderr, flush=True)  # noqa: T201 - what a server logs
    os._exit(3)


@server.tool()
def picture() -> Any:
    """An image"""
    return Image(data=b"\x89PNG" * 10, format="png")


@server.tool()
def environment() -> list[str]:
    """The names of its variables"""
    return sorted(os.environ)


if __name__ == "__main__":
    note("started", os.getpid())
    print("a greeting of a library", flush=True)  # noqa: T201 - no message, as many servers write
    server.run("stdio")
