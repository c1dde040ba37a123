"""Traces of OpenTelemetry's SDK, followed while they come: each counts once, and the metrics say so."""

from __future__ import annotations

from pathlib import Path

from tests.bench.following import measure


def test_a_followed_load_with_kills_counts_each_trace_once(tmp_path: Path) -> None:
    """The short form of `python -m tests.bench.following`: files that are rotated, and SIGKILL."""
    _, found = measure(tmp_path, seconds=3, rate=40, every=0.3, settle=0.8, most=60_000, most_kill=2.5)
    assert set(found.counted) == set(found.written)
    assert set(found.counted.values()) == {1}
    assert (found.state["unread"], found.state["late"]) == (0, 0)
    assert len(found.written) > 30
