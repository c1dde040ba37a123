"""Workers and processes that call leave the list for good: no heartbeat that is under way puts them back."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Mapping
from pathlib import Path

import pytest

from evalq.evalcore.errors import BrokerUnreachable
from evalq.workers.ledger.heartbeats import Heartbeats
from evalq.workers.ledger.keys import SHARED
from evalq.workers.pool import main
from evalq.workers.settings import Settings, Timings
from tests.integration.harness import PATIENCE, Server, clean_environment, wait_until
from tests.integration.ports import free_port


def test_a_beat_under_way_does_not_bring_a_worker_back(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    """It leaves while its attendant is telling that it lives: it is off the list when both are done."""
    begun, go_on, real = threading.Event(), threading.Event(), Heartbeats.beat
    attendant = main.Attendant(Settings(broker=server.url), "w", Timings(beat=0.01))
    attendant.arrive()

    def slow(self: Heartbeats, worker: str, facts: Mapping[str, str | int], seconds: float) -> None:
        begun.set()
        assert go_on.wait(PATIENCE)
        real(self, worker, facts, seconds)

    monkeypatch.setattr(Heartbeats, "beat", slow)
    threads = [threading.Thread(target=step) for step in (attendant.attend, attendant.leave)]
    threads[0].start()
    assert begun.wait(PATIENCE)
    threads[1].start()
    threads[1].join(1)  # time enough to leave for one that does not wait for the beat
    go_on.set()
    for thread in threads:
        thread.join(PATIENCE)
    assert Heartbeats(server.client).workers() == {}


def test_a_worker_whose_queues_are_away_is_still_reported_as_living(server: Server) -> None:
    """Its ledger is on another server: what its processes have taken is computed and committed there meanwhile."""
    settings = Settings(broker=f"redis://127.0.0.1:{free_port()}", ledger=server.url)
    attendant = main.Attendant(settings, "w", Timings(beat=0.01))
    for _ in range(2):
        server.client.delete(SHARED.worker + "w")
        with pytest.raises(BrokerUnreachable):
            attendant._serve()
        assert set(Heartbeats(server.client).workers()) == {"w"}
    attendant.leave()


SLOW_TO_TELL = """
import time
from evalq.workers.callers import main
from evalq.workers.ledger.heartbeats import Heartbeats
from evalq.workers.settings import Timings
real = Heartbeats.beat_caller
def slow(*args):
    time.sleep(0.3)
    real(*args)
Heartbeats.beat_caller = slow
raise SystemExit(main.main(Timings(beat=0.01)))
"""


def test_a_beat_under_way_does_not_bring_a_process_that_calls_back(server: Server, tmp_path: Path) -> None:
    """It has to end while a heartbeat is on its way, as nearly always here."""
    (tmp_path / "targets.yaml").write_text("targets: {own: {kind: command, argv: [cat]}}")
    settings = {"EVALQ_BROKER": server.url, "EVALQ_TARGETS": str(tmp_path / "targets.yaml"), "EVALQ_CALLS": "2"}
    process = subprocess.Popen([sys.executable, "-c", SLOW_TO_TELL], env=clean_environment(**settings))
    try:
        wait_until(lambda: Heartbeats(server.client).callers(), "it is on the list")
        process.terminate()
        assert process.wait(PATIENCE) == 0
    finally:
        process.kill()
        process.wait()
    assert Heartbeats(server.client).callers() == {}
