"""What bounds a scrape: one round trip whatever the ledger holds, and a number of series that users cannot raise."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import redis
from prometheus_client.parser import text_string_to_metric_families

from evalq.evalcore.contract.partial import Partial
from evalq.evalcore.model.manifest import Chunk, Header, PlannedInput, Seal
from evalq.workers.exporter.server import Page
from evalq.workers.ledger.history import Drift, Entry, History, HistoryKey
from evalq.workers.ledger.keys import HistoryKeys
from evalq.workers.ledger.runs import RunLedger
from evalq.workers.monitor import read_snapshot
from evalq.workers.settings import Settings
from tests.integration.harness import Server
from tests.samples import KEY
from tests.unit.workers.test_drift_ledger import a_run

SETTINGS = Settings(max_suites=20, max_series=50, histories=30, history_runs=10)


class CountingPool(redis.ConnectionPool):
    """Counts how often a connection is asked for: once a command, once a pipeline."""

    asked = 0

    def get_connection(self, *args: Any, **kwargs: Any) -> Any:
        """A connection, counted."""
        self.asked += 1
        return super().get_connection(*args, **kwargs)


@pytest.fixture(scope="module")
def full(server: Server) -> Server:
    """A ledger with runs of 2,000 suites, histories of 100 suites, and a run of thousands of agents."""
    ledger, history = RunLedger(server.client, SETTINGS), History(server.client, SETTINGS)
    for number in range(2_000):
        header = Header(f"r{number}", "vs", "1", "code", {}, (PlannedInput("x", "x", "x"),), suite=f"s{number}")
        chunk = Chunk(0, 0, 0, 10, 1, 3, "0" * 64)
        ledger.open(header, 1, key=KEY)
        ledger.append(header.run, [chunk], 0, Seal(1, ("s",)))
        ledger.commit(header, chunk, 1, Partial("a" * 64, b"part"), took={"chunk_duration": 0.1})
    for number in range(100):
        agents: list[tuple[str, tuple[str, ...], float]]
        agents = [("evalq_vs_case_tests", (f"agent {i}", "c"), 2.0) for i in range(3_000 if number == 99 else 1)]
        entry = Entry(f"r{number}", HistoryKey("vs", f"s{number}"), {"scored": 1}, agents, digest="d")
        history.record(entry)
    return server


def _scrape(server: Server) -> dict[str, list[Any]]:
    page = Page(lambda before: read_snapshot(server.client, SETTINGS, before=before), SETTINGS.max_series, "here")
    _, text = page.render("")
    return {family.name: family.samples for family in text_string_to_metric_families(text.decode())}


def test_counters_beyond_the_cap_of_suites_are_other(full: Server) -> None:
    """The first 20 suites have counters of their own, the rest one, and no record is lost by that."""
    samples = _scrape(full)["evalq_records_committed"]
    assert len(samples) == 21
    assert sum(sample.value for sample in samples) == 6_000
    assert {s.labels["suite"]: s.value for s in samples}["other"] == 3 * 1_980


def test_a_suite_keeps_its_counter_once_it_has_one(full: Server) -> None:
    """A counter never moves between a suite and other: a new run of an early suite counts there."""
    before = {s.labels["suite"]: s.value for s in _scrape(full)["evalq_records_submitted"]}
    ledger = RunLedger(full.client, SETTINGS)
    for run, suite in (("again-1", "s3"), ("again-2", "s1999")):
        ledger.open(Header(run, "vs", "1", "code", {}, (PlannedInput("x", "x", "x"),), suite=suite), 1, key=KEY)
        ledger.append(run, [Chunk(0, 0, 0, 10, 1, 3, "0" * 64)], 0)
    after = {s.labels["suite"]: s.value for s in _scrape(full)["evalq_records_submitted"]}
    assert {name: after[name] - before[name] for name in after if after[name] != before[name]} == {"s3": 3, "other": 3}


def test_no_metric_has_more_series_than_the_cap(full: Server) -> None:
    """Thousands of agents are the cap and one other, which has the rest; how many were folded is reported."""
    shown = _scrape(full)
    assert max(len(samples) for name, samples in shown.items() if "seconds" not in name) <= SETTINGS.max_series + 1
    agents = shown["evalq_vs_case_tests"]
    assert sum(sample.value for sample in agents) == 2 * (3_000 + 29)
    assert agents[-1].labels == {
        "agent": "other",
        "case": "other",
        "suite": "other",
        "target": "other",
        "ledger": "here",
    }
    assert shown["evalq_series_folded"][0].value >= 3_029 - SETTINGS.max_series


def test_a_scrape_is_one_round_trip(full: Server) -> None:
    """However many runs and histories there are: one pipeline of three commands."""
    pool = CountingPool(port=full.port)
    client = redis.Redis(connection_pool=pool)
    client.ping()
    pool.asked = 0
    full.client.config_resetstat()
    read_snapshot(client, SETTINGS, unacked=True)
    assert pool.asked == 1
    calls = full.client.info("commandstats")
    assert {name: calls[f"cmdstat_{name}"]["calls"] for name in ("eval_ro", "info", "hlen")} == {
        "eval_ro": 1,
        "info": 1,
        "hlen": 1,
    }


def test_histories_that_have_not_changed_are_not_sent_again(full: Server) -> None:
    """The next look takes them from the one before, and a run that ends or is tried again is seen at once."""
    history = History(full.client, SETTINGS)
    first = read_snapshot(full.client, SETTINGS)
    second = read_snapshot(full.client, SETTINGS, before=first)
    assert second.histories is first.histories
    for digest in ("new", "again"):
        history.record(Entry("later", HistoryKey("vs", "s99"), {"scored": 1}, [], digest=digest))
        third = read_snapshot(full.client, SETTINGS, before=second)
        assert third.histories[0].entry.digest == digest
        assert third.histories == read_snapshot(full.client, SETTINGS).histories
        second = third


def test_a_page_shows_a_new_run_in_either_format(full: Server) -> None:
    """What is rendered once for a version of the histories is rendered anew for the next."""
    page = Page(lambda before: read_snapshot(full.client, SETTINGS, before=before), SETTINGS.max_series, "here")
    for number, accept in enumerate(("", "application/openmetrics-text", "", "application/openmetrics-text")):
        place = HistoryKey("selfcheck", "pages")
        entry = Entry(f"p{number}", place, {"scored": number}, [("evalq_selfcheck_passed", (), number)], digest="d")
        History(full.client, SETTINGS).record(entry)
        for _ in range(2):
            assert (
                f'evalq_selfcheck_passed{{ledger="here",suite="pages",target=""}} {number}.0'
                in page.render(accept)[1].decode()
            )


def test_what_is_no_entry_is_left_out(full: Server) -> None:
    """Something else in a history's place takes nothing from the others."""
    before = len(read_snapshot(full.client, SETTINGS).histories)
    full.client.zadd("evalq:histories", {'["vs","odd",""]': 1e18})
    full.client.lpush('evalq:history:["vs","odd",""]', "r")
    for text in ("nonsense", "d x {}", 'd 1 {"run": 3}'):
        full.client.hset('evalq:history:["vs","odd",""]:texts', "r", text)
        assert len(read_snapshot(full.client, SETTINGS).histories) == before


def test_drift_is_shown_as_soon_as_it_is_counted_and_as_long_as_its_specification_is_run(server: Server) -> None:
    """A run is counted after its history has it: the next look sees that; ten runs later nobody waits for it."""
    server.client.flushall()
    place, history = HistoryKey("vs", "drifts", "t"), History(server.client, SETTINGS)

    def ended(number: int, passed: int, specification: str = "s") -> None:
        run = a_run(f"d{number}", passed, suite="drifts", specification=specification)
        history.record(Entry(run.run, place, {"scored": 1}, []))
        seen.append(read_snapshot(server.client, SETTINGS, before=seen[-1]))
        Drift(server.client, SETTINGS).count(place, run)
        seen.append(read_snapshot(server.client, SETTINGS, before=seen[-1]))

    seen = [read_snapshot(server.client, SETTINGS)]
    for number, passed in enumerate((9, 9, 2)):
        ended(number, passed)
        (state,) = seen[-1].histories[0].drift
        assert (state.run, state.drifting) == (f"d{number}", passed == 2)
    samples = _scrape(server)["evalq_drift"]
    labels = {"ledger": "here", "evaluator": "vs", "suite": "drifts", "target": "t", "measure": "pass_rate"}
    assert [(sample.labels, sample.value) for sample in samples] == [(labels, 1.0)]
    for number in range(10):
        assert "s" in {state.specification for state in seen[-1].histories[0].drift}
        ended(10 + number, 9, "changed")
    assert {state.specification for state in seen[-1].histories[0].drift} == {"changed"}
    server.client.hset(HistoryKeys.of(place.member).drifting, "odd", "nonsense")
    assert len(read_snapshot(server.client, SETTINGS).histories[0].drift) == 1


@pytest.mark.parametrize(
    "accept", ["application/openmetrics-text; version=x", "text/plain; version=a;escaping=b", ";,"]
)
def test_an_accept_header_that_makes_no_sense_gets_the_plain_format(full: Server, accept: str) -> None:
    """Whatever a client sends, it is answered."""
    page = Page(lambda before: read_snapshot(full.client, SETTINGS, before=before), SETTINGS.max_series, "here")
    kind, text = page.render(accept)
    assert kind.startswith("text/plain")
    assert b'evalq_ledger_up{ledger="here"} 1.0' in text


@pytest.mark.parametrize("source", ["import sys; sys.exit(0)", "1 / 0", "raise MemoryError"])
def test_a_plug_in_takes_no_other_metrics_along(
    source: str, server: Server, tmp_path: Path, register: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever ends its import: a page that stays away at each scrape would hide the whole deployment."""
    module = f"odd_{len(source)}"
    (tmp_path / f"{module}.py").write_text(source)
    monkeypatch.syspath_prepend(tmp_path)
    register(("odd", f"{module}:evaluator"))
    assert _scrape(server)["evalq_ledger_up"][0].value == 1
