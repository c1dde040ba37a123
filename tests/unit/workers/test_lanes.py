"""Who gets the calls in flight of a process: seconds of work are shared, and no lane waits beside a call."""

from __future__ import annotations

import asyncio
import heapq
import json
import random
import threading
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from evalq.evalcore.model.calls import Prompt
from evalq.evalcore.version import code_version
from evalq.workers.callers import main as calling
from evalq.workers.callers.lanes import Lanes
from evalq.workers.callers.lanes import Path as Share
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
        self.lanes = Lanes(lanes, weights, clock=lambda: self.now)
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
            for _ in range(LANES)
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


def test_many_shares_that_have_ended_are_forgotten() -> None:
    """A process that lives for long sees any number of runs."""

    async def run() -> int:
        lanes = Lanes(2)
        for number in range(1000):
            async with lanes.lane(("bulk", str(number))):
                pass
        return len(lanes._root.line(("bulk",))[-1]._below)

    assert asyncio.run(run()) <= 101


def test_a_fast_sweep_has_all_lanes_beside_four_that_wait_for_their_pace(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Paced sweeps have claimed calls and wait: no lane is theirs meanwhile. Counted in calls at once, not in time."""
    monkeypatch.setattr(asyncio.SelectorEventLoop, "add_signal_handler", lambda *_: None)
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
        process = calling._CallingProcess(asked)
        thread = threading.Thread(target=lambda: asyncio.run(process.serve(None)))
        thread.start()
        try:
            wait_until(lambda: paced.calls.total() == 4, "each paced sweep has made its call of this minute")
            fast.ready = lambda: False
            begin("fast")
            wait_until(lambda: fast.at_once == lanes, "the fast sweep has every lane", 60)
            assert fast.busiest == lanes
            fast.ready = lambda: True
            wait_until(lambda: fast.calls.total() == 50, "all its calls are made", 60)
            assert paced.calls.total() == 4
        finally:
            process._stop.set()
            process._wake.set()
            thread.join(PATIENCE)
