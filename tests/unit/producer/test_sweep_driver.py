"""Drivers of live sweeps over a real server, real targets and real callers, all but those in this process."""

from __future__ import annotations

import asyncio
import contextlib
import json
import shutil
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

import msgspec
import pytest

from evalq.evalcore.contract import plugins
from evalq.evalcore.contract.evaluator import Request
from evalq.evalcore.errors import AlreadyRunning, Cancelled, EvalqError, Incomplete, UsageError
from evalq.evalcore.fold import REPORT_SCHEMA
from evalq.evalcore.model.calls import Output
from evalq.evalcore.model.canonical import Json
from evalq.producer.driving.driver import Driver
from evalq.producer.driving.retries import ServerRetry
from evalq.producer.folder.job import RunOptions
from evalq.producer.folder.run_folder import RunFolder
from evalq.producer.lifecycle import join
from evalq.producer.lifecycle.join import _note_done, begin_retry
from evalq.producer.monitor.progress import Reporter, ShownProgress, Watcher
from evalq.producer.servers import Servers
from evalq.producer.sweep import intake
from evalq.producer.sweep.options import SweepOptions
from evalq.producer.sweep.reuse import Cache
from evalq.producer.sweep.sweep import Sweep
from evalq.producer.sweep.work import SweepWork
from evalq.workers.address import read_address
from evalq.workers.callers import main as calling
from evalq.workers.ledger import sweeps
from evalq.workers.ledger.calls import CallLedger
from evalq.workers.ledger.detached import Detached, Reports
from evalq.workers.ledger.keys import SHARED, SweepKeys
from evalq.workers.ledger.runs import RunLedger
from evalq.workers.ledger.sweep_model import SweepStatus
from evalq.workers.ledger.sweeps import SweepLedger
from evalq.workers.servers.connections import connect
from evalq.workers.settings import Settings, Timings
from tests.agents.server import Agent, running_agent, write_golden
from tests.integration.harness import PATIENCE, Server, running_server, wait_until
from tests.portions import some
from tests.samples import KEY

CASES = 4


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    """A server of this test's own."""
    with running_server(tmp_path) as started:
        yield started


@pytest.fixture
def service() -> Iterator[tuple[Agent, str]]:
    """A server that obeys."""
    with running_agent() as started:
        yield started


class SweepDriver(NamedTuple):
    """A sweep as work, and what drives it."""

    work: SweepWork
    driver: Driver[SweepStatus]

    def drive(self, watch: Watcher) -> dict[str, Json]:
        """Until the calls are over; returns how they ended."""
        self.driver.drive(watch)
        return self.work.facts()


class Stage:
    """A golden set, a target, processes that call (threads with an event loop each), and sweeps over them."""

    def __init__(self, folder: Path, server: Server, service: tuple[Agent, str]) -> None:
        self.agent, url = service
        self.agent.keep_requests = False
        self.folder = folder
        self.server = server
        price = {"prompt_per_million": 1000, "completion_per_million": 1000}
        chat = {"kind": "openai", "base_url": url, "model": "m", "price": price}
        (folder / "targets.yaml").write_text(json.dumps({"targets": {"chat": chat}}))
        write_golden(folder / "golden.json", {f"C{n}": {"share": 0.5} for n in range(CASES)})
        self.settings = Settings(
            broker=server.url, targets=str(folder / "targets.yaml"), calls=4, poll_seconds=0.05, driver_seconds=1.0
        )
        self.timings = Timings(call_lease=1.0)
        self.calls = SweepLedger(server.client, self.settings)

    def sweep(self, out: str, repeat: int, once: str = "", **live: int | float) -> Sweep:
        """A new sweep in the folder ``out``."""
        evaluator = plugins.get("vs")
        request = Request([str(self.folder / "golden.json")], {}, {})
        asked = RunOptions(out=self.folder / out, once=once)
        return Sweep.start(evaluator, request, SweepOptions("chat", repeat, **live), asked)  # type: ignore[arg-type]  # a dict

    def copied(self, sweep: Sweep, out: str) -> Sweep:
        """The sweep in a copy of its folder."""
        shutil.copytree(sweep.folder.path, self.folder / out)
        return Sweep.load(RunFolder(self.folder / out))

    def reloaded(self, sweep: Sweep) -> Sweep:
        """The sweep in its folder, as another process reads it."""
        return Sweep.load(RunFolder(sweep.folder.path))

    def driver(self, sweep: Sweep, token: str, cache: Cache | None = None) -> SweepDriver:
        """A driver with a connection of its own, as in a process of its own."""
        client = connect(read_address(self.server.url), self.settings)
        work = SweepWork(sweep, SweepLedger(client, self.settings, token), cache)
        return SweepDriver(work, Driver(work, ServerRetry(self.settings)))

    @contextlib.contextmanager
    def calling(self, count: int = 1) -> Iterator[None]:
        """Processes that call; drained at the end."""
        stops = []

        def serve() -> None:
            asyncio.run(process.serve(None))

        threads = []
        for _ in range(count):
            process = calling._CallingProcess(self.settings, self.timings)
            stops.append(process._stop)
            threads.append(threading.Thread(target=serve))
            threads[-1].start()
            wait_until(lambda: threads[-1].is_alive(), "it calls")
        try:
            yield
        finally:
            for stop in stops:
                stop.set()
            for thread in threads:
                thread.join(PATIENCE)


@pytest.fixture
def stage(tmp_path: Path, server: Server, service: tuple[Agent, str], monkeypatch: pytest.MonkeyPatch) -> Stage:
    """Callers in threads cannot have signal handlers. Leases and drivers run out soon, unless a test is `patient`."""
    monkeypatch.setattr(asyncio.SelectorEventLoop, "add_signal_handler", lambda *_: None)
    return Stage(tmp_path, server, service)


@pytest.fixture
def patient(stage: Stage) -> None:
    """No lease and no driver runs out while a busy machine lets a process wait."""
    stage.timings = Timings(call_lease=60.0)
    stage.settings = stage.settings.model_copy(update={"driver_seconds": 60.0})
    stage.calls = SweepLedger(stage.server.client, stage.settings)


class Drive(threading.Thread):
    """A driver in a thread; ``error`` is what ended it."""

    def __init__(self, driver: SweepDriver) -> None:
        super().__init__()
        self.driver = driver
        self.error: EvalqError | None = None
        self.facts: dict[str, object] = {}
        self.start()

    def run(self) -> None:
        """Until it is over."""
        try:
            self.facts = dict(self.driver.drive(lambda _: None))
        except EvalqError as error:
            self.error = error
        self.driver.driver.release()

    def end(self) -> None:
        """Wait for its end, as a test of what hangs does."""
        self.join(60)
        assert not self.is_alive(), f"it hangs at {self.driver.work.seen}"


@pytest.mark.usefixtures("patient")
def test_twins_pay_once(stage: Stage) -> None:
    """Two producers of one --once from two folders: one drives, the other learns who, and every call is made once."""
    first, second = stage.sweep("a", 20, once="k"), stage.sweep("b", 20, once="k")
    assert first.run == second.run
    stage.agent.most = 6  # or it might be done before the second comes
    with stage.calling(2):
        one = Drive(stage.driver(first, "host 1 a"))
        wait_until(lambda: stage.agent.calls.total() > 5, "calls are made")
        two = Drive(stage.driver(second, "host 2 b"))
        two.end()
        assert isinstance(two.error, AlreadyRunning)
        assert two.error.by == "host 1 a"
        stage.agent.most = 0
        one.end()
        assert one.error is None
        three = Drive(stage.driver(second, "host 2 b"))
        three.end()
        assert isinstance(three.error, AlreadyRunning)  # so it waits for the report of the one that has the outputs
        assert "another producer, which made its calls" in three.error.by
    assert one.facts["attempts"] == stage.agent.calls.total() == 20 * CASES
    assert (one.facts["repaid"], one.facts["lost"]) == (0, 0)
    assert one.facts["cost"] == pytest.approx(0.02 * stage.agent.calls.total())
    assert not second.recorded.count


def test_a_folder_that_got_the_report_of_others_makes_no_call_any_more(stage: Stage) -> None:
    """Its run is done, and a retry finds nothing to call: it does not make the report's run one that goes on."""
    folder = stage.sweep("a", 20, once="k").folder
    records = dict.fromkeys(("total", "scored", "unscored", "errors", "dead"), 0)
    named = {"schema": REPORT_SCHEMA, "evaluator": "vs", "evaluator_version": "1", "params": {}}
    report = {**named, "inputs": [], "records": records, "results": {}, "faults": []}
    with folder.driving():
        folder.write("report.json", json.dumps(report).encode())
        (folder.path / "outputs.jsonl").write_text("of its own calls alone")
        _note_done(folder)
    assert folder.info().state == "done"
    assert not (folder.path / "outputs.jsonl").exists(), "it is not what the report was made of"
    with pytest.raises(UsageError, match="nothing to retry"):
        begin_retry(folder)
    assert folder.info().state == "done"


class _Outbox:
    """A ledger's, of whose outputs each has settings of its own."""

    def __init__(self, sweep: Sweep, *configs: str) -> None:
        prompt, target = next(sweep.prompts()), sweep.header.target
        self._found = [
            Output(repeat * CASES, prompt.case, "", repeat, prompt.digest, target, config, output=msgspec.Raw(b"{}"))
            for repeat, config in enumerate(configs)
        ]

    def collect(self, _run: str, _most: int) -> SimpleNamespace:
        """One at a time."""
        found, self._found = self._found[:1], self._found[1:]
        return SimpleNamespace(outputs=found)

    def trim(self, *_anything: object) -> None:
        """Nothing to do."""


@pytest.mark.parametrize(
    ("before", "now", "told"), [("", "aa", set()), ("", "aab", {"changed"}), ("a", "ab", {"changed"})]
)
def test_settings_that_change_on_the_way_are_reported(
    stage: Stage, monkeypatch: pytest.MonkeyPatch, before: str, now: str, told: set[str]
) -> None:
    """By the outputs: who calls reads the targets file when it starts, in the middle of a drive or between two."""
    sweep = stage.sweep("a", 4)
    for configs in filter(None, (before, now)):
        driver = stage.driver(stage.reloaded(sweep), "host 1 a")
        monkeypatch.setattr(driver.work._intake, "_calls", _Outbox(sweep, *configs))
        while driver.work.step():
            pass
    assert driver.work.warnings.due == told


def test_a_cache_that_takes_no_more_is_reported_once_and_the_calls_go_on(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It would save a later sweep a call; what is paid for in this one is in its folder."""
    sweep, cache = stage.sweep("a", 4), Cache(stage.folder / "cache")
    sweep.live = msgspec.structs.replace(sweep.live, cache=str(stage.folder / "cache"))
    driver = stage.driver(sweep, "host 1 a", cache)
    monkeypatch.setattr(driver.work._intake, "_calls", _Outbox(sweep, "one", "one"))
    cache.close()  # as good as a full disk
    while driver.work.step():
        pass
    assert sweep.recorded.count == 2
    (told,) = driver.work.warnings.lines
    assert told.startswith(f"warning: {stage.folder / 'cache'}: this cache takes no more outputs: ")


@pytest.mark.usefixtures("patient")
def test_a_copied_folder_pays_for_nothing(stage: Stage) -> None:
    """While the original is driven it is refused, and so it is when that one is done."""
    original = stage.sweep("a", 30)
    stage.agent.most = 20  # or it might be done before the copy is driven
    with stage.calling():
        one = Drive(stage.driver(original, "host 1 a"))
        wait_until(lambda: original.recorded.count > 10, "outputs are recorded")
        copy = stage.copied(original, "b")
        before = (stage.folder / "b" / "calls.jsonl").read_bytes()
        two = Drive(stage.driver(copy, "host 2 b"))
        two.end()
        assert isinstance(two.error, AlreadyRunning)
        stage.agent.most = 0
        one.end()
        three = Drive(stage.driver(copy, "host 2 b"))
        three.end()
        assert isinstance(three.error, AlreadyRunning)  # told who made its calls, and to watch
        assert (stage.folder / "b" / "calls.jsonl").read_bytes().startswith(before)
    assert stage.agent.calls.total() == 30 * CASES


def test_a_driver_that_fell_silent_is_followed_and_reported(stage: Stage) -> None:
    """It stood still for longer than driver_seconds: another one drives, and it changes nothing any more."""
    sweep = stage.sweep("a", 2)
    asleep = stage.driver(sweep, "host 1 a")
    asleep.driver.acquire()
    other = stage.driver(stage.copied(sweep, "b"), "host 2 b")
    wait_until(lambda: _acquired(other), "driver_seconds have passed")
    with pytest.raises(AlreadyRunning, match="host 2 b"):
        asleep.drive(lambda _: None)


def _acquired(driver: SweepDriver) -> bool:
    with contextlib.suppress(AlreadyRunning):
        return driver.driver.acquire()
    return False


@pytest.mark.usefixtures("patient")
def test_a_killed_driver_is_followed_at_once_in_its_folder(stage: Stage) -> None:
    """Whoever holds the folder's lock knows that the last driver is dead; in a copy of the folder nobody does."""
    sweep = stage.sweep("a", 2)
    stage.driver(sweep, "host 1 a").driver.acquire()
    with pytest.raises(AlreadyRunning):
        stage.driver(stage.copied(sweep, "b"), "host 2 b").driver.acquire()
    assert stage.driver(stage.reloaded(sweep), "host 3 c").driver.acquire()


@pytest.mark.parametrize(
    "part",
    some(["meta", "prompts", "again", "holders", "held", "recorded", "outbox", "halted", "lost", SHARED.sweeps], of=3),
)
def test_a_sweep_ends_whatever_key_its_server_loses(stage: Stage, part: str) -> None:
    """Lost in the middle, all the same every call is recorded, and only what was lost or under way is made again."""
    sweep = stage.sweep("a", 20)
    stage.agent.latency = 0.02
    key = part if part == SHARED.sweeps else f"evalq:sweep:{{{sweep.run}}}:{part}"
    with stage.calling():
        one = Drive(stage.driver(sweep, "host 1 a"))
        wait_until(lambda: sweep.recorded.count > 26, "a third is recorded")
        stage.server.client.delete(key)
        one.end()
    assert one.error is None
    assert sweep.recorded.count == 20 * CASES
    assert stage.agent.calls.total() <= 20 * CASES + 12, "more than what was under way"


def _until(sweep: Sweep, count: int) -> None:
    wait_until(lambda: sweep.recorded.count > count, f"{count} outputs are recorded")


@pytest.mark.usefixtures("patient")
def test_a_server_that_comes_back_older_learns_what_it_lost(stage: Stage) -> None:
    """A lagging replica is promoted: the sweep ends, and what callers had recorded is not called again."""
    sweep = stage.sweep("a", 60)
    stage.agent.latency = 0.02
    client = stage.server.client
    keys = [key.encode() for key in SweepKeys.of(sweep.run)]
    with stage.calling(2):
        one = Drive(stage.driver(sweep, "host 1 a"))
        # One that the driver has not seen at work either has the pause alone to be heard of.
        wait_until(lambda: len(one.driver.work.seen.under_way) == 2, "both are known")
        for least in (30, 90, 150):
            _until(sweep, least)
            moment = _moment(client, keys)
            _until(sweep, least + 20)
            _promote(client, keys, moment)
        one.end()
    assert one.error is None
    assert sweep.recorded.count == stage.agent.calls.total() == 60 * CASES, "nothing is called again"
    _told_truly(one, stage.agent)


@pytest.mark.usefixtures("patient")
@pytest.mark.parametrize("promotions", [1, 2])
def test_who_came_after_the_servers_moment_has_its_calls_left(
    stage: Stage, promotions: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However late it is heard of: the driver saw it at work, so nobody is given its calls before it has told them; nor
    where the next server falls behind before it was heard of.
    """
    sweep = stage.sweep("a", 60)
    keys = [key.encode() for key in SweepKeys.of(sweep.run)]
    stage.agent.latency = 0.02
    client, late, newer = stage.server.client, threading.Event(), set[str]()

    def slow(step: Callable[..., Any]) -> Callable[..., Any]:
        def taken(self: CallLedger, run: str, holder: str, *args: Any) -> Any:
            if holder in newer and late.is_set():
                time.sleep(3 * sweeps._PAUSE_SECONDS)
            return step(self, run, holder, *args)

        return taken

    for name in ("claim", "commit"):
        monkeypatch.setattr(CallLedger, name, slow(getattr(CallLedger, name)))
    with stage.calling():
        one = Drive(stage.driver(sweep, "host 1 a"))
        _until(sweep, 10)
        moment = _moment(client, keys)
        first = set(one.driver.work.seen.under_way)
        with stage.calling():
            wait_until(lambda: len(one.driver.work.seen.under_way) == 2, "the driver sees both")
            newer |= set(one.driver.work.seen.under_way) - first
            _until(sweep, 60)
            late.set()
            for _ in range(promotions):
                _promote(client, keys, moment)
                wait_until(lambda: one.driver.work.seen.unsettled, "the driver has told the server")
            one.end()
    assert one.error is None
    assert sweep.recorded.count == stage.agent.calls.total() == 60 * CASES, "nothing is called again"
    _told_truly(one, stage.agent)


@pytest.mark.usefixtures("patient")
def test_a_server_that_knows_an_earlier_driver_learns_who_drives(stage: Stage) -> None:
    """That one is dead: whoever drives now holds its folder, and is not sent away for its sake."""
    sweep, client = stage.sweep("a", 60), stage.server.client
    stage.agent.latency = 0.02
    keys = [key.encode() for key in SweepKeys.of(sweep.run)]
    stage.driver(sweep, "host 1 a").driver.acquire()
    moment = _moment(client, keys)
    with stage.calling():
        two = Drive(stage.driver(stage.reloaded(sweep), "host 2 b"))
        wait_until(lambda: stage.agent.calls.total() > 20, "the second one drives")
        _promote(client, keys, moment)
        two.end()
    assert two.error is None
    assert stage.agent.calls.total() == 60 * CASES, "nothing is called again"
    _told_truly(two, stage.agent)


@pytest.mark.usefixtures("patient")
def test_who_died_long_ago_is_not_waited_for_by_a_server_that_forgot_it(stage: Stage) -> None:
    """What it had is lost already; ten seconds without calls would bring nothing of it back."""
    sweep, client = stage.sweep("a", 60), stage.server.client
    stage.agent.latency = 0.02
    keys = SweepKeys.of(sweep.run)
    with stage.calling():
        one = Drive(stage.driver(sweep, "host 1 a"))
        _until(sweep, 10)
        _, begun, _ = stage.calls.claim(sweep.run, "dead", 3, 0.2, {})
        stage.calls.begin(sweep.run, "dead", dict.fromkeys(begun, 1))
        wait_until(lambda: one.driver.work.seen.lost == 3, "it is taken for dead")
        client.flushdb()
        wait_until(lambda: client.hget(keys.meta, "generation"), "the server is told")
        assert b"dead" not in client.smembers(keys.awaited)
        one.end()
    assert one.error is None
    assert (one.facts["repaid"], one.facts["lost"]) == (0, 3)


def _moment(client: Any, keys: list[bytes]) -> dict[bytes, bytes | None]:
    pipe = client.pipeline()
    for key in keys:
        pipe.dump(key)
    return dict(zip(keys, pipe.execute(), strict=True))


def _promote(client: Any, keys: list[bytes], moment: dict[bytes, bytes | None]) -> None:
    """Another server answers now, which has the sweep as it was at a ``moment``."""
    pipe = client.pipeline()
    pipe.delete(*keys)
    for key, dump in moment.items():
        if dump is not None:
            pipe.restore(key, 60_000, dump)
    pipe.hset(keys[0], "server", "the one that died")
    pipe.execute()


@pytest.mark.usefixtures("patient")
def test_what_a_process_made_that_stayed_away_is_in_the_sums(stage: Stage) -> None:
    """Its outputs were collected, and a promoted replica never heard of its attempts."""
    sweep = stage.sweep("a", 3)
    with stage.calling():
        one = Drive(stage.driver(sweep, "host 1 a"))
        one.end()
    assert one.error is None
    seen = one.driver.work.seen
    one.driver.work.seen = msgspec.structs.replace(seen, started=seen.started - 4, spent=seen.spent / 2)
    one.facts = one.driver.work.facts()
    _told_truly(one, stage.agent)


def _told_truly(one: Drive, agent: Agent) -> None:
    """Attempts and cost are those that the agent's server counted."""
    served = agent.calls.total()
    assert (one.facts["attempts"], one.facts["repaid"], one.facts["lost"]) == (served, 0, 0)
    assert one.facts["cost"] == pytest.approx(0.02 * served)


@pytest.mark.usefixtures("patient")
def test_a_flushed_server_learns_what_was_called(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    """All is forgotten in the middle: nothing is called again, and the sums are those of the agent's server."""
    monkeypatch.setattr(sweeps, "_PAUSE_SECONDS", 10.0)  # on a busy machine who calls may not be scheduled for so long
    sweep = stage.sweep("a", 60)
    stage.agent.latency = 0.02
    with stage.calling(2):
        one = Drive(stage.driver(sweep, "host 1 a"))
        for least in (40, 120):
            _until(sweep, least)
            stage.server.client.flushdb()
        one.end()
    assert one.error is None
    assert sweep.recorded.count == stage.agent.calls.total() == 60 * CASES
    _told_truly(one, stage.agent)


@pytest.mark.usefixtures("patient")
def test_a_sweep_that_is_cancelled_ends_for_its_driver_with_what_was_in_flight(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From elsewhere, without the token: what ends within the pause was paid, and is recorded."""
    monkeypatch.setattr(intake, "PAUSE_SECONDS", PATIENCE)  # a busy machine answers late
    sweep = stage.sweep("a", 500)
    stage.agent.latency = 0.3
    with stage.calling():
        one = Drive(stage.driver(sweep, "host 1 a"))
        wait_until(lambda: sweep.recorded.count and stage.agent.at_once, "calls are in flight")
        assert stage.calls.close(sweep.run, "cancelled", "by evalq cancel") == "cancelled"
        one.end()
    assert isinstance(one.error, Cancelled)
    assert sweep.recorded.count == stage.agent.calls.total()
    assert one.driver.work.in_flight == 0


@pytest.mark.usefixtures("patient")
def test_calls_that_outlast_the_end_of_a_sweep_are_counted(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    """Cancelled or paused, it waits for its moment and no longer, and tells how many calls had not ended then."""
    monkeypatch.setattr(intake, "PAUSE_SECONDS", 0.2)
    sweep = stage.sweep("a", 500)
    stage.agent.most = 8
    with stage.calling():
        one = Drive(stage.driver(sweep, "host 1 a"))
        wait_until(lambda: stage.agent.at_once == 4 and sweep.recorded.count == 8, "four hang")
        assert stage.calls.close(sweep.run, "cancelled", "by evalq cancel") == "cancelled"
        one.end()
        assert (one.driver.work.in_flight, sweep.recorded.count, stage.agent.calls.total()) == (4, 8, 12)
        stage.agent.most = 0


class Abandoned(EvalqError):
    """A driver that is gone, with its folder as it was."""


def _abandoned(stage: Stage, sweep: Sweep, copy_at: int, count: int) -> Sweep:
    """Drive ``sweep`` up to ``count`` outputs and no further; its folder is copied at ``copy_at``."""
    copies: list[Sweep] = []

    def watch(_: ShownProgress) -> None:
        if not copies and sweep.recorded.count >= copy_at:
            copies.append(stage.copied(sweep, "b"))
        if copies and sweep.recorded.count >= count:
            raise Abandoned

    with pytest.raises(Abandoned):
        stage.driver(sweep, "host 1 a").drive(watch)
    return copies[0]


@pytest.mark.usefixtures("patient")
@pytest.mark.parametrize("where", ["copy", "folder"])
def test_what_its_makers_still_tell_of_is_not_lost_as_well(stage: Stage, where: str) -> None:
    """The server forgets all while no driver is there, and calls are in flight: those who make them count them."""
    sweep = stage.sweep("a", 40)
    stage.agent.latency = 0.05
    with stage.calling(2):
        copy = _abandoned(stage, sweep, 30, 60)
        stage.server.client.flushdb()
        two = Drive(stage.driver(copy if where == "copy" else stage.reloaded(sweep), "host 2 b"))
        two.end()
    assert two.error is None
    assert two.facts["attempts"] == stage.agent.calls.total()
    assert two.facts["recorded"] == 40 * CASES
    assert two.facts["lost"] == 0


@pytest.mark.usefixtures("patient")
def test_what_was_in_flight_with_those_who_died_is_lost(stage: Stage) -> None:
    """Processes that call, driver and server are gone: others make the calls again, and the first ones count."""
    sweep = stage.sweep("a", 20)
    stage.agent.most = 12
    calls = sweep.recorded
    with stage.calling():
        one = Drive(stage.driver(sweep, "host 1 a"))
        wait_until(lambda: stage.agent.at_once == 4 and calls.count == 12 and calls.begun == 16, "four hang")
        copy = stage.copied(sweep, "b")
        stage.calls.close(sweep.run, "cancelled")
        one.end()
        stage.agent.most = 0
    stage.server.client.flushdb()
    assert (copy.recorded.lost, sum(copy.recorded.under_way.values())) == (0, 4)
    with stage.calling():
        two = Drive(stage.driver(copy, "host 2 b"))
        two.end()
    assert two.error is None
    assert two.facts["attempts"] == stage.agent.calls.total() == 20 * CASES + 4
    assert (two.facts["lost"], two.facts["recorded"]) == (4, 20 * CASES)


@pytest.mark.usefixtures("patient")
def test_a_copy_tells_that_its_original_has_what_it_calls_again(stage: Stage) -> None:
    """Both retry a call that failed: the second one says so before it pays, the first has no reason to."""
    write_golden(
        stage.folder / "golden.json", {"C0": {"share": 0.5}, "bad": {"do": "said", "content": "no", "times": 1}}
    )
    sweep = stage.sweep("a", 1)
    with stage.calling():
        Drive(stage.driver(sweep, "host 1 a")).end()
        assert len(sweep.recorded.failed()) == 1
        for again, warned in ((sweep, set()), (stage.copied(sweep, "b"), {"elsewhere"})):
            again.recorded.drop(again.recorded.failed())
            driver, paid = stage.driver(again, f"host 2 {again.folder.path.name}"), stage.agent.calls.total()
            seen = _told_before_paying(stage, driver)
            assert (driver.work.warnings.due, seen) == (warned, [paid] * len(warned))
            # The process that calls may still have the answer it gave the original, and tells that instead of calling.
            assert stage.agent.calls.total() - paid in ({0, 1} if warned else {1})


def _told_before_paying(stage: Stage, driver: SweepDriver) -> list[int]:
    """Drive to the end; how many calls had been made when it was to be told that others have some outputs."""
    seen: list[int] = []

    def watch(_: ShownProgress) -> None:
        if "elsewhere" in driver.work.warnings.due and not seen:
            seen.append(stage.agent.calls.total())

    driver.drive(watch)
    driver.driver.release()
    return seen


def test_a_sweep_that_somebody_else_closed_ends(stage: Stage) -> None:
    """Done elsewhere, in the middle: what nobody recorded is called, and its driver does not wait for ever."""
    sweep = stage.sweep("a", 40)
    with stage.calling():
        one = Drive(stage.driver(sweep, "host 1 a"))
        wait_until(lambda: sweep.recorded.count, "outputs are recorded")
        assert stage.calls.close(sweep.run, "done") == "done"
        one.end()
    assert one.error is None
    assert sweep.recorded.count == stage.agent.calls.total() == 40 * CASES


class _Clock:
    """Stands for `time` in what only polls: to sleep takes no time, and ``meanwhile`` is asked after each sleep."""

    def __init__(self, meanwhile: Callable[[float], None]) -> None:
        self.now = 1.0
        self._meanwhile = meanwhile

    def monotonic(self) -> float:
        """What it shows."""
        return self.now

    def sleep(self, seconds: float) -> None:
        """Set it forward."""
        self.now += seconds
        self._meanwhile(self.now)


@pytest.mark.usefixtures("patient")
def test_who_waits_tells_a_busy_producer_from_one_that_is_gone(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    """Between its calls and its evaluation nobody hears of it, for ten seconds on a busy machine: it is waited for. One
    that died there is waited for as well, but not for ever.
    """
    first, second = stage.sweep("a", 1, once="k"), stage.sweep("b", 1, once="k")
    with stage.calling():
        Drive(stage.driver(first, "host 1 a")).end()
    first.write_outputs()
    first.folder.note(state="called")
    settings = stage.settings.model_copy(update={"driver_seconds": 10.0})
    evaluation = RunLedger(stage.server.client, settings, "host 1 a")

    def waits(meanwhile: Callable[[float], None]) -> float:
        """Wait for it in the second folder; until when."""
        monkeypatch.setattr(join, "time", clock := _Clock(meanwhile))
        reporter = Reporter("calls", quiet=True, bar=False, json_lines=False)
        with Servers(settings) as servers:
            join._elsewhere(second.folder, AlreadyRunning(first.run, "host 1 a"), servers, reporter)
        return clock.now

    def begins(now: float) -> None:
        if now > 15 and evaluation.header(first.run) is None:
            evaluation.open(first.job().header, 1, key=KEY)

    assert 15 < waits(begins) < 16, "then it looks again who drives"
    evaluation.release(first.run)  # as one that ends with an error does
    for left in ("open and nobody's", "unknown"):
        seen: list[float] = []
        with pytest.raises(Incomplete, match="which is gone, collected its outputs"):
            waits(seen.append)
        assert 30 < seen[-1] < 33, left
        evaluation.delete(first.run)


def test_a_sweep_that_is_left_to_the_workers_is_no_orphan(stage: Stage) -> None:
    """Its evaluation is nobody's, and is waited for as long as it takes."""
    sweep = stage.sweep("a", 1)
    with stage.calling():
        Drive(stage.driver(sweep, "host 1 a")).end()
    sweep.write_outputs()
    sweep.folder.note(state="called")
    evaluation = RunLedger(stage.server.client, stage.settings, "host 1 a")
    evaluation.open(sweep.job().header, 1, key=KEY)
    evaluation.release(sweep.run)
    with Servers(stage.settings) as servers:
        orphaned = join._Orphaned(sweep.run, servers)
        assert orphaned.seconds() is not None
        Reports(evaluation, stage.settings).detach(sweep.run, Detached(0.0))
        assert orphaned.seconds() is None
