"""A web service submits from threads and processes under kills: the short form of `many_handles`."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.integration.harness import Server, running_fleet
from tests.integration.many_handles import Day, live_through


def test_every_handle_ends_with_the_inline_report_under_kills(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Workers die, and a producer: each job is one run with one answer, and no key is left after prune."""
    folder = tmp_path / "work"
    folder.mkdir()
    monkeypatch.chdir(folder)
    monkeypatch.setenv("EVALQ_BROKER", server.url)
    with running_fleet(server.url, folder) as fleet:
        counted = live_through(Day(jobs=24, processes=3, threads=4, seconds=3), folder, server, fleet)
    assert counted["jobs"] == 24
