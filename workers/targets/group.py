"""A process with pipes, in a group of its own, of which nothing is left once it is ended."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from asyncio.subprocess import PIPE, Process, SubprocessStreamProtocol
from functools import partial
from typing import Any

__all__ = ["Group"]

_BUFFERED = 1 << 16


class Group:
    """The process that leads a group, and all that it starts there.

    Python's own `create_subprocess_exec` gives no way to let go of the pipes, and who waits for a process to end waits
    for the end of what it wrote, too, which comes to nobody who has stopped reading. Where it is cancelled while it
    starts a process it kills that one alone.
    """

    def __init__(self, transport: asyncio.SubprocessTransport, protocol: SubprocessStreamProtocol) -> None:
        self.leader = Process(transport, protocol, asyncio.get_running_loop())
        self._transport = transport

    @classmethod
    async def start(cls, *argv: str, **how: Any) -> Group:
        """``how`` is as in `subprocess.Popen`. Cancelled meanwhile, it leaves no process. Raises OSError."""
        starting = asyncio.ensure_future(cls._started(*argv, **how))
        try:
            return await asyncio.shield(starting)
        except asyncio.CancelledError:
            with contextlib.suppress(OSError):
                await asyncio.shield(_ended(starting))
            raise

    @classmethod
    async def _started(cls, *argv: str, **how: Any) -> Group:
        loop = asyncio.get_running_loop()
        protocol = partial(SubprocessStreamProtocol, _BUFFERED, loop)
        return cls(
            *await loop.subprocess_exec(
                protocol, *argv, stdin=PIPE, stdout=PIPE, stderr=PIPE, start_new_session=True, **how
            )
        )

    async def end(self) -> None:
        """Kill what is left of the group, and reap its leader."""
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.leader.pid, signal.SIGKILL)
        # Not the transport: to close that asks for the exit code, which is its watcher's to take.
        for stream in range(3):
            pipe = self._transport.get_pipe_transport(stream)
            # Closed, it would first wait for whoever left the group to read the rest. It may be aborted once alone.
            if isinstance(pipe, asyncio.WriteTransport) and pipe.get_write_buffer_size():
                pipe.abort()
            elif pipe is not None:
                pipe.close()
        await self.leader.wait()


async def _ended(starting: asyncio.Future[Group]) -> None:
    await (await starting).end()
