"""The failures of a run with their reasons, counted in the ledger by chunk and by worker, in bounded space.

They expire with the run. A restart of the run deletes them.
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
"""Kinds of failures: an evaluator cannot be loaded here; out of memory or a system error; the evaluator raised;
the ledger refused a step; the input cannot be read here; the report cannot be made."""

REASON_CHARACTERS = 300
"""The longest reason that is stored: it may quote text that others put into the ledger."""
# Entries of a run's list: a fleet that fails everywhere must not fill the server.
_MOST = 1000


def server_is_away(error: BaseException) -> bool:
    """Whether an error is a ledger server that is away, which passes by itself; any other error stays."""
    return isinstance(error, redis.RedisError) and isinstance(explained(error, "the ledger"), BrokerUnreachable)


class LastFailure(msgspec.Struct, frozen=True):
    """The last failure of a worker, and the ``count`` of all its failures.

    ``at`` is in ms since 1970 by the server's clock; ``committed`` is the number of chunks committed by then.
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
    """The failures of a run.

    ``chunks`` without an answer: {seq: {worker: count}}; ``unread``: workers that could not read an input; ``barren``:
    the number of chunks committed at the last failure, and the time of the first failure since that commit.
    """

    workers: dict[str, LastFailure]
    chunks: dict[int, dict[str, int]]
    unread: frozenset[str]
    barren: tuple[int, int] = (0, 0)


class Failures:
    """Counts failures of one ledger's runs; `evalq.workers.recovery.judge` has the rules that act on them."""

    def __init__(self, ledger: RunLedger) -> None:
        self._ledger = ledger
        self._settings = ledger.settings

    def count(self, run: str, seq: int, epoch: int, worker: str, host: str, kind: Kind, reason: str) -> bool:
        """Count a worker's failure at a chunk and offer the chunk again; False if it does not count.

        It does not count if the run is closed or the chunk committed. Neither does kind "input" while the run's
        producer attends it: the producer then sends the chunk's bytes through the ledger.
        """
        grace, driver = self._settings.grace_seconds, self._settings.driver_seconds
        text = reason[:REASON_CHARACTERS]
        args = (seq, epoch, worker, host, kind, text, int(grace * 1000), int(driver * 1000), _MOST)
        return bool(self._ledger.step("fail", run, *args))

    def unreported(self, run: str, worker: str, host: str, reason: str) -> None:
        """Count that a worker could not make a run's report."""
        # The reason is cut here, not by the script: the server may be full.
        self._ledger.step("unreported", run, worker, host, reason[:REASON_CHARACTERS], _MOST)

    def counts(self, run: str) -> FailureCounts:
        """The failures of a run, without entries that evalq did not write."""
        client: Any = self._ledger.client
        keys = RunKeys.of(run)
        workers: dict[str, LastFailure] = {}
        chunks: dict[int, dict[str, int]] = {}
        unread, barren = set(), (0, 0)
        for field, value in client.hgetall(keys.failures).items():
            what, _, rest = field.decode(errors="replace").partition(" ")
            # One hash for all kinds of entries, which differ by their first word, so that one bound limits them all.
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
            elif what == "worker" and (failure := _parse_failure(value)) is not None:
                workers[rest] = failure
        # Read after the failures: a chunk committed in between does not count any more.
        seqs = sorted(chunks)
        digests = client.hmget(keys.digests, seqs) if seqs else []
        open_chunks = {seq: chunks[seq] for seq, digest in zip(seqs, digests, strict=True) if digest is None}
        return FailureCounts(workers, open_chunks, frozenset(unread), barren)

    def mark_unserved(self, run: str, unserved: bool) -> float:
        """Note whether no living worker can compute a run; returns for how many seconds that has been so."""
        return int(self._ledger.step("unserved", run, int(unserved))) / 1000

    def offer(self, run: str, *, at_once: bool) -> list[int]:
        """Refused chunks of a run that nobody drives, to publish again now."""
        driver = int(self._settings.driver_seconds * 1000)
        return [int(seq) for seq in self._ledger.step("offer", run, self._settings.window, driver, int(at_once))]


def _parse_failure(data: bytes) -> LastFailure | None:
    try:
        return msgspec.json.decode(data, type=LastFailure)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None
