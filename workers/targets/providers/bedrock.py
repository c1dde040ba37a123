"""Targets of kind bedrock: models of Amazon Bedrock by Converse, signed by botocore."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, Literal
from urllib.parse import quote

import msgspec
from pydantic import Field, model_validator
from pydantic_core import PydanticCustomError

from evalq.evalcore.errors import ConfigError
from evalq.workers.targets.answers import Call
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

    @model_validator(mode="after")
    def _no_stream(self) -> BedrockTarget:
        if self.stream:
            raise PydanticCustomError("stream", "stream: Bedrock streams in a form of its own, which is not read here")
        return self

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
        path = f"model/{quote(target.model, safe='')}/converse"
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


class _Signed:
    """Signs requests with the credentials that botocore finds: variables, profiles, roles, the machine's own."""

    def __init__(self, region: str, profile: str | None, environment: Mapping[str, str]) -> None:
        try:
            import botocore.session
        except ImportError:
            raise ConfigError(_EXTRA) from None
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
