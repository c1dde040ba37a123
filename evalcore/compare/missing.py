"""Answers that a candidate lacks, by cause: what the machinery lost, and what the agent gave nothing usable for."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import msgspec

from evalq.evalcore.compare.decision import Check, Decided
from evalq.evalcore.compare.looks import Errors
from evalq.evalcore.compare.pairs import Side
from evalq.evalcore.compare.permutation import permutation_p
from evalq.evalcore.compare.policy import Policy
from evalq.evalcore.compare.run import RunCases
from evalq.evalcore.compare.summary import CaseSummary
from evalq.evalcore.errors import WireError
from evalq.evalcore.files import open_input

__all__ = ["Causes", "causes_in", "count_recorded", "incomplete", "missing_checks", "unusable_of"]

_OWN = frozenset({"bad_output", "refused"})
"""Kinds of failure that are the agent's own doing: it answered, and nobody can use the answer."""
_SHOWN = 20


class Causes(msgspec.Struct, frozen=True):
    """Why outputs are no answers, {case: how many}: ``lost`` on the way, or unusable by the agent's ``own`` doing."""

    lost: dict[str, int] = {}
    own: dict[str, int] = {}


class _Attempt(msgspec.Struct):
    kind: str = ""


class _Line(msgspec.Struct):
    case: str = ""
    error: str | bool | None = ""
    attempts: tuple[_Attempt, ...] | None = ()


_decode = msgspec.json.Decoder(_Line).decode


def causes_in(outputs: Path) -> Causes:
    """Those of live answers that are none. Raises WireError for a damaged line."""
    found = Causes()
    with open_input(outputs) as lines:
        for number, data in enumerate(lines, start=1):
            try:
                _count(_decode(data), found)
            except msgspec.DecodeError as error:
                raise WireError(f"{outputs}:{number}: not a recorded output: {error}") from error
    return found


def count_recorded(data: bytes, causes: Causes) -> None:
    """Count a line of recorded outputs, where it says by its attempts why it is no answer."""
    # Without attempts nobody lost it on the way: who recorded it has no answer to show.
    if b'"attempts"' not in data or b'"error"' not in data:
        return
    with contextlib.suppress(msgspec.DecodeError):
        if (line := _decode(data)).attempts:
            _count(line, causes)


def _count(line: _Line, causes: Causes) -> None:
    if not line.error or not line.case:
        return
    # By its last attempt, which is why there is no answer.
    own = bool(line.attempts) and line.attempts[-1].kind in _OWN  # type: ignore[index]  # there are some
    held = causes.own if own else causes.lost
    held[line.case] = held.get(line.case, 0) + 1


def unusable_of(cases: CaseSummary, causes: Causes) -> dict[str, int]:
    """{case: how many of its missing answers came, and nobody could use them}, by what is known of their ``causes``.

    What nobody lost on the way came. Where judges decide it may be their reply that is missing: there only what the
    agent is known to have made unusable is its own.
    """
    found = {}
    for case, missing in zip(cases.ids, cases.missing, strict=True):
        lost = causes.lost.get(case, 0)
        own = causes.own.get(case, 0) if cases.judged is not None else missing - lost
        if (own := min(own, missing)) > 0:
            found[case] = own
    return found


class _Slots(NamedTuple):
    """Answers of a case that should be there, and how many of them are not, on one side."""

    planned: int
    missing: int


class _Lacking(NamedTuple):
    """The cases of a cause: their ids, and the slots of either side."""

    ids: list[str]
    base: list[_Slots]
    cand: list[_Slots]
    alone: list[str]

    @property
    def excess(self) -> float:
        """How many more the candidate lacks than it would at the baseline's rate."""
        planned, lacking = (sum(each[at] for each in self.base) for at in (0, 1))
        share = sum(each.planned for each in self.cand) / planned if planned else 0.0
        return sum(each.missing for each in self.cand) - lacking * share

    def p_more(self) -> float:
        """The p-value of so many, if either side lost as often as the other: exact, within cases."""
        return permutation_p(_side(self.base), _side(self.cand))[0]


def missing_checks(policy: Policy, run: RunCases, partner: RunCases, errors: Errors) -> Iterator[Check]:
    """What the candidate lacks of the cases of ``partner``, a check for each cause that has more than is allowed.

    NO-GO where an exact test shows more than in the baseline. Else answers that the server, the network or a worker
    lost are INCONCLUSIVE, and unusable ones are left to the demands: these count them as the worst.
    """
    # GATE, The question: by cause, all cases together. Case by case, 4 lost here and 3 there would be called 3.
    for own in (False, True):
        found = _lacking(run, partner, own=own)
        if found.excess <= policy.missing + 1e-9:
            continue
        p = found.p_more()
        decided: Decided = "NO-GO" if p <= errors.no_go else "INCONCLUSIVE"
        if own and decided != "NO-GO":
            continue
        yield Check(
            run.called,
            f"at most {policy.missing} answers missing",
            "critical",
            decided,
            _reason(found, policy.missing, own=own, blamed=decided == "NO-GO"),
            value=sum(each.missing for each in found.cand),
            cases=tuple(found.alone[:_SHOWN]),
            p_margin=p,
            evidence=sum(each.planned for each in found.cand),
            change=True,
        )


def incomplete(run: RunCases) -> bool:
    """Whether live calls of a run, or records of it, ended without anything that says why."""
    return bool(run.records.get("dead")) or bool(run.target and run.cases.unrecorded)


def _reason(found: _Lacking, allowed: int, *, own: bool, blamed: bool) -> str:
    (lost, of), (before, of_before) = (
        (sum(each.missing for each in side), sum(each.planned for each in side)) for side in (found.cand, found.base)
    )
    what = "The candidate gave no usable answer for" if own else "The server, the network or a worker lost"
    alone = f"; {len(found.alone)} case(s) without any answer" if found.alone else ""
    counts = f"{what} {lost:,} of {of:,} answers ({before:,} of {of_before:,} in the baseline{alone})"
    if blamed:
        return f"{counts}: more than in the baseline beyond chance"
    more = max(allowed + 1, round(found.excess + 0.499999))
    return f"{counts}: too few to blame the candidate. Run again, or allow losses with `missing: {more}`"


def _lacking(run: RunCases, partner: RunCases, *, own: bool) -> _Lacking:
    # Of recorded outputs nobody lost any on the way: the agent, or its owner, did not give them.
    recorded = not run.target and run.usage is None
    ours, theirs = _table(partner.cases), _table(run.cases)
    found = _Lacking([], [], [], [])
    for case, (count, lost, unusable) in ours.items():
        if not count and not lost and not unusable:
            continue
        answered, lost_now, unusable_now = theirs.get(case, (0, 0, 0))
        if not answered and not lost_now and not unusable_now:
            lost_now, unusable_now = (0, count) if recorded else (count, 0)
        pair = (unusable, unusable_now) if own else (lost, lost_now)
        # Of the other cause nothing is known here: neither lost nor there.
        before = count + pair[0]
        now = answered + pair[1]
        if before and now:
            found.ids.append(case)
            found.base.append(_Slots(before, pair[0]))
            found.cand.append(_Slots(now, pair[1]))
            if not answered and pair[1]:
                found.alone.append(case)
    return found


def _table(cases: CaseSummary) -> dict[str, tuple[int, int, int]]:
    """{case: (answered, lost, unusable)}, answered by the measure with the most values."""
    columns = [column.count for column in cases.columns.values()]
    found = {}
    for at, (case, missing) in enumerate(zip(cases.ids, cases.missing, strict=True)):
        unusable = min(missing, cases.unusable.get(case, 0))
        found[case] = max((each[at] for each in columns), default=0), missing - unusable, unusable
    return found


def _side(slots: list[_Slots]) -> Side:
    import numpy as np

    planned = np.array([each.planned for each in slots], dtype=np.int64)
    there = np.array([each.planned - each.missing for each in slots], dtype=float)
    return Side(planned, there, there)
