"""The ledger of live calls, for a sweep's driver: it opens the sweep, offers prompts, polls, and collects outputs.

`evalq.workers.ledger.calls` has the steps of the processes that make the calls.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import Any, Literal

import msgspec

from evalq.evalcore.errors import UsageError
from evalq.evalcore.model.calls import Output, Prompt
from evalq.evalcore.model.canonical import pack
from evalq.workers.ledger.calls import MAX_WIRE_BYTES, CallLedger, unpack_wire
from evalq.workers.ledger.keys import SHARED, SweepKeys, decode_names, reading
from evalq.workers.ledger.scripts import STEP
from evalq.workers.ledger.sweep_model import CollectedOutputs, FolderCounts, SweepHeader, SweepStatus

_PAUSE_POLLS, _PAUSE_SECONDS = 2, 0.5
"""A server that lost calls offers none for so many polls, and at least so long, so that all processes can report."""
_PAGE = 500


class SweepLedger(CallLedger):
    """All that evalq keeps of sweeps in Redis or Valkey, over one client (which returns bytes).

    ``token`` belongs to a process that drives sweeps; its steps raise AlreadyRunning if another process does.
    """

    def open(
        self,
        header: SweepHeader,
        max_calls: int = 0,
        max_cost: float = 0.0,
        unattended_seconds: float = 0.0,
        known: FolderCounts | None = None,
        *,
        before: str = "",
        folder: str = "",
        how: Literal["on", "keep", "anew"] = "on",
        living: Collection[str] = (),
        priority: str = "bulk",
    ) -> str:
        """Begin or resume a sweep as its driver, under these budgets (0: none); returns its state.

        The run folder's counts (``known``) count against the budgets, whatever the server has lost. If no producer
        polls for ``unattended_seconds`` (0: for ever), the ledger hands out no more calls. ``before`` is the token of
        the folder's last driver, which is known to be dead. A sweep that is done stays so unless ``how`` is "anew"; a
        cancelled one always does; with "keep", a paused one does, too. ``living`` are processes that this driver saw on
        another server, or on this one when it had more data: they must report before the ledger hands out calls.
        Raises AlreadyRunning if another process drives the sweep, UsageError if another sweep has this id.
        """
        known = known or FolderCounts()
        budgets = (max_calls, max_cost, int(unattended_seconds * 1000))
        # Sorted, since the script compares headers byte for byte.
        facts = (msgspec.json.encode(header, order="sorted"), header.cases, header.total)
        driver = (before, int(self.settings.driver_seconds * 1000), how, folder)
        pause = round(1000 * max(_PAUSE_SECONDS, _PAUSE_POLLS * self.settings.poll_seconds))
        answers = (known.priced, known.unpriced, known.answered)
        sums = (known.attempts, known.paid, repr(known.cost), known.lost, known.free, *answers)
        awaited, share = " ".join(living), (priority, self.settings.team)
        under_way = [text for item in known.under_way.items() for text in item]
        processes = [len(known.under_way), *under_way, *(text for item in known.tallies.items() for text in item)]
        state, value = self.step(
            "open", header.run, header.run, *facts, *budgets, *driver, pause, *sums, awaited, *share, *processes
        )
        if state == b"differs":
            differs = header.differs(SweepHeader.of(header.run, value)) or "its form"
            raise UsageError(
                f"the ledger has another sweep under the id {header.run}: {differs}; choose another --once key"
            )
        self.keep_generation(header.run, value)
        return str(state.decode())

    def offer(self, run: str, prompts: Sequence[Prompt], first: int = 0) -> int:
        """Store the prompts of cases from ``first`` on; returns how many the ledger has, -1 for an unknown sweep."""
        flat: list[Any] = []
        for number, prompt in enumerate(prompts, start=first):
            flat += [number, pack(msgspec.json.encode(prompt))]
        return int(self.step("offer", run, *flat))

    def restore(self, run: str, calls: Sequence[int]) -> None:
        """Count calls whose outputs the run folder has as recorded."""
        self.in_steps("restore", run, ((call,) for call in calls))

    def forget(self, run: str, calls: Sequence[int]) -> None:
        """Let calls that the ledger counts as recorded be made again."""
        self.in_steps("forget", run, ((call,) for call in calls))

    def halt(self, run: str, cases: Iterable[int], *, go: bool = False) -> None:
        """Make no more calls of these cases; with ``go``, make them again."""
        self.step("halt", run, "go" if go else "halt", *cases)

    def poll(self, run: str, *, attending: bool = False, free: int = 0) -> SweepStatus | None:
        """A sweep's status; None if the ledger does not know the sweep.

        The driver sets ``attending``, so that it keeps the sweep; ``free`` is as in `FolderCounts`. Raises WireError.
        """
        with reading(run, SHARED.sweep):
            reply = self.step("poll", run, run, int(attending), self.generation(run), free)
            return SweepStatus.of(*reply) if reply[0] else None

    def collect(self, run: str, most: int) -> CollectedOutputs:
        """Recorded outputs that `trim` has not deleted, the oldest first; fewer than ``most`` if they are long.

        Raises WireError.
        """
        number, *packed = self.step("collect", run, most)
        outputs, size = [], 0
        for data in packed:
            wire = unpack_wire(data)
            outputs.append(Output.from_wire(wire))
            size += len(wire)
            if size > MAX_WIRE_BYTES:  # long answers come in smaller steps
                break
        if not outputs:
            return CollectedOutputs()
        # For `trim`: a server restored to an older state may have other outputs under these numbers by then.
        last = hashlib.sha1(packed[len(outputs) - 1], usedforsecurity=False).hexdigest()
        return CollectedOutputs(outputs, number + len(outputs), last)

    def trim(self, run: str, collected: CollectedOutputs) -> None:
        """Delete outputs that are safe in the run folder; those with other numbers by now stay."""
        if collected.outputs:
            self.step("trim", run, collected.upto, collected.last)

    def waiting(self, run: str) -> Iterator[Output]:
        """All outputs in the ledger; they stay there. Raises WireError."""
        first = 0
        while packed := self.client.lrange(SweepKeys.of(run).outbox, first, first + _PAGE - 1):
            for data in packed:
                yield Output.from_wire(unpack_wire(data))
            first += len(packed)

    def has(self, run: str, calls: Sequence[int]) -> set[int]:
        """Those of ``calls`` that the ledger counts as recorded."""
        recorded: set[int] = set()
        for start in range(0, len(calls), STEP):
            some = calls[start : start + STEP]
            # In slices and without a transaction: a long reply would block the server for all other clients.
            pipe = self.client.pipeline(transaction=False)
            for call in some:
                pipe.sismember(SweepKeys.of(run).recorded, call)
            recorded |= {call for call, there in zip(some, pipe.execute(), strict=True) if there}
        return recorded

    def names(self) -> list[str]:
        """The sweeps that have not expired, as far as they are listed; those of judges have a dot in their names."""
        pipe = self.client.pipeline(transaction=False)
        pipe.hkeys(SHARED.sweeps)
        pipe.zrange(SHARED.closed, 0, -1)
        return [name for listed in pipe.execute() for name in decode_names(listed)]

    def delete(self, run: str) -> None:
        """Delete a sweep."""
        self.client.delete(*SweepKeys.of(run))
        self.client.hdel(SHARED.sweeps, run)
        self.client.zrem(SHARED.closed, run)
