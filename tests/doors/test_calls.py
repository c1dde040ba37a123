"""What somebody who can write to the ledger may do to processes that call, and what of a target can be read there."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
import zstandard

from evalq.evalcore.version import code_version
from tests.agents.server import Agent, running_agent, write_golden
from tests.integration.harness import Server, evalq, running_fleet, running_server, wait_until

SECRET = "sk-0123456789abcdef"  # noqa: S105 - nobody's
CASES: dict[str, dict[str, Any]] = {"A": {"share": 0.5}, "B": {"share": 1.0}}


@pytest.fixture
def service() -> Iterator[tuple[Agent, str]]:
    """A server that obeys."""
    with running_agent() as started:
        yield started


@pytest.fixture
def ready(tmp_path: Path, service: tuple[Agent, str]) -> Iterator[Server]:
    """A server with one process that calls and evaluates, whose target has a key."""
    write_golden(tmp_path / "golden.json", CASES)
    chat = {
        "kind": "openai",
        "base_url": service[1],
        "model": "m",
        "api_key_env": "MY_KEY",
        "headers": {"X-Own": SECRET},
    }
    (tmp_path / "targets.yaml").write_text(json.dumps({"targets": {"chat": chat}}))
    with running_server(tmp_path) as server, running_fleet(server.url, tmp_path, MY_KEY=SECRET) as fleet:
        fleet.add(1, "--calls", "5", "--targets", "targets.yaml")
        wait_until(lambda: server.client.scard("evalq:callers"), "a process calls")
        yield server


def _sweep(folder: Path, server: Server, out: str) -> None:
    args = ("vs", "golden.json", "--target", "chat", "--repeat", "5", "--out", out, "--format", "none")
    done = evalq(*args, cwd=folder, EVALQ_BROKER=server.url)
    assert done.returncode == 0, done.stderr
    assert len((folder / out / "outputs.jsonl").read_bytes().splitlines()) == 10


def _sweep_of(run: str, **more: Any) -> bytes:
    header = {"run": run, "target": "chat", "code": code_version(), "cases": 1, "repeats": 1}
    return msgspec.json.encode(header | more)


def test_forged_sweeps_do_not_end_a_process_that_calls(
    tmp_path: Path, ready: Server, service: tuple[Agent, str]
) -> None:
    """Broken headers, unknown sweeps, prompts that are none or unpack to gigabytes: the next sweep is as any other."""
    client = ready.client
    bomb = zstandard.ZstdCompressor().compress(b"0" * (256 << 20))
    prompts = {"garbage": b"\x00garbage", "bomb": bomb, "other": zstandard.ZstdCompressor().compress(b'{"case": 1}')}
    for header in (b"", b"{}", b"[]", b'{"run": 1}', b"\xff", _sweep_of("many", cases=0), _sweep_of("x", more=1)):
        client.hset("evalq:sweeps", f"forged-{header[:9]!r}", header)
    client.hset("evalq:sweeps", "unknown", _sweep_of("unknown"))
    for name, prompt in prompts.items():
        key = f"evalq:sweep:{{{name}}}"
        client.hset(f"{key}:meta", mapping={"sweep": "x", "state": "open", "cases": 1, "total": 1, "cursor": 0})
        client.hset(f"{key}:prompts", "0", prompt)
        client.hset("evalq:sweeps", name, _sweep_of(name))
    client.set("evalq:caller:forged", b'{"targets": []}')
    client.sadd("evalq:callers", "forged")
    states = [f"evalq:sweep:{{{name}}}:meta" for name in prompts]
    wait_until(lambda: all(client.hget(key, "state") == b"failed" for key in states), "all of them are closed")
    wait_until(lambda: not client.hexists("evalq:sweeps", "unknown"), "the unknown one is forgotten")
    before = client.smembers("evalq:callers")
    _sweep(tmp_path, ready, "run")
    assert client.smembers("evalq:callers") == before
    assert sum(service[0].calls.values()) == 10, "nothing forged was called"


def test_forged_outputs_end_the_run_and_not_with_a_traceback(tmp_path: Path, ready: Server) -> None:
    """What stands among recorded outputs and is none is said, exit 3."""
    ready.client.hset("evalq:sweeps", "y", b"{")
    args = ("vs", "golden.json", "--target", "chat", "--repeat", "5", "--out", "run", "--detach")
    run = evalq(*args, cwd=tmp_path, EVALQ_BROKER=ready.url).stdout.strip()
    outbox = f"evalq:sweep:{{{run}}}:outbox"
    wait_until(lambda: ready.client.llen(outbox) == 10, "all is called")
    ready.client.lpush(outbox, b"forged")
    done = evalq("watch", "run", cwd=tmp_path, EVALQ_BROKER=ready.url)
    assert done.returncode == 3
    assert "not what evalq writes" in done.stderr
    assert "Traceback" not in done.stderr


def test_no_secret_of_a_target_reaches_the_ledger_or_the_folder(
    tmp_path: Path, ready: Server, service: tuple[Agent, str]
) -> None:
    """Neither key nor header nor address."""
    ready.client.config_set("rdbcompression", "no")
    _sweep(tmp_path, ready, "run")
    dump = b""
    for key in ready.client.scan_iter("*"):
        dump += key + (ready.client.dump(key) or b"")
    for path in (tmp_path / "run").rglob("*"):
        dump += path.read_bytes() if path.is_file() else b""
    assert b"chat" in dump
    address = service[1].split("/")[2]  # the ledger's server, which run.json names, has the same host
    for secret in (SECRET, address):
        assert secret.encode() not in dump
