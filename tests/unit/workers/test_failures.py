"""What becomes of a run when workers fail at it: workers of several names over one real server, in this process."""

from __future__ import annotations

import os
import signal
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NoReturn

import pytest
import redis
from billiard import common

from evalq.evalcore.contract import plugins
from evalq.evalcore.contract.partial import Partial
from evalq.evalcore.errors import ConfigError, UnknownEvaluator
from evalq.workers.ledger.detached import Detached, Reports
from evalq.workers.ledger.failures import REASON_CHARACTERS, Failures, server_is_away
from evalq.workers.ledger.heartbeats import unhealthy_of
from evalq.workers.ledger.keys import SHARED, RunKeys
from evalq.workers.ledger.progress import RunStatus
from evalq.workers.ledger.runs import RunLedger
from evalq.workers.monitor import read_snapshot
from evalq.workers.pool.chunk_runner import REST_SECONDS
from evalq.workers.recovery.finaliser import Finalisers, finalise
from evalq.workers.recovery.judge import CHUNK_TRIES, HOPELESS
from tests.integration.harness import Server, wait_until
from tests.samples import KEY
from tests.unit.workers.hosts import CHUNKS, HEADER, Hosts


@pytest.fixture
def hosts(server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Hosts:
    """No workers yet; a run that nobody can compute waits for ever."""
    made = Hosts(server, tmp_path, unserved_seconds=3600)
    monkeypatch.setattr(plugins, "get", made.get)
    return made


def _raise(error: BaseException) -> Any:
    def deed() -> NoReturn:
        raise error

    return deed


def _failed(look: RunStatus) -> bool:
    return look.progress.state == "failed"


def _complete(look: RunStatus) -> bool:
    return look.progress.complete


def test_a_bug_on_every_host_ends_the_run_with_hosts_and_reasons(hosts: Hosts) -> None:
    """After each living worker has failed at one chunk; not before."""
    for name in ("a", "b"):
        hosts.add(name)
        hosts.fails[name] = _raise(ValueError(f"a bug on {name}"))
    hosts.begin()
    look = hosts.until(_failed, "the run fails")
    for name in ("a", "b"):
        assert f"host-{name}: in.jsonl:" in look.progress.reason
        assert f"ValueError: a bug on {name} (in test_failures.py:" in look.progress.reason
    assert "all 2 living workers" in look.progress.reason
    assert hosts.turn().progress == look.progress, "nothing circles any more"


def test_a_reason_that_no_server_accepts_is_written_with_escapes(hosts: Hosts) -> None:
    """A message may quote half of a surrogate pair from a record: its failure is counted like any other."""
    hosts.add("a")
    hosts.begin()
    hosts.fails["a"] = _raise(ValueError("no \ud800"))
    assert hosts.act("a", 0) == "failed"
    assert "ValueError: no \\ud800" in Failures(hosts.ledger).counts("r").workers["a"].reason
    hosts.add("b")
    hosts.cannot["b"] = _raise(ValueError("no \ud800"))
    assert hosts.act("b", 1) == "failed"
    assert "ValueError: no \\ud800" in unhealthy_of(hosts.register.workers()["b"])["summing"]


def test_one_host_that_fails_does_not_fail_the_run(hosts: Hosts) -> None:
    """Whatever the evaluator raises there: others compute its chunks, and it is named while that goes on."""
    hosts.add("good")
    hosts.add("bad")
    hosts.fails["bad"] = _raise(ZeroDivisionError("here only"))
    hosts.begin()
    assert hosts.act("bad", 0) == "failed"
    named = hosts.turn()
    assert named.trouble[0].startswith("host-bad: in.jsonl:1: ZeroDivisionError: here only")
    look = hosts.until(_complete, "the good one computes it all")
    assert (look.progress.state, look.progress.committed) == ("open", CHUNKS)


@pytest.mark.parametrize("during", ["evaluation", "import"])
def test_a_worker_that_is_stopped_has_failed_at_nothing(hosts: Hosts, during: str) -> None:
    """The exit that a pool process's handler of signals raises ends it: no failure, no sickness, whatever it was at."""
    hosts.add("drained")
    hosts.add("other")

    def told_to_stop() -> None:
        os.kill(os.getpid(), signal.SIGUSR1)

    (hosts.fails if during == "evaluation" else hosts.cannot)["drained"] = told_to_stop
    hosts.begin()
    before = signal.signal(signal.SIGUSR1, common._shutdown_cleanup)  # as in a pool process
    try:
        with pytest.raises(SystemExit):
            hosts.act("drained", 0)
    finally:
        signal.signal(signal.SIGUSR1, before)
        common.clear_terminate_handler_fired()
    assert unhealthy_of(hosts.register.workers()["drained"]) == {}
    assert not Failures(hosts.ledger).counts("r").chunks
    hosts.ledger.give_back("drained")
    hosts.leave("drained")
    look = hosts.until(_complete, "the other one computes it all")
    assert (look.progress.state, look.progress.failures) == ("open", 0)


def test_the_only_worker_tries_a_chunk_three_times(hosts: Hosts) -> None:
    """What fails once and then goes is no reason to end a run; what fails CHUNK_TRIES times is."""
    hosts.add("only")
    left = [ValueError("once"), ValueError("twice")]

    def now_and_then() -> None:
        if left:
            raise left.pop()

    hosts.fails["only"] = now_and_then
    hosts.begin()
    look = hosts.until(_complete, "it goes in the end")
    assert (look.progress.state, look.progress.failures) == ("open", 2)
    hosts.ledger.delete("r")
    hosts.fails["only"] = _raise(ValueError("always"))
    hosts.begin()
    look = hosts.until(_failed, "the run fails")
    assert CHUNK_TRIES <= look.progress.failures <= CHUNK_TRIES * CHUNKS
    assert "host-only: in.jsonl" in look.progress.reason


def test_when_all_fail_the_run_does_not_wait_for_each_chunk_to_fail_often(hosts: Hosts, server: Server) -> None:
    """All able workers failed since the last commit, for some seconds, and none is at work."""
    for name in ("a", "b"):
        hosts.add(name)
        hosts.fails[name] = _raise(ValueError(f"a bug on {name}"))
    hosts.begin()
    hosts.act("a", 0)
    hosts.act("b", 1)
    assert hosts.turn().progress.state == "open", "it may be a moment's trouble"
    now = int(server.client.time()[0]) * 1000
    server.client.hset(RunKeys.of("r").failures, "barren", f"0 {now - 6000}")
    hosts.ledger.claim("r", 2, 1, "c", 1)
    assert hosts.reconciler.tend(HEADER).progress.state == "open", "somebody is at work"
    hosts.ledger.give_back("c")
    look = hosts.reconciler.tend(HEADER)
    assert look.progress.state == "failed"
    assert "a bug on a" in look.progress.reason
    assert "a bug on b" in look.progress.reason


def test_a_chunk_that_comes_to_nothing_ends_the_run_whoever_lives(hosts: Hosts) -> None:
    """A worker that lives and takes nothing does not keep a hopeless run open for ever."""
    hosts.add("a")
    hosts.fails["a"] = _raise(ValueError("a bug"))
    hosts.begin()
    hosts.register.beat("asleep", {"host": "h", "code": HEADER.code_version}, 600)
    assert hosts.ledger.take("r") == list(range(CHUNKS))
    for _ in range(HOPELESS - 1):
        hosts.act("a", 0)
    assert hosts.turn().progress.state == "open"
    hosts.act("a", 0)
    assert f"chunk 0 failed {HOPELESS} times, on 1 worker: host-a" in hosts.turn().progress.reason


@pytest.mark.parametrize(
    "error",
    [
        ImportError("no module named torch"),
        ConfigError("two packages register an evaluator"),
        OSError(5, "Input/output error"),
        MemoryError("while it was imported"),
        SystemExit("a plug-in that ends the process"),
    ],
    ids=lambda error: type(error).__name__,
)
def test_a_worker_that_cannot_load_an_evaluator_is_sick_and_fails_nobody(hosts: Hosts, error: BaseException) -> None:
    """Its heartbeat says of what; its chunks go to the healthy one, and count as tries of nothing."""
    hosts.add("healthy")
    hosts.add("sick")
    hosts.cannot["sick"] = _raise(error)
    hosts.begin()
    assert hosts.act("sick", 0) == "failed"
    assert str(error) in unhealthy_of(hosts.register.workers()["sick"])["summing"]
    (line,) = hosts.turn().trouble
    assert line.startswith("host-sick: cannot load summing: ")
    look = hosts.until(_complete, "the healthy one computes it all")
    assert look.progress.state == "open"
    assert not Failures(hosts.ledger).counts("r").chunks
    del hosts.cannot["sick"]
    hosts.ledger.delete("r")
    hosts.begin()
    assert hosts.act("sick", 0) == "committed", "it can after all"
    assert unhealthy_of(hosts.register.workers()["sick"]) == {}


def test_an_evaluator_that_nobody_registered_ends_the_run_and_makes_nobody_sick(hosts: Hosts) -> None:
    """Every host of one code version knows the same names: no other worker is waited for, no heartbeat told of it."""
    hosts.add("a")
    hosts.cannot["a"] = _raise(UnknownEvaluator("no evaluator 'forged'"))
    hosts.begin()
    assert hosts.act("a", 0) == "failed"
    look = hosts.turn()
    assert (look.progress.state, look.progress.reason) == ("failed", "no evaluator 'forged'")
    assert unhealthy_of(hosts.register.workers()["a"]) == {}


def test_without_a_healthy_worker_a_run_ends_in_a_stated_time(hosts: Hosts, server: Server) -> None:
    """Named from the first failure on; failed after ``unserved_seconds``, with host and reason."""
    hosts.add("sick")
    hosts.cannot["sick"] = _raise(ImportError("no module named torch"))
    hosts.begin()
    look = hosts.until(lambda look: look.unserved, "nobody can compute it")
    assert (look.progress.state, len(look.trouble)) == ("open", 1)
    snapshot = read_snapshot(server.client, hosts.settings)
    assert [run.run for run in snapshot.unserved] == ["r"]
    assert [(worker.host, name) for worker, name, _ in snapshot.unhealthy] == [("host-sick", "summing")]
    assert snapshot.total("failures") == look.progress.failures
    meta = RunKeys.of("r").meta
    since, committed = server.client.hget(meta, "unserved").split()
    server.client.hset(meta, "unserved", b"%d %s" % (int(since) - 3_599_000, committed))
    assert hosts.turn().progress.state == "open"
    server.client.hset(meta, "unserved", b"%d %s" % (int(since) - 3_601_000, committed))
    look = hosts.turn()
    assert look.progress.state == "failed"
    assert look.progress.reason.startswith("no living worker could compute it for 3600 s: host-sick: cannot load")


def test_a_worker_that_comes_ends_the_wait(hosts: Hosts, server: Server) -> None:
    """The time counts anew once somebody could compute the run; a run without workers is not counted at all."""
    hosts.add("sick")
    hosts.cannot["sick"] = _raise(ImportError("torch"))
    hosts.begin()
    hosts.until(lambda look: look.unserved, "nobody can compute it")
    hosts.leave("sick")
    assert not hosts.turn().unserved, "no worker is nobody's failure"
    assert server.client.hget(RunKeys.of("r").meta, "unserved") is None
    hosts.add("healthy")
    assert hosts.until(_complete, "it is computed").progress.state == "open"


def test_an_import_that_kills_is_tried_in_a_process_of_its_own(hosts: Hosts, server: Server) -> None:
    """After deaths of its processes a worker is sick of what they loaded, instead of dying on and on."""
    hosts.add("a")
    hosts.cannot["a"] = lambda: os.kill(os.getpid(), signal.SIGKILL)
    hosts.begin()
    for pid in range(3):
        hosts.ledger.claim("r", 0, 1, "a", 900 + pid, dead_pid=899 + pid if pid else None)
    server.client.hdel(RunKeys.of("r").leases, "0")
    server.client.hset(RunKeys.of("r").notes, "attempts 0", 3)
    assert hosts.act("a", 0) == "failed"
    assert "killed its process by SIGKILL" in unhealthy_of(hosts.register.workers()["a"])["summing"]
    assert hosts.act("a", 1) == "failed", "and with the next chunk it is careful from the start"


def test_a_step_that_the_ledger_refuses_is_counted(hosts: Hosts, server: Server) -> None:
    """A claim that raises is a failure with host and reason, too, and ends the run like any other."""
    hosts.add("a")
    hosts.begin()
    server.client.rpush(RunKeys.of("r").blobs, "no hash")  # every claim of this run answers WRONGTYPE
    hosts.ledger.take("r")
    for _ in range(CHUNK_TRIES):
        assert hosts.act("a", 0) == "failed"
    message = Failures(hosts.ledger).counts("r")
    assert message.chunks == {0: {"a": CHUNK_TRIES}}
    assert message.workers["a"].kind == "ledger"
    assert "WRONGTYPE" in message.workers["a"].reason
    assert "host-a: chunk 0: " in hosts.turn().progress.reason


def test_a_server_that_is_away_is_nobodys_failure() -> None:
    """What passes by itself is waited for; every other answer counts."""
    away = ["BUSY Redis is busy running a script", "LOADING dataset", "MASTERDOWN Link", "NOREPLICAS Not enough"]
    for passing in (redis.ConnectionError(), redis.TimeoutError(), *map(redis.ResponseError, away)):
        assert server_is_away(passing)
    for error in (redis.ResponseError("WRONGTYPE"), redis.exceptions.NoPermissionError("no"), ValueError("BUSY")):
        assert not server_is_away(error)


def test_failures_take_bounded_space_and_are_counted_by_kind(hosts: Hosts, server: Server) -> None:
    """Long reasons are cut, many workers share one entry, and the fleet's counters have kinds and no reasons."""
    hosts.begin()
    failures = Failures(hosts.ledger)
    for number in range(1100):
        failures.count("r", 0, 1, f"w{number}", "h", "evaluator", "x" * 5000)
    assert server.client.hlen(RunKeys.of("r").failures) <= 1001
    assert max(map(len, server.client.hvals(RunKeys.of("r").failures))) < REASON_CHARACTERS + 200
    assert server.client.hget(SHARED.totals, "failures summing default evaluator") == b"1100"
    assert server.client.pttl(RunKeys.of("r").failures) > 0
    assert not failures.count("r", 0, 7, "w", "h", "evaluator", "of another epoch")


def test_a_restart_begins_the_list_anew(hosts: Hosts) -> None:
    """What failed before a resume is not held against it."""
    hosts.add("a")
    hosts.fails["a"] = _raise(ValueError("a bug"))
    hosts.begin()
    hosts.until(_failed, "the run fails")
    assert hosts.ledger.open(HEADER, 2, key=KEY) == 2
    assert Failures(hosts.ledger).counts("r").workers == {}
    assert hosts.turn().progress.state == "open"


def test_who_fails_rests_and_who_commits_does_not(hosts: Hosts) -> None:
    """A host that fails at once would take every chunk before the others do."""
    hosts.add("a")
    hosts.begin()
    hosts.fails["a"] = _raise(ValueError("a bug"))
    rests = []
    for _ in range(8):
        hosts.act("a", 0)
        rests.append(hosts.workers["a"].rest)
    assert rests == sorted(rests)
    assert 0 < rests[0] < rests[-1] == REST_SECONDS
    del hosts.fails["a"]
    assert hosts.act("a", 0) == "committed"
    assert hosts.workers["a"].rest == 0


# -- inputs that cannot be read -----------------------------------------------------------------------------


def test_a_refusal_is_one_workers_and_another_gets_the_chunk(hosts: Hosts, tmp_path: Path) -> None:
    """A detached run: first no worker, then one that cannot see the file, then one that can; it is computed."""
    hosts.begin(left=True)
    hosts.turn()
    blind = tmp_path / "blind"
    blind.mkdir()
    hosts.add("blind", blind)
    look = hosts.until(lambda look: look.unserved, "the only worker cannot read it")
    assert look.trouble[0].startswith("host-blind: in.jsonl is under none of its folders")
    hosts.add("sees")
    look = hosts.until(_complete, "the one that sees computes it")
    assert look.progress.state == "open"


def test_a_run_that_all_refuse_ends_with_the_reason(hosts: Hosts, server: Server, tmp_path: Path) -> None:
    """Offered again with pauses in between, and failed after the stated time, naming who could not read what."""
    (tmp_path / "blind").mkdir()
    hosts.add("blind", tmp_path / "blind")
    hosts.begin(left=True)
    hosts.until(lambda look: look.unserved, "nobody can read it")
    meta = RunKeys.of("r").meta
    since, committed = server.client.hget(meta, "unserved").split()
    server.client.hset(meta, "unserved", b"%d %s" % (int(since) - 3_700_000, committed))
    look = hosts.until(_failed, "it ends")
    assert "host-blind: in.jsonl is under none of its folders" in look.progress.reason


def test_refusals_of_an_attended_run_are_no_failures(hosts: Hosts, tmp_path: Path) -> None:
    """Its producer sends the bytes: nobody is named, and nothing is offered before it has."""
    (tmp_path / "blind").mkdir()
    hosts.add("blind", tmp_path / "blind")
    hosts.begin()
    look = hosts.until(lambda look: len(look.refused) == CHUNKS, "all is refused")
    assert (look.trouble, look.unserved, look.progress.failures) == ((), False, 0)
    assert len(hosts.turn().refused) == CHUNKS
    assert hosts.workers["blind"].rest == 0


# -- reports that cannot be made ------------------------------------------------------------------------------


def _complete_run(hosts: Hosts) -> None:
    hosts.begin(left=True)
    for chunk in hosts.chunks:
        hosts.ledger.commit(HEADER, chunk, 1, Partial(f"{chunk.seq:064}", b"part"))


def test_a_report_that_cannot_be_made_is_tried_elsewhere_and_then_reported(hosts: Hosts) -> None:
    """Counted with host and reason; who failed leaves it to the others, as long as there is one."""
    for name in ("a", "b"):
        hosts.add(name)
    _complete_run(hosts)
    makers = {name: Finalisers(hosts.settings, hosts.ledger, name, f"host-{name}") for name in ("a", "b")}
    assert hosts.ledger.poll("r").unreported
    try:
        for name in ("a", "b"):
            makers[name].start([], ["r"])
            wait_until(makers[name].idle, "the process has ended")
            message = Failures(hosts.ledger).counts("r").workers[name]
            assert (message.kind, message.host) == ("report", f"host-{name}")
            assert "no evaluator 'summing'" in message.reason, "the process that finalises does not know it"
            makers["a"].start([], ["r"])
            assert makers["a"].yields == (name == "a")
        wait_until(makers["a"].idle, "all have tried: it may try again")
    finally:
        for maker in makers.values():
            maker.close()
    look = hosts.turn()
    assert not look.unreported, "three tries are enough"
    assert (look.progress.state, look.progress.finals) == ("open", 3)
    assert [line.partition(":")[0] for line in look.trouble] == ["host-a", "host-b"]


def test_a_run_that_was_resumed_and_left_again_has_all_its_tries(hosts: Hosts, monkeypatch: pytest.MonkeyPatch) -> None:
    """What workers failed at before is forgotten, by the ledger and by them: each waited for the other, for ever."""
    for name in ("a", "b"):
        hosts.add(name)
    _complete_run(hosts)
    monkeypatch.setattr("evalq.workers.recovery.finaliser.child", lambda *_: ["/no/such/program"])
    makers = {name: Finalisers(hosts.settings, hosts.ledger, name) for name in ("a", "b")}
    for name in ("a", "b", "a"):
        makers[name].start([], ["r"])
    assert not hosts.ledger.poll("r").unreported, "three tries are enough"
    hosts.ledger.open(HEADER, 2, key=KEY)
    Reports(hosts.ledger, hosts.settings).detach("r", Detached(0.0))
    for tries, name in enumerate(("a", "b", "a"), 1):
        assert hosts.ledger.poll("r").unreported
        makers[name].start([], ["r"])
        assert hosts.ledger.poll("r").progress.finals == tries
    assert set(Failures(hosts.ledger).counts("r").workers) == {"a", "b"}


class Returning(RunLedger):
    """A ledger in which a run's producer comes back, and takes the answers, as a worker is about to read them."""

    def collect(self, run: str, seqs: Sequence[int]) -> list[Partial | None]:
        """All are in its folder by now."""
        self.open(HEADER, 2, key=KEY)
        found = super().collect(run, seqs)
        self.trim(run, range(CHUNKS) if self.takes else [])
        return super().collect(run, seqs) if self.takes else found

    takes = False


@pytest.mark.parametrize("takes", [True, False])
def test_a_run_whose_producer_comes_back_while_a_worker_makes_its_report_is_left_to_it(
    hosts: Hosts, server: Server, takes: bool
) -> None:
    """That answers are gone is nobody's failure then; and the report of a retry to come must not meet this one."""
    hosts.add("a")
    hosts.begin(left=True)
    for seq in range(CHUNKS):
        assert hosts.act("a", seq) == "committed"
    ledger = Returning(server.client, hosts.settings)
    ledger.takes = takes
    assert not finalise("r", ledger, hosts.settings)
    assert Reports(ledger, hosts.settings).report("r") is None
    assert hosts.ledger.poll("r").progress.state == "open"
    assert server.client.keys("evalq:histor*") == []


def test_a_finaliser_that_is_killed_or_cannot_start_is_reported(hosts: Hosts, monkeypatch: pytest.MonkeyPatch) -> None:
    """By the worker that started it, since nobody else can."""
    hosts.add("a")
    _complete_run(hosts)
    maker = Finalisers(hosts.settings, hosts.ledger, "a")
    monkeypatch.setattr("evalq.workers.recovery.finaliser.child", lambda *_: ["/bin/sh", "-c", "kill -9 $$"])
    maker.start([], ["r"])
    wait_until(maker.idle, "the process has ended")
    assert "was ended by SIGKILL" in Failures(hosts.ledger).counts("r").workers["a"].reason
    monkeypatch.setattr("evalq.workers.recovery.finaliser.child", lambda *_: ["/no/such/program"])
    maker.start([], ["r"])
    assert "cannot be started" in Failures(hosts.ledger).counts("r").workers["a"].reason
    maker.close()
