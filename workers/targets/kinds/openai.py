"""Targets of kind openai: chat completions."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, model_validator
from pydantic_core import PydanticCustomError

from evalq.evalcore.model.canonical import Json
from evalq.workers.targets.address import Headers, Url, secrets_of, shown
from evalq.workers.targets.target import Target, Way

__all__ = ["TARGET", "OpenAiTarget"]

_KEYS = ("model", "system_prompt", "json_mode", "json_schema")
_NO_OPTIONS = ("messages", "stream", "n", "kind")


class OpenAiTarget(Target):
    """Any endpoint that speaks chat completions."""

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
    options: dict[str, Any] = Field(
        default_factory=dict, description="Further members of the request: temperature, max_tokens, ..."
    )

    @model_validator(mode="after")
    def _choosable(self) -> OpenAiTarget:
        for name in self.variable:
            if name not in _KEYS and (name in type(self).model_fields or name in _NO_OPTIONS):
                raise PydanticCustomError("choice", "variable: {name} is not for others to choose", {"name": name})
        return self

    def with_values(self, values: Mapping[str, Json]) -> Mapping[str, Json]:
        """Model, prompt and form of the answer are keys of their own, everything else a member of the request."""
        keys = {name: value for name, value in values.items() if name in _KEYS}
        return {**keys, "options": {**self.options, **{name: values[name] for name in values.keys() - keys.keys()}}}

    def value_of(self, parameter: str) -> Json:
        """As its key or ``options`` has it; None where these have none."""
        return getattr(self, parameter) if parameter in _KEYS else self.options.get(parameter)

    def place(self) -> str:
        """Without what may be secret of it, and the model."""
        return f"{shown(self.base_url)} {self.model}"

    def secrets(self) -> Iterator[str]:
        """Of headers and URL."""
        return secrets_of(self.base_url, self.headers)

    def files(self) -> Mapping[str, str | None]:
        """The prompt and the schema."""
        return {"system_prompt": self.system_prompt, "json_schema": self.json_schema}

    def way(self, folder: Path, key: str | None, environment: Mapping[str, str]) -> Way:
        """Calls of it."""
        from evalq.workers.targets.endpoints import ChatEndpoint  # httpx takes a while to import

        return ChatEndpoint(self, folder, key)


TARGET = OpenAiTarget
