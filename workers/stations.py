"""The targets of one process, each opened when it is first called: its connections and its part in the fleet's pace."""

from __future__ import annotations

import contextlib
import glob
import hashlib
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import TracebackType

import msgspec
import redis

from evalcore.canonical import canonical_json
from evalcore.errors import ConfigError
from workers.pacing import Pacer
from workers.register import TargetFacts
from workers.targets import Caller, NamedTarget, limits_of

__all__ = ["Station", "Stations", "config_digest", "target_facts"]


_NO_PART_OF_ANSWERS = (
    *("headers", "api_key_header", "api_key_env", "price", "retries", "timeout_seconds", "max_bytes", "max_megabytes"),
    *("max_concurrency", "requests_per_minute", "tokens_per_minute", "tokens_per_call"),
)


class Station(msgspec.Struct, frozen=True):
    """A target ready to be called, or why it cannot be (``fault``: its key or a file is missing here)."""

    named: NamedTarget
    config: str
    caller: Caller | None = None
    pacer: Pacer | None = None
    fault: str = ""


class Stations:
    """Used inside ``async with``, which closes what was opened."""

    def __init__(self, targets: Mapping[str, NamedTarget], client: redis.Redis) -> None:
        self._targets = targets
        self._client = client
        self._open: dict[str, Station] = {}
        self._stack = contextlib.AsyncExitStack()
        self._facts = {name: target_facts(named) for name, named in targets.items()}

    def __contains__(self, name: object) -> bool:
        return name in self._targets

    async def __aenter__(self) -> Stations:
        await self._stack.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None:
        await self._stack.__aexit__(kind, error, at)

    async def open(self, name: str) -> Station:
        """The target of that name, opened once."""
        if name not in self._open:
            self._open[name] = await self._opened(self._targets[name])
        return self._open[name]

    async def _opened(self, named: NamedTarget) -> Station:
        config = config_digest(named)
        try:
            caller = await self._stack.enter_async_context(Caller(named))
        except ConfigError as error:
            return Station(named, config, fault=str(error))
        pacer = await self._stack.enter_async_context(Pacer(self._client, named.name, limits_of(named)))
        return Station(named, config, caller, pacer)

    def facts(self) -> dict[str, TargetFacts]:
        """What producers may know of each target."""
        return self._facts


def target_facts(named: NamedTarget) -> TargetFacts:
    """What producers may know of a target."""
    target = named.target
    return TargetFacts(
        config=config_digest(named),
        price=target.price.model_dump() if target.price else None,
        requests_per_minute=target.requests_per_minute,
        tokens_per_minute=target.tokens_per_minute,
        max_concurrency=target.max_concurrency,
        tokens_per_call=target.tokens_per_call,
        timeout_seconds=target.timeout_seconds,
    )


def config_digest(named: NamedTarget) -> str:
    """What the answers depend on: the target's settings without keys and limits, and the files that it names."""
    settings = named.target.model_dump(mode="json")
    for name in _NO_PART_OF_ANSWERS:
        settings.pop(name, None)
    whole = hashlib.sha256(canonical_json(settings))
    for key in ("system_prompt", "json_schema"):
        pattern = settings.get(key)
        for path in sorted(_files(named.folder, pattern)) if pattern else ():
            if path.resolve().is_relative_to(named.folder) and path.is_file():
                whole.update(path.name.encode() + b"\0" + hashlib.sha256(path.read_bytes()).digest())
    return whole.hexdigest()[:16]


def _files(folder: Path, pattern: str) -> Iterator[Path]:
    """The files that a path of the targets file may stand for, whichever agent is called."""
    below = os.path.relpath(folder / pattern, folder)
    return folder.glob("*".join(glob.escape(part) for part in below.split("{agent}")))
