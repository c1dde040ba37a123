"""Looks at approved runs in the ledger: counted over all machines, since each spends of one error."""

from __future__ import annotations

from typing import Any

import redis

from evalq.evalcore.compare.looks import Look
from evalq.evalcore.errors import WireError
from evalq.workers.ledger.keys import LookKeys
from evalq.workers.ledger.scripts import LOOKS, script_text

__all__ = ["LookStore"]

_KEPT_MS = 400 * 24 * 3600 * 1000
"""A count begins anew when nobody has looked for so long."""


class LookStore:
    """Looks by baseline: which number each has, and which candidates were stopped. Raises WireError for no count."""

    def __init__(self, client: redis.Redis) -> None:
        self._client: Any = client

    def count(self, baseline: str) -> int:
        """How many looks there were."""
        found: bytes = self._client.hget(LookKeys.of(baseline).looks, "count") or b"0"
        if not found.isdigit():
            raise _damaged(baseline)
        return int(found)

    def peek(self, baseline: str, candidate: str, answers: str) -> Look:
        """What `take` would give; nothing is counted."""
        return self._look(baseline, candidate, answers, "peek")

    def take(self, baseline: str, candidate: str, answers: str) -> Look:
        """The look at ``candidate`` by those ``answers``: the one that it was before, or the next."""
        return self._look(baseline, candidate, answers)

    def _look(self, baseline: str, *args: str) -> Look:
        found = self._step("take", baseline, *args)
        if found == b"damaged":
            raise _damaged(baseline)
        number, draw, stands = found
        return Look(int(number), int(draw), stands.decode("utf-8", "surrogateescape"))

    def settle(self, baseline: str, candidate: str, stopped: str) -> str:
        """Why ``candidate`` is stopped: ``stopped``, unless it was before or is not ("")."""
        # A reason may quote a name that is no UTF-8: its bytes come back as they were.
        given = stopped.encode("utf-8", "surrogateescape")
        return str(self._step("settle", baseline, candidate, given).decode("utf-8", "surrogateescape"))

    def _step(self, script: str, baseline: str, *args: Any) -> Any:
        return self._client.register_script(script_text(LOOKS, script))(LookKeys.of(baseline), [_KEPT_MS, *args])


def _damaged(baseline: str) -> WireError:
    key = LookKeys.of(baseline).looks
    return WireError(
        f"looks at this baseline cannot be counted: {key} in the ledger holds what evalq never wrote; "
        "delete that key, and they are counted anew"
    )
