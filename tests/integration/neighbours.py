"""Somebody else on the same server: a stock Celery application at work, keys of every type, and what they are like."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.integration.harness import PATIENCE, Server, clean_environment, wait_until

TOP = Path(__file__).parents[2]
LATER = 24 * 3600
"""Seconds after which its later tasks are due: its worker has them at hand, unacknowledged, for all of a test."""


class Shop:
    """The application's worker and its client. Its tasks are numbered in the order in which they are sent."""

    def __init__(self, broker: str, folder: Path) -> None:
        from celery import Celery

        self._log = folder / "shop.log"
        self._log.touch()
        self._client: Any = Celery("shop", broker=broker, set_as_current=False)
        environment = clean_environment(SHOP_BROKER=broker, SHOP_LOG=str(self._log), PYTHONPATH=str(TOP))
        command = [sys.executable, "-m", "celery", "-A", "tests.integration.shop", "worker", "-c", "1"]
        with (folder / "shop.out").open("wb") as out:
            self._worker = subprocess.Popen(
                command, cwd=folder, env=environment, stdout=out, stderr=out, start_new_session=True
            )
        self.sent = 0

    def send(self, count: int) -> None:
        """Tasks that are due at once."""
        for _ in range(count):
            self._client.send_task("shop.note", (self.sent,))
            self.sent += 1

    def send_later(self, count: int) -> None:
        """Tasks that its worker takes, and keeps."""
        for _ in range(count):
            self._client.send_task("shop.note", (-1,), countdown=LATER)

    @property
    def done(self) -> list[int]:
        """The numbers of tasks, as often as each was run and in the order in which they were."""
        return [int(line) for line in self._log.read_text().split()]

    def wait(self) -> None:
        """Until it has run as many tasks as were sent."""
        wait_until(lambda: len(self.done) >= self.sent or not self.alive, "the shop's tasks are done")
        assert self.alive, "the shop's worker has ended: see shop.out"

    @property
    def alive(self) -> bool:
        """Whether its worker runs."""
        return self._worker.poll() is None

    def close(self) -> None:
        """Stop it as its users would: what it did not acknowledge goes back to its queue."""
        self._worker.terminate()
        self._worker.wait(timeout=PATIENCE)

    def end(self) -> None:
        """Leave no process behind."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._worker.pid, signal.SIGKILL)
        self._worker.wait()
        self._client.close()


@contextlib.contextmanager
def running_shop(broker: str, folder: Path) -> Iterator[Shop]:
    """The application for the length of a block; it has run a first task."""
    shop = Shop(broker, folder)
    try:
        shop.send(1)
        shop.wait()
        yield shop
    finally:
        shop.end()


def put_foreign_keys(client: Any) -> None:
    """Keys of every type, with names like evalq's and with those that kombu gives them."""
    client.set("evalq", "a text")
    client.set("evalq-runs", "a text", ex=LATER)
    client.hset("evalqx:runs", mapping={"a": "1"})
    client.lpush("mail\x06\x169", b"\xff")
    client.sadd("_kombu.binding.celery", "celery\x06\x16\x06\x16celery")
    client.xadd("Evalq:runs", {"a": "b"})
    client.rpush("queue:evalq.bulk.0", "work")


def foreign(client: Any) -> dict[bytes, Any]:
    """{key: type, value and whether it expires} of all keys that are not evalq's."""
    names = [key for key in client.scan_iter(count=1000) if not key.startswith((b"evalq:", b"evalq."))]
    return {
        name: (kind := client.type(name), _value(client, name, kind), client.ttl(name) < 0) for name in sorted(names)
    }


def _value(client: Any, key: bytes, kind: bytes) -> Any:
    """Not as the server dumps it: a hash that was written to and is equal again may be dumped in another order."""
    read = {
        b"hash": client.hgetall,
        b"zset": lambda key: client.zrange(key, 0, -1, withscores=True),
        b"list": lambda key: client.lrange(key, 0, -1),
        b"set": client.smembers,
    }
    return read.get(client.type(key), client.dump)(key)


def age(server: Server, seconds: float) -> None:
    """Have each message that the shop's worker holds be taken so much earlier; Celery's own limit is an hour."""
    for tag in server.client.zrange("unacked_index", 0, -1):
        server.client.zincrby("unacked_index", -seconds, tag)
