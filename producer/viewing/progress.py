"""How a run stands that may still go: by what its folder holds so far, and by the ledger where that is named."""

from __future__ import annotations

import contextlib
import os
import threading
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from evalq.evalcore.errors import EvalqError
from evalq.evalcore.files import open_input
from evalq.evalcore.model.life import DRIVEN, MEANING, next_step
from evalq.producer.folder.files import CALLS, FURTHER, HEAD, JOURNAL, MANIFEST, RECORDS
from evalq.producer.folder.journal import count_answers
from evalq.producer.invocation.finding import left_behind
from evalq.producer.sweep.head import read_head
from evalq.producer.viewing.catalogue import KnownRun
from evalq.producer.viewing.ledger import Ledger

if TYPE_CHECKING:
    from evalq.workers.ledger.progress import RunStatus
    from evalq.workers.ledger.sweep_model import SweepHeader, SweepStatus

__all__ = ["Standing", "Standings"]

_SEAL, _ANSWER = b'\n{"seal":', b'\n{"call"'
"""What begins a line of a manifest, and one of a call log that is an answer: others tell of attempts and of givers."""
_BLOCK = 1 << 20
_FILES = 256

Facts = tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class Standing:
    """How a run stands: ``share`` of its work is done, where that is known, and ``going`` says that somebody is at it.

    ``meaning`` says what its state means, and ``then`` what its user can do next, where nobody is.
    """

    state: str
    going: bool = False
    share: float | None = None
    facts: Facts = ()
    meaning: str = ""
    then: str = ""

    @property
    def line(self) -> str:
        """The facts in few words."""
        return ", ".join(f"{name.lower()} {value}" for name, value in self.facts[:2])


@dataclass
class _Tail:
    """What was counted of a file that grows: lines up to ``end``, and those that are to be told apart."""

    inode: int
    end: int = 0
    lines: int = 0
    marked: dict[bytes, int] = field(default_factory=dict)
    last: bytes = b"\n"


class Standings:
    """The standings of runs; of files that grow only what is new is read. For many threads at a time."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self._tails: OrderedDict[Path, _Tail] = OrderedDict()
        self._counting = threading.Lock()

    def of(self, known: KnownRun) -> Standing:
        """How a run stands now; of a folder that is gone, that it is."""
        if known.folder is None:
            return self._away(known)
        try:
            info = known.folder.info()
            alone = left_behind(known.folder, info)
            going = info.state in DRIVEN | {"detached"} and not alone
            standing = Standing(
                info.state,
                going,
                meaning=MEANING[info.state].partition(";")[0] if going else MEANING[info.state],
                then="" if going else alone or known.folder.next_step(info.state),
            )
        except (EvalqError, OSError) as error:
            return Standing("gone", then=str(error))
        if info.state == "done":
            return standing
        share, facts = self._in_ledger(info.run)
        if info.state == "detached" and not self._open(info.run):
            standing = replace(standing, going=False, then=known.folder.next_step(info.state))
        if not facts:
            share, facts = self._in_folder(known.folder.path)
        return replace(standing, share=share, facts=facts)

    def _away(self, known: KnownRun) -> Standing:
        facts = self._ledger.facts(known.run)
        if facts is None:
            return Standing("gone", then=self._ledger.trouble or "the ledger does not know this run any more")
        share, shown = self._in_ledger(known.run)
        state = facts[3]
        then = next_step(state, known.run) if state in MEANING and state != "open" else ""  # type: ignore[arg-type]  # one of its keys
        return Standing(state, state == "open", share, shown, "in the ledger only; its folder is elsewhere", then)

    def _open(self, run: str) -> bool:
        look, calls = self._ledger.look(run), self._ledger.sweep(run)
        return (look is not None and look.progress.state == "open") or (calls is not None and calls[1].state == "open")

    def _in_ledger(self, run: str) -> tuple[float | None, Facts]:
        look = self._ledger.look(run)
        if look is not None:
            return _of_chunks(look)
        return _of_calls(self._ledger.sweep(run), self._ledger.about(run))

    def _in_folder(self, path: Path) -> tuple[float | None, Facts]:
        """By the files that its driver adds to."""
        with self._counting:
            records = self._counted(path / (RECORDS + ".partial")).lines
            plan = self._counted(path / MANIFEST, _SEAL)
            answers = self._counted(path / CALLS, _ANSWER).marked.get(_ANSWER, 0)
            answered = self._journal(path / JOURNAL)
            recorded, total = self._about(path / FURTHER)
            while len(self._tails) > _FILES:
                self._tails.popitem(last=False)
        sealed = plan.marked.get(_SEAL, 0)
        chunks = max(0, plan.lines - 1 - sealed)
        facts = [("Records", f"{records:,}")] if records else []
        if chunks:
            facts.append(("Chunks", f"{answered:,} of {chunks:,}" + ("" if sealed else " so far")))
        else:
            facts += [("Answers recorded", f"{answers:,}")] if answers else []
            facts += [("About the outputs", f"{recorded:,} of {total:,}")] if total else []
        return (answered / chunks if sealed and chunks else None), tuple(facts)

    def _about(self, path: Path) -> tuple[int, int]:
        """Calls about outputs that are recorded, and all of them."""
        recorded = total = 0
        for head in sorted(path.glob(f"[0-9]*/{HEAD}")):
            with contextlib.suppress(EvalqError):  # it may go at any moment
                total += read_head(head.parent, HEAD).header.total
                recorded += self._counted(head.with_name(CALLS), _ANSWER).marked.get(_ANSWER, 0)
        return recorded, total

    def _counted(self, path: Path, mark: bytes = b"") -> _Tail:
        """The lines of a file, and those that begin with ``mark``; one that is gone has none."""
        try:
            with open_input(path) as stream:
                tail = self._tail(path, os.fstat(stream.fileno()))
                stream.seek(tail.end)
                while block := stream.read(_BLOCK):
                    tail.lines += block.count(b"\n")
                    if mark:
                        # What begins a line may lie across two blocks: the end of the last one is looked at again.
                        tail.marked[mark] = tail.marked.get(mark, 0) + (tail.last + block).count(mark)
                        tail.last = (tail.last + block)[-len(mark) + 1 :]
                    tail.end += len(block)
                return tail
        except OSError:
            return _Tail(0)

    def _journal(self, path: Path) -> int:
        with contextlib.suppress(OSError):
            tail = self._tail(path, path.stat())
            count, tail.end = count_answers(path, tail.end)
            tail.lines += count
            return tail.lines
        return 0

    def _tail(self, path: Path, found: os.stat_result) -> _Tail:
        tail = self._tails.get(path)
        if tail is None or tail.inode != found.st_ino or tail.end > found.st_size:  # written anew, or taken back
            tail = self._tails[path] = _Tail(found.st_ino)
        self._tails.move_to_end(path)
        return tail


def _of_chunks(look: RunStatus) -> tuple[float | None, Facts]:
    progress = look.progress
    facts = [
        ("Records", f"{progress.records:,}"),
        ("Chunks", f"{progress.committed:,} of {progress.chunks:,}" + ("" if progress.sealed else " so far")),
        ("In work", f"{look.leases:,}"),
    ]
    facts += [("Dead records", f"{progress.dead:,}")] if progress.dead else []
    facts += [("Reason", progress.reason)] if progress.reason else []
    facts += [("Trouble", line) for line in look.trouble]
    return (progress.committed / progress.chunks if progress.sealed and progress.chunks else None), tuple(facts)


def _of_calls(
    calls: tuple[SweepHeader, SweepStatus] | None, about: Sequence[tuple[SweepHeader, SweepStatus]]
) -> tuple[float | None, Facts]:
    """Of the calls for outputs, where there are any, and of those about them."""
    every = [*([calls] if calls else []), *about]
    if not every:
        return None, ()
    facts = [("Calls", _so_many([calls]))] if calls else []
    facts += [("About the outputs", _so_many(about))] if about else []
    facts.append(("In flight", f"{sum(look.busy for _, look in every):,}"))
    errors, cost = sum(look.errors for _, look in every), sum(look.spent for _, look in every)
    facts += [("Errors", f"{errors:,}")] if errors else []
    facts += [("Cost", f"{cost:.4g}")] if cost else []
    facts += [("Reason", look.reason) for _, look in every if look.reason]
    return sum(look.known for _, look in every) / sum(header.total for header, _ in every), tuple(facts)


def _so_many(calls: Sequence[tuple[SweepHeader, SweepStatus]]) -> str:
    return f"{sum(look.known for _, look in calls):,} of {sum(header.total for header, _ in calls):,}"
