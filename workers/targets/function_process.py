"""A process with a user's function in it, and the calls in flight there."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import signal
from collections.abc import Mapping
from typing import Any

import msgspec

from evalq.evalcore.errors import ConfigError
from evalq.workers.processes.function_host import CallReply, CallRequest
from evalq.workers.processes.system import signal_name
from evalq.workers.targets.answers import Call
from evalq.workers.targets.group import Group

__all__ = ["FunctionProcess", "ProcessDied"]

_START_SECONDS = 120.0  # for Python, and the imports of the function's module
# Time for an async function to notice that it was cancelled, before its process counts as hanging.
_GIVE_UP_SECONDS = 2.0


class ProcessDied(Exception):
    """The process of a call has ended, with so many ``others`` in flight there."""

    def __init__(self, how: str, others: int) -> None:
        super().__init__(how)
        self.others = others


class FunctionProcess:
    """One process, and what is asked of it; made by `started`."""

    def __init__(self, group: Group, asks: asyncio.StreamWriter, tells: asyncio.StreamReader, threads: int) -> None:
        self._group = group
        self._asks = asks
        self._tells = tells
        self._threads = threads
        # What waits here for a thread has not begun, and its time does not run.
        self.room: contextlib.AbstractAsyncContextManager[object] = asyncio.Semaphore(threads)
        self._numbers = itertools.count(1)
        self._waiting: dict[int, asyncio.Future[CallReply]] = {}
        self._given_up: set[int] = set()
        self._reader: asyncio.Task[None] | None = None
        self._watch: asyncio.Task[None] | None = None
        self._end: asyncio.Task[int] | None = None
        self.retired = False

    @classmethod
    async def started(
        cls, *command: str, environment: Mapping[str, str], longest: int, threads: int
    ) -> FunctionProcess:
        """One that tells lines of ``longest`` bytes at most. Raises OSError; cancelled, it leaves no process."""
        # It says on standard error what its function prints.
        group = Group(*command, stderr=None, limit=longest, env=environment)
        try:
            asks, (tells,) = await group.pipes()
        except BaseException:
            await asyncio.shield(group.end())
            raise
        return cls(group, asks, tells, threads)

    @property
    def over(self) -> bool:
        """Whether it has ended, and is reaped."""
        return self._end is not None and self._end.done()

    async def ready(self) -> None:
        """Until the function is there; else the process is ended. Raises ConfigError, with the reason."""
        self._watch = asyncio.create_task(self._group.ended(), name="evalq-function-ended")
        self._watch.add_done_callback(self._left_behind)
        try:
            async with asyncio.timeout(_START_SECONDS):
                line = await self._tells.readline()
                if not line:
                    await asyncio.shield(self._watch)
            if not line:
                raise ConfigError(f"importing its module {_ended(await asyncio.shield(self.kill()))}")
            told = msgspec.json.decode(line, type=CallReply)
            if told.failure is not None:
                raise ConfigError(str(told.failure["reason"]))
        except TimeoutError:
            self.kill()
            raise ConfigError(f"its module was not imported within {_START_SECONDS:g} s") from None
        except BaseException:
            self.kill()
            raise
        if told.text != "threads":
            self._threads, self.room = 0, contextlib.nullcontext()
        self._reader = asyncio.create_task(self._read(), name="evalq-function")

    def takes(self) -> bool:
        """Whether a call may begin here: not where calls that nobody waits for any more hold the threads."""
        if self._threads and len(self._waiting) + len(self._given_up) >= self._threads:
            self.retired = True
            self._bury()
        return not self.retired

    async def ask(self, call: Call, parameters: Mapping[str, Any], seconds: float) -> CallReply:
        """What becomes of one call. Raises TimeoutError, and ProcessDied."""
        number, told = next(self._numbers), asyncio.get_running_loop().create_future()
        line = msgspec.json.encode(CallRequest(number, call.values(parameters))) + b"\n"
        # Before it is sent: the answer may be there before `drain` returns.
        self._waiting[number] = told
        try:
            async with asyncio.timeout(seconds):
                with contextlib.suppress(ConnectionError):  # the reader knows what became of it
                    self._asks.write(line)
                    await self._asks.drain()
                result: CallReply = await told
                return result
        except (TimeoutError, asyncio.CancelledError):
            self._give_up(number)
            raise
        finally:
            self._waiting.pop(number, None)
            self._bury()

    def _give_up(self, number: int) -> None:
        """Nobody waits for the call any more; where it goes on all the same, the process gets no others."""
        self._given_up.add(number)
        with contextlib.suppress(ConnectionError):
            self._asks.write(msgspec.json.encode(CallRequest(number)) + b"\n")
        asyncio.get_running_loop().call_later(_GIVE_UP_SECONDS, self._check, number)

    def _check(self, number: int) -> None:
        self.retired = self.retired or number in self._given_up
        self._bury()

    def _bury(self) -> None:
        if self.retired and not self._waiting:
            self.kill()

    async def _read(self) -> None:
        """Answers, until the process ends: what was in flight then has no answer."""
        try:
            while line := await self._tells.readline():
                told = msgspec.json.decode(line, type=CallReply)
                self._given_up.discard(told.id)
                waiting = self._waiting.get(told.id)
                if waiting is not None and not waiting.done():
                    waiting.set_result(told)
        except (ValueError, msgspec.DecodeError):  # the function wrote there itself, or more than an answer can have
            self.kill()
        finally:
            self.retired = True
        assert self._watch is not None
        await asyncio.shield(self._watch)
        # Only when the process is reaped: its exit code is part of what is told.
        how = _ended(await asyncio.shield(self.kill()))
        lost = [waiting for waiting in self._waiting.values() if not waiting.done()]
        for waiting in lost:
            waiting.set_exception(ProcessDied(how, len(lost) - 1))

    def _left_behind(self, watch: asyncio.Task[None]) -> None:
        """The process has ended: what it started has its pipe, too, by which its answers would come to no end."""
        if not watch.cancelled() and self._end is None:
            self.retired = True
            self._group.kill()
            # For what left its group, and for lines that were on their way.
            asyncio.get_running_loop().call_later(_GIVE_UP_SECONDS, self.kill)

    def kill(self) -> asyncio.Task[int]:
        """End the process, and what it started, at once; it is reaped by the task, which has its exit code."""
        self.retired = True
        if self._end is None:
            self._end = asyncio.get_running_loop().create_task(self._group.end(), name="evalq-function-end")
        return self._end

    async def close(self) -> None:
        """End it, and wait for that."""
        await asyncio.shield(self.kill())
        begun = [task for task in (self._watch, self._reader) if task is not None]
        await asyncio.gather(*begun, return_exceptions=True)


def _ended(code: int) -> str:
    if code >= 0:
        return f"ended its process with exit code {code}"
    memory = " (by the system when memory runs out, or by a user)" if code == -signal.SIGKILL else ""
    return f"killed its process by {signal_name(-code)}{memory}"
