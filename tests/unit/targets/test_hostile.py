"""What servers send to take a caller's memory or time: each is one failed call, and the other calls go on meanwhile."""

from __future__ import annotations

import asyncio
import json
import resource
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from evalq.evalcore.records.json_values import NoJson, extract
from evalq.workers.targets import Answered, Call, Caller, Failure, load_targets
from tests.agents.server import running_agent
from tests.unit.targets.standstill import standstill


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    """A server that obeys."""
    with running_agent() as (_, started):
        yield started


def _ask(folder: Path, url: str, order: dict[str, Any], **more: Any) -> tuple[Answered | Failure, float]:
    """One call's result, and how long the loop stood still in the longest."""
    entry = {"kind": "openai", "base_url": url, "model": "m", "timeout_seconds": 60, **more}
    (folder / "targets.yaml").write_text(json.dumps({"targets": {"t": entry}}))
    named = load_targets(folder / "targets.yaml")["t"]

    async def once() -> tuple[Answered | Failure, float]:
        async with Caller(named, {}) as caller, standstill() as longest:
            result = await caller.call(Call(json.dumps(order)))
            return result, longest()

    return asyncio.run(once())


@pytest.mark.parametrize(
    ("how", "kind", "said"),
    [
        ("gzip bomb", "bad_output", "longer than max_bytes"),
        ("gzip, gzip", "bad_output", "Content-Encoding is 'gzip, gzip'"),
        ("zstd", "bad_output", "Content-Encoding is 'zstd'"),
        ("br", "bad_output", "Content-Encoding is 'br'"),
        ("no gzip", "bad_output", "not the gzip"),
        ("cut gzip", "bad_output", "gzip is cut off"),
        ("two gzips", "bad_output", "behind the end of its gzip"),
        ("deep", "bad_output", "nests deeper than 200 levels"),
        ("fences", "bad_output", "not JSON"),
        ("spaces", "bad_output", "not JSON"),
        ("headers", "server", "not HTTP as it is read here, see the URL: Receive buffer too long"),
        ("ssh", "server", "see the URL: illegal status line: bytearray(b'SSH-2.0-OpenSSH_9.6')"),
        ("pieces", "bad_output", "pieces"),
        ("drip", "timeout", "no answer within 3 s"),
    ],
)
def test_a_hostile_reply_is_one_failed_call(tmp_path: Path, url: str, how: str, kind: str, said: str) -> None:
    """By its kind and with its reason; it takes megabytes, not gigabytes, and stops no other call."""
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    seconds = 3 if how == "drip" else 60
    result, longest = _ask(tmp_path, url, {"do": "hostile", "how": how}, timeout_seconds=seconds)
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    assert isinstance(result, Failure)
    assert (result.kind, said in result.reason) == (kind, True), result.reason
    assert grown < 150 << 10, f"{grown >> 10} MB"
    assert longest < 1.0


def test_one_layer_of_gzip_is_read(tmp_path: Path, url: str) -> None:
    """A server behind a proxy that packs whatever it is asked is no fault."""
    result, _ = _ask(tmp_path, url, {"do": "hostile", "how": "gzip"})
    assert isinstance(result, Answered), result
    assert result.output == {"a": 1}


@pytest.mark.parametrize("told", [(1 << 32) - 1, 1 << 70, -1, 1.5, True, "9", [1]])
def test_a_claim_of_tokens_that_no_reply_has_is_ignored_and_noted(tmp_path: Path, url: str, told: Any) -> None:
    """Neither cost nor pace goes by it; the other count stays."""
    usage = {"prompt_tokens": 7, "completion_tokens": told}
    body = {"choices": [{"message": {"content": "{}"}}], "usage": usage}
    result, _ = _ask(tmp_path, url, {"do": "raw", "body": json.dumps(body)})
    assert isinstance(result, Answered)
    assert (result.prompt_tokens, result.completion_tokens) == (7, None)
    assert result.note.startswith("completion_tokens of the reply ignored: ")


def test_fences_in_texts_with_windows_line_ends() -> None:
    """A carriage return before the line's end belongs to no fence."""
    assert extract('Here:\r\n```json\r\n{"a": 1}\r\n```\r\nDone.') == {"a": 1}
    with pytest.raises(NoJson, match="2 fenced"):
        extract("```\r\n1\r\n```\r\n```\r\n2\r\n```")
