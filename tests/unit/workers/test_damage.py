"""What a co-tenant writes into the ledger, or a backup restored by half: told of the run that it hits, and no other."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
import redis
from redis.exceptions import NoPermissionError

from evalq.evalcore.contract import plugins
from evalq.evalcore.errors import WireError
from evalq.producer.lifecycle.prune import prune
from evalq.workers.broker.publisher import Broker
from evalq.workers.ledger.failures import Failures
from evalq.workers.ledger.heartbeats import Heartbeats
from evalq.workers.ledger.history import Entry, History, HistoryKey
from evalq.workers.ledger.keys import SHARED, HistoryKeys, RunKeys, SweepKeys
from evalq.workers.ledger.runs import RunLedger
from evalq.workers.ledger.sweep_model import SweepHeader
from evalq.workers.ledger.sweeps import SweepLedger
from evalq.workers.monitor import read_snapshot
from evalq.workers.recovery.finaliser import FinishedCases
from evalq.workers.recovery.reconciler import Reconciler
from evalq.workers.recovery.unattended import UnattendedSweeps
from tests.integration.harness import Server
from tests.samples import KEY
from tests.unit.workers.hosts import CHUNKS, HEADER, Hosts

BAD, OTHER, SWEEP = RunKeys.of("r"), RunKeys.of("a"), SweepKeys.of("s")
NO_TEXT = b"\xff\xfe"

_NO_WHOLE_NUMBERS = [b"", b"1e308", b"nan", NO_TEXT]


@pytest.fixture
def hosts(server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Hosts:
    """A run "r" that was left to a fleet of one worker."""
    made = Hosts(server, tmp_path)
    monkeypatch.setattr(plugins, "get", made.get)
    made.add("w")
    made.begin(left=True)
    return made


@pytest.mark.parametrize("value", _NO_WHOLE_NUMBERS)
@pytest.mark.parametrize("field", ["epoch", "records", "driver_at", "state"])
def test_a_damaged_field_is_reported_with_its_keys(hosts: Hosts, server: Server, field: str, value: bytes) -> None:
    """As damage (WireError) that names what to delete, where it was a bug's traceback."""
    server.client.hset(BAD.meta, field, value)
    with pytest.raises(WireError, match=r"Delete its keys there \(evalq:run:\{r\}:\*\), then run evalq resume"):
        hosts.ledger.poll("r")


def test_what_is_lost_or_of_no_chunk_is_reported_too(hosts: Hosts, server: Server) -> None:
    """A run without a state, and a chunk in flight that has no number."""
    server.client.zadd(BAD.flight, {b"junk": 1})
    with pytest.raises(WireError, match="junk"):
        hosts.ledger.poll("r")
    server.client.hdel(BAD.meta, "state")
    with pytest.raises(WireError, match="b'state' is missing"):
        hosts.ledger.poll("r")
    server.client.hset(BAD.notes, "tries 1", b"many")
    with pytest.raises(WireError, match="many"):
        hosts.ledger.notes("r")
    server.client.hset(BAD.meta, "created", b"today")
    with pytest.raises(WireError, match="today"):
        hosts.ledger.created("r")


def test_a_reason_that_is_no_text_is_still_a_reason(hosts: Hosts, server: Server) -> None:
    """It decides nothing, so it is shown as far as it can be."""
    server.client.hset(BAD.meta, "reason", NO_TEXT)
    assert hosts.ledger.poll("r").progress.reason == "\ufffd\ufffd"


@pytest.mark.parametrize("field", ["recorded", "free", "generation", "state"])
def test_a_damaged_sweep_is_reported_with_its_keys(server: Server, hosts: Hosts, field: str) -> None:
    """As that of a run."""
    calls = SweepLedger(server.client, hosts.settings)
    calls.open(SweepHeader("s", "t", "c", 1, 1))
    server.client.hset(SWEEP.meta, field, b"junk")
    with pytest.raises(WireError, match=r"evalq:sweep:\{s\}:\*"):
        calls.poll("s")


@pytest.mark.parametrize("spent", [b"nan", b"inf"])
def test_a_sweep_that_costs_no_number_is_damaged(server: Server, hosts: Hosts, spent: bytes) -> None:
    """Where the folder's notes of it could not be written as JSON."""
    calls = SweepLedger(server.client, hosts.settings)
    calls.open(SweepHeader("s", "t", "c", 1, 1))
    server.client.hset(SWEEP.meta, "spent", spent)
    with pytest.raises(WireError, match=r"the cost is .* calls, and pays for, again"):
        calls.poll("s")


def test_a_sweep_without_a_state_is_damaged(server: Server, hosts: Hosts) -> None:
    """Said in words: a name alone would tell nothing."""
    calls = SweepLedger(server.client, hosts.settings)
    calls.open(SweepHeader("s", "t", "c", 1, 1))
    server.client.hdel(SWEEP.meta, "state")
    with pytest.raises(WireError, match="'state' is missing"):
        calls.poll("s")


def _wrong_type(key: str) -> Callable[[Any], Any]:
    def damage(client: Any) -> None:
        client.delete(key)
        client.set(key, "junk")

    return damage


DAMAGES: dict[str, Callable[[Any], Any]] = {
    "a name on the list": lambda client: client.hset(SHARED.tended, NO_TEXT, b"q"),
    "a queue on the list": lambda client: client.hset(SHARED.tended, b"a", NO_TEXT),
    "no header": lambda client: client.hset(OTHER.meta, "header", b""),
    "an epoch": lambda client: client.hset(OTHER.meta, "epoch", b"junk"),
    "no state": lambda client: client.hset(OTHER.meta, "state", b"junk"),
    "meta": _wrong_type(OTHER.meta),
    "chunks": _wrong_type(OTHER.chunks),
    "flight": _wrong_type(OTHER.flight),
}


@pytest.mark.parametrize("what", DAMAGES)
def test_damage_of_one_run_keeps_no_other_from_its_report(hosts: Hosts, server: Server, what: str) -> None:
    """Workers tend all others, and find those that are complete: nothing else ends a detached run."""
    hosts.ledger.open(msgspec.structs.replace(HEADER, run="a"), 1, key=KEY)
    # The damaged one comes first, since whatever ends the tending keeps those behind it.
    server.client.delete(SHARED.tended)
    server.client.hset(SHARED.tended, mapping={"a": HEADER.queue})
    server.client.hset(SHARED.tended, mapping={"r": HEADER.queue})
    DAMAGES[what](server.client)
    for _ in range(CHUNKS):
        hosts.turn(attending=False)
    assert hosts.reconciler.tend_all() == ["r"]
    assert "r" in hosts.ledger.runs()


def test_a_server_that_refuses_all_is_no_damage_of_one_run(hosts: Hosts, server: Server) -> None:
    """The worker has to say so: its runs are not left alone one by one."""
    server.client.acl_setuser("reader", enabled=True, nopass=True, keys=["*"], commands=["+@read"])
    client: Any = redis.Redis.from_url(server.url, username="reader", password="-")  # noqa: S106 - it has none
    ledger = RunLedger(client, hosts.settings)
    with pytest.raises(NoPermissionError):
        Reconciler(ledger, Broker(hosts.settings)).tend_all()


@pytest.mark.parametrize("part", [part for part in RunKeys._fields if part != "final"])
def test_a_key_of_another_type_hides_nothing_else(hosts: Hosts, server: Server, part: str) -> None:
    """Whatever key of whatever run: the snapshot (status, doctor, the exporter) has all the rest."""
    hosts.ledger.open(msgspec.structs.replace(HEADER, run="a"), 1, key=KEY)
    _wrong_type(getattr(OTHER, part))(server.client)
    snapshot = read_snapshot(server.client, hosts.settings)
    assert snapshot.runs == ({"open": 1, "damaged": 1} if part == "meta" else {"open": 2})
    assert [worker.name for worker in snapshot.workers] == ["w"]


@pytest.mark.parametrize(
    "key", [field for field in SHARED._fields if field not in ("run", "ended", "sweep", "worker", "caller")]
)
def test_a_list_of_another_type_hides_no_other(hosts: Hosts, server: Server, key: str) -> None:
    """Of the whole ledger's own lists: what lies in the others is shown."""
    _wrong_type(getattr(SHARED, key))(server.client)
    snapshot = read_snapshot(server.client, hosts.settings)
    assert snapshot.runs == ({} if key == "tended" else {"open": 1})
    assert len(snapshot.workers) == (0 if key == "workers" else 1)


def test_counts_that_are_no_numbers_count_nothing_in_the_snapshot(hosts: Hosts, server: Server) -> None:
    """A run's, and a sweep's: they are compared and added up."""
    SweepLedger(server.client, hosts.settings).open(SweepHeader("s", "t", "c", 1, 1))
    server.client.hset(BAD.meta, mapping={"chunks": b"junk", "committed": b"many"})
    server.client.hset(SWEEP.meta, mapping={"cursor": b"junk", "total": b"many"})
    snapshot = read_snapshot(server.client, hosts.settings)
    assert (snapshot.runs, snapshot.chunks["committed"]) == ({"open": 1}, 0)


@pytest.mark.parametrize("damage", [
    lambda client: client.hset(SHARED.totals, mapping=dict.fromkeys(client.hgetall(SHARED.totals), b"junk")),
    _wrong_type(SHARED.totals),
])  # fmt: skip
def test_counters_that_are_none_keep_no_answer_back(hosts: Hosts, server: Server, damage: Callable[[Any], Any]) -> None:
    """Each chunk is committed once, and its worker learns that: metrics alone suffer."""
    assert hosts.act("w", 0) == "committed"
    damage(server.client)
    assert [hosts.act("w", seq) for seq in range(1, CHUNKS)] == ["committed"] * (CHUNKS - 1)
    assert hosts.reconciler.tend_all() == ["r"]


def test_a_count_of_tokens_that_is_none_is_no_estimate(hosts: Hosts, server: Server) -> None:
    """Where the mean of a target's calls is asked for."""
    server.client.hset(SHARED.calls, mapping={"answered t": b"junk", "tokens t prompt": b"3"})
    assert SweepLedger(server.client, hosts.settings).mean_tokens("t") == {}


@pytest.mark.parametrize("keys", [BAD, OTHER])
def test_prune_passes_over_what_is_damaged(hosts: Hosts, server: Server, keys: RunKeys, tmp_path: Path) -> None:
    """It cannot tell whether that ended; all others that did are forgotten."""
    hosts.ledger.open(msgspec.structs.replace(HEADER, run="a"), 1, key=KEY)
    for run in ("r", "a"):
        hosts.ledger.close(run, "failed")
    _wrong_type(keys.meta)(server.client)
    messages: list[str] = []
    lines = list(prune(tmp_path, hosts.ledger, None, 0, everyone=True, dry_run=False, warn=messages.append))
    run, other = ("r", "a") if keys is BAD else ("a", "r")
    assert lines == [f"{other}: in the ledger"]
    assert len(messages) == 1
    assert f"run {run}: its data in the ledger is damaged: one of its keys is of another" in messages[0]


@pytest.mark.parametrize("damage", [
    lambda client: client.hset(SHARED.unattended, NO_TEXT, NO_TEXT),
    lambda client: client.hset(SWEEP.meta, "sweep", b"junk"),
    lambda client: client.set(SWEEP.meta, b"junk"),
])  # fmt: skip
def test_a_damaged_sweep_keeps_no_run_from_its_report(
    hosts: Hosts, server: Server, damage: Callable[[Any], Any]
) -> None:
    """Sweeps are asked for at each beat before the runs."""
    left = UnattendedSweeps(SweepLedger(server.client, hosts.settings), hosts.settings)
    server.client.hset(SHARED.unattended, "s", HEADER.code_version)
    damage(server.client)
    assert left.over() == []


def test_a_failure_that_nobody_counted_counts_nothing(hosts: Hosts, server: Server) -> None:
    """Entries that evalq did not write are left out, whatever they begin with."""
    server.client.hset(BAD.failures, mapping={"barren": b"junk", "chunk x w": b"3", "chunk 1 w": b"2"})
    messages = Failures(hosts.ledger).counts("r")
    assert (messages.barren, messages.chunks) == ((0, 0), {1: {"w": 2}})


def test_a_worker_that_is_none_hides_no_other(hosts: Hosts, server: Server) -> None:
    """A name that is no text, and a key of another type; the same of processes that call."""
    server.client.sadd(SHARED.workers, NO_TEXT, "x")
    server.client.set(SHARED.worker + "x", "junk")
    server.client.sadd(SHARED.callers, NO_TEXT, "x")
    server.client.hset(SHARED.caller + "x", "a", "b")
    assert Heartbeats(server.client).workers().keys() == {"w"}
    assert Heartbeats(server.client).callers() == {}


def test_a_history_shows_what_it_can_read(hosts: Hosts, server: Server) -> None:
    """Of the index, of the entries, and in the snapshot where the newest run has no entry."""
    place, history = HistoryKey("vs", "night"), History(server.client, hosts.settings)
    for run in ("one", "two"):
        history.record(Entry(run, place, {"scored": 1}, []))
    keys = HistoryKeys.of(place.member)
    server.client.zadd(SHARED.histories, {b"junk": 1, NO_TEXT: 2})
    server.client.hset(keys.texts, "two", b"junk")
    assert history.all() == [place]
    assert [entry.run for entry in history.entries(place)] == ["one"]
    server.client.lpush(keys.ids, "three")
    assert read_snapshot(server.client, hosts.settings).histories == []


def test_a_damaged_drift_keeps_no_report_back(server: Server, caplog: pytest.LogCaptureFixture) -> None:
    """The worker's log says it, as it does of other trouble with the cases."""
    server.client.set("junk", "junk")

    class Drift:
        def count(self, *_: Any) -> None:
            server.client.hget("junk", "chain")

    counter = FinishedCases(plugins.get("verification"), "r")
    counter.count(Drift(), HistoryKey("verification", "s"), None)  # type: ignore[arg-type] # it asks for nothing else
    assert "run r: it is not counted in the drift of its suite" in caplog.text
