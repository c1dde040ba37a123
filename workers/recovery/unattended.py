"""Sweeps that nobody attends: left to the fleet, which calls, and then evaluates what it recorded.

When the calls of such a sweep are over, its outputs become the input of an ordinary detached run under the same id,
with their bytes in the ledger: in the order and with the bytes that outputs.jsonl has, so that its report is the one
that `evalq watch` would make. Doing that twice, or while somebody watches after all, changes nothing.
"""

from __future__ import annotations

import logging
import tempfile
from array import array
from pathlib import Path
from typing import Any

import msgspec
import redis

from evalq.evalcore.compare.counting import read_usage
from evalq.evalcore.compare.single_cases import causes_in
from evalq.evalcore.contract import plugins
from evalq.evalcore.errors import AlreadyRunning, Incomplete, WireError
from evalq.evalcore.model.canonical import pack
from evalq.evalcore.model.life import CALLS_OVER
from evalq.evalcore.model.manifest import Chunk, Header, Seal, read_span
from evalq.evalcore.records.cut import Cutter
from evalq.evalcore.records.digests import new_key
from evalq.evalcore.version import code_version
from evalq.workers.ledger.detached import Detached, Reports
from evalq.workers.ledger.driver_steps import OtherKey
from evalq.workers.ledger.keys import SHARED, SweepKeys, decode_fields, is_wrong_type
from evalq.workers.ledger.progress import REPORT_TRIES
from evalq.workers.ledger.runs import RunLedger
from evalq.workers.ledger.sweep_model import SweepStatus
from evalq.workers.ledger.sweeps import SweepLedger
from evalq.workers.servers.errors import explained
from evalq.workers.settings import Settings

log = logging.getLogger("evalq.worker")


class UnattendedSweep(msgspec.Struct, frozen=True):
    """What a producer leaves with its sweep: the run that evaluates the outputs, and what finalising that one needs."""

    header: Header
    facts: Detached


class UnattendedSweeps:
    """The sweeps of one ledger that were left to the fleet."""

    def __init__(self, calls: SweepLedger, settings: Settings) -> None:
        self._calls = calls
        self._client: Any = calls.client
        self._settings = settings
        self._damaged: set[str] = set()

    def leave(self, run: str, left: UnattendedSweep) -> None:
        """Have the fleet evaluate a sweep when its calls are over."""
        # All or nothing: a sweep on the list that has nothing left with it is taken off as nobody's.
        pipe = self._client.pipeline(transaction=True)
        pipe.hset(_key(run), "left", msgspec.json.encode(left))
        pipe.hdel(_key(run), "tries")  # those of before it was resumed say nothing of this time
        pipe.pexpire(_key(run), self._settings.keep_ms)
        pipe.hset(SHARED.unattended, run, left.header.code_version)
        pipe.execute()

    def take_back(self, run: str) -> None:
        """A producer attends the sweep again."""
        self._client.hdel(SHARED.unattended, run)

    def has(self, run: str) -> bool:
        """Whether a sweep is still left, whatever has become of what was left with it."""
        return bool(self._client.hexists(SHARED.unattended, run))

    def find(self, run: str) -> UnattendedSweep | None:
        """What was left with a sweep that is still left. Raises WireError."""
        data = self._client.hget(_key(run), "left") if self.has(run) else None
        try:
            return msgspec.json.decode(data, type=UnattendedSweep) if data else None
        except msgspec.DecodeError as error:
            raise WireError(
                f"sweep {run}: the facts that its producer left in the ledger are damaged: {error}"
            ) from error

    def over(self) -> list[str]:
        """Those of this code whose calls are over, and whose outputs all lie in the ledger."""
        return [run for run, code in decode_fields(self._client.hgetall(SHARED.unattended)) if self._is_over(run, code)]

    def _is_over(self, run: str, code: bytes) -> bool:
        try:
            look = self._calls.poll(run)
            if look is None or look.state == "cancelled":
                self.take_back(run)  # expired, lost, or ended for good
                return False
            return code == code_version().encode() and _over(look) and self._all_there(run, look)
        except (WireError, redis.ResponseError) as error:
            if isinstance(error, redis.ResponseError) and not is_wrong_type(error):
                raise
            # Said once, and no reason to raise: other sweeps and runs are tended all the same.
            if run not in self._damaged:
                log.warning("sweep %s is left alone: %s", run, explained(error, "the ledger"))
                self._damaged.add(run)
            return False

    def _all_there(self, run: str, look: SweepStatus) -> bool:
        """Whether the outputs of all calls lie in the ledger. What it has lost is called again, and only that."""
        try:
            header = self._calls.header(run)
            whole = look.known if look.state in CALLS_OVER else 0 if header is None else header.total
            if header is None or look.waiting == look.known == whole:
                return look.known > 0
            there = {output.call for output in self._calls.waiting(run)}
            self._calls.restore(run, sorted(there))
            if look.state == "open":
                self._calls.forget(run, [call for call in range(header.total) if call not in there])
        except AlreadyRunning:
            return False  # somebody attends it after all
        except WireError:
            return True  # no call made again helps: `evaluate` says what is wrong, and leaves it to whoever watches
        return look.state in CALLS_OVER and bool(there)

    def evaluate(self, run: str, ledger: RunLedger) -> bool:
        """Begin the run that evaluates a sweep; False for one that is not to be begun here.

        Raises WireError for outputs that evalq did not write: whoever watches the sweep is told.
        """
        left = self._tried(run)
        if left is None:
            self.take_back(run)
            return False
        header, look = left.header, self._calls.poll(run)
        if look is None or not _over(look):
            return False  # somebody ended or paused it since its calls were seen to be over
        if header.run != run or len(header.inputs) != 1 or header.code_version != code_version():
            raise WireError(f"sweep {run}: what was left with it is about another run")
        with tempfile.TemporaryDirectory(prefix="evalq-") as scratch:
            outputs = Path(scratch) / "outputs.jsonl"
            self._write(run, outputs)
            usage, took = read_usage(outputs)
            causes = causes_in(outputs)
            try:
                begun = _begin(header, outputs, ledger)
            except AlreadyRunning:
                # No try: one that was killed at it may still count as driving, for longer than all tries would take.
                self._client.hincrby(_key(run), "tries", -1)
                raise
        if not begun:
            return False  # whoever watches the sweep has begun it anew
        # Nobody makes the report before it is detached: by then either the calls are done, and the run itself is what
        # can be ended, or somebody ended the calls meanwhile, and the run with them.
        state = self._calls.close(run, "done")
        if state != "done":
            ledger.close(run, "paused" if state == "paused" else "cancelled", f"with its calls, which are {state}")
            ledger.release(run)
            return False
        Reports(ledger, self._settings).detach(
            run, msgspec.structs.replace(left.facts, usage=usage, took=took, causes=causes)
        )
        ledger.release(run)
        self.take_back(run)
        return True

    def _tried(self, run: str) -> UnattendedSweep | None:
        """What was left with a sweep, one try at it counted; None where there is nothing, or it was tried enough."""
        try:
            left = self.find(run)
        except WireError:
            self.take_back(run)  # no try would help, and others wait behind it
            raise
        # Counted before anything is done: an evaluation that takes its process down is not begun for ever.
        return left if left is not None and self._client.hincrby(_key(run), "tries", 1) <= REPORT_TRIES else None

    def _write(self, run: str, path: Path) -> None:
        """outputs.jsonl: what was recorded, by case and repeat."""
        header = self._calls.header(run)
        if header is None:
            raise Incomplete(f"the ledger knows no sweep {run} any more")
        # Eight bytes a call here and the lines in a file: outputs may be more than the memory holds.
        places = array("q", bytes(8 * header.total))  # where each call's line begins, plus 1; 0: none
        with tempfile.TemporaryFile(prefix="evalq-") as unsorted, path.open("wb") as out:
            for output in self._calls.waiting(run):
                # The first one stays: a server that lost its set of recorded calls may have taken a second.
                if output.call < header.total and not places[output.call]:
                    places[output.call] = unsorted.tell() + 1
                    unsorted.write(output.line() + b"\n")
            for call in header.by_case():
                if places[call]:
                    unsorted.seek(places[call] - 1)
                    out.write(unsorted.readline())


def _over(look: SweepStatus) -> bool:
    """Whether no call is in flight and none will be made; "done" where whoever began to evaluate it died at that."""
    closed = look.state in CALLS_OVER or (look.state == "open" and not look.left)
    return closed and not (look.busy or look.unsettled)


def _key(run: str) -> str:
    return SweepKeys.of(run).left


def _begin(header: Header, outputs: Path, ledger: RunLedger) -> bool:
    """Put a run of ``outputs`` into the ledger, with their bytes; what is there already is left alone.

    False where the run was removed meanwhile.
    """
    evaluator, key, count = plugins.get(header.evaluator), _opened(header, ledger), 0
    with outputs.open("rb") as stream:
        records, name = evaluator.records, header.inputs[0].name
        cutter = Cutter(stream, records.format, name, records.columns, size=header.chunk_size, key=key)
        for span in cutter.spans():
            if ledger.append(header.run, [Chunk.of(count, 0, span)], count) <= count:
                return False
            # No message: what is planned is published by whoever tends the run.
            ledger.supply(header.run, count, pack(read_span(str(outputs), span)), publish=False)
            count += 1
    return ledger.append(header.run, [], count, Seal(count, (cutter.sha256,))) == count


def _opened(header: Header, ledger: RunLedger) -> str:
    """Open a run; returns the key of its chunks: that of whoever opened it before, or a new one."""
    key = new_key()
    while True:
        try:
            ledger.open(header, 1, key=key)
            return key
        except OtherKey as other:
            key = other.key
