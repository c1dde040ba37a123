"""Trouble that lasts, in a log: said once, then every half minute, and when it is over."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable

from evalq.evalcore.errors import ServerRefused
from evalq.workers.servers.connections import probe
from evalq.workers.servers.errors import explained
from evalq.workers.settings import Settings

__all__ = ["Complaint", "until_reached"]

AGAIN_SECONDS = 30.0
_POLL_SECONDS = 1.0


class Complaint:
    """One kind of trouble with one server."""

    def __init__(self, log: logging.Logger, server: str) -> None:
        """``server`` is what a person calls it."""
        self._log = log
        self._server = server
        self._since: float | None = None
        self._said_at = 0.0

    def about(self, error: BaseException) -> None:
        """The trouble is there (still): a line at first and every AGAIN_SECONDS."""
        now = time.monotonic()
        if self._since is None or now - self._said_at >= AGAIN_SECONDS:
            so_far = f", for {now - self._since:.0f} s now" if self._since is not None else ""
            self._said_at = now
            self._log.warning("waiting: %s%s", explained(error, self._server), so_far)
        self._since = self._since or now

    def over(self) -> None:
        """Log that the trouble is over, if there was any."""
        if self._since is not None:
            self._log.warning("%s is back after %.0f s", self._server, time.monotonic() - self._since)
            self._since = None


def until_reached(settings: Settings, log: logging.Logger, wanted: Callable[[], bool]) -> bool:
    """Wait for the ledger's server as long as ``wanted``; whether it answers. Raises ServerRefused, ConfigError."""
    complaint = Complaint(log, f"the ledger at {settings.ledger_address}")
    while (trouble := probe(settings.ledger_address, settings, settings.connect_seconds)) is not None:
        if isinstance(trouble, ServerRefused):
            raise trouble
        if not wanted():
            return False
        complaint.about(trouble)
        time.sleep(_POLL_SECONDS)
    complaint.over()
    return True
