"""Targets of kind embeddings: a vector for a text, as OpenAI's /embeddings gives it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, ClassVar, Literal

from pydantic import Field

from evalq.workers.targets.address import Headers, Url, secrets_of, shown
from evalq.workers.targets.target import RequestTarget, Way

__all__ = ["TARGET", "EmbeddingsTarget"]


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

    def client(self, folder: Path, key: str | None, environment: Mapping[str, str]) -> Way:
        """How it is called."""
        from evalq.workers.targets.endpoints import EmbeddingsEndpoint  # httpx takes a while to import

        return EmbeddingsEndpoint(self, key)


TARGET = EmbeddingsTarget
