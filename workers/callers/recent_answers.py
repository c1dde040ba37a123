"""Outputs that this process recorded lately: a server that comes back a moment older than it was is told them again."""

from __future__ import annotations

import time

import msgspec

from evalq.workers.ledger.sweep_model import Result

__all__ = ["RecentAnswers"]

KEPT_SECONDS = 30.0
KEPT_BYTES = 16 << 20


class RecentAnswers:
    """Outputs that were recorded lately, the oldest first."""

    def __init__(self) -> None:
        self._results: dict[int, tuple[float, int, Result]] = {}
        self._size = 0

    def keep(self, results: list[Result]) -> None:
        """Keep answers for a while. A failure is not worth it: it may be meant to be called again."""
        now = time.monotonic()
        for result in results:
            if not result.output.failed:
                self.take([result.output.call])
                size = len(result.output.output) + len(result.output.text or "")
                self._results[result.output.call] = (now, size, result)
                self._size += size

    def calls(self) -> list[int]:
        """Those that are kept."""
        over = time.monotonic() - KEPT_SECONDS
        for call, (at, _, _) in list(self._results.items()):
            # The oldest come first, so all behind it are young enough.
            if at > over and self._size <= KEPT_BYTES:
                break
            self.take([call])
        return list(self._results)

    def take(self, calls: list[int]) -> list[Result]:
        """Those of ``calls`` that are kept, which are not any more."""
        taken = [kept for call in calls if (kept := self._results.pop(call, None))]
        self._size -= sum(size for _, size, _ in taken)
        return [msgspec.structs.replace(result, retold=True) for _, _, result in taken]
