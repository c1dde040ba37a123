"""Targets of kind openai: chat completions."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, ClassVar, Literal

from pydantic import Field

from evalq.workers.targets.address import Headers, Url, secrets_of, shown
from evalq.workers.targets.target import RequestTarget, Way

__all__ = ["TARGET", "OpenAiTarget"]


class OpenAiTarget(RequestTarget):
    """Any endpoint that speaks chat completions."""

    keys: ClassVar = ("model", "system_prompt", "json_mode", "json_schema")
    fixed: ClassVar = ("messages", "stream", "n")

    kind: Literal["openai"]
    base_url: Annotated[Url, Field(pattern=r"^[^?#]+$")] = Field(
        description="The address before /chat/completions, such as http://127.0.0.1:8000/v1"
    )
    model: str = Field(min_length=1, description="The model's name")
    headers: Headers = Field(default_factory=dict, description="Further headers (their values are never shown)")
    system_prompt: str | None = Field(
        default=None, description="A file next to or below the targets file; {agent} stands for the call's agent"
    )
    json_mode: bool = Field(default=False, description="Ask for a JSON object by response_format")
    json_schema: str | None = Field(
        default=None, description="A JSON schema file to ask for, next to or below this one"
    )

    def address(self) -> str:
        """Its URL without what may be secret in it, and the model."""
        return f"{shown(self.base_url)} {self.model}"

    def secrets(self) -> Iterator[str]:
        """The secrets in its headers and URL."""
        return secrets_of(self.base_url, self.headers)

    def files(self) -> Mapping[str, str | None]:
        """The prompt and the schema."""
        return {"system_prompt": self.system_prompt, "json_schema": self.json_schema}

    def client(self, folder: Path, key: str | None, environment: Mapping[str, str]) -> Way:
        """How it is called."""
        from evalq.workers.targets.endpoints import ChatEndpoint  # httpx takes a while to import

        return ChatEndpoint(self, folder, key)


TARGET = OpenAiTarget
