"""Repeats of a case: outputs that came twice, and when a live sweep stops calling a case."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import Any, BinaryIO, Protocol, TypeVar

from evalq.evalcore.contract.evaluator import InputResult
from evalq.evalcore.model.calls import WHEN_DECIDED
from evalq.evalcore.model.canonical import Json
from evalq.evalcore.model.manifest import BOM
from evalq.evalcore.model.state import LISTED, Faults, omissions_in
from evalq.evalcore.naming import shorten
from evalq.evalcore.statistics.rates import ALPHA

S_co = TypeVar("S_co", covariant=True)

_CAME_BEFORE = "its case and repeat came before"


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
    """``finish_input``: count the outputs in ``state.repeated``, which `evaluate` judged, as unscored."""
    repeated = result.state.repeated
    result.tally.scored -= repeated.total
    result.tally.unscored += repeated.total
    result.tally.listed.merge(repeated)
    result.tally.left_out.add_all("output", _CAME_BEFORE, repeated.total, repeated.first)
    return []


def repeated_notices(report: Mapping[str, Json]) -> list[str]:
    """How many outputs `leave_out_repeated` left out of a report, and what to do; nothing if there are none."""
    left = sum(each.count for each in omissions_in(report) if each.why == _CAME_BEFORE)
    counted = f"{left:,} of {report['records']['total']:,} outputs are not counted: their case and repeat came before"
    advice = "If they are further answers to a case, give each its own number in `repeat`: 0, 1, 2"
    return [f"{counted}. {advice}"] if left else []


def _lines(stream: BinaryIO, last: int) -> Iterator[tuple[int, bytes]]:
    """Lines of an input as chunks give them, up to line ``last``: numbered from 1, blank ones left out."""
    for number, line in enumerate(stream, start=1):
        if number > last:
            return
        data = line.removeprefix(BOM) if number == 1 else line
        data = data.removesuffix(b"\n")
        if data and not data.isspace():
            yield number, data


# When the cases of a live sweep are decided, for evaluators that judge one recorded output a line.


class CaseSoFar:
    """The outputs of one case so far: the repeats seen, and its planned calls if it can stop early."""

    def __init__(self) -> None:
        self.seen: set[int] = set()
        self.planned = 0
        self.decided = False

    def count(self, test: Any) -> None:
        """Take in the judgement of an output and say in ``decided`` whether the case needs more."""
        raise NotImplementedError


class StoppingByCase:
    """Lines of outputs.jsonl in, decided cases out: what `Calls.stopping` gives.

    ``judge`` gives a line's judgement (``plan``, ``repeat``, ``planned``), or None if it has no verdict. ``new`` makes
    a case without outputs. Answers to calls in flight may make a decided case undecided; evalq then calls it again.
    """

    def __init__(self, judge: Callable[[bytes], Any | None], new: Callable[[], CaseSoFar]) -> None:
        self._judge = judge
        self._new = new
        self._cases: dict[str, CaseSoFar] = {}

    def add(self, line: bytes) -> str | None:
        """Take in one line; the id of its case if the line has decided it, else None.

        Lines may come in any order. Errors, and outputs of a repeat that has one already, change nothing.
        """
        test = self._judge(line)
        if test is None:
            return None
        name: str = test.plan.case.id
        case = self._cases.get(name)
        if case is None:
            case = self._cases[name] = self._new()
        # As `count_first` does for the report: both count the same outputs.
        if test.repeat in case.seen:
            return None
        case.seen.add(test.repeat)
        case.planned = max(case.planned, test.planned)
        before = case.decided
        case.count(test)
        return name if case.decided and not before else None

    def decided(self, case: str) -> bool:
        """Whether the case is decided now; false for a case without outputs."""
        return case in self._cases and self._cases[case].decided


def stopping_section(calls: Iterable[tuple[int, int, bool]]) -> dict[str, Json]:
    """``stopping`` of a report: the calls that stopping early saved, over the cases that could stop.

    ``calls`` has for each of these cases the calls planned, the calls made (lines of any kind), and whether the case
    is decided. Only decided cases save calls. Calls beyond a case's plan, say after errors, reduce no other case's
    savings.
    """
    cases = list(calls)
    decided = sum(settled for _, _, settled in cases)
    return {
        "stopping": {
            "rule": WHEN_DECIDED,
            "alpha": ALPHA,
            "cases": len(cases),
            "decided": decided,
            "undecided": len(cases) - decided,
            "calls_planned": sum(planned for planned, _, _ in cases),
            "calls_made": sum(made for _, made, _ in cases),
            "calls_saved": sum(max(0, planned - made) for planned, made, settled in cases if settled),
        }
    }
