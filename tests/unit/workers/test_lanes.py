"""Who gets the calls in flight of a process: seconds of work are shared, and no lane waits beside a call."""

from __future__ import annotations

import asyncio
import contextlib
import heapq
import json
import random
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from evalq.evalcore.model.calls import Prompt
from evalq.evalcore.version import code_version
from evalq.workers.callers import main as calls_main
from evalq.workers.callers.lanes import Lanes
from evalq.workers.fair_shares import CLASS_WEIGHTS, parts
from evalq.workers.fair_shares import Path as Share
from evalq.workers.ledger.sweep_model import SweepHeader
from evalq.workers.ledger.sweeps import SweepLedger
from evalq.workers.settings import Settings
from tests.agents.server import running_agent
from tests.integration.harness import PATIENCE, running_server, wait_until

LANES = 4


class Simulated:
    """Lanes in simulated time: each of ``lengths`` always wants more calls, whose lengths it gives."""

    def __init__(self, weights: dict[str, float], lanes: int = LANES) -> None:
        self.now = 0.0
        self.lanes = Lanes(lanes, [CLASS_WEIGHTS, weights], clock=lambda: self.now)
        self.seconds: dict[Share, float] = {}
        self.most = 0
        self._ends: list[tuple[float, int, asyncio.Event]] = []
        self._running = self._number = 0

    async def work(self, path: Share, length: float) -> None:
        """One call."""
        async with self.lanes.lane(path):
            ended = asyncio.Event()
            self._number += 1
            self._running += 1
            self.most = max(self.most, self._running)
            heapq.heappush(self._ends, (self.now + length, self._number, ended))
            await ended.wait()
            self._running -= 1
            self.seconds[path] = self.seconds.get(path, 0.0) + length

    async def until(self, seconds: float) -> None:
        """Let calls end, one after another, until then."""
        while True:
            for _ in range(20):
                await asyncio.sleep(0)
            if not self._ends or self._ends[0][0] > seconds:
                return
            self.now, _, ended = heapq.heappop(self._ends)
            ended.set()


async def _always(world: Simulated, path: Share, lengths: random.Random, mean: float) -> None:
    while True:
        await world.work(path, mean * (0.5 + lengths.random()))


def _shares(weights: dict[str, float], means: dict[Share, float], seconds: float, seed: int) -> Simulated:
    """The world after a while in which each path always wanted as many calls as there are lanes."""

    async def run() -> Simulated:
        world, lengths = Simulated(weights), random.Random(seed)
        tasks = [
            asyncio.create_task(_always(world, path, lengths, mean))
            for path, mean in means.items()
            for _ in range(2 * LANES)
        ]
        await world.until(seconds)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        return world

    return asyncio.run(run())


@settings(deadline=None, max_examples=15)
@given(st.lists(st.sampled_from([0.1, 0.5, 1.0, 4.0]), min_size=2, max_size=5), st.integers(0, 99))
def test_sweeps_share_seconds_of_work_and_not_calls(means: list[float], seed: int) -> None:
    """However long the calls of each are: their seconds differ by a few calls at most, and all lanes are used."""
    world = _shares({}, {(str(number),): mean for number, mean in enumerate(means)}, 60.0, seed)
    fair = LANES * 60.0 / len(means)
    for path in world.seconds:
        assert world.seconds[path] == pytest.approx(fair, abs=2 * LANES * max(means))
    assert world.most == LANES


@pytest.mark.parametrize("weights", [{}, {"a": 3.0}, {"a": 1.0, "b": 4.0}])
def test_teams_get_their_weights_whatever_the_number_of_their_runs(weights: dict[str, float]) -> None:
    """Team a has 20 runs and team b one: the shares of the teams are those of their weights, within 5 %."""
    runs: dict[Share, float] = {("bulk", "a", f"a{number}"): 0.5 for number in range(20)}
    runs["bulk", "b", "b0"] = 1.0
    world = _shares(weights, runs, 400.0, 1)
    done = {team: sum(took for path, took in world.seconds.items() if path[1] == team) for team in "ab"}
    wanted = weights.get("a", 1.0) / (weights.get("a", 1.0) + weights.get("b", 1.0))
    assert done["a"] / sum(done.values()) == pytest.approx(wanted, rel=0.05)
    each = [took for path, took in world.seconds.items() if path[1] == "a"]
    assert max(each) - min(each) <= 4 * 0.75, "the runs of a team share alike"


def test_parts_are_those_of_the_weights_at_each_level() -> None:
    """A path's part is that of its class, its team in it, and its run in the team."""
    weights = [CLASS_WEIGHTS, {"a": 3.0}]
    paths = [("bulk", "a", "1"), ("bulk", "a", "2"), ("bulk", "b", "3"), ("interactive", "b", "4")]
    assert [parts(weights, paths)[path] for path in paths] == pytest.approx([0.0375, 0.0375, 0.025, 0.9])
    assert parts(weights, paths[:1]) == {paths[0]: 1.0}
    assert parts(weights, []) == {}
    many = [("bulk", "", str(number)) for number in range(1000)]
    assert sum(parts(weights, many).values()) == pytest.approx(1.0)


def test_interactive_runs_have_most_of_the_lanes_and_bulk_runs_some() -> None:
    """However many bulk runs there are."""
    runs: dict[Share, float] = {("bulk", "", f"b{number}"): 0.5 for number in range(9)}
    runs["interactive", "", "i"] = 0.5
    world = _shares({}, runs, 200.0, 2)
    assert world.seconds["interactive", "", "i"] / sum(world.seconds.values()) == pytest.approx(0.9, abs=0.03)


@pytest.mark.parametrize("pause", [False, True])
def test_one_that_was_idle_gets_no_credit_and_no_debt(pause: bool) -> None:
    """A sweep that comes late has its share from then on, and does not make up for the time before."""

    async def run() -> dict[Share, float]:
        world, lengths = Simulated({}), random.Random(3)
        tasks = [asyncio.create_task(_always(world, ("first",), lengths, 1.0)) for _ in range(LANES)]
        await world.until(100.0)
        if pause:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            tasks = [asyncio.create_task(_always(world, ("second",), lengths, 1.0)) for _ in range(LANES)]
            await world.until(100.0)
            tasks += [asyncio.create_task(_always(world, ("first",), lengths, 1.0)) for _ in range(LANES)]
        before = dict(world.seconds)
        if not pause:
            tasks += [asyncio.create_task(_always(world, ("second",), lengths, 1.0)) for _ in range(LANES)]
        await world.until(200.0)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        return {path: took - before.get(path, 0.0) for path, took in world.seconds.items()}

    took = asyncio.run(run())
    assert took["first",] == pytest.approx(took["second",], abs=2 * LANES)


def test_a_call_that_is_withdrawn_leaves_its_lane_to_others() -> None:
    """While it waits, in the moment in which it gets its turn, and while it has it."""

    async def run() -> None:
        lanes = Lanes(1)

        async def hold(name: str) -> None:
            async with lanes.lane((name,)):
                await asyncio.Event().wait()

        first, second, third = (asyncio.create_task(hold(name)) for name in "abc")
        await asyncio.sleep(0)
        assert lanes.free == 0
        second.cancel()  # it waits
        first.cancel()  # the third gets its turn ...
        await asyncio.gather(first, second, return_exceptions=True)
        third.cancel()  # ... in this moment
        await asyncio.gather(third, return_exceptions=True)
        assert lanes.free == 1
        async with lanes.lane(("a",)):
            assert lanes.free == 0

    asyncio.run(run())


def test_a_turn_that_is_cancelled_when_its_lane_becomes_free_goes_to_the_next() -> None:
    """Its task has not run since."""

    async def run() -> None:
        lanes, order = Lanes(1), []

        async def hold(name: str, end: asyncio.Event) -> None:
            async with lanes.lane((name,)):
                order.append(name)
                await end.wait()

        ends = [asyncio.Event() for _ in "abc"]
        tasks = [asyncio.create_task(hold(name, end)) for name, end in zip("abc", ends, strict=True)]
        await asyncio.sleep(0)
        ends[0].set()
        tasks[1].cancel()
        ends[2].set()
        await asyncio.gather(*tasks, return_exceptions=True)
        assert (order, lanes.free) == (["a", "c"], 1)

    asyncio.run(run())


def test_many_shares_that_have_ended_are_forgotten() -> None:
    """A process that lives for long sees any number of runs."""

    async def run() -> int:
        lanes = Lanes(2)
        for number in range(1000):
            async with lanes.lane(("bulk", str(number))):
                pass
        return len(lanes._root.line(("bulk",))[-1]._below)

    assert asyncio.run(run()) <= 101


@contextlib.contextmanager
def calling(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A process that calls, in a thread: it cannot have signal handlers."""
    monkeypatch.setattr(asyncio.SelectorEventLoop, "add_signal_handler", lambda *_: None)
    process = calls_main._CallingProcess(settings)
    thread = threading.Thread(target=lambda: asyncio.run(process.serve(None)))
    thread.start()
    try:
        yield
    finally:
        process._stop.set()
        thread.join(PATIENCE)


@pytest.mark.parametrize(("own", "others"), [({"priority": "interactive"}, {}), ({"team": "b"}, {"team": "a"})])
def test_a_small_sweep_is_not_held_up_by_five_large_ones(
    own: dict[str, str], others: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An interactive one makes several calls where they make one; that of another team as many as they all make.

    In turns, they would make five times as many as it does. On a busy machine some lanes pass by who has yet to claim.
    """
    lanes, large, small = 4, 5, 40
    with running_agent() as (agent, url), running_server(tmp_path) as server:
        agent.latency, agent.answer = 0.05, lambda prompt: prompt
        (tmp_path / "targets.yaml").write_text(
            json.dumps({"targets": {"t": {"kind": "openai", "base_url": url, "model": "m", "output": "text"}}})
        )
        asked = Settings(broker=server.url, targets=str(tmp_path / "targets.yaml"), calls=lanes)

        def begin(run: str, total: int, *, priority: str = "bulk", team: str = "") -> None:
            ledger = SweepLedger(server.client, asked.model_copy(update={"team": team}))
            ledger.open(SweepHeader(run, "t", code_version(), 1, total), priority=priority)
            ledger.offer(run, [Prompt("c", "a", run.rstrip("0123456789"))])

        for number in range(large):
            begin(f"large{number}", 100_000, **others)
        with calling(asked, monkeypatch):
            wait_until(lambda: agent.calls["large"] >= 20, "the large ones are at work")
            begin("small", small, **own)
            wait_until(lambda: agent.calls["small"] > 0, "the small one begins", 60)
            before = agent.calls["large"]
            wait_until(lambda: agent.calls["small"] == small, "the small one is done", 60)
            beside = agent.calls["large"] - before
    assert beside <= (small // 2 if "priority" in own else small) + 5 * lanes


def test_a_fast_sweep_has_all_lanes_beside_four_that_wait_for_their_pace(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Paced sweeps have claimed calls and wait: no lane is theirs meanwhile. Counted in calls at once, not in time."""
    lanes = 6
    with running_agent() as (fast, fast_url), running_agent() as (paced, paced_url), running_server(tmp_path) as server:
        slow = {"kind": "openai", "base_url": paced_url, "model": "m", "requests_per_minute": 0.001}
        targets = {"fast": {"kind": "openai", "base_url": fast_url, "model": "m"}} | {
            f"paced{n}": slow for n in range(4)
        }
        (tmp_path / "targets.yaml").write_text(json.dumps({"targets": targets}))
        asked = Settings(broker=server.url, targets=str(tmp_path / "targets.yaml"), calls=lanes)
        ledger = SweepLedger(server.client, asked)

        def begin(target: str) -> None:
            ledger.open(SweepHeader(target, target, code_version(), 1, 50))
            ledger.offer(target, [Prompt("c", "a", "q")])

        for number in range(4):
            begin(f"paced{number}")
        with calling(asked, monkeypatch):
            wait_until(lambda: paced.calls.total() == 4, "each paced sweep has made its call of this minute")
            fast.ready = lambda: False
            begin("fast")
            wait_until(lambda: fast.at_once == lanes, "the fast sweep has every lane", 60)
            assert fast.busiest == lanes
            fast.ready = lambda: True
            wait_until(lambda: fast.calls.total() == 50, "all its calls are made", 60)
            assert paced.calls.total() == 4
