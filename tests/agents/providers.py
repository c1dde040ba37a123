"""Servers of the providers' own APIs: chat completions, Responses, Messages, generateContent and Converse.

What they say is a `Says`, which each API writes in its own form, whole or as a stream of events. `tests.unit.targets.
test_sdks` has the providers' own packages read it.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import struct
import threading
import zlib
from collections.abc import Callable, Iterator
from typing import Any

import msgspec

MODEL = "model-2026-01-02"
"""The model that all of them say has answered."""
FINGERPRINT = "fp_1"


class Says(msgspec.Struct, frozen=True, kw_only=True):
    """What the model says and does, why it ends, and the tokens: of ``fresh`` input, beside those of the cache."""

    text: str | None = "The parcel is at the depot."
    calls: tuple[tuple[str, dict[str, Any]], ...] = ()
    thinks: str = ""
    finish: str = "stop"
    refusal: str = ""
    fresh: int = 20
    cached: int = 0
    written: int = 0
    written_1h: int = 0
    output: int = 9
    reasoning: int = 0

    @property
    def input(self) -> int:
        """All tokens of the input."""
        return self.fresh + self.cached + self.written + self.written_1h


# -- chat completions -----------------------------------------------------------------------------------


def completion(says: Says) -> dict[str, Any]:
    """A chat completion."""
    finish = "content_filter" if says.finish == "content_filter" else says.finish
    message: dict[str, Any] = {"role": "assistant", "content": says.text, "refusal": says.refusal or None}
    if says.calls:
        message["tool_calls"] = [_chat_call(number, *call) for number, call in enumerate(says.calls)]
    return {
        "id": "chatcmpl-1",
        "object": "chat.completion",
        "created": 1767312000,
        "model": MODEL,
        "system_fingerprint": FINGERPRINT,
        "choices": [
            {"index": 0, "message": message, "finish_reason": _chat_finish(says, finish), "logprobs": None},
        ],
        "usage": _chat_usage(says),
    }


def _chat_finish(says: Says, finish: str) -> str:
    return "tool_calls" if says.calls else "stop" if finish == "refusal" else finish


def _chat_call(number: int, name: str, arguments: dict[str, Any]) -> dict[str, Any]:
    function = {"name": name, "arguments": json.dumps(arguments)}
    return {"id": f"call_{number}", "type": "function", "function": function}


def _chat_usage(says: Says) -> dict[str, Any]:
    return {
        "prompt_tokens": says.input,
        "completion_tokens": says.output,
        "total_tokens": says.input + says.output,
        "prompt_tokens_details": {"cached_tokens": says.cached, "audio_tokens": 0},
        "completion_tokens_details": {"reasoning_tokens": says.reasoning, "audio_tokens": 0},
    }


def completion_events(says: Says) -> list[str]:
    """The same as chunks."""
    shared = {
        "id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1767312000, "model": MODEL,
        "system_fingerprint": FINGERPRINT,
    }  # fmt: skip

    def chunk(delta: dict[str, Any], finish: str | None = None) -> str:
        choice = {"index": 0, "delta": delta, "finish_reason": finish, "logprobs": None}
        return _data({**shared, "choices": [choice], "usage": None})

    events = [chunk({"role": "assistant", "content": "" if says.text is not None else None, "refusal": None})]
    events += [chunk({"content": piece}) for piece in _pieces(says.text or "")]
    events += [chunk({"refusal": piece}) for piece in _pieces(says.refusal)]
    for number, call in enumerate(says.calls):
        whole = _chat_call(number, *call)
        begun = {**whole, "index": number, "function": {"name": call[0], "arguments": ""}}
        events.append(chunk({"tool_calls": [begun]}))
        events += [
            chunk({"tool_calls": [{"index": number, "function": {"arguments": piece}}]})
            for piece in _pieces(whole["function"]["arguments"])
        ]
    events.append(chunk({}, _chat_finish(says, says.finish)))
    return [*events, _data({**shared, "choices": [], "usage": _chat_usage(says)}), "data: [DONE]\n\n"]


# -- Responses ------------------------------------------------------------------------------------------


def response(says: Says, status: str = "") -> dict[str, Any]:
    """A response."""
    output: list[dict[str, Any]] = []
    if says.thinks:
        output.append({"id": "rs_1", "type": "reasoning", "summary": [{"type": "summary_text", "text": says.thinks}],
                       "encrypted_content": "c2VhbGVk"})  # fmt: skip
    content: list[dict[str, Any]] = []
    if says.text is not None:
        content.append({"type": "output_text", "text": says.text, "annotations": [], "logprobs": []})
    if says.refusal:
        content.append({"type": "refusal", "refusal": says.refusal})
    if content:
        output.append(
            {"id": "msg_1", "type": "message", "role": "assistant", "status": "completed", "content": content}
        )
    for number, (name, arguments) in enumerate(says.calls):
        output.append(
            {
                "id": f"fc_{number}",
                "type": "function_call",
                "call_id": f"call_{number}",
                "name": name,
                "arguments": json.dumps(arguments),
                "status": "completed",
            }
        )
    cut = {"length": "max_output_tokens", "content_filter": "content_filter"}.get(says.finish)
    return {
        "id": "resp_1",
        "object": "response",
        "created_at": 1767312000,
        "status": status or ("incomplete" if cut else "completed"),
        "error": None,
        "incomplete_details": {"reason": cut} if cut else None,
        "instructions": None,
        "metadata": {},
        "model": MODEL,
        "output": output,
        "parallel_tool_calls": True,
        "temperature": 1.0,
        "tool_choice": "auto",
        "tools": [],
        "top_p": 1.0,
        "usage": {
            "input_tokens": says.input,
            "input_tokens_details": {"cached_tokens": says.cached, "cache_write_tokens": says.written},
            "output_tokens": says.output,
            "output_tokens_details": {"reasoning_tokens": says.reasoning},
            "total_tokens": says.input + says.output,
        },
    }


def response_events(says: Says) -> list[str]:
    """The same as events."""
    whole, number = response(says), iter(range(1 << 20))

    def event(kind: str, **more: Any) -> str:
        return _data({"type": kind, "sequence_number": next(number), **more}, kind)

    begun = {**whole, "status": "in_progress", "output": [], "usage": None, "incomplete_details": None}
    events = [event("response.created", response=begun), event("response.in_progress", response=begun)]
    for index, item in enumerate(whole["output"]):
        place = {"output_index": index, "item_id": item["id"]}
        empty = {**item, "status": "in_progress"} | ({"content": []} if "content" in item else {})
        empty |= {"arguments": ""} if "arguments" in item else {}
        empty |= {"summary": []} if "summary" in item else {}
        events.append(event("response.output_item.added", output_index=index, item=empty))
        for inner, part in enumerate(item.get("content") or ()):
            kind = "output_text" if part["type"] == "output_text" else "refusal"
            more: dict[str, Any] = {"logprobs": []} if kind == "output_text" else {}
            events += [
                event(f"response.{kind}.delta", **place, content_index=inner, delta=piece, **more)
                for piece in _pieces(part.get("text") or part.get("refusal") or "")
            ]
        for inner, part in enumerate(item.get("summary") or ()):
            events += [
                event("response.reasoning_summary_text.delta", **place, summary_index=inner, delta=piece)
                for piece in _pieces(part["text"])
            ]
        events += [
            event("response.function_call_arguments.delta", **place, delta=piece)
            for piece in _pieces(item.get("arguments") or "")
        ]
        events.append(event("response.output_item.done", output_index=index, item=item))
    return [*events, event(f"response.{whole['status']}", response=whole)]


# -- Messages -------------------------------------------------------------------------------------------

_STOPS = {"stop": "end_turn", "length": "max_tokens", "refusal": "refusal", "content_filter": "refusal"}


def message(says: Says) -> dict[str, Any]:
    """A message."""
    content: list[dict[str, Any]] = []
    if says.thinks:
        content.append({"type": "thinking", "thinking": says.thinks, "signature": "c2lnbmF0dXJl"})
    if says.text:
        content.append({"type": "text", "text": says.text, "citations": None})
    for number, (name, arguments) in enumerate(says.calls):
        content.append(
            {"type": "tool_use", "id": f"call_{number}", "name": name, "input": arguments, "caller": {"type": "direct"}}
        )
    refused = {"type": "refusal", "category": "bio", "explanation": says.refusal} if says.refusal else None
    return {
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "model": MODEL,
        "content": content,
        "stop_reason": "tool_use" if says.calls else _STOPS[says.finish],
        "stop_sequence": None,
        "stop_details": refused,
        "usage": _message_usage(says),
    }


def _message_usage(says: Says) -> dict[str, Any]:
    return {
        "input_tokens": says.fresh,
        "cache_read_input_tokens": says.cached,
        "cache_creation_input_tokens": says.written + says.written_1h,
        "cache_creation": {
            "ephemeral_5m_input_tokens": says.written,
            "ephemeral_1h_input_tokens": says.written_1h,
        },
        "output_tokens": says.output,
        "output_tokens_details": {"thinking_tokens": says.reasoning},
        "service_tier": "standard",
    }


def message_events(says: Says) -> list[str]:
    """The same as events, with a ping among them."""
    whole = message(says)

    def event(kind: str, **more: Any) -> str:
        return _data({"type": kind, **more}, kind)

    usage = {**whole["usage"], "output_tokens": 1, "output_tokens_details": None}
    begun = {**whole, "content": [], "stop_reason": None, "stop_details": None, "usage": usage}
    events = [event("message_start", message=begun), event("ping")]
    for index, block in enumerate(whole["content"]):
        key, kind = {"text": ("text", "text_delta"), "thinking": ("thinking", "thinking_delta")}.get(
            block["type"], ("partial_json", "input_json_delta")
        )
        empty = {**block, "input": {}} if "input" in block else {**block, key: ""}
        empty |= {"signature": ""} if "signature" in block else {}
        events.append(event("content_block_start", index=index, content_block=empty))
        written = json.dumps(block["input"]) if "input" in block else block[key]
        deltas = [{"type": kind, key: piece} for piece in ("", *_pieces(written))]
        if "signature" in block:
            deltas.append({"type": "signature_delta", "signature": block["signature"]})
        events += [event("content_block_delta", index=index, delta=delta) for delta in deltas]
        events.append(event("content_block_stop", index=index))
    ended = {key: whole[key] for key in ("stop_reason", "stop_sequence", "stop_details")}
    counts = {key: whole["usage"][key] for key in ("output_tokens", "output_tokens_details")}
    return [*events, event("message_delta", delta=ended, usage=counts), event("message_stop")]


# -- generateContent -------------------------------------------------------------------------------------

_FINISHES = {"stop": "STOP", "length": "MAX_TOKENS", "content_filter": "SAFETY", "refusal": "PROHIBITED_CONTENT"}


def content(says: Says) -> dict[str, Any]:
    """A reply of generateContent."""
    parts: list[dict[str, Any]] = []
    if says.thinks:
        parts.append({"text": says.thinks, "thought": True})
    if says.text is not None:
        parts.append({"text": says.text})
    for number, (name, arguments) in enumerate(says.calls):
        call = {"id": f"call_{number}", "name": name, "args": arguments}
        parts.append({"functionCall": call, "thoughtSignature": "c2lnbmF0dXJl"})
    return _content(parts, _FINISHES[says.finish], _content_usage(says))


def _content(parts: list[dict[str, Any]], finish: str | None, usage: dict[str, Any]) -> dict[str, Any]:
    candidate: dict[str, Any] = {"content": {"role": "model", "parts": parts}, "index": 0}
    if finish:
        candidate["finishReason"] = finish
    return {"candidates": [candidate], "usageMetadata": usage, "modelVersion": MODEL, "responseId": "r1"}


def _content_usage(says: Says) -> dict[str, Any]:
    shown = says.output - says.reasoning
    return {
        "promptTokenCount": says.input,
        "candidatesTokenCount": shown,
        "thoughtsTokenCount": says.reasoning,
        "cachedContentTokenCount": says.cached,
        "totalTokenCount": says.input + says.output,
        "promptTokensDetails": [{"modality": "TEXT", "tokenCount": says.input}],
    }


def content_events(says: Says) -> list[str]:
    """The same as chunks."""
    usage, events = _content_usage(says), []
    for part in content(says)["candidates"][0]["content"]["parts"]:
        pieces = [{**part, "text": piece} for piece in _pieces(part["text"])] if "text" in part else [part]
        counts = {key: usage[key] for key in ("promptTokenCount", "totalTokenCount")}
        events += [_data(_content([piece], None, counts)) for piece in pieces]
    return [*events, _data(_content([{"text": ""}] * (says.text is not None), _FINISHES[says.finish], usage))]


# -- Converse -------------------------------------------------------------------------------------------

_BEDROCK_STOPS = {"stop": "end_turn", "length": "max_tokens", "content_filter": "guardrail_intervened"}


def converse(says: Says) -> dict[str, Any]:
    """A reply of Converse."""
    blocks: list[dict[str, Any]] = []
    if says.thinks:
        blocks.append({"reasoningContent": {"reasoningText": {"text": says.thinks, "signature": "s"}}})
    if says.text is not None:
        blocks.append({"text": says.text})
    for number, (name, arguments) in enumerate(says.calls):
        blocks.append({"toolUse": {"toolUseId": f"call_{number}", "name": name, "input": arguments}})
    details = [("5m", says.written), ("1h", says.written_1h)]
    return {
        "output": {"message": {"role": "assistant", "content": blocks}},
        "stopReason": "tool_use" if says.calls else _BEDROCK_STOPS.get(says.finish, "content_filtered"),
        "usage": {
            "inputTokens": says.fresh,
            "outputTokens": says.output,
            "totalTokens": says.input + says.output,
            "cacheReadInputTokens": says.cached,
            "cacheWriteInputTokens": says.written + says.written_1h,
            "cacheDetails": [{"ttl": ttl, "inputTokens": count} for ttl, count in details],
        },
        "metrics": {"latencyMs": 12},
    }


def converse_events(says: Says) -> list[bytes]:
    """The events of a streamed Converse."""
    whole = converse(says)
    events = [aws_event("messageStart", {"role": "assistant"})]
    for index, block in enumerate(whole["output"]["message"]["content"]):
        if "toolUse" in block:
            start = {key: block["toolUse"][key] for key in ("toolUseId", "name")}
            events.append(aws_event("contentBlockStart", {"start": {"toolUse": start}, "contentBlockIndex": index}))
            deltas: list[Any] = [
                {"toolUse": {"input": piece}} for piece in _pieces(json.dumps(block["toolUse"]["input"]))
            ]
        elif "text" in block:
            deltas = [{"text": piece} for piece in _pieces(block["text"])]
        else:
            thought = block["reasoningContent"]["reasoningText"]
            deltas = [{"reasoningContent": {"text": piece}} for piece in _pieces(thought["text"])]
            deltas.append({"reasoningContent": {"signature": thought["signature"]}})
        events += [aws_event("contentBlockDelta", {"delta": delta, "contentBlockIndex": index}) for delta in deltas]
        events.append(aws_event("contentBlockStop", {"contentBlockIndex": index}))
    events.append(aws_event("messageStop", {"stopReason": whole["stopReason"]}))
    return [*events, aws_event("metadata", {"usage": whole["usage"], "metrics": whole["metrics"]})]


def aws_event(kind: str, value: Any, message: str = "event") -> bytes:
    """An event of AWS's event stream: lengths, headers and payload, with checksums."""
    names = {f":{message}-type": kind, ":content-type": "application/json", ":message-type": message}
    headers = b"".join(
        struct.pack(">B", len(name)) + name.encode() + b"\x07" + struct.pack(">H", len(text)) + text.encode()
        for name, text in names.items()
    )
    payload = json.dumps(value).encode()
    prelude = struct.pack(">II", 16 + len(headers) + len(payload), len(headers))
    body = prelude + struct.pack(">I", zlib.crc32(prelude)) + headers + payload
    return body + struct.pack(">I", zlib.crc32(body))


# -- the server -----------------------------------------------------------------------------------------


def _pieces(text: str) -> list[str]:
    """A text in the pieces of a few letters that models write."""
    return [text[at : at + 5] for at in range(0, len(text), 5)]


def _data(value: Any, kind: str = "") -> str:
    return f"event: {kind}\ndata: {json.dumps(value)}\n\n" if kind else f"data: {json.dumps(value)}\n\n"


class Provider:
    """All APIs behind one port. ``reply`` replaces what is said: (status, body, headers).

    A stream is sent in pieces of ``cut`` bytes; ``edit`` changes its text before, and ``frames`` each event of AWS.
    After ``most`` bytes of it the connection is closed; while ``open``, its body does not end. ``seconds`` pass before
    it, and after each piece.
    """

    def __init__(self) -> None:
        self.says = Says()
        self.reply: tuple[int, Any, dict[str, str]] | None = None
        self.headers: dict[str, str] = {}
        self.cut = 1 << 20
        self.most: int | None = None
        self.open = False
        self.edit: Callable[[str], str] = str
        self.frames: Callable[[bytes], bytes] = bytes
        self.seconds = 0.0
        self.requests: list[dict[str, Any]] = []
        self.connections = 0

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One connection, kept open between requests."""
        self.connections += 1
        try:
            while head := await reader.readuntil(b"\r\n\r\n"):
                lines = head.decode("latin-1").split("\r\n")
                pairs = (line.partition(":") for line in lines[1:])
                headers = {name.lower(): value.strip() for name, _, value in pairs}
                body = await reader.readexactly(int(headers.get("content-length", 0)))
                path = lines[0].split(" ")[1]
                asked = json.loads(body) if body.startswith(b"{") else body.decode()
                self.requests.append({"path": path, "headers": headers, "body": asked})
                if not await self._answer(path, asked, writer):
                    break
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()

    async def _answer(self, path: str, asked: Any, writer: asyncio.StreamWriter) -> bool:
        await asyncio.sleep(self.seconds)
        if path.startswith("/token"):
            token = {"access_token": "ya29.token", "expires_in": 3600, "token_type": "Bearer"}
            return await _send(writer, 200, token, {})
        if self.reply is not None:
            return await _send(writer, self.reply[0], self.reply[1], {**self.headers, **self.reply[2]})
        whole, events = _spoken(path)
        if events is not None and ("stream" in path or (isinstance(asked, dict) and asked.get("stream"))):
            return await self._stream(events(self.says), writer)
        return await _send(writer, 200, whole(self.says), self.headers)

    async def _stream(self, events: list[str] | list[bytes], writer: asyncio.StreamWriter) -> bool:
        texts = [event for event in events if isinstance(event, str)]
        kind = "text/event-stream; charset=utf-8" if texts else "application/vnd.amazon.eventstream"
        writer.write(_head(200, {"content-type": kind, "transfer-encoding": "chunked", **self.headers}))
        data = self.edit("".join(texts)).encode()
        data += b"".join(self.frames(event) for event in events if isinstance(event, bytes))
        part = data if self.most is None else data[: self.most]
        for at in range(0, len(part), self.cut):
            piece = part[at : at + self.cut]
            writer.write(b"%x\r\n%b\r\n" % (len(piece), piece))
            await writer.drain()
            await asyncio.sleep(self.seconds)
        if len(part) < len(data):
            return False
        while self.open:
            await asyncio.sleep(0.05)
        writer.write(b"0\r\n\r\n")
        await writer.drain()
        return True


def _spoken(path: str) -> tuple[Any, Any]:
    """How the API of a path writes a reply, and its events."""
    for part, whole, events in (
        ("/chat/completions", completion, completion_events),
        ("/responses", response, response_events),
        ("/messages", message, message_events),
        ("enerateContent", content, content_events),
        ("/converse", converse, converse_events),
    ):
        if part in path:
            return whole, events
    raise ValueError(path)


def _head(status: int, headers: dict[str, str]) -> bytes:
    lines = [f"HTTP/1.1 {status} X", *(f"{name}: {value}" for name, value in headers.items())]
    return "\r\n".join(lines).encode() + b"\r\n\r\n"


async def _send(writer: asyncio.StreamWriter, status: int, value: Any, headers: dict[str, str]) -> bool:
    body = value.encode() if isinstance(value, str) else json.dumps(value).encode()
    given = {"content-length": str(len(body)), "content-type": "application/json", **headers}
    writer.write(_head(status, given) + body)
    await writer.drain()
    return True


@contextlib.contextmanager
def running_provider() -> Iterator[tuple[Provider, str]]:
    """A server on loopback in a thread of its own, and its address without a path."""
    provider, loop = Provider(), asyncio.new_event_loop()
    server = loop.run_until_complete(asyncio.start_server(provider.serve, "127.0.0.1", 0))
    thread = threading.Thread(target=loop.run_forever, name="provider", daemon=True)
    thread.start()
    try:
        yield provider, f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        server.close()
        for task in asyncio.all_tasks(loop):
            task.cancel()
        loop.run_until_complete(asyncio.sleep(0))
        loop.close()
