"""Reports of finished runs, which wait in the ledger until somebody writes them to a folder."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

from evalq.evalcore.compare.counting import Causes
from evalq.evalcore.compare.summary import RunUsage, Took
from evalq.evalcore.errors import Divergent, WireError
from evalq.evalcore.model.canonical import pack, unpack
from evalq.evalcore.model.manifest import Chunk, Seal, from_wire
from evalq.workers.ledger.keys import RunKeys
from evalq.workers.ledger.runs import RunLedger
from evalq.workers.settings import Settings

_PAGE = 1000


class Detached(msgspec.Struct, frozen=True):
    """Facts that a producer leaves with a run for the worker that finalises it.

    ``began`` is in seconds by the server's clock, ``name`` the run's name in its suite. If the run made live calls,
    ``usage`` has their totals, ``took`` those of single cases, and ``causes`` why some calls have no answer.
    """

    began: float
    target: str = ""
    tags: dict[str, str] = {}
    name: str = ""
    usage: RunUsage | None = None
    took: dict[str, Took] = {}
    causes: Causes = Causes()


class Reports:
    """Inputs and results of finalising the runs of one ledger. All of it expires with the run."""

    def __init__(self, ledger: RunLedger, settings: Settings) -> None:
        self._client: Any = ledger.client
        self._ledger = ledger
        self._settings = settings

    def detach(self, run: str, facts: Detached) -> None:
        """Leave a run to the workers."""
        self._set(run, "detached", msgspec.json.encode(facts))
        self._ledger.relist(run)

    def detached(self, run: str) -> Detached | None:
        """The facts left with a run; None if its producer stayed or came back. Raises WireError."""
        data = self._client.hget(RunKeys.of(run).meta, "detached")
        try:
            return msgspec.json.decode(data, type=Detached) if data else None
        except msgspec.DecodeError as error:
            raise WireError(
                f"run {run}: the facts that its producer left in the ledger are damaged: {error}"
            ) from error

    def begin(self, run: str) -> int:
        """Count an attempt to finalise a run; returns its number."""
        meta = RunKeys.of(run).meta
        pipe = self._client.pipeline(transaction=True)
        # Counted before the work begins: a report that kills its process would otherwise be tried for ever.
        pipe.hincrby(meta, "finals", 1)
        pipe.pexpire(meta, self._settings.keep_ms)
        return int(pipe.execute()[0])

    def seal(self, run: str) -> Seal | None:
        """The seal of a run's plan; None while the plan is open. Raises WireError."""
        seal = self._client.hget(RunKeys.of(run).meta, "seal")
        return from_wire(seal, Seal) if seal else None

    def planned(self, run: str) -> int:
        """How many chunks of a run the ledger has."""
        return int(self._client.llen(RunKeys.of(run).chunks))

    def chunks(self, run: str) -> Iterator[Chunk]:
        """The chunks in order, read page by page. Raises WireError."""
        key, first = RunKeys.of(run).chunks, 0
        # One reply with a hundred thousand entries would block the server for all other clients.
        while some := self._client.lrange(key, first, first + _PAGE - 1):
            yield from (from_wire(entry, Chunk) for entry in some)
            first += len(some)

    def store(self, run: str, report: bytes) -> bool:
        """Store a run's report once; False if it is there already. Raises Divergent if another one is."""
        keys = RunKeys.of(run)
        pipe = self._client.pipeline(transaction=True)
        # In one transaction: a run that does not say it is reported would be finalised again and again.
        pipe.hsetnx(keys.final, "report", report)
        pipe.hset(keys.meta, "reported", 1)
        pipe.pexpire(keys.final, self._settings.keep_ms)
        pipe.pexpire(keys.meta, self._settings.keep_ms)
        new = bool(pipe.execute()[0])
        self._ledger.relist(run)
        # None if the run was reopened or expired in between: then nothing contradicts this report.
        if not new and self.report(run) not in (report, None):
            raise Divergent(f"run {run} has another report in the ledger than the one that was made now")
        return new

    def report(self, run: str) -> bytes | None:
        """A run's report.json; None before it is finalised."""
        data: bytes | None = self._client.hget(RunKeys.of(run).final, "report")
        return data

    def keep_cases(self, run: str, cases: bytes) -> None:
        """Store a run's cases once, for comparisons with other runs."""
        final = RunKeys.of(run).final
        pipe = self._client.pipeline(transaction=True)
        # The first ones stay, as the first report does, so that both come from one attempt.
        pipe.hsetnx(final, "cases", pack(cases))
        pipe.pexpire(final, self._settings.keep_ms)
        pipe.execute()

    def cases(self, run: str) -> bytes | None:
        """A run's stored cases; None if there are none."""
        data = self._client.hget(RunKeys.of(run).final, "cases")
        return unpack(data, self._settings.cases_bytes) if data is not None else None

    def _set(self, run: str, name: str, value: bytes) -> None:
        meta = RunKeys.of(run).meta
        pipe = self._client.pipeline(transaction=True)
        pipe.hset(meta, name, value)
        pipe.pexpire(meta, self._settings.keep_ms)
        pipe.execute()
