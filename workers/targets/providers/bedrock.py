"""Targets of kind bedrock: models of Amazon Bedrock by Converse, signed by botocore."""

from __future__ import annotations

import asyncio
import contextlib
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, Literal
from urllib.parse import quote

import msgspec
from pydantic import Field

from evalq.evalcore.errors import ConfigError
from evalq.workers.targets.answers import Call
from evalq.workers.targets.events import cut_off, error_of
from evalq.workers.targets.http import BaseUrls, each_of, shown, text_or_none, value_at
from evalq.workers.targets.providers.chat import ModelClient, ModelReply, ModelTarget, OtherFormat
from evalq.workers.targets.providers.turns import (
    ImagePart,
    Part,
    TalkTurn,
    TextPart,
    ToolResult,
    ToolUse,
    read_conversation,
)
from evalq.workers.targets.target import Client

_EXTRA = "the kind bedrock needs the package botocore: pip install 'evalq[bedrock]'"
_CREDENTIALS = ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN")
"""Read here; botocore reads further variables and files if these are missing."""
_SETTINGS = frozenset(("maxTokens", "temperature", "topP", "stopSequences"))
"""Options that are settings of the inference; all others are members of the request."""


class BedrockTarget(ModelTarget):
    """A model of Amazon Bedrock by Converse, with AWS credentials of this machine, or with a Bedrock API key."""

    keys: ClassVar[tuple[str, ...]] = ("model", "system_prompt", "json_schema")
    fixed: ClassVar[tuple[str, ...]] = ("messages", "system", "stream")

    kind: Literal["bedrock"]
    region: str = Field(pattern=r"^[a-z0-9-]+$", description="The region, such as us-east-1")
    base_url: BaseUrls = Field(default="", description="The address before /model/...; by default the region's")
    profile: str | None = Field(
        default=None, description="The profile of AWS's configuration, by default the usual one"
    )
    options: dict[str, Any] = Field(
        default_factory=dict,
        description="Settings of the inference (maxTokens, temperature, topP, stopSequences), and further members of "
        "the request (toolConfig, guardrailConfig, ...)",
    )

    def address(self) -> str:
        """The region, and the model."""
        return f"{shown(self.bases)} {self.model}"

    @property
    def bases(self) -> str | list[str]:
        """The address before /model/..."""
        return self.base_url or f"https://bedrock-runtime.{self.region}.amazonaws.com"

    def granted(self) -> tuple[str, ...]:
        """The variables of AWS credentials, and those of its tools."""
        return (*super().granted(), *_CREDENTIALS)

    def client(self, folder: Path, key: str | None, environment: Mapping[str, str]) -> Client:
        """How it is called."""
        return BedrockClient(self, folder, key, environment)


class BedrockClient(ModelClient):
    """Calls of a target of kind bedrock."""

    what: ClassVar[str] = "a reply of Converse"

    def __init__(self, target: BedrockTarget, folder: Path, key: str | None, environment: Mapping[str, str]) -> None:
        path = f"model/{quote(target.model, safe='')}/converse{'-stream' if target.stream else ''}"
        if target.stream:
            _require_botocore()  # which reads the stream
        urls = [f"{url.rstrip('/')}/{path}" for url in each_of(target.bases)]
        sign = None if key is not None else _Signed(target.region, target.profile, environment)
        super().__init__(target, folder, urls, key, sign=sign)
        self._fixed, settings = target.split_options(_SETTINGS)
        if settings:
            self._fixed["inferenceConfig"] = {**self._fixed.get("inferenceConfig", {}), **settings}
        if target.json_schema:
            schema = {"name": "answer", "schema": msgspec.json.encode(target.read_schema(folder)).decode()}
            form = {"type": "json_schema", "structure": {"jsonSchema": schema}}
            self._fixed["outputConfig"] = {**self._fixed.get("outputConfig", {}), "textFormat": form}
        self.offer(target.tool_list)

    def _offer(self, tools: Sequence[Mapping[str, Any]]) -> None:
        specs = [
            {
                "name": tool["name"],
                # It takes no empty one.
                **({"description": tool["description"]} if tool["description"] else {}),
                "inputSchema": {"json": tool["parameters"]},
            }
            for tool in tools
        ]
        self._fixed["toolConfig"] = {**self._fixed.get("toolConfig", {}), "tools": [{"toolSpec": s} for s in specs]}

    def _body(self, system: str, call: Call) -> dict[str, Any]:
        talk = read_conversation(system, call.chat)
        systems = {"system": [{"text": text} for text in talk.system]} if talk.system else {}
        return {**self._fixed, **systems, "messages": [_message(turn) for turn in talk.turns]}

    def _read(self, value: Any) -> ModelReply:
        content = value_at(value, ("output", "message", "content"))
        if not isinstance(value, Mapping) or not isinstance(content, list):
            raise OtherFormat("it has no output.message.content")
        blocks = [block for block in content if isinstance(block, Mapping)]
        texts = [block["text"] for block in blocks if isinstance(block.get("text"), str)]
        uses = [block["toolUse"] for block in blocks if isinstance(block.get("toolUse"), Mapping)]
        reason = text_or_none(value.get("stopReason"))
        odd = reason in ("malformed_model_output", "malformed_tool_use")
        return ModelReply(
            text="".join(texts) if texts or reason == "end_turn" else None,
            tool_calls=[
                {"id": use.get("toolUseId"), "name": use.get("name"), "arguments": use.get("input")} for use in uses
            ],
            own=blocks,
            finish=reason,
            fault=f"the model ended with {reason}" if odd else "",
            usage=value.get("usage"),
            served={"model": value_at(value, ("trace", "promptRouter", "invokedModelId"))},
        )

    @staticmethod
    def _joining() -> ConverseEvents:
        return ConverseEvents()


class ConverseEvents:
    """The events of a streamed Converse, joined."""

    def __init__(self) -> None:
        self.done = self.written = False
        self._whole: dict[str, Any] = {}
        self._blocks: dict[int, dict[str, Any]] = {}

    def take(self, event: str, value: Any) -> None:
        """Add an event."""
        if event.startswith("exception:"):
            message = value.get("message") if isinstance(value, Mapping) else None
            error = {"type": event.partition(":")[2], "message": message}
            raise error_of(error, "the stream ended with an error")
        if not isinstance(value, Mapping):
            return
        if event == "messageStop":
            self._whole["stopReason"] = value.get("stopReason")
        elif event == "metadata":
            self._whole |= {key: value[key] for key in ("usage", "metrics", "trace") if key in value}
            self.done = True
        elif event in ("contentBlockStart", "contentBlockDelta"):
            self._add(value)

    def _add(self, value: Mapping[str, Any]) -> None:
        index = value.get("contentBlockIndex")
        block = self._blocks.setdefault(index if isinstance(index, int) else len(self._blocks), {})
        use = value_at(value, ("start", "toolUse"))
        if isinstance(use, Mapping):
            block["toolUse"] = {**use, "input": ""}
            self.written = True
        delta = value.get("delta")
        if not isinstance(delta, Mapping):
            return
        self.written = True
        if isinstance(delta.get("text"), str):
            block["text"] = block.get("text", "") + delta["text"]
        if isinstance(part := value_at(delta, ("toolUse", "input")), str):
            block.setdefault("toolUse", {"input": ""})["input"] += part
        reasoning = delta.get("reasoningContent")
        for name, said in reasoning.items() if isinstance(reasoning, Mapping) else ():
            held = block.setdefault("reasoningContent", {})
            if name == "redactedContent":
                held[name] = said
            elif isinstance(said, str):
                text = held.setdefault("reasoningText", {})
                text[name] = text.get(name, "") + said

    def value(self) -> Any:
        """The reply of Converse. Raises StreamFailed if its end is missing."""
        if not self.done or "stopReason" not in self._whole:
            raise cut_off("it has no messageStop and metadata")
        blocks = [_whole_block(block) for _, block in sorted(self._blocks.items())]
        return {"output": {"message": {"role": "assistant", "content": blocks}}, **self._whole}


def _whole_block(block: dict[str, Any]) -> dict[str, Any]:
    """A block with the arguments of its tool as data; as a text if they are no JSON."""
    if "toolUse" not in block:
        return block
    written = block["toolUse"]["input"]
    with contextlib.suppress(msgspec.DecodeError):
        written = msgspec.json.decode(written or "{}")
    return {**block, "toolUse": {**block["toolUse"], "input": written}}


def _message(turn: TalkTurn) -> dict[str, Any]:
    return {"role": "assistant" if turn.assistant else "user", "content": [_block(part) for part in turn.parts]}


_FORMAT = re.compile(r"image/(png|jpeg|gif|webp)")


def _block(part: Part) -> dict[str, Any]:
    if isinstance(part, TextPart):
        return {"text": part.text}
    if isinstance(part, ToolUse):
        return {"toolUse": {"toolUseId": part.id, "name": part.name, "input": part.arguments}}
    if isinstance(part, ToolResult):
        status = {"status": "error"} if part.failed else {}
        return {"toolResult": {"toolUseId": part.id, "content": [{"text": part.text}], **status}}
    if isinstance(part, ImagePart):
        found = _FORMAT.fullmatch(part.media)
        if found is None:
            raise ConfigError("the case's messages: Bedrock takes an image as data: URL of png, jpeg, gif or webp")
        return {"image": {"format": found[1], "source": {"bytes": part.data}}}
    return part.part


def _require_botocore() -> None:
    try:
        import botocore.session  # noqa: F401 - to say now that it is missing
    except ImportError:
        raise ConfigError(_EXTRA) from None


class _Signed:
    """Signs requests with the credentials that botocore finds: variables, profiles, roles, the machine's own."""

    def __init__(self, region: str, profile: str | None, environment: Mapping[str, str]) -> None:
        _require_botocore()
        import botocore.session
        from botocore.credentials import Credentials
        from botocore.exceptions import BotoCoreError

        self._region = region
        self._credentials: Any = None
        access, secret, token = (environment.get(name, "").strip() for name in _CREDENTIALS)
        if profile is None and access and secret:
            self._credentials = Credentials(access, secret, token or None)
            return
        try:
            self._session = botocore.session.Session(profile=profile)
            self._session.get_scoped_config()  # a missing profile is reported now
        except BotoCoreError as error:
            raise ConfigError(f"AWS configuration: {error}") from None

    async def __call__(self, url: str, content: bytes) -> Mapping[str, str]:
        # To find or renew credentials may take a request.
        return await asyncio.to_thread(self._headers, url, content)

    def _headers(self, url: str, content: bytes) -> Mapping[str, str]:
        from botocore.auth import SigV4Auth
        from botocore.awsrequest import AWSRequest
        from botocore.exceptions import BotoCoreError

        try:
            if self._credentials is None:
                self._credentials = self._session.get_credentials()
            if self._credentials is None:
                raise ConfigError(
                    "no AWS credentials: set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or a profile, or name a "
                    "Bedrock API key by api_key_env"
                )
            frozen = self._credentials.get_frozen_credentials()
            request = AWSRequest("POST", url, headers={"content-type": "application/json"}, data=content)
            SigV4Auth(frozen, "bedrock", self._region).add_auth(request)
        except BotoCoreError as error:
            raise ConfigError(f"AWS credentials: {error}") from None
        return dict(request.headers.items())
