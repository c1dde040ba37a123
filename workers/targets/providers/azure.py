"""Targets of kind azure: chat completions of a deployment, as Azure OpenAI serves them, by key or by Entra ID."""

from __future__ import annotations

import asyncio
import base64
import subprocess
import time
from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Annotated, Any, Literal
from urllib.parse import quote

import msgspec
from pydantic import Field, model_validator

from evalq.evalcore.errors import ConfigError
from evalq.evalcore.naming import shorten
from evalq.workers.processes.environment import without_secrets
from evalq.workers.targets.http import BaseUrls, each_of
from evalq.workers.targets.providers.openai import ChatClient, ChatTarget
from evalq.workers.targets.target import Client

_PATIENCE = 60.0
_EARLY_SECONDS = 120.0
"""So long before its end a token is replaced."""
_UNKNOWN_SECONDS = 300.0
"""How long a token is used that does not say when it ends."""


class AzureTarget(ChatTarget):
    """A deployment of Azure OpenAI, asked by chat completions; by a key, or by a token of Microsoft Entra ID."""

    kind: Literal["azure"]
    base_url: BaseUrls = Field(description="The resource's address, such as https://NAME.openai.azure.com")
    model: str = Field(min_length=1, description="The deployment's name")
    api_version: str = Field(min_length=1, description="The version of the API, such as 2024-10-21")
    entra: bool = Field(
        default=False, description="The variable of api_key_env holds a token of Microsoft Entra ID, and no key"
    )
    token_command: tuple[Annotated[str, Field(min_length=1)], ...] = Field(
        default=(),
        description="A program and its arguments that print such a token, or the JSON of az account get-access-token; "
        "evalq runs it again before the token ends",
    )

    @model_validator(mode="after")
    def _one_source(self) -> AzureTarget:
        if self.token_command and (self.api_key_env or self.entra):
            raise ValueError("token_command gives the token: omit api_key_env and entra")
        if self.entra and not self.api_key_env:
            raise ValueError("entra needs api_key_env, the variable that holds the token; or give token_command")
        return self

    def client(self, folder: Path, key: str | None, environment: Mapping[str, str]) -> Client:
        """How it is called."""
        path = f"openai/deployments/{quote(self.model, safe='')}/chat/completions"
        query = f"api-version={quote(self.api_version, safe='')}"
        urls = [f"{url.rstrip('/').removesuffix('/openai')}/{path}?{query}" for url in each_of(self.base_url)]
        if self.token_command:
            return ChatClient(self, folder, urls, None, sign=_Token(self.token_command, folder, environment))
        return ChatClient(self, folder, urls, key, key_header="Authorization" if self.entra else "api-key")


class _Token:
    """Gives the header with a token, and gets a new one by the program before the old one ends."""

    def __init__(self, command: Sequence[str], folder: Path, environment: Mapping[str, str]) -> None:
        self._command, self._folder, self._environment = command, folder, without_secrets(environment)
        self._token, self._until = "", 0.0
        self._lock = asyncio.Lock()

    async def __call__(self, url: str, content: bytes) -> Mapping[str, str]:
        async with self._lock:
            if time.time() >= self._until:
                self._token, self._until = await asyncio.to_thread(self._fetched)
        return {"authorization": f"Bearer {self._token}"}

    def _fetched(self) -> tuple[str, float]:
        """A token, and until when it is used. Raises ConfigError."""
        program = self._command[0]
        try:
            done = subprocess.run(  # noqa: S603 - the targets file names programs
                self._command, cwd=self._folder, env=self._environment, stdin=subprocess.DEVNULL, capture_output=True,
                timeout=_PATIENCE, check=False,
            )  # fmt: skip
        except (OSError, ValueError) as error:
            raise ConfigError(f"token_command: {program} cannot be started: {error}") from None
        except subprocess.TimeoutExpired:
            raise ConfigError(f"token_command: {program} did not end within {_PATIENCE:.0f} seconds") from None
        if done.returncode:
            message = shorten(done.stderr.decode(errors="replace").strip(), 200)
            raise ConfigError(f"token_command: {program} ended with {done.returncode}: {message}")
        token, ends = _read(done.stdout.decode(errors="replace").strip())
        if not token or not token.isascii() or not token.isprintable() or " " in token:
            raise ConfigError(f"token_command: {program} printed no token, nor JSON with accessToken")
        now = time.time()
        return token, max(ends - _EARLY_SECONDS, now + 1) if ends else now + _UNKNOWN_SECONDS


def _read(printed: str) -> tuple[str, float]:
    """The token in what a program printed, and when it ends in seconds since 1970; 0 if that is not known."""
    if not printed.startswith("{"):
        return printed, _end_of(printed)
    try:
        found = msgspec.json.decode(printed, type=dict[str, Any])
    except msgspec.DecodeError:
        return "", 0.0
    token, ends, local = (found.get(name) for name in ("accessToken", "expires_on", "expiresOn"))
    if not isinstance(token, str):
        return "", 0.0
    if isinstance(ends, int | float):
        return token, float(ends)
    try:  # older versions of az write local time
        return token, datetime.fromisoformat(str(local)).timestamp()
    except ValueError:
        return token, _end_of(token)


def _end_of(token: str) -> float:
    """When a JSON web token ends; 0 if it does not say."""
    try:
        body = token.split(".")[1]
        found = msgspec.json.decode(base64.urlsafe_b64decode(body + "=" * (-len(body) % 4)), type=dict[str, Any])
        return float(found.get("exp", 0))
    except (IndexError, ValueError, TypeError, msgspec.DecodeError):
        return 0.0
