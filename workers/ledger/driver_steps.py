"""Driving a run in the ledger: one process at a time plans it, collects its parts and ends it.

Who drives is noted in the run by a token; each of its steps carries it and is a sign of its life. Whoever establishes
the run after it was silent for ``driver_seconds`` takes it over; anybody else's step changes nothing and raises
AlreadyRunning.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from evalq.evalcore.errors import ConfigError
from evalq.evalcore.model.manifest import Chunk, Header, Seal, differences, from_wire, same_run, to_wire
from evalq.workers.ledger.scripts import RUNS, STEP, Scripts

OTHER = "other"
"""What suites beyond ``max_suites`` are counted as."""


class OtherKey(Exception):
    """The run is in the ledger under another ``key`` than the one that it was to be opened with."""

    def __init__(self, key: str) -> None:
        super().__init__("a run is in the ledger under another key")
        self.key = key


class DriverSteps(Scripts):
    """The steps of a run's driver. Without a token they are for a run that nobody drives."""

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
        """Write a run's header and the ``key`` of its chunks, and become its driver, in an epoch of its own: at least
        ``epoch``, and higher than any before, which reopens the run. Returns the epoch in force (without a token a
        lower one changes nothing).

        ``had`` is the epoch in which this driver had the run before: a server that knows a lower one came back older
        than it was. ``gone`` is the token of a driver that is known to be no more. ``fresh``: this driver has nothing
        of the run, and would compute all of a finished one again. ``stays``: this driver cannot do without its plan,
        and what another folder has begun, which has it all, goes. Raises ConfigError for another run under this id,
        AlreadyRunning while somebody else drives it, Finished for a ``fresh`` one where its report is there, and
        OtherKey for one that another folder has begun.
        """
        wire, counted = to_wire(header), (header.evaluator, header.suite, self.settings.max_suites, OTHER)
        silence = int(self.settings.driver_seconds * 1000)
        facts = (header.code_version, header.queue, silence, had, gone, int(fresh), key, int(stays))
        while True:
            status, found = self.step("open", header.run, header.run, wire, epoch, *counted, *facts)
            if status == b"open":
                return int(found)
            if status == b"keyed":
                raise OtherKey(found.decode("ascii", "replace"))
            there = from_wire(found, Header)
            # The script never says that equal bytes differ: fail here, since trying again would loop for ever.
            if found == wire or not same_run(there, header):
                raise _another(header.run, differences(there, header))
            wire = found  # the same run, seen from another folder: what is there stays

    def append(self, run: str, chunks: Sequence[Chunk], first: int, seal: Seal | None = None) -> int:
        """Add planned chunks from number ``first`` on (and the plan's end); those it has already are left alone.

        Returns how many the ledger has then (fewer than ``first`` where it lost some), -1 for an unknown run.
        Raises ConfigError where the plan that is there is another, AlreadyRunning.
        """
        have = 0
        # Once even without chunks: the seal may come alone.
        for start in range(0, max(1, len(chunks)), STEP):
            some = chunks[start : start + STEP]
            # With the last slice only: the script accepts a seal only behind the whole plan.
            end = to_wire(seal) if seal and start + STEP >= len(chunks) else b""
            found = self.step("append", run, first + start, end, *map(to_wire, some))
            if isinstance(found, list):
                raise _another(run, _plans_differ(int(found[1]), found[2], first + start, some, seal))
            have = int(found)
            if have < first + start + len(some):
                break  # unknown, or a gap: the rest would be behind it
        return have

    def restore(self, run: str, held: Iterable[tuple[int, str, int]]) -> int:
        """Count chunks (seq, digest, records) held by the run folder as committed; returns how many were new."""
        return sum(max(0, int(added)) for added in self.in_steps("restore", run, held))

    def supply(self, run: str, seq: int, blob: bytes, *, publish: bool = True) -> bool:
        """Give a chunk's packed bytes; returns whether its message is to be sent now.

        It is where ``publish`` asks for it or the chunk was refused, unless it was committed meanwhile.
        """
        return bool(self.step("supply", run, seq, blob, int(publish)))

    def trim(self, run: str, seqs: Sequence[int]) -> None:
        """Forget parts that are safe in the driver's folder; their digests stay."""
        if seqs:
            self.step("trim", run, *seqs)

    def reopen(self, run: str, chunks: Iterable[tuple[int, int, int]]) -> bool:
        """Open a finished run again, without the answers of ``chunks`` (seq, records, dead ones of them).

        False for a run the ledger does not know.
        """
        flat = [value for chunk in chunks for value in chunk]
        return int(self.step("reopen", run, *flat)) == 0


def _another(run: str, what: str) -> ConfigError:
    return ConfigError(
        f"run {run} is in the ledger as another run than the one here: {what}. Answers of two runs are never mixed: "
        "give this one a --once key (or folder) of its own, or run it as the other was"
    )


def _plans_differ(number: int, found: bytes, first: int, sent: Sequence[Chunk], seal: Seal | None) -> str:
    if number >= 0:
        return f"chunk {number}: {differences(from_wire(found, Chunk), sent[number - first])}"
    there = from_wire(found, Seal)
    if seal is None:
        return f"its plan ends after {there.chunks} chunks there, and goes on to {first + len(sent)} here"
    return f"the end of its plan: {differences(there, seal)}"
