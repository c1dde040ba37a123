"""The target sessions of one process, each opened at its first call.

A session has its target's connections and takes part in the fleet's pace.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Collection, Mapping
from types import TracebackType

import msgspec
import redis

from evalq.evalcore.errors import ConfigError, EvalqError
from evalq.workers.callers.outcomes import Breaker
from evalq.workers.fair_shares import Weights
from evalq.workers.ledger.heartbeats import TargetFacts
from evalq.workers.ratelimit import PoolLimits, RateLimiter
from evalq.workers.targets import Caller, NamedTarget
from evalq.workers.targets.config import choose
from evalq.workers.targets.target import (
    config_digest,
    core_digest,
    files_seen,
    given_digests,
    listed_digests,
    shown_settings,
)

# Try again, since somebody may have added the missing key or file.
_AGAIN_SECONDS = 10.0
_REASON_CHARACTERS = 300


class TargetSession(msgspec.Struct, frozen=True):
    """A target ready to be called, or the reason why not (``fault``: its key or a file is missing here)."""

    named: NamedTarget
    config: str
    caller: Caller | None = None
    pacer: RateLimiter | None = None
    fault: str = ""
    breaker: Breaker = msgspec.field(default_factory=Breaker)
    user: TargetSession | None = None
    """Of the target that simulates its users, if there is one."""

    @property
    def trouble(self) -> str:
        """Why the target is not called now; empty while it is."""
        open_since = f"{self.breaker.reason} (for {self.breaker.seconds:.0f} s)" if self.breaker.is_open else ""
        of_user = f"its user {self.user.named.name}: {self.user.trouble}" if self.user and self.user.trouble else ""
        return self.fault or open_since or of_user

    def room(self, wanted: int) -> int:
        """How many of ``wanted`` calls may be made now."""
        room = 0 if self.fault else self.breaker.room(wanted)
        return self.user.room(room) if self.user is not None else room


class TargetSessions:
    """The sessions of a process by target; ``async with`` closes them at the end."""

    def __init__(self, targets: Mapping[str, NamedTarget], client: redis.Redis, weights: Weights = ()) -> None:
        self._targets = dict(targets)
        self._client = client
        self._weights = weights
        self._open: dict[str, TargetSession] = {}
        self._tried: dict[str, float] = {}
        self._opening: dict[str, asyncio.Task[TargetSession]] = {}
        self._stack = contextlib.AsyncExitStack()
        self._chosen: dict[str, contextlib.AsyncExitStack] = {}
        self._known: dict[str, tuple[object, TargetFacts]] = {}

    def __contains__(self, name: str) -> bool:
        """Whether it is a target of the file, with valid choices."""
        if name not in self._targets:
            with contextlib.suppress(EvalqError):
                found = choose(self._targets, name)
                if found is not None and found.name == name:  # outputs hold this one form of the name
                    self._targets[name] = found
        return name in self._targets

    async def __aenter__(self) -> TargetSessions:
        await self._stack.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None:
        for task in self._opening.values():
            task.cancel()
        await asyncio.gather(*self._opening.values(), return_exceptions=True)
        await asyncio.gather(*(stack.aclose() for stack in self._chosen.values()), return_exceptions=True)
        await self._stack.__aexit__(kind, error, at)

    async def keep(self, wanted: Collection[str]) -> None:
        """Close targets with choices that no sweep needs now: there may be any number of them."""
        # Not one that is being opened: its connections would never be closed.
        for name in self._chosen.keys() - set(wanted) - self._opening.keys():
            self._open.pop(name, None)
            self._targets.pop(name, None)
            await self._chosen.pop(name).aclose()

    async def open(self, name: str) -> TargetSession:
        """The session of a target, opened once; one with a fault is opened again after a while."""
        if self._is_due(name):
            self._open[name] = await self._session(self._targets[name])
            self._tried[name] = time.monotonic()
        return self._open[name]

    def ready(self, name: str) -> TargetSession | None:
        """The session without waiting: None until it is open, which may take the imports of a user's module."""
        task = self._opening.get(name)
        if task is not None and task.done():
            del self._opening[name]
            # Raises the error of opening it: nobody else waits for this task.
            task.result()
        elif task is None and self._is_due(name):
            self._opening[name] = asyncio.create_task(self.open(name), name="evalq-open")
        return self._open.get(name)

    def _is_due(self, name: str) -> bool:
        known = self._open.get(name)
        return known is None or (bool(known.fault) and time.monotonic() - self._tried[name] > _AGAIN_SECONDS)

    async def _session(self, named: NamedTarget) -> TargetSession:
        config = config_digest(named)
        user = await self.open(named.user.name) if named.user is not None else None
        if user is not None and user.fault:
            return TargetSession(named, config, fault=f"its user {user.named.name}: {user.fault}", user=user)
        stack = self._stack if named.of is None else self._chosen.setdefault(named.name, contextlib.AsyncExitStack())
        try:
            caller = await stack.enter_async_context(Caller(named))
        except ConfigError as error:
            return TargetSession(named, config, fault=str(error))
        except OSError as error:
            return TargetSession(
                named, config, fault=f"target {named.name}: cannot be opened: {error.strerror or error}"
            )
        # After the caller: a target that cannot be called here must not take part in the fleet's pace.
        pacer = await stack.enter_async_context(
            RateLimiter(self._client, named.pool, limits_of(named), weights=self._weights)
        )
        return TargetSession(named, config, caller, pacer, user=user)

    async def facts(self) -> dict[str, TargetFacts]:
        """What producers may know of each target."""
        targets = [named for named in self._targets.values() if named.of is None]
        # In a thread: checking thousands of prompt files would delay the calls in flight and add to their latency.
        known = await asyncio.to_thread(lambda: {named.name: self._fresh(named) for named in targets})
        for name, session in self._open.items():
            # An open session keeps the prompts that it has read, whatever happens to their files.
            facts, trouble = known[session.named.pool], session.trouble[:_REASON_CHARACTERS]
            known[name] = msgspec.structs.replace(facts, config=session.config, trouble=trouble)
        return known

    def _fresh(self, named: NamedTarget) -> TargetFacts:
        """The facts of a target with its files as they are now: they may have changed since this process began."""
        seen = files_seen(named)
        if named.name not in self._known or self._known[named.name][0] != seen:
            self._known[named.name] = seen, target_facts(named)
        return self._known[named.name][1]


def limits_of(named: NamedTarget) -> PoolLimits:
    """The limits of the fleet's pool for the target."""
    target = named.target
    return PoolLimits(
        target.requests_per_minute, target.tokens_per_minute, target.max_concurrency, target.tokens_per_call
    )


def target_facts(named: NamedTarget) -> TargetFacts:
    """What producers may know of a target."""
    target = named.target
    return TargetFacts(
        config=config_digest(named),
        price=target.price.model_dump(exclude_none=True) if target.price else None,
        requests_per_minute=target.requests_per_minute,
        tokens_per_minute=target.tokens_per_minute,
        max_concurrency=target.max_concurrency,
        tokens_per_call=target.tokens_per_call,
        timeout_seconds=target.timeout_seconds,
        core=core_digest(named),
        given=given_digests(named),
        listed=listed_digests(named),
        settings=shown_settings(named),
        ranges={name: bounds for name, choices in target.choices.items() if (bounds := choices.bounds)},
        user=named.user.name if named.user is not None else "",
        user_config=config_digest(named.user) if named.user is not None else "",
        unpriced_user=named.user is not None and named.user.target.price is None,
    )
