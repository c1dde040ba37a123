"""Processes that follow traces, as the exporter shows them: with their counters, until they are forgotten."""

from __future__ import annotations

from prometheus_client.core import Metric

from evalq.producer.lifecycle.prune import forget_suites
from evalq.workers.exporter.collector import FleetMetrics
from evalq.workers.ledger.heartbeats import FollowerFacts, Heartbeats
from evalq.workers.ledger.history import History
from evalq.workers.ledger.keys import SHARED
from evalq.workers.monitor import read_snapshot
from evalq.workers.settings import Settings
from tests.integration.harness import Server

COUNTS = {"traces": 10.0, "left_out": 2.0, "late": 1.0, "unread": 3.0, "removed": 0.0, "passed": 7.0, "failed": 2.0,
          "errors": 1.0, "tool_calls": 20.0, "tool_errors": 4.0, "tokens": 900.0, "cost": 0.5}  # fmt: skip


def facts(suite: str = "shop", every: float = 60.0, lag: float | None = 5.0, **counts: float) -> FollowerFacts:
    """A follower's."""
    return FollowerFacts("host", "checks", suite, every, 4, {**COUNTS, **counts}, lag)


def shown(server: Server) -> dict[str, dict[tuple[str, ...], float]]:
    """{metric: {labels' values: value}} of followed traces."""
    found: dict[str, dict[tuple[str, ...], float]] = {}
    families: list[Metric] = list(
        FleetMetrics(read_snapshot(server.client, Settings(broker=server.url)), 100).collect()
    )
    for sample in (sample for family in families for sample in family.samples):
        if sample.name.startswith("evalq_traces_"):
            found.setdefault(sample.name.removeprefix("evalq_traces_"), {})[tuple(sample.labels.values())] = (
                sample.value
            )
    return found


def test_two_followers_of_a_suite_are_added(server: Server) -> None:
    """Counters are added, the longest lag and age count; one that was ended has no age, and a new beat replaces."""
    heartbeats = Heartbeats(server.client)
    server.client.flushall()
    assert shown(server) == {}
    heartbeats.beat_follower("a", facts())
    heartbeats.beat_follower("b", facts(every=10.0, lag=9.0, traces=1.0))
    heartbeats.beat_follower("c", facts("bank", every=0.0, lag=None))
    found = shown(server)
    assert found["total"] == {("checks", "bank"): 10.0, ("checks", "shop"): 11.0}
    assert found["lag_seconds"] == {("checks", "shop"): 9.0}
    assert found["pass_interval_seconds"] == {("checks", "shop"): 60.0}
    assert found["pass_age_seconds"].keys() == {("checks", "shop")}
    assert 0 <= found["pass_age_seconds"]["checks", "shop"] < 60
    assert found["tool_calls_total"]["checks", "shop", "ok"] == 32.0
    assert found["tool_calls_total"]["checks", "shop", "error"] == 8.0
    assert found["results_total"]["checks", "bank", "errors"] == 1.0
    assert found["skipped_total"]["checks", "bank", "unselected"] == 2.0
    assert found["skipped_total"]["checks", "bank", "removed"] == 0.0
    heartbeats.beat_follower("b", facts(every=0.0, traces=2.0))
    assert shown(server)["total"]["checks", "shop"] == 12.0


def test_a_follower_is_forgotten_with_its_suite_or_after_a_week(server: Server) -> None:
    """Until then an alert can say that it is away; its name goes with its facts."""
    heartbeats, settings = Heartbeats(server.client), Settings(broker=server.url)
    server.client.flushall()
    heartbeats.beat_follower("a", facts())
    heartbeats.beat_follower("b", facts("bank"))
    server.client.sadd(SHARED.followers, "of another time", b"\xff")
    server.client.hset(SHARED.follower + "broken", "facts", "{")
    server.client.sadd(SHARED.followers, "broken")
    assert 6 * 86_400 < server.client.ttl(SHARED.follower + "a") <= 7 * 86_400
    assert heartbeats.followers().keys() == {"a", "b"}
    assert not server.client.sismember(SHARED.followers, "of another time")
    assert shown(server)["waiting"] == {("checks", "bank"): 4.0, ("checks", "shop"): 4.0}
    history = History(server.client, settings)
    said = ["shop: metrics of the traces that host followed"]
    for dry_run in (True, False):
        assert list(forget_suites(history, heartbeats, ["shop"], dry_run=dry_run)) == said
        assert ("a" in heartbeats.followers()) == dry_run
