"""The pace of one process: limits are kept, a server's limit is found, and a rare refusal slows nothing down."""

from __future__ import annotations

import asyncio
import random
import time
from collections import deque
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import pytest

from evalq.workers.callers.local_pacer import LocalPacer
from evalq.workers.targets.http import HttpTarget


class Clock:
    """Time that passes only when all tasks wait."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def pacer(clock: Callable[[], float] = time.monotonic, **limits: Any) -> LocalPacer:
    """Of a target with these limits."""
    return LocalPacer(HttpTarget(kind="http", url="http://127.0.0.1:1/", body={}, **limits), clock)


async def calls(paced: LocalPacer, count: int, serve: Callable[[float], bool], seconds: float = 0.01) -> list[float]:
    """Make ``count`` calls, each until it is served; returns when each attempt started."""
    starts: list[float] = []

    async def one() -> None:
        served = False
        while not served:
            turn = await paced.acquire()
            starts.append(time.monotonic())
            await asyncio.sleep(seconds)
            served = serve(time.monotonic())
            paced.settle(
                turn,
                refused=not served,
                served=served,
                retry_after_seconds=None,
                spent=False,
                tokens=10 if served else None,
            )

    await asyncio.gather(*(one() for _ in range(count)))
    return starts


def test_never_more_calls_at_once_than_the_target_takes() -> None:
    paced, busy, most = pacer(max_concurrency=3), [0], [0]

    async def one() -> None:
        turn = await paced.acquire()
        busy[0] += 1
        most[0] = max(most[0], busy[0])
        await asyncio.sleep(0.002)
        busy[0] -= 1
        paced.settle(turn, refused=False, served=True, retry_after_seconds=None, spent=False, tokens=None)

    async def all_of_them() -> None:
        await asyncio.gather(*(one() for _ in range(30)))

    asyncio.run(all_of_them())
    assert most == [3]


def test_calls_a_minute_are_spread_evenly() -> None:
    starts = asyncio.run(calls(pacer(requests_per_minute=3000), 20, lambda now: True))
    assert min(b - a for a, b in pairwise(starts)) >= 0.02 - 0.005


def test_tokens_a_minute_hold_calls_back() -> None:
    clock = Clock()
    paced = pacer(clock, tokens_per_minute=60, tokens_per_call=30)

    async def some() -> float:
        for _ in range(2):
            turn = await paced.acquire()
            paced.settle(turn, refused=False, served=True, retry_after_seconds=None, spent=False, tokens=30)
        # The minute's tokens are spent: the next call has to wait for 30 of them, at one a second.
        return paced._wait(clock.now)

    assert asyncio.run(some()) == pytest.approx(30, abs=1)


def test_a_server_that_refuses_now_and_then_is_called_as_before() -> None:
    seed = random.randrange(1 << 32)
    print("seed", seed)  # noqa: T201 - to repeat a failure
    chance = random.Random(seed)
    paced = pacer()
    asyncio.run(calls(paced, 300, lambda now: chance.random() > 0.08))
    assert paced._rate is None


@pytest.mark.parametrize(("refused", "steps"), [(5, False), (12, False), (13, True), (50, True)])
def test_refusals_that_come_before_the_answers_are_a_share_of_all_that_began(refused: int, steps: bool) -> None:
    """Of 50 calls at once: a server refuses in no time what it would take a second to answer."""
    clock = Clock()
    paced = pacer(clock)

    async def some() -> None:
        turns = [await paced.acquire() for _ in range(50)]
        for number, turn in enumerate(turns):
            clock.now += 0.001 if number < refused else 0.02
            no = number < refused
            paced.settle(turn, refused=no, served=not no, retry_after_seconds=None, spent=False, tokens=None)

    asyncio.run(some())
    assert (paced._rate is not None) is steps


def test_a_server_at_its_limit_is_called_more_slowly() -> None:
    window: deque[float] = deque()

    def serve(now: float) -> bool:
        while window and window[0] < now - 1:
            window.popleft()
        window.append(now)
        return len(window) <= 40

    paced = pacer()
    asyncio.run(calls(paced, 120, serve))
    assert paced._rate is not None
    assert paced._rate <= 60


def test_retry_after_holds_all_calls_once_several_are_refused_in_a_row() -> None:
    clock = Clock()
    paced = pacer(clock)

    async def refused() -> list[float]:
        waits = []
        for _ in range(6):
            turn = await paced.acquire()
            paced.settle(turn, refused=True, served=False, retry_after_seconds=20, spent=False, tokens=None)
            waits.append(paced._held_until - clock.now)
            clock.now += 30
        return waits

    waits = asyncio.run(refused())
    assert max(waits[:4]) <= 0
    assert waits[4] == 20
