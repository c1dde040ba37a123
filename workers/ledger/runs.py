"""The ledger records which chunks of each run are planned, in flight and committed.

Each step is one Lua script, and so atomic. The stored digest of a chunk decides which answer is right. Messages, leases
and parts may get lost or doubled; reports stay the same. Every key with a run id expires. Every step that moves a run
on extends that time.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from math import inf

import msgspec
import redis

from evalq.evalcore.contract.partial import Partial
from evalq.evalcore.errors import Incomplete
from evalq.evalcore.model.manifest import Chunk, Header, from_wire
from evalq.evalcore.records.digests import checked_key
from evalq.workers.ledger.driver_steps import DriverSteps
from evalq.workers.ledger.keys import SHARED, RunKeys, decode_fields, decode_names, is_wrong_type, reading
from evalq.workers.ledger.progress import ENDED_STATES, KEPT, RunStatus, progress_of, unreported
from evalq.workers.ledger.scripts import Claimed, Committed, parse_reply, server_micros
from evalq.workers.ledger.sweep_model import counters
from evalq.workers.settings import Settings


class Lease(msgspec.Struct, frozen=True):
    """The answer to a claim, with the chunk to compute; ``key`` is the key of the run's chunk digests.

    ``attempts`` counts processes that died with the chunk, ``losses`` counts whole workers. ``waited`` is the number of
    seconds since it was first published. ``code`` is the run's code version if it differs from the worker's.
    """

    status: Claimed
    chunk: Chunk | None = None
    header: Header | None = None
    key: str = ""
    blob: bytes | None = None
    attempts: int = 0
    losses: int = 0
    holder: str = ""
    holder_pid: int = 0
    waited: float = 0.0
    code: str = ""


class _HeaderCache:
    """Headers of the runs used last. A header may list thousands of inputs, and it never changes."""

    def __init__(self, most: int = 64) -> None:
        self._most = most
        self._known: dict[str, tuple[str, Header]] = {}

    def id_of(self, run: str) -> str:
        """The id of the known header of ``run``; empty if none is known."""
        return self._known.get(run, ("", None))[0]

    def read(self, run: str, header_id: str, data: bytes) -> Header:
        """The header in ``data``; the known one if ``data`` is empty. Raises WireError."""
        if not data and header_id and self.id_of(run) == header_id:
            return self._known[run][1]
        header = from_wire(data, Header)
        # Remove it and add it again, so that the dictionary's first entry is always the one read longest ago.
        self._known.pop(run, None)
        self._known[run] = (header_id, header)
        if len(self._known) > self._most:
            del self._known[next(iter(self._known))]
        return header


_BACKOFF_MS = 32_000
"""The longest wait before a chunk is published again."""
_DELIST_SECONDS, _MOST_DELISTED = 30.0, 1000
"""How often a process looks for expired runs to remove, and how many of each state it then removes at most."""
MAX_TAKE_SCAN = 10_000
"""How many chunks one script call checks to find those to publish."""


class RunLedger(DriverSteps):
    """All that evalq keeps of runs in Redis or Valkey, over one client (which returns bytes).

    The driver opens a run and appends its chunks. Chunks are taken (to be published). Workers claim and commit them.
    The driver collects and trims them, and in the end it closes the run. Each step is one atomic script. ``token``
    belongs to a process that drives runs: see `DriverSteps`. If a server fails, methods raise redis.RedisError.
    """

    def __init__(self, client: redis.Redis, settings: Settings, token: str = "") -> None:
        super().__init__(client, settings, token)
        self._headers = _HeaderCache()
        self._delisted = -inf

    # -- publishing -------------------------------------------------------------------------------------

    def take(self, run: str, most: int = 1 << 30, epoch: int | None = None) -> list[int]:
        """The next chunks to publish, at most ``most``, marked as in flight; none if the window is full.

        Also none if another ``epoch`` is in force: their messages would be stale.
        """
        seqs: list[int] = []
        more = 1
        while more and len(seqs) < most:
            room = (self.settings.window, most - len(seqs), MAX_TAKE_SCAN)
            more, *some = self.step("take", run, "" if epoch is None else epoch, *room)
            seqs += map(int, some)
        return seqs

    def poll(self, run: str, *, attending: bool = False) -> RunStatus:
        """Progress, suspects and refusals in one step. The driver sets ``attending``, so that it keeps the run.

        Raises Incomplete if the ledger does not know the run. Raises AlreadyRunning if another process attends it.
        Raises WireError if the ledger's data of it is damaged.
        """
        grace = int(self.settings.grace_seconds * 1000)
        args = (run, int(attending), grace, _BACKOFF_MS, *KEPT)
        with reading(run):
            now, fields, suspects, refused, leases = self.step("poll", run, *args)
            if not fields:
                raise Incomplete(f"the ledger knows no run {run} (expired, pruned or on another server)")
            facts = _pairs(fields)
            progress = progress_of(facts)
            return RunStatus(
                progress=progress,
                suspect={int(seq): reason.decode() for seq, reason in _pairs(suspects).items()},
                refused={int(seq): reason.decode(errors="replace") for seq, reason in _pairs(refused).items()},
                leases=leases,
                keyed=facts[b"keyed"] == b"1",
                unserved=b"unserved" in facts,
                detached=facts[b"detached"] == b"1",
                unreported=unreported(progress, facts),
                reported=facts[b"reported"] == b"1",
                driver=facts.get(b"driver", b"").decode(errors="replace"),
                driver_silent=max(0, int(now) - int(facts.get(b"driver_at", now))) / 1000,
            )

    def mark(self, header: Header, suspects: Mapping[int, str]) -> list[int]:
        """Note that suspects are published again; return those still wanted."""
        flat = [value for item in suspects.items() for value in item]
        return [int(s) for s in self.step("mark", header.run, *flat)]

    # -- computing --------------------------------------------------------------------------------------

    def claim(
        self, run: str, seq: int, epoch: int, worker: str, pid: int, dead_pid: int | None = None, code: str = ""
    ) -> Lease:
        """Ask for a chunk; ``code`` is the worker's code version, which must be the run's.

        ``dead_pid`` is a process of this worker that held the chunk and is known to be gone.
        """
        lease_ms = int(self.settings.lease_seconds * 1000)
        known = (code, self._headers.id_of(run))
        reply, *rest = self.step("claim", run, run, seq, epoch, worker, pid, lease_ms, dead_pid or "", *known)
        status: Claimed = parse_reply(Claimed, reply)
        if status == "held":
            return Lease(status, holder=rest[0].decode(), holder_pid=int(rest[1]))
        if status == "other":
            return Lease(status, code=rest[0].decode())
        if status != "leased":
            return Lease(status)
        chunk, header_id, header, key, blob, attempts, losses, waited = rest
        return Lease(
            status,
            from_wire(chunk, Chunk),
            self._headers.read(run, header_id.decode(), header),
            checked_key(key.decode("ascii", "replace")),
            blob,
            int(attempts),
            int(losses),
            waited=max(0, int(waited)) / 1000,
        )

    def renew(self, run: str, seq: int, worker: str, pid: int) -> bool:
        """Prolong a lease; False when it is lost or the run is closed."""
        lease_ms = int(self.settings.lease_seconds * 1000)
        return bool(self.step("renew", run, seq, worker, pid, lease_ms))

    def commit(
        self,
        header: Header,
        chunk: Chunk,
        epoch: int,
        partial: Partial,
        dead: int = 0,
        took: Mapping[str, float] | None = None,
    ) -> Committed:
        """Store a chunk's answer, once; return what became of it.

        ``dead`` of its records have no result; such an answer contradicts no other one. If the answer is committed, the
        ledger counts the seconds in ``took``, by the name of their histogram.
        """
        args = (chunk.seq, epoch, partial.digest, partial.data, chunk.records, dead, header.code_version)
        reply = self.step("commit", header.run, *args, *counters(header.evaluator, took or {}))
        status: Committed = parse_reply(Committed, reply)
        return status

    def trying(self, run: str, seq: int, piece: str) -> None:
        """Note the piece of a chunk that this worker evaluates next by itself, in case it kills the worker."""
        self.step("trying", run, seq, piece)

    def crashes_by_piece(self, run: str, seq: int) -> dict[str, int]:
        """{piece: how many workers died trying it} of a chunk."""
        start = f"fell {seq} "
        return {key.removeprefix(start): count for key, count in self.notes(run).items() if key.startswith(start)}

    def refuse(self, run: str, seq: int, epoch: int, reason: str, worker: str) -> None:
        """Say that this worker cannot read a chunk's bytes, or that they are not the planned ones."""
        self.step("refuse", run, seq, epoch, reason, worker)

    # -- collecting -------------------------------------------------------------------------------------

    def collect(self, run: str, seqs: Sequence[int]) -> list[Partial | None]:
        """The answers of ``seqs``: None for one that is not committed, one without data if it was trimmed."""
        if not seqs:
            return []
        keys = RunKeys.of(run)
        # Read both at once: a chunk that is reopened between two reads would look like a trimmed one.
        pipe = self.client.pipeline(transaction=True)
        pipe.hmget(keys.digests, [str(seq) for seq in seqs])
        pipe.hmget(keys.parts, [str(seq) for seq in seqs])
        digests, parts = pipe.execute()
        return [
            Partial(d.decode("ascii", "replace"), p or b"") if d else None for d, p in zip(digests, parts, strict=True)
        ]

    def delete(self, run: str) -> None:
        """Remove everything that the ledger has of a run."""
        self.client.delete(*RunKeys.of(run))
        self.relist(run)

    # -- reading ----------------------------------------------------------------------------------------

    def header(self, run: str) -> Header | None:
        """A run's header, or None when the ledger does not know it. Raises WireError."""
        with reading(run):
            return self._header(run)

    def _header(self, run: str) -> Header | None:
        meta = RunKeys.of(run).meta
        pipe = self.client.pipeline(transaction=False)
        # Two short fields show whether the known header is still the one there. Processes that tend runs ask at each
        # poll, and a header may list thousands of inputs.
        pipe.hget(meta, "header_id")
        pipe.hstrlen(meta, "header")
        header_id, length = pipe.execute()
        known = header_id.decode("ascii", "replace") if header_id else ""
        known = known if known.endswith(f" {length}") else ""  # otherwise somebody else wrote it
        if known and known == self._headers.id_of(run):
            return self._headers.read(run, known, b"")
        data = self.client.hget(meta, "header")
        return self._headers.read(run, known, data) if isinstance(data, bytes) else None

    def created(self, run: str) -> float:
        """When a run began, in seconds by the server's clock; 0 for a run that the ledger does not know.

        Raises WireError.
        """
        with reading(run):
            return int(self.client.hget(RunKeys.of(run).meta, "created") or 0) / 1000

    def notes(self, run: str) -> dict[str, int]:
        """Counts by chunk: "attempts <seq>" (its process died), "losses <seq>" (its worker died), "tries <seq>"
        (published again), "failed <seq>" (a worker failed at it), "dead <seq>" (records), "fell <seq> <piece>" (a
        worker died trying that piece). Raises WireError.
        """
        with reading(run):
            notes = self.client.hgetall(RunKeys.of(run).notes).items()
            return {key.decode(): int(value) for key, value in notes if not key.startswith(b"trying ")}

    def runs(self) -> dict[str, str]:
        """{run: queue} of all runs that have not expired. Permission to read is enough."""
        return {run: queue for run, (queue, facts) in self._listed().items() if facts[0] is not None}

    def runs_to_tend(self) -> list[str]:
        """Runs that workers tend: open ones, and detached ones without a report.

        It also takes expired runs off all lists.
        """
        self._delist_expired()
        runs = []
        for run, (_, (state, detached, reported)) in self._listed(SHARED.tended).items():
            if state == b"open" or (state == b"done" and detached and not reported):
                runs.append(run)
            else:
                self.relist(run)
        return runs

    def relist(self, run: str) -> None:
        """Update the lists from a run's own keys: the run is open, ended or gone."""
        try:
            self.step("list", run)
        except redis.ResponseError as error:
            if not is_wrong_type(error):
                raise

    def _delist_expired(self) -> None:
        """Take expired runs off the lists: a run's own keys expire by themselves, its name on lists does not."""
        if time.monotonic() - self._delisted >= _DELIST_SECONDS:
            self._delisted = time.monotonic()
            for run in self._expired():
                self.relist(run)

    def _expired(self) -> list[str]:
        """Runs that ended and may have expired since; a limited number at a time."""
        now, pipe = server_micros(self.client) // 1000, self.client.pipeline(transaction=False)
        for state in ENDED_STATES:
            pipe.zrangebyscore(SHARED.ended + state, "-inf", now, 0, _MOST_DELISTED)
        lists = pipe.execute(raise_on_error=False)
        return [run for names in lists if not isinstance(names, Exception) for run in decode_names(names)]

    def _listed(self, names: str = SHARED.runs) -> dict[str, tuple[str, list[bytes | None]]]:
        """{run: (queue, [its state (None: it expired), whether it was detached, whether it was reported])}.

        If something else is stored in place of a run's facts, evalq knows only its name. It then counts as open.
        """
        # All runs share the list. A name on it that is no text is not evalq's; it must not hide other runs.
        known = {run: queue.decode(errors="replace") for run, queue in decode_fields(self.client.hgetall(names))}
        pipe = self.client.pipeline(transaction=False)
        for run in known:
            pipe.hmget(RunKeys.of(run).meta, "state", "detached", "reported")
        replies = pipe.execute(raise_on_error=False)
        return {run: (queue, _facts(reply)) for (run, queue), reply in zip(known.items(), replies, strict=True)}

    def give_back(self, worker: str) -> None:
        """Give back all leases of a worker that shuts down."""
        # No key lists leases by worker, since each claim would then cost a write. So ask every open run, once in a
        # worker's life.
        for run in self._listed(SHARED.tended):
            try:
                self.step("give_back", run, worker)
            except redis.ResponseError as error:
                if not is_wrong_type(error):
                    raise


def _facts(reply: list[bytes | None] | Exception) -> list[bytes | None]:
    if isinstance(reply, redis.RedisError) and is_wrong_type(reply):
        return [b"open", None, None]
    if isinstance(reply, Exception):
        raise reply
    return reply


def _pairs(flat: Sequence[bytes]) -> dict[bytes, bytes]:
    return dict(zip(flat[0::2], flat[1::2], strict=True))
