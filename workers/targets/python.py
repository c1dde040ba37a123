"""Targets of kind python: call a user's function in separate processes, which the function may crash.

One process has many calls in flight. If it dies, all of them have failed. Each retry of them runs in a process with no
other call, so that the call that kills its process is found and does not fail others again. If a call goes on after its
timeout, as in a function that hangs, the process is replaced as soon as its other calls have ended.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import signal
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar, Literal

import msgspec
from pydantic import Field

from evalq.evalcore.errors import ConfigError
from evalq.evalcore.records.answers import BadAnswer, read_envelope
from evalq.evalcore.views.markdown import plural
from evalq.workers.processes.function_host import CallReply, CallRequest
from evalq.workers.processes.system import child, require_forks, signal_name
from evalq.workers.targets.answers import Answered, Call, Failure, answered
from evalq.workers.targets.group import Group
from evalq.workers.targets.target import Client, ParameterTarget


class PythonTarget(ParameterTarget):
    """A function, sync or async, of the text of the prompt, or of one dict.

    It returns text, data, or an `evalq.Answer`; or it yields the messages of the conversation as it goes.
    """

    times_itself: ClassVar[bool] = True
    """Its latency does not include the start of the process."""

    kind: Literal["python"]
    function: str = Field(
        pattern=r"^[\w.]+:[\w.]+$",
        description="module:function; the module is in the targets file's folder, or installed",
    )
    max_megabytes: int = Field(default=4096, ge=64, description="Memory limit of its process, in MiB")

    def address(self) -> str:
        """The function's name, module:function."""
        return self.function

    def client(self, folder: Path, key: str | None, environment: Mapping[str, str]) -> Client:
        """A client that calls the function."""
        require_forks("functions as targets", "name an address (http://..., openai:MODEL)")
        return PythonClient(self, folder, environment)


# -- a process with a user's function in it -----------------------------------------------------------

_START_SECONDS = 120.0  # for Python, and the imports of the function's module
# Time for an async function to notice that it was cancelled, before its process counts as hanging.
_GIVE_UP_SECONDS = 2.0


class _ProcessDied(Exception):
    """The process of a call has ended; ``others`` is the number of other calls in flight there."""

    def __init__(self, how: str, others: int) -> None:
        super().__init__(how)
        self.others = others


class _FunctionProcess:
    """One process and its calls; made by `started`."""

    def __init__(self, group: Group, asks: asyncio.StreamWriter, replies: asyncio.StreamReader, threads: int) -> None:
        self._group = group
        self._asks = asks
        self._replies = replies
        self._threads = threads
        # A call that waits here for a thread has not started, so its timeout does not run.
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
    ) -> _FunctionProcess:
        """Start a process whose reply lines have at most ``longest`` bytes. Raises OSError.

        If cancelled, it leaves no process behind.
        """
        # The function's prints go to this process's standard error.
        group = Group(*command, stderr=None, limit=longest, env=environment)
        try:
            asks, (replies,) = await group.pipes()
        except BaseException:
            await asyncio.shield(group.end())
            raise
        return cls(group, asks, replies, threads)

    @property
    def over(self) -> bool:
        """Whether the process has ended and is reaped."""
        return self._end is not None and self._end.done()

    async def ready(self) -> None:
        """Wait until the function is imported. Otherwise end the process and raise ConfigError with the reason."""
        self._watch = asyncio.create_task(self._group.ended(), name="evalq-function-ended")
        self._watch.add_done_callback(self._left_behind)
        try:
            async with asyncio.timeout(_START_SECONDS):
                line = await self._replies.readline()
                if not line:
                    await asyncio.shield(self._watch)
            if not line:
                raise ConfigError(f"importing its module {_ended(await asyncio.shield(self.kill()))}")
            reply = msgspec.json.decode(line, type=CallReply)
            if reply.failure is not None:
                raise ConfigError(str(reply.failure["reason"]))
        except TimeoutError:
            self.kill()
            raise ConfigError(f"its module was not imported within {_START_SECONDS:g} s") from None
        except BaseException:
            self.kill()
            raise
        if reply.text != "threads":
            self._threads, self.room = 0, contextlib.nullcontext()
        self._reader = asyncio.create_task(self._read(), name="evalq-function")

    def takes(self) -> bool:
        """Whether a call can start here: not if abandoned calls occupy the threads."""
        if self._threads and len(self._waiting) + len(self._given_up) >= self._threads:
            self.retired = True
            self._bury()
        return not self.retired

    async def ask(self, call: Call, parameters: Mapping[str, Any], seconds: float) -> CallReply:
        """Make one call. Raises TimeoutError and _ProcessDied."""
        number, answered = next(self._numbers), asyncio.get_running_loop().create_future()
        line = msgspec.json.encode(CallRequest(number, call.values(parameters))) + b"\n"
        # Register the call before sending it: the reply may arrive before `drain` returns.
        self._waiting[number] = answered
        try:
            async with asyncio.timeout(seconds):
                with contextlib.suppress(ConnectionError):  # `_read` reports the end of the process
                    self._asks.write(line)
                    await self._asks.drain()
                result: CallReply = await answered
                return result
        except (TimeoutError, asyncio.CancelledError):
            self._give_up(number)
            raise
        finally:
            self._waiting.pop(number, None)
            self._bury()

    def _give_up(self, number: int) -> None:
        """Cancel the call. If it does not end soon, the process gets no further calls."""
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
        """Deliver replies until the process ends; then fail the calls that are still in flight."""
        try:
            while line := await self._replies.readline():
                reply = msgspec.json.decode(line, type=CallReply)
                self._given_up.discard(reply.id)
                waiting = self._waiting.get(reply.id)
                if waiting is not None and not waiting.done():
                    waiting.set_result(reply)
        except (ValueError, msgspec.DecodeError):  # the function wrote to the pipe itself, or a line is too long
            self.kill()
        finally:
            self.retired = True
        assert self._watch is not None
        await asyncio.shield(self._watch)
        # Only when the process is reaped, because the message includes its exit code.
        how = _ended(await asyncio.shield(self.kill()))
        lost = [waiting for waiting in self._waiting.values() if not waiting.done()]
        for waiting in lost:
            waiting.set_exception(_ProcessDied(how, len(lost) - 1))

    def _left_behind(self, watch: asyncio.Task[None]) -> None:
        """Kill the children of a process that has ended: they hold its pipe open, so that reading would never end."""
        if not watch.cancelled() and self._end is None:
            self.retired = True
            self._group.kill()
            # Later, for children that left the group; until then the remaining lines can still be read.
            asyncio.get_running_loop().call_later(_GIVE_UP_SECONDS, self.kill)

    def kill(self) -> asyncio.Task[int]:
        """Kill the process and its children at once. The task reaps the process, and returns its exit code."""
        self.retired = True
        if self._end is None:
            self._end = asyncio.get_running_loop().create_task(self._group.end(), name="evalq-function-end")
        return self._end

    async def close(self) -> None:
        """Kill the process, and wait until it has ended."""
        await asyncio.shield(self.kill())
        begun = [task for task in (self._watch, self._reader) if task is not None]
        await asyncio.gather(*begun, return_exceptions=True)


def _ended(code: int) -> str:
    if code >= 0:
        return f"ended its process with exit code {code}"
    memory = " (by the system when memory runs out, or by a user)" if code == -signal.SIGKILL else ""
    return f"killed its process by {signal_name(-code)}{memory}"


# -- the client, which replaces processes that end ----------------------------------------------------

_THREADS = 64  # concurrent calls of a function that is not async, if its target sets no limit
_ALONE = 4
"""The most processes at one time for calls whose process has died before."""
_SUSPECTS = 10_000  # remembered calls whose process died; limited, because every call of a sweep may be one
_LEAST_LINE = 1 << 16  # a line holds more than the answer: its number, or a failure's kind and reason


class PythonClient:
    """The client of a target of kind python; ``folder`` is that of the targets file."""

    def __init__(self, target: PythonTarget, folder: Path, environment: Mapping[str, str]) -> None:
        self._threads = target.max_concurrency or _THREADS
        facts = (target.function, str(folder), str(target.max_bytes), str(self._threads), str(target.max_megabytes))
        self._target = target
        self._command = child("evalq.workers.processes.function_host", *facts)
        # evalq's own variables hold server URLs with passwords, which no user's function needs.
        self._environment = {name: value for name, value in environment.items() if not name.startswith("EVALQ_")}
        self._shared: _FunctionProcess | None = None
        self._starting = asyncio.Lock()
        self._alone = asyncio.Semaphore(_ALONE)
        self._idle: list[_FunctionProcess] = []
        self._all: set[_FunctionProcess] = set()
        self._suspects: dict[Call, None] = {}
        self._closed = False

    async def open(self) -> None:
        """Start the process and import the function. Raises ConfigError."""
        await self._common()

    async def close(self) -> None:
        """Kill all processes, without waiting for their calls."""
        self._closed = True
        for process in self._all:  # kill before awaiting: a loop that closes cancels tasks that have not started
            process.kill()
        await asyncio.gather(*(process.close() for process in self._all))

    async def call(self, call: Call) -> Answered | Failure:
        """The function's result: text unchanged, anything else as JSON. Raises TimeoutError."""
        try:
            if call not in self._suspects:
                return await self._among_others(call)
            async with self._alone:
                process = self._idle_process() or await self._started()
                try:
                    result = await self._asked(process, call)
                except BaseException:
                    # Timed out or cancelled: the call may go on, so the process gets no other call and ends soon.
                    process.retired = True
                    raise
                # Keep the process for the next such call: a new one would import the user's module again.
                if not process.retired:
                    self._idle.append(process)
        except ConfigError as error:
            return Failure(kind="server", reason=str(error), down=True)
        if not (isinstance(result, Failure) and result.kind == "crashed"):
            self._suspects.pop(call, None)
        return result

    async def _among_others(self, call: Call) -> Answered | Failure:
        while True:
            process = await self._common()
            async with process.room:
                # The process may have been retired while the call waited; then try the next one.
                if process.takes():
                    return await self._asked(process, call)

    async def _asked(self, process: _FunctionProcess, call: Call) -> Answered | Failure:
        began = time.monotonic()
        try:
            reply = await process.ask(call, self._target.parameters, self._target.timeout_seconds)
        except _ProcessDied as error:
            self._suspects[call] = None
            # Forget the oldest one; it may share a process again.
            if len(self._suspects) > _SUSPECTS:
                del self._suspects[next(iter(self._suspects))]
            reason = f"the function {error}" + (
                f", with {plural(error.others, 'other call')} in flight there" if error.others else ""
            )
            return Failure(kind="crashed", reason=reason, latency_seconds=time.monotonic() - began)
        seconds = time.monotonic() - began
        if reply.text is not None:
            return Answered(text=reply.text, latency_seconds=seconds)
        if reply.answer is not None:
            try:
                return answered(read_envelope(reply.answer), seconds)
            except BadAnswer as error:
                why = f"the function gives an evalq.Answer that is not valid: {error}"
                return Failure(kind="bad_output", reason=why, latency_seconds=seconds)
        try:
            failure = msgspec.convert({**(reply.failure or {}), "latency_seconds": seconds}, Failure)
        except msgspec.ValidationError as error:
            return Failure(kind="server", reason=f"CallFailed holds no Failure: {error}", latency_seconds=seconds)
        wait = failure.retry_after_seconds
        return msgspec.structs.replace(
            failure,
            # A user's function cannot declare its target down, which would stop all its calls.
            down=False,
            prompt_tokens=self._tokens(failure.prompt_tokens),
            completion_tokens=self._tokens(failure.completion_tokens),
            retry_after_seconds=None if wait is None else max(0.0, wait),
        )

    def _tokens(self, count: int | None) -> int | None:
        return count if count is not None and 0 <= count <= self._target.max_bytes else None

    def _idle_process(self) -> _FunctionProcess | None:
        """An idle process for a call whose process died before; None if all of them have ended meanwhile."""
        while self._idle:
            process = self._idle.pop()
            if not process.retired:
                return process
        return None

    async def _common(self) -> _FunctionProcess:
        """The process that calls share. Raises ConfigError."""
        # Under a lock, so that concurrent calls wait for one process instead of starting one each.
        async with self._starting:
            if self._shared is None or self._shared.retired:
                self._shared = await self._started()
            return self._shared

    async def _started(self) -> _FunctionProcess:
        """A new process with the function imported. Raises ConfigError."""
        process = await _FunctionProcess.started(
            *self._command,
            environment=self._environment,
            longest=_LEAST_LINE + 6 * self._target.max_bytes,  # JSON escapes take up to 6 bytes per byte
            threads=self._threads,
        )
        self._all = {process, *(other for other in self._all if not other.over)}
        if self._closed:
            process.kill()  # `close` has already run
        try:
            await process.ready()
        except ConfigError as error:
            raise ConfigError(f"function: {error}") from None
        return process
