"""When the cases of a live sweep are decided, for evaluators that judge one recorded output a line."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from evalq.evalcore.model.calls import WHEN_DECIDED
from evalq.evalcore.model.canonical import Json
from evalq.evalcore.statistics.rates import ALPHA

__all__ = ["CaseSoFar", "StoppingByCase", "stopping_section"]


class CaseSoFar:
    """The outputs of one case so far: the repeats seen, and how many calls it was to get if it could stop early."""

    def __init__(self) -> None:
        self.seen: set[int] = set()
        self.planned = 0
        self.decided = False

    def count(self, test: Any) -> None:
        """Take in the judgement of an output and say in ``decided`` whether the case needs more."""
        raise NotImplementedError


class StoppingByCase:
    """Lines of outputs.jsonl in, decided cases out: what `Calls.stopping` gives.

    ``judge`` gives a judgement (``plan``, ``repeat``, ``planned``) where a line has a verdict, and None where it has
    none; ``new`` makes a case of which nothing has come. A decided case may be undecided again when answers arrive to
    calls that were under way; it is then to be called on.
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
        """Whether the case is decided as of now; false for one of which nothing has come."""
        return case in self._cases and self._cases[case].decided


def stopping_section(calls: Iterable[tuple[int, int, bool]]) -> dict[str, Json]:
    """``stopping`` of a report: what stopping early came to, over the cases that could.

    ``calls`` has the calls planned, those made (lines of any kind), and whether it is decided, of each of these cases.
    Saved are calls that decided cases did not take: what an undecided one lacks is still to be called. What a case
    took beyond its plan, say after errors, takes nothing from what the others saved.
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
