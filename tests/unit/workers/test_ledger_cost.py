"""What a run costs its server: bytes that go with a claim, and how long one step keeps it from everybody else."""

from __future__ import annotations

import pytest

from evalq.evalcore.errors import WireError
from evalq.evalcore.model.manifest import Chunk, Header, PlannedInput, Seal, to_wire
from evalq.workers.ledger.runs import MAX_TAKE_SCAN, RunLedger
from evalq.workers.ledger.scripts import STEP
from evalq.workers.settings import Settings
from tests.integration.harness import Server
from tests.samples import KEY

INPUTS = 4_000


@pytest.fixture
def ledger(server: Server) -> RunLedger:
    """An empty ledger, seen by a driver."""
    server.client.flushall()
    return RunLedger(server.client, Settings(), "host 1 a")


def _header() -> Header:
    names = [f"folder/a-rather-long-name-of-an-input-{number}.csv" for number in range(INPUTS)]
    return Header("r", "planagent", "1", "code", {}, tuple(PlannedInput(name, name, name) for name in names))


def _chunks(count: int) -> list[Chunk]:
    return [Chunk(seq, seq % INPUTS, 0, 10, 1, 1, f"{seq:064}") for seq in range(count)]


def _sent(server: Server) -> int:
    return int(server.client.info("stats")["total_net_output_bytes"])


def _scripts(server: Server) -> int:
    return int(server.client.info("commandstats")["cmdstat_evalsha"]["calls"])


def test_a_header_goes_to_a_worker_once(ledger: RunLedger, server: Server) -> None:
    """Of a run of 4,000 inputs the first claim brings the header, and each later one less than 1 KB; as for looks."""
    header = _header()
    ledger.open(header, 1, key=KEY)
    ledger.append("r", _chunks(INPUTS), 0, Seal(INPUTS, ("s",) * INPUTS))
    worker = RunLedger(server.client, Settings())
    before = _sent(server)
    assert worker.claim("r", 0, 1, "w", 1).header == header
    assert worker.header("r") == header
    first = _sent(server) - before
    assert len(to_wire(header)) < first < 1.1 * len(to_wire(header)) + 20_000
    before = _sent(server)
    for seq in range(1, 101):
        lease = worker.claim("r", seq, 1, "w", 1)
        assert lease.header == header
    assert _sent(server) - before < 200_000
    before = _sent(server)
    for _ in range(20):
        assert worker.header("r") == header
        assert worker.poll("r").progress.planned == INPUTS
    assert _sent(server) - before < 200_000


def test_another_header_of_the_same_id_is_noticed(ledger: RunLedger) -> None:
    """A run that was removed and begun anew as another one: no claim goes by the header of the one before."""
    header = _header()
    ledger.open(header, 1, key=KEY)
    ledger.append("r", _chunks(2), 0)
    assert ledger.claim("r", 0, 1, "w", 1).header == header
    ledger.delete("r")
    other = Header("r", "planagent", "1", "code", {"x": 1}, header.inputs[:1])
    ledger.open(other, 1, key=KEY)
    ledger.append("r", _chunks(2), 0)
    assert ledger.header("r") == other
    assert ledger.claim("r", 0, 1, "w", 1).header == other


def test_many_chunks_are_reported_in_many_steps(ledger: RunLedger, server: Server) -> None:
    """A plan and the answers of a folder go in slices, and finding what is left to publish stops in between."""
    count = 2 * MAX_TAKE_SCAN + 1
    ledger.open(_header(), 1, key=KEY)
    before = _scripts(server)
    assert ledger.append("r", _chunks(count), 0, Seal(count, ("s",))) == count
    assert _scripts(server) - before >= count // STEP
    before = _scripts(server)
    assert ledger.restore("r", ((seq, "d" * 64, 1) for seq in range(count - 1))) == count - 1
    assert _scripts(server) - before >= (count - 1) // STEP
    before = _scripts(server)
    assert ledger.take("r") == [count - 1]
    assert _scripts(server) - before >= 3
    progress = ledger.poll("r").progress
    assert (progress.committed, progress.records, progress.chunks) == (count - 1, count - 1, count)


@pytest.mark.parametrize("bad", [b"", b"\xff", b"{}"])
def test_a_header_that_somebody_else_wrote_is_noticed(ledger: RunLedger, server: Server, bad: bytes) -> None:
    """Also by a worker that has the right one: what is not as long as its id says is read, and refused."""
    ledger.open(_header(), 1, key=KEY)
    ledger.append("r", _chunks(2), 0)
    assert ledger.claim("r", 0, 1, "w", 1).status == "leased"
    server.client.hset("evalq:run:{r}:meta", "header", bad)
    with pytest.raises(WireError):
        ledger.claim("r", 1, 1, "w", 1)
    with pytest.raises(WireError):
        ledger.header("r")
