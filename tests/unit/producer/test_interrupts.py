"""Interrupts of a process that drives a run: raised, then noted, then raised again; and as before after the block."""

import asyncio
import os
import signal
import threading

import pytest

from evalq.producer.driving.interrupts import Interrupts, run_interruptible
from tests.integration.harness import wait_until


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_the_second_one_does_not_break_what_the_first_began(number: int) -> None:
    as_found = signal.signal(number, signal.default_int_handler)  # as the commands have it for both
    interrupts, ended = Interrupts(), False
    with interrupts.counted():
        try:
            os.kill(os.getpid(), number)
        except KeyboardInterrupt:
            assert not interrupts.again
            os.kill(os.getpid(), number)
            ended = True
            assert interrupts.again
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), number)
    assert ended
    assert signal.signal(number, as_found) is signal.default_int_handler


def test_an_ignored_signal_stays_ignored() -> None:
    """As under nohup."""
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        with (interrupts := Interrupts()).counted():
            os.kill(os.getpid(), signal.SIGINT)
            os.kill(os.getpid(), signal.SIGINT)
        assert not interrupts.again
    finally:
        signal.signal(signal.SIGINT, before)


def test_another_thread_has_none_to_count() -> None:
    def enter() -> None:
        with Interrupts().counted():
            entered.append(True)

    entered: list[bool] = []
    thread = threading.Thread(target=enter)
    thread.start()
    thread.join()
    assert entered == [True]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_loop_loses_nothing_that_it_was_to_do(number: int) -> None:
    """Two come in the middle of what its work waits for as it ends."""
    as_found = signal.signal(number, signal.default_int_handler)
    ended = []

    async def work() -> None:
        done = asyncio.Event()

        def step() -> None:
            for _ in range(2):
                os.kill(os.getpid(), number)
            done.set()

        asyncio.get_running_loop().call_soon(step)
        try:
            await asyncio.Event().wait()
        finally:
            async with asyncio.timeout(10):
                await done.wait()
            ended.append(True)

    with pytest.raises(KeyboardInterrupt):
        run_interruptible(work())
    assert ended == [True]
    assert signal.signal(number, as_found) is signal.default_int_handler


def test_what_nobody_interrupts_returns_and_an_ignored_signal_stays_ignored_in_a_loop() -> None:
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)

    async def work() -> int:
        os.kill(os.getpid(), signal.SIGINT)
        await asyncio.sleep(0)
        return 7

    try:
        assert run_interruptible(work()) == 7
        assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGINT, before)


class _Finalised:
    """Somebody interrupts in the middle of its finaliser."""

    def __init__(self, number: int) -> None:
        self._number = number

    def __del__(self) -> None:
        signal.raise_signal(self._number)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_one_that_comes_in_a_finaliser_is_not_lost(number: int) -> None:
    """Python drops what is raised there; it is raised again, still as the first, and the next is noted alone."""
    as_found = signal.signal(number, signal.default_int_handler)
    try:
        with (interrupts := Interrupts()).counted():
            try:
                _Finalised(number)
                wait_until(lambda: False, "an interrupt", 60)
            except KeyboardInterrupt:
                assert not interrupts.again
                signal.raise_signal(number)
            assert interrupts.again
    finally:
        signal.signal(number, as_found)
