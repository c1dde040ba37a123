"""A process with pipes, in a group of its own, of which nothing is left once it is ended.

A process that it starts can leave its group and its session (setsid), and so no signal to the group reaches it. On
Linux such processes are looked for in /proc: by the session, by their parents, by a variable of the environment that
each process takes from its parent (`MARK`), and by the pipes. A process is not found that has left its session, whose
parent has ended, and that has another environment and other pipes. Systems without /proc have the group alone.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import secrets
import signal
import subprocess
from asyncio import StreamReader, StreamReaderProtocol, StreamWriter
from collections.abc import Coroutine, Mapping
from pathlib import Path
from subprocess import PIPE
from typing import IO, Any, NamedTuple

MARK = "EVALQ_CALL"
"""The variable that each process of a group has, with a value that no other group has."""
_PASSES = 10
"""How often left processes are looked for: one that starts others while it is looked for needs a second look."""
_BUFFERED = 1 << 16
_PAUSE_SECONDS = 0.02


class Group:
    """The process that leads a group, and all that it starts. ``how`` is as in `subprocess.Popen`.

    ``stderr`` is None where it has its parent's; ``limit`` is the longest line, in bytes, that can be read of a pipe.

    Raises OSError. What is wrong with Python's own `create_subprocess_exec`: it starts a process over several turns of
    the loop, and a loop that closes in one of them waits for ever; it may start one and then have no thread to watch it
    (3.11); who waits for the end of one waits for the end of what it wrote, too; and one that has ended is reaped at
    once, so that another may be given its number, by which its group is still to be killed.
    """

    def __init__(
        self, *argv: str, env: Mapping[str, str], stderr: int | None = PIPE, limit: int = _BUFFERED, **how: Any
    ) -> None:
        mark = secrets.token_hex(16)
        how |= {"env": {**env, MARK: mark}, "start_new_session": True}
        self._leader = subprocess.Popen(  # noqa: S603 - the user's own command
            argv, bufsize=0, stdin=PIPE, stdout=PIPE, stderr=stderr, **how
        )
        self._limit = limit
        ends = (self._leader.stdin, self._leader.stdout, self._leader.stderr)
        self._unconnected: list[IO[bytes]] = [end for end in ends if end is not None]
        # An end at 0 to 2, where this process was started without those, is in its own forks, too.
        own = {f"pipe:[{os.fstat(end.fileno()).st_ino}]" for end in self._unconnected if end.fileno() > 2}
        self._signs = _Signs(self._leader.pid, f"{MARK}={mark}".encode(), frozenset(own))
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
        """Kill what is left of the group, and what left it, before `end`: until then its number is nobody else's."""
        # Once before the leader is killed: then a process has the parent that started it.
        known = _left(self._signs)
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self._leader.pid, signal.SIGKILL)
        killed = set[int]()
        for _ in range(_PASSES):
            if not (new := known - killed):
                break
            for pid in new:
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.kill(pid, signal.SIGKILL)
            killed |= new
            known = _left(self._signs)

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


class _Signs(NamedTuple):
    """What identifies the processes of a group: the leader's process id, the mark, and the names of its pipes."""

    leader: int
    mark: bytes
    pipes: frozenset[str]

    def are_of(self, pid: int) -> bool:
        """Whether a process has the mark or a pipe as standard input, output or error."""
        with contextlib.suppress(OSError):  # it has ended, or is another user's
            if self.mark in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0"):
                return True
        for number in range(3):
            with contextlib.suppress(OSError):  # closed
                if str(Path(f"/proc/{pid}/fd/{number}").readlink()) in self.pipes:
                    return True
        return False


class _ProcessFacts(NamedTuple):
    """What the kernel shows of a process to everybody."""

    parent: int
    session: int
    started: int


def _left(signs: _Signs) -> set[int]:
    """Processes that the leader started, themselves or by others, and that have not ended, without the leader."""
    alive = _processes()
    leader = alive.get(signs.leader)
    if leader is None:  # no /proc
        return set()
    own = os.getpid()
    # An older one is none of them.
    younger = {pid: at for pid, at in alive.items() if at.started >= leader.started and pid not in (own, signs.leader)}
    found = {signs.leader} | {pid for pid in younger if signs.are_of(pid)}
    while more := {pid for pid, at in younger.items() if found & {at.parent, at.session}} - found:
        found |= more
    return found - {signs.leader}


def _processes() -> dict[int, _ProcessFacts]:
    """{number: process} of this machine; one that has ended and is not reaped is there, too."""
    found = {}
    try:
        names = [name for name in os.listdir("/proc") if name.isdecimal()]  # noqa: PTH208 - a Path for each is slow
    except OSError:
        return {}
    for name in names:
        with contextlib.suppress(OSError, IndexError, ValueError), open(f"/proc/{name}/stat", "rb", 0) as file:
            fields = file.read().rpartition(b")")[2].split()
            found[int(name)] = _ProcessFacts(int(fields[1]), int(fields[3]), int(fields[19]))
    return found


def _protocol() -> StreamReaderProtocol:
    """The protocol of a pipe that is only written to."""
    return StreamReaderProtocol(StreamReader())
