"""The ledger's scripts move a run where the table of its life lets it go, and nowhere else: every pair, really."""

from __future__ import annotations

import itertools

import pytest

from evalq.evalcore.contract.partial import Partial
from evalq.evalcore.model.life import LEDGER_STATES, MEANING, MOVES, NEXT, RunState, leading_to, may_follow
from evalq.evalcore.model.manifest import Chunk, Header, PlannedInput, Seal
from evalq.workers.ledger.keys import RunKeys, SweepKeys
from evalq.workers.ledger.runs import RunLedger
from evalq.workers.ledger.sweep_model import SweepHeader
from evalq.workers.ledger.sweeps import SweepLedger
from evalq.workers.settings import Settings
from tests.integration.harness import Server
from tests.samples import KEY

PAIRS = sorted(itertools.product(LEDGER_STATES, LEDGER_STATES))
HEADER = Header("r", "planagent", "1", "code", {}, (PlannedInput("x.csv", "x.csv", "x.csv"),))
SWEEP = SweepHeader("r", "chat", "code", 1, 1)


def _state(server: Server, key: str) -> str:
    found: bytes = server.client.hget(key, "state")
    return found.decode()


@pytest.mark.parametrize(("before", "after"), PAIRS)
def test_a_run_in_the_ledger_moves_by_the_table(server: Server, before: RunState, after: RunState) -> None:
    """A computed run in any state: closing, creating and retrying it ends in the new state or leaves the old one."""
    server.client.flushall()
    runs, meta = RunLedger(server.client, Settings()), RunKeys.of("r").meta
    runs.open(HEADER, 1, key=KEY)
    chunk = Chunk(0, 0, 0, 10, 1, 1, "0" * 64)
    runs.append("r", [chunk], 0, Seal(1, ("s",)))
    assert runs.commit(HEADER, chunk, 1, Partial("a" * 64, b"part")) == "committed"
    server.client.hset(meta, "state", before)
    if after != "open":
        assert runs.close("r", after) == _state(server, meta)
    elif before == "done":
        runs.reopen("r", [(0, 1, 1)])
    else:
        runs.reopen("r", [])  # what a retry that was interrupted does again
        runs.open(HEADER, 2, key=KEY)
    assert _state(server, meta) == (after if may_follow(after, before) else before)


@pytest.mark.parametrize(("before", "after"), PAIRS)
def test_a_sweep_in_the_ledger_moves_by_the_table(server: Server, before: RunState, after: RunState) -> None:
    """Closing and opening a sweep in any state ends in the new state or leaves the old one."""
    server.client.flushall()
    sweeps, meta = SweepLedger(server.client, Settings()), SweepKeys.of("r").meta
    sweeps.open(SWEEP)
    server.client.hset(meta, "state", before)
    if after != "open":
        assert sweeps.close("r", after) == _state(server, meta)
    else:
        sweeps.open(SWEEP, how="anew")
    assert _state(server, meta) == (after if may_follow(after, before) else before)


def test_two_answers_of_a_chunk_do_not_wake_a_cancelled_run(server: Server) -> None:
    """They are counted and kept aside, and an open run fails by them; one that was ended for good stays so."""
    for before, after in (("open", "failed"), ("cancelled", "cancelled"), ("done", "done")):
        server.client.flushall()
        runs, meta = RunLedger(server.client, Settings()), RunKeys.of("r").meta
        runs.open(HEADER, 1, key=KEY)
        chunk = Chunk(0, 0, 0, 10, 1, 1, "0" * 64)
        runs.append("r", [chunk], 0, Seal(1, ("s",)))
        runs.commit(HEADER, chunk, 1, Partial("a" * 64, b"part"))
        server.client.hset(meta, "state", before)
        assert runs.commit(HEADER, chunk, 1, Partial("b" * 64, b"other")) == "divergent"
        assert (_state(server, meta), server.client.hget(meta, "divergent")) == (after, b"1")


def test_the_table_is_whole() -> None:
    """Every state is explained, leads on or is the end, and can be reached; nothing follows a cancelled run."""
    reached = set().union(*MOVES.values())
    assert reached | {"calling", "following"} == set(MOVES) == set(MEANING) == set(NEXT)
    assert [state for state, moves in MOVES.items() if not moves] == ["cancelled"]
    assert leading_to("cancelled") == ["failed", "open", "paused", "spent"]
    for state in ("interrupted", "paused", "stopped", "failed", "detached", "spent", "retrying", "called"):
        assert may_follow("cancelled", state)
