"""Processes forked from this one, which answer orders over a socket each: they have all that it has imported.

They take nothing else along: no open file, so that no lock of this process outlives it with them, and none of its
signal handlers. Each ends when its socket does, and on Linux with this process, however that ends.
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
from evalq.workers.processes.system import signal_name

_LENGTH = struct.Struct(">Q")
_DEPTH = 2
"""Orders a process is given at once: it begins the next one while its answer is fetched."""
_PIECE = 1 << 20
_LOOK_SECONDS = 0.5
"""After so long without a word of a process, whether it lives is looked at."""
_SIGNALS = (signal.SIGINT, signal.SIGTERM)


class ForkLost(Exception):
    """A forked process ended while it had orders."""


class Fork:
    """One forked process, and the numbers of the orders that it has, in the order in which it answers them."""

    def __init__(self, answer: Callable[[bytes], bytes], begin: Callable[[], None]) -> None:
        """``begin`` is called in it first, then ``answer`` with each order."""
        mine, its = socket.socketpair()
        _flush()
        # An interrupt that came to a child before it has begun would be answered there as if it were this process.
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
        """Readable when it has answered, or ended."""
        return self._line.fileno()

    def send(self, number: int, order: bytes) -> None:
        """Give it an order. Raises ForkLost."""
        self.orders.append(number)
        left = memoryview(_LENGTH.pack(len(order)) + order)
        while left:
            # It may be writing an answer longer than the socket takes, and reads nothing before somebody reads that.
            found = _ready([self], select.POLLIN | select.POLLOUT, _LOOK_SECONDS)
            ready = found[0][1] if found else 0
            if ready & ~select.POLLOUT:
                self.take_in()
            if ready & select.POLLOUT:
                left = left[self._sent(left) :]
            if not ready:
                self.look()

    @property
    def answered(self) -> bool:
        """Whether an answer is here."""
        return len(self._read) >= _LENGTH.size and len(self._read) >= self._end()

    def receive(self) -> tuple[int, bytes]:
        """Its next answer, which is here, with the number of its order."""
        end = self._end()
        answer = bytes(memoryview(self._read)[_LENGTH.size : end])
        del self._read[:end]
        return self.orders.popleft(), answer

    def end(self) -> None:
        """End it, whatever it does, and wait until it is gone."""
        self._line.close()
        if self._status is not None:
            return  # its number may be another process's by now
        with contextlib.suppress(ChildProcessError, ProcessLookupError):
            os.kill(self.pid, signal.SIGKILL)
            os.waitpid(self.pid, 0)

    def _end(self) -> int:
        """Where the first answer ends, of which the length is here."""
        return _LENGTH.size + int(_LENGTH.unpack_from(self._read)[0])

    def _sent(self, data: memoryview) -> int:
        try:
            return self._line.send(data, socket.MSG_DONTWAIT)
        except BlockingIOError:
            return 0
        except OSError as error:
            raise ForkLost(self._ended()) from error

    def take_in(self) -> None:
        """What has come of its next answers, where something has. Raises ForkLost."""
        try:
            part = self._line.recv(_PIECE)
        except OSError:
            part = b""
        if not part:
            raise ForkLost(self._ended())
        self._read += part

    def look(self) -> None:
        """Raise ForkLost where it has ended, and all that it said was taken in.

        Its line says so by itself, but not while a process that it has started has that open.
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
        """How it ended; None where it has not, or somebody else was told."""
        if self._status is None:
            with contextlib.suppress(ChildProcessError):
                done, status = os.waitpid(self.pid, options)
                self._status = status if done else None
        return self._status


class Forks:
    """Several of them; an order goes to the one with the fewest."""

    def __init__(self) -> None:
        self._forks: list[Fork] = []

    def add(self, fork: Fork) -> None:
        """One more."""
        self._forks.append(fork)

    @property
    def room(self) -> bool:
        """Whether one more order would soon be taken."""
        return any(len(fork.orders) < _DEPTH for fork in self._forks)

    @property
    def busy(self) -> bool:
        """Whether an answer is to come."""
        return any(fork.orders for fork in self._forks)

    def order(self, number: int, order: bytes) -> None:
        """Give an order to one of them. Raises ForkLost."""
        min(self._forks, key=lambda fork: len(fork.orders)).send(number, order)

    def end(self) -> None:
        """End all of them."""
        while self._forks:
            self._forks.pop().end()

    def answers(self, seconds: float) -> list[tuple[int, bytes]]:
        """(number, answer) of what has been answered, after at most so many seconds. Raises ForkLost."""
        waiting, until = [fork for fork in self._forks if fork.orders], time.monotonic() + seconds
        while waiting and not any(fork.answered for fork in waiting):
            readable = _ready(waiting, select.POLLIN, max(0.0, until - time.monotonic()))
            # One that is stopped in the middle of an answer says no more: only what is there is read, and nothing is
            # waited for.
            for fork, _ in readable:
                fork.take_in()
            if not readable:
                for fork in waiting:
                    fork.look()
                break
        return [fork.receive() for fork in waiting if fork.answered]


@contextlib.contextmanager
def forked(count: int, answer: Callable[[bytes], bytes], begin: Callable[[], None]) -> Iterator[Forks]:
    """``count`` processes for the length of a block. Threads of this process are not in them: fork before any begins.

    ``begin`` is called in each, then ``answer`` with every order that comes; what it raises ends the process.
    Where the system gives fewer, those are all. Raises InfrastructureError where it gives none.
    """
    with contextlib.ExitStack() as stack:
        forks = Forks()
        # Before the first one begins: those that run end also where another cannot be started.
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
    """In the child: follow orders until there are no more, and end without any of the parent's clean-up."""
    code = 1
    try:
        os.setpgid(0, 0)  # what ends a whole group, from its terminal or in an evaluator, ends this process alone
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the command's to answer
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        # Not before it has handlers of its own: the parent's would answer here as if this were the parent.
        signal.pthread_sigmask(signal.SIG_UNBLOCK, _SIGNALS)
        # Standard output is for the command's answer: what a plug-in prints would stand in the middle of it.
        with contextlib.suppress(OSError):  # whoever calls from Python may have closed either
            os.dup2(2, 1)
        own = line.fileno()
        # A lock of the parent's would last as long as a child has its file open.
        os.closerange(3, own)
        os.closerange(own + 1, os.sysconf("SC_OPEN_MAX"))
        begin()
        while (order := _receive(line)) is not None:
            _send(line, answer(order))
        code = 0
    finally:
        os._exit(code)


def _ready(forks: Sequence[Fork], events: int, seconds: float | None = None) -> list[tuple[Fork, int]]:
    """Those that are ready for some of ``events``, or ended, with what they are ready for; waits so long for the first.

    Not by select, which takes no file above number 1023: a program that calls evalq may have more open.
    """
    poll, by_number = select.poll(), {fork.fileno(): fork for fork in forks}
    for number in by_number:
        poll.register(number, events)
    # Rounded up: a wait of less than a millisecond is none, and whoever asks would ask again and again.
    found = poll.poll(None if seconds is None else math.ceil(seconds * 1000))
    return [(by_number[number], ready) for number, ready in found]


def _flush() -> None:
    """What this process has not written yet must not be in a child's buffers, too."""
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError, AttributeError):
            stream.flush()


def _send(line: socket.socket, data: bytes) -> None:
    line.sendall(_LENGTH.pack(len(data)))
    line.sendall(data)


def _receive(line: socket.socket) -> bytes | None:
    """The next message; None where the other side has ended."""
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
