"""An MCP server of the first protocol, without a package: `python old_mcp.py TOOL...`. It lists one tool a page.

It knows no greeting but that of its protocol, notes its start and each call in log.txt, and gives a call back as JSON.
A call of the tool `silent` has no answer.
"""

from __future__ import annotations

import json
import os
import sys
from typing import Any

TOOLS = sys.argv[1:]


def note(*words: object) -> None:
    with open("log.txt", "a") as stream:
        stream.write(" ".join(map(str, words)) + "\n")


def answer(method: str, params: dict[str, Any]) -> dict[str, Any]:
    if method == "initialize":
        about = {"name": "old", "version": "1"}
        return {"result": {"protocolVersion": "2024-11-05", "capabilities": {"tools": {}}, "serverInfo": about}}
    if method == "tools/list":
        at = int(params.get("cursor") or 0)
        tools = [{"name": name, "inputSchema": {"type": "object"}} for name in TOOLS[at : at + 1]]
        more = {"nextCursor": str(at + 1)} if at + 1 < len(TOOLS) else {}
        return {"result": {"tools": tools, **more}}
    if method == "tools/call":
        note(params["name"], *params.get("arguments", {}).values(), os.getpid())
        return {"result": {"content": [{"type": "text", "text": json.dumps(params)}]}}
    return {"error": {"code": -32601, "message": f"there is no {method}"}}


note("started", os.getpid())
for line in sys.stdin:
    message = json.loads(line)
    if "id" in message and (message.get("params") or {}).get("name") != "silent":
        replied = answer(message["method"], message.get("params") or {})
        print(json.dumps({"jsonrpc": "2.0", "id": message["id"], **replied}), flush=True)  # noqa: T201 - the protocol
