"""Driving a run in the ledger: one process at a time plans it, collects its parts and ends it.

The run stores its driver's token. Each step of the driver carries the token and is a sign of life. If the driver is
silent for ``driver_seconds``, another process can take the run over. Before that, steps of other processes change
nothing and raise AlreadyRunning.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from evalq.evalcore.errors import ConfigError
from evalq.evalcore.model.manifest import Chunk, Header, Seal, differences, from_wire, same_run, to_wire
from evalq.evalcore.views.markdown import plural
from evalq.workers.ledger.scripts import RUNS, STEP, Scripts

OTHER = "other"
"""The name under which suites beyond ``max_suites`` are counted."""


class OtherKey(Exception):
    """The ledger has the run under another ``key``."""

    def __init__(self, key: str) -> None:
        super().__init__("a run is in the ledger under another key")
        self.key = key


class DriverSteps(Scripts):
    """The steps of a run's driver. Without a token they work only on a run that nobody drives."""

    family = RUNS

    def open(
        self,
        header: Header,
        epoch: int,
        had: int = 0,
        gone: str = "",
        *,
        fresh: bool = False,
        key: str,
        stays: bool = False,
    ) -> int:
        """Write a run's header and the ``key`` of its chunks, and become its driver. Returns the epoch in force.

        Each driver has its own epoch: at least ``epoch``, and higher than any before, which reopens the run. Without a
        token, a lower epoch changes nothing.

        ``had`` is this driver's previous epoch of the run: a server that knows only a lower one was restored to an
        older state. ``gone`` is the token of a driver that is known to have ended. ``fresh``: this driver has nothing
        of the run, and would compute all of a finished one again. ``stays``: this driver needs its own plan, and it
        replaces a plan begun by another folder. Raises ConfigError if another run has this id, AlreadyRunning while
        another process drives the run, Finished if the run is ``fresh`` here and its report is there, and OtherKey if
        another folder has begun the run.
        """
        wire, counted = to_wire(header), (header.evaluator, header.suite, self.settings.max_suites, OTHER)
        silence = int(self.settings.driver_seconds * 1000)
        facts = (header.code_version, header.queue, silence, had, gone, int(fresh), key, int(stays))
        while True:
            status, value = self.step("open", header.run, header.run, wire, epoch, *counted, *facts)
            if status == b"open":
                return int(value)
            if status == b"keyed":
                raise OtherKey(value.decode("ascii", "replace"))
            stored = from_wire(value, Header)
            # The script never says that equal bytes differ: fail here, since trying again would loop for ever.
            if value == wire or not same_run(stored, header):
                raise _another_run(header.run, differences(stored, header))
            wire = value  # the same run, opened from another folder: the stored header stays

    def append(self, run: str, chunks: Sequence[Chunk], first: int, seal: Seal | None = None) -> int:
        """Add planned chunks from number ``first`` on (and the seal); chunks that the ledger has stay as they are.

        Returns how many the ledger has then (fewer than ``first`` if it lost some), -1 for an unknown run.
        Raises ConfigError if the ledger has another plan of the run, AlreadyRunning.
        """
        have = 0
        # At least one step, even without chunks: the seal may come alone.
        for start in range(0, max(1, len(chunks)), STEP):
            some = chunks[start : start + STEP]
            # With the last slice only: the script accepts a seal only behind the whole plan.
            end = to_wire(seal) if seal and start + STEP >= len(chunks) else b""
            reply = self.step("append", run, first + start, end, *map(to_wire, some))
            if isinstance(reply, list):
                raise _another_run(run, _plan_difference(int(reply[1]), reply[2], first + start, some, seal))
            have = int(reply)
            if have < first + start + len(some):
                break  # unknown, or a gap: the rest would be behind it
        return have

    def restore(self, run: str, held: Iterable[tuple[int, str, int]]) -> int:
        """Count the run folder's chunks (seq, digest, records) as committed; returns how many were new."""
        return sum(max(0, int(added)) for added in self.in_steps("restore", run, held))

    def supply(self, run: str, seq: int, blob: bytes, *, publish: bool = True) -> bool:
        """Store a chunk's packed bytes; returns whether to send its message now.

        That is so with ``publish`` or if a worker refused the chunk, unless it was committed meanwhile.
        """
        return bool(self.step("supply", run, seq, blob, int(publish)))

    def trim(self, run: str, seqs: Sequence[int]) -> None:
        """Delete parts that are safe in the driver's folder; their digests stay."""
        if seqs:
            self.step("trim", run, *seqs)

    def reopen(self, run: str, chunks: Iterable[tuple[int, int, int]]) -> bool:
        """Open a finished run again and drop the answers of ``chunks`` (seq, records, dead records).

        False if the ledger does not know the run.
        """
        flat = [value for chunk in chunks for value in chunk]
        return int(self.step("reopen", run, *flat)) == 0


def _another_run(run: str, difference: str) -> ConfigError:
    return ConfigError(
        f"the ledger has another run under the id {run}: {difference}. evalq never mixes the answers of two runs: "
        "give this run its own --once key (or folder), or run it with the other run's settings"
    )


def _plan_difference(number: int, stored: bytes, first: int, sent: Sequence[Chunk], seal: Seal | None) -> str:
    if number >= 0:
        return f"chunk {number}: {differences(from_wire(stored, Chunk), sent[number - first])}"
    there = from_wire(stored, Seal)
    if seal is None:
        return f"its plan ends after {plural(there.chunks, 'chunk')} there, and goes on to {first + len(sent)} here"
    return f"the end of its plan: {differences(there, seal)}"
