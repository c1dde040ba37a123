"""Baselines: runs approved by name, and the interim looks that gates took at them. Baselines do not expire."""

from __future__ import annotations

import shlex
from typing import Any

import redis

from evalq.evalcore.compare.spending import GateLook
from evalq.evalcore.errors import WireError
from evalq.evalcore.model.canonical import pack, unpack
from evalq.workers.ledger.keys import SHARED, LookKeys
from evalq.workers.ledger.scripts import LOOKS, script_text
from evalq.workers.settings import Settings


class BaselineStore:
    """The baselines of one ledger. Each name has {slot: JSON}, with one slot per evaluator and target."""

    def __init__(self, client: redis.Redis, settings: Settings) -> None:
        self._client: Any = client
        self._most = settings.cases_bytes

    def keep(self, name: str, slot: str, data: bytes) -> None:
        """Put ``data`` in the slot; it replaces the run approved there before."""
        # Both or none: otherwise an approved run could be missing from the list of names.
        pipe = self._client.pipeline(transaction=True)
        pipe.sadd(SHARED.baselines, name)
        pipe.hset(SHARED.baseline + name, slot, pack(data))
        pipe.execute()

    def read(self, name: str) -> dict[str, bytes]:
        """All slots of a name. Raises WireError if one is damaged."""
        slots = {}
        for field, data in self._client.hgetall(SHARED.baseline + name).items():
            slot = field.decode(errors="replace")
            try:
                # Bounded: a few bytes in the ledger could otherwise unpack to fill this process's memory.
                slots[slot] = unpack(data, self._most)
            except WireError as error:
                raise WireError(
                    f"the baseline {name} in the ledger is damaged at {slot!r}: {error}; approve the run again: "
                    f"evalq baseline set {shlex.quote(name)} RUN"
                ) from error
        return slots

    def names(self) -> list[str]:
        """All names."""
        return sorted(name.decode() for name in self._client.smembers(SHARED.baselines))

    def forget(self, name: str) -> bool:
        """Drop a name; False if there is none."""
        pipe = self._client.pipeline(transaction=True)
        pipe.srem(SHARED.baselines, name)
        pipe.delete(SHARED.baseline + name)
        return bool(pipe.execute()[0])


_KEPT_MS = 400 * 24 * 3600 * 1000
"""A baseline without looks for this long starts counting at 1 again."""


class GateLooks:
    """Interim looks by baseline: the number of each, and the candidates that were stopped.

    All machines share one count, since all looks share one error level. Methods raise WireError for a damaged count.
    """

    def __init__(self, client: redis.Redis) -> None:
        self._client: Any = client

    def count(self, baseline: str) -> int:
        """The number of looks taken."""
        count: bytes = self._client.hget(LookKeys.of(baseline).looks, "count") or b"0"
        if not count.isdigit():
            raise _looks_damaged(baseline)
        return int(count)

    def peek(self, baseline: str, candidate: str, answers: str) -> GateLook:
        """The look that `take` would return; counts nothing."""
        return self._look(baseline, candidate, answers, "peek")

    def take(self, baseline: str, candidate: str, answers: str) -> GateLook:
        """The look at ``candidate`` with these ``answers``: the same one as before, or the next."""
        return self._look(baseline, candidate, answers)

    def _look(self, baseline: str, *args: str) -> GateLook:
        reply = self._step("take", baseline, *args)
        if reply == b"damaged":
            raise _looks_damaged(baseline)
        number, draw, stopped = reply
        return GateLook(int(number), int(draw), stopped.decode("utf-8", "surrogateescape"))

    def settle(self, baseline: str, candidate: str, stopped: str) -> str:
        """Store the reason ``stopped`` (empty: none) unless ``candidate`` has one; return the reason it has."""
        # A reason may quote a name that is not UTF-8: its bytes come back unchanged.
        reason = stopped.encode("utf-8", "surrogateescape")
        return str(self._step("settle", baseline, candidate, reason).decode("utf-8", "surrogateescape"))

    def _step(self, script: str, baseline: str, *args: Any) -> Any:
        return self._client.register_script(script_text(LOOKS, script))(LookKeys.of(baseline), [_KEPT_MS, *args])


def _looks_damaged(baseline: str) -> WireError:
    key = LookKeys.of(baseline).looks
    return WireError(
        f"the looks at this baseline cannot be counted: evalq did not write the content of {key} in the ledger; "
        "delete that key to count from 1 again"
    )
