"""The process that runs a user's function for targets of kind python; calls and answers are lines of JSON.

The function has its own process because it may end that process: by `os._exit`, a crash in C code or exhausted memory.
The process imports little of evalq, so that a replacement starts fast. It imports the function from the targets file's
folder or else from the installed packages, never from the folder in which a command was started.
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
import time
from collections.abc import Callable, Mapping, Sequence, Set
from pathlib import Path
from types import ModuleType
from typing import Any, BinaryIO

import msgspec

from evalq.evalcore.contract.own_functions import misfit, place, takes_prompt
from evalq.workers.processes.environment import seal
from evalq.workers.processes.system import bound_memory, die_with_parent

_SHOWN = 200
_LONGEST = 2000
"""The most bytes of a failure's reason from a user's function."""
_unpaired = re.compile("[\ud800-\udfff]")


class CallRequest(msgspec.Struct, frozen=True):
    """One line of input: call number ``id`` with the values ``call``. Without ``call``, call ``id`` is cancelled."""

    id: int
    call: dict[str, Any] | None = None


class CallReply(msgspec.Struct, frozen=True):
    """One line of output: the ``text`` of call ``id``, its ``answer`` (an `evalq.Answer` as plain data), or its
    ``failure`` (a `Failure` as plain data).

    The first line belongs to no call. It says that the function is ready (``text`` is "threads" if its calls run in
    threads, whose number is limited), or why it cannot be used (``failure``).
    """

    id: int
    text: str | None = None
    failure: dict[str, Any] | None = None
    answer: dict[str, Any] | None = None


class _NotFound(Exception):
    """The function cannot be used; the message says why."""


class _Host:
    """One function and its calls in flight."""

    def __init__(self, function: Callable[[dict[str, Any]], Any], out: BinaryIO, most: int, threads: int) -> None:
        self._function = function
        self._out = out
        self._most = most
        self._folder = Path.cwd()  # the targets file's; a call may go elsewhere
        self._room = asyncio.Semaphore(threads)
        self._tasks: dict[int, asyncio.Task[None]] = {}

    async def serve(self, source: BinaryIO) -> None:
        """Serve calls until ``source`` ends."""
        loop = asyncio.get_running_loop()
        # A line is a whole call, so the limit must exceed any prompt.
        reader = asyncio.StreamReader(limit=1 << 30)
        await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), source)
        while line := await reader.readline():
            request = msgspec.json.decode(line, type=CallRequest)
            if request.call is not None:
                self._tasks[request.id] = asyncio.create_task(self._one(request.id, request.call))
            elif (task := self._tasks.get(request.id)) is not None and _is_async(self._function):
                task.cancel()  # a call in a thread cannot be cancelled

    async def _one(self, number: int, call: dict[str, Any]) -> None:
        try:
            reply = self._reply(number, await self._value(call))
        except BaseException as error:  # any exception of a user's function is a failed call, even SystemExit
            reply = CallReply(number, failure=_failure(error, self._most, self._folder))
        self._tasks.pop(number, None)
        _send(self._out, reply)

    async def _value(self, call: dict[str, Any]) -> Any:
        if _is_kind(inspect.isasyncgenfunction, self._function):
            began = time.monotonic()
            return _conversation([(time.monotonic() - began, each) async for each in self._function(call)])
        return await self._function(call) if _is_async(self._function) else await self._in_thread(call)

    def _reply(self, number: int, value: Any) -> CallReply:
        answer = None
        if _is_answer(value):
            # Through JSON: what a function puts into an answer may be of any type.
            encoded = _encoded(value)
            answer, text = msgspec.json.decode(encoded), ""
        else:
            text = _unpaired.sub("\ufffd", value) if isinstance(value, str) else _encoded(value).decode()
            encoded = text.encode()
        if len(encoded) > self._most:
            raise _OwnFailure(kind="bad_output", reason=f"the answer is longer than max_bytes, {self._most}",
                        text=encoded[:_SHOWN].decode(errors="ignore"))  # fmt: skip
        return CallReply(number, text if answer is None else None, answer=answer)

    async def _in_thread(self, call: dict[str, Any]) -> Any:
        """Call the function in a daemon thread, which does not delay the end of this process."""
        loop = asyncio.get_running_loop()
        ended: asyncio.Future[tuple[Any, BaseException | None]] = loop.create_future()

        def run() -> None:
            value, raised = None, None
            try:
                began = time.monotonic()
                value = self._function(call)
                if inspect.isgenerator(value):
                    value = _conversation([(time.monotonic() - began, each) for each in value])
            except BaseException as error:  # raised below, where the call is awaited
                raised = error
            with contextlib.suppress(RuntimeError):  # the loop is closed, so nothing waits for the result
                loop.call_soon_threadsafe(ended.set_result, (value, raised))

        async with self._room:
            threading.Thread(target=run, name="evalq-call", daemon=True).start()
            value, error = await ended
        if error is not None:
            raise error
        return value


def _encoded(value: Any) -> bytes:
    """The JSON of what a function gave. Raises _OwnFailure: to call it again would give the same, and be paid again."""
    try:
        try:
            if not _is_answer(value):
                _refuse_messages(value)
            return msgspec.json.encode(value, enc_hook=_plain)
        except UnicodeEncodeError:  # lone surrogates, which become what they become in a text
            return msgspec.json.encode(_writable(msgspec.to_builtins(value, enc_hook=_plain)))
    except (TypeError, ValueError, OverflowError, RecursionError, msgspec.MsgspecError) as error:
        reason = f"what the function gives ({type(value).__name__}) cannot be written as JSON: {error}"
        raise _OwnFailure(kind="bad_output", reason=_unpaired.sub("\ufffd", reason)[:_SHOWN], text="") from None


def _writable(value: Any) -> Any:
    """Plain data with its lone surrogates replaced."""
    if isinstance(value, str):
        return _unpaired.sub("\ufffd", value)
    if isinstance(value, dict):
        return {_writable(key): _writable(each) for key, each in value.items()}
    return [_writable(each) for each in value] if isinstance(value, list | tuple) else value


def _is_answer(value: Any) -> bool:
    """Whether ``value`` is an `evalq.Answer`; a function that never imported it gives none."""
    answers = sys.modules.get("evalq.evalcore.records.answers")
    return answers is not None and isinstance(value, answers.Answer)


def _plain(value: Any) -> Any:
    """An object as plain data: models of pydantic, which most frameworks use, and what is a text, a mapping or a list.

    Raises TypeError.
    """
    dump = getattr(value, "model_dump", None)
    if callable(dump) and not isinstance(value, type):
        return dump(mode="json")
    if isinstance(value, str):
        return str(value)
    if isinstance(value, Mapping):
        return dict(value)
    if isinstance(value, Sequence | Set) and not isinstance(value, bytes | bytearray | memoryview):
        return list(value)
    raise TypeError(f"an answer cannot hold {type(value).__name__}: give it as text or plain data")


def _refuse_messages(value: Any) -> None:
    """Raise TypeError for messages of a framework: as data they would be one text, in which checks find anything."""
    listed = value.get("messages") if isinstance(value, dict) else [value]
    if isinstance(listed, list) and any(hasattr(each, "model_dump") and hasattr(each, "content") for each in listed):
        raise TypeError("return messages of a framework as evalq.Answer(messages=[...])")


def _conversation(yielded: list[tuple[float, Any]]) -> Any:
    """The answer of a function that yields: texts are joined, messages are the conversation, an Answer is the last.

    The time of the first one is ``first_token_seconds``.
    """
    from evalq.evalcore.records.answers import Answer

    values: list[Any] = [value if isinstance(value, str | dict | Answer) else _message(value) for _, value in yielded]
    if not values:
        raise _OwnFailure(kind="bad_output", reason="the function yields nothing", text="")
    first = yielded[0][0]
    if isinstance(values[-1], Answer):
        last = values.pop()
        own = {} if last.messages else {"messages": [value for value in values if isinstance(value, dict)]}
        stated = last.first_token_seconds
        return msgspec.structs.replace(last, first_token_seconds=first if stated is None else stated, **own)
    if all(isinstance(value, str) for value in values):
        return Answer(output="".join(values), first_token_seconds=first)
    if all(isinstance(value, dict) for value in values):
        return Answer(messages=values, first_token_seconds=first)
    kinds = ", ".join(sorted({type(value).__name__ for value in values}))
    wanted = "pieces of text, messages ({role, content}), or an evalq.Answer at the end"
    raise _OwnFailure(kind="bad_output", reason=f"the function yields {kinds}; it may yield {wanted}", text="")


def _message(value: Any) -> Any:
    """A message of a framework as plain data; another value as it is."""
    with contextlib.suppress(TypeError):
        data = msgspec.json.decode(msgspec.json.encode(value, enc_hook=_plain))
        return data if isinstance(data, dict) else value
    return value


class _OwnFailure(Exception):
    """A failure that this process detects itself, as the fields of a `Failure`."""

    def __init__(self, **fields: Any) -> None:
        super().__init__(fields["reason"])
        self.fields = fields


def _send(out: BinaryIO, reply: CallReply) -> None:
    out.write(msgspec.json.encode(reply) + b"\n")
    out.flush()


def _failure(error: BaseException, most: int, folder: Path) -> dict[str, Any]:
    """The fields of a `Failure` for ``error``, whose text has at most ``most`` bytes.

    A user's function chooses the kind of failure by raising CallFailed.
    """
    if isinstance(error, _OwnFailure):
        return error.fields
    answers = sys.modules.get("evalq.workers.targets.answers")
    if answers is not None and isinstance(error, answers.CallFailed):
        with contextlib.suppress(Exception):
            given = msgspec.json.decode(msgspec.json.encode(error.failure))
            # No longer than an answer may be: the reader takes a longer line for a fault of this process.
            return {key: _cut(value, most if key == "text" else _LONGEST) for key, value in given.items()}
    at = place(error, folder)
    reason = f"{type(error).__name__}: {error}"[: max(0, _SHOWN - len(at))] + at
    return {"kind": "server", "reason": _unpaired.sub("\ufffd", reason)[:_SHOWN]}


def _cut(value: Any, most: int) -> Any:
    return value.encode()[:most].decode(errors="ignore") if isinstance(value, str) else value


def _is_async(function: Callable[..., Any]) -> bool:
    """Whether ``function`` runs on the event loop: a coroutine function, or an async generator."""
    return _is_kind(inspect.iscoroutinefunction, function) or _is_kind(inspect.isasyncgenfunction, function)


def _is_kind(kind: Callable[[Any], bool], function: Callable[..., Any]) -> bool:
    """Whether ``function`` is of that kind, or an object whose ``__call__`` is."""
    return kind(function) or kind(getattr(function, "__call__", None))  # noqa: B004 - its kind


def _load(path: str, folder: str) -> Callable[[dict[str, Any]], Any]:
    """The function ``path`` ("module:function") of a targets file in ``folder``. Raises _NotFound."""
    _add_to_path(folder)
    name, _, inner = path.partition(":")
    try:
        module = importlib.import_module(name)
        found: Any = module
        _check_not_shadowed(module, name, folder)
        for part in inner.split("."):
            found = getattr(found, part)
    except SystemExit as error:
        ended = f"sys.exit({'' if error.code is None else repr(error.code)})"
        raise _NotFound(
            f"{path} cannot be imported: {name} calls {ended} while it is imported; have it do so under "
            'if __name__ == "__main__":'
        ) from None
    except ModuleNotFoundError as error:
        looked = f" in {folder}, nor installed" if error.name == name.partition(".")[0] else ""
        raise _NotFound(f"{path} cannot be imported: {type(error).__name__}: {error}{looked}") from None
    except Exception as error:  # report any error of the user's module to the user
        raise _NotFound(f"{path} cannot be imported: {type(error).__name__}: {error}") from None
    if not callable(found):
        raise _NotFound(f"{path} is not a function")
    if takes_prompt(found):
        return _with_text(found)
    if why := misfit(found, "call", "prompt"):
        raise _NotFound(f"{path}: {why}")
    function: Callable[[dict[str, Any]], Any] = found
    return function


def _with_text(function: Callable[[str], Any]) -> Callable[[dict[str, Any]], Any]:
    """``function``, which takes a text, as one that takes a call: most agents are written so."""

    if _is_kind(inspect.isasyncgenfunction, function):

        async def each(call: dict[str, Any]) -> Any:
            async for value in function(_question(call)):
                yield value

        return each

    async def wait(call: dict[str, Any]) -> Any:
        return await function(_question(call))

    def ask(call: dict[str, Any]) -> Any:
        return function(_question(call))

    return wait if _is_async(function) else ask


def _question(call: dict[str, Any]) -> str:
    """The text of a call, for a function that takes one. Raises _OwnFailure for a conversation, which is no text."""
    if any(message.get("role") == "assistant" for message in call.get("messages", ())):
        raise _OwnFailure(
            kind="refused",
            reason="the function takes one text, and this is a conversation: "
            "have it take one dict, and read `messages`",
            text="",
        )
    prompt: str = call["prompt"]
    return prompt


def _add_to_path(folder: str) -> None:
    """Put ``folder`` into the search path behind the standard library, and before the installed packages."""
    installed = [*site.getsitepackages(), site.getusersitepackages()]
    at = next((number for number, entry in enumerate(sys.path) if entry in installed), len(sys.path))
    sys.path.insert(at, folder)


def _check_not_shadowed(module: ModuleType, name: str, folder: str) -> None:
    """Raise ImportError if the folder has a module ``name`` that one of the standard library shadows."""
    top = Path(folder, name.partition(".")[0])
    file = getattr(module, "__file__", None)
    if (top.is_dir() or top.with_suffix(".py").is_file()) and not (file and Path(file).is_relative_to(folder)):
        own = file or "Python itself"
        raise ImportError(f"{own} has the same name, and {folder} cannot replace it: rename your module")


def main(path: str, folder: str, most_bytes: str, threads: str, megabytes: str) -> None:
    """Serve until standard input ends; output that the function prints goes to standard error."""
    die_with_parent()
    source, out = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    with open(os.devnull, "rb") as nothing:
        # A function that reads standard input must not consume calls.
        os.dup2(nothing.fileno(), 0)
    # Otherwise the caller would read the function's prints as answers.
    os.dup2(2, 1)
    os.chdir(folder)
    with contextlib.suppress(OSError):  # when memory runs out, the kernel should kill this process, not the caller
        Path("/proc/self/oom_score_adj").write_text("1000")
    seal()
    bound_memory(int(megabytes) << 20)
    try:
        function = _load(path, folder)
    except _NotFound as error:
        _send(out, CallReply(0, failure={"kind": "server", "reason": _unpaired.sub("\ufffd", str(error))}))
        os._exit(0)
    _send(out, CallReply(0, text="" if _is_async(function) else "threads"))
    asyncio.run(_Host(function, out, int(most_bytes), int(threads)).serve(source))
    os._exit(0)  # do not wait for threads whose function hangs


if __name__ == "__main__":
    main(*sys.argv[1:])
