"""Targets of kind http: a template in, a path out."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Literal

from pydantic import Field, field_validator, model_validator
from pydantic_core import PydanticCustomError

from evalq.evalcore.records.json_values import parse_path
from evalq.workers.targets.address import HeaderName, Headers, Url, secrets_of, shown
from evalq.workers.targets.target import ParameterTarget, Way
from evalq.workers.targets.template import PLACEHOLDERS, mentions

__all__ = ["TARGET", "HttpTarget"]


class HttpTarget(ParameterTarget):
    """Any HTTP endpoint: a JSON template in, a JSON path out."""

    kind: Literal["http"]
    url: Url = Field(description="Where calls are posted")
    headers: Headers = Field(default_factory=dict, description="Further headers (their values are never shown)")
    api_key_header: HeaderName = Field(
        default="Authorization", description="Header of the key; in Authorization, a bearer"
    )
    body: Any = Field(
        description="The JSON to send; {prompt}, {agent}, {case}, {repeat} stand for the call's, {messages} for a "
        "chat, the name of a parameter for its value"
    )
    answer: str = Field(default="", description="Path of the answer in the reply; empty: the whole reply")
    finish_reason: str | None = Field(default=None, description="Path of the reason why the answer ended")
    prompt_tokens: str | None = Field(default=None, description="Path of the number of prompt tokens")
    completion_tokens: str | None = Field(default=None, description="Path of the number of completion tokens")

    @field_validator("answer", "finish_reason", "prompt_tokens", "completion_tokens")
    @classmethod
    def _is_path(cls, value: str | None) -> str | None:
        if value is not None:
            parse_path(value)
        return value

    @model_validator(mode="after")
    def _places(self) -> HttpTarget:
        for name in {*self.parameters, *self.variable}:
            if name in PLACEHOLDERS or not mentions(self.body, name):
                raise PydanticCustomError("place", "body: has no place {name} for a parameter", {"name": f"{{{name}}}"})
            if name not in self.parameters:
                raise PydanticCustomError(
                    "value", "parameters: {name} needs a value for when it is not chosen", {"name": name}
                )
        return self

    def address(self) -> str:
        """Its URL without what may be secret in it."""
        return shown(self.url)

    def secrets(self) -> Iterator[str]:
        """The secrets in its headers and URL."""
        return secrets_of(self.url, self.headers)

    def client(self, folder: Path, key: str | None, environment: Mapping[str, str]) -> Way:
        """How it is called."""
        from evalq.workers.targets.endpoints import HttpEndpoint  # httpx takes a while to import

        return HttpEndpoint(self, key)


TARGET = HttpTarget
