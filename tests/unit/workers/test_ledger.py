"""The ledger's rules, step by step, on a real server."""

from __future__ import annotations

import msgspec
import pytest
import redis
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from evalq.evalcore.contract.partial import Partial
from evalq.evalcore.errors import Incomplete, WireError
from evalq.evalcore.model.manifest import Chunk, Header, PlannedInput, Seal
from evalq.evalcore.version import code_version
from evalq.workers.broker.publisher import Broker
from evalq.workers.ledger.heartbeats import Heartbeats
from evalq.workers.ledger.keys import SHARED, RunKeys
from evalq.workers.ledger.progress import KEPT
from evalq.workers.ledger.runs import RunLedger
from evalq.workers.recovery.reconciler import Reconciler
from evalq.workers.settings import Settings
from tests.integration.harness import Server, wait_until
from tests.samples import KEY

ANSWER = Partial("a" * 64, b"part")
OTHER = Partial("b" * 64, b"another part")


@pytest.fixture
def ledger(server: Server) -> RunLedger:
    """A ledger with times that no test reaches, emptied."""
    server.client.flushall()
    return RunLedger(server.client, Settings(lease_seconds=600, grace_seconds=600, window=3))


@pytest.fixture
def brief(server: Server) -> RunLedger:
    """The same ledger, seen by one for whom leases are over and messages old at once."""
    return RunLedger(server.client, Settings(lease_seconds=0.2, grace_seconds=0.05, window=3))


def _header(run: str = "r") -> Header:
    return Header(run, "planagent", "1", code_version(), {}, (PlannedInput("x.csv", "x.csv", "x.csv"),))


def _chunks(count: int) -> list[Chunk]:
    return [Chunk(seq, 0, seq * 10, seq * 10 + 10, seq + 1, 1, f"{seq:064}") for seq in range(count)]


def _begin(ledger: RunLedger, count: int = 5, run: str = "r") -> list[Chunk]:
    ledger.open(_header(run), 1, key=KEY)
    ledger.append(run, _chunks(count), 0, Seal(count, ("s",)))
    return _chunks(count)


def test_the_first_commit_wins_and_the_same_again_is_a_duplicate(ledger: RunLedger) -> None:
    """One digest is stored for a chunk; the same answer again changes no counter but duplicates."""
    chunk = _begin(ledger)[0]
    assert ledger.commit(_header(), chunk, 1, ANSWER) == "committed"
    assert ledger.commit(_header(), chunk, 1, ANSWER) == "duplicate"
    progress = ledger.poll("r").progress
    assert (progress.committed, progress.records, progress.duplicates) == (1, 1, 1)
    assert ledger.collect("r", [0, 1]) == [ANSWER, None]


def test_another_answer_is_divergent_and_kept_aside(ledger: RunLedger, server: Server) -> None:
    """The stored answer stays, the other is kept, and the run is failed with the chunk named."""
    chunk = _begin(ledger)[2]
    ledger.commit(_header(), chunk, 1, ANSWER)
    assert ledger.commit(_header(), chunk, 1, OTHER) == "divergent"
    progress = ledger.poll("r").progress
    assert (progress.state, progress.divergent) == ("failed", 1)
    assert "chunk 2" in progress.reason
    assert ledger.collect("r", [2]) == [ANSWER]
    assert server.client.hgetall("evalq:run:{r}:aside") == {b"2 " + b"b" * 64: b"another part"}


def test_the_digest_outlives_the_part(ledger: RunLedger) -> None:
    """A trimmed part is gone, but its chunk stays committed: a late doubled message computes nothing."""
    chunk = _begin(ledger)[0]
    ledger.commit(_header(), chunk, 1, ANSWER)
    ledger.trim("r", [0])
    assert ledger.collect("r", [0]) == [Partial(ANSWER.digest, b"")]
    assert ledger.claim("r", 0, 1, "w", 1).status == "committed"
    assert ledger.commit(_header(), chunk, 1, OTHER) == "divergent"


def test_an_old_epoch_is_stale(ledger: RunLedger) -> None:
    """After a restart neither the claims nor the commits of the epoch before count."""
    chunk = _begin(ledger)[0]
    assert ledger.open(_header(), 2, key=KEY) == 2
    assert ledger.claim("r", 0, 1, "w", 1).status == "stale"
    assert ledger.commit(_header(), chunk, 1, ANSWER) == "stale"
    assert ledger.poll("r").progress.committed == 0
    assert ledger.open(_header(), 1, key=KEY) == 2, "an epoch is never lowered"


def test_a_lease_keeps_others_away_until_it_dies(ledger: RunLedger, brief: RunLedger) -> None:
    """A claimed chunk is held; when its holder falls silent for the lease's length, another gets it."""
    _begin(ledger)
    assert ledger.claim("r", 0, 1, "w1", 11).status == "leased"
    held = ledger.claim("r", 0, 1, "w2", 22)
    assert (held.status, held.holder, held.holder_pid) == ("held", "w1", 11)
    assert ledger.renew("r", 0, "w1", 11)
    assert not ledger.renew("r", 0, "w2", 22)
    assert brief.renew("r", 0, "w1", 11)
    wait_until(lambda: ledger.claim("r", 0, 1, "w2", 22).status == "leased", "the lease dies")
    assert not ledger.renew("r", 0, "w1", 11)


def test_deaths_are_counted_by_who_died(ledger: RunLedger, brief: RunLedger) -> None:
    """A lease that died under a living worker is an attempt; with its whole worker, a loss."""
    _begin(ledger)
    Heartbeats(ledger.client).beat("alive", {"code": "code"}, 600)
    ledger.claim("r", 0, 1, "alive", 11)
    brief.claim("r", 1, 1, "gone", 11)
    assert ledger.claim("r", 0, 1, "alive", 12, dead_pid=11).status == "leased", "a sibling takes over at once"
    wait_until(lambda: ledger.claim("r", 1, 1, "alive", 13).status == "leased", "the lost worker's lease dies")
    assert ledger.notes("r") == {"attempts 0": 1, "losses 1": 1}


def test_the_window_bounds_what_is_in_flight(ledger: RunLedger) -> None:
    """Never more than the window is published at once; a commit makes room."""
    chunks = _begin(ledger, 5)
    assert ledger.take("r") == [0, 1, 2]
    assert ledger.take("r") == []
    ledger.commit(_header(), chunks[1], 1, ANSWER)
    assert ledger.take("r") == [3]


def test_a_restart_publishes_only_what_is_missing(ledger: RunLedger) -> None:
    """After a higher epoch the cursor starts over and skips what is committed."""
    chunks = _begin(ledger, 5)
    ledger.take("r")
    ledger.commit(_header(), chunks[1], 1, ANSWER)
    ledger.open(_header(), 2, key=KEY)
    assert ledger.restore("r", [(0, "d" * 64, 1), (1, "a" * 64, 1)]) == 1
    assert ledger.take("r") == [2, 3, 4]


def test_what_is_restored_leaves_the_window(ledger: RunLedger) -> None:
    """A worker's reconciler publishes before the producer has restored what it holds: the window has room again."""
    _begin(ledger)
    assert ledger.take("r") == [0, 1, 2]
    assert ledger.restore("r", [(seq, "d" * 64, 1) for seq in range(3)]) == 3
    assert ledger.take("r") == [3, 4]
    assert set(ledger.poll("r").suspect) <= {3, 4}


def test_suspects_are_what_is_published_without_a_living_lease(ledger: RunLedger, brief: RunLedger) -> None:
    """Leased, committed and young chunks are not suspect; a dead lease and a lost message are, by name."""
    chunks = _begin(ledger, 5)
    ledger.take("r")
    assert ledger.poll("r").suspect == {}
    ledger.claim("r", 0, 1, "w", 1)
    ledger.commit(_header(), chunks[1], 1, ANSWER)
    wait_until(lambda: brief.poll("r").suspect == {2: "lost"}, "the message is old enough")
    assert brief.renew("r", 0, "w", 1)
    wait_until(lambda: brief.poll("r").suspect == {0: "lease_died", 2: "lost"}, "both are noticed")


def test_marking_backs_off_and_counts(ledger: RunLedger, brief: RunLedger, server: Server) -> None:
    """A chunk published again is no suspect for a while, and totals say why it was."""
    chunks = _begin(ledger, 2)
    ledger.take("r")
    wait_until(lambda: brief.poll("r").suspect, "the messages are old enough")
    ledger.commit(_header(), chunks[1], 1, ANSWER)
    assert ledger.mark(_header(), {0: "lost", 1: "lost"}) == [0], "a committed one is not wanted any more"
    for _ in range(5):
        ledger.mark(_header(), {0: "lost"})
    assert brief.poll("r").suspect == {}, "the sixth time waits thirty seconds"
    assert server.client.hget(SHARED.totals, "reconciled planagent default lost") == b"6"


def test_every_fact_that_a_run_keeps_is_seen(ledger: RunLedger, server: Server) -> None:
    """A counter that a step adds to is shown by its field of Progress alone."""
    _begin(ledger)
    counts = {name: 100 + number for number, name in enumerate(KEPT) if name not in ("state", "reason", "epoch")}
    server.client.hset(RunKeys.of("r").meta, mapping=counts)
    progress = ledger.poll("r").progress
    assert {name: getattr(progress, name) for name in counts} == counts
    assert (progress.state, progress.chunks, progress.planned) == ("open", 5, 5)


def test_a_refused_chunk_waits_for_its_bytes(ledger: RunLedger) -> None:
    """Refusal takes it out of flight; supplying puts it back with the blob, which goes with the commit."""
    chunks = _begin(ledger, 1)
    ledger.take("r")
    ledger.refuse("r", 0, 1, "unreadable", "w")
    look = ledger.poll("r")
    assert (look.refused, look.suspect) == ({0: "unreadable"}, {})
    assert ledger.supply("r", 0, b"bytes")
    assert ledger.poll("r").refused == {}
    assert ledger.claim("r", 0, 1, "w", 1).blob == b"bytes"
    ledger.commit(_header(), chunks[0], 1, ANSWER)
    assert not ledger.supply("r", 0, b"bytes"), "nobody needs it any more"


def test_done_needs_every_chunk_and_happens_once(ledger: RunLedger) -> None:
    """A run is done only when sealed and all committed; the first closing state stays."""
    chunks = _begin(ledger, 2)
    ledger.commit(_header(), chunks[0], 1, ANSWER)
    assert ledger.close("r", "done") == "open"
    ledger.commit(_header(), chunks[1], 1, ANSWER)
    assert ledger.close("r", "done") == "done"
    assert ledger.close("r", "cancelled") == "done"


def test_a_closed_run_gives_no_work(ledger: RunLedger) -> None:
    """After a pause nothing is published, claimed or committed; a higher epoch opens it again, but no cancelled one."""
    chunk = _begin(ledger)[0]
    ledger.close("r", "paused", "by hand")
    assert ledger.take("r") == []
    assert ledger.claim("r", 0, 1, "w", 1).status == "closed"
    assert ledger.commit(_header(), chunk, 1, ANSWER) == "closed"
    ledger.open(_header(), 2, key=KEY)
    assert ledger.take("r") == [0, 1, 2]
    ledger.close("r", "cancelled", "by hand")
    ledger.open(_header(), 3, key=KEY)
    assert ledger.take("r") == []


def test_a_refusal_takes_no_chunk_from_who_computes_it(ledger: RunLedger, brief: RunLedger) -> None:
    """A worker that stood still wakes up and cannot read a chunk, which another one has claimed and reads."""
    _begin(ledger)
    assert ledger.take("r") == [0, 1, 2]
    brief.claim("r", 0, 1, "slow", 1)
    wait_until(lambda: ledger.claim("r", 0, 1, "quick", 2).status == "leased", "its lease is over")
    ledger.refuse("r", 0, 1, "unreadable", "slow")
    assert ledger.renew("r", 0, "quick", 2)
    look = ledger.poll("r")
    assert (look.leases, look.refused) == (1, {})
    ledger.refuse("r", 0, 1, "unreadable", "quick")
    look = ledger.poll("r")
    assert (look.leases, look.refused) == (0, {0: "unreadable"})


def test_every_key_of_a_run_expires(ledger: RunLedger, server: Server) -> None:
    """Whatever steps a run takes, no key with its id is without an expiry, from its creation."""
    chunks = _begin(ledger, 4, run="unique-run")
    ledger.take("unique-run")
    ledger.claim("unique-run", 0, 1, "w", 1)
    ledger.refuse("unique-run", 1, 1, "unreadable", "w")
    ledger.supply("unique-run", 1, b"b")
    header = _header("unique-run")
    ledger.commit(header, chunks[2], 1, ANSWER)
    ledger.commit(header, chunks[2], 1, OTHER)
    keys = [key for key in server.client.keys("*") if b"unique-run" in key]
    assert len(keys) >= 8
    assert all(server.client.pttl(key) > 0 for key in keys)


def _left(server: Server, run: str) -> int:
    """Milliseconds until the first of a run's keys expires."""
    return min(int(server.client.pttl(key)) for key in server.client.keys("*") if run.encode() in key)


def _age(server: Server, run: str) -> None:
    for key in server.client.keys("*"):
        if run.encode() in key:
            server.client.pexpire(key, 60_000)


def test_only_what_moves_a_run_on_keeps_it(ledger: RunLedger, server: Server) -> None:
    """Workers look at runs every few seconds: one that is done, or that nobody goes on with, expires all the same."""
    (chunk,) = _begin(ledger, 1, run="done-run")
    _begin(ledger, 2, run="open-run")
    reconciler = Reconciler(ledger, Broker(Settings(broker=server.url)))
    assert ledger.take("done-run") == [0]
    ledger.claim("done-run", 0, 1, "w", 1)
    ledger.commit(_header("done-run"), chunk, 1, ANSWER)
    ledger.close("done-run", "done")
    reconciler.tend_all()
    assert server.client.llen(_header().queue) == 2, "what nobody was told of is published"
    for run in ("done-run", "open-run"):
        _age(server, run)
    for _ in range(3):
        reconciler.tend_all()
        for run in ("done-run", "open-run"):
            ledger.poll(run)
            assert ledger.take(run) == []
            assert _left(server, run) <= 60_000
    ledger.claim("open-run", 0, 1, "w", 1)
    assert _left(server, "open-run") > 60_000
    _age(server, "open-run")
    ledger.poll("open-run", attending=True)
    assert _left(server, "open-run") > 60_000


def test_a_worker_that_ends_keeps_no_run_but_those_that_it_computed(ledger: RunLedger, server: Server) -> None:
    """Each asks every run for its leases: in a fleet that grows and shrinks no run would ever expire."""
    for run in ("held-run", "other-run"):
        _begin(ledger, run=run)
    ledger.claim("held-run", 0, 1, "w", 1)
    for run in ("held-run", "other-run"):
        _age(server, run)
    ledger.give_back("w")
    assert _left(server, "other-run") <= 60_000
    assert _left(server, "held-run") > 60_000


def test_a_damaged_run_stops_the_tending_of_no_other(ledger: RunLedger, server: Server) -> None:
    """What somebody else wrote into one run's header is left alone, and the runs behind it are published."""
    for run in ("a", "b", "c"):
        _begin(ledger, 1, run=run)
    server.client.hset("evalq:run:{a}:meta", "header", b"{}")
    server.client.hset("evalq:run:{b}:meta", "header", b"\xff")
    assert Reconciler(ledger, Broker(Settings(broker=server.url))).tend_all() == []
    assert server.client.llen(_header().queue) == 1


def test_runs_of_other_code_are_left_to_its_own_workers(ledger: RunLedger, server: Server) -> None:
    """Nobody here could compute what is published again; each version has its own lock, so that all are tended."""
    other = msgspec.structs.replace(_header("other"), code_version="other")
    ledger.open(other, 1, key=KEY)
    ledger.append("other", _chunks(2), 0, Seal(2, ("s",)))
    _begin(ledger, 1, run="mine")
    assert Reconciler(ledger, Broker(Settings(broker=server.url))).tend_all() == []
    assert (server.client.llen(other.queue), server.client.llen(_header().queue)) == (0, 1)


def test_expired_runs_are_forgotten(ledger: RunLedger, server: Server) -> None:
    """The list of runs leaves out those whose keys are gone, and whoever tends runs drops their names.

    Listing writes nothing, so that who may only read can list.
    """
    _begin(ledger, run="one")
    _begin(ledger, run="two")
    server.client.delete("evalq:run:{one}:meta")
    server.client.acl_setuser("reader", enabled=True, nopass=True, keys=["evalq:*"], categories=["-@all", "+@read"])
    reader = redis.Redis(port=server.port, username="reader", password="")
    assert set(RunLedger(reader, Settings()).runs()) == {"two"}
    reader.close()
    assert set(server.client.hkeys("evalq:runs")) == {b"one", b"two"}
    assert ledger.runs_to_tend() == ["two"]
    assert server.client.hkeys("evalq:runs") == [b"two"]
    with pytest.raises(Incomplete, match="one"):
        ledger.poll("one")


def test_what_is_not_a_header_is_refused(ledger: RunLedger, server: Server) -> None:
    """A forged or damaged header raises WireError, with unknown keys refused too."""
    server.client.hset("evalq:run:{r}:meta", "header", b'{"run": "r", "evaluator": ["os"], "extra": 1}')
    with pytest.raises(WireError):
        ledger.header("r")


STEPS = st.lists(
    st.tuples(st.sampled_from(["claim", "commit", "again", "take", "mark"]), st.integers(0, 5), st.integers(1, 3)),
    max_size=40,
)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(steps=STEPS)
def test_any_order_of_steps_commits_each_chunk_once(ledger: RunLedger, steps: list[tuple[str, int, int]]) -> None:
    """Claims, commits, restarts and marks in any order: counters equal the set of chunks ever committed."""
    ledger.client.flushall()
    done: set[int] = set()
    chunks, header = _begin(ledger, 6), _header()
    for step, seq, worker in steps:
        if step == "claim":
            assert (ledger.claim("r", seq, 1, f"w{worker}", worker).status == "committed") == (seq in done)
        elif step == "take":
            assert not set(ledger.take("r")) & done
        elif step == "mark":
            assert not set(ledger.mark(header, {seq: "lost"})) & done
        else:
            expected = "duplicate" if seq in done else "committed"
            assert ledger.commit(header, chunks[seq], 1, Partial(f"{seq:064}", b"p")) == expected
            done.add(seq)
    progress = ledger.poll("r").progress
    assert (progress.committed, progress.records) == (len(done), len(done))


def test_workers_are_seen_while_they_beat(ledger: RunLedger, server: Server) -> None:
    """A beat puts a worker on the list; silence or leaving takes it off."""
    Heartbeats(ledger.client).beat("w1", {"code": "c", "pid": 7}, 600)
    Heartbeats(ledger.client).beat("w2", {"code": "c"}, 0.05)
    assert Heartbeats(ledger.client).workers()["w1"] == {"code": "c", "pid": "7"}
    wait_until(lambda: set(Heartbeats(ledger.client).workers()) == {"w1"}, "the silent one is gone")
    ledger.give_back("w1")
    Heartbeats(ledger.client).leave("w1")
    assert Heartbeats(ledger.client).workers() == {}
    assert server.client.scard("evalq:workers") == 0


def test_a_worker_that_leaves_gives_back_its_leases_and_no_others(ledger: RunLedger) -> None:
    """Its chunks can be claimed at once, nothing counts as a death, and another's lease stands."""
    _begin(ledger)
    Heartbeats(ledger.client).beat("leaving", {"pid": 1}, 600)
    ledger.claim("r", 0, 1, "leaving", 1)
    ledger.claim("r", 1, 1, "staying", 2)
    ledger.give_back("leaving")
    Heartbeats(ledger.client).leave("leaving")
    assert ledger.claim("r", 0, 1, "staying", 3).status == "leased"
    assert ledger.claim("r", 1, 1, "other", 4).status == "held"
    assert ledger.notes("r") == {}
    assert "leaving" not in Heartbeats(ledger.client).workers()


def test_a_worker_lost_while_it_tried_a_piece_is_held_against_the_piece(ledger: RunLedger, brief: RunLedger) -> None:
    """The piece counts it beside the chunk; a piece that was answered bears nothing later."""
    _begin(ledger)
    brief.claim("r", 0, 1, "w", 1)
    ledger.trying("r", 0, "0-5")
    wait_until(lambda: brief.claim("r", 0, 1, "x", 2).status == "leased", "the lease dies")
    assert ledger.crashes_by_piece("r", 0) == {"0-5": 1}
    wait_until(lambda: ledger.claim("r", 0, 1, "y", 3).status == "leased", "the lease dies")
    assert ledger.crashes_by_piece("r", 0) == {"0-5": 1}
    assert ledger.notes("r")["losses 0"] == 2


def test_a_claim_tells_how_often_the_chunk_has_killed(ledger: RunLedger) -> None:
    """Deaths of processes while their worker lived, and of whole workers, apart."""
    _begin(ledger)
    Heartbeats(ledger.client).beat("w", {"pid": 1}, 600)
    for pid in range(1, 4):
        lease = ledger.claim("r", 0, 1, "w", pid, dead_pid=pid - 1)
    assert (lease.attempts, lease.losses) == (2, 0)


def test_an_answer_with_dead_records_contradicts_no_other(ledger: RunLedger) -> None:
    """Whichever comes first stays, and the other is a duplicate; only two full answers can diverge."""
    first, second = _begin(ledger)[:2]
    assert ledger.commit(_header(), first, 1, ANSWER, dead=1) == "committed"
    assert ledger.commit(_header(), first, 1, OTHER) == "duplicate"
    assert ledger.commit(_header(), second, 1, ANSWER) == "committed"
    assert ledger.commit(_header(), second, 1, OTHER, dead=1) == "duplicate"
    progress = ledger.poll("r").progress
    assert (progress.state, progress.dead, progress.divergent) == ("open", 1, 0)


def test_a_reopened_run_lacks_the_named_answers_and_counts_no_record_twice(ledger: RunLedger, server: Server) -> None:
    """State open, chunk 1 uncommitted; after its new answer the fleet's counters stand at one for each record."""
    chunks = _begin(ledger, 2)
    ledger.commit(_header(), chunks[0], 1, ANSWER)
    ledger.commit(_header(), chunks[1], 1, ANSWER, dead=1)
    assert ledger.close("r", "done") == "done"
    assert ledger.reopen("r", [(1, 1, 1)])
    progress = ledger.poll("r").progress
    assert (progress.state, progress.committed, progress.dead) == ("open", 1, 0)
    ledger.open(_header(), 2, key=KEY)
    assert ledger.commit(_header(), chunks[1], 2, OTHER) == "committed"
    totals = server.client.hgetall(SHARED.totals)
    assert totals[b"records planagent default"] == b"2"
    assert totals[b"dead planagent default"] == b"1"
    assert not ledger.reopen("unknown", [])


def test_entries_behind_a_gap_are_not_taken(ledger: RunLedger) -> None:
    """A server that lost entries says how many it has, and takes no seal before it has them all."""
    ledger.open(_header(), 1, key=KEY)
    chunks = _chunks(5)
    assert ledger.append("r", chunks[:2], 0) == 2
    assert ledger.append("r", chunks[4:], 4, Seal(5, ("s",))) == 2
    assert not ledger.poll("r").progress.sealed
    assert ledger.append("r", chunks[2:], 2, Seal(5, ("s",))) == 5
    assert ledger.poll("r").progress.sealed
    assert ledger.append("unknown", chunks, 0) == -1


def test_bytes_that_come_while_a_worker_refuses_are_not_lost(ledger: RunLedger) -> None:
    """Refused first, the chunk is to be published with its bytes; supplied first, the refusal counts for nothing."""
    _begin(ledger)
    ledger.take("r")
    ledger.refuse("r", 0, 1, "unreadable", "w")
    assert ledger.supply("r", 0, b"blob", publish=False)
    assert not ledger.supply("r", 1, b"blob", publish=False)
    ledger.refuse("r", 1, 1, "unreadable", "w")
    assert ledger.poll("r").refused == {}
    assert ledger.claim("r", 1, 1, "w", 1).blob == b"blob"
