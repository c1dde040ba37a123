"""A process with pipes, in a group of its own, of which nothing is left once it is ended."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess
from asyncio import StreamReader, StreamReaderProtocol, StreamWriter
from collections.abc import Coroutine
from subprocess import PIPE
from typing import IO, Any

__all__ = ["Group"]

_BUFFERED = 1 << 16
_PAUSE_SECONDS = 0.02


class Group:
    """The process that leads a group, and all that it starts there. ``how`` is as in `subprocess.Popen`.

    ``stderr`` is None where it has its parent's; ``limit`` is the longest line, in bytes, that can be read of a pipe.

    Raises OSError. What is wrong with Python's own `create_subprocess_exec`: it starts a process over several turns of
    the loop, and a loop that closes in one of them waits for ever; it may start one and then have no thread to watch it
    (3.11); who waits for the end of one waits for the end of what it wrote, too; and one that has ended is reaped at
    once, so that another may be given its number, by which its group is still to be killed.
    """

    def __init__(self, *argv: str, stderr: int | None = PIPE, limit: int = _BUFFERED, **how: Any) -> None:
        self._leader = subprocess.Popen(  # noqa: S603 - the user's own command
            argv, bufsize=0, stdin=PIPE, stdout=PIPE, stderr=stderr, start_new_session=True, **how
        )
        self._limit = limit
        ends = (self._leader.stdin, self._leader.stdout, self._leader.stderr)
        self._unconnected: list[IO[bytes]] = [end for end in ends if end is not None]
        self._connected: list[asyncio.WriteTransport | asyncio.ReadTransport] = []

    async def pipes(self) -> tuple[StreamWriter, list[StreamReader]]:
        """Standard input, and output and error, those that are pipes, in the running loop; to be asked for once."""
        loop = asyncio.get_running_loop()
        # Taken off the list first: cancelled while it connects one, the loop closes that itself.
        transport, protocol = await loop.connect_write_pipe(_protocol, self._unconnected.pop(0))
        self._connected.append(transport)
        readers = [await self._reader() for _ in [*self._unconnected]]
        return StreamWriter(transport, protocol, None, loop), readers

    async def _reader(self) -> StreamReader:
        stream = StreamReader(self._limit)
        transport, _ = await asyncio.get_running_loop().connect_read_pipe(
            lambda: StreamReaderProtocol(stream), self._unconnected.pop(0)
        )
        self._connected.append(transport)
        return stream

    async def ended(self) -> None:
        """Wait until the leader has ended, but do not reap it."""
        try:
            watched = os.pidfd_open(self._leader.pid)
        except (AttributeError, OSError):  # not Linux; an old kernel, no descriptor left, or SIGCHLD is ignored
            while not self._has_ended():
                await asyncio.sleep(_PAUSE_SECONDS)
            return
        loop, ended = asyncio.get_running_loop(), asyncio.Event()
        loop.add_reader(watched, ended.set)
        try:
            await ended.wait()
        finally:
            loop.remove_reader(watched)
            os.close(watched)

    def kill(self) -> None:
        """Kill what is left of the group, before `end`: until then its number is nobody else's."""
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self._leader.pid, signal.SIGKILL)

    def end(self) -> Coroutine[Any, Any, int]:
        """`kill`, and let go of the pipes; to be called once. Awaited, it reaps the leader, and gives its exit code.

        It kills before it is awaited: a loop that closes cancels tasks that have not begun.
        """
        self.kill()
        for end in self._unconnected:
            end.close()
        for pipe in self._connected:
            # Closed, it would first wait for whoever left the group to read the rest. It may be aborted once alone.
            if isinstance(pipe, asyncio.WriteTransport) and pipe.get_write_buffer_size():
                pipe.abort()
            else:
                pipe.close()
        return self._reaped()

    async def _reaped(self) -> int:
        await self.ended()
        if self._leader.returncode is None:
            try:
                self._leader.returncode = os.waitstatus_to_exitcode(os.waitpid(self._leader.pid, 0)[1])
            except ChildProcessError:  # somebody else in this process has reaped it, or SIGCHLD is ignored
                self._leader.returncode = 255
        return self._leader.returncode

    def _has_ended(self) -> bool:
        if not hasattr(os, "waitid"):  # macOS before Python 3.13 cannot ask without reaping
            return self._leader.poll() is not None
        try:
            return os.waitid(os.P_PID, self._leader.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None
        except ChildProcessError:
            return True


def _protocol() -> StreamReaderProtocol:
    """The protocol of a pipe that is only written to."""
    return StreamReaderProtocol(StreamReader())
