"""Ctrl-C and SIGTERM while a run is driven, or calls are tried: the next do not break the order of the first."""

from __future__ import annotations

import _thread
import contextlib
import signal
import sys
import threading
import time
from collections.abc import Callable, Coroutine, Iterator
from types import FrameType
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from sys import UnraisableHookArgs


T = TypeVar("T")

_SIGNALS = (signal.SIGINT, signal.SIGTERM)
_PAUSE_SECONDS = 0.001
_dropped = threading.Event()


class Interrupts:
    """Counts interrupts in a block.

    The first is raised there, as KeyboardInterrupt. The second comes while the block ends, at any line of it, so it is
    only noted, for whoever waits there to hurry. The third is raised again: whoever sends it wants out.
    """

    def __init__(self) -> None:
        self._count = 0

    @property
    def again(self) -> bool:
        """Whether a second one came."""
        return self._count > 1

    @contextlib.contextmanager
    def counted(self) -> Iterator[None]:
        """Count in the block. Signals that are ignored stay ignored; off the main thread nothing can be counted."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        before = _handlers()
        _dropped.clear()
        for number in before:
            signal.signal(number, self._note)
        try:
            with keep_interrupts():
                yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def _note(self, number: int, frame: FrameType | None) -> None:
        if _dropped.is_set():  # the same one, which was counted when it came
            _dropped.clear()
            raise KeyboardInterrupt
        self._count += 1
        if self._count != 2:
            raise KeyboardInterrupt


def run_interruptible(work: Coroutine[Any, Any, T]) -> T:
    """What ``work`` returns, from a loop of its own. An interrupt cancels it, each time; raises KeyboardInterrupt then.

    `asyncio.run` raises the second Ctrl-C wherever the loop is just then, and so does a handler that raises: it may
    take the place of what the loop was to do next, and whoever waits for that as it ends waits for ever.
    """
    import asyncio

    before = _handlers() if threading.current_thread() is threading.main_thread() else {}

    async def cancellable() -> T:
        task, loop = asyncio.current_task(), asyncio.get_running_loop()
        assert task is not None
        for number in before:
            loop.add_signal_handler(number, task.cancel)
        return await work

    try:
        return asyncio.run(cancellable())
    except asyncio.CancelledError:
        raise KeyboardInterrupt from None
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _handlers() -> dict[signal.Signals, Callable[[int, FrameType | None], Any]]:
    """What answers interrupts here, where Python does: what it did not handle before is not to be handled either."""
    # SIG_DFL and SIG_IGN are no functions, and what was not set by Python is None.
    return {number: handler for number in _SIGNALS if callable(handler := signal.getsignal(number))}


@contextlib.contextmanager
def keep_interrupts() -> Iterator[None]:
    """A block in which no interrupt is lost because it came while a finaliser ran.

    What is raised in a `__del__`, as of the connections of each look at a server, Python prints and drops: a command
    that a CI system ends would go on. Such a one is raised once more, right after.
    """
    before = sys.unraisablehook

    def hook(unraisable: UnraisableHookArgs) -> None:
        if not issubclass(unraisable.exc_type, KeyboardInterrupt):
            before(unraisable)
            return
        _dropped.set()
        # By another thread, and not before this returns: what is raised in here is dropped, too.
        here = [True]
        threading.Thread(target=_again, args=(here,), name="evalq-interrupt", daemon=True).start()
        here[0] = False  # the last: Python looks for signals at calls and jumps, and none follows

    sys.unraisablehook = hook
    try:
        yield
    finally:
        sys.unraisablehook = before


def _again(there: list[bool]) -> None:
    while there[0]:
        time.sleep(_PAUSE_SECONDS)
    for number in _SIGNALS:
        if callable(signal.getsignal(number)):  # both are answered alike, and one may be ignored
            _thread.interrupt_main(number)
            return
