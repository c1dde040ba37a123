"""Targets of kind embeddings: a vector for a text, as OpenAI's /embeddings gives it."""

from __future__ import annotations

import base64
import struct
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

import msgspec
from pydantic import Field

from evalq.evalcore.model.calls import pack_vector
from evalq.evalcore.records.json_values import NothingThere, find_at
from evalq.workers.targets.answers import Answer, Call, Failure
from evalq.workers.targets.http import (
    Headers,
    PostingClient,
    Url,
    bad_reply,
    secrets_of,
    shown,
    token_counts,
    value_at,
)
from evalq.workers.targets.target import Client, RequestTarget

__all__ = ["EmbeddingsTarget"]

_SHOWN = 2000


class EmbeddingsTarget(RequestTarget):
    """Any endpoint that gives embeddings. Its answers are {"vector": ...}, a signed byte a dimension in base64."""

    keys: ClassVar = ("model",)
    fixed: ClassVar = ("input",)

    kind: Literal["embeddings"]
    base_url: Annotated[Url, Field(pattern=r"^[^?#]+$")] = Field(
        description="The address before /embeddings, such as http://127.0.0.1:8000/v1"
    )
    model: str = Field(min_length=1, description="The model's name")
    headers: Headers = Field(default_factory=dict, description="Further headers (their values are never shown)")

    def address(self) -> str:
        """Its URL without what may be secret in it, and the model."""
        return f"{shown(self.base_url)} {self.model}"

    def secrets(self) -> Iterator[str]:
        """The secrets in its headers and URL."""
        return secrets_of(self.base_url, self.headers)

    def client(self, folder: Path, key: str | None, environment: Mapping[str, str]) -> Client:
        """How it is called."""
        return EmbeddingsClient(self, key)


class EmbeddingsClient(PostingClient):
    """Calls of a target of kind embeddings."""

    def __init__(self, target: EmbeddingsTarget, key: str | None) -> None:
        super().__init__(target.base_url.rstrip("/") + "/embeddings", target.headers, key, target.max_bytes)
        self._fixed = {"model": target.model, "encoding_format": "float", **target.options}

    async def call(self, call: Call) -> Answer | Failure:
        """The vector of the prompt: of floats as JSON, or as base64 of those of 32 bits."""
        reply = await self._web.post({**self._fixed, "input": call.prompt})
        if isinstance(reply, Failure):
            return reply
        try:
            vector = pack_vector(_floats(find_at(reply.value, ("data", 0, "embedding"))))
        except (NothingThere, ValueError) as error:
            return bad_reply(reply, f"not an embedding: {error}", reply.text[:_SHOWN])
        return Answer(
            text=msgspec.json.encode({"vector": vector}).decode(),
            latency_seconds=reply.seconds,
            limits=reply.limits,
            **token_counts(reply, value_at(reply.value, ("usage", "prompt_tokens")), None),
        )


def _floats(found: Any) -> list[float]:
    """Raises ValueError."""
    if isinstance(found, str):
        data = base64.b64decode(found, validate=True)
        return [value for (value,) in struct.iter_unpack("<f", data)] if len(data) % 4 == 0 else []
    if not isinstance(found, list):
        raise ValueError(f"{type(found).__name__} where a list of numbers is wanted")
    return found
