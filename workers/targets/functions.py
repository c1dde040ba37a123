"""Targets of kind python: calls of a user's function, in processes that may die of it.

One process has many calls in flight. When it dies, each of them has failed, and is made next in a process of its own,
so that the one that kills is found and no other is hit twice. Where a call goes on after it was given up, as in a
function that hangs, the process is replaced as soon as the other calls there have ended.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from evalq.evalcore.errors import ConfigError
from evalq.workers.processes.system import child
from evalq.workers.targets.answers import Answer, Call, Failure
from evalq.workers.targets.function_process import FunctionProcess, ProcessDied

if TYPE_CHECKING:  # each of them names the class here that makes its calls
    from evalq.workers.targets.kinds.python import PythonTarget

__all__ = ["Function"]

_THREADS = 64  # calls at once of a function that is not async, where its target has no bound of its own
_ALONE = 4
"""Processes at once, at most, for calls that have lost one before."""
_SUSPECTS = 10_000  # remembered calls that lost a process; bounded, since every call of a sweep may
_LEAST_LINE = 1 << 16  # a line holds more than the answer: its number, or a failure's kind and reason


class Function:
    """A target of kind python, found from the targets file's ``folder``; `open` raises ConfigError where it is not."""

    def __init__(self, target: PythonTarget, folder: Path, environment: Mapping[str, str]) -> None:
        self._threads = target.max_concurrency or _THREADS
        facts = (target.function, str(folder), str(target.max_bytes), str(self._threads), str(target.max_megabytes))
        self._target = target
        self._command = child("evalq.workers.processes.function_host", *facts)
        # evalq's own variables hold server URLs with passwords, which no user's function needs.
        self._environment = {name: value for name, value in environment.items() if not name.startswith("EVALQ_")}
        self._shared: FunctionProcess | None = None
        self._starting = asyncio.Lock()
        self._alone = asyncio.Semaphore(_ALONE)
        self._idle: list[FunctionProcess] = []
        self._all: set[FunctionProcess] = set()
        self._suspects: dict[Call, None] = {}
        self._closed = False

    async def open(self) -> None:
        """Have the function ready. Raises ConfigError."""
        await self._common()

    async def close(self) -> None:
        """Wait for no call."""
        self._closed = True
        for process in self._all:  # at once: a loop that closes cancels tasks that have not begun
            process.kill()
        await asyncio.gather(*(process.close() for process in self._all))

    async def call(self, call: Call) -> Answer | Failure:
        """What the function returns: text as it is, anything else as JSON. Raises TimeoutError."""
        try:
            if call not in self._suspects:
                return await self._among_others(call)
            async with self._alone:
                process = self._kept() or await self._started()
                try:
                    result = await self._asked(process, call)
                except BaseException:
                    # Too late, or not wanted any more: it may go on, so no other joins it, and it ends after its grace.
                    process.retired = True
                    raise
                # Kept for the next suspect: another process would have to import the user's module again.
                if not process.retired:
                    self._idle.append(process)
        except ConfigError as error:
            return Failure(kind="server", reason=str(error), down=True)
        if not (isinstance(result, Failure) and result.kind == "crashed"):
            self._suspects.pop(call, None)
        return result

    async def _among_others(self, call: Call) -> Answer | Failure:
        while True:
            process = await self._common()
            async with process.room:
                # It may have ended, or be about to, while the call waited: another one takes it.
                if process.takes():
                    return await self._asked(process, call)

    async def _asked(self, process: FunctionProcess, call: Call) -> Answer | Failure:
        began = time.monotonic()
        try:
            told = await process.ask(call, self._target.parameters, self._target.timeout_seconds)
        except ProcessDied as error:
            self._suspects[call] = None
            # The oldest goes: forgotten, it is made among the others once more.
            if len(self._suspects) > _SUSPECTS:
                del self._suspects[next(iter(self._suspects))]
            reason = f"the function {error}" + (
                f", with {error.others} other call(s) in flight there" if error.others else ""
            )
            return Failure(kind="crashed", reason=reason, latency_seconds=time.monotonic() - began)
        seconds = time.monotonic() - began
        if told.text is not None:
            return Answer(text=told.text, latency_seconds=seconds)
        try:
            failure = msgspec.convert({**(told.failure or {}), "latency_seconds": seconds}, Failure)
        except msgspec.ValidationError as error:
            return Failure(kind="server", reason=f"CallFailed holds no Failure: {error}", latency_seconds=seconds)
        wait = failure.retry_after_seconds
        return msgspec.structs.replace(
            failure,
            # A user's function cannot declare its target down: that would hold all calls of it.
            down=False,
            prompt_tokens=self._tokens(failure.prompt_tokens),
            completion_tokens=self._tokens(failure.completion_tokens),
            retry_after_seconds=None if wait is None else max(0.0, wait),
        )

    def _tokens(self, told: int | None) -> int | None:
        return told if told is not None and 0 <= told <= self._target.max_bytes else None

    def _kept(self) -> FunctionProcess | None:
        """One of those that wait for the next suspect, which may have ended meanwhile: it would answer nobody."""
        while self._idle:
            process = self._idle.pop()
            if not process.retired:
                return process
        return None

    async def _common(self) -> FunctionProcess:
        """The process that calls share. Raises ConfigError."""
        # One at a time: calls that come together wait for one process instead of starting one each.
        async with self._starting:
            if self._shared is None or self._shared.retired:
                self._shared = await self._started()
            return self._shared

    async def _started(self) -> FunctionProcess:
        """Another process, ready. Raises ConfigError."""
        process = await FunctionProcess.started(
            *self._command,
            environment=self._environment,
            longest=_LEAST_LINE + 6 * self._target.max_bytes,  # as much as escapes may take
            threads=self._threads,
        )
        self._all = {process, *(other for other in self._all if not other.over)}
        if self._closed:
            process.kill()  # nobody would end it any more
        try:
            await process.ready()
        except ConfigError as error:
            raise ConfigError(f"function: {error}") from None
        return process
