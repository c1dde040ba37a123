"""However many runs have ended, a worker that waits and a snapshot ask the server for as much as with none."""

from __future__ import annotations

import re

import pytest

from evalq.evalcore.contract.partial import Partial
from evalq.evalcore.model.life import ENDED, LEDGER_STATES
from evalq.evalcore.model.manifest import Chunk, Header, Seal
from evalq.evalcore.version import code_version
from evalq.workers.broker.publisher import Broker
from evalq.workers.ledger.detached import Detached, Reports
from evalq.workers.ledger.keys import SHARED, RunKeys
from evalq.workers.ledger.progress import ENDED_STATES
from evalq.workers.ledger.runs import RunLedger
from evalq.workers.ledger.scripts import RUNS, script_text
from evalq.workers.ledger.sweep_model import SweepHeader
from evalq.workers.ledger.sweeps import SweepLedger
from evalq.workers.monitor import read_snapshot
from evalq.workers.recovery.reconciler import Reconciler
from evalq.workers.settings import Settings
from tests.integration.harness import Server
from tests.samples import KEY

ANSWER = Partial("a" * 64, b"part")
CHUNK = Chunk(0, 0, 0, 10, 1, 1, "0" * 64)
HOW = ("done", "failed", "cancelled", "paused", "reported", "sweep")


@pytest.fixture
def settings(server: Server) -> Settings:
    """Of an empty server."""
    server.client.flushall()
    return Settings(broker=server.url)


def _header(run: str) -> Header:
    return Header(run, "planagent", "1", code_version(), {}, ())


def _end(ledger: RunLedger, calls: SweepLedger, run: str, how: str) -> None:
    """Begin a run (or a sweep), and end it so."""
    if how == "sweep":
        calls.open(SweepHeader(run, "t", code_version(), 1, 1))
        calls.close(run, "done")
        return
    ledger.open(_header(run), 1, key=KEY)
    if how in ("done", "reported"):
        ledger.append(run, [CHUNK], 0, Seal(1, ("s",)))
        assert ledger.commit(_header(run), CHUNK, 1, ANSWER) == "committed"
    if how == "reported":
        reports = Reports(ledger, ledger.settings)
        reports.detach(run, Detached(0.0))
        ledger.close(run, "done")
        assert run in ledger.runs_to_tend()
        reports.store(run, b"{}")
    else:
        assert ledger.close(run, how) == how  # type: ignore[arg-type]  # one of the states


def _asked(server: Server, settings: Settings) -> dict[str, int]:
    """Commands that a worker's round of tending asks for, scripts' own ones too, and then a snapshot."""
    calls, ledger = SweepLedger(server.client, settings), RunLedger(server.client, settings)
    reconciler = Reconciler(ledger, Broker(settings))
    counts = {}
    for what, ask in (
        ("tending", reconciler.tend_all),
        ("calling", calls.sweeps),
        ("a snapshot", lambda: read_snapshot(server.client, settings)),
        ("leaving", lambda: ledger.give_back("w")),
    ):
        ask()  # scripts are sent, and what is over is swept, the first time
        server.client.config_resetstat()
        ask()
        found = server.client.info("commandstats").values()
        counts[what] = sum(stats["calls"] for stats in found) - 1  # less the one that reset them
    return counts


def test_runs_that_ended_are_not_asked_for(server: Server, settings: Settings) -> None:
    """In each way that there is, beside one that is open."""
    ledger, calls = RunLedger(server.client, settings), SweepLedger(server.client, settings)
    ledger.open(_header("open"), 1, key=KEY)
    for how in HOW:
        _end(ledger, calls, f"one-{how}", how)
    few = _asked(server, settings)
    for number in range(60):
        for how in HOW:
            _end(ledger, calls, f"{number}-{how}", how)
    assert _asked(server, settings) == few
    snapshot = read_snapshot(server.client, settings)
    assert snapshot.runs == {"open": 1, "done": 122, "failed": 61, "cancelled": 61, "paused": 61}
    assert len(ledger.runs()) == 1 + 61 * 5


def test_lists_know_every_state(settings: Settings) -> None:
    """Those of the table of a run's life, in Lua and in Python."""
    (listed,) = re.findall(r"local ENDED = \{(.*?)\}", script_text(RUNS, "open"))
    assert set(re.findall(r"'(\w+)'", listed)) == set(ENDED_STATES) == LEDGER_STATES - {"open"}
    assert set(ENDED_STATES) > ENDED


def test_a_run_that_expired_is_on_no_list(server: Server, settings: Settings) -> None:
    """It is not counted from that moment on, and whoever tends runs next takes its name off; so does whoever prunes."""
    kept, calls = RunLedger(server.client, settings), SweepLedger(server.client, settings)
    for how in ("done", "failed", "cancelled", "paused"):
        _end(kept, calls, f"kept-{how}", how)
        _end(kept, calls, f"pruned-{how}", how)
        _end(kept, calls, f"brief-{how}", how)
        server.client.delete(*RunKeys.of(f"brief-{how}"))  # as when they expire
        server.client.zadd(SHARED.ended + how, {f"brief-{how}": 1})
    assert read_snapshot(server.client, settings).runs == dict.fromkeys(("done", "failed", "cancelled", "paused"), 2)
    for how in ("done", "failed", "cancelled", "paused"):
        kept.delete(f"pruned-{how}")
    RunLedger(server.client, settings).runs_to_tend()
    left = {f"kept-{how}".encode() for how in ("done", "failed", "cancelled", "paused")}
    assert set(server.client.hkeys(SHARED.runs)) == left
    listed = {name for state in ENDED_STATES for name in server.client.zrange(SHARED.ended + state, 0, -1)}
    assert listed == left


def test_a_run_that_lives_longer_than_its_list_said_stays(server: Server, settings: Settings) -> None:
    """Steps after its end prolong its keys: it is listed anew, and counted."""
    ledger = RunLedger(server.client, settings)
    _end(ledger, SweepLedger(server.client, settings), "r", "done")
    server.client.zadd(SHARED.ended + "done", {"r": 1})
    assert RunLedger(server.client, settings).runs_to_tend() == []
    assert read_snapshot(server.client, settings).runs == {"done": 1}
    assert set(ledger.runs()) == {"r"}


@pytest.mark.parametrize("how", ["done", "failed", "paused"])
def test_a_run_that_is_open_again_is_tended(server: Server, settings: Settings, how: str) -> None:
    """By a retry, or by whoever resumes it; and it is counted once."""
    ledger = RunLedger(server.client, settings)
    _end(ledger, SweepLedger(server.client, settings), "r", how)
    assert ledger.runs_to_tend() == []
    if how == "done":
        ledger.reopen("r", [(0, 1, 0)])
    else:
        ledger.open(_header("r"), 2, key=KEY)
    assert ledger.runs_to_tend() == ["r"]
    assert read_snapshot(server.client, settings).runs == {"open": 1}


@pytest.mark.parametrize("name", [SHARED.tended, SHARED.runs, SHARED.ended + "done"])
def test_a_list_that_somebody_wrote_over_refuses_no_answer(server: Server, settings: Settings, name: str) -> None:
    """Lists say where to look; what a run found is in its own keys."""
    ledger = RunLedger(server.client, settings)
    ledger.open(_header("r"), 1, key=KEY)
    ledger.append("r", [CHUNK], 0, Seal(1, ("s",)))
    server.client.delete(name)
    server.client.set(name, "junk")
    assert ledger.claim("r", 0, 1, "w", 1).status == "leased"
    assert ledger.commit(_header("r"), CHUNK, 1, ANSWER) == "committed"
    assert ledger.close("r", "done") == "done"
