"""The ledger of live calls, as a sweep's driver sees it: the sweep is opened, offered, looked at, and collected.

What the calls of a sweep are, and who makes them, is in `evalq.workers.ledger.calls`.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import Any, Literal

import msgspec

from evalq.evalcore.errors import UsageError
from evalq.evalcore.model.calls import Output, Prompt
from evalq.evalcore.model.canonical import pack
from evalq.workers.ledger.calls import MAX_WIRE_BYTES, CallLedger, unpacked
from evalq.workers.ledger.keys import SHARED, SweepKeys, as_written
from evalq.workers.ledger.scripts import STEP
from evalq.workers.ledger.sweep_model import CollectedOutputs, FolderCounts, SweepHeader, SweepStatus

_PAUSE_LOOKS, _PAUSE_SECONDS = 2, 0.5
"""For so many looks, and no less long, a server that lost calls offers none, so that all may tell what they have."""
_PAGE = 500


class SweepLedger(CallLedger):
    """All that evalq keeps of sweeps in Redis or Valkey, over one client (which returns bytes).

    ``token`` is that of a process that drives sweeps; where another one does, its steps raise AlreadyRunning.
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
    ) -> str:
        """Begin a sweep or resume it, under these budgets (0: none), as its driver; returns the state it is in.

        What the run folder has (``known``) counts against the budgets, whatever the server has lost. Without a
        producer's `look` for ``unattended_seconds`` (0: for ever) no more calls are handed out.
        ``before`` is the token of the folder's last driver, which is known to be dead. What is done stays so unless it
        goes on "anew", what was cancelled always; "keep" leaves what was paused, too. ``living`` are processes that
        this driver saw on a server that is newer, or another: they tell what they have before any call is
        handed out.
        Raises AlreadyRunning where another process drives it, UsageError where the ledger has another sweep of this id.
        """
        known = known or FolderCounts()
        budgets = (max_calls, max_cost, int(unattended_seconds * 1000))
        # Sorted, since the script compares headers byte for byte.
        facts = (msgspec.json.encode(header, order="sorted"), header.cases, header.total)
        driver = (before, int(self.settings.driver_seconds * 1000), how, folder)
        pause = round(1000 * max(_PAUSE_SECONDS, _PAUSE_LOOKS * self.settings.poll_seconds))
        sums = (known.attempts, known.paid, repr(known.cost), known.lost, known.free, known.told, known.untold)
        awaited = " ".join(living)
        under_way = [text for item in known.under_way.items() for text in item]
        told = [len(known.under_way), *under_way, *(text for item in known.tallies.items() for text in item)]
        state, *other = self.step(
            "open", header.run, header.run, *facts, *budgets, *driver, pause, *sums, awaited, *told
        )
        if state == b"differs":
            differs = header.differs(SweepHeader.of(header.run, other[0])) or "its form"
            raise UsageError(f"sweep {header.run} is another one in the ledger: {differs}; choose another --once key")
        self.keep_generation(header.run, other[0])
        return str(state.decode())

    def offer(self, run: str, prompts: Sequence[Prompt], first: int = 0) -> int:
        """Give the prompts of cases ``first`` on; returns how many the ledger has then, -1 for an unknown sweep."""
        flat: list[Any] = []
        for number, prompt in enumerate(prompts, start=first):
            flat += [number, pack(msgspec.json.encode(prompt))]
        return int(self.step("offer", run, *flat))

    def restore(self, run: str, calls: Sequence[int]) -> None:
        """Count calls as recorded whose outputs the run folder has."""
        self.in_steps("restore", run, ((call,) for call in calls))

    def forget(self, run: str, calls: Sequence[int]) -> None:
        """Have calls made (again) that the ledger counts as recorded."""
        self.in_steps("forget", run, ((call,) for call in calls))

    def halt(self, run: str, cases: Iterable[int], *, go: bool = False) -> None:
        """Make no more calls of these cases; with ``go``, make them again."""
        self.step("halt", run, "go" if go else "halt", *cases)

    def poll(self, run: str, *, attending: bool = False, free: int = 0) -> SweepStatus | None:
        """How a sweep stands; None for one the ledger does not know.

        Its driver looks ``attending``, and stays that; ``free`` is as in `FolderCounts`. Raises WireError.
        """
        with as_written(run, SHARED.sweep):
            found = self.step("poll", run, run, int(attending), self.generation(run), free)
            return SweepStatus.of(*found) if found[0] else None

    def collect(self, run: str, most: int) -> CollectedOutputs:
        """Recorded outputs that `trim` has not taken away, the oldest first: fewer than ``most`` where they are long.

        Raises WireError for what evalq never wrote.
        """
        number, *packed = self.step("collect", run, most)
        outputs, size = [], 0
        for data in packed:
            wire = unpacked(data)
            outputs.append(Output.from_wire(wire))
            size += len(wire)
            if size > MAX_WIRE_BYTES:  # long answers come in smaller steps
                break
        if not outputs:
            return CollectedOutputs()
        # For `trim`: a server that came back older may have other outputs under these numbers by then.
        last = hashlib.sha1(packed[len(outputs) - 1], usedforsecurity=False).hexdigest()
        return CollectedOutputs(outputs, number + len(outputs), last)

    def trim(self, run: str, collected: CollectedOutputs) -> None:
        """Forget outputs that are safe in the run folder; those that have other numbers by now stay."""
        if collected.outputs:
            self.step("trim", run, collected.upto, collected.last)

    def waiting(self, run: str) -> Iterator[Output]:
        """All outputs in the ledger, which stay there. Raises WireError."""
        first = 0
        while packed := self.client.lrange(SweepKeys.of(run).outbox, first, first + _PAGE - 1):
            for data in packed:
                yield Output.from_wire(unpacked(data))
            first += len(packed)

    def has(self, run: str, calls: Sequence[int]) -> set[int]:
        """Those of ``calls`` that the ledger counts as recorded."""
        found: set[int] = set()
        for start in range(0, len(calls), STEP):
            some = calls[start : start + STEP]
            # In slices and in no transaction: a long answer would keep the server from everybody else.
            pipe = self.client.pipeline(transaction=False)
            for call in some:
                pipe.sismember(SweepKeys.of(run).recorded, call)
            found |= {call for call, there in zip(some, pipe.execute(), strict=True) if there}
        return found

    def delete(self, run: str) -> None:
        """Remove all that is known of a sweep."""
        self.client.delete(*SweepKeys.of(run))
        self.client.hdel(SHARED.sweeps, run)
        self.client.zrem(SHARED.closed, run)
