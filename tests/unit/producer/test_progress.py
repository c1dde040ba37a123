"""What a person is told of how far a run is."""

from __future__ import annotations

import pytest

from producer.progress import Reporter
from producer.standing import Standing


def test_what_was_done_before_is_no_part_of_the_pace(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A sweep that goes on tells the calls it makes now a second, of how many, and the time that the rest takes so."""
    now = 1000.0
    monkeypatch.setattr("producer.progress.time.monotonic", lambda: now)
    reporter = Reporter("records", quiet=False, bar=False, json_lines=False)
    with reporter.watching() as watch:
        for made in (0, 30, 60):
            watch(Standing(50_000 + made, 50_000 + made, 60_000, note="5 in flight", unit="calls"))
            now += 61
    lines = capsys.readouterr().err.splitlines()
    assert lines[-1] == "50,060 of 60,000 calls, 0.5/s, 5 h 36 min left, 5 in flight"
