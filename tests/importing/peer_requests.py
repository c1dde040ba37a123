"""promptfoo itself and evalq's imported targets call one recording server: their requests are the same.

`make peers` installs promptfoo, and runs this; `make test` knows nothing of it.
"""

from __future__ import annotations

import asyncio
import json
import os
import threading
from collections import Counter
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from evalq.producer.importing import sources
from evalq.producer.importing.imported import Imported, ImportRequest, write
from evalq.workers.targets import Answered, Call, Caller, load_targets
from tests.importing.environments import promptfoo_command, run

_OWN = {
    *("host", "connection", "content-length", "user-agent", "accept-language", "sec-fetch-mode", "accept-encoding"),
    *("x-promptfoo-version", "x-promptfoo-silent"),
}
"""Headers by which a program names itself, or of the connection."""
Request = tuple[str, str, str, str]


class _Recorder(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        """Keep the request, and answer as any of the services would."""
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        headers = {name.lower(): value for name, value in self.headers.items() if name.lower() not in _OWN}
        sent = json.dumps(json.loads(body), sort_keys=True)
        self.server.kept.append(  # type: ignore[attr-defined]  # the list beside the server
            (self.command, self.path, json.dumps(headers, sort_keys=True), sent)
        )
        choice = {"message": {"role": "assistant", "content": "ok"}, "finish_reason": "stop"}
        said = {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "ok"}]}
        usage = {"prompt_tokens": 1, "completion_tokens": 1, "input_tokens": 1, "output_tokens": 1, "total_tokens": 2}
        message = {"type": "message", "role": "assistant", "content": [{"type": "text", "text": "ok"}]}
        ended = {"stop_reason": "end_turn", "status": "completed", "output": [said], "usage": usage}
        candidate = {"content": {"role": "model", "parts": [{"text": "ok"}]}, "finishReason": "STOP"}
        data = json.dumps({"candidates": [candidate], "answer": "ok", "choices": [choice], **message, **ended})
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data.encode())

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - its own name
        """Say nothing."""


@pytest.fixture
def recorder() -> Iterator[tuple[str, list[Request]]]:
    """Where the server listens, and what it was sent: method, path, headers, body."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Recorder)
    kept: list[Request] = []
    server.kept = kept  # type: ignore[attr-defined]  # read by its handler
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}", kept
    server.shutdown()
    thread.join()
    server.server_close()


def _http(address: str, path: str, body: Any, **headers: str) -> dict[str, Any]:
    given = {"content-type": "application/json", **{name.replace("_", "-"): value for name, value in headers.items()}}
    config = {"url": f"{address}/{path}", "method": "POST", "headers": given, "body": body}
    return {"id": "http", "label": path, "config": {**config, "transformResponse": "json.answer"}}


def _chat(address: str, service: str, **config: Any) -> dict[str, Any]:
    path = service.replace(":", "-").replace("/", "-")
    named = {"apiBaseUrl": f"{address}/{path}", "apiKeyEnvar": "CHAT_KEY", **config}
    return {"id": service, "label": path, "config": named}


def _configuration(address: str, kind: str) -> dict[str, Any]:
    """A configuration whose prompts are texts or chats."""
    text = "Ask: {{q}}" if kind == "text" else json.dumps([{"role": "user", "content": "{{q}} in {{language}}"}])
    providers = [
        _http(address, "plain", {"q": "{{prompt}}", "n": 3, "in": ["{{language}}", {"at": "{{place.city}}"}]}),
        _http(address, "key", {"q": "{{ prompt }}"}, authorization="Bearer {{env.ASK_KEY}}"),
        _http(address, "other", {"q": "{{prompt}}"}, x_api_key="{{env.ASK_KEY}}", accept="text/plain"),
        _http(address, "data", {"q": "{{prompt}}", "list": "{{list}}", "as": "{{place | dump}}", "one": "{{number}}"}),
        _http(address, "text", '{"q": "{{prompt}}", "size": 2}'),
        _chat(address, "openai:chat:small"),
        _chat(address, "openai:gpt-4o", temperature=0.7, top_p=0.5, seed=3, stop=["x"]),
        _chat(address, "openai:chat:gpt-5-mini", max_completion_tokens=50, temperature=0.1),
        _chat(address, "openrouter:a/b", max_tokens=9),
        _chat(address, "groq:llama", presence_penalty=0.5),
        _chat(address, "mistral:mistral-small-latest", temperature=0.2),
        _chat(address, "cerebras:llama3.1-8b", temperature=1),
        _chat(address, "togetherai:chat:a/b", response_format={"type": "json_object"}),
    ]
    if kind == "text":
        providers.append(_http(address, "written", '{"q": {{prompt | dump}}, "n": {{number}}, "in": "{{language}}"}'))
    else:
        providers.append(_http(address, "written", '{"messages": {{prompt}}, "n": {{number}}}'))
    shared: dict[str, Any] = {"language": "French", "place": {"city": "Lyon"}, "list": "[1, 2]", "number": 5}
    asked = ['two "quoted" words', "a {brace}, a back\\slash, é 😀", "42", "line one\nline two"]
    tests = [{"vars": dict(shared, q=q), "assert": [{"type": "contains", "value": "ok"}]} for q in asked]
    return {"prompts": [text], "providers": providers, "tests": tests}


@pytest.mark.parametrize("kind", ["text", "chat"])
def test_imported_targets_send_what_promptfoo_sends(
    kind: str, recorder: tuple[str, list[Request]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Method, path, headers and body, for every provider and every prompt."""
    address, kept = recorder
    monkeypatch.setenv("ASK_KEY", "ask-secret")
    monkeypatch.setenv("CHAT_KEY", "chat-secret")
    config = tmp_path / "promptfooconfig.json"
    config.write_text(json.dumps(_configuration(address, kind)))
    theirs = _asked_by_promptfoo(config, kept)
    imported = _asked_by_evalq(config)
    ours = Counter(kept)
    assert sum(theirs.values()) == len(imported.cases) * len(imported.targets)
    assert ours - theirs == Counter()
    assert theirs - ours == Counter()


def _asked_by_promptfoo(config: Path, kept: list[Request]) -> Counter[Request]:
    """What promptfoo sends."""
    folder = config.parent
    command, environment = promptfoo_command(config, folder / "results.json", folder / "state")
    run([*command, "--no-table", "--no-progress-bar", "--no-write"], folder, environment)
    theirs = Counter(kept)
    kept.clear()
    return theirs


def _asked_by_evalq(config: Path) -> Imported:
    """Call each imported target with each case."""
    imported = sources.read("promptfoo", config, ImportRequest())
    assert len(imported.targets) == len(json.loads(config.read_text())["providers"]), imported.notes
    write(imported, config.parent / "evals", force=False)
    targets = load_targets(config.parent / "evals" / "targets.yaml")

    async def ask() -> None:
        for name in imported.targets:
            async with Caller(targets[name], dict(os.environ)) as caller:
                for case in imported.cases:
                    given = case["input"]
                    text = isinstance(given, str)
                    call = Call(prompt=given) if text else Call(prompt=json.dumps(given), messages=tuple(given))
                    answer = await caller.call(call)
                    assert isinstance(answer, Answered), answer
                    assert answer.text == "ok"

    asyncio.run(ask())
    return imported


def _plain(body: Any) -> Any:
    """A body without differences that have no effect: a text as itself or as a part, and defaults that are written."""
    if isinstance(body, list):
        return [_plain(each) for each in body]
    if not isinstance(body, dict):
        return body
    content = body.get("content")
    if isinstance(content, list) and len(content) == 1 and content[0].get("type") in ("text", "input_text"):
        body = {**body, "content": content[0]["text"]}
    if isinstance(body.get("input"), str):
        body = {**body, "input": [{"role": "user", "content": body["input"]}]}
    said = body.get("input")
    if isinstance(said, list) and said[0]["role"] == "system":
        body = {**body, "input": said[1:], "instructions": said[0]["content"]}
    system = body.get("system")
    if isinstance(system, list):
        body = {**body, "system": system[0]["text"]}
    if "contents" in body:
        body = {"systemInstruction" if key == "system_instruction" else key: value for key, value in body.items()}
    written = {"stream": False, "store": False, "type": "message", "generationConfig": {}}
    return {key: _plain(value) for key, value in body.items() if key not in written or value != written[key]}


@pytest.mark.parametrize("kind", ["text", "chat"])
def test_imported_models_are_asked_what_promptfoo_asks(
    kind: str, recorder: tuple[str, list[Request]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Messages, Responses and generateContent: the path, and the body but for the ways to write one thing."""
    address, kept = recorder
    monkeypatch.setenv("ANTHROPIC_API_KEY", "a")
    monkeypatch.setenv("OPENAI_API_KEY", "o")
    monkeypatch.setenv("GEMINI_API_KEY", "g")
    json_schema = {"type": "json_schema", "json_schema": {"name": "n", "schema": {"type": "object"}}}
    wanted: list[tuple[str, dict[str, Any]]] = [
        ("anthropic:messages:claude-sonnet-4-5", {}),
        ("anthropic:claude-3-5-haiku-latest", {"max_tokens": 9, "temperature": 0.5, "stop_sequences": ["x"]}),
        ("anthropic:messages:claude-haiku-4-5", {"top_p": 0.9, "temperature": 0.4, "top_k": 3}),
        ("anthropic:messages:claude-opus-4-8", {"temperature": 0.4}),
        ("anthropic:messages:claude-sonnet-5", {}),
        ("anthropic:messages:claude-fable-5", {}),
        ("anthropic:messages:claude-haiku-5", {"max_tokens": 3}),
        ("google:gemini-2.5-pro", {"temperature": 0.2, "maxOutputTokens": 9, "generationConfig": {"seed": 3}}),
        ("google:gemini-2.5-flash", {}),
        ("openai:responses:gpt-4o", {}),
        ("openai:responses:gpt-4.1-mini", {"max_output_tokens": 7, "temperature": 0.2, "instructions": "Be brief."}),
        ("openai:responses:gpt-5-mini", {"reasoning_effort": "low", "temperature": 0.3}),
        ("openai:responses:o3", {"reasoning": {"effort": "high"}, "response_format": json_schema}),
        ("openai:responses:gpt-4o-mini", {"omitDefaults": True, "response_format": {"type": "json_object"}}),
    ]
    chat = [{"role": "system", "content": "Be kind."}, {"role": "user", "content": "{{q}}"}]
    prompt = "Ask: {{q}}" if kind == "text" else json.dumps(chat)
    providers = [
        {"id": name, "label": f"t{number}", "config": {"apiBaseUrl": f"{address}/t{number}", **config}}
        for number, (name, config) in enumerate(wanted)
    ]
    tests = [{"vars": {"q": q}, "assert": [{"type": "contains", "value": "ok"}]} for q in ("one", "two\nlines")]
    config = tmp_path / "promptfooconfig.json"
    config.write_text(json.dumps({"prompts": [prompt], "providers": providers, "tests": tests}))
    theirs = _asked_by_promptfoo(config, kept)
    _asked_by_evalq(config)
    sent = [
        sorted((path, json.dumps(_plain(json.loads(body)), sort_keys=True)) for _, path, _, body in requests)
        for requests in (theirs.elements(), kept)
    ]
    assert len(sent[0]) == 2 * len(wanted)
    assert sent[0] == sent[1]
