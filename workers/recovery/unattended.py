"""Sweeps left to the fleet: it makes the calls, and then evaluates the outputs.

When the calls of such a sweep are over, its outputs become the input of an ordinary detached run under the same id,
with their bytes in the ledger. These equal outputs.jsonl, so the report equals that of `evalq watch`. Doing that twice,
or while a command watches the sweep after all, changes nothing.
"""

from __future__ import annotations

import logging
import tempfile
from array import array
from pathlib import Path
from typing import Any

import msgspec
import redis

from evalq.evalcore.compare.counting import causes_in, read_usage
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
    """What a producer leaves with its sweep: the run that evaluates the outputs, and the facts to finalise it."""

    header: Header
    facts: Detached


class UnattendedSweeps:
    """The sweeps of one ledger that are left to the fleet."""

    def __init__(self, calls: SweepLedger, settings: Settings) -> None:
        self._calls = calls
        self._client: Any = calls.client
        self._settings = settings
        self._damaged: set[str] = set()

    def leave(self, run: str, left: UnattendedSweep) -> None:
        """Leave a sweep to the fleet, which evaluates it when its calls are over."""
        # All or nothing: a sweep on the list without these facts is taken off again.
        pipe = self._client.pipeline(transaction=True)
        pipe.hset(_key(run), "left", msgspec.json.encode(left))
        pipe.hdel(_key(run), "tries")  # attempts from before it was resumed do not count
        pipe.pexpire(_key(run), self._settings.keep_ms)
        pipe.hset(SHARED.unattended, run, left.header.code_version)
        pipe.execute()

    def take_back(self, run: str) -> None:
        """Take a sweep off the list, since a producer attends it again."""
        self._client.hdel(SHARED.unattended, run)

    def has(self, run: str) -> bool:
        """Whether a sweep is left to the fleet, even if its facts are damaged."""
        return bool(self._client.hexists(SHARED.unattended, run))

    def find(self, run: str) -> UnattendedSweep | None:
        """The facts left with a sweep; None if it is not left to the fleet. Raises WireError."""
        data = self._client.hget(_key(run), "left") if self.has(run) else None
        try:
            return msgspec.json.decode(data, type=UnattendedSweep) if data else None
        except msgspec.DecodeError as error:
            raise WireError(
                f"sweep {run}: the facts that its producer left in the ledger are damaged: {error}"
            ) from error

    def over(self) -> list[str]:
        """Sweeps of this code version whose calls are over and whose outputs are all in the ledger."""
        return [run for run, code in decode_fields(self._client.hgetall(SHARED.unattended)) if self._is_over(run, code)]

    def _is_over(self, run: str, code: bytes) -> bool:
        try:
            status = self._calls.poll(run)
            if status is None or status.state == "cancelled":
                self.take_back(run)  # expired, lost, or ended for good
                return False
            return code == code_version().encode() and _over(status) and self._has_all_outputs(run, status)
        except (WireError, redis.ResponseError) as error:
            if isinstance(error, redis.ResponseError) and not is_wrong_type(error):
                raise
            # Log it once and go on: one damaged sweep must not stop the others.
            if run not in self._damaged:
                log.warning("sweep %s is skipped: %s", run, explained(error, "the ledger"))
                self._damaged.add(run)
            return False

    def _has_all_outputs(self, run: str, status: SweepStatus) -> bool:
        """Whether the ledger has the outputs of all calls. Only calls whose outputs it has lost are made again."""
        try:
            header = self._calls.header(run)
            whole = status.known if status.state in CALLS_OVER else 0 if header is None else header.total
            if header is None or status.waiting == status.known == whole:
                return status.known > 0
            recorded = {output.call for output in self._calls.waiting(run)}
            self._calls.restore(run, sorted(recorded))
            if status.state == "open":
                self._calls.forget(run, [call for call in range(header.total) if call not in recorded])
        except AlreadyRunning:
            return False  # a command attends it after all
        except WireError:
            return True  # calling again does not help: `evaluate` reports the damage
        return status.state in CALLS_OVER and bool(recorded)

    def evaluate(self, run: str, ledger: RunLedger) -> bool:
        """Begin the run that evaluates a sweep; False if it must not begin here.

        Raises WireError for damaged outputs; commands that watch the sweep show it.
        """
        left = self._begin_attempt(run)
        if left is None:
            self.take_back(run)
            return False
        header, status = left.header, self._calls.poll(run)
        if status is None or not _over(status):
            return False  # it was ended or paused since
        if header.run != run or len(header.inputs) != 1 or header.code_version != code_version():
            raise WireError(f"sweep {run}: the facts that its producer left in the ledger are about another run")
        with tempfile.TemporaryDirectory(prefix="evalq-") as scratch:
            outputs = Path(scratch) / "outputs.jsonl"
            self._write(run, outputs)
            usage, took = read_usage(outputs)
            causes = causes_in(outputs)
            try:
                begun = _begin(header, outputs, ledger)
            except AlreadyRunning:
                # Not an attempt: a killed process may still count as the driver, for longer than all attempts take.
                self._client.hincrby(_key(run), "tries", -1)
                raise
        if not begun:
            return False  # a command that watches the sweep has begun it anew
        # Nobody makes the report before the run is detached. Until then, ending the sweep ends its calls; afterwards,
        # it ends the run. If the calls were ended meanwhile, end the run with them.
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

    def _begin_attempt(self, run: str) -> UnattendedSweep | None:
        """Count an attempt at a sweep; returns its facts, or None without any or after too many attempts."""
        try:
            left = self.find(run)
        except WireError:
            self.take_back(run)  # no attempt would help, and other sweeps wait behind it
            raise
        # Counted first: an evaluation that kills its process must not be tried for ever.
        return left if left is not None and self._client.hincrby(_key(run), "tries", 1) <= REPORT_TRIES else None

    def _write(self, run: str, path: Path) -> None:
        """Write outputs.jsonl: the recorded outputs, by case and repeat."""
        header = self._calls.header(run)
        if header is None:
            raise Incomplete(f"the ledger does not know sweep {run} any more")
        # Eight bytes per call in memory, and the lines in a file: all outputs may not fit in memory.
        offsets = array("q", bytes(8 * header.total))  # the offset of each call's line, plus 1; 0: none
        with tempfile.TemporaryFile(prefix="evalq-") as unsorted, path.open("wb") as out:
            for output in self._calls.waiting(run):
                # The first one stays: a server that lost its set of recorded calls may have a second.
                if output.call < header.total and not offsets[output.call]:
                    offsets[output.call] = unsorted.tell() + 1
                    unsorted.write(output.line() + b"\n")
            for call in header.by_case():
                if offsets[call]:
                    unsorted.seek(offsets[call] - 1)
                    out.write(unsorted.readline())


def _over(status: SweepStatus) -> bool:
    """Whether no call is in flight and none will be made."""
    # It may be "done" already, if a process died while it began the evaluation.
    closed = status.state in CALLS_OVER or (status.state == "open" and not status.left)
    return closed and not (status.busy or status.unsettled)


def _key(run: str) -> str:
    return SweepKeys.of(run).left


def _begin(header: Header, outputs: Path, ledger: RunLedger) -> bool:
    """Put a run of ``outputs`` into the ledger, with their bytes; chunks that are there stay.

    False if the run was removed meanwhile.
    """
    evaluator, key, count = plugins.get(header.evaluator), _open(header, ledger), 0
    with outputs.open("rb") as stream:
        records, name = evaluator.records, header.inputs[0].name
        cutter = Cutter(stream, records.format, name, records.columns, size=header.chunk_size, key=key)
        for span in cutter.spans():
            if ledger.append(header.run, [Chunk.of(count, 0, span)], count) <= count:
                return False
            # No message: the worker that tends the run publishes planned chunks.
            ledger.supply(header.run, count, pack(read_span(str(outputs), span)), publish=False)
            count += 1
    return ledger.append(header.run, [], count, Seal(count, (cutter.sha256,))) == count


def _open(header: Header, ledger: RunLedger) -> str:
    """Open a run; returns the key of its chunks: a new one, unless another process has opened it."""
    key = new_key()
    while True:
        try:
            ledger.open(header, 1, key=key)
            return key
        except OtherKey as other:
            key = other.key
