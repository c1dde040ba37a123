"""The history of finished runs, on a real server."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from evalq.evalcore.contract import plugins
from evalq.workers.ledger.history import Entry, History, HistoryKey, entry_of
from evalq.workers.ledger.keys import SHARED
from evalq.workers.monitor import read_snapshot
from evalq.workers.settings import Settings
from tests.integration.harness import Server

NIGHT = HistoryKey("vs", "night", "")


@pytest.fixture
def history(server: Server) -> History:
    """Room for 10 runs of 3 suites, emptied."""
    server.client.flushall()
    return History(server.client, Settings(history_runs=10, histories=3))


def _dump(server: Server) -> dict[bytes, bytes]:
    names: list[bytes] = server.client.keys("*")
    return {name: server.client.dump(name) for name in names}


def _entry(run: str, place: HistoryKey = NIGHT, digest: str = "d", value: float = 0.5) -> Entry:
    return Entry(run, place, {"scored": 3}, [("evalq_vs_diversity", (), value)], 1.5, {"k": "v"}, digest)


def test_runs_come_back_newest_first_with_the_time_of_the_server(history: History, server: Server) -> None:
    """What was recorded is what is read, and its end is between two looks at the server's clock."""
    before = server.client.time()[0]
    for run in "abc":
        assert history.record(_entry(run))
    found = history.entries(NIGHT)
    assert [entry.run for entry in found] == ["c", "b", "a"]
    assert [entry.run for entry in history.entries(NIGHT, 2)] == ["c", "b"]
    assert all(before <= entry.ended <= server.client.time()[0] + 1 for entry in found)
    assert msgspec.structs.replace(found[0], ended=0.0) == _entry("c")


def test_finishing_twice_adds_one_entry(history: History, server: Server) -> None:
    """The same answer again changes nothing at all, wherever in the list it stands."""
    for run in ("a", "b"):
        history.record(_entry(run))
    before = _dump(server)
    assert not history.record(_entry("a"))
    assert not history.record(_entry("b"))
    assert _dump(server) == before


def test_a_retried_run_replaces_its_entry(history: History) -> None:
    """Another answer of the same run takes the place of the first, and the order stays."""
    for run in ("a", "b"):
        history.record(_entry(run))
    assert history.record(_entry("a", digest="e", value=0.75))
    assert [(entry.run, entry.digest) for entry in history.entries(NIGHT)] == [("b", "d"), ("a", "e")]


def test_a_list_is_capped_and_leaves_nothing_behind(history: History, server: Server) -> None:
    """Of 25 runs the last 10 stay, in all of the history's keys."""
    for run in range(25):
        history.record(_entry(f"r{run:02}"), ["evalq_vs_diversity"])
    assert [entry.run for entry in history.entries(NIGHT)] == [f"r{run}" for run in range(24, 14, -1)]
    kept = [server.client.hlen(key) for key in server.client.keys("evalq:history:*:*")]
    assert kept == [10, 10]


def test_the_oldest_history_makes_room(history: History, server: Server) -> None:
    """Beyond the cap of suites, the one that was added to longest ago goes, with all of its keys."""
    for suite in ("one", "two", "three", "one", "four"):
        history.record(_entry(f"run of {suite} {server.client.incr('n')}", HistoryKey("vs", suite, "t")))
    assert {place.suite for place in history.all()} == {"one", "three", "four"}
    assert history.all()[0] == HistoryKey("vs", "four", "t")
    assert not server.client.keys('evalq:history:*"two"*')
    assert server.client.zcard(SHARED.histories) == 3


def test_a_clock_that_was_set_back_hides_and_drops_no_history(history: History, server: Server) -> None:
    """What is added is the newest, whatever time the others were added at: it is shown at once, and it stays."""
    for suite in ("one", "two", "three"):
        history.record(_entry(f"run of {suite}", HistoryKey("vs", suite, "t")))
    for member, score in server.client.zrange(SHARED.histories, 0, -1, withscores=True):
        server.client.zadd(SHARED.histories, {member: score + 3600 * 1_000_000})
    before = read_snapshot(server.client, Settings())
    history.record(_entry("again", HistoryKey("vs", "two", "t")))
    shown = read_snapshot(server.client, Settings(), before=before)
    assert {newest.entry.run for newest in shown.histories} == {"run of one", "again", "run of three"}
    history.record(_entry("run of four", HistoryKey("vs", "four", "t")))
    assert [place.suite for place in history.all()] == ["four", "two", "three"]


def test_a_history_outlives_its_runs(history: History, server: Server) -> None:
    """None of its keys expires: they are the capped ones among the ledger's keys that may stay."""
    history.record(_entry("a"))
    assert [server.client.pttl(key) for key in server.client.keys("evalq:*")] == [-1] * 4


def test_names_of_suites_cannot_reach_another_history(history: History) -> None:
    """Quotes, brackets and separators in a suite's name are part of its name."""
    odd = [HistoryKey("vs", 'a","b', ""), HistoryKey("vs", "a", "b"), HistoryKey("vs", ":texts", "")]
    for number, place in enumerate(odd):
        history.record(_entry(f"r{number}", place))
    assert [[entry.run for entry in history.entries(place)] for place in odd] == [["r0"], ["r1"], ["r2"]]


def test_an_entry_has_the_declared_samples_of_its_report(tmp_path: Any) -> None:
    """The values are those that the evaluator's metrics read out of the report."""
    report = {"records": {"total": 2, "scored": 2}, "results": {"pass_rate": 0.5, "passed": 1}}
    entry = entry_of(plugins.get("selfcheck"), "r", HistoryKey("selfcheck", "s"), report, 2.0, {})
    assert entry.samples == [("evalq_selfcheck_pass_rate", (), 0.5), ("evalq_selfcheck_passed", (), 1.0)]
    assert entry.records == {"total": 2, "scored": 2}
    assert len(entry.digest) == 64
