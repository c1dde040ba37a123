"""The process that calls is kept up by its worker."""

from __future__ import annotations

import errno
import subprocess
from typing import Any

import pytest

from evalq.workers.callers import supervisor


def test_a_process_that_cannot_be_started_is_tried_again(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A host that has no process or memory left at one moment has some later; nobody else starts it."""
    asked = 0

    class Started:
        """A process that ends when its supervisor asks for it."""

        def wait(self) -> int:
            """It has ended."""
            keeper._ending.set()
            return 0

    def start(*_: Any, **__: Any) -> Started:
        nonlocal asked
        asked += 1
        if asked == 1:
            raise BlockingIOError(errno.EAGAIN, "Resource temporarily unavailable")
        return Started()

    monkeypatch.setattr(subprocess, "Popen", start)
    monkeypatch.setattr(supervisor, "_RESTART_SECONDS", 0.0)
    keeper = supervisor._Keeper({})
    keeper.keep()
    assert asked == 2
    assert "cannot be started: [Errno 11] Resource temporarily unavailable; it is tried again in 0 s" in caplog.text
