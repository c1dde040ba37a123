"""What of a run failed, where and why: counted in the ledger by chunk and by worker, in bounded space.

It lives and expires with the run, and a restart of the run begins it anew.
"""

from __future__ import annotations

import contextlib
from typing import Any, Literal

import msgspec
import redis

from evalq.evalcore.errors import BrokerUnreachable
from evalq.workers.ledger.keys import RunKeys
from evalq.workers.ledger.runs import RunLedger
from evalq.workers.servers.errors import explained

Kind = Literal["load", "environment", "evaluator", "ledger", "input", "report"]
"""Of a failure: an evaluator that cannot be loaded here; no memory, or an error of the system; the evaluator raised;
the ledger refused a step; the input cannot be read here; the report could not be made."""

REASON_CHARACTERS = 300
"""The longest reason that is kept: it may quote what somebody put into the ledger."""
# Entries of a run's list: a fleet that fails everywhere must not fill the server.
_MOST = 1000


def server_is_away(error: BaseException) -> bool:
    """Whether an error of the ledger's server passes by itself; another answer of it is as bad the next time."""
    return isinstance(error, redis.RedisError) and isinstance(explained(error, "the ledger"), BrokerUnreachable)


class LastFailure(msgspec.Struct, frozen=True):
    """The last failure of a worker, how many there were, and when: ms since 1970, by the server's clock, and how many
    chunks were ``committed`` then.
    """

    worker: str
    host: str
    kind: str
    reason: str
    count: int
    at: int
    committed: int = 0

    def __str__(self) -> str:
        return f"{self.host}: {self.reason}" + (f" ({self.count:,} times)" if self.count > 1 else "")


class FailureCounts(msgspec.Struct, frozen=True):
    """All that a run's list of failures says.

    ``chunks``: {seq: {worker: how often}} of those without an answer; ``unread``: workers that could not read an input;
    ``barren``: chunks committed at the last failure, and when (as in `LastFailure`) the first one since came.
    """

    workers: dict[str, LastFailure]
    chunks: dict[int, dict[str, int]]
    unread: frozenset[str]
    barren: tuple[int, int] = (0, 0)


class Failures:
    """The failures of one ledger's runs. They decide nothing here: `evalq.workers.recovery.judge` has the rules."""

    def __init__(self, ledger: RunLedger) -> None:
        self._ledger = ledger
        self._settings = ledger.settings

    def count(self, run: str, seq: int, epoch: int, worker: str, host: str, kind: Kind, reason: str) -> bool:
        """Count a worker's failure at a chunk and have the chunk offered again; False where it is no failure.

        It is none where the run is closed or the chunk committed, nor (kind "input") where the run's producer attends
        it: the chunk then gets its bytes by way of the ledger.
        """
        grace, driver = self._settings.grace_seconds, self._settings.driver_seconds
        said = reason[:REASON_CHARACTERS]
        args = (seq, epoch, worker, host, kind, said, int(grace * 1000), int(driver * 1000), _MOST)
        return bool(self._ledger.step("fail", run, *args))

    def unreported(self, run: str, worker: str, host: str, reason: str) -> None:
        """Count that a worker could not make a run's report."""
        # The reason is cut here, not by the script: nothing long goes to a server that may be full.
        self._ledger.step("unreported", run, worker, host, reason[:REASON_CHARACTERS], _MOST)

    def counts(self, run: str) -> FailureCounts:
        """The failures of a run. Entries that evalq did not write are left out."""
        client: Any = self._ledger.client
        keys = RunKeys.of(run)
        workers: dict[str, LastFailure] = {}
        chunks: dict[int, dict[str, int]] = {}
        unread, barren = set(), (0, 0)
        for field, value in client.hgetall(keys.failures).items():
            what, _, rest = field.decode(errors="replace").partition(" ")
            # By what the fields begin with: one list has one bound, whatever a fleet fails at.
            if what == "unread":
                unread.add(rest)
            elif what == "barren":
                committed, _, first = value.partition(b" ")
                with contextlib.suppress(ValueError):
                    barren = int(committed), int(first)
            elif what == "chunk" and value.isdigit():
                seq, _, worker = rest.partition(" ")
                with contextlib.suppress(ValueError):
                    chunks.setdefault(int(seq), {})[worker] = int(value)
            elif what == "worker" and (failed := _failed(value)) is not None:
                workers[rest] = failed
        # Read after the failures: a chunk that was committed in between does not fail any more.
        seqs = sorted(chunks)
        done = client.hmget(keys.digests, seqs) if seqs else []
        open_chunks = {seq: chunks[seq] for seq, digest in zip(seqs, done, strict=True) if digest is None}
        return FailureCounts(workers, open_chunks, frozenset(unread), barren)

    def unserved(self, run: str, so: bool) -> float:
        """Note whether no living worker can compute a run; returns for how many seconds that is so."""
        return int(self._ledger.step("unserved", run, int(so))) / 1000

    def offer(self, run: str, *, at_once: bool) -> list[int]:
        """Refused chunks of a run that nobody drives, to be published again now."""
        driver = int(self._settings.driver_seconds * 1000)
        return [int(seq) for seq in self._ledger.step("offer", run, self._settings.window, driver, int(at_once))]


def _failed(data: bytes) -> LastFailure | None:
    try:
        return msgspec.json.decode(data, type=LastFailure)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None
