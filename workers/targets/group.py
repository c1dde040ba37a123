"""A process with pipes in its own process group; ending it leaves none of its children behind.

A child process can leave the group and the session (setsid), so that signals to the group do not reach it. On Linux,
evalq finds such processes in /proc: by the session, by their parents, by a variable that children inherit (`MARK`), and
by the pipes. It cannot find a process that has left the session, whose parent has ended, and that has another
environment and other pipes. On systems without /proc, only the group is killed.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import secrets
import signal
import subprocess
from asyncio import StreamReader, StreamReaderProtocol, StreamWriter
from collections.abc import Coroutine, Mapping, Sequence
from pathlib import Path
from subprocess import PIPE
from typing import IO, Any, NamedTuple

MARK = "EVALQ_CALL"
"""The variable that all processes of a group inherit; its value is unique to the group."""
_PASSES = 10
"""The most searches for remaining processes: a process may start others during a search."""
_BUFFERED = 1 << 16
_PAUSE_SECONDS = 0.02


class Group:
    """The leader of a process group and all its children. ``how`` has further arguments of `subprocess.Popen`.

    ``stderr`` None means the parent's; ``limit`` is the longest line, in bytes, that can be read from a pipe. Raises
    OSError.

    Python's `create_subprocess_exec` has four faults here. It starts a process over several turns of the loop, and a
    loop that closes in between waits for ever. It may start a process without a thread to watch it (3.11). Waiting for
    the process also waits for the end of its output. And it reaps the process at once, so that another process may get
    its id, which is still needed to kill the group.
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
        # Ends at 0 to 2 do not identify the group: this process, started without those, gives them to its other forks.
        own = {f"pipe:[{os.fstat(end.fileno()).st_ino}]" for end in self._unconnected if end.fileno() > 2}
        self._signs = _Signs(self._leader.pid, f"{MARK}={mark}".encode(), frozenset(own))
        self._connected: list[asyncio.WriteTransport | asyncio.ReadTransport] = []

    async def pipes(self) -> tuple[StreamWriter, list[StreamReader]]:
        """(writer of standard input, readers of output and error), connected to the running loop; call it once."""
        loop = asyncio.get_running_loop()
        # Take an end off the list first: if connecting it is cancelled, the loop closes it.
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
        """Kill the remaining processes of the group, and those that left it. Only before `end`, which frees its id."""
        # Search once before killing the leader: until then, children still have their parents.
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
        """`kill`, and close the pipes; call it once. Awaiting the result reaps the leader, and gives its exit code.

        It kills before it is awaited, because a loop that closes cancels tasks that have not started.
        """
        self.kill()
        for end in self._unconnected:
            end.close()
        for pipe in self._connected:
            # Closing would wait until some process reads the rest. A transport may be aborted only once.
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
            except ChildProcessError:  # other code in this process has reaped it, or SIGCHLD is ignored
                self._leader.returncode = 255
        return self._leader.returncode

    def _has_ended(self) -> bool:
        if not hasattr(os, "waitid"):  # macOS before Python 3.13 cannot ask without reaping
            return self._leader.poll() is not None
        try:
            return os.waitid(os.P_PID, self._leader.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None
        except ChildProcessError:
            return True


_GUARDED = (
    '( { read -r _ <"/dev/fd/$1"; read -r me _ </proc/self/stat; '
    f'for one in $(cd /proc && grep -lsF "{MARK}=${MARK}" [0-9]*/environ); do '
    '[ "${one%/*}" = "$me" ] || kill -KILL "${one%/*}"; done; kill -KILL 0; } </dev/null >/dev/null 2>&1 & ); '
    'ulimit "$2" "$3" && shift 3 && exec "$@"'
)
"""A guard in the program's group, but no child of it, ends it when the process that calls is gone: what has its mark,
wherever that is, and the group, itself with it."""


class Guard:
    """Ends the groups that are started with its `command` when this process ends, killed or not."""

    def __init__(self) -> None:
        self._guarded, self._alive = os.pipe()  # its other end is closed with this process

    @property
    def descriptors(self) -> tuple[int, ...]:
        """The ``pass_fds`` of a guarded group."""
        return (self._guarded,)

    def command(
        self, argv: Sequence[str], *, address_space_megabytes: int = 0, data_megabytes: int = 0
    ) -> tuple[str, ...]:
        """The command that runs ``argv`` guarded and within one of the limits, which is not 0."""
        limit = ("-v", address_space_megabytes) if address_space_megabytes else ("-d", data_megabytes)
        return ("/bin/sh", "-c", _GUARDED, "evalq", str(self._guarded), limit[0], str(limit[1] << 10), *argv)

    def close(self) -> None:
        """End what still runs. Only once."""
        # The guards read the end of this pipe.
        os.close(self._alive)
        os.close(self._guarded)


class _Signs(NamedTuple):
    """What identifies the processes of a group: the leader's process id, the mark, and the names of its pipes."""

    leader: int
    mark: bytes
    pipes: frozenset[str]

    def are_of(self, pid: int) -> bool:
        """Whether a process has the mark, or one of the pipes as its standard input, output or error."""
        with contextlib.suppress(OSError):  # it has ended, or belongs to another user
            if self.mark in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0"):
                return True
        for number in range(3):
            with contextlib.suppress(OSError):  # closed
                if str(Path(f"/proc/{pid}/fd/{number}").readlink()) in self.pipes:
                    return True
        return False


class _ProcessFacts(NamedTuple):
    """The facts on a process that every user can read."""

    parent: int
    session: int
    started: int


def _left(signs: _Signs) -> set[int]:
    """The living descendants of the leader, without the leader."""
    alive = _processes()
    leader = alive.get(signs.leader)
    if leader is None:  # no /proc
        return set()
    own = os.getpid()
    # A process older than the leader is not its descendant.
    younger = {pid: at for pid, at in alive.items() if at.started >= leader.started and pid not in (own, signs.leader)}
    found = {signs.leader} | {pid for pid in younger if signs.are_of(pid)}
    while more := {pid for pid, at in younger.items() if found & {at.parent, at.session}} - found:
        found |= more
    return found - {signs.leader}


def _processes() -> dict[int, _ProcessFacts]:
    """{process id: facts} of this machine, unreaped processes included."""
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
    """The protocol for a pipe that is only written to."""
    return StreamReaderProtocol(StreamReader())
