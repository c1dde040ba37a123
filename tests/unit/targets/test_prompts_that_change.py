"""Prompt files that are edited while a process calls: what is sent has the digest that it is recorded under."""

from __future__ import annotations

import asyncio
import json
import threading
from pathlib import Path

import pytest
import redis

from evalq.evalcore.errors import ConfigError
from evalq.workers.callers import target_sessions
from evalq.workers.callers.target_sessions import TargetSession, TargetSessions
from evalq.workers.ledger.heartbeats import TargetFacts
from evalq.workers.targets import Answered, Call, Caller, Failure, load_targets
from evalq.workers.targets.target import NamedTarget, config_digest
from tests.agents.server import running_agent


def _named(folder: Path, url: str = "http://h/v1") -> NamedTarget:
    """A target whose agent a has a prompt, and which may be asked with another one."""
    (folder / "a.md").write_text("one")
    (folder / "other.md").write_text("one")
    entry = {"kind": "openai", "base_url": url, "model": "m", "system_prompt": "{agent}.md"}
    variable = {"system_prompt": {"other": "other.md"}}
    path = folder / "targets.yaml"
    path.write_text(json.dumps({"targets": {"t": {**entry, "variable": variable}}}))
    return load_targets(path)["t"]


def _facts(sessions: TargetSessions) -> dict[str, TargetFacts]:
    return asyncio.run(sessions.facts())


def test_an_agent_that_is_first_called_later_has_the_prompt_of_then(tmp_path: Path) -> None:
    """All prompts are read before the first call; one that comes later is read when it is called for."""
    with running_agent() as (_, url):
        named = _named(tmp_path, url)

        async def sent() -> list[object]:
            async with Caller(named, {}) as caller:
                (tmp_path / "a.md").write_text("two")
                (tmp_path / "b.md").write_text("new")
                results = [await caller.call(Call("x", agent)) for agent in ("a", "b")]
                return [result.output["system"] for result in results if isinstance(result, Answered)]

        assert asyncio.run(sent()) == ["one", "new"]


def test_producers_are_given_the_digest_of_what_would_be_sent(tmp_path: Path) -> None:
    """Of what is there now while nobody has opened the target, else of what its prompts were then."""
    named = _named(tmp_path)
    sessions, before = TargetSessions({"t": named}, redis.Redis()), config_digest(named)
    assert _facts(sessions)["t"].config == before
    (tmp_path / "a.md").write_text("three")
    now = config_digest(named)
    assert _facts(sessions)["t"].config == now != before
    listed = _facts(sessions)["t"].listed
    (tmp_path / "other.md").write_text("three")
    assert _facts(sessions)["t"].listed != listed
    sessions._open["t"] = TargetSession(named, now)
    (tmp_path / "a.md").write_text("fourth")
    assert _facts(sessions)["t"].config == now != config_digest(named)


def test_a_prompt_that_cannot_be_read_ends_no_heartbeat(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever may not read it, or removes it in the very moment, keeps no process from telling of its targets."""
    named = _named(tmp_path)
    sessions, real = TargetSessions({"t": named}, redis.Redis()), Path.read_bytes
    before = _facts(sessions)["t"].config
    (tmp_path / "b.md").write_text("new")

    def refused(error: type[OSError]) -> str:
        def read(path: Path) -> bytes:
            if path.name == "b.md":
                raise error(path)
            return real(path)

        with monkeypatch.context() as patch:
            patch.setattr(Path, "read_bytes", read)
            (tmp_path / "b.md").chmod(0o600)  # changes no more than when its state was changed last
            return _facts(sessions)["t"].config

    assert refused(FileNotFoundError) == before
    unread = refused(PermissionError)
    (tmp_path / "b.md").chmod(0o644)
    assert len({before, unread, config_digest(named)}) == 3
    assert _facts(sessions)["t"].config == config_digest(named)


def test_a_link_that_leads_to_itself_ends_no_heartbeat(tmp_path: Path) -> None:
    """It is passed over like one that leads nowhere, and a call of its agent reports it."""
    named = _named(tmp_path)
    sessions, before = TargetSessions({"t": named}, redis.Redis()), config_digest(named)
    (tmp_path / "b.md").symlink_to("b.md")
    assert _facts(sessions)["t"].config == before

    async def called() -> Answered | Failure:
        async with Caller(named, {}) as caller:
            return await caller.call(Call("x", "b"))

    message = asyncio.run(called())
    assert isinstance(message, Failure)
    assert "b.md: cannot be read" in message.reason
    path, entry = tmp_path / "targets.yaml", {"kind": "openai", "base_url": "http://h/v1", "model": "m"}
    path.write_text(json.dumps({"targets": {"t": {**entry, "system_prompt": "b.md"}}}))
    with pytest.raises(ConfigError, match="system_prompt: no such file"):
        load_targets(path)


def test_calls_go_on_while_prompts_are_looked_at(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Thousands of files take a part of a second, at every heartbeat."""
    seen: list[threading.Thread] = []

    def looked(named: NamedTarget) -> tuple[object, ...]:
        seen.append(threading.current_thread())
        return ()

    monkeypatch.setattr(target_sessions, "files_seen", looked)
    assert _facts(TargetSessions({"t": _named(tmp_path)}, redis.Redis())).keys() == {"t"}
    assert threading.main_thread() not in seen
    assert len(seen) == 1
