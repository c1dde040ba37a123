"""What a worker does once a run, and not once a chunk: parameters may hold a hundred thousand cases."""

from __future__ import annotations

from pathlib import Path

import pytest

from evalq.evalcore.contract import plugins
from evalq.workers.pool import chunk_runner
from tests.integration.harness import Server
from tests.unit.workers.hosts import CHUNKS, Hosts


def test_parameters_are_looked_at_once_a_run(server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By a process that computes all of its chunks."""
    hosts = Hosts(server, tmp_path)
    monkeypatch.setattr(plugins, "get", hosts.get)
    looks = []
    kept = chunk_runner._params

    def noted(evaluator: str, data: bytes) -> object:
        looks.append(data)
        return kept(evaluator, data)

    monkeypatch.setattr(chunk_runner, "_params", noted)
    hosts.add("a")
    hosts.begin()
    hosts.until(lambda look: look.progress.complete, "all is computed")
    assert CHUNKS > 1
    assert looks == [b"{}"]
