"""The ledger: what of each run is planned, in flight and committed. One Lua script a step, so each step is atomic.

The digest stored for a chunk is the authority on its answer. Messages, leases and parts may be lost or doubled
without changing a report. Every key that holds a run id expires, and every step that moves the run on prolongs it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from importlib.resources import files
from typing import Any

import msgspec
import redis

from evalcore.errors import Incomplete
from evalcore.life import RunState, leading_to
from evalcore.partial import Partial
from evalcore.plan import Chunk, Header, Seal, from_wire, to_wire
from workers.measures import counters
from workers.settings import Settings
from workers.standing import Look, progress_of, unreported

__all__ = ["Lease", "Ledger", "keys_of"]

OTHER = "other"
"""What suites beyond ``max_suites`` are counted as."""
PREFIX = "evalq:"
WORKERS = PREFIX + "worker:"
TOTALS = PREFIX + "totals"
RUNS = PREFIX + "runs"
SUITES = PREFIX + "suites"
_PARTS = (
    "meta",
    "chunks",
    "digests",
    "parts",
    "flight",
    "leases",
    "notes",
    "refused",
    "blobs",
    "aside",
    "sent",
    "final",
    "failures",
)


class Lease(msgspec.Struct, frozen=True):
    """The answer to a claim: ``status`` is leased, held, committed, closed, stale or gone.

    ``attempts`` counts processes that died with the chunk, ``losses`` whole workers; ``waited`` is the seconds since
    it was first published.
    """

    status: str
    chunk: Chunk | None = None
    header: Header | None = None
    blob: bytes | None = None
    attempts: int = 0
    losses: int = 0
    holder: str = ""
    holder_pid: int = 0
    waited: float = 0.0


@cache
def _script(name: str) -> str:
    lua = files("workers") / "lua"
    prelude, body, epilogue = (lua.joinpath(f"{n}.lua").read_text() for n in ("prelude", name, "epilogue"))
    return f"local TOTALS = '{TOTALS}'\n{prelude}\nlocal function body()\n{body}\nend\n{epilogue}"


class Ledger:
    """All that evalq keeps in Redis or Valkey, over one client (which returns bytes)."""

    def __init__(self, client: redis.Redis, settings: Settings) -> None:
        self.client: Any = client  # redis-py types each answer as bytes or text; this client gives bytes
        self._settings = settings
        self._scripts: dict[str, Any] = {}

    def _run(self, script: str, run: str, *args: Any) -> Any:
        if script not in self._scripts:
            self._scripts[script] = self.client.register_script(_script(script))
        return self._scripts[script](keys=keys_of(run), args=[self._settings.keep_ms, *args])

    @property
    def settings(self) -> Settings:
        return self._settings

    def script(self, name: str, run: str, *args: Any) -> Any:
        """One step of ``lua/<name>.lua`` on a run, for what keeps its own facts of runs."""
        return self._run(name, run, *args)

    # -- planning ---------------------------------------------------------------------------------------

    def create(self, header: Header, epoch: int) -> int:
        """Write a run's header, or reopen it with a higher epoch. Returns the epoch in force."""
        counted = (header.evaluator, header.suite, SUITES, self._settings.max_suites, OTHER)
        result: Sequence[Any] = self._run("create", header.run, to_wire(header), epoch, *counted)
        self.client.hset(RUNS, header.run, header.queue)
        return int(result[0])

    def append(self, run: str, chunks: Sequence[Chunk], first: int, seal: Seal | None = None) -> int:
        """Add planned chunks from number ``first`` on (and the plan's end); those it has already are left alone.

        Returns how many the ledger has then (fewer than ``first`` where it lost some), -1 for an unknown run.
        """
        entries = (to_wire(chunk) for chunk in chunks)
        return int(self._run("append", run, first, to_wire(seal) if seal else "", *entries))

    def restore(self, run: str, held: Iterable[tuple[int, str, int]]) -> int:
        """Count chunks (seq, digest, records) held by the run folder as committed; returns how many were new."""
        flat = [value for item in held for value in item]
        return int(self._run("restore", run, *flat)) if flat else 0

    # -- publishing -------------------------------------------------------------------------------------

    def take(self, run: str, most: int = 1 << 30) -> list[int]:
        """The next (at ``most`` so many) chunks to publish, marked as in flight; none when the window is full."""
        return [int(seq) for seq in self._run("take", run, self._settings.window, most)]

    def look(self, run: str, *, attending: bool = False) -> Look:
        """Progress, suspects and refusals in one step; its producer looks ``attending``, which keeps the run.

        Raises Incomplete when the ledger does not know the run.
        """
        grace = int(self._settings.grace_seconds * 1000)
        _, meta, suspects, refused, leases = self._run("look", run, grace, int(attending))
        if not meta:
            raise Incomplete(f"the ledger knows no run {run} (expired, pruned or on another server)")
        facts = _pairs(meta)
        progress = progress_of(facts)
        return Look(
            progress=progress,
            suspect={int(seq): reason.decode() for seq, reason in _pairs(suspects).items()},
            refused={int(seq): reason.decode() for seq, reason in _pairs(refused).items()},
            leases=leases,
            unserved=b"unserved" in facts,
            unreported=unreported(progress, facts),
        )

    def mark(self, header: Header, suspects: Mapping[int, str]) -> list[int]:
        """Note that suspects are published again; returns those still wanted."""
        flat = [value for item in suspects.items() for value in item]
        return [int(s) for s in self._run("mark", header.run, WORKERS, *flat)]

    def supply(self, run: str, seq: int, blob: bytes, *, publish: bool = True) -> bool:
        """Give a chunk's packed bytes; returns whether its message is to be sent now.

        It is where ``publish`` asks for it or the chunk was refused, unless it was committed meanwhile.
        """
        return bool(self._run("supply", run, seq, blob, int(publish)))

    # -- computing --------------------------------------------------------------------------------------

    def claim(self, run: str, seq: int, epoch: int, worker: str, pid: int, dead_pid: int | None = None) -> Lease:
        """Ask for a chunk. ``dead_pid``: a process of this worker that held it and is known to be gone."""
        lease_ms = int(self._settings.lease_seconds * 1000)
        status, *rest = self._run("claim", run, seq, epoch, worker, pid, lease_ms, WORKERS, dead_pid or "")
        name = status.decode()
        if name == "held":
            return Lease(name, holder=rest[0].decode(), holder_pid=int(rest[1]))
        if name != "leased":
            return Lease(name)
        chunk, header, blob, attempts, losses, waited = rest
        return Lease(
            name,
            from_wire(chunk, Chunk),
            from_wire(header, Header),
            blob,
            int(attempts),
            int(losses),
            waited=max(0, int(waited)) / 1000,
        )

    def renew(self, run: str, seq: int, worker: str, pid: int) -> bool:
        """Prolong a lease; False when it is lost or the run is closed."""
        lease_ms = int(self._settings.lease_seconds * 1000)
        return bool(self._run("renew", run, seq, worker, pid, lease_ms))

    def commit(
        self,
        header: Header,
        chunk: Chunk,
        epoch: int,
        partial: Partial,
        dead: int = 0,
        took: Mapping[str, float] | None = None,
    ) -> str:
        """Store a chunk's answer, once: committed, duplicate, divergent, stale, closed or gone.

        ``dead`` records of it have no result; such an answer contradicts no other one. ``took`` are seconds to be
        counted with it where it is committed, by the name of their histogram.
        """
        args = (chunk.seq, epoch, partial.digest, partial.data, chunk.records, dead)
        result: bytes = self._run("commit", header.run, *args, *counters(header.evaluator, took or {}))
        return result.decode()

    def trying(self, run: str, seq: int, piece: str) -> None:
        """Note the piece of a chunk that is about to be evaluated by itself, in case it takes this worker down."""
        self._run("trying", run, seq, piece)

    def fallen(self, run: str, seq: int) -> dict[str, int]:
        """{piece: how many workers died trying it} of a chunk."""
        start = f"fell {seq} "
        return {key.removeprefix(start): count for key, count in self.notes(run).items() if key.startswith(start)}

    def refuse(self, run: str, seq: int, epoch: int, reason: str) -> None:
        """Say that a chunk's bytes cannot be read here, or are not those planned."""
        self._run("refuse", run, seq, epoch, reason)

    # -- collecting -------------------------------------------------------------------------------------

    def fetch(self, run: str, seqs: Sequence[int]) -> list[Partial | None]:
        """The answers of ``seqs``: None for one that is not committed, without data for one that was trimmed."""
        if not seqs:
            return []
        keys = keys_of(run)
        pipe = self.client.pipeline(transaction=True)
        pipe.hmget(keys[2], [str(seq) for seq in seqs])
        pipe.hmget(keys[3], [str(seq) for seq in seqs])
        digests, parts = pipe.execute()
        return [
            Partial(d.decode("ascii", "replace"), p or b"") if d else None for d, p in zip(digests, parts, strict=True)
        ]

    def trim(self, run: str, seqs: Sequence[int]) -> None:
        """Forget parts that are safe in the run folder; their digests stay."""
        if seqs:
            self.client.hdel(keys_of(run)[3], *(str(seq) for seq in seqs))

    def close(self, run: str, state: RunState, reason: str = "") -> str:
        """Move a run on to where the table of `evalcore.life` lets it go; returns the state it is in then.

        "gone" for a run the ledger does not know; "done" needs every chunk.
        """
        result: bytes | None = self._run("close", run, state, reason, *leading_to(state))
        return result.decode() if result else "gone"

    def reopen(self, run: str, chunks: Iterable[tuple[int, int, int]]) -> bool:
        """Open a finished run again, without the answers of ``chunks`` (seq, records, dead ones of them).

        False for a run the ledger does not know.
        """
        flat = [value for chunk in chunks for value in chunk]
        return int(self._run("reopen", run, *flat)) == 0

    def forget(self, run: str) -> None:
        """Remove all that is known of a run."""
        self.client.delete(*keys_of(run))
        self.client.hdel(RUNS, run)

    # -- reading ----------------------------------------------------------------------------------------

    def header(self, run: str) -> Header | None:
        """A run's header, or None when the ledger does not know it."""
        data = self.client.hget(keys_of(run)[0], "header")
        return from_wire(data, Header) if isinstance(data, bytes) else None

    def notes(self, run: str) -> dict[str, int]:
        """Counts by chunk: "attempts <seq>" (its process died), "losses <seq>" (its worker died), "tries <seq>"
        (published again), "failed <seq>" (a worker failed at it), "dead <seq>" (records), "fell <seq> <piece>" (a
        worker died trying that piece).
        """
        notes = self.client.hgetall(keys_of(run)[6]).items()
        return {key.decode(): int(value) for key, value in notes if not key.startswith(b"trying ")}

    def runs(self) -> dict[str, str]:
        """{run: queue} of all runs that have not expired; expired ones are forgotten on the way."""
        return {run: queue for run, (queue, _) in self._standing().items()}

    def untended(self) -> list[str]:
        """Runs that may want tending: open ones, and those that were left to the workers and have no report yet."""
        found = []
        for run, (_, (state, detached, reported)) in self._standing().items():
            if state == b"open" or (detached and not reported):
                found.append(run)
        return found

    def _standing(self) -> dict[str, tuple[str, list[bytes | None]]]:
        known = {run.decode(): queue.decode() for run, queue in self.client.hgetall(RUNS).items()}
        pipe = self.client.pipeline(transaction=False)
        for run in known:
            pipe.hmget(keys_of(run)[0], "state", "detached", "reported")
        found = {run: (queue, facts) for (run, queue), facts in zip(known.items(), pipe.execute(), strict=True)}
        if gone := [run for run, (_, facts) in found.items() if facts[0] is None]:
            self.client.hdel(RUNS, *gone)
        return {run: facts for run, facts in found.items() if run not in gone}

    def release(self, worker: str) -> None:
        """Give back all that a worker holds which ends in good order."""
        for run in self.runs():
            self._run("release", run, worker)


def keys_of(run: str) -> list[str]:
    """All keys of a run, in the order the scripts know them by."""
    return [f"{PREFIX}run:{{{run}}}:{part}" for part in _PARTS]


def _pairs(flat: Sequence[bytes]) -> dict[bytes, bytes]:
    return dict(zip(flat[0::2], flat[1::2], strict=True))
