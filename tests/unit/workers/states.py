"""Servers in the states in which they answer with errors, each brought about as an operator would."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from pathlib import Path

import redis

from tests.integration.harness import Server, wait_until
from tests.integration.ports import free_port


@contextlib.contextmanager
def _set(server: Server, **settings: str | int) -> Iterator[None]:
    names = {name.replace("_", "-"): value for name, value in settings.items()}
    before = {name: server.client.config_get(name)[name] for name in names}
    for name, value in names.items():
        server.client.config_set(name, value)
    try:
        yield
    finally:
        for name, value in before.items():
            server.client.config_set(name, value)


@contextlib.contextmanager
def _full(server: Server) -> Iterator[None]:
    server.client.set("key", "value")
    with _set(server, maxmemory=1):
        yield


@contextlib.contextmanager
def _without_disk(server: Server) -> Iterator[None]:
    """A snapshot that fails: where its file belongs is a folder."""
    taken = Path(server.client.config_get("dir")["dir"]) / "dump.rdb"
    taken.mkdir(exist_ok=True)
    with _set(server, save="3600 1"):
        server.client.bgsave()
        wait_until(lambda: server.client.info()["rdb_last_bgsave_status"] == "err", "the snapshot failed")
        yield


@contextlib.contextmanager
def _busy(server: Server) -> Iterator[None]:
    """A script that runs until it is killed."""
    with _set(server, busy_reply_threshold=1):
        other = redis.Redis(port=server.port, socket_timeout=60)
        thread = threading.Thread(target=lambda: _endless(other))
        thread.start()
        try:
            wait_until(lambda: not _pings(server), "the script runs")
            yield
        finally:
            server.client.execute_command("SCRIPT", "KILL")
            thread.join()


def _endless(client: redis.Redis) -> None:
    with contextlib.suppress(redis.ResponseError):
        client.eval("while true do end", 0)


def _pings(server: Server) -> bool:
    with contextlib.suppress(redis.ResponseError):
        return bool(server.client.ping())
    return False


@contextlib.contextmanager
def _replica(server: Server, stale: str) -> Iterator[None]:
    """A replica of a server that is not there."""
    with _set(server, replica_serve_stale_data=stale):
        server.client.replicaof("127.0.0.1", free_port())
        try:
            yield
        finally:
            server.client.replicaof("NO", "ONE")


State = Callable[[Server], AbstractContextManager[None]]

STATES: Mapping[str, State] = {
    "OOM": _full,
    "MISCONF": _without_disk,
    "NOREPLICAS": lambda server: _set(server, min_replicas_to_write=1),
    "BUSY": _busy,
    "READONLY": lambda server: _replica(server, "yes"),
    "MASTERDOWN": lambda server: _replica(server, "no"),
}
"""By the code with which such a server answers a read, or else a write."""
