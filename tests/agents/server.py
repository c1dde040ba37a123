"""The server itself: `running_agent` starts one in a thread; `python -m tests.agents.server PORT_FILE` is one.

A prompt that is a JSON object with "do" commands what happens; with "times", to the first so many calls of it only.
Any other prompt is answered with {"echo": prompt, "system": system prompt, "n": its how manieth call}, or at
/embeddings with a vector.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import random
import re
import sys
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from tests.agents.hostile import hostile


class Agent:
    """``latency`` in seconds; ``per_second`` calls are served in any second, the others get a 429; 0: all are.

    After ``quota`` calls the account is spent; 0: never. ``answer`` answers what is no order, ``chat`` all messages,
    and ``reply`` any request, by its path and its body. ``served`` are keys of a reply that name the model that
    serves it.
    While ``ready`` is false, calls are taken and none is answered, and so while it is ``halted`` or has answered
    ``most`` calls (0: any number), which can be said from outside; while it is ``dead``, each request's connection is
    cut: ``cut`` counts them. Where it ``judges``, it gives verdicts on the answers in its prompts. Where it
    ``talks``, it calls a tool before each answer, and as `CUSTOMER` it plays the user. With ``faults`` it
    fails as often as `_FAULTS` says.
    """

    def __init__(self) -> None:
        self.latency = 0.0
        self.per_second = 0
        self.quota = 0
        self.ready: Callable[[], bool] = lambda: True
        self.halted = False
        self.most = 0
        self.judges = False
        self.talks = False
        self.dead: Callable[[], bool] = lambda: False
        self.cut = 0
        self.answer: Callable[[str], str] | None = None
        self.chat: Callable[[list[str]], str] | None = None
        self.served: dict[str, str] = {}
        self.reply_seconds = 0.0
        self.reply: Callable[[str, Any], Any] | None = None
        self.embed: Callable[[str], list[float]] = letters
        self.retry_after = ""
        self.faults: random.Random | None = None
        self.faulty: Counter[str] = Counter()
        self.requests: list[dict[str, Any]] = []
        self.log: list[tuple[float, int]] = []
        self.calls: Counter[str] = Counter()
        self._window: deque[float] = deque()
        self.keep_requests = True
        self.connections = 0
        self.at_once = self.busiest = 0

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One connection, kept open between requests."""
        self.connections += 1
        try:
            while head := await reader.readuntil(b"\r\n\r\n"):
                lines = head.decode("latin-1").split("\r\n")
                headers = {
                    name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines[1:])
                }
                body = await reader.readexactly(int(headers.get("content-length", 0)))
                self.at_once += 1
                self.busiest = max(self.busiest, self.at_once)
                try:
                    if not await self._answer(lines[0].split(" ")[1], headers, body, writer):
                        break
                finally:
                    self.at_once -= 1
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()

    async def _answer(self, path: str, headers: dict[str, str], body: bytes, writer: asyncio.StreamWriter) -> bool:
        """Answer one request; whether the connection stays open."""
        if self.dead():
            self.cut += 1
            return False
        data = json.loads(body or b"null")
        if path == "/control":
            for name, value in (data or {}).items():
                setattr(self, name, value)
            return await _reply(writer, 200, {"log": self.log})
        if self.keep_requests:
            self.requests.append({"path": path, "headers": headers, "body": data})
        if self._too_many():
            self.log.append((time.time(), 429))
            messages = {"retry-after": self.retry_after} if self.retry_after else {}
            return await _reply(writer, 429, {"error": {"message": "slow down"}}, messages)
        if self.quota and self.calls.total() >= self.quota:
            self.log.append((time.time(), 402))
            return await _reply(writer, 402, {"error": {"message": "insufficient quota"}})
        if self.faults is not None and (fault := _fault(self.faults)):
            self.faulty[fault] += 1
            return await _fail(fault, writer)
        if self.reply is not None:
            await asyncio.sleep(self.reply_seconds)
            self.log.append((time.time(), 200))
            return await _reply(writer, 200, self.reply(path, data))
        prompt = data["messages"][-1]["content"] if isinstance(data, dict) and "messages" in data else ""
        if path.endswith("/embeddings"):
            prompt = data["input"]
        system = data["messages"][0]["content"] if "messages" in (data or ()) and len(data["messages"]) > 1 else None
        self.calls[prompt] += 1
        await asyncio.sleep(self.latency)
        while self.halted or 0 < self.most <= len(self.log) or not self.ready():
            await asyncio.sleep(0.005)
        try:
            order = json.loads(prompt)
        except ValueError:
            order = None
        if isinstance(order, dict) and "do" in order and self.calls[prompt] <= order.get("times", 1 << 30):
            return await self._obey(order, headers, writer)
        self.log.append((time.time(), 200))
        if self.talks:
            talked = _spoken if data["model"] == CUSTOMER else _talked
            return await _reply(writer, 200, talked(data["messages"]))
        if path.endswith("/embeddings"):
            return await _reply(writer, 200, embedding(self.embed(prompt), len(prompt)))
        if self.judges:
            answer = prompt.partition("<<<ANSWER-")[2].partition("<<<END-")[0]
            verdict = {"marker": marker_in(prompt), "pass": judged_well(answer)}
            return await _reply(writer, 200, completion(json.dumps(verdict)))
        if self.chat is not None:
            said = completion(self.chat([str(message["content"]) for message in data["messages"]]))
            return await _reply(writer, 200, {**said, "model": data["model"], "created": int(time.time())})
        if self.answer is not None:
            return await _reply(writer, 200, {**completion(self.answer(prompt)), **self.served})
        return await _reply(
            writer, 200, completion(json.dumps({"echo": prompt, "system": system, "n": self.calls[prompt]}))
        )

    def _too_many(self) -> bool:
        now = time.monotonic()
        while self._window and self._window[0] <= now - 1:
            self._window.popleft()
        if self.per_second and len(self._window) >= self.per_second:
            return True
        self._window.append(now)
        return False

    async def _obey(self, order: dict[str, Any], headers: dict[str, str], writer: asyncio.StreamWriter) -> bool:
        kind = order["do"]
        self.log.append((time.time(), order.get("status", 200)))
        if kind == "hostile":
            await hostile(order["how"], writer)
            return True
        if kind == "cut":
            return False
        if kind == "hang":
            await asyncio.sleep(3600)
        if kind == "half":
            writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 1000\r\n\r\n{")
            await writer.drain()
            return False
        if kind == "raw":
            return await _reply(writer, order.get("status", 200), order["body"], order.get("headers"))
        if kind == "agent":
            return await _reply(writer, 200, completion(vs_answer(order, self.calls[prompt_of(order)])))
        if kind == "leak":  # a server that repeats what it was sent, key and all
            return await _reply(writer, order.get("status", 200), completion(json.dumps(headers)))
        return await _reply(writer, 200, completion(**{key: order[key] for key in _SAID if key in order}))


_FAULTS = {"429": 0.08, "500": 0.03, "html": 0.01, "cut": 0.01}
"""Shares of the requests that a busy provider behind a proxy refuses, fails, or answers with a page or half a reply."""


def _fault(chosen: random.Random) -> str:
    at = chosen.random()
    for fault, share in _FAULTS.items():
        if at < share:
            return fault
        at -= share
    return ""


async def _fail(fault: str, writer: asyncio.StreamWriter) -> bool:
    if fault == "429":
        return await _reply(writer, 429, {"error": {"message": "slow down"}}, {"retry-after": "1"})
    if fault == "500":
        return await _reply(writer, 500, {"error": {"message": "internal"}})
    if fault == "html":
        return await _reply(writer, 200, "<html><body>One moment</body></html>", {"content-type": "text/html"})
    return await _reply(writer, 200, json.dumps(completion("The parcel"))[:60])


_SAID = ("content", "finish_reason", "refusal", "tokens")


def prompt_of(order: dict[str, Any]) -> str:
    """The prompt that commands ``order``, as a golden set's input is sent."""
    return json.dumps(order, ensure_ascii=False, separators=(",", ":"))


def vs_answer(order: dict[str, Any], n: int) -> str:
    """The n-th answer of a well-behaved agent that gives its commonest option with probability ``share``."""
    rng = random.Random(f"{prompt_of(order)} {n}")
    share = order.get("share", 0.5)
    option = "the usual" if rng.random() < share else f"another {rng.randrange(order.get('others', 6))}"
    output = {
        "agent_id": order["agent"],
        "vs_level": order["level"],
        "execution_timestamp": "2026-03-02T09:10:00Z",
        "vs_metadata": {
            "phase_executed": [0, 1, 2, 3, 4, 5],
            "modal_identified": ["a", "b", "c"],
            "t_scores": [
                {"option": o, "score": s, "rationale": "r"} for o, s in ((option, 0.3), ("x", 0.65), ("y", 0.9))
            ],
            "final_selection": {"option": option, "t_score": 0.3, "justification": "fits"},
        },
        "content": {"summary": "s", "main_output": {}, "confidence": 0.7},
        "self_critique": {
            "strengths": ["a", "b"],
            "weaknesses": ["a", "b"],
            "improvement_suggestions": ["a"],
            "alternative_perspectives": ["a"],
        },
        "provenance": {"sources": ["s"], "reasoning_trace": ["r"], "assumptions": []},
    }
    text = json.dumps(output)
    return f"Here it is:\n```json\n{text}\n```\nDone." if order.get("fenced") else text


def marker_in(prompt: str) -> str:
    """The marker that a prompt wants in its reply: the last one that it names, behind all texts of others."""
    return str(re.findall(r'"marker": "([0-9a-f]{16})"', prompt)[-1])


def judged_well(answer: str) -> bool:
    """The verdict of one that ``judges``: by the answer alone, so that each can be told from that on another one."""
    return '"the usual"' in answer


def write_golden(path: Path, cases: dict[str, dict[str, Any]]) -> Path:
    """A golden set of ``cases`` {id: order of its prompt}; {} is an agent with a share of .5."""
    agent = "02-theoretical-framework-architect"
    messages = {"do": "agent", "agent": agent, "level": "FULL"}
    tests = [
        {"id": case, "agent": agent, "input": {**messages, **order, "case": case}} for case, order in cases.items()
    ]
    path.write_text(json.dumps({"test_cases": {"full_vs_tests": tests}}))
    return path


def completion(
    content: str | None = None, finish_reason: str = "stop", refusal: str | None = None, tokens: int = 10
) -> dict[str, Any]:
    """A reply of chat completions, with ``tokens`` prompt and as many completion tokens."""
    message = {"role": "assistant", "content": content, "refusal": refusal}
    return {
        "id": "c",
        "object": "chat.completion",
        "choices": [{"index": 0, "message": message, "finish_reason": finish_reason}],
        "usage": {"prompt_tokens": tokens, "completion_tokens": tokens, "total_tokens": 2 * tokens},
    }


def _talked(messages: list[dict[str, Any]]) -> dict[str, Any]:
    """Looks up the last word that the user said, and then says what the tool gave."""
    last = messages[-1]
    if last["role"] == "tool":
        return completion(f"it is {last['content']}")
    said = completion(None, "tool_calls")
    word = json.dumps({"word": str(last["content"]).rsplit(" ", 1)[-1]})
    call = {"id": f"call_{len(messages)}", "type": "function", "function": {"name": "look_up", "arguments": word}}
    said["choices"][0]["message"]["tool_calls"] = [call]
    return said


CUSTOMER = "customer"
"""The model that plays a user."""


def _spoken(messages: list[dict[str, Any]]) -> dict[str, Any]:
    """Asks what its goal says, which is in quotes, once it has an answer to the first question; and then is done."""
    said = sum(message["role"] == "assistant" for message in messages)
    goal = messages[0]["content"].split('"')[1]
    return completion(goal if said < 2 else "###STOP###")


def letters(text: str) -> list[float]:
    """How often each letter occurs in a text: a vector by which texts of the same words are alike in any order."""
    return [text.lower().count(letter) / (len(text) or 1) for letter in "abcdefghijklmnopqrstuvwxyz"]


def embedding(vector: list[float], tokens: int) -> dict[str, Any]:
    """A reply of embeddings."""
    return {
        "object": "list",
        "data": [{"object": "embedding", "index": 0, "embedding": vector}],
        "usage": {"prompt_tokens": tokens, "total_tokens": tokens},
    }


async def _reply(writer: asyncio.StreamWriter, status: int, value: Any, headers: dict[str, str] | None = None) -> bool:
    body = value.encode() if isinstance(value, str) else json.dumps(value).encode()
    given = {"content-length": str(len(body)), "content-type": "application/json", **(headers or {})}
    lines = [f"HTTP/1.1 {status} X", *(f"{name}: {value}" for name, value in given.items())]
    writer.write("\r\n".join(lines).encode() + b"\r\n\r\n" + body)
    await writer.drain()
    return True


@contextlib.contextmanager
def running_agent() -> Iterator[tuple[Agent, str]]:
    """A server on loopback in a thread of its own: its Agent and its base URL."""
    agent, loop = Agent(), asyncio.new_event_loop()
    server = loop.run_until_complete(asyncio.start_server(agent.serve, "127.0.0.1", 0))
    thread = threading.Thread(target=loop.run_forever, name="agent", daemon=True)
    thread.start()
    try:
        yield agent, f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1"
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        server.close()
        for task in asyncio.all_tasks(loop):
            task.cancel()
        loop.run_until_complete(asyncio.sleep(0))
        loop.close()


async def _main(port_file: str, port: int = 0) -> None:
    agent = Agent()
    agent.keep_requests = False
    server = await asyncio.start_server(agent.serve, "127.0.0.1", port, backlog=1024)
    Path(port_file).write_text(str(server.sockets[0].getsockname()[1]))
    await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(_main(sys.argv[1], *map(int, sys.argv[2:])))
