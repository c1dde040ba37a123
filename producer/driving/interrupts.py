"""Ctrl-C and SIGTERM while a run is driven: the second and third signal must not break the orderly end of the first."""

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
_in_threads: dict[int, Interrupts] = {}


class Interrupts:
    """Counts interrupts in a block.

    The first raises KeyboardInterrupt there. The second may come at any line while the block ends, so it is only noted,
    and code that waits there hurries. The third raises again, to end at once.
    """

    def __init__(self) -> None:
        self._count = 0

    @property
    def again(self) -> bool:
        """Whether a second interrupt came."""
        return self._count > 1

    @contextlib.contextmanager
    def counted(self) -> Iterator[None]:
        """Count interrupts in the block. Ignored signals stay ignored.

        Outside the main thread no signals come; there `interrupt_thread` counts.
        """
        if threading.current_thread() is not threading.main_thread():
            _in_threads[threading.get_ident()] = self
            try:
                yield
            finally:
                del _in_threads[threading.get_ident()]
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

    def counts(self) -> bool:
        """Count an interrupt; return whether it is to be raised."""
        self._count += 1
        return self._count != 2

    def _note(self, number: int, frame: FrameType | None) -> None:
        if _dropped.is_set():  # the same interrupt again; it was counted when it came
            _dropped.clear()
            raise KeyboardInterrupt
        if self.counts():
            raise KeyboardInterrupt


def interrupt_thread(ident: int) -> bool:
    """Count an interrupt in the block of `Interrupts.counted` of a thread; whether it is to be raised there."""
    interrupts = _in_threads.get(ident)
    return interrupts is None or interrupts.counts()


def run_interruptible(work: Coroutine[Any, Any, T]) -> T:
    """Run ``work`` in its own event loop and return its result. An interrupt cancels it and raises KeyboardInterrupt.

    `asyncio.run` raises the second Ctrl-C at any line of the loop, and so does a handler that raises. That can drop the
    loop's next callback, and then the end of the loop waits for ever.
    """
    import asyncio

    before = _handlers() if threading.current_thread() is threading.main_thread() else {}

    async def cancellable() -> T:
        task, loop = asyncio.current_task(), asyncio.get_running_loop()
        assert task is not None
        with contextlib.suppress(NotImplementedError):  # by Windows, where Python's handlers stay
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
    """The Python handlers of interrupts; signals that Python does not handle stay as they are."""
    # SIG_DFL and SIG_IGN are not callable; a handler not set by Python is None.
    return {number: handler for number in _SIGNALS if callable(handler := signal.getsignal(number))}


@contextlib.contextmanager
def keep_interrupts() -> Iterator[None]:
    """A block that loses no interrupt to a finaliser.

    Python prints and drops errors raised in a `__del__`, such as that of a connection: a command that a CI system ends
    would go on. The block raises such an interrupt again right after.
    """
    before = sys.unraisablehook

    def hook(unraisable: UnraisableHookArgs) -> None:
        if not issubclass(unraisable.exc_type, KeyboardInterrupt):
            before(unraisable)
            return
        _dropped.set()
        # By another thread, and after this returns: an error raised in here is dropped, too.
        in_hook = [True]
        threading.Thread(target=_again, args=(in_hook,), name="evalq-interrupt", daemon=True).start()
        in_hook[0] = False  # the last line: Python checks for signals at calls and jumps, and none follows

    sys.unraisablehook = hook
    try:
        yield
    finally:
        sys.unraisablehook = before


def _again(in_hook: list[bool]) -> None:
    while in_hook[0]:
        time.sleep(_PAUSE_SECONDS)
    for number in _SIGNALS:
        if callable(signal.getsignal(number)):  # both have the same effect, and one may be ignored
            _thread.interrupt_main(number)
            return
