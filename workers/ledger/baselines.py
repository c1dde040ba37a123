"""Approved runs in the ledger, by name: what gates of all machines compare with. They do not expire."""

from __future__ import annotations

import shlex
from typing import Any

import redis

from evalq.evalcore.errors import WireError
from evalq.evalcore.model.packing import pack, unpack
from evalq.workers.ledger.keys import SHARED
from evalq.workers.settings import Settings

__all__ = ["BaselineStore"]


class BaselineStore:
    """Baselines of one ledger: {place: JSON} for each name, a place for each evaluator and target."""

    def __init__(self, client: redis.Redis, settings: Settings) -> None:
        self._client: Any = client
        self._most = settings.cases_bytes

    def keep(self, name: str, place: str, data: bytes) -> None:
        """Put ``data`` in the place of what was approved there before."""
        # Both or none: an approved run whose name is not on the list could be read, but would never be listed.
        pipe = self._client.pipeline(transaction=True)
        pipe.sadd(SHARED.baselines, name)
        pipe.hset(SHARED.baseline + name, place, pack(data))
        pipe.execute()

    def read(self, name: str) -> dict[str, bytes]:
        """All of a name's. Raises WireError for what is no baseline."""
        found = {}
        for at, data in self._client.hgetall(SHARED.baseline + name).items():
            place = at.decode(errors="replace")
            try:
                # Bounded: whoever may write to the ledger could otherwise have a few bytes unpack to all of the memory
                # here.
                found[place] = unpack(data, self._most)
            except WireError as error:
                raise WireError(
                    f"the baseline {name} in the ledger is damaged at {place!r}: {error}; approve the run again: "
                    f"evalq baseline set {shlex.quote(name)} RUN"
                ) from error
        return found

    def names(self) -> list[str]:
        """All names."""
        return sorted(name.decode() for name in self._client.smembers(SHARED.baselines))

    def forget(self, name: str) -> bool:
        """Drop a name; whether there was one."""
        pipe = self._client.pipeline(transaction=True)
        pipe.srem(SHARED.baselines, name)
        pipe.delete(SHARED.baseline + name)
        return bool(pipe.execute()[0])
