"""One process drives a run: whoever else wants to is refused, and takes over when it has fallen silent."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

from evalq.evalcore.errors import AlreadyRunning, Divergent, Finished, Incomplete, InfrastructureError
from evalq.evalcore.model.canonical import canonical_json
from evalq.evalcore.model.manifest import Seal
from evalq.producer.commands.watch import _wait
from evalq.producer.folder.job import Job
from evalq.producer.folder.run_folder import RunFolder
from evalq.producer.lifecycle import fetch, join
from evalq.producer.run.backend import Backend
from evalq.producer.run.execute import launch
from evalq.producer.run.publication import publish_report
from evalq.producer.servers import Servers
from evalq.workers.broker.publisher import Broker
from evalq.workers.ledger import detached
from evalq.workers.ledger.detached import Detached, Reports
from evalq.workers.ledger.runs import RunLedger
from evalq.workers.recovery.finaliser import finalise
from evalq.workers.recovery.reconciler import Reconciler
from tests.integration.harness import Server, wait_until
from tests.unit.producer.quiet import QUIET
from tests.unit.producer.stage import Report, Stage, StopDriving, killed_at


@pytest.fixture
def stage(server: Server, tmp_path: Path) -> Stage:
    """A stage on an empty server; whoever drives is given half a minute of silence."""
    server.client.flushall()
    return Stage(server, tmp_path, driver_seconds=30)


def _jobs(stage: Stage, *names: str) -> list[Job]:
    """The same run begun in several folders."""
    return [stage.job(name, chunk_size=10, once="k") for name in names]


def test_who_comes_second_learns_who_drives(stage: Stage) -> None:
    """The same --once in another folder while the first drives: refused with the driver's name; the first's report is
    the inline one, and every chunk was computed once.
    """
    one, two = _jobs(stage, "one", "two")
    messages: list[str] = []

    def meanwhile(look: int) -> None:
        if look in (2, 4):
            with pytest.raises(AlreadyRunning, match="host-a 11 aa") as refused:
                stage.driver(two, "host-b 22 bb").drive()
            messages.append(refused.value.by)

    report = stage.driver(one, "host-a 11 aa").drive(meanwhile)
    assert messages == ["host-a 11 aa"] * 2
    assert report == stage.inline("inline", chunk_size=10)
    assert stage.computed == len(one.manifest.chunks)


def test_who_watches_what_was_left_here_sees_its_driver_elsewhere(stage: Stage) -> None:
    """A run that was interrupted here and is driven from another folder now: it is waited for, and its report comes."""
    one, two = _jobs(stage, "one", "two")
    left = _left(two)
    with Servers(stage.settings) as servers:
        watch = Thread(target=_wait, args=(left, servers, QUIET))

        def meanwhile(look: int) -> None:
            if look == 2:
                watch.start()
                wait_until(lambda: left.waiter() or not watch.is_alive(), "it is waited for")

        report = stage.driver(one, "host-a 11 aa").drive(meanwhile)
        assert left.info().state == "interrupted"
        assert publish_report(one.run, report, servers) == ""
        watch.join(60)
        assert left.info().state == "done"
        assert left.report() == report
        late = _left(*_jobs(stage, "three"))
        with pytest.raises(Incomplete, match="this run is interrupted, and no process drives it"):
            _wait(late, servers, QUIET)


def test_who_watches_lets_each_turn_to_take_over_pass(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    """After `driver_seconds` whoever waits may try to drive: who watches goes on watching, and says so once."""
    one, two = _jobs(stage, "one", "two")
    left = _left(two)
    messages: list[tuple[str, bool]] = []

    def turn(folder: RunFolder, driven: AlreadyRunning, *_anything: object, told_before: bool) -> None:
        messages.append((driven.by, told_before))
        if len(messages) == 3:
            folder.note(state="open")
            folder.note(state="done")

    monkeypatch.setattr(join, "_elsewhere", lambda *given, announced: turn(*given, told_before=announced))

    def meanwhile(look: int) -> None:
        if look == 2:
            with Servers(stage.settings) as servers:
                _wait(left, servers, QUIET)

    stage.driver(one, "host-a 11 aa").drive(meanwhile)
    assert messages == [("host-a 11 aa", before) for before in (False, True, True)]


def _left(job: Job) -> RunFolder:
    """The folder of a run that was interrupted."""
    with job.folder.driving():
        job.folder.note(state="interrupted")
    return RunFolder(job.folder.path)


def test_a_silent_driver_s_run_is_taken_over(server: Server, stage: Stage, tmp_path: Path) -> None:
    """The first is killed in mid-run; who comes from another folder waits out its silence, and ends with its report.

    The first, come back to life, learns that and changes nothing.
    """
    (tmp_path / "brief").mkdir()
    brief = Stage(server, tmp_path / "brief", driver_seconds=0.3)
    one, two = _jobs(brief, "one", "two")
    first = brief.driver(one, "host-a 11 aa")
    with pytest.raises(StopDriving):
        first.drive(killed_at(4))
    second = brief.driver(two, "host-b 22 bb")

    def taken_over() -> Report | None:
        try:
            return second.drive()
        except AlreadyRunning:
            return None

    report = wait_until(taken_over, "the silence is over")
    assert report == brief.inline("inline", chunk_size=10)
    again = brief.driver(Job.load(RunFolder(brief.folder / "one")), "host-a 11 aa")
    for step in (
        lambda: again.ledger.trim(one.run, [0]),
        lambda: again.ledger.poll(one.run, attending=True),
        lambda: again.ledger.append(one.run, one.manifest.chunks, 0),
        lambda: again.ledger.close(one.run, "cancelled"),
    ):
        with pytest.raises(AlreadyRunning, match="host-b 22 bb"):
            step()
    assert brief.ledger.poll(one.run).progress.state == "done"


def test_a_driver_that_was_overtaken_in_mid_run_ends(server: Server, tmp_path: Path) -> None:
    """It stood still for too long (a laptop asleep); another drove on, and this one learns that at its next step."""
    brief = Stage(server, tmp_path, driver_seconds=0.11)
    one, two = _jobs(brief, "one", "two")
    reports: list[Report] = []

    def meanwhile(look: int) -> None:
        def taken_over() -> bool:
            try:
                reports.append(brief.driver(two, "host-b 22 bb").drive())
            except AlreadyRunning:
                return False
            return True

        if look == 4:
            wait_until(taken_over, "the first has been silent for long enough")

    with pytest.raises(AlreadyRunning, match="host-b 22 bb"):
        brief.driver(one, "host-a 11 aa").drive(meanwhile)
    assert reports == [brief.inline("inline", chunk_size=10)]


STEPS: dict[str, Callable[[RunLedger, Any], object]] = {
    "append": lambda ledger, job: ledger.append(job.run, job.manifest.chunks, 0),
    "restore": lambda ledger, job: ledger.restore(job.run, [(0, "0" * 64, 1)]),
    "supply": lambda ledger, job: ledger.supply(job.run, 0, b"x"),
    "trim": lambda ledger, job: ledger.trim(job.run, [0, 1]),
    "reopen": lambda ledger, job: ledger.reopen(job.run, [(0, 10, 0)]),
    "close": lambda ledger, job: ledger.close(job.run, "cancelled"),
    "look": lambda ledger, job: ledger.poll(job.run, attending=True),
    "open": lambda ledger, job: ledger.open(job.header, 9, key=job.key),
}


@pytest.mark.parametrize("step", STEPS)
def test_no_step_of_another_changes_anything(stage: Stage, step: str) -> None:
    """Each step of a driver, taken by another process while the first lives, is refused; no key changes."""
    (job,) = _jobs(stage, "one")
    found = []

    def meanwhile(look: int) -> None:
        if look == 3:
            before = _dump(stage, job.run)
            with pytest.raises(AlreadyRunning, match="host-a 11 aa"):
                STEPS[step](RunLedger(stage.server.client, stage.settings, "host-b 22 bb"), job)
            assert _dump(stage, job.run) == before
            found.append(look)

    stage.driver(job, "host-a 11 aa").drive(meanwhile)
    assert found


def _dump(stage: Stage, run: str) -> dict[bytes, bytes]:
    client = stage.server.client
    return {key: client.dump(key) for key in sorted(client.keys(f"evalq:run:{{{run}}}:*"))}


def test_the_run_s_wishes_come_from_anywhere(stage: Stage) -> None:
    """`evalq cancel` does not drive; its wish is carried out, and the driver notices."""
    (job,) = _jobs(stage, "one")

    def meanwhile(look: int) -> None:
        if look == 3:
            assert stage.ledger.close(job.run, "cancelled", "by evalq cancel") == "cancelled"

    with pytest.raises(Incomplete, match="cancelled by evalq cancel"):
        stage.driver(job, "host-a 11 aa").drive(meanwhile)


@pytest.mark.parametrize("how", ["pause", "detach", "hand over"])
def test_handing_over_makes_room_at_once(stage: Stage, how: str) -> None:
    """Who pauses, detaches or ends in good order is not waited for."""
    one, two = _jobs(stage, "one", "two")
    first = stage.driver(one, "host-a 11 aa")
    if how == "detach":
        stage.launch(first)
        first.driver.detach()
    else:
        first.ledger.open(one.header, 1, key=one.key)
    if how == "pause":
        assert first.ledger.close(one.run, "paused") == "paused"
    if how == "hand over":
        first.ledger.release(one.run)
    assert stage.driver(two, "host-b 22 bb").drive() == stage.inline("inline", chunk_size=10)


def test_the_workers_publish_for_who_is_silent(stage: Stage) -> None:
    """With its driver killed, a run's chunks are computed on; nobody has to take it over for that."""
    (job,) = _jobs(stage, "one")
    with pytest.raises(StopDriving):
        stage.driver(job, "host-a 11 aa").drive(killed_at(3))
    broker = Broker(stage.settings)
    reconciler = Reconciler(stage.ledger, broker)

    def computed() -> bool:
        reconciler.tend_all()
        stage.work(9)
        progress = stage.ledger.poll(job.run).progress
        return progress.committed == progress.chunks > 0

    wait_until(computed, "what was planned is committed")
    assert stage.ledger.poll(job.run).driver == "host-a 11 aa"
    broker.close()


def test_a_server_that_came_back_older_has_its_driver_back(stage: Stage) -> None:
    """A snapshot from before this driver had the run, with the one before it: what the folder has wins, the epoch is
    never lowered, and the driver that lives goes on at once.
    """
    client = stage.server.client
    one, two = _jobs(stage, "one", "two")
    with pytest.raises(StopDriving):
        stage.driver(one, "host-a 11 aa").drive(killed_at(4))
    old = _dump(stage, one.run)
    client.hdel(stage.key(one.run, "meta"), "driver")
    second = stage.driver(two, "host-b 22 bb")
    epochs: list[int] = []

    def meanwhile(look: int) -> None:
        epochs.append(second.work.ownership.epoch)
        if look == 2:
            client.delete(*client.keys(f"evalq:run:{{{one.run}}}:*"))
            for key, value in old.items():
                client.restore(key, 60_000, value)

    assert second.drive(meanwhile) == stage.inline("inline", chunk_size=10)
    assert epochs == sorted(epochs)
    assert epochs[-1] > epochs[0]


def test_a_finished_run_s_report_is_there_for_who_joined_it(stage: Stage) -> None:
    """The driver leaves report.json in the ledger and hands over; the same again changes nothing, another is told."""
    (job,) = _jobs(stage, "one")
    reports = Reports(stage.ledger, stage.settings)
    report = stage.driver(job, "host-a 11 aa").drive()
    assert stage.ledger.poll(job.run).driver == "host-a 11 aa", "until its report is there"
    for _ in range(2):
        assert publish_report(job.run, report, Servers(stage.settings)) == ""
    assert reports.report(job.run) == canonical_json(report) + b"\n"
    with pytest.raises(Divergent, match="another report"):
        publish_report(job.run, {**report, "evaluator": "another"}, Servers(stage.settings))
    assert reports.report(job.run) == canonical_json(report) + b"\n"
    assert abs(stage.ledger.created(job.run) - stage.server.client.time()[0]) < 60


def test_a_report_that_two_fetch_at_once_is_there_for_both(
    stage: Stage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From two terminals in one folder: who comes second has the folder that the first made."""
    (job,) = _jobs(stage, "one")
    publish_report(job.run, stage.driver(job, "host-a 11 aa").drive(), Servers(stage.settings))
    path, write = tmp_path / "fetched", fetch._write
    others: list[Any] = []

    def slow(*of: Any) -> None:
        if not others:
            others.append(None)
            others[0] = fetch.fetch(job.run, path, stage.ledger, stage.settings)
        write(*of)

    monkeypatch.setattr(fetch, "_write", slow)
    fetched = fetch.fetch(job.run, path, stage.ledger, stage.settings)
    assert fetched is not None
    assert fetched.report() == others[0].report()
    assert [each.name for each in tmp_path.glob(".*")] == []


def test_a_clock_that_is_set_back_keeps_no_dead_driver(server: Server, tmp_path: Path) -> None:
    """A last step in the future counts as now: silence is waited out from there, not from the hour that comes."""
    brief = Stage(server, tmp_path, driver_seconds=0.2)
    one, two = _jobs(brief, "one", "two")
    RunLedger(server.client, brief.settings, "host-a 11 aa").open(one.header, 1, key=one.key)
    ahead = server.client.time()[0] * 1000 + 3_600_000
    server.client.hset(brief.key(one.run, "meta"), "driver_at", ahead)
    second = RunLedger(server.client, brief.settings, "host-b 22 bb")
    with pytest.raises(AlreadyRunning):
        second.open(two.header, 1, key=one.key)

    def taken_over() -> bool:
        try:
            return second.open(two.header, 1, key=one.key) > 1
        except AlreadyRunning:
            return False

    wait_until(taken_over, "it has been silent for long enough", seconds=20)


def test_a_detached_run_whose_plan_is_lost_says_so(stage: Stage) -> None:
    """Nobody has its folder at hand: the workers' reconciler ends it with a reason instead of tending it for ever."""
    (job,) = _jobs(stage, "one")
    first = stage.driver(job, "host-a 11 aa")
    stage.launch(first)
    first.driver.detach()
    stage.server.client.delete(stage.key(job.run, "chunks"))
    assert not stage.ledger.poll(job.run).unreported
    broker = Broker(stage.settings)
    assert Reconciler(stage.ledger, broker).tend_all() == []
    broker.close()
    progress = stage.ledger.poll(job.run).progress
    assert progress.state == "failed"
    assert "lost" in progress.reason
    assert "resume" in progress.reason


def test_an_empty_plan_is_never_taken_for_a_complete_one(stage: Stage) -> None:
    """Sealed, with its chunks lost: not complete, and no report is made of nothing."""
    (job,) = _jobs(stage, "one")
    stage.ledger.open(job.header, 1, key=job.key)
    stage.ledger.append(job.run, [], 0, None)
    stage.server.client.hset(stage.key(job.run, "meta"), "seal", b'{"chunks":5,"sha256":["s"]}')
    Reports(stage.ledger, stage.settings).detach(job.run, Detached(0))
    look = stage.ledger.poll(job.run)
    assert (look.progress.sealed, look.progress.complete, look.unreported) == (True, False, False)
    assert stage.ledger.close(job.run, "done") == "open"
    assert Seal(5, ("s",)).chunks == look.progress.planned
    with pytest.raises(InfrastructureError, match="lost 5 of the run's 5 chunks"):
        finalise(job.run, stage.ledger, stage.settings)


def test_a_plan_in_the_ledger_is_read_a_page_at_a_time(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever makes a report of it holds no more of it: what was taken from the list meanwhile does not come."""
    monkeypatch.setattr(detached, "_PAGE", 2)
    (job,) = _jobs(stage, "one")
    stage.driver(job, "host-a 11 aa").drive()
    reports = Reports(stage.ledger, stage.settings)
    planned = list(job.manifest.chunks)
    assert list(reports.chunks(job.run)) == planned
    assert reports.planned(job.run) == len(planned) > 4
    chunks = reports.chunks(job.run)
    assert next(chunks) == planned[0]
    stage.server.client.ltrim(stage.key(job.run, "chunks"), 0, 2)
    assert list(chunks) == planned[1:3]


def test_a_finished_run_is_not_computed_again_from_another_folder(stage: Stage) -> None:
    """Whoever has nothing of a run that is done, with its report in the ledger, learns that, and nothing changes; who
    has begun to drive it may go on, and so may anybody where that report is lost.
    """
    one, two = _jobs(stage, "one", "two")
    first = stage.driver(one, "host-a 11 aa")
    report = first.drive()
    share_as(first.ledger, one.run, report)
    computed, before = stage.computed, stage.server.client.hgetall(stage.key(one.run, "meta"))
    with pytest.raises(Finished, match=f"evalq report {one.run}"):
        stage.driver(two, "host-b 22 bb").drive()
    assert stage.server.client.hgetall(stage.key(one.run, "meta")) == before
    again = stage.driver(Job.load(RunFolder(stage.folder / "one")), "host-a 12 ab")
    assert again.drive() == report
    assert stage.computed == computed, "its own folder has every answer"
    stage.server.client.delete(stage.key(one.run, "final"))
    again.ledger.release(one.run)
    assert stage.driver(two, "host-c 33 cc").drive() == report


def share_as(ledger: RunLedger, run: str, report: Report) -> None:
    """What a driver does at its end."""
    Reports(ledger, ledger.settings).store(run, canonical_json(report) + b"\n")
    ledger.release(run)


def test_who_cannot_hand_over_what_another_drives_notes_nothing(stage: Stage) -> None:
    """--detach of a run that somebody else drives is refused, and its folder stands as before, not as stopped."""
    one, two = _jobs(stage, "one", "two")
    RunLedger(stage.server.client, stage.settings, "host-a 11 aa").open(one.header, 1, key=one.key)
    before = two.folder.info().state
    with pytest.raises(AlreadyRunning, match="host-a 11 aa"):
        launch(two, Backend(stage.settings), QUIET)
    assert two.folder.info().state == before
