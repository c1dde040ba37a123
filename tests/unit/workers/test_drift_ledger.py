"""Drift in the ledger, on a real server: each run counts once, whoever ends when, and approving begins anew."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from threading import Barrier

import pytest
import redis

from evalq.evalcore.compare.summary import CaseColumn, CaseSummary, RunCases, RunUsage
from evalq.evalcore.contract.measures import Measure
from evalq.evalcore.errors import InfrastructureError, WireError
from evalq.workers.ledger.history import CHAINS, Drift, Entry, History, HistoryKey, read_states
from evalq.workers.ledger.keys import HistoryKeys
from evalq.workers.settings import Settings
from tests.integration.harness import Server

NIGHT = HistoryKey("vs", "night", "t")
SETTINGS = Settings(histories=3)
PASS = Measure("pass_rate")


def a_run(name: str, passed: int = 9, *, answers: int = 10, suite: str = "night", target: str = "t",
          specification: str = "s", report: str = "") -> RunCases:  # fmt: skip
    """Of 20 cases, ``passed`` of whose ``answers`` each passed."""
    ids = [f"{number:02}" for number in range(20)]
    column = CaseColumn([answers] * 20, [float(passed)] * 20, [float(passed)] * 20)
    cases = CaseSummary([PASS], ids, [0] * 20, {PASS.name: column})
    return RunCases(run=name, evaluator="vs", version="1", suite=suite, target=target, specification=specification,
                    report=report or name, records={}, cases=cases)  # fmt: skip


def remembered(client: redis.Redis, place: HistoryKey = NIGHT) -> None:
    """A history, as a run's entry makes it."""
    History(client, SETTINGS).record(Entry("first", place, {"total": 1}, []))


@pytest.fixture
def drift(server: Server) -> Drift:
    """An emptied ledger with the history NIGHT."""
    server.client.flushall()
    remembered(server.client)
    return Drift(server.client, SETTINGS)


def stored(server: Server, place: HistoryKey = NIGHT) -> dict[bytes, bytes]:
    """All that is kept of a history's chains."""
    keys = HistoryKeys.of(place.member)
    chains: dict[bytes, bytes] = server.client.hgetall(keys.drift)
    shown: dict[bytes, bytes] = server.client.hgetall(keys.drifting)
    return {**{b"drift " + key: value for key, value in chains.items()}, **shown}


def test_runs_that_end_at_one_instant_all_count(drift: Drift, server: Server) -> None:
    """Six connections count 24 runs at once, and each run twice from two of them: 23 were compared with the first."""
    barrier = Barrier(6)

    def count(worker: int) -> None:
        client = redis.Redis(port=server.port)
        barrier.wait()
        for number in range(8):
            Drift(client, SETTINGS).count(NIGHT, a_run(f"r{(worker // 2) * 8 + number}"))
        client.close()

    with ThreadPoolExecutor(6) as pool:
        list(pool.map(count, range(6)))
    (state,) = drift.states(NIGHT)
    assert state.runs == 23


def test_a_run_finished_again_changes_nothing(drift: Drift, server: Server) -> None:
    """Resumed after a crash, repeated with --once, finished by the fleet and by its command: not a byte."""
    for name in ("a", "b", "c"):
        drift.count(NIGHT, a_run(name))
    before = stored(server)
    for name in ("c", "b", "a"):
        drift.count(NIGHT, a_run(name))
    assert stored(server) == before


def test_a_retried_run_takes_its_own_place(drift: Drift) -> None:
    """With its new answers the chain is that of a run that had them at once; an older one stays as it was."""
    for name in ("a", "b"):
        drift.count(NIGHT, a_run(name))
    low = drift.count(NIGHT, a_run("c", 2))
    assert low is not None
    assert low.drifting
    mended = drift.count(NIGHT, a_run("c", 9, report="again"))
    assert mended is not None
    assert (mended.drifting, mended.runs) == (False, 2)
    assert drift.count(NIGHT, a_run("b", 2, report="again")) == mended
    first = drift.count(HistoryKey("vs", "night", "t"), a_run("only", specification="other"))
    again = drift.count(NIGHT, a_run("only", 3, specification="other", report="again"))
    assert first is not None
    assert again is not None
    assert (first.runs, again.runs) == (0, 0)


def test_a_page_says_since_when_and_ends_with_an_approved_baseline(drift: Drift, server: Server) -> None:
    """The run that paged is named; the new level approved, runs of it are no drift; other targets are left alone."""
    elsewhere, other = HistoryKey("vs", "also", "t"), HistoryKey("vs", "night", "u")
    for place in (elsewhere, other):
        remembered(server.client, place)
        drift.count(place, a_run("x", suite=place.suite, target=place.target))
    for name in ("a", "b"):
        drift.count(NIGHT, a_run(name))
    for name in ("c", "d"):
        drift.count(NIGHT, a_run(name, 2))
    (state,) = drift.states(NIGHT)
    assert state.measures["pass_rate"].since == "c"
    assert state.measures["pass_rate"].e >= 1000
    assert state.measures["pass_rate"].change == pytest.approx(-0.7 + 7 / 30)  # d, with 9, 9 and 2 of 10 before it
    untouched = stored(server, other)
    assert sorted(drift.approve(a_run("d", 2))) == [elsewhere, NIGHT]
    assert stored(server, other) == untouched
    (state,) = drift.states(NIGHT)
    assert (state.drifting, state.kind, state.reference, state.runs) == (False, "baseline", "d", 0)
    for name in ("c", "d"):  # they came before
        drift.count(NIGHT, a_run(name, 2))
    for name in ("e", "f"):
        after = drift.count(NIGHT, a_run(name, 2))
    assert after is not None
    assert (after.drifting, after.runs) == (False, 2)
    evidence = stored(server)
    drift.approve(a_run("d", 2))
    assert stored(server) == evidence, "approving the same run again forgets nothing"


def test_a_chain_that_cannot_be_read_is_left_until_a_baseline_is_approved(drift: Drift, server: Server) -> None:
    """Of another form, or damaged: no run overwrites it."""
    drift.count(NIGHT, a_run("a"))
    keys = HistoryKeys.of(NIGHT.member)
    (chain,) = server.client.hkeys(keys.drift)
    for damage in (b"", b"x" * 50, b"(\xb5/\xfd"):
        server.client.hset(keys.drift, chain, damage)
        with pytest.raises(WireError, match="approve a baseline to restart it"):
            drift.count(NIGHT, a_run("b"))
        assert server.client.hget(keys.drift, chain) == damage
        drift.approve(a_run("c"))
        state = drift.count(NIGHT, a_run("b"))
        assert state is not None
        assert state.runs == 1
    assert read_states([b"nothing of ours", b"1 {}", b"x {}", b""]) == []


def test_nothing_is_kept_for_a_history_that_is_gone(drift: Drift, server: Server) -> None:
    """Neither by a run nor by a baseline; and what is forgotten, or makes room, goes with all of its chains."""
    gone = HistoryKey("vs", "gone", "t")
    with pytest.raises(InfrastructureError, match="suite gone has no history"):
        drift.count(gone, a_run("a", suite="gone"))
    assert drift.approve(a_run("a", suite="gone", specification="another")) == []
    assert not server.client.keys("*gone*")
    drift.count(NIGHT, a_run("a"))
    History(server.client, SETTINGS).forget(NIGHT)
    assert not server.client.keys("*night*")
    for suite in ("one", "two", "three", "four"):
        place = HistoryKey("vs", suite, "t")
        remembered(server.client, place)
        drift.count(place, a_run("a", suite=suite))
    assert not server.client.keys('*"one"*')
    assert len(server.client.keys("evalq:history:*:drifting")) == len(server.client.keys("evalq:drift:*")) == 3


def test_specifications_that_are_no_longer_run_make_room(drift: Drift, server: Server) -> None:
    """The newest ones stay, each with a chain of its own."""
    for number in range(CHAINS + 3):
        drift.count(NIGHT, a_run(f"r{number}", specification=f"s{number}"))
    kept = [state.specification for state in drift.states(NIGHT)]
    assert kept == [f"s{number}" for number in range(CHAINS + 2, 2, -1)]
    assert server.client.hlen(HistoryKeys.of(NIGHT.member).drift) == CHAINS


def test_a_clock_that_was_set_back_drops_no_chain_that_was_just_counted(drift: Drift, server: Server) -> None:
    """It is the newest, whatever time the others were counted at: a full list dropped it at once."""
    for number in range(CHAINS):
        drift.count(NIGHT, a_run(f"r{number}", specification=f"s{number}"))
    drifting = HistoryKeys.of(NIGHT.member).drifting
    for chain, text in server.client.hgetall(drifting).items():
        at, shown = text.split(b" ", 1)
        server.client.hset(drifting, chain, b"%d %s" % (int(at) + 3600 * 1_000_000, shown))
    for number in (CHAINS, CHAINS + 1):
        drift.count(NIGHT, a_run(f"r{number}", specification=f"s{number}"))
    assert [state.specification for state in drift.states(NIGHT)] == [f"s{n}" for n in range(CHAINS + 1, 1, -1)]


def test_a_run_without_answers_neither_begins_nor_ends_anything(drift: Drift) -> None:
    """All calls failed: that is no reference, and no drop."""
    assert drift.count(NIGHT, a_run("a", 0, answers=0)) is None
    drift.count(NIGHT, a_run("b"))
    before = drift.states(NIGHT)
    drift.count(NIGHT, a_run("c", 0, answers=0))
    assert drift.states(NIGHT) == before


def test_answers_from_a_cache_are_no_new_evidence(drift: Drift) -> None:
    """Of the run before, an older one or an approved one; a retried run has its own answers, and takes its place."""

    def asked(name: str, numbers: range, passed: int = 9, report: str = "") -> RunCases:
        run = a_run(name, passed, report=report)
        run.usage = RunUsage(sample=list(numbers))
        return run

    for number, name in enumerate("abc"):
        drift.count(NIGHT, asked(name, range(100 * number, 100 * number + 32)))
    before = drift.states(NIGHT)
    assert before[0].runs == 2
    drift.count(NIGHT, asked("d", range(7, 39), 2))
    assert drift.states(NIGHT) == before
    again = drift.count(NIGHT, asked("c", range(200, 232), 8, report="again"))
    assert again is not None
    assert (again.runs, again.run) == (2, "c")
    drift.approve(asked("e", range(400, 432)))
    for name, first in (("f", 0), ("g", 407), ("h", 500)):
        last = drift.count(NIGHT, asked(name, range(first, first + 32)))
    assert last is not None
    assert (last.runs, last.run) == (1, "h")
