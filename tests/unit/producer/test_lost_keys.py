"""A server that evicts single keys, or whose clock steps: the run ends with the report of the calm one."""

from __future__ import annotations

from itertools import count
from pathlib import Path

import pytest

from evalq.evalcore.version import code_version
from evalq.workers.ledger.keys import SHARED
from evalq.workers.ledger.runs import RunLedger
from evalq.workers.recovery.reconciler import may_tend
from evalq.workers.settings import Settings
from tests.integration.harness import Server, wait_until
from tests.portions import some
from tests.unit.producer.stage import Stage

HOUR_MS = 3_600_000
PARTS = (
    "meta", "key", "chunks", "digests", "parts", "flight", "leases", "notes", "refused", "blobs", "aside", "sent",
    "final", "failures",
)  # fmt: skip


@pytest.fixture
def stage(server: Server, tmp_path: Path) -> Stage:
    """A stage on an empty server."""
    server.client.flushall()
    return Stage(server, tmp_path, driver_seconds=30)


@pytest.mark.parametrize("messages", ["kept", "lost too"])
@pytest.mark.parametrize("part", some(PARTS, of=3))
def test_any_one_key_of_a_run_may_vanish(stage: Stage, part: str, messages: str) -> None:
    """Deleted in mid-run at three moments, with or without the messages in the queue: equal bytes, and what is shown
    of the run at its end is right again.
    """
    job = stage.job("one", chunk_size=10)
    run = stage.driver(job, "host-a 11 aa")
    client = stage.server.client

    def meanwhile(look: int) -> None:
        if look in (1, 2, 4):
            client.delete(stage.key(job.run, part))
            if messages == "lost too":
                client.delete(f"evalq.bulk.{code_version()}")

    report = run.drive(meanwhile)
    assert run.looks >= 4
    assert report == stage.inline("inline", chunk_size=10)
    progress = stage.ledger.poll(job.run).progress
    assert (progress.state, progress.committed) == ("done", len(job.manifest.chunks))
    assert progress.records == report["records"]["total"]


def test_a_run_that_is_computed_is_on_the_list(stage: Stage) -> None:
    """The list of runs vanishes: a look of the driver, or a claim of a worker, puts the run on it again."""
    job = stage.job("one", chunk_size=10)
    driver = RunLedger(stage.server.client, stage.settings, "host-a 11 aa")
    driver.open(job.header, 1, key=job.key)
    for step in (
        lambda: driver.poll(job.run, attending=True),
        lambda: driver.open(job.header, 2, key=job.key),
    ):
        stage.server.client.delete("evalq:runs")
        assert driver.runs() == {}
        step()
        assert driver.runs() == {job.run: job.header.queue}
    run = stage.driver(stage.job("two", chunk_size=10), "host-a 11 aa")

    def meanwhile(look: int) -> None:
        if look == 2:
            stage.server.client.delete("evalq:runs")
            assert stage.work(1) == 1
            assert run.job.run in stage.ledger.runs()

    run.drive(meanwhile)


def test_what_is_shown_is_what_is_there(stage: Stage) -> None:
    """Counts are of the keys themselves: with its digests gone, nothing is committed; with its chunks gone, none is."""
    job = stage.job("one", chunk_size=10)
    run = stage.driver(job, "host-a 11 aa")
    run.drive()
    count = len(job.manifest.chunks)
    stage.server.client.delete(stage.key(job.run, "digests"))
    progress = stage.ledger.poll(job.run).progress
    assert (progress.committed, progress.chunks, progress.planned) == (0, count, count)
    stage.server.client.delete(stage.key(job.run, "chunks"))
    progress = stage.ledger.poll(job.run).progress
    assert (progress.committed, progress.chunks, progress.planned, progress.complete) == (0, 0, count, False)


def _set_back(stage: Stage, run: str) -> None:
    """Make what is stored look as it does when the server's clock is set back by an hour."""
    client = stage.server.client
    for seq, text in client.hgetall(stage.key(run, "leases")).items():
        deadline, rest = text.split(b" ", 1)
        client.hset(stage.key(run, "leases"), seq, b"%d %s" % (int(deadline) + HOUR_MS, rest))
    for part in ("flight", "sent"):
        for seq, at in client.zrange(stage.key(run, part), 0, -1, withscores=True):
            client.zadd(stage.key(run, part), {seq: at + HOUR_MS})
    at = int(client.hget(stage.key(run, "meta"), "driver_at") or 0)
    client.hset(stage.key(run, "meta"), "driver_at", at + HOUR_MS)


def test_a_clock_set_back_keeps_no_dead_lease_and_no_lost_message(stage: Stage) -> None:
    """With chunks leased to a worker that died and all messages lost, the server's clock is set back by an hour: the
    run ends as soon as it would have without that.
    """
    job = stage.job("one", chunk_size=10)
    run = stage.driver(job, "host-a 11 aa")
    client = stage.server.client

    def meanwhile(look: int) -> None:
        if look == 2:
            held = [int(seq) for seq in client.zrange(stage.key(job.run, "flight"), 0, -1)]
            for seq in held:
                epoch = run.work.ownership.epoch
                assert stage.ledger.claim(job.run, seq, epoch, "dead", 1).status == "leased"
            client.delete(f"evalq.bulk.{code_version()}")
            _set_back(stage, job.run)

    assert run.drive(meanwhile) == stage.inline("inline", chunk_size=10)


def test_a_lease_is_over_when_it_ends_later_than_it_could_have_been_written(stage: Stage) -> None:
    """One that another worker took for ten minutes is live for everybody; one that ends in an hour is for nobody."""
    job = stage.job("one", chunk_size=10)
    run = stage.driver(job, "host-a 11 aa")
    stage.launch(run)
    long = RunLedger(stage.server.client, Settings(broker=stage.server.url, lease_seconds=600))
    assert long.claim(job.run, 0, 1, "slow", 1).status == "leased"
    assert stage.ledger.claim(job.run, 0, 1, "quick", 2).status == "held"
    assert stage.ledger.poll(job.run).leases == 1
    _set_back(stage, job.run)
    assert stage.ledger.poll(job.run).leases == 0
    assert stage.ledger.claim(job.run, 0, 1, "quick", 2).status == "leased"


def test_a_chunk_that_backs_off_does_so_for_half_a_minute_at_most(stage: Stage) -> None:
    """Set back by an hour, the time of its next publication is counted from now."""
    job = stage.job("one", chunk_size=10)
    run = stage.driver(job, "host-a 11 aa")
    stage.launch(run)
    for _ in range(6):
        stage.ledger.mark(job.header, {0: "lost"})
    wait_until(lambda: set(stage.ledger.poll(job.run).suspect) == {1, 2, 3}, "the others are old enough")
    _set_back(stage, job.run)
    wait_until(lambda: 0 in stage.ledger.poll(job.run).suspect, "it is looked for again", seconds=20)


def test_the_lock_of_the_workers_reconciler_ends(stage: Stage) -> None:
    """Its holder keeps it and others wait; one that lasts for an hour, of a worker long dead, is taken by the next."""
    client = stage.server.client
    assert may_tend(client, "w1", 600.0)
    assert not may_tend(client, "w2", 600.0)
    assert may_tend(client, "w1", 600.0)
    client.pexpire(SHARED.reconciler + code_version(), HOUR_MS)
    assert may_tend(client, "w2", 600.0)
    assert not may_tend(client, "w1", 600.0)
    assert client.pttl(SHARED.reconciler + code_version()) <= 600_000


@pytest.mark.parametrize("last", [False, True], ids=["in the middle of its plan", "behind its plan"])
def test_a_server_that_forgets_a_run_that_is_being_left_is_informed_again(
    stage: Stage, monkeypatch: pytest.MonkeyPatch, last: bool
) -> None:
    """It is empty while --detach tells it the plan: what workers are left with is the whole plan, and this ends."""
    job = stage.job("one", chunk_size=10)
    run = stage.driver(job, "host-a 11 aa")
    plan, emptied, asked = run.work.ownership.plan, list[int](), count()
    extend = plan.extend

    def forgetting(ahead: int) -> bool:
        done = extend(ahead)
        if not emptied and (plan.sealed or not last):
            stage.server.client.flushall()
            emptied.append(len(job.manifest.chunks))
        assert next(asked) < 1000, "it is told in vain, again and again"
        return done

    monkeypatch.setattr(plan, "extend", forgetting)
    monkeypatch.setattr("evalq.producer.run.publisher.EVIDENCE_SECONDS", 0.1)
    stage.launch(run)
    run.driver.detach()
    assert emptied
    progress = stage.ledger.poll(job.run).progress
    assert (progress.sealed, progress.chunks) == (True, len(job.manifest.chunks))
