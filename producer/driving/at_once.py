"""Parts of a command whose live calls are made at once, each in a thread; all else they do one after another.

A part begins in the main thread's turn, waits for its calls beside those of others, and ends in its turn. So folders,
reports and output come in the order of the parts, and no part forks a process while another one calls.
"""

from __future__ import annotations

import contextlib
import ctypes
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Generic, TypeVar

from evalq.evalcore.errors import Interrupted
from evalq.producer.driving.interrupts import interrupt_thread

T = TypeVar("T")

_PAUSE_SECONDS = 0.05
"""Waits end after this time, since an exception that is raised in a thread does not end them."""
_current = threading.local()


@contextlib.contextmanager
def calls_at_once() -> Iterator[None]:
    """The block in which a part makes its calls. Outside of a part it changes nothing."""
    part: SuitePart[object] | None = getattr(_current, "part", None)
    if part is None:
        yield
        return
    part.begin_calls()
    try:
        yield
    finally:
        part.end_calls()
    part.wait_for_turn()


class SuitePart(Generic[T]):
    """One part: ``work`` runs in a thread of its own, and calls `calls_at_once` once at most."""

    def __init__(self, work: Callable[[], T], slots: threading.Semaphore) -> None:
        self._work = work
        self._slots = slots
        self._turn = threading.Event()
        self._called = threading.Event()
        self._over = threading.Event()
        self._holds = False
        self._result: T | None = None
        self.error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="evalq-part", daemon=True)

    def start(self) -> None:
        """Begin it; returns when it makes calls, or is over."""
        self._thread.start()
        while not (self._called.is_set() or self._over.is_set() or self._holds):
            self._called.wait(_PAUSE_SECONDS)

    def await_calls(self) -> None:
        """Wait until its calls are made."""
        while not (self._called.is_set() or self._over.is_set()):
            self._called.wait(_PAUSE_SECONDS)

    def finish(self) -> T:
        """Let it end, and return what its work returns, or raise what that raised."""
        self._turn.set()
        while not self._over.wait(_PAUSE_SECONDS):
            pass
        if self.error is not None:
            raise self.error
        return self._result  # type: ignore[return-value]  # a T, as there is no error

    def interrupt(self) -> bool:
        """Have it end as by Ctrl-C; False if it is over."""
        if self._over.is_set() or self._thread.ident is None:
            return False
        if interrupt_thread(self._thread.ident):
            ctypes.pythonapi.PyThreadState_SetAsyncExc(
                ctypes.c_ulong(self._thread.ident), ctypes.py_object(KeyboardInterrupt)
            )
        return True

    def wait(self) -> None:
        """Wait until it is over."""
        while not self._over.wait(_PAUSE_SECONDS):
            pass

    # In its thread

    def begin_calls(self) -> None:
        """Wait until few enough parts call."""
        self._holds = True
        while not self._slots.acquire(timeout=_PAUSE_SECONDS):
            pass

    def end_calls(self) -> None:
        """Let another part call."""
        self._slots.release()
        self._called.set()

    def wait_for_turn(self) -> None:
        """Wait until the parts before this one have ended."""
        while not self._turn.wait(_PAUSE_SECONDS):
            pass

    def _run(self) -> None:
        _current.part = self
        try:
            self._result = self._work()
        except BaseException as error:  # it is raised in the main thread
            self.error = error
        finally:
            self._over.set()


@contextlib.contextmanager
def parts_at_once(works: Sequence[Callable[[], T]], most: int) -> Iterator[list[SuitePart[T]]]:
    """Parts that do ``works``, whose calls are over; at most ``most`` of them called at once.

    If the block or the calls are interrupted, so are all parts. Raises Interrupted with how to resume each.
    """
    slots = threading.Semaphore(most)
    parts = [SuitePart(work, slots) for work in works]
    try:
        for part in parts:
            part.start()
        for part in parts:
            part.await_calls()
        yield parts
    except BaseException as error:
        _end(parts)
        if isinstance(error, KeyboardInterrupt | Interrupted):
            known = [each.error for each in parts] + [error]
            hows = [each.how for each in known if isinstance(each, Interrupted)]
            if hows:
                raise Interrupted("; ".join(dict.fromkeys(hows))) from None
        raise
    finally:
        _end(parts)


def _end(parts: Sequence[SuitePart[T]]) -> None:
    """Interrupt the parts that are not over, and wait for them; further interrupts go on to them."""
    again = True
    while again:
        again = False
        try:
            running = [part for part in parts if part.interrupt()]
            for part in running:
                part.wait()
        except KeyboardInterrupt:
            again = True
