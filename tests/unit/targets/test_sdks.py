"""The providers' own packages read all that the servers of the tests send, and send what evalq sends.

Each package takes a second or more to import, so each has one test.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from evalq.workers.targets import Answered, Call
from tests.agents.providers import FINGERPRINT, MODEL, Provider, Says, running_provider
from tests.unit.targets.test_providers import AWS, KEY, WEATHER, answer, ask, entry, said_by

TALK: tuple[dict[str, Any], ...] = (
    {"role": "user", "content": "Where is it?"},
    {"role": "assistant", "content": "One moment.", "tool_calls": [
        {"id": "c1", "type": "function", "function": {"name": "weather", "arguments": '{"city":"Bonn"}'}}]},
    {"role": "tool", "tool_call_id": "c1", "content": "rain"},
    {"role": "user", "content": "And now?"},
)  # fmt: skip
SCHEMA = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
TOOLS = {"definitions": [{"name": "weather", "description": "The weather there", "parameters": SCHEMA}]}
SAYS = (
    Says(),
    Says(text="It left.", calls=WEATHER, thinks="Hm.", cached=70, written=5, written_1h=6, output=30, reasoning=11),
    Says(text=None, calls=WEATHER[:1]),
    Says(text="Cut", finish="length"),
    Says(text=None, finish="refusal", refusal="I cannot help with that."),
    Says(text=None, finish="content_filter"),
)
"""All that the servers can say."""


@pytest.fixture(scope="module")
def provider() -> Iterator[tuple[Provider, str]]:
    """A server of all APIs."""
    with running_provider() as started:
        yield started


class Sent:
    """The last request that came to a server, without what each client adds of itself."""

    def __init__(self, server: Provider) -> None:
        request = server.requests[-1]
        self.path: str = request["path"]
        self.body: dict[str, Any] = request["body"]
        self._headers: Mapping[str, str] = request["headers"]

    def headers(self, *names: str) -> dict[str, str | None]:
        """Those that the API reads."""
        return {name: self._headers.get(name) for name in ("content-type", *names)}


def evalqs(server: Provider, folder: Path, target: dict[str, Any], *, system: bool = True) -> Sent:
    """What evalq sends for the conversation."""
    (folder / "p.md").write_text("You help.")
    more = {"system_prompt": "p.md"} if system else {}
    ask(folder, {**target, **more}, Call("x", messages=TALK, takes_text=True))
    return Sent(server)


def unknown_fields(model: Any) -> list[str]:
    """Fields of a parsed object, and of all within, that its type does not know."""
    if isinstance(model, list | tuple):
        return [name for each in model for name in unknown_fields(each)]
    if not hasattr(model, "model_extra"):
        return []
    own = [f"{type(model).__name__}.{name}" for name in model.model_extra or ()]
    return own + [name for field in type(model).model_fields for name in unknown_fields(getattr(model, field))]


def both(server: Provider, folder: Path, target: dict[str, Any], says: Says, read: Callable[[bool], Any]) -> None:
    """Have a package and evalq read the same, whole and as a stream."""
    server.says = says
    for stream in (False, True):
        found = read(stream)
        assert not unknown_fields(found), (says, stream)
        (result,) = ask(folder, {**target, "stream": stream}, Call("x", messages=TALK, takes_text=True))
        text, calls, counts = read_as(found)
        assert (result.prompt_tokens, result.completion_tokens) == counts, (says, stream)
        assert result.served.model == MODEL
        assert isinstance(result, Answered) == (not says.refusal and says.finish != "content_filter")
        if isinstance(result, Answered):
            own = result.envelope.tool_calls if result.envelope is not None else None
            assert (result.text, [(call["name"], call["arguments"]) for call in own or ()]) == (text, calls)


def read_as(found: Any) -> tuple[str, list[tuple[str, Any]], tuple[int, int]]:
    """The text, the calls and the tokens of an object of any of the packages."""
    kind = type(found).__name__
    if "ChatCompletion" in kind:
        message = found.choices[0].message
        calls = [(call.function.name, json.loads(call.function.arguments)) for call in message.tool_calls or ()]
        return message.content or "", calls, (found.usage.prompt_tokens, found.usage.completion_tokens)
    if "Message" in kind:
        texts = [block.text for block in found.content if block.type == "text"]
        calls = [(block.name, block.input) for block in found.content if block.type == "tool_use"]
        usage = found.usage
        read = usage.input_tokens + (usage.cache_read_input_tokens or 0) + (usage.cache_creation_input_tokens or 0)
        return "".join(texts), calls, (read, usage.output_tokens)
    calls = [(item.name, json.loads(item.arguments)) for item in found.output if item.type == "function_call"]
    return found.output_text, calls, (found.usage.input_tokens, found.usage.output_tokens)


def test_openais_package_agrees(provider: tuple[Provider, str], tmp_path: Path) -> None:
    """Chat completions, also of Azure, and Responses."""
    import openai
    from openai.types.chat import ChatCompletion, ChatCompletionChunk
    from openai.types.responses import Response

    server, url = provider
    client = openai.OpenAI(api_key=KEY, base_url=f"{url}/v1", max_retries=0, _strict_response_validation=True)
    azure = openai.AzureOpenAI(
        api_key=KEY, azure_endpoint=url, api_version="2024-10-21", max_retries=0, _strict_response_validation=True
    )
    system = {"role": "system", "content": "You help."}
    messages: Any = [system, *TALK]
    counted = {"include_usage": True}

    def chat(at: Any, stream: bool) -> Any:
        function = {"name": "weather", "description": "The weather there", "parameters": SCHEMA}
        tools = [{"type": "function", "function": function}]
        asked = {"model": "m", "messages": messages, "temperature": 0.5, "tools": tools}
        if not stream:
            return at.chat.completions.create(**asked)
        chunks = list(at.chat.completions.create(**asked, stream=True, stream_options=counted))
        assert all(isinstance(chunk, ChatCompletionChunk) and not unknown_fields(chunk) for chunk in chunks)
        return joined_by_openai(chunks, ChatCompletion)

    def responses(stream: bool) -> Any:
        tool = {"type": "function", "name": "weather", "description": "The weather there", "parameters": SCHEMA}
        asked: dict[str, Any] = {"model": "m", "instructions": "You help.", "store": False, "tools": [tool], "input": [
            {"role": "user", "content": "Where is it?"},
            {"role": "assistant", "content": [{"type": "output_text", "text": "One moment."}]},
            {"type": "function_call", "call_id": "c1", "name": "weather", "arguments": '{"city":"Bonn"}'},
            {"type": "function_call_output", "call_id": "c1", "output": "rain"},
            {"role": "user", "content": [{"type": "input_text", "text": "And now?"}]}]}  # fmt: skip
        if not stream:
            return client.responses.create(**asked)
        events = list(client.responses.create(**asked, stream=True))
        assert not any(unknown_fields(event) for event in events)
        last: Any = events[-1]
        assert isinstance(last.response, Response)
        return last.response

    entra = openai.AzureOpenAI(
        azure_ad_token=KEY,
        azure_endpoint=url,
        api_version="2024-10-21",
        max_retries=0,
        _strict_response_validation=True,
    )
    kinds: list[tuple[str, Callable[[bool], Any]]] = [
        ("openai", lambda stream: chat(client, stream)),
        ("azure", lambda stream: chat(azure, stream)),
        ("azure entra", lambda stream: chat(entra, stream)),
        ("responses", responses),
    ]
    for kind, read in kinds:
        options = {} if kind == "responses" else {"temperature": 0.5}
        target = entry(kind.split()[0], url, options=options, tools=TOOLS)
        target |= {"entra": True} if kind == "azure entra" else {}
        for says in SAYS:
            both(server, tmp_path, target, says, read)
        for stream in (False, True):
            read(stream)
            theirs = Sent(server)
            own = evalqs(server, tmp_path, {**target, "stream": stream})
            assert own.body == theirs.body, (kind, stream)
            assert own.path == theirs.path
            names = ("api-key",) if kind == "azure" else ("authorization",)
            assert own.headers(*names) == theirs.headers(*names)


def joined_by_openai(chunks: list[Any], whole: Any) -> Any:
    """A completion of chunks, as the package's own helper for streams makes it."""
    from openai.lib.streaming.chat._completions import ChatCompletionStreamState

    state: Any = ChatCompletionStreamState()
    for chunk in chunks:
        state.handle_chunk(chunk)
    found = state.current_completion_snapshot
    assert found.system_fingerprint == FINGERPRINT
    data = found.model_dump(mode="json")
    # The helper adds what it read in the texts.
    data["choices"][0]["message"].pop("parsed", None)
    for call in data["choices"][0]["message"].get("tool_calls") or ():
        call.pop("index", None)
        call["function"].pop("parsed_arguments", None)
    return whole.model_validate(data)


def test_anthropics_package_agrees(provider: tuple[Provider, str], tmp_path: Path) -> None:
    """Messages, with thinking and a cached prompt."""
    import anthropic
    from anthropic.types import Message

    server, url = provider
    client = anthropic.Anthropic(api_key=KEY, base_url=url, max_retries=0, _strict_response_validation=True)
    kept = {"type": "ephemeral", "ttl": "1h"}
    asked: dict[str, Any] = {
        "model": "m",
        "max_tokens": 4096,
        "thinking": {"type": "enabled", "budget_tokens": 1024},
        "tools": [{"name": "weather", "description": "The weather there", "input_schema": SCHEMA}],
        "system": [{"type": "text", "text": "You help.", "cache_control": kept}],
        "messages": [
            {"role": "user", "content": "Where is it?"},
            {"role": "assistant", "content": [
                {"type": "text", "text": "One moment."},
                {"type": "tool_use", "id": "c1", "name": "weather", "input": {"city": "Bonn"}}]},
            {"role": "user", "content": [
                {"type": "tool_result", "tool_use_id": "c1", "content": "rain"},
                {"type": "text", "text": "And now?"}]},
        ],
    }  # fmt: skip

    def read(stream: bool) -> Any:
        if not stream:
            return client.messages.create(**asked)
        with client.messages.stream(**asked) as events:
            return Message.model_validate(events.get_final_message().model_dump(mode="json", exclude={"parsed_output"}))

    more = {"cache": "1h", "options": {"thinking": asked["thinking"]}, "tools": TOOLS}
    target = entry("anthropic", url, **more)
    for says in SAYS:
        both(server, tmp_path, target, says, read)
    for stream in (False, True):
        read(stream)
        theirs = Sent(server)
        own = evalqs(server, tmp_path, {**target, "stream": stream})
        assert own.body == theirs.body
        assert own.path == theirs.path
        names = ("authorization", "anthropic-version")
        assert own.headers(*names) == theirs.headers(*names)
    # Each event is one of the API's: the package's own type for them reads it.
    server.says = SAYS[1]
    for event in client.messages.create(**asked, stream=True):
        assert not unknown_fields(event), event


def test_googles_package_agrees(provider: tuple[Provider, str], tmp_path: Path) -> None:
    """The Gemini API and Vertex AI; this package refuses fields that it does not know."""
    from google import genai
    from google.genai import types
    from google.oauth2.credentials import Credentials

    server, url = provider
    options = types.HttpOptions(base_url=url)
    gemini = genai.Client(api_key=KEY, http_options=options)
    vertex = genai.Client(
        vertexai=True, project="p", location="europe-west1", credentials=Credentials(KEY),
        http_options=types.HttpOptions(base_url=url, api_version="v1"),
    )  # fmt: skip
    contents: Any = [
        types.Content(role="user", parts=[types.Part(text="Where is it?")]),
        types.Content(role="model", parts=[
            types.Part(text="One moment."),
            types.Part(function_call=types.FunctionCall(name="weather", args={"city": "Bonn"}))]),
        types.Content(role="user", parts=[
            types.Part(function_response=types.FunctionResponse(name="weather", response={"result": "rain"})),
            types.Part(text="And now?")]),
    ]  # fmt: skip
    config = types.GenerateContentConfig(
        system_instruction=types.Content(parts=[types.Part(text="You help.")]), temperature=0.5, max_output_tokens=99,
        tools=[types.Tool(function_declarations=[types.FunctionDeclaration(
            name="weather", description="The weather there", parameters_json_schema=SCHEMA)])],
        automatic_function_calling=types.AutomaticFunctionCallingConfig(disable=True),
    )  # fmt: skip

    def read(client: Any, stream: bool) -> list[Any]:
        asked = {"model": "m", "contents": contents, "config": config}
        if not stream:
            return [client.models.generate_content(**asked)]
        return list(client.models.generate_content_stream(**asked))

    for kind, client in (("gemini", gemini), ("vertex", vertex)):
        target = entry(kind, url, options={"temperature": 0.5, "maxOutputTokens": 99}, tools=TOOLS)
        for says, stream in itertools.product(SAYS, (False, True)):
            server.says = says
            replies = read(client, stream)
            theirs = Sent(server)
            own = evalqs(server, tmp_path, {**target, "stream": stream})
            # The package writes this key as it is called in Python, which the API reads as well.
            named = json.loads(json.dumps(theirs.body).replace("parameters_json_schema", "parametersJsonSchema"))
            assert (own.body, own.path) == (named, theirs.path)
            names = ("x-goog-api-key",) if kind == "gemini" else ("authorization",)
            assert own.headers(*names) == theirs.headers(*names)
            if says.refusal or says.finish == "content_filter":
                assert replies[-1].candidates[0].finish_reason.name in ("PROHIBITED_CONTENT", "SAFETY")
                continue
            result = answer(tmp_path, {**target, "stream": stream})
            parts = [part for reply in replies for part in reply.candidates[0].content.parts or ()]
            assert result.text == "".join(part.text for part in parts if part.text and not part.thought)
            calls = result.envelope.tool_calls if result.envelope is not None else ()
            assert [(call["name"], call["arguments"]) for call in calls or ()] == [
                (part.function_call.name, part.function_call.args) for part in parts if part.function_call
            ]
            usage = replies[-1].usage_metadata
            assert result.prompt_tokens == usage.prompt_token_count
            assert result.completion_tokens == usage.candidates_token_count + (usage.thoughts_token_count or 0)
            assert result.served.model == replies[-1].model_version


def test_botocore_agrees(provider: tuple[Provider, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Converse: what comes has the shape of the API, and both sign alike."""
    import botocore.session
    from botocore.config import Config
    from botocore.validate import ParamValidator

    server, url = provider
    session = botocore.session.Session()
    session.set_credentials(AWS["AWS_ACCESS_KEY_ID"], AWS["AWS_SECRET_ACCESS_KEY"])
    once = Config(retries={"total_max_attempts": 1})
    client = session.create_client("bedrock-runtime", region_name="eu-central-1", endpoint_url=url, config=once)
    model = "eu.anthropic.claude-x-v1:0"
    asked: dict[str, Any] = {
        "modelId": model,
        "system": [{"text": "You help."}],
        "inferenceConfig": {"maxTokens": 99, "temperature": 0.5},
        "toolConfig": {"tools": [{"toolSpec": {
            "name": "weather", "description": "The weather there", "inputSchema": {"json": SCHEMA}}}]},
        "messages": [
            {"role": "user", "content": [{"text": "Where is it?"}]},
            {"role": "assistant", "content": [
                {"text": "One moment."},
                {"toolUse": {"toolUseId": "c1", "name": "weather", "input": {"city": "Bonn"}}}]},
            {"role": "user", "content": [
                {"toolResult": {"toolUseId": "c1", "content": [{"text": "rain"}]}}, {"text": "And now?"}]},
        ],
    }  # fmt: skip
    target = entry("bedrock", url, model=model, options={"maxTokens": 99, "temperature": 0.5}, tools=TOOLS)
    del target["api_key_env"]
    shape = client.meta.service_model.operation_model("Converse").output_shape
    for says in SAYS:
        server.says = says
        streamed = list(client.converse_stream(**asked)["stream"])
        theirs = Sent(server)
        own = evalqs(server, tmp_path, {**target, "stream": True})
        assert (own.body, own.path) == (theirs.body, theirs.path)
        assert own.headers() == theirs.headers()
        reply = client.converse(**asked)
        assert streamed[-2]["messageStop"]["stopReason"] == reply["stopReason"]
        assert streamed[-1]["metadata"]["usage"] == reply["usage"]
        theirs = Sent(server)
        del reply["ResponseMetadata"]
        assert not ParamValidator().validate(reply, shape).has_errors()
        own = evalqs(server, tmp_path, target)
        assert (own.body, own.path) == (theirs.body, theirs.path)
        assert own.headers() == theirs.headers()
        assert signed_anew(own, url) == own.headers("authorization")["authorization"]
        if says.refusal or says.finish == "content_filter":
            continue
        result = answer(tmp_path, target)
        assert said_by(answer(tmp_path, {**target, "stream": True})) == said_by(result)
        blocks = reply["output"]["message"]["content"]
        assert result.text == "".join(block["text"] for block in blocks if "text" in block)
        calls = result.envelope.tool_calls if result.envelope is not None else ()
        assert [(call["name"], call["arguments"], call["id"]) for call in calls or ()] == [
            (use["name"], use["input"], use["toolUseId"]) for block in blocks if (use := block.get("toolUse"))
        ]
        usage = reply["usage"]
        assert result.completion_tokens == usage["outputTokens"]
        assert result.cached_tokens == usage["cacheReadInputTokens"]
        assert result.prompt_tokens == usage["totalTokens"] - usage["outputTokens"]


def signed_anew(sent: Sent, url: str) -> str:
    """The signature that botocore computes for a request as it came to the server, as AWS does."""
    from botocore.auth import SigV4Auth
    from botocore.awsrequest import AWSRequest
    from botocore.credentials import Credentials

    given = sent.headers("x-amz-date", "authorization")
    headers = {"content-type": given["content-type"], "host": url.removeprefix("http://")}
    import msgspec

    request = AWSRequest("POST", url + sent.path, headers=headers, data=msgspec.json.encode(sent.body))
    request.headers["X-Amz-Date"] = given["x-amz-date"]
    request.context["timestamp"] = given["x-amz-date"]
    auth = SigV4Auth(Credentials(AWS["AWS_ACCESS_KEY_ID"], AWS["AWS_SECRET_ACCESS_KEY"]), "bedrock", "eu-central-1")
    canonical = auth.canonical_request(request)
    signature = auth.signature(auth.string_to_sign(request, canonical), request)
    return str(given["authorization"]).rpartition("=")[0] + "=" + str(signature)


def test_google_auth_gives_the_token_of_vertex(
    provider: tuple[Provider, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With a service account's key, from a server of tokens; one token serves all calls."""
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric import rsa

    server, url = provider
    server.says = Says()
    key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    pem = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    ).decode()
    account = {
        "type": "service_account", "project_id": "p", "private_key_id": "1", "private_key": pem,
        "client_email": "evalq@p.example", "client_id": "1", "token_uri": f"{url}/token",
    }  # fmt: skip
    (tmp_path / "account.json").write_text(json.dumps(account))
    monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", str(tmp_path / "account.json"))
    target = entry("vertex", url)
    del target["api_key_env"]
    before = len(server.requests)
    results = ask(tmp_path, target, "one", "two")
    assert all(isinstance(result, Answered) for result in results), results
    paths = [request["path"] for request in server.requests[before:]]
    assert paths == [
        "/token",
        *["/v1/projects/p/locations/europe-west1/publishers/google/models/m:generateContent"] * 2,
    ]
    assert Sent(server).headers("authorization")["authorization"] == "Bearer ya29.token"
