"""Recorded outputs of which a (case, repeat) came more than once: the first one counts, the others are left out."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from typing import Any, BinaryIO, Protocol, TypeVar

from evalq.evalcore.contract.answers import InputResult
from evalq.evalcore.model.manifest import BOM
from evalq.evalcore.model.state import LISTED, Faults
from evalq.evalcore.naming import shorten

__all__ = ["Gatherer", "count_first", "leave_out_repeated"]

S_co = TypeVar("S_co", covariant=True)


class Gatherer(Protocol[S_co]):
    """Adds judgements, each with ``plan`` (its case, or None) and ``repeat``, up to a state."""

    def add(self, line: int, test: Any) -> None:
        """Count the judgement of ``line``."""

    def has(self, test: Any) -> bool:
        """Whether an output of this judgement's case and repeat was counted."""

    def finish(self) -> S_co:
        """The state of all that was counted."""


def count_first(
    judge: Callable[[bytes], Any],
    gatherer: Gatherer[S_co],
    reopen: Callable[[], BinaryIO],
    last: int,
    dead: Collection[int] = (),
) -> tuple[S_co, Faults]:
    """Count an input again up to line ``last``, the first output of each (case, repeat) alone; also the lines left out.

    ``dead`` lines killed the process that judged them: they have no result, and are not judged here either.

    A second output cannot be taken out of a state that holds only sums, so the input is read again.
    """
    left_out: list[tuple[int, str]] = []
    killers = frozenset(dead)
    with reopen() as stream:
        for number, data in _lines(stream, last):
            if number in killers:
                continue
            test = judge(data)
            # The first output counts, as in a live sweep: otherwise a case could be repeated until it passes.
            if gatherer.has(test) and test.plan is not None:
                left_out.append((number, f"{shorten(test.plan.case.id)} repeat {test.repeat} came before; left out"))
            else:
                gatherer.add(number, test)
    return gatherer.finish(), Faults(len(left_out), left_out[:LISTED])


def leave_out_repeated(result: InputResult[Any], params: Any) -> list[bytes]:
    """``finish_input``: outputs in ``state.repeated`` were judged as any other, and leave the tally of those scored."""
    repeated = result.state.repeated
    result.tally.scored -= repeated.total
    result.tally.unscored += repeated.total
    result.tally.listed.merge(repeated)
    result.tally.left_out.add_all("output", "its case and repeat came before", repeated.total, repeated.first)
    return []


def _lines(stream: BinaryIO, last: int) -> Iterator[tuple[int, bytes]]:
    """Lines of an input as chunks give them, up to line ``last``: numbered from 1, blank ones left out."""
    for number, line in enumerate(stream, start=1):
        if number > last:
            return
        data = line.removeprefix(BOM) if number == 1 else line
        data = data.removesuffix(b"\n")
        if data and not data.isspace():
            yield number, data
