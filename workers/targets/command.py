"""Targets of kind command: a program on this machine for each call."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shlex
import shutil
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, ClassVar, Literal

import msgspec
from pydantic import Field

from evalq.evalcore.records.answers import BadAnswer, read_envelope
from evalq.evalcore.records.json_values import NoJson, extract
from evalq.workers.processes.system import require_forks, signal_name
from evalq.workers.targets.answers import Answered, Call, Failure, answered
from evalq.workers.targets.group import Group, Guard
from evalq.workers.targets.target import Client, Name, ParameterTarget

Argument = Annotated[str, Field(pattern=r"^[^\x00]*$")]


class CommandTarget(ParameterTarget):
    """A program: {prompt, agent, case, repeat}, and messages of a chat, as JSON on its stdin; the answer on stdout."""

    takes_envelopes: ClassVar[bool] = True

    kind: Literal["command"]
    argv: tuple[Argument, ...] = Field(min_length=1, description="The program and its arguments; no shell reads them")
    env: tuple[Name, ...] = Field(
        default=(), description="Variables it gets besides PATH, HOME, LANG, TMPDIR and the key's; no other"
    )
    max_megabytes: int = Field(default=2048, ge=16, description="Most address space it may take")

    def granted(self) -> tuple[str, ...]:
        """Those in ``env``."""
        return self.env

    def address(self) -> str:
        """The program."""
        return self.argv[0]

    def client(self, folder: Path, key: str | None, environment: Mapping[str, str]) -> Client:
        """How it is called."""
        require_forks("programs as targets", "name an address (http://..., openai:MODEL)")
        return CommandClient(self, folder, environment)


# What programs commonly need. Any other variable may hold a secret, and has to be named in the targets file.
BASIC_VARIABLES = ("PATH", "HOME", "LANG", "TMPDIR")
_SHOWN = 200
_REST_SECONDS = 1.0
"""So long a program's own children may write on after it has ended."""
NOT_STARTED = (126, 127)
"""Exit codes of a shell for a program that it may not execute, or does not find."""


class CommandClient:
    """A target of kind command: a process, in a group of its own, for each call."""

    def __init__(self, target: CommandTarget, folder: Path, environment: Mapping[str, str]) -> None:
        names = (*BASIC_VARIABLES, *target.env, *((target.api_key_env,) if target.api_key_env else ()))
        self._target = target
        self._folder = folder
        self._environment = {name: environment[name] for name in names if name in environment}
        self._guard = Guard()

    async def open(self) -> None:
        """Nothing to do before the first call."""

    async def close(self) -> None:
        """End what still runs."""
        self._guard.close()

    async def call(self, call: Call) -> Answered | Failure:
        """Run the program; cancelled (as a call that takes too long is), all that it started is killed."""
        began = time.monotonic()
        group = Group(
            *self._guard.command(self._target.argv, address_space_megabytes=self._target.max_megabytes),
            cwd=self._folder,
            env=self._environment | ({"TRACEPARENT": call.traceparent} if call.traceparent else {}),
            pass_fds=self._guard.descriptors,
        )
        try:
            stdin, (stdout, stderr) = await group.pipes()
            asked = msgspec.json.encode(call.values(self._target.parameters))
            reading = asyncio.gather(
                _feed(stdin, asked), _all_of(stdout, self._target.max_bytes), _end_of(stderr), group.ended()
            )
            watching = asyncio.create_task(_free_pipes(group))
            try:
                _, out, err, _ = await reading
            finally:
                watching.cancel()
        except _TooLong as error:
            reason = f"the output is longer than max_bytes, {self._target.max_bytes}"
            return Failure(kind="bad_output", reason=reason, text=str(error), latency_seconds=time.monotonic() - began)
        finally:
            # Shielded: a cancelled call, too, has to reap its process, or it stays as a zombie.
            code = await asyncio.shield(group.end())
        seconds, text = time.monotonic() - began, out.decode(errors="replace")
        if code != 0:
            said = tail_of(err.decode(errors="replace"))
            missing = code in NOT_STARTED and not text
            what = "the program cannot be started" if missing else f"the program {how_ended(code)}"
            advice = missing and start_advice(self._target.argv[0], self._folder, self._environment.get("PATH"))
            reason = what + (f": {said}" if said else "") + (f"; {advice}" if advice else "")
            return Failure(
                kind="server", reason=reason, text=text, latency_seconds=seconds, down=missing, connected=not missing
            )
        if self._target.output != "envelope":
            return Answered(text=text, latency_seconds=seconds)
        try:
            return answered(read_envelope(extract(text)), seconds)
        except (BadAnswer, NoJson) as error:
            return Failure(kind="bad_output", reason=f"not an envelope: {error}", text=text, latency_seconds=seconds)


def start_advice(program: str, folder: Path, search: str | None) -> str:
    """What to do about a ``program`` that a shell cannot start in ``folder``; "" if nothing is seen."""
    if program in (".", ".."):
        return f"{program} is a folder: name a program in it"
    if "/" not in program:
        if shutil.which(program, path=search) is not None:
            return ""
        beside = (folder / program).is_file()
        return f"write ./{program}: programs here are not on PATH" if beside else f"no {program} is on PATH: install it"
    path = folder / program
    with contextlib.suppress(OSError):
        if path.is_dir():
            return f"{program} is a folder: name a program in it"
        if not path.exists():
            return f"there is no {path}: check the path"
        if not os.access(path, os.X_OK):
            return f"make it executable: chmod +x {shlex.quote(str(path))}"
        with path.open("rb") as stream:
            first = stream.read(_SHOWN).partition(b"\n")[0].decode(errors="replace")
        interpreter = first.removeprefix("#!").split(" ")[0] if first.startswith("#!") else ""
        if interpreter and not Path(interpreter).exists():
            windows = "; its lines end as on Windows: save it with line ends of Unix" if first.endswith("\r") else ""
            return f"its first line names {interpreter!r}, which is not here{windows}"
    return ""


async def _free_pipes(group: Group) -> None:
    """Once the program has ended, kill what it left behind: a process that keeps its pipes open would keep the call."""
    await group.ended()
    await asyncio.sleep(_REST_SECONDS)  # for what is in the pipes, and for one that is about to end
    group.kill()


async def _feed(stream: asyncio.StreamWriter, data: bytes) -> None:
    """All of ``data``; a program need not read it."""
    with contextlib.suppress(BrokenPipeError, ConnectionResetError):
        stream.write(data)
        await stream.drain()
    stream.close()


class _TooLong(Exception):
    """The output is longer than it may be; the message is how it begins."""


async def _all_of(stream: asyncio.StreamReader, most: int) -> bytes:
    """All that a stream gives. Raises _TooLong."""
    data = bytearray()
    while piece := await stream.read(1 << 16):
        data += piece
        if len(data) > most:
            raise _TooLong(data[:_SHOWN].decode(errors="replace"))
    return bytes(data)


async def _end_of(stream: asyncio.StreamReader) -> bytes:
    """The last characters of a stream of any length."""
    data = b""
    # Read to its end: a program whose standard error is full would stand still.
    while piece := await stream.read(1 << 16):
        data = (data + piece)[-4 * _SHOWN :]
    return data


def tail_of(text: str) -> str:
    """The last words of a text: whole ones, since the rest of one that was cut could be the rest of a secret."""
    shown = " ".join(text.split())
    return shown if len(text) < _SHOWN else shown[-_SHOWN:].partition(" ")[2]


def how_ended(code: int) -> str:
    return f"was killed by {signal_name(-code)}" if code < 0 else f"ended with exit code {code}"
