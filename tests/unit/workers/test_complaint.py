"""Trouble that lasts, in a log: said once, then every half minute, and when it is over."""

from __future__ import annotations

import logging

import pytest
import redis

from evalq.workers.servers.connections import Complaint

log = logging.getLogger("test.complaint")


def test_trouble_is_said_once_then_every_half_minute_and_its_end(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A minute without a ledger, asked every second: three lines, and one when it is back."""
    now = 0.0
    monkeypatch.setattr("evalq.workers.servers.connections.time.monotonic", lambda: now)
    complaint = Complaint(log, "the ledger")
    complaint.over()
    for second in range(61):
        now = 100.0 + second
        complaint.report(redis.ConnectionError("refused"))
    complaint.over()
    complaint.over()
    assert [record.getMessage() for record in caplog.records] == [
        "waiting: the ledger does not answer: refused",
        "waiting: the ledger does not answer: refused, for 30 s now",
        "waiting: the ledger does not answer: refused, for 60 s now",
        "the ledger is back after 60 s",
    ]
