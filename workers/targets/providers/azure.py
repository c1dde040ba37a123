"""Targets of kind azure: chat completions of a deployment, as Azure OpenAI serves them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Literal
from urllib.parse import quote

from pydantic import Field

from evalq.workers.targets.http import BaseUrls, each_of
from evalq.workers.targets.providers.openai import ChatClient, ChatTarget
from evalq.workers.targets.target import Client


class AzureTarget(ChatTarget):
    """A deployment of Azure OpenAI, asked by chat completions; the key goes into the header api-key."""

    kind: Literal["azure"]
    base_url: BaseUrls = Field(description="The resource's address, such as https://NAME.openai.azure.com")
    model: str = Field(min_length=1, description="The deployment's name")
    api_version: str = Field(min_length=1, description="The version of the API, such as 2024-10-21")

    def client(self, folder: Path, key: str | None, environment: Mapping[str, str]) -> Client:
        """How it is called."""
        path = f"openai/deployments/{quote(self.model, safe='')}/chat/completions"
        query = f"api-version={quote(self.api_version, safe='')}"
        urls = [f"{url.rstrip('/').removesuffix('/openai')}/{path}?{query}" for url in each_of(self.base_url)]
        return ChatClient(self, folder, urls, key, key_header="api-key")
