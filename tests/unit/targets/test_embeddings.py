"""Targets of kind embeddings: what goes out, the vector that comes back, and every reply that is none."""

from __future__ import annotations

import asyncio
import base64
import json
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from evalq.evalcore.errors import ConfigError
from evalq.evalcore.model.calls import pack_vector
from evalq.workers.targets import Answered, Call, Caller, Failure, load_targets
from tests.agents.server import Agent, letters, running_agent


@pytest.fixture(scope="module")
def service() -> Iterator[tuple[Agent, str]]:
    """A server that obeys."""
    with running_agent() as started:
        yield started


def ask(folder: Path, entry: dict[str, Any], text: str) -> Answered | Failure:
    """The result of one call."""
    (folder / "targets.yaml").write_text(json.dumps({"targets": {"t": {"kind": "embeddings", "model": "m", **entry}}}))
    named = load_targets(folder / "targets.yaml")["t"]

    async def call() -> Answered | Failure:
        async with Caller(named, {"KEY": "sk-secret"}) as caller:
            return await caller.call(Call(text))

    return asyncio.run(call())


def test_a_vector_is_asked_for_and_packed(service: tuple[Agent, str], tmp_path: Path) -> None:
    """Model, text, key and options go out; a byte a dimension and the tokens come back."""
    agent, url = service
    found = ask(tmp_path, {"base_url": url, "api_key_env": "KEY", "options": {"dimensions": 26}}, "hello world")
    assert isinstance(found, Answered)
    assert found.output == {"vector": base64.b64encode(pack_vector(letters("hello world"))).decode()}
    assert (found.prompt_tokens, found.completion_tokens) == (11, None)
    request = agent.requests[-1]
    assert request["path"].endswith("/embeddings")
    assert request["body"] == {"model": "m", "encoding_format": "float", "dimensions": 26, "input": "hello world"}
    assert request["headers"]["authorization"] == "Bearer sk-secret"


def test_base64_of_floats_is_the_same_vector(service: tuple[Agent, str], tmp_path: Path) -> None:
    """As servers send it when options ask for it."""
    body = {"data": [{"embedding": base64.b64encode(struct.pack("<3f", 0.5, -1.0, 0.25)).decode()}]}
    order = json.dumps({"do": "raw", "body": json.dumps(body)})
    found = ask(tmp_path, {"base_url": service[1]}, order)
    assert isinstance(found, Answered)
    assert base64.b64decode(found.output["vector"]) == pack_vector([0.5, -1.0, 0.25])


@pytest.mark.parametrize(
    ("told", "reason"),
    [
        ({"data": [{"embedding": []}]}, "0 numbers; a vector has"),
        ({"data": [{"embedding": [0, 0.0]}]}, "all of its numbers are 0"),
        ({"data": [{"embedding": [1, "2"]}]}, "not a finite number"),
        ({"data": [{"embedding": [True, 2]}]}, "not a finite number"),
        ({"data": [{"embedding": {"a": 1}}]}, "dict where a list"),
        ({"data": [{"embedding": "not base64!"}]}, "not an embedding"),
        ({"data": [{"embedding": [1.0] * 16_385}]}, "16385 numbers"),
    ],
)
def test_what_is_no_vector_is_bad_output(
    service: tuple[Agent, str], tmp_path: Path, told: dict[str, Any], reason: str
) -> None:
    """With a reason, and never a vector of something else."""
    found = ask(tmp_path, {"base_url": service[1]}, json.dumps({"do": "raw", "body": json.dumps(told)}))
    assert isinstance(found, Failure)
    assert found.kind == "bad_output"
    assert reason in found.reason


@pytest.mark.parametrize("body", [{"data": []}, {"choices": [{"message": {"content": "hi"}}]}, {}, [], None])
def test_what_is_no_reply_of_embeddings_is_the_servers_failure(
    service: tuple[Agent, str], tmp_path: Path, body: Any
) -> None:
    """It is tried again: no model gave it."""
    found = ask(tmp_path, {"base_url": service[1]}, json.dumps({"do": "raw", "body": json.dumps(body)}))
    assert isinstance(found, Failure)
    assert found.kind == "server"
    assert "not an embedding: the reply" in found.reason


def test_model_and_dimensions_can_be_chosen(tmp_path: Path) -> None:
    """As of every kind: what is listed as variable; never the address or the text."""
    entry = {"kind": "embeddings", "base_url": "http://127.0.0.1:1/v1", "model": "m", "options": {"user": "u"}}
    path = tmp_path / "targets.yaml"
    path.write_text(json.dumps({"targets": {"t": {**entry, "variable": {"model": ["n"], "dimensions": [256]}}}}))
    target = load_targets(path)["t"].target
    assert target.with_values({"model": "n", "dimensions": 256}) == {
        "model": "n",
        "options": {"user": "u", "dimensions": 256},
    }
    assert [target.value_of(name) for name in ("model", "user", "dimensions")] == ["m", "u", None]
    for name in ("base_url", "input"):
        path.write_text(json.dumps({"targets": {"t": {**entry, "variable": {name: ["x"]}}}}))
        with pytest.raises(ConfigError, match="callers cannot override"):
            load_targets(path)
