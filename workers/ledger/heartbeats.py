"""Who lives: pool workers and processes that call, each by a sign of life that expires."""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Collection, Mapping
from typing import Any

import msgspec
import redis

from evalq.evalcore.version import code_parts, code_version
from evalq.workers.ledger.keys import SHARED, of_one_key, texts
from evalq.workers.settings import TIMINGS

_SICK = "sick "
_REASON_CHARACTERS = 300
_CODE_SECONDS = 7 * 86_400  # longer than its workers: runs that wait for them may be asked about


class TargetFacts(msgspec.Struct, frozen=True):
    """What producers may know of a target: limits, price, and the digest of its settings; no address, key or prompt.

    What may be chosen of it: ``listed`` values by parameter and name, each with a digest, and ``ranges`` of numbers;
    ``given`` are the digests of what it takes else, ``core`` that of all the rest.
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
    trouble: str = ""
    """Why this process does not call it for now: its key or a file is missing here, or it does not answer."""


class CallerFacts(msgspec.Struct, frozen=True):
    """What a process that calls says of itself; ``busy`` of at most ``calls`` calls are in flight.

    ``oldest``, by run: the case of the call that was begun first of those in flight, and the seconds since.
    """

    host: str
    pid: int
    code: str
    calls: int
    busy: int
    targets: dict[str, TargetFacts]
    oldest: dict[str, tuple[str, float]] = {}


class Heartbeats:
    """Signs of life in Redis or Valkey, over one client (which returns bytes)."""

    def __init__(self, client: redis.Redis) -> None:
        self._client: Any = client

    def beat(self, worker: str, facts: Mapping[str, str | int], seconds: float) -> None:
        """Say that a worker lives, for ``seconds``."""
        # Facts and expiry together: a hash that lost its expiry would be a worker that lives for ever.
        pipe = self._client.pipeline(transaction=True)
        pipe.hset(SHARED.worker + worker, mapping=dict(facts))
        pipe.pexpire(SHARED.worker + worker, int(seconds * 1000))
        pipe.sadd(SHARED.workers, worker)
        self._tell_parts(pipe)
        pipe.execute()

    def mark_unhealthy(self, worker: str, evaluator: str, reason: str) -> None:
        """Say that a worker cannot load an evaluator, and why."""
        # It sets an expiry, too: where the heartbeat has ended, this creates the key anew.
        pipe = self._client.pipeline(transaction=True)
        pipe.hset(SHARED.worker + worker, _SICK + evaluator, reason[:_REASON_CHARACTERS])
        pipe.pexpire(SHARED.worker + worker, int(TIMINGS.life * 1000))
        pipe.execute()

    def mark_healthy(self, worker: str, evaluator: str) -> None:
        """Say that it can after all."""
        self._client.hdel(SHARED.worker + worker, _SICK + evaluator)

    def is_unhealthy(self, worker: str, evaluator: str) -> bool:
        """Whether it was said that a worker cannot load an evaluator."""
        return bool(self._client.hexists(SHARED.worker + worker, _SICK + evaluator))

    def parts(self, codes: Collection[str]) -> dict[str, dict[str, str]]:
        """What each of these code versions is made of (see `code_parts`), where a worker or caller said so lately."""
        pipe = self._client.pipeline(transaction=False)
        for code in codes:
            pipe.get(SHARED.code + code)
        found = zip(codes, pipe.execute(), strict=True)
        return {code: msgspec.json.decode(told, type=dict[str, str]) for code, told in found if told}

    @staticmethod
    def _tell_parts(pipe: Any) -> None:
        """Say what this code is made of: a process with other code can then say what differs."""
        pipe.set(SHARED.code + code_version(), msgspec.json.encode(code_parts()), px=_CODE_SECONDS * 1000)

    def beat_caller(self, name: str, facts: CallerFacts, seconds: float) -> None:
        """Say that a process that calls lives, for ``seconds``."""
        pipe = self._client.pipeline(transaction=True)
        pipe.set(SHARED.caller + name, msgspec.json.encode(facts), px=int(seconds * 1000))
        pipe.sadd(SHARED.callers, name)
        self._tell_parts(pipe)
        pipe.execute()

    def leave(self, name: str) -> None:
        """Take a worker or a process that calls off the list at once."""
        self._client.delete(SHARED.worker + name, SHARED.caller + name)

    def workers(self) -> dict[str, dict[str, str]]:
        """Living workers and their facts (host, pid, code, concurrency, ...)."""
        names = texts(self._client.smembers(SHARED.workers))
        pipe = self._client.pipeline(transaction=False)
        for name in names:
            pipe.hgetall(SHARED.worker + name)
        found = _answers(names, pipe)
        self._forget(SHARED.workers, [name for name, facts in found.items() if not facts])
        return {
            name: {key.decode(errors="replace"): value.decode(errors="replace") for key, value in facts.items()}
            for name, facts in found.items()
            if facts
        }

    def codes(self) -> Counter[str]:
        """How many workers live of each code version."""
        return Counter(facts.get("code", "") for facts in self.workers().values())

    def serving(self, code: str, evaluator: str) -> tuple[int, dict[str, int], bool]:
        """Living workers of a code version, how many live of each other one, and whether none has the evaluator."""
        codes = self.codes()
        workers = codes.pop(code, 0)
        return workers, dict(codes), not workers and self.lacking(evaluator)

    def lacking(self, evaluator: str) -> bool:
        """Whether workers live, and none of them has an evaluator of that name."""
        told = [evaluators_of(facts) for facts in self.workers().values()]
        # A worker that tells no evaluators may have any of them: only where all tell theirs is one known to be lacking.
        return bool(told) and all(found and evaluator not in found for found in told)

    def living(self, code: str) -> dict[str, dict[str, str]]:
        """The living workers of a code version, and their facts."""
        return {name: facts for name, facts in self.workers().items() if facts.get("code") == code}

    def callers(self) -> dict[str, CallerFacts]:
        """Processes that make calls now, by name."""
        names = texts(self._client.smembers(SHARED.callers))
        pipe = self._client.pipeline(transaction=False)
        for name in names:
            pipe.get(SHARED.caller + name)
        found = _answers(names, pipe)
        self._forget(SHARED.callers, [name for name, facts in found.items() if facts is None])
        told = {name: _facts(facts) for name, facts in found.items() if facts is not None}
        return {name: facts for name, facts in told.items() if facts is not None}

    def _forget(self, fleet: str, silent: list[str]) -> None:
        # A worker that beats between the two reads is off the list until its next beat adds it again.
        if silent:
            self._client.srem(fleet, *silent)


def _answers(names: list[str], pipe: Any) -> dict[str, Any]:
    """What each of ``names`` has, without those whose key is something else: the rest of the fleet is still wanted."""
    found = {}
    for name, answer in zip(names, pipe.execute(raise_on_error=False), strict=True):
        if not isinstance(answer, redis.RedisError):
            found[name] = answer
        elif not of_one_key(answer):
            raise answer
    return found


def _facts(data: bytes) -> CallerFacts | None:
    try:
        return msgspec.json.decode(data, type=CallerFacts)
    # Others are still wanted: one bad entry, or one of another version, must not hide a whole fleet.
    except msgspec.DecodeError:  # not an entry that evalq wrote
        return None


def evaluators_of(facts: Mapping[str, str]) -> dict[str, str]:
    """{evaluator: package and version} of a worker's facts; empty for one that tells none."""
    with contextlib.suppress(msgspec.DecodeError):
        return msgspec.json.decode(facts.get("evaluators", "{}"), type=dict[str, str])
    return {}


def unhealthy_of(facts: Mapping[str, str]) -> dict[str, str]:
    """{evaluator: why it cannot be loaded} of a worker's facts."""
    return {name.removeprefix(_SICK): reason for name, reason in facts.items() if name.startswith(_SICK)}
