"""Living pool workers, calling processes, and processes that follow traces. Each one's heartbeat expires."""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Collection, Mapping
from typing import Any

import msgspec
import redis

from evalq.evalcore.version import code_parts, code_version
from evalq.workers.ledger.keys import SHARED, decode_names, is_wrong_type
from evalq.workers.settings import TIMINGS

_UNHEALTHY = "sick "
_REASON_CHARACTERS = 300
_FOLLOWER_SECONDS = 7 * 86_400  # one that is away stays visible, so that an alert can say so
_CODE_SECONDS = 7 * 86_400  # longer than workers live: status commands also ask about runs that wait for workers


class TargetFacts(msgspec.Struct, frozen=True):
    """What producers may know of a target: limits, price and digests of its settings; no address, key or prompt.
    ``settings`` has values of those that are no secret, and digests of the others (`shown_settings`).

    Callers can choose ``listed`` values (by parameter and name, each with a digest) and numbers in ``ranges``.
    ``given`` has the digests of these parameters' own values, ``core`` the digest of all other settings.
    """

    config: str
    price: dict[str, float] | None = None
    requests_per_minute: float = 0.0
    tokens_per_minute: float = 0.0
    max_concurrency: int = 0
    tokens_per_call: int = 0
    timeout_seconds: float = 0.0
    core: str = ""
    given: dict[str, str] = {}
    listed: dict[str, dict[str, str]] = {}
    ranges: dict[str, tuple[float, float]] = {}
    settings: dict[str, str] = {}
    trouble: str = ""
    """Why this process does not call it now: its key or a file is missing here, or it does not answer."""
    user: str = ""
    """The target that simulates its users; empty without one."""
    user_config: str = ""
    unpriced_user: bool = False

    def lacks(self, target: str, where: str, *, priced: bool, user: bool) -> str:
        """Why ``target`` cannot be called as a sweep wants it, by the targets file at ``where``; empty if it can.

        ``priced``: a budget needs its price. ``user``: cases have simulated users.
        """
        if priced and self.price is None:
            return f"--max-cost: target {target!r} has no price in {where}"
        if user and not self.user:
            return f"cases have a simulated user, and target {target!r} names none: add `user: TARGET` to it in {where}"
        if priced and user and self.unpriced_user:
            return f"--max-cost: target {self.user!r}, the user of {target!r}, has no price in {where}"
        return ""


class CallerFacts(msgspec.Struct, frozen=True):
    """The heartbeat of a calling process; ``busy`` of at most ``calls`` calls are in flight.

    ``oldest``: {run: (case, seconds)} of each run's oldest call in flight.
    """

    host: str
    pid: int
    code: str
    calls: int
    busy: int
    targets: dict[str, TargetFacts]
    oldest: dict[str, tuple[str, float]] = {}


class FollowerFacts(msgspec.Struct, frozen=True):
    """What a process that follows traces wrote after its last pass, ``at`` by the server's clock.

    The next pass is due after ``every`` seconds; 0 if none is. ``counts`` are its counters since it began: traces,
    left_out, late, unread, removed, passed, failed, errors, tool_calls, tool_errors, tokens, cost. ``lag`` is the
    seconds from the end of the newest trace to its result, ``waiting`` the traces that are not whole.
    """

    host: str
    evaluator: str
    suite: str
    every: float
    waiting: int
    counts: dict[str, float]
    lag: float | None = None
    at: float = 0.0


class Heartbeats:
    """Heartbeats in Redis or Valkey, over one client (which returns bytes)."""

    def __init__(self, client: redis.Redis) -> None:
        self._client: Any = client

    def beat(self, worker: str, facts: Mapping[str, str | int], seconds: float) -> None:
        """Record that a worker is alive, for ``seconds``."""
        # Facts and expiry together: a hash without an expiry would be a worker that lives for ever.
        pipe = self._client.pipeline(transaction=True)
        pipe.hset(SHARED.worker + worker, mapping=dict(facts))
        pipe.pexpire(SHARED.worker + worker, int(seconds * 1000))
        pipe.sadd(SHARED.workers, worker)
        self._record_code_parts(pipe)
        pipe.execute()

    def mark_unhealthy(self, worker: str, evaluator: str, reason: str) -> None:
        """Record that a worker cannot load an evaluator, and why."""
        # Set an expiry, too: if the heartbeat has expired, this creates the key anew.
        pipe = self._client.pipeline(transaction=True)
        pipe.hset(SHARED.worker + worker, _UNHEALTHY + evaluator, reason[:_REASON_CHARACTERS])
        pipe.pexpire(SHARED.worker + worker, int(TIMINGS.life * 1000))
        pipe.execute()

    def mark_healthy(self, worker: str, evaluator: str) -> None:
        """Record that a worker can load an evaluator after all."""
        self._client.hdel(SHARED.worker + worker, _UNHEALTHY + evaluator)

    def is_unhealthy(self, worker: str, evaluator: str) -> bool:
        """Whether a worker is recorded as unable to load an evaluator."""
        return bool(self._client.hexists(SHARED.worker + worker, _UNHEALTHY + evaluator))

    def parts(self, codes: Collection[str]) -> dict[str, dict[str, str]]:
        """The parts of these code versions (see `code_parts`), as far as a worker or caller recorded them lately."""
        pipe = self._client.pipeline(transaction=False)
        for code in codes:
            pipe.get(SHARED.code + code)
        texts = zip(codes, pipe.execute(), strict=True)
        return {code: msgspec.json.decode(text, type=dict[str, str]) for code, text in texts if text}

    @staticmethod
    def _record_code_parts(pipe: Any) -> None:
        """Record the parts of this code version, so that a process of another version can show the difference."""
        pipe.set(SHARED.code + code_version(), msgspec.json.encode(code_parts()), px=_CODE_SECONDS * 1000)

    def beat_caller(self, name: str, facts: CallerFacts, seconds: float) -> None:
        """Record that a calling process is alive, for ``seconds``."""
        pipe = self._client.pipeline(transaction=True)
        pipe.set(SHARED.caller + name, msgspec.json.encode(facts), px=int(seconds * 1000))
        pipe.sadd(SHARED.callers, name)
        self._record_code_parts(pipe)
        pipe.execute()

    def beat_follower(self, name: str, facts: FollowerFacts) -> None:
        """Record a pass of a process that follows traces."""
        seconds, micros = self._client.time()
        facts = msgspec.structs.replace(facts, at=seconds + micros / 1_000_000)
        pipe = self._client.pipeline(transaction=True)
        # A hash: producers have no right to SET.
        pipe.hset(SHARED.follower + name, "facts", msgspec.json.encode(facts))
        pipe.pexpire(SHARED.follower + name, _FOLLOWER_SECONDS * 1000)
        pipe.sadd(SHARED.followers, name)
        pipe.execute()

    def followers(self) -> dict[str, FollowerFacts]:
        """Processes that follow traces, or did lately, by name."""
        names = decode_names(self._client.smembers(SHARED.followers))
        pipe = self._client.pipeline(transaction=False)
        for name in names:
            pipe.hget(SHARED.follower + name, "facts")
        found = _replies(names, pipe)
        self._forget(SHARED.followers, [name for name, data in found.items() if data is None])
        followers = {}
        for name, data in found.items():
            with contextlib.suppress(msgspec.DecodeError, TypeError):
                followers[name] = msgspec.json.decode(data, type=FollowerFacts)
        return followers

    def forget_follower(self, name: str) -> None:
        """Drop a follower, so that no page shows it and no alert waits for it."""
        pipe = self._client.pipeline(transaction=True)
        pipe.delete(SHARED.follower + name)
        pipe.srem(SHARED.followers, name)
        pipe.execute()

    def leave(self, name: str) -> None:
        """Remove a worker or a calling process from the list at once."""
        self._client.delete(SHARED.worker + name, SHARED.caller + name)

    def workers(self) -> dict[str, dict[str, str]]:
        """Living workers and their facts (host, pid, code, concurrency, ...)."""
        names = decode_names(self._client.smembers(SHARED.workers))
        pipe = self._client.pipeline(transaction=False)
        for name in names:
            pipe.hgetall(SHARED.worker + name)
        workers = _replies(names, pipe)
        self._forget(SHARED.workers, [name for name, facts in workers.items() if not facts])
        return {
            name: {key.decode(errors="replace"): value.decode(errors="replace") for key, value in facts.items()}
            for name, facts in workers.items()
            if facts
        }

    def codes(self) -> Counter[str]:
        """The number of living workers of each code version."""
        return Counter(facts.get("code", "") for facts in self.workers().values())

    def serving(self, code: str, evaluator: str) -> tuple[int, dict[str, int], bool]:
        """(living workers of a code version, {other code version: workers}, whether none has the evaluator)."""
        codes = self.codes()
        workers = codes.pop(code, 0)
        return workers, dict(codes), not workers and self.is_missing(evaluator)

    def is_missing(self, evaluator: str) -> bool:
        """Whether workers are alive, and none of them has an evaluator of that name."""
        installed = [evaluators_of(facts) for facts in self.workers().values()]
        # A worker that lists no evaluators may have any of them.
        return bool(installed) and all(names and evaluator not in names for names in installed)

    def living(self, code: str) -> dict[str, dict[str, str]]:
        """The living workers of a code version, and their facts."""
        return {name: facts for name, facts in self.workers().items() if facts.get("code") == code}

    def callers(self) -> dict[str, CallerFacts]:
        """Living calling processes, by name."""
        names = decode_names(self._client.smembers(SHARED.callers))
        pipe = self._client.pipeline(transaction=False)
        for name in names:
            pipe.get(SHARED.caller + name)
        heartbeats = _replies(names, pipe)
        self._forget(SHARED.callers, [name for name, data in heartbeats.items() if data is None])
        callers = {name: _parse_caller(data) for name, data in heartbeats.items() if data is not None}
        return {name: facts for name, facts in callers.items() if facts is not None}

    def _forget(self, fleet: str, silent: list[str]) -> None:
        # A worker whose heartbeat comes between the two reads is off the list until its next heartbeat.
        if silent:
            self._client.srem(fleet, *silent)


def _replies(names: list[str], pipe: Any) -> dict[str, Any]:
    """The reply for each of ``names``, without keys of a wrong type: they must not hide the rest of the fleet."""
    replies = {}
    for name, reply in zip(names, pipe.execute(raise_on_error=False), strict=True):
        if not isinstance(reply, redis.RedisError):
            replies[name] = reply
        elif not is_wrong_type(reply):
            raise reply
    return replies


def _parse_caller(data: bytes) -> CallerFacts | None:
    try:
        return msgspec.json.decode(data, type=CallerFacts)
    except msgspec.DecodeError:
        # One bad entry, or one of another version, must not hide the rest of the fleet.
        return None


def evaluators_of(facts: Mapping[str, str]) -> dict[str, str]:
    """{evaluator: package and version} of a worker's facts; empty if it lists none."""
    with contextlib.suppress(msgspec.DecodeError):
        return msgspec.json.decode(facts.get("evaluators", "{}"), type=dict[str, str])
    return {}


def unhealthy_of(facts: Mapping[str, str]) -> dict[str, str]:
    """{evaluator: why it cannot be loaded} of a worker's facts."""
    return {name.removeprefix(_UNHEALTHY): reason for name, reason in facts.items() if name.startswith(_UNHEALTHY)}
