"""The state of a fleet, read from its ledger and queues at once, and the client that reads it again and again."""

from __future__ import annotations

import contextlib
import re
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Literal, TypeVar

import msgspec
import redis

from evalq.evalcore.compare.drift import DriftState
from evalq.evalcore.model.manifest import QUEUE_CLASSES, queue_name
from evalq.workers.broker.publisher import Broker
from evalq.workers.ledger.heartbeats import CallerFacts, FollowerFacts, Heartbeats, evaluators_of, unhealthy_of
from evalq.workers.ledger.history import Entry, read_entry, read_recent, read_states
from evalq.workers.ledger.progress import ENDED_STATES
from evalq.workers.ledger.scripts import MONITOR, script_text
from evalq.workers.ledger.sweep_model import SweepHeader
from evalq.workers.names import TRANSPORT
from evalq.workers.servers.connections import connect
from evalq.workers.servers.errors import SERVER_ERRORS, explained
from evalq.workers.settings import Settings

_Struct = TypeVar("_Struct", SweepHeader, CallerFacts, FollowerFacts)


RECENT_RUNS = 10
"""How many runs of a history dashboards show side by side."""


Lengths = Callable[[Iterable[str]], Mapping[str, int]]
"""Counts the waiting messages of queues."""


class WorkerStatus(msgspec.Struct, frozen=True):
    """A living worker. ``idle`` is the seconds since it last took a chunk, or since it started.

    ``clock_ahead`` is how many seconds its clock was ahead of the server's when it started, ``roots`` the folders that
    it may read, separated as in PATH.
    """

    name: str
    host: str
    code: str
    concurrency: int
    leases: int
    idle: float
    clock_ahead: float
    roots: str
    state: Literal["working", "idle", "stuck"]
    """working: it holds chunks; stuck: it takes nothing although there is work; idle: neither."""
    unhealthy: dict[str, str] = {}
    """{evaluator that it cannot load: why}."""
    evaluators: dict[str, str] = {}
    """{installed evaluator: package and version}."""


class UnservedRun(msgspec.Struct, frozen=True):
    """An open run that no living worker has been able to compute for so many seconds."""

    run: str
    seconds: float


class Newest(msgspec.Struct, frozen=True):
    """The newest run of a history, and the stored values of the last runs, the newest first.

    ``drift`` has the states of chains whose newest run is among these; others belong to specifications that nobody runs
    any more.
    """

    entry: Entry
    recent: list[list[tuple[str, tuple[str, ...], float]]]
    drift: list[DriftState] = []


class ServerFacts(msgspec.Struct, frozen=True):
    """Facts about the ledger's server: memory, persistence, role; in bytes and seconds since 1970."""

    name: str
    version: str
    memory: int
    memory_limit: int
    policy: str
    evicted: int
    aof: bool
    aof_failed: bool
    rdb_failed: bool
    started: float
    clients: int
    run_id: str = ""
    """The server's id, new at each start; empty if it does not say."""
    primary: str = ""
    """The primary of a replica, as host:port; empty for a primary."""

    @property
    def may_evict(self) -> bool:
        """Whether the server may drop keys to make room."""
        return self.memory_limit > 0 and self.policy != "noeviction"


class Snapshot(msgspec.Struct, frozen=True):
    """The state of a ledger at ``now``, by its server's clock."""

    now: float
    runs: dict[str, int]
    chunks: dict[str, int]
    oldest_age: float
    totals: dict[str, int]
    calls: dict[str, int]
    workers: list[WorkerStatus]
    queues: dict[str, int]
    unacked: int | None
    sweeps: list[SweepHeader]
    """Open sweeps with calls to make."""
    callers: list[CallerFacts]
    version: str
    """Version of the histories: while it is the same, they are unchanged."""
    histories: list[Newest]
    server: ServerFacts
    unserved: list[UnservedRun] = []
    followers: list[FollowerFacts] = []
    """Processes that follow traces, or did in the last days."""

    @property
    def last_commit(self) -> float:
        """Time of the last commit; 0 for never."""
        return self.totals.get("last_commit", 0) / 1000

    def total(self, name: str) -> int:
        """A counter over all evaluators and suites."""
        return sum(value for field, value in self.totals.items() if field.startswith(f"{name} "))

    def serving(self, queue: str) -> list[WorkerStatus]:
        """The living workers of a queue."""
        return [worker for worker in self.workers if queue.endswith(f".{worker.code}")]

    @property
    def unhealthy(self) -> list[tuple[WorkerStatus, str, str]]:
        """(worker, evaluator that it cannot load, why) of the whole fleet."""
        return [(worker, name, worker.unhealthy[name]) for worker in self.workers for name in sorted(worker.unhealthy)]

    @property
    def uncalled(self) -> list[SweepHeader]:
        """Sweeps with calls to make, and no living process of their version that can call their target."""
        called = {
            (caller.code, target)
            for caller in self.callers
            for target, facts in caller.targets.items()
            if not facts.trouble
        }
        return [sweep for sweep in self.sweeps if (sweep.code, sweep.target) not in called]

    @property
    def troubles(self) -> list[str]:
        """Processes that do not call a target now, and why."""
        return sorted(
            f"{caller.host} (pid {caller.pid}) does not call {target!r}: {facts.trouble}"
            for caller in self.callers
            for target, facts in caller.targets.items()
            if facts.trouble
        )

    def slow(self, seconds: float) -> list[str]:
        """Calls that have been in flight for so long, the oldest of each process and run."""
        return [
            f"{run}: case {case} has been in flight for {age:.0f} s on {caller.host} (pid {caller.pid})"
            for caller in self.callers
            for run, (case, age) in sorted(caller.oldest.items())
            if age >= seconds
        ]


def read_snapshot(
    client: redis.Redis,
    settings: Settings,
    elsewhere: Lengths | None = None,
    *,
    unacked: bool = False,
    before: Snapshot | None = None,
) -> Snapshot:
    """Take a snapshot of the ledger. Raises redis.RedisError.

    ``elsewhere`` counts the messages in queues on another server than the ledger's. ``unacked`` counts messages that
    workers hold; a producer's user of the server may not see them. Unchanged histories are taken from ``before``.
    """
    known = before.version if before else ""
    pipe: Any = client.pipeline(transaction=False)
    script = script_text(MONITOR, "scrape")
    pipe.execute_command("EVAL_RO", script, 0, " ".join(QUEUE_CLASSES), RECENT_RUNS, known, " ".join(ENDED_STATES))
    pipe.info()
    if unacked:
        pipe.hlen(TRANSPORT.unacked)
    reply, info, *held = pipe.execute()
    now, states, chunks, oldest, totals, calls, workers, lengths, version, histories, sweeps, callers, *rest = reply
    unserved, followers = rest
    waiting = _counts(lengths)
    if elsewhere is not None:
        waiting = dict(elsewhere(waiting))
    newest = [newest for one in histories if (newest := _newest(*one[1:]))]
    return Snapshot(
        now=now / 1000,
        runs=_counts(states),
        chunks=_counts(chunks),
        oldest_age=0.0 if oldest is None else max(0, now - oldest) / 1000,
        totals=_counts(totals),
        calls=_counts(calls),
        workers=sorted((_worker(one, now, waiting, settings) for one in workers), key=lambda worker: worker.name),
        queues=dict(sorted(waiting.items())),
        unacked=held[0] if held else None,
        sweeps=_decode_valid(sweeps, SweepHeader),
        callers=_decode_valid(callers, CallerFacts),
        version=version.decode(),
        histories=before.histories if before and version.decode() == known else newest,
        server=_server(info, now / 1000),
        unserved=[UnservedRun(run.decode(), max(0, now - since) / 1000) for run, since in unserved],
        followers=_decode_valid(followers, FollowerFacts),
    )


def _worker(reply: Sequence[Any], now: int, waiting: Mapping[str, int], settings: Settings) -> WorkerStatus:
    name, flat, leases = reply
    facts = {key.decode(errors="replace"): value.decode(errors="replace") for key, value in _pairs(flat).items()}
    last = max(int(facts.get("claimed", 0)), int(facts.get("since", 0)))
    idle = (now - last) / 1000 if last else 0.0
    code = facts.get("code", "")
    queued = sum(waiting.get(queue_name(queue, code), 0) for queue in QUEUE_CLASSES)
    stuck = not leases and queued and idle > settings.stuck_seconds
    return WorkerStatus(
        name=name.decode(),
        host=facts.get("host", ""),
        code=code,
        concurrency=int(facts.get("concurrency", 0)),
        leases=leases,
        idle=idle,
        clock_ahead=float(facts.get("clock_ahead", 0)),
        roots=facts.get("roots", ""),
        state="stuck" if stuck else "working" if leases else "idle",
        unhealthy=unhealthy_of(facts),
        evaluators=evaluators_of(facts),
    )


def _newest(
    text: bytes | None, recent: Sequence[bytes | None], runs: Sequence[bytes], drifting: Sequence[bytes]
) -> Newest | None:
    """The newest run of a history; None if evalq did not write its entry."""
    if text is None:
        return None
    with contextlib.suppress(ValueError, msgspec.DecodeError):
        return Newest(read_entry(text), [read_recent(one) if one else [] for one in recent], _drift(runs, drifting))
    return None


def _drift(runs: Sequence[bytes], drifting: Sequence[bytes]) -> list[DriftState]:
    known = {run.decode(errors="replace") for run in runs}
    return [state for state in read_states(drifting) if state.run in known]


def _decode_valid(texts: Sequence[bytes], kind: type[_Struct]) -> list[_Struct]:
    """The valid entries; evalq did not write the others."""
    entries = []
    for text in texts:
        with contextlib.suppress(ValueError, msgspec.DecodeError):
            entries.append(msgspec.json.decode(text, type=kind))
    return entries


def _server(info: Mapping[str, Any], now: float) -> ServerFacts:
    return ServerFacts(
        name=str(info.get("server_name", "redis")),
        version=str(info.get("valkey_version", info.get("redis_version", ""))),
        memory=int(info.get("used_memory", 0)),
        memory_limit=int(info.get("maxmemory", 0)),
        policy=str(info.get("maxmemory_policy", "")),
        evicted=int(info.get("evicted_keys", 0)),
        aof=bool(info.get("aof_enabled")),
        aof_failed="err" in (info.get("aof_last_write_status"), info.get("aof_last_bgrewrite_status")),
        rdb_failed=info.get("rdb_last_bgsave_status") == "err",
        started=now - int(info.get("uptime_in_seconds", 0)),
        clients=int(info.get("connected_clients", 0)),
        run_id=str(info.get("run_id", "")),
        primary=f"{info.get('master_host')}:{info.get('master_port')}" if info.get("role") == "slave" else "",
    )


def _pairs(flat: Sequence[bytes]) -> dict[bytes, bytes]:
    return dict(zip(flat[0::2], flat[1::2], strict=True))


_WHOLE = re.compile(rb"-?[0-9]{1,18}").fullmatch
"""Matches a counter as the scripts write it; any other value counts nothing."""


def _counts(flat: Sequence[Any]) -> dict[str, int]:
    pairs = zip(flat[0::2], flat[1::2], strict=True)
    return {
        name.decode(errors="replace"): int(value) for name, value in pairs if isinstance(value, int) or _WHOLE(value)
    }


# -- taking snapshots from outside -----------------------------------------------------------------

COMMANDS = (
    "brpop", "del", "discard", "eval_ro", "evalsha", "exec", "exists", "expire", "get", "hdel", "hexists", "hget",
    "hgetall", "hincrby", "hincrbyfloat", "hlen", "hmget", "hset", "hsetnx", "hstrlen", "hvals", "info", "lindex",
    "llen", "lpop", "lpush", "lrange", "ltrim", "multi", "pexpire", "ping", "pttl", "rpop", "rpush", "sadd",
    "scard", "script|exists", "script|load", "set", "sismember", "smembers", "srem", "time", "unwatch", "watch",
    "zadd", "zcard", "zcount", "zrange", "zrangebyscore", "zrem", "zrevrangebyscore", "zscore",
)  # fmt: skip
"""The commands that producers and workers use; deploy/redis/users.acl gives them these rights."""


class Watch:
    """Takes snapshots; it connects at the first one and keeps the connection.

    ``unacked`` is as in `read_snapshot`, ``patience`` as in `connect`. A ``client`` passed in is used and stays open.
    """

    def __init__(
        self, settings: Settings, *, unacked: bool = False, patience: float = 30.0, client: Any = None
    ) -> None:
        self._settings = settings
        self._patience = patience
        self._unacked = unacked and not settings.ledger_apart
        self._shared_client = client
        self._client: Any = client
        self._broker: Broker | None = None
        self._connecting = threading.Lock()

    def snapshot(self, before: Snapshot | None = None) -> Snapshot:
        """Take a snapshot, given the one before. Raises BrokerUnreachable, ServerRefused, or another EvalqError."""
        client = self._connected()
        elsewhere = self._broker.lengths if self._broker else None
        try:
            return read_snapshot(client, self._settings, elsewhere, unacked=self._unacked, before=before)
        except SERVER_ERRORS as error:
            raise explained(error, f"the server at {self._settings.ledger_address}") from error

    def codes(self, snapshot: Snapshot) -> dict[str, dict[str, str]]:
        """The parts of each code version in the snapshot, as far as its workers recorded them."""
        codes = {worker.code for worker in snapshot.workers} | {caller.code for caller in snapshot.callers}
        codes |= {queue.rpartition(".")[2] for queue in snapshot.queues}
        return Heartbeats(self._connected()).parts(sorted(codes))

    def missing(self) -> list[str]:
        """Those of `COMMANDS` that the ledger's server does not know, because its configuration renames them.

        Empty if this user may not ask. Raises BrokerUnreachable or redis.RedisError.
        """
        # Only queues need BRPOP, and they may be on another server.
        needed = [name for name in COMMANDS if name != "brpop" or not self._settings.ledger_apart]
        # With "INFO" in the name: redis-py parses the reply to COMMAND as a list of existing commands.
        try:
            known = self._connected().execute_command("COMMAND INFO", *needed)
        except redis.ResponseError:
            return []
        return [name for name, info in zip(needed, known, strict=True) if info is None]

    def ping(self) -> None:
        """Raise BrokerUnreachable or redis.RedisError if the ledger does not answer."""
        self._connected().ping()

    def close(self) -> None:
        """Close all connections."""
        if self._broker is not None:
            self._broker.close()
        if self._client is not None and self._shared_client is None:
            self._client.close()

    def _connected(self) -> Any:
        with self._connecting:
            if self._settings.ledger_apart and self._broker is None:
                self._broker = Broker(self._settings)
            if self._client is None:
                self._client = connect(self._settings.ledger_address, self._settings, self._patience)
            return self._client
