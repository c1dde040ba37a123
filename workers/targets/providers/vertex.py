"""Targets of kind vertex: Gemini's models on Google Cloud's Vertex AI, with the credentials of google-auth."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal
from urllib.parse import quote

from pydantic import Field

from evalq.evalcore.errors import ConfigError
from evalq.workers.targets.http import BaseUrls, each_of, shown
from evalq.workers.targets.providers.gemini import GenerateContentClient, GenerateContentTarget
from evalq.workers.targets.target import Client

_SCOPES = ("https://www.googleapis.com/auth/cloud-platform",)
_EXTRA = "the kind vertex needs the package google-auth: pip install 'evalq[vertex]'"


class VertexTarget(GenerateContentTarget):
    """A Gemini model on Vertex AI, with the application's default credentials of this machine."""

    kind: Literal["vertex"]
    project: str = Field(pattern=r"^[a-z0-9:.-]+$", description="The project of Google Cloud")
    location: str = Field(default="global", pattern=r"^[a-z0-9-]+$", description="The region, or global")
    base_url: BaseUrls = Field(default="", description="The address before /v1/projects/...; by default the location's")
    api_version: str = Field(default="v1", pattern=r"^[a-z0-9]+$", description="The version in the address")

    def address(self) -> str:
        """The project, where it is, and the model."""
        return f"{shown(self.bases)} {self.model} in {self.project}, {self.location}"

    @property
    def bases(self) -> str | list[str]:
        """The address before /v1/projects/..."""
        host = "aiplatform.googleapis.com"
        return self.base_url or f"https://{'' if self.location == 'global' else f'{self.location}-'}{host}"

    def client(self, folder: Path, key: str | None, environment: Mapping[str, str]) -> Client:
        """How it is called."""
        name = self.model if "/" in self.model else f"publishers/google/models/{self.model}"
        path = f"{self.api_version}/projects/{self.project}/locations/{self.location}/{quote(name)}"
        bases = [f"{url.rstrip('/')}/{path}" for url in each_of(self.bases)]
        return GenerateContentClient(self, folder, bases, None, _Bearer(key))


class _Bearer:
    """Gives a token, and gets a new one before the old one ends."""

    def __init__(self, key: str | None) -> None:
        self._key = key
        self._credentials: Any = None
        self._lock = asyncio.Lock()
        if key is None:
            try:
                import google.auth  # noqa: F401 - to say now that it is missing
            except ImportError:
                raise ConfigError(_EXTRA) from None

    async def __call__(self, url: str, content: bytes) -> Mapping[str, str]:
        if self._key is not None:
            return {"authorization": f"Bearer {self._key}"}
        if self._credentials is None or not self._credentials.valid:
            async with self._lock:
                if self._credentials is None or not self._credentials.valid:
                    await asyncio.to_thread(self._refresh)
        return {"authorization": f"Bearer {self._credentials.token}"}

    def _refresh(self) -> None:
        import google.auth
        from google.auth.exceptions import GoogleAuthError

        try:
            if self._credentials is None:
                self._credentials = google.auth.default(scopes=_SCOPES)[0]
            self._credentials.refresh(_Transport())
        except GoogleAuthError as error:
            raise ConfigError(f"no token of Google Cloud: {error}") from None


class _Transport:
    """How google-auth makes its requests: over httpx, which evalq has."""

    def __call__(
        self,
        url: str,
        method: str = "GET",
        body: Any = None,
        headers: Mapping[str, str] | None = None,
        timeout: float | None = None,
        **more: Any,
    ) -> Any:
        import httpx
        from google.auth.exceptions import TransportError

        try:
            reply = httpx.request(method, url, content=body, headers=headers, timeout=timeout or 60)
        except httpx.HTTPError as error:
            raise TransportError(str(error)) from error
        return _TransportReply(reply.status_code, reply.headers, reply.content)


class _TransportReply:
    """A reply, in google-auth's form."""

    def __init__(self, status: int, headers: Mapping[str, str], data: bytes) -> None:
        self.status = status
        self.headers = headers
        self.data = data
