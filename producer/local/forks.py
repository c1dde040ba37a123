"""Processes forked from this one, with its imports; each takes orders and answers them over a socket.

They keep none of its open files, so that they hold no lock of this process, and none of its signal handlers. Each ends
when its socket closes and, on Linux, when this process ends in any way.
"""

from __future__ import annotations

import contextlib
import math
import os
import select
import signal
import socket
import struct
import sys
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import NoReturn

from evalq.evalcore.errors import InfrastructureError
from evalq.workers.processes.system import require_forks, signal_name

_LENGTH = struct.Struct(">Q")
_DEPTH = 2
"""Orders that a process has at once: it begins the next one while its answer is fetched."""
_PIECE = 1 << 20
_CHECK_SECONDS = 0.5
"""After so long without an answer, check whether the process lives."""
_SIGNALS = (signal.SIGINT, signal.SIGTERM)


class ForkLost(Exception):
    """A forked process ended while it had orders."""


class Fork:
    """One forked process, and the numbers of its orders, in the order of its answers."""

    def __init__(self, answer: Callable[[bytes], bytes], begin: Callable[[], None]) -> None:
        """The process calls ``begin`` first, then ``answer`` with each order."""
        mine, its = socket.socketpair()
        _flush()
        # Block signals: a child would handle an interrupt with this process's handlers before it has its own.
        before = signal.pthread_sigmask(signal.SIG_BLOCK, _SIGNALS)
        try:
            self.pid = os.fork()
            if self.pid == 0:
                _live(its, answer, begin)
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
        its.close()
        self.orders: deque[int] = deque()
        self._line = mine
        self._read = bytearray()
        self._status: int | None = None

    def fileno(self) -> int:
        """The socket's number; readable when the process has answered or ended."""
        return self._line.fileno()

    def send(self, number: int, order: bytes) -> None:
        """Send an order. Raises ForkLost."""
        self.orders.append(number)
        left = memoryview(_LENGTH.pack(len(order)) + order)
        while left:
            # It may be writing a long answer, and reads no order before this process reads the answer.
            found = _ready([self], select.POLLIN | select.POLLOUT, _CHECK_SECONDS)
            ready = found[0][1] if found else 0
            if ready & ~select.POLLOUT:
                self.take_in()
            if ready & select.POLLOUT:
                left = left[self._sent(left) :]
            if not ready:
                self.check()

    @property
    def answered(self) -> bool:
        """Whether an answer is here."""
        return len(self._read) >= _LENGTH.size and len(self._read) >= self._end()

    def receive(self) -> tuple[int, bytes]:
        """The next answer with the number of its order; only if one is `answered`."""
        end = self._end()
        answer = bytes(memoryview(self._read)[_LENGTH.size : end])
        del self._read[:end]
        return self.orders.popleft(), answer

    def end(self) -> None:
        """Kill it, and wait until it is gone."""
        self._line.close()
        if self._status is not None:
            return  # its number may be another process's by now
        with contextlib.suppress(ChildProcessError, ProcessLookupError):
            os.kill(self.pid, signal.SIGKILL)
            os.waitpid(self.pid, 0)

    def _end(self) -> int:
        """The end of the first answer in the buffer."""
        return _LENGTH.size + int(_LENGTH.unpack_from(self._read)[0])

    def _sent(self, data: memoryview) -> int:
        try:
            return self._line.send(data, socket.MSG_DONTWAIT)
        except BlockingIOError:
            return 0
        except OSError as error:
            raise ForkLost(self._ended()) from error

    def take_in(self) -> None:
        """Read a part of its answers. Raises ForkLost."""
        try:
            part = self._line.recv(_PIECE)
        except OSError:
            part = b""
        if not part:
            raise ForkLost(self._ended())
        self._read += part

    def check(self) -> None:
        """Raise ForkLost if it has ended and all its answers were read.

        The socket shows its end, too, but not while a process that it has started keeps the socket open.
        """
        if self._reaped(os.WNOHANG) is not None and not _ready([self], select.POLLIN, 0.0):
            raise ForkLost(self._ended())

    def _ended(self) -> str:
        status = self._reaped()
        if status is None:
            return "a process ended"
        if os.WIFSIGNALED(status):
            return f"a process was killed by {signal_name(os.WTERMSIG(status))}"
        return f"a process ended with exit code {os.WEXITSTATUS(status)}"

    def _reaped(self, options: int = 0) -> int | None:
        """Its exit status; None if it has not ended, or another caller has read it."""
        if self._status is None:
            with contextlib.suppress(ChildProcessError):
                done, status = os.waitpid(self.pid, options)
                self._status = status if done else None
        return self._status


class Forks:
    """Several forked processes; an order goes to the one with the fewest."""

    def __init__(self) -> None:
        self._forks: list[Fork] = []

    def add(self, fork: Fork) -> None:
        """Add a process."""
        self._forks.append(fork)

    @property
    def room(self) -> bool:
        """Whether a process would soon take another order."""
        return any(len(fork.orders) < _DEPTH for fork in self._forks)

    @property
    def busy(self) -> bool:
        """Whether an answer is still to come."""
        return any(fork.orders for fork in self._forks)

    def order(self, number: int, order: bytes) -> None:
        """Send an order to one of them. Raises ForkLost."""
        min(self._forks, key=lambda fork: len(fork.orders)).send(number, order)

    def end(self) -> None:
        """End all of them."""
        while self._forks:
            self._forks.pop().end()

    def answers(self, seconds: float) -> list[tuple[int, bytes]]:
        """(number, answer) of answered orders, after at most so many seconds. Raises ForkLost."""
        waiting, until = [fork for fork in self._forks if fork.orders], time.monotonic() + seconds
        while waiting and not any(fork.answered for fork in waiting):
            readable = _ready(waiting, select.POLLIN, max(0.0, until - time.monotonic()))
            # Read only available data and do not wait: a process may be stopped in the middle of an answer.
            for fork, _ in readable:
                fork.take_in()
            if not readable:
                for fork in waiting:
                    fork.check()
                break
        return [fork.receive() for fork in waiting if fork.answered]


@contextlib.contextmanager
def forked(count: int, answer: Callable[[bytes], bytes], begin: Callable[[], None]) -> Iterator[Forks]:
    """``count`` processes during the block. They have no threads of this process, so fork before any starts.

    Each calls ``begin``, then ``answer`` with every order; an exception ends the process. There are fewer if the system
    does not allow more. Raises InfrastructureError if it allows none.
    """
    require_forks()
    with contextlib.ExitStack() as stack:
        forks = Forks()
        # Before the first one starts, so that running ones end even if another cannot start.
        stack.callback(forks.end)
        for number in range(count):
            try:
                forks.add(Fork(answer, begin))
            except OSError as error:
                if number:
                    break
                reason = f"no process can be started: {error.strerror or error}"
                raise InfrastructureError(f"{reason}; raise this user's limits (ulimit), or use --inline") from error
        yield forks


def _live(line: socket.socket, answer: Callable[[bytes], bytes], begin: Callable[[], None]) -> NoReturn:
    """In the child: answer orders until there are no more, and end without the parent's clean-up."""
    code = 1
    try:
        os.setpgid(0, 0)  # a signal to this process's group, as from an evaluator, must not reach the parent
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # the command handles Ctrl-C
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        # Only after it has its own handlers: the parent's would act as if this were the parent.
        signal.pthread_sigmask(signal.SIG_UNBLOCK, _SIGNALS)
        # Standard output is for the command's results: prints of a plug-in must not mix with them.
        with contextlib.suppress(OSError):  # a Python program may have closed either
            os.dup2(2, 1)
        own = line.fileno()
        # A lock of the parent would last as long as a child has its file open.
        os.closerange(3, own)
        os.closerange(own + 1, os.sysconf("SC_OPEN_MAX"))
        begin()
        while (order := _receive(line)) is not None:
            _send(line, answer(order))
        code = 0
    finally:
        os._exit(code)


def _ready(forks: Sequence[Fork], events: int, seconds: float | None = None) -> list[tuple[Fork, int]]:
    """Processes that are ready for some of ``events``, or ended, with their events; waits so long for the first.

    Not by select, which takes no file number above 1023: a program that calls evalq may have more files open.
    """
    poll, by_number = select.poll(), {fork.fileno(): fork for fork in forks}
    for number in by_number:
        poll.register(number, events)
    # Rounded up: a wait of less than a millisecond would be none, and the caller would loop.
    events_by_number = poll.poll(None if seconds is None else math.ceil(seconds * 1000))
    return [(by_number[number], ready) for number, ready in events_by_number]


def _flush() -> None:
    """Flush the output, so that a child's buffers do not have it, too."""
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError, AttributeError):
            stream.flush()


def _send(line: socket.socket, data: bytes) -> None:
    line.sendall(_LENGTH.pack(len(data)))
    line.sendall(data)


def _receive(line: socket.socket) -> bytes | None:
    """The next message; None if the other side has ended."""
    head = _exactly(line, _LENGTH.size)
    return None if head is None else _exactly(line, _LENGTH.unpack(head)[0])


def _exactly(line: socket.socket, count: int) -> bytes | None:
    parts = bytearray()
    while len(parts) < count:
        part = line.recv(min(count - len(parts), _PIECE))
        if not part:
            return None
        parts += part
    return bytes(parts)
