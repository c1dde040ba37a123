"""Kinds that are models of providers: what each sends, and that a reply means the same in all of them."""

from __future__ import annotations

import asyncio
import itertools
import json
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from evalq.evalcore.errors import ConfigError
from evalq.evalcore.model.calls import Served, Tokens
from evalq.workers.targets import Answered, Call, Caller, Failure, load_targets
from evalq.workers.targets.providers import azure
from evalq.workers.targets.target import config_digest
from tests.agents.providers import FINGERPRINT, MODEL, Provider, Says, aws_event, running_provider

KEY = "sk-never-to-be-seen"
AWS = {"AWS_ACCESS_KEY_ID": "AKIDEXAMPLE", "AWS_SECRET_ACCESS_KEY": "wJalrXUtnFEMI-EXAMPLEKEY"}
KINDS = ("openai", "azure", "responses", "anthropic", "gemini", "vertex", "bedrock")
STREAMING = tuple(kind for kind in KINDS if kind != "bedrock")
"""Those that stream texts: Bedrock streams in a form of its own."""
CHAT = ("openai", "azure")
WEATHER: tuple[tuple[str, dict[str, Any]], ...] = (("weather", {"city": "Köln", "days": 3}), ("time", {}))


@pytest.fixture(scope="module")
def started() -> Iterator[tuple[Provider, str]]:
    """A server of all APIs."""
    with running_provider() as started:
        yield started


@pytest.fixture
def provider(started: tuple[Provider, str]) -> tuple[Provider, str]:
    """The server, which says what it says by default."""
    started[0].__init__()  # type: ignore[misc]  # the same object, new
    return started


def entry(kind: str, url: str, **more: Any) -> dict[str, Any]:
    """A target of a kind at the server."""
    base: dict[str, Any] = {"kind": kind, "base_url": url, "model": "m", "api_key_env": "KEY"}
    if kind in ("openai", "responses"):
        base["base_url"] = f"{url}/v1"
    own = {
        "azure": {"api_version": "2024-10-21"},
        "vertex": {"project": "p", "location": "europe-west1"},
        "bedrock": {"region": "eu-central-1"},
    }
    return {**base, **own.get(kind, {}), **more}


def ask(folder: Path, target: dict[str, Any], *calls: Call | str) -> list[Answered | Failure]:
    """The results of calls, one after the other."""
    (folder / "targets.yaml").write_text(json.dumps({"targets": {"t": target}}))
    named = load_targets(folder / "targets.yaml")["t"]

    async def all_of() -> list[Answered | Failure]:
        async with Caller(named, {"KEY": KEY, **AWS}) as caller:
            return [await caller.call(Call(call, takes_text=True) if isinstance(call, str) else call) for call in calls]

    return asyncio.run(all_of())


def answer(folder: Path, target: dict[str, Any], call: Call | str = "Where is it?") -> Answered:
    """The answer of one call."""
    (result,) = ask(folder, target, call)
    assert isinstance(result, Answered), result
    return result


def failure(folder: Path, target: dict[str, Any], call: Call | str = "Where is it?") -> Failure:
    """The failure of one call."""
    (result,) = ask(folder, target, call)
    assert isinstance(result, Failure), result
    return result


def said_by(result: Answered | Failure) -> tuple[Any, ...]:
    """All that a result says, but how long it took."""
    envelope = result.envelope if isinstance(result, Answered) else None
    calls = envelope.tool_calls if envelope is not None else None
    return (result.text, calls, result.usage, result.served, result.finish_reason, result.limits)


BOTH = [(kind, stream) for stream in (False, True) for kind in KINDS]


@pytest.mark.parametrize(("kind", "stream"), BOTH)
def test_each_kind_reads_the_same_answer(
    kind: str, stream: bool, provider: tuple[Provider, str], tmp_path: Path
) -> None:
    """Text, calls of tools, all tokens, the model, and why it ended; streamed with the time to the first token."""
    provider[0].says = Says(text="It left.", calls=WEATHER, thinks="Let me see.", cached=70, output=30, reasoning=11)
    result = answer(tmp_path, entry(kind, provider[1], stream=stream))
    assert result.text == "It left."
    assert result.envelope is not None
    assert result.envelope.tool_calls is not None
    called = [(call["name"], call["arguments"]) for call in result.envelope.tool_calls]
    assert called == list(WEATHER)
    assert [call["id"] for call in result.envelope.tool_calls] == ["call_0", "call_1"]
    assert result.finish_reason == "tool_calls"
    known = result.usage
    assert (known.input, known.cached_input, known.output) == (90, 70, 30)
    assert known.reasoning == (None if kind == "bedrock" else 11)
    fingerprint = FINGERPRINT if kind in CHAT else ""
    assert result.served == (Served() if kind == "bedrock" else Served(MODEL, fingerprint))
    assert (result.first_token_seconds is not None) == stream
    if stream:
        assert 0 < (result.first_token_seconds or 0) <= result.latency_seconds


@pytest.mark.parametrize(
    ("kind", "stream"), [(kind, stream) for kind, stream in BOTH if kind in ("anthropic", "bedrock")]
)
def test_tokens_written_to_a_cache_are_counted_by_their_time(
    kind: str, stream: bool, provider: tuple[Provider, str], tmp_path: Path
) -> None:
    """Five minutes and an hour have prices of their own, and the input counts both."""
    provider[0].says = Says(fresh=10, cached=100, written=40, written_1h=30)
    result = answer(tmp_path, entry(kind, provider[1], stream=stream))
    reasoning = None if kind == "bedrock" else 0
    assert result.usage == Tokens(180, 100, 40, 30, 9, reasoning)


@pytest.mark.parametrize(("kind", "stream"), BOTH)
def test_each_kind_says_why_it_ended(kind: str, stream: bool, provider: tuple[Provider, str], tmp_path: Path) -> None:
    """In common words; what a filter or the model refuses is no answer."""
    target = entry(kind, provider[1], stream=stream)
    assert answer(tmp_path, target).finish_reason == "stop"
    provider[0].says = Says(finish="length")
    assert answer(tmp_path, target).finish_reason == "length"
    filtered = Says(text=None, finish="content_filter", refusal="No." if kind == "anthropic" else "")
    for says, word in ((filtered, "content_filter"), (Says(text=None, finish="refusal", refusal="No."), "refusal")):
        provider[0].says = says
        result = failure(tmp_path, target)
        # Messages know refusals alone, generateContent and Converse filters alone.
        only = {
            "anthropic": "refusal",
            "gemini": "content_filter",
            "vertex": "content_filter",
            "bedrock": "content_filter",
        }
        assert (result.kind, result.finish_reason) == ("refused", only.get(kind, word)), result.reason
        assert result.usage.input == 20


@pytest.mark.parametrize("kind", STREAMING)
def test_a_stream_in_any_pieces_is_the_reply(kind: str, provider: tuple[Provider, str], tmp_path: Path) -> None:
    """Cut anywhere, with CRLF or CR, comments and other fields: as without streaming, to the byte."""
    provider[0].says = Says(text="Ünïcode ✓\n\nend", calls=WEATHER, thinks="hm", cached=3, reasoning=2)
    plain = said_by(answer(tmp_path, entry(kind, provider[1])))
    edits: dict[str, Callable[[str], str]] = {
        "as it is": str,
        "CRLF": lambda text: text.replace("\n", "\r\n"),
        "CR": lambda text: text.replace("\n", "\r"),
        "comments": lambda text: "\ufeff: hello\n\n" + text.replace("data:", ": keep-alive\nid: 7\nretry: 10\ndata:"),
        "no space": lambda text: text.replace("data: ", "data:"),
    }
    for name, edit in edits.items():
        for cut in (1, 7, 1 << 20) if name in ("as it is", "CRLF") else (13,):
            provider[0].edit, provider[0].cut = edit, cut
            streamed = said_by(answer(tmp_path, entry(kind, provider[1], stream=True)))
            assert streamed == plain, (name, cut)


@pytest.mark.parametrize("kind", STREAMING)
def test_a_cut_stream_is_the_servers_failure(kind: str, provider: tuple[Provider, str], tmp_path: Path) -> None:
    """Wherever it is cut: by the connection, or by a proxy that ends the body as if it were whole."""
    server, url = provider
    target = entry(kind, url, stream=True)
    server.says = Says(text="A long answer. " * 3)
    answer(tmp_path, target)
    whole = len(_last_body(server))
    for share in (0.02, 0.5, 0.8):
        server.most = int(whole * share)
        result = failure(tmp_path, target)
        assert (result.kind, result.reason) == ("server", "the connection was cut: RemoteProtocolError")
        server.most = None
        server.edit = _up_to(share)
        result = failure(tmp_path, target)
        assert result.kind == "server", result.reason
        server.edit = str


def _up_to(share: float) -> Callable[[str], str]:
    return lambda text: text[: int(len(text) * share)]


def _last_body(server: Provider) -> str:
    from tests.agents import providers

    path = server.requests[-1]["path"]
    return "".join(providers._spoken(path)[1](server.says))


def test_a_stream_that_does_not_end_ends_the_call(provider: tuple[Provider, str], tmp_path: Path) -> None:
    """Comments for ever, a line for ever, more than an answer may be, and a body that stays open behind its end."""
    server, url = provider
    target = entry("openai", url, stream=True, max_bytes=4096, timeout_seconds=1.5)
    server.cut = 512
    for edit, kind, said in (
        (lambda text: "data: " + "x" * 100_000, "bad_output", "an event of the stream is longer than max_bytes, 4096"),
        (lambda text: "data: x\n" * 10_000, "bad_output", "an event of the stream is longer than max_bytes, 4096"),
        (lambda text: ": wait\n\n" * 10_000, "bad_output", "the reply is longer than max_bytes, 32768"),
        (lambda text: text.replace('"index": 0', '"index": 1'), "server", "not a chat completion"),
    ):
        server.edit = edit
        result = failure(tmp_path, target)
        assert (result.kind, said in result.reason) == (kind, True), result.reason
    server.edit, server.says = str, Says(text="word " * 1000)
    assert failure(tmp_path, {**target, "max_bytes": 1 << 12}).kind == "bad_output"
    assert answer(tmp_path, {**target, "max_bytes": 1 << 20}).text == "word " * 1000
    server.says, server.open = Says(), True
    results = ask(tmp_path, target, "one", "two")
    assert all(isinstance(result, Answered) and result.latency_seconds < 0.4 for result in results), results


ERRORS = {
    "openai": 'data: {"error": {"message": "Slow down", "type": "requests", "code": "rate_limit_exceeded"}}\n\n',
    "azure": 'data: {"error": {"message": "Slow down", "code": "429"}, "code": "too_many_requests"}\n\n',
    "responses": 'event: error\ndata: {"type": "error", "code": "rate_limit_exceeded", "message": "Slow down"}\n\n',
    "anthropic": 'event: error\ndata: {"type": "error", "error": {"type": "overloaded_error", "message": "Slow down"}}'
    "\n\n",
    "gemini": 'data: {"error": {"code": 429, "message": "Slow down", "status": "RESOURCE_EXHAUSTED"}}\n\n',
    "vertex": 'data: {"error": {"code": 503, "message": "Slow down", "status": "UNAVAILABLE"}}\n\n',
}


@pytest.mark.parametrize("kind", STREAMING)
def test_an_error_inside_a_stream_has_its_kind(kind: str, provider: tuple[Provider, str], tmp_path: Path) -> None:
    """It follows what the model has written so far, with status 200."""
    server, url = provider
    server.edit = lambda text: "\n\n".join(text.split("\n\n")[:2]) + "\n\n" + ERRORS[kind]
    result = failure(tmp_path, entry(kind, url, stream=True))
    assert result.kind == ("server" if kind in ("vertex", "azure") else "rate_limit"), result.reason
    assert result.reason.startswith("the stream ended with an error: ")
    assert result.reason.endswith(": Slow down")


@pytest.mark.parametrize(("kind", "stream"), BOTH)
def test_what_is_not_the_apis_is_the_servers_failure(
    kind: str, stream: bool, provider: tuple[Provider, str], tmp_path: Path
) -> None:
    """With status 200: a page, other JSON, a list, nothing; the failure is retried, and no model is blamed."""
    server, url = provider
    for body, headers in (
        ("<html>One moment</html>", {"content-type": "text/html"}),
        ({"status": "ok"}, {}),
        ([], {}),
        ("null", {}),
        ("", {}),
        ("data: hello\n\n", {"content-type": "text/event-stream"}),
        ("data: [1]\n\n", {"content-type": "text/event-stream"}),
        ("", {"content-type": "text/event-stream"}),
    ):
        server.reply = (200, body, headers)
        result = failure(tmp_path, entry(kind, url, stream=stream))
        assert result.kind == "server", (body, result.reason)


@pytest.mark.parametrize("kind", STREAMING)
def test_a_server_that_does_not_stream_is_read_too(kind: str, provider: tuple[Provider, str], tmp_path: Path) -> None:
    """Some ignore the wish."""
    from tests.agents import providers

    plain = answer(tmp_path, entry(kind, provider[1]))
    path = provider[0].requests[-1]["path"]
    provider[0].reply = (200, providers._spoken(path)[0](Says()), {})
    result = answer(tmp_path, entry(kind, provider[1], stream=True))
    assert said_by(result) == said_by(plain)
    assert result.first_token_seconds is None


STATUSES: list[tuple[str, int, Any, dict[str, str], str, float | None]] = [
    ("anthropic", 529, {"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}}, {},
     "rate_limit", None),
    ("anthropic", 429, {"type": "error", "error": {"type": "rate_limit_error", "message": "Slow"}},
     {"retry-after": "7"}, "rate_limit", 7),
    ("anthropic", 400, {"type": "error", "error": {"type": "invalid_request_error", "message":
     "Your credit balance is too low to access the API."}}, {}, "quota", None),
    ("anthropic", 429, {"type": "error", "error": {"type": "rate_limit_error", "message": "No more",
     "details": {"error_code": "contract_spend_limit_reached"}}}, {}, "quota", None),
    ("anthropic", 401, {"type": "error", "error": {"type": "authentication_error", "message": "no"}}, {}, "auth", None),
    ("openai", 429, {"error": {"code": "insufficient_quota", "message": "no"}}, {}, "quota", None),
    ("responses", 429, {"error": {"code": "rate_limit_exceeded", "message": "no"}}, {"retry-after-ms": "250"},
     "rate_limit", 0.25),
    ("azure", 400, {"error": {"code": "content_filter", "message": "The response was filtered", "status": 400,
     "innererror": {"code": "ResponsibleAIPolicyViolation"}}}, {}, "refused", None),
    ("azure", 404, {"error": {"code": "DeploymentNotFound", "message": "no"}}, {}, "refused", None),
    ("gemini", 429, {"error": {"code": 429, "status": "RESOURCE_EXHAUSTED", "message":
     "You exceeded your current quota, please check your plan and billing details.", "details": [
     {"@type": "type.googleapis.com/google.rpc.QuotaFailure", "violations": [{"quotaId": "RequestsPerMinute"}]},
     {"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": "34.5s"}]}}, {}, "rate_limit", 34.5),
    ("gemini", 429, {"error": {"code": 429, "status": "RESOURCE_EXHAUSTED", "message":
     "You exceeded your current quota", "details": [{"@type": "type.googleapis.com/google.rpc.QuotaFailure",
     "violations": [{"quotaId": "RequestsPerDayPerProject"}]}]}}, {}, "quota", None),
    ("gemini", 403, {"error": {"code": 403, "status": "PERMISSION_DENIED", "message": "no"}}, {}, "auth", None),
    ("vertex", 503, {"error": {"code": 503, "status": "UNAVAILABLE", "message": "no"}}, {}, "server", None),
    ("bedrock", 429, {"message": "Too many requests"}, {"x-amzn-errortype": "ThrottlingException"}, "rate_limit", None),
    ("bedrock", 424, {"message": "the model failed"}, {}, "server", None),
    ("bedrock", 403, {"message": "The security token is expired"}, {}, "auth", None),
    ("bedrock", 400, {"message": "The model returned no"}, {}, "refused", None),
]  # fmt: skip


@pytest.mark.parametrize(("kind", "status", "body", "headers", "found", "wait"), STATUSES)
def test_errors_of_each_provider_have_their_kind(
    kind: str,
    status: int,
    body: Any,
    headers: dict[str, str],
    found: str,
    wait: float | None,
    provider: tuple[Provider, str],
    tmp_path: Path,
) -> None:
    """A limit is waited for, a spent account and a wrong key are not; the message is the provider's."""
    provider[0].reply = (status, body, headers)
    results = [failure(tmp_path, entry(kind, provider[1], stream=stream)) for stream in {False, kind in STREAMING}]
    for result in results:
        assert (result.kind, result.retry_after_seconds) == (found, wait), result.reason
        error = body.get("error", body)
        assert result.reason.endswith(error["message"])
        assert (result.finish_reason == "content_filter") == (status == 400 and kind == "azure")


def test_limits_are_read_from_the_headers_of_each_provider(provider: tuple[Provider, str], tmp_path: Path) -> None:
    """Anthropic says when they are full again, the others after how long."""
    server, url = provider
    server.headers = {
        "date": "Sat, 28 Nov 2026 10:00:00 GMT",
        "anthropic-ratelimit-requests-limit": "50",
        "anthropic-ratelimit-requests-remaining": "0",
        "anthropic-ratelimit-requests-reset": "2026-11-28T10:00:12Z",
        "anthropic-ratelimit-tokens-limit": "80000",
        "anthropic-ratelimit-tokens-remaining": "79000",
        "anthropic-ratelimit-tokens-reset": "2026-11-28T10:00:01.5Z",
    }
    for stream in (False, True):
        limits = answer(tmp_path, entry("anthropic", url, stream=stream)).limits
        assert (limits.requests.limit, limits.requests.remaining, limits.requests.reset_seconds) == (50, 0, 12.0)
        assert (limits.tokens.remaining, limits.tokens.reset_seconds, limits.spent) == (79000, 1.5, True)


def test_what_the_model_wrote_is_all_that_is_bad_output(provider: tuple[Provider, str], tmp_path: Path) -> None:
    """Arguments that are no JSON are kept as text, and a call without a name is the model's fault."""
    server, url = provider
    broken = {"choices": [{"message": {"content": None, "tool_calls": [{"function": {"arguments": "{}"}}]}}]}
    server.reply = (200, broken, {})
    assert failure(tmp_path, entry("openai", url)).kind == "bad_output"
    server.reply = (200, {"candidates": [{"finishReason": "MALFORMED_FUNCTION_CALL", "index": 0}]}, {})
    result = failure(tmp_path, entry("gemini", url))
    assert (result.kind, result.reason) == ("bad_output", "the model ended with MALFORMED_FUNCTION_CALL")
    server.reply = None
    server.says = Says(text=None, calls=(("f", {}),))
    server.edit = lambda text: text.replace('"partial_json": "{}"', '"partial_json": "{oops"')
    spoken = answer(tmp_path, entry("anthropic", url, stream=True))
    assert spoken.envelope is not None
    assert spoken.envelope.tool_calls is not None
    assert spoken.envelope.tool_calls[0]["arguments"] == "{oops"


def test_a_blocked_prompt_is_refused(provider: tuple[Provider, str], tmp_path: Path) -> None:
    """Gemini gives no candidate then."""
    blocked = {"promptFeedback": {"blockReason": "SAFETY"}, "usageMetadata": {"promptTokenCount": 4}}
    provider[0].reply = (200, blocked, {})
    result = failure(tmp_path, entry("gemini", provider[1]))
    assert (result.kind, result.finish_reason) == ("refused", "content_filter")
    assert result.usage.input == 4


def test_a_failed_response_is_the_servers_failure(provider: tuple[Provider, str], tmp_path: Path) -> None:
    """With status 200 it says why."""
    from tests.agents.providers import response

    error = {"code": "server_error", "message": "Sorry"}
    provider[0].reply = (200, {**response(Says(), "failed"), "error": error}, {})
    result = failure(tmp_path, entry("responses", provider[1]))
    assert (result.kind, result.reason) == ("server", "the response failed: the server failed (server_error): Sorry")


TALK = (
    {"role": "system", "content": "Be brief."},
    {"role": "user", "content": [
        {"type": "text", "text": "Look"},
        {"type": "image_url", "image_url": {"url": "data:image/png;base64,iVBORw=="}}]},
    {"role": "assistant", "content": "One moment.", "tool_calls": [
        {"id": "c1", "type": "function", "function": {"name": "weather", "arguments": '{"city": "Bonn"}'}},
        {"id": "c2", "type": "function", "function": {"name": "time", "arguments": ""}}]},
    {"role": "tool", "tool_call_id": "c1", "content": "rain"},
    {"role": "tool", "tool_call_id": "c2", "content": "no clock", "is_error": True},
    {"role": "user", "content": "And now?"},
)  # fmt: skip


def test_a_conversation_with_tools_is_sent_in_each_apis_form(provider: tuple[Provider, str], tmp_path: Path) -> None:
    """Turns of one side are one message where an API wants them to alternate."""
    server, url = provider
    (tmp_path / "p.md").write_text("You help.")
    call = Call("x", messages=TALK, takes_text=True)
    sent = {}
    for kind in KINDS:
        answer(tmp_path, entry(kind, url, system_prompt="p.md"), call)
        sent[kind] = server.requests[-1]["body"]
    # Chat completions know no key for a failed call.
    plain = [{key: value for key, value in message.items() if key != "is_error"} for message in TALK]
    assert sent["openai"]["messages"] == [{"role": "system", "content": "You help."}, *plain]
    assert sent["anthropic"]["system"] == "You help.\n\nBe brief."
    roles = [message["role"] for message in sent["anthropic"]["messages"]]
    assert roles == ["user", "assistant", "user"]
    assert sent["anthropic"]["messages"][2]["content"] == [
        {"type": "tool_result", "tool_use_id": "c1", "content": "rain"},
        {"type": "tool_result", "tool_use_id": "c2", "content": "no clock", "is_error": True},
        {"type": "text", "text": "And now?"},
    ]
    assert sent["gemini"]["contents"][1]["parts"][1] == {"functionCall": {"name": "weather", "args": {"city": "Bonn"}}}
    assert sent["gemini"]["contents"][2]["parts"][0] == {
        "functionResponse": {"name": "weather", "response": {"result": "rain"}}
    }
    assert sent["vertex"] == sent["gemini"]
    assert sent["bedrock"]["messages"][0]["content"][1] == {"image": {"format": "png", "source": {"bytes": "iVBORw=="}}}
    assert sent["bedrock"]["messages"][2]["content"][1]["toolResult"]["status"] == "error"
    assert [item.get("type") for item in sent["responses"]["input"]] == [
        None, None, "function_call", "function_call", "function_call_output", "function_call_output", None,
    ]  # fmt: skip


def test_a_message_that_an_api_cannot_take_is_named(provider: tuple[Provider, str], tmp_path: Path) -> None:
    """The call is refused before it is paid."""
    calls = [{"id": "c", "function": {"name": "f", "arguments": "{oops"}}]
    for messages, said in (
        ([{"role": "narrator", "content": "x"}], "the case's messages[0].role: 'narrator'"),
        ([{"role": "assistant", "tool_calls": calls}], "f: the arguments are no JSON"),
    ):
        result = failure(tmp_path, entry("anthropic", provider[1]), Call("x", messages=tuple(messages)))
        assert result.kind == "refused"
        assert said in result.reason
    assert not provider[0].requests


def test_options_stand_where_the_api_wants_them(provider: tuple[Provider, str], tmp_path: Path) -> None:
    """Settings of the generation inside, all else beside; a schema asks for JSON; a prompt may be cached."""
    server, url = provider
    (tmp_path / "p.md").write_text("You help.")
    (tmp_path / "s.json").write_text('{"type": "object"}')
    shared = {"system_prompt": "p.md", "json_schema": "s.json"}

    def sent(kind: str, **more: Any) -> dict[str, Any]:
        answer(tmp_path, entry(kind, url, **shared, **more))
        body: dict[str, Any] = server.requests[-1]["body"]
        return body

    gemini = sent("gemini", options={"temperature": 0, "safetySettings": []})
    assert gemini["generationConfig"] == {
        "temperature": 0, "responseMimeType": "application/json", "responseJsonSchema": {"type": "object"},
    }  # fmt: skip
    assert gemini["safetySettings"] == []
    bedrock = sent("bedrock", options={"maxTokens": 9, "guardrailConfig": {"x": 1}})
    assert (bedrock["inferenceConfig"], bedrock["guardrailConfig"]) == ({"maxTokens": 9}, {"x": 1})
    assert json.loads(bedrock["outputConfig"]["textFormat"]["structure"]["jsonSchema"]["schema"]) == {"type": "object"}
    anthropic = sent("anthropic", cache="1h", max_tokens=50, options={"thinking": {"type": "adaptive"}})
    assert anthropic["system"][0]["cache_control"] == {"type": "ephemeral", "ttl": "1h"}
    assert (anthropic["max_tokens"], anthropic["thinking"]) == (50, {"type": "adaptive"})
    assert anthropic["output_config"]["format"] == {"type": "json_schema", "schema": {"type": "object"}}
    assert sent("responses")["text"]["format"]["name"] == "answer"
    assert sent("openai", stream=True)["stream_options"] == {"include_usage": True}


def test_the_former_version_of_messages_is_sent_as_it_was(provider: tuple[Provider, str], tmp_path: Path) -> None:
    """With the key in its own header, and with a temperature."""
    server, url = provider
    answer(tmp_path, entry("anthropic", url, api_version="2023-06-01", options={"temperature": 0}))
    headers = server.requests[-1]["headers"]
    assert (headers["anthropic-version"], headers["x-api-key"]) == ("2023-06-01", KEY)
    assert "authorization" not in headers
    assert server.requests[-1]["body"]["temperature"] == 0


def test_equal_endpoints_share_the_calls(tmp_path: Path) -> None:
    """They go round; one that cannot be reached is passed over, and one that fails is avoided for a while."""
    with running_provider() as (first, one), running_provider() as (second, two):
        urls = [f"{one}/v1", "http://127.0.0.1:1/v1", f"{two}/v1"]
        target = entry("openai", one, base_url=urls)
        results = ask(tmp_path, target, *["Where?"] * 6)
        assert all(isinstance(result, Answered) for result in results)
        assert (len(first.requests), len(second.requests)) == (3, 3)
        first.reply = (503, {"error": {"message": "down"}}, {})
        results = ask(tmp_path, target, *["Where?"] * 6)
        failed = [result for result in results if isinstance(result, Failure)]
        assert [result.kind for result in failed] == ["server"]
        assert len(second.requests) == 8
    (result,) = ask(tmp_path, entry("openai", one, base_url=urls), "Where?")
    assert isinstance(result, Failure)
    assert result.reason.startswith("cannot connect")
    assert not result.connected


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ({"base_url": []}, "base_url: one address, or a list of different ones"),
        ({"base_url": ["http://h/v1", "http://h/v1"]}, "base_url: one address, or a list of different ones"),
        ({"base_url": ["http://h/v1", "h"]}, "base_url: address 2 of the list: String should match"),
        ({"base_url": 3}, "base_url: one address, or a list of them, each a text"),
        ({"base_url": ["http://h/v1", 3]}, "base_url: one address, or a list of them, each a text"),
        ({"options": {"stream": True}}, "set the key `stream` of the target instead"),
        ({"kind": "bedrock"}, "region: Field required"),
        ({"kind": "azure"}, "api_version: Field required"),
        ({"kind": "vertex"}, "project: Field required"),
        ({"kind": "anthropic", "options": {"temperature": 0}}, "options.temperature: this API takes it no more"),
        ({"kind": "anthropic", "variable": {"top_p": [0.5]}}, "options.top_p: this API takes it no more"),
        ({"kind": "anthropic", "max_tokens": 0}, "max_tokens: Input should be greater than 0"),
        ({"kind": "anthropic", "cache": "2h"}, "cache: Input should be '5m' or '1h'"),
    ],
)
def test_a_wrong_entry_is_named(more: dict[str, Any], said: str, tmp_path: Path) -> None:
    """With its key, before anything is called."""
    target = {"kind": "openai", "base_url": "http://h/v1", "model": "m", **more}
    (tmp_path / "targets.yaml").write_text(json.dumps({"targets": {"t": target}}))
    with pytest.raises(ConfigError) as raised:
        load_targets(tmp_path / "targets.yaml")
    assert said in str(raised.value)


@pytest.mark.parametrize(
    ("more", "address"),
    [
        ({"kind": "bedrock", "region": "eu-central-1"}, "https://bedrock-runtime.eu-central-1.amazonaws.com m"),
        ({"kind": "vertex", "project": "p"}, "https://aiplatform.googleapis.com m in p, global"),
        (
            {"kind": "vertex", "project": "p", "location": "us-east1"},
            "https://us-east1-aiplatform.googleapis.com m in p, us-east1",
        ),
    ],
)
def test_the_usual_address_is_shown(more: dict[str, Any], address: str, tmp_path: Path) -> None:
    """Of a kind whose address follows from where it is."""
    (tmp_path / "targets.yaml").write_text(json.dumps({"targets": {"t": {"model": "m", **more}}}))
    assert load_targets(tmp_path / "targets.yaml")["t"].target.address() == address


def test_a_profile_that_is_not_there_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Before the first call."""
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "none"))
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "none"))
    target = {"kind": "bedrock", "model": "m", "region": "us-east-1", "profile": "staging"}
    (tmp_path / "targets.yaml").write_text(json.dumps({"targets": {"t": target}}))
    with pytest.raises(ConfigError, match=r"target t: AWS configuration: .*staging.*could not be found"):
        Caller(load_targets(tmp_path / "targets.yaml")["t"], {})


def test_bedrock_without_credentials_says_what_to_set(
    provider: tuple[Provider, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And sends nothing."""
    for name, value in (
        ("AWS_CONFIG_FILE", str(tmp_path / "none")),
        ("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "none")),
        ("AWS_EC2_METADATA_DISABLED", "true"),
    ):
        monkeypatch.setenv(name, value)
    for name in AWS:
        monkeypatch.delenv(name, raising=False)
    target = entry("bedrock", provider[1])
    del target["api_key_env"]
    (tmp_path / "targets.yaml").write_text(json.dumps({"targets": {"t": target}}))
    named = load_targets(tmp_path / "targets.yaml")["t"]

    async def call() -> Answered | Failure:
        async with Caller(named, {}) as caller:
            return await caller.call(Call("x"))

    result = asyncio.run(call())
    assert isinstance(result, Failure)
    assert (result.kind, result.connected) == ("auth", False)
    assert "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY" in result.reason
    assert not provider[0].requests


TOOL = {"name": "weather", "description": "of a city", "parameters": {"type": "object", "properties": {}}}


def test_each_api_gets_the_tools_in_its_form(provider: tuple[Provider, str], tmp_path: Path) -> None:
    """And the next call repeats what the model did, signed thoughts included."""
    server, url = provider
    sent = {}
    for kind in KINDS:
        answer(tmp_path, entry(kind, url, tools={"definitions": [TOOL]}))
        sent[kind] = server.requests[-1]["body"]
    assert sent["openai"]["tools"] == sent["azure"]["tools"] == [{"type": "function", "function": TOOL}]
    assert sent["responses"]["tools"] == [{"type": "function", **TOOL}]
    of_anthropic = {"name": "weather", "description": "of a city", "input_schema": TOOL["parameters"]}
    assert sent["anthropic"]["tools"] == [of_anthropic]
    of_gemini = {"name": "weather", "description": "of a city", "parametersJsonSchema": TOOL["parameters"]}
    assert sent["gemini"]["tools"] == sent["vertex"]["tools"] == [{"functionDeclarations": [of_gemini]}]
    spec = {"name": "weather", "description": "of a city", "inputSchema": {"json": TOOL["parameters"]}}
    assert sent["bedrock"]["toolConfig"] == {"tools": [{"toolSpec": spec}]}


@pytest.mark.parametrize("kind", ["anthropic", "gemini", "responses"])
def test_what_only_the_api_can_say_goes_back_to_it(kind: str, provider: tuple[Provider, str], tmp_path: Path) -> None:
    """A model that thinks before it calls a tool wants its thoughts back, as they were."""
    server, url = provider
    server.says = Says(text=None, calls=(("weather", {}),), thinks="hm")
    first = answer(tmp_path, entry(kind, url, tools={"definitions": [TOOL]}))
    assert first.own
    result = {"role": "tool", "tool_call_id": "c1", "name": "weather", "content": "rain"}
    messages = ({"role": "user", "content": "x"}, {"role": "assistant", "content": [*first.own]}, result)
    answer(tmp_path, entry(kind, url), Call("x", messages=messages, takes_text=True))
    body = server.requests[-1]["body"]
    again = {
        "anthropic": lambda: body["messages"][1]["content"],
        "gemini": lambda: body["contents"][1]["parts"],
        "responses": lambda: body["input"][1:-1],
    }[kind]()
    assert again == [*first.own]


AZ = """
import json, pathlib, sys, time
counted = pathlib.Path("counted")
number = len(counted.read_text()) + 1 if counted.exists() else 1
counted.write_text("x" * number)
print(json.dumps({"accessToken": f"token-{number}", "expires_on": time.time() + float(sys.argv[1])}))
"""


@pytest.mark.parametrize(("seconds", "programs"), [(3_600, 1), (100, 2)])
def test_a_program_gives_the_token_of_entra(
    seconds: float, programs: int, provider: tuple[Provider, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It runs once while its token lasts, next to the targets file; a token that ends soon is replaced."""
    clock = itertools.count(time.time(), 2)
    monkeypatch.setattr(azure, "time", SimpleNamespace(time=lambda: next(clock)))
    (tmp_path / "az.py").write_text(AZ)
    command = [sys.executable, "az.py", str(seconds)]
    target = entry("azure", provider[1], token_command=command)
    target.pop("api_key_env")
    results = ask(tmp_path, target, "one", "two")
    assert all(isinstance(result, Answered) for result in results), results
    sent = [request["headers"] for request in provider[0].requests]
    assert [headers["authorization"] for headers in sent] == ["Bearer token-1", f"Bearer token-{programs}"]
    assert not any("api-key" in headers for headers in sent)
    assert len((tmp_path / "counted").read_text()) == programs


@pytest.mark.parametrize(
    ("printed", "reason"),
    [
        ("import sys; sys.exit('please log in')", "ended with 1: please log in"),
        ("print('two words')", "printed no token"),
        ("print('{}')", "printed no token"),
        ("print()", "printed no token"),
        (None, "cannot be started"),
    ],
)
def test_a_program_without_a_token_is_named(
    printed: str | None, reason: str, provider: tuple[Provider, str], tmp_path: Path
) -> None:
    """With what it said; nothing is sent."""
    command = [sys.executable, "-c", printed] if printed is not None else ["./no-such-program"]
    target = entry("azure", provider[1], token_command=command)
    target.pop("api_key_env")
    result = failure(tmp_path, target)
    assert "token_command" in result.reason
    assert reason in result.reason
    assert result.kind == "auth"


def test_a_token_of_entra_has_one_source(tmp_path: Path) -> None:
    """A variable or a program; and both are no part of what answers depend on."""
    bare = entry("azure", "http://127.0.0.1:1")
    for wrong, reason in (
        ({"token_command": ["az"]}, "omit api_key_env and entra"),
        ({"entra": True, "api_key_env": None}, "entra needs api_key_env"),
    ):
        (tmp_path / "targets.yaml").write_text(json.dumps({"targets": {"t": {**bare, **wrong}}}))
        with pytest.raises(ConfigError, match=reason):
            load_targets(tmp_path / "targets.yaml")
    digests = set()
    for more in ({}, {"entra": True}, {"token_command": ["az"], "api_key_env": None}):
        (tmp_path / "targets.yaml").write_text(json.dumps({"targets": {"t": {**bare, **more}}}))
        digests.add(config_digest(load_targets(tmp_path / "targets.yaml")["t"]))
    assert len(digests) == 1


@pytest.mark.parametrize("cut", [1, 7, 100])
def test_bedrocks_stream_is_read_however_it_is_cut(cut: int, provider: tuple[Provider, str], tmp_path: Path) -> None:
    """The same answer as without streaming."""
    provider[0].says = Says(text="It left.", calls=WEATHER, thinks="Let me see.", cached=70, output=30)
    provider[0].cut = cut
    whole, streamed = (answer(tmp_path, entry("bedrock", provider[1], stream=stream)) for stream in (False, True))
    assert said_by(streamed) == said_by(whole)
    assert provider[0].requests[-1]["path"].endswith("/converse-stream")


def _broken(frame: bytes) -> bytes:
    return frame[:-5] + bytes([frame[-5] ^ 1]) + frame[-4:]


@pytest.mark.parametrize(
    ("frames", "most", "kind", "reason"),
    [
        (lambda frame: aws_event("throttlingException", {"message": "Slow"}, "exception"), None, "rate_limit", "Slow"),
        (lambda frame: aws_event("validationException", {"message": "No"}, "exception"), None, "refused", "No"),
        (
            lambda frame: aws_event("internalServerException", {}, "exception"),
            None,
            "server",
            "internalServerException",
        ),
        (lambda frame: b"" if b"messageStop" in frame else frame, None, "server", "cut off"),
        (lambda frame: b"" if b"metadata" in frame else frame, None, "server", "cut off"),
        (_broken, None, "server", "the event stream is damaged"),
        (bytes, 300, "server", ""),
    ],
)
def test_bedrocks_stream_that_fails_is_named(
    frames: Any, most: int | None, kind: str, reason: str, provider: tuple[Provider, str], tmp_path: Path
) -> None:
    """An exception in it, a missing end, a wrong checksum, and a connection that ends too early."""
    provider[0].frames, provider[0].most = frames, most
    result = failure(tmp_path, entry("bedrock", provider[1], stream=True))
    assert result.kind == kind, result.reason
    assert reason in result.reason
