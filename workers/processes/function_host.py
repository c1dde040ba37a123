"""The process that runs a user's function for targets of kind python: calls and answers are lines of JSON.

It is a process of its own since a function may end it, by `os._exit`, a fault in C or all the memory there is. It
imports next to nothing of evalq, so that another is there soon, and finds the function by one rule: in the targets
file's folder, else among what is installed, never in the folder that a command was started in.
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib
import inspect
import os
import re
import site
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any, BinaryIO

import msgspec

from evalq.workers.processes.environment import seal
from evalq.workers.processes.system import bound_memory, die_with_parent

_SHOWN = 200
_LONGEST = 2000
"""Bytes of a reason that a user's function gives."""
_unpaired = re.compile("[\ud800-\udfff]")


class CallRequest(msgspec.Struct, frozen=True):
    """One line in: call number ``id`` with these values; without ``call``, nobody waits for it any more."""

    id: int
    call: dict[str, Any] | None = None


class CallReply(msgspec.Struct, frozen=True):
    """One line out: ``text`` of the answer to call ``id``, or its ``failure`` (a `Failure` as plain data).

    The first line has no call: the function is ready (``text`` is "threads" where its calls are in threads, which there
    is a bound of), or ``failure`` says why it cannot be used.
    """

    id: int
    text: str | None = None
    failure: dict[str, Any] | None = None


class _NotFound(Exception):
    """The function cannot be used; the message says why."""


class _Host:
    """One function and its calls in flight."""

    def __init__(self, function: Callable[[dict[str, Any]], Any], out: BinaryIO, most: int, threads: int) -> None:
        self._function = function
        self._out = out
        self._most = most
        self._room = asyncio.Semaphore(threads)
        self._tasks: dict[int, asyncio.Task[None]] = {}

    async def serve(self, source: BinaryIO) -> None:
        """Until nobody asks any more."""
        loop = asyncio.get_running_loop()
        # A line is a whole call, however long its prompt is.
        reader = asyncio.StreamReader(limit=1 << 30)
        await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), source)
        while line := await reader.readline():
            asked = msgspec.json.decode(line, type=CallRequest)
            if asked.call is not None:
                self._tasks[asked.id] = asyncio.create_task(self._one(asked.id, asked.call))
            elif (task := self._tasks.get(asked.id)) is not None and _is_async(self._function):
                task.cancel()  # what runs in a thread ends when it ends

    async def _one(self, number: int, call: dict[str, Any]) -> None:
        try:
            told = CallReply(number, text=await self._text(call))
        except BaseException as error:  # whatever a user's function raises is a failed call, sys.exit() too
            told = CallReply(number, failure=_failure(error, self._most))
        self._tasks.pop(number, None)
        _tell(self._out, told)

    async def _text(self, call: dict[str, Any]) -> str:
        value = await self._function(call) if _is_async(self._function) else await self._in_thread(call)
        text = _unpaired.sub("\ufffd", value) if isinstance(value, str) else msgspec.json.encode(value).decode()
        if len(text.encode()) > self._most:
            raise _OwnFailure(kind="bad_output", reason=f"the answer is longer than max_bytes, {self._most}",
                        text=text[:_SHOWN])  # fmt: skip
        return text

    async def _in_thread(self, call: dict[str, Any]) -> Any:
        """What the function returns or raises, from a thread that the end of this process does not wait for."""
        loop = asyncio.get_running_loop()
        ended: asyncio.Future[tuple[Any, BaseException | None]] = loop.create_future()

        def run() -> None:
            value, raised = None, None
            try:
                value = self._function(call)
            except BaseException as error:  # it is told where the call is awaited
                raised = error
            with contextlib.suppress(RuntimeError):  # the loop is closed: nobody waits any more
                loop.call_soon_threadsafe(ended.set_result, (value, raised))

        async with self._room:
            threading.Thread(target=run, name="evalq-call", daemon=True).start()
            value, error = await ended
        if error is not None:
            raise error
        return value


class _OwnFailure(Exception):
    """A failure of this process's own finding."""

    def __init__(self, **told: Any) -> None:
        super().__init__(told["reason"])
        self.told = told


def _tell(out: BinaryIO, told: CallReply) -> None:
    """One line to the process that calls."""
    out.write(msgspec.json.encode(told) + b"\n")
    out.flush()


def _failure(error: BaseException, most: int) -> dict[str, Any]:
    """As plain data, with a text of ``most`` bytes; a user's CallFailed chooses the kind."""
    if isinstance(error, _OwnFailure):
        return error.told
    answers = sys.modules.get("evalq.workers.targets.answers")
    if answers is not None and isinstance(error, answers.CallFailed):
        with contextlib.suppress(Exception):
            given = msgspec.json.decode(msgspec.json.encode(error.failure))
            # As long as an answer at most: whoever reads takes a longer line for that of a process gone wrong.
            return {key: _cut(value, most if key == "text" else _LONGEST) for key, value in given.items()}
    reason = _unpaired.sub("\ufffd", f"{type(error).__name__}: {error}")
    return {"kind": "server", "reason": reason[:_SHOWN]}


def _cut(value: Any, most: int) -> Any:
    return value.encode()[:most].decode(errors="ignore") if isinstance(value, str) else value


def _is_async(function: Callable[[dict[str, Any]], Any]) -> bool:
    """Whether it is a coroutine function, or an object whose ``__call__`` is one."""
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(getattr(function, "__call__", None))  # noqa: B004 - its kind


def _found(path: str, folder: str) -> Callable[[dict[str, Any]], Any]:
    """The function that a targets file in ``folder`` calls ``path``. Raises _NotFound."""
    _take_in(folder)
    name, _, inner = path.partition(":")
    try:
        module = importlib.import_module(name)
        found: Any = module
        _same(module, name, folder)
        for part in inner.split("."):
            found = getattr(found, part)
    except SystemExit as error:
        ended = f"sys.exit({'' if error.code is None else repr(error.code)})"
        raise _NotFound(
            f"{path} cannot be imported: {name} calls {ended} while it is imported; have it do so under "
            'if __name__ == "__main__":'
        ) from None
    except Exception as error:  # what an import of a user's module raises is the user's to see
        raise _NotFound(f"{path} cannot be imported: {type(error).__name__}: {error}") from None
    if not callable(found):
        raise _NotFound(f"{path} is not a function")
    function: Callable[[dict[str, Any]], Any] = found
    return function


def _take_in(folder: str) -> None:
    """Look for modules in ``folder``, after Python's own, which nothing there can replace, and before the installed."""
    installed = [*site.getsitepackages(), site.getusersitepackages()]
    at = next((number for number, entry in enumerate(sys.path) if entry in installed), len(sys.path))
    sys.path.insert(at, folder)


def _same(module: ModuleType, name: str, folder: str) -> None:
    """Raise ImportError where the folder has a module of that name which Python's own one hides."""
    top = Path(folder, name.partition(".")[0])
    file = getattr(module, "__file__", None)
    if (top.is_dir() or top.with_suffix(".py").is_file()) and not (file and Path(file).is_relative_to(folder)):
        own = file or "Python itself"
        raise ImportError(f"the name is that of {own}, which {folder} cannot replace: give your module another")


def main(path: str, folder: str, most_bytes: str, threads: str, megabytes: str) -> None:
    """Serve until standard input ends; what the function prints goes to standard error."""
    die_with_parent()
    source, out = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    with open(os.devnull, "rb") as nothing:
        # A function that reads standard input must not take calls from there.
        os.dup2(nothing.fileno(), 0)
    # Otherwise what the function prints would be read as answers.
    os.dup2(2, 1)
    os.chdir(folder)
    with contextlib.suppress(OSError):  # where memory runs out, this process is to go, not the one that calls
        Path("/proc/self/oom_score_adj").write_text("1000")
    seal()
    bound_memory(int(megabytes) << 20)
    try:
        function = _found(path, folder)
    except _NotFound as error:
        _tell(out, CallReply(0, failure={"kind": "server", "reason": _unpaired.sub("\ufffd", str(error))}))
        os._exit(0)
    _tell(out, CallReply(0, text="" if _is_async(function) else "threads"))
    asyncio.run(_Host(function, out, int(most_bytes), int(threads)).serve(source))
    os._exit(0)  # threads of functions that hang are not waited for


if __name__ == "__main__":
    main(*sys.argv[1:])
