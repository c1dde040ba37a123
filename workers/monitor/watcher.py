"""Snapshots of a ledger and its queues, taken from outside."""

from __future__ import annotations

import threading
from typing import Any

import redis

from evalq.workers.broker.publisher import Broker
from evalq.workers.ledger.heartbeats import Heartbeats
from evalq.workers.monitor.snapshot import Snapshot, read_snapshot
from evalq.workers.servers.connections import connect
from evalq.workers.servers.errors import SERVER_ERRORS, explained
from evalq.workers.settings import Settings

__all__ = ["COMMANDS", "Watch"]

COMMANDS = (
    "brpop", "del", "discard", "eval_ro", "evalsha", "exec", "exists", "expire", "get", "hdel", "hexists", "hget",
    "hgetall", "hincrby", "hincrbyfloat", "hlen", "hmget", "hset", "hsetnx", "hstrlen", "hvals", "info", "lindex",
    "llen", "lpop", "lpush", "lrange", "ltrim", "multi", "pexpire", "ping", "pttl", "rpop", "rpush", "sadd",
    "scard", "script|exists", "script|load", "set", "sismember", "smembers", "srem", "time", "unwatch", "watch",
    "zadd", "zcard", "zcount", "zrange", "zrangebyscore", "zrem", "zrevrangebyscore", "zscore",
)  # fmt: skip
"""What producers and workers ask of the ledger's server, whose rights deploy/redis/users.acl gives them."""


class Watch:
    """Connects when first asked and stays so, since the client finds its way back by itself.

    ``unacked`` as in `read_snapshot`, ``patience`` as in `connect`. A ``client`` that is given is used, and stays open.
    """

    def __init__(
        self, settings: Settings, *, unacked: bool = False, patience: float = 30.0, client: Any = None
    ) -> None:
        self._settings = settings
        self._patience = patience
        self._unacked = unacked and not settings.ledger_apart
        self._given = client
        self._client: Any = client
        self._broker: Broker | None = None
        self._connecting = threading.Lock()

    def look(self, before: Snapshot | None = None) -> Snapshot:
        """One snapshot, from the one before. Raises BrokerUnreachable, ServerRefused, or another EvalqError."""
        client = self._connected()
        elsewhere = self._broker.lengths if self._broker else None
        try:
            return read_snapshot(client, self._settings, elsewhere, unacked=self._unacked, before=before)
        except SERVER_ERRORS as error:
            raise explained(error, f"the server at {self._settings.ledger_address}") from error

    def codes(self, snapshot: Snapshot) -> dict[str, dict[str, str]]:
        """What each code version that the snapshot names is made of, where its workers said so."""
        codes = {worker.code for worker in snapshot.workers} | {caller.code for caller in snapshot.callers}
        codes |= {queue.rpartition(".")[2] for queue in snapshot.queues}
        return Heartbeats(self._connected()).parts(sorted(codes))

    def missing(self) -> list[str]:
        """Those of `COMMANDS` that the ledger's server does not know, since its configuration renames them.

        Empty where this user may not ask. Raises BrokerUnreachable or redis.RedisError.
        """
        # Only whoever takes messages out asks for BRPOP, which is no matter of this server's where they lie elsewhere.
        asked = [name for name in COMMANDS if name != "brpop" or not self._settings.ledger_apart]
        # With "INFO" in the name: redis-py reads the answer of COMMAND as a list of commands that are all there.
        try:
            known = self._connected().execute_command("COMMAND INFO", *asked)
        except redis.ResponseError:
            return []
        return [name for name, found in zip(asked, known, strict=True) if found is None]

    def ping(self) -> None:
        """Raises BrokerUnreachable or redis.RedisError, when the ledger does not answer."""
        self._connected().ping()

    def close(self) -> None:
        """Let go of all connections."""
        if self._broker is not None:
            self._broker.close()
        if self._client is not None and self._given is None:
            self._client.close()

    def _connected(self) -> Any:
        with self._connecting:
            if self._settings.ledger_apart and self._broker is None:
                self._broker = Broker(self._settings)
            if self._client is None:
                self._client = connect(self._settings.ledger_address, self._settings, self._patience)
            return self._client
