"""Counters over all runs, and what a snapshot says of work in flight: each step counts once, whatever is repeated."""

from __future__ import annotations

import pytest

from evalq.evalcore.contract.partial import Partial
from evalq.evalcore.model.manifest import Chunk, Header, PlannedInput, Seal
from evalq.workers.ledger.heartbeats import Heartbeats
from evalq.workers.ledger.keys import SHARED
from evalq.workers.ledger.runs import RunLedger
from evalq.workers.monitor import Snapshot, read_snapshot
from evalq.workers.settings import Settings
from tests.integration.harness import Server, wait_until
from tests.samples import KEY

ANSWER = Partial("a" * 64, b"part")
SETTINGS = Settings(lease_seconds=600, window=3, stuck_seconds=600)
BRIEF = Settings(stuck_seconds=0.2)


@pytest.fixture
def ledger(server: Server) -> RunLedger:
    """An empty ledger."""
    server.client.flushall()
    return RunLedger(server.client, SETTINGS)


def _header(run: str = "r") -> Header:
    return Header(run, "vs", "1", "code", {}, (PlannedInput("x", "x", "x"),), suite="my suite")


def _chunks(count: int) -> list[Chunk]:
    names = tuple(f'"records":9{number}' for number in range(3))
    return [Chunk(seq, 0, seq * 10, seq * 10 + 10, seq * 3 + 1, 3, f"{seq:064}", names) for seq in range(count)]


def _begin(ledger: RunLedger, count: int = 5, run: str = "r") -> list[Chunk]:
    ledger.open(_header(run), 1, key=KEY)
    ledger.append(run, _chunks(count), 0, Seal(count, ("s",)))
    return _chunks(count)


def _total(server: Server, name: str) -> int:
    return int(server.client.hget(SHARED.totals, f"{name} vs my suite") or 0)


def _look(server: Server, settings: Settings = SETTINGS) -> Snapshot:
    return read_snapshot(server.client, settings)


def test_records_are_submitted_once(ledger: RunLedger, server: Server) -> None:
    """Entries that the ledger has already, and ones behind a gap, are not counted; nor is what reads like a count."""
    chunks = _chunks(4)
    ledger.open(_header(), 1, key=KEY)
    ledger.append("r", chunks, 0)
    ledger.append("r", chunks, 0)
    ledger.append("r", chunks[3:], 3)
    ledger.append("r", _chunks(9)[8:], 8)
    assert _total(server, "submitted") == 12


def test_a_run_ends_once(ledger: RunLedger, server: Server) -> None:
    """Closing again counts nothing; a divergent run has failed, once."""
    chunks = _begin(ledger, 1)
    ledger.commit(_header(), chunks[0], 1, ANSWER)
    assert [ledger.close("r", "done") for _ in range(2)] == ["done", "done"]
    assert _total(server, "ended") == 0
    assert server.client.hget(SHARED.totals, "ended vs my suite done") == b"1"
    other = _begin(ledger, 1, "other")
    ledger.commit(_header("other"), other[0], 1, ANSWER)
    for digest in ("b", "c"):
        ledger.commit(_header("other"), other[0], 1, Partial(digest * 64, b"part"))
    assert server.client.hget(SHARED.totals, "ended vs my suite failed") == b"1"
    assert _total(server, "divergent") == 2


def test_times_are_counted_only_with_a_commit(ledger: RunLedger, server: Server) -> None:
    """A duplicate, a stale and a divergent answer add nothing to the histograms."""
    chunk = _begin(ledger)[0]
    for epoch, answer in ((0, ANSWER), (1, ANSWER), (1, ANSWER), (1, Partial("b" * 64, b"part"))):
        ledger.commit(_header(), chunk, epoch, answer, took={"queue_wait": 0.2})
    totals = server.client.hgetall(SHARED.totals)
    assert totals[b"queue_wait vs 0.25"] == b"1"
    assert totals[b"queue_wait vs sum"] == b"200000"


def test_the_age_of_pending_work_begins_with_its_first_publication(ledger: RunLedger, server: Server) -> None:
    """Publishing again does not make a chunk younger; committing the oldest leaves the next one's age."""
    chunks = _begin(ledger, 2)
    assert _look(server).oldest_age == 0
    assert ledger.take("r", 1) == [0]
    wait_until(lambda: _look(server).oldest_age > 0.1, "the first chunk is old")
    ledger.take("r")
    ledger.mark(_header(), {0: "lost"})
    assert _look(server).oldest_age > 0.1
    first, second = (server.client.zscore("evalq:run:{r}:sent", seq) for seq in (0, 1))
    assert second - first > 100
    ledger.commit(_header(), chunks[0], 1, ANSWER)
    look = _look(server)
    assert look.oldest_age == pytest.approx(look.now - second / 1000, abs=0.001)
    ledger.close("r", "paused")
    assert _look(server).oldest_age == 0


def test_a_lease_tells_how_long_its_chunk_waited(ledger: RunLedger, server: Server) -> None:
    """From the first publication to the claim."""
    _begin(ledger)
    began = _look(server).now
    ledger.take("r", 1)
    wait_until(lambda: _look(server).oldest_age > 0.1, "the chunk has waited")
    # Both times are whole milliseconds, which binary fractions of a second are not.
    assert 0.1 < ledger.claim("r", 0, 1, "w", 1).waited <= round(_look(server).now - began, 3)


def test_chunks_are_in_one_state_each(ledger: RunLedger, server: Server) -> None:
    """Planned, published, leased, committed: together all chunks of open runs."""
    chunks = _begin(ledger, 6)
    ledger.take("r")
    ledger.claim("r", 0, 1, "w", 1)
    ledger.commit(_header(), chunks[1], 1, ANSWER)
    assert _look(server).chunks == {"planned": 3, "published": 1, "leased": 1, "committed": 1}
    ledger.close("r", "paused")
    assert set(_look(server).chunks.values()) == {0}
    assert _look(server).runs == {"paused": 1}


def test_a_worker_is_stuck_only_beside_work_that_it_could_take(ledger: RunLedger, server: Server) -> None:
    """Idle without messages, working with a lease, stuck when its own queue waits for long; not another code's."""
    _begin(ledger)
    ledger.take("r")
    since = (server.client.time()[0] - 1000) * 1000
    Heartbeats(ledger.client).beat("w", {"code": "code", "host": "h", "concurrency": 1, "since": since}, 600)

    def state(settings: Settings = SETTINGS) -> str:
        return _look(server, settings).workers[0].state

    assert state() == "idle"
    server.client.rpush("evalq.bulk.another", "message")
    assert state() == "idle"
    server.client.rpush("evalq.bulk.code", "message")
    assert state() == "stuck"
    ledger.claim("r", 0, 1, "w", 1)
    assert state() == "working"
    ledger.commit(_header(), _chunks(1)[0], 1, ANSWER)
    assert state() == "idle", "it took a chunk just now"
    wait_until(lambda: state(BRIEF) == "stuck", "it took nothing for long")


def test_claiming_does_not_bring_a_silent_worker_back(ledger: RunLedger, server: Server) -> None:
    """A worker without a heartbeat gets no key of its own that would never expire."""
    _begin(ledger)
    ledger.take("r")
    ledger.claim("r", 0, 1, "silent", 1)
    assert not server.client.exists("evalq:worker:silent")
