"""Which cases got worse: named only where that is no accident among all of them, and then a veto."""

from __future__ import annotations

import bisect
from collections.abc import Collection, Iterator
from functools import lru_cache
from typing import NamedTuple

from evalq.evalcore.compare.decision import Check
from evalq.evalcore.compare.hypergeometric import between
from evalq.evalcore.compare.intervals import ALPHA
from evalq.evalcore.compare.pairs import Pairs, pairs_of
from evalq.evalcore.compare.policy import Gate, Policy
from evalq.evalcore.compare.run import RunCases
from evalq.evalcore.contract.measures import Measure

__all__ = ["NO_CASE_WORSE", "Fall", "case_veto", "falls", "fisher", "named_measures", "too_few_to_name", "worse_cases"]

NO_CASE_WORSE = "no case falls beyond chance"
_MOST = 1_000
_TOLD = 5


class Fall(NamedTuple):
    """A case with the p-value of its fall, adjusted for all cases, and (passes, answers) on either side."""

    p: float
    case: str
    base: tuple[int, int]
    cand: tuple[int, int]

    @property
    def sentence(self) -> str:
        """What fell, for a reason."""
        return f"{self.case} ({self.base[0]} of {self.base[1]} to {self.cand[0]} of {self.cand[1]})"


class _Row(NamedTuple):
    p: float
    """Fisher's p-value of the case."""
    least: float
    """The smallest p-value that its counts allow."""
    fall: Fall


def worse_cases(
    pairs: Pairs, *, turned: bool = False, alpha: float = ALPHA, stopped: Collection[str] = ()
) -> list[str]:
    """Cases whose passes fell, the most surprising first; any false name with probability ``alpha`` at most."""
    return [fall.case for fall in falls(pairs, turned=turned, without=stopped) if fall.p <= alpha]


def falls(pairs: Pairs, *, turned: bool = False, without: Collection[str] = ()) -> list[Fall]:
    """Every case with the adjusted p-value of its fall, the most surprising first.

    Fisher's exact test of each, one-sided. Cases that could not be as surprising whatever their answers cost the others
    nothing (Tarone 1990, in the form of Hommel and Krummenauer 1998, which is monotone in the level), and the
    correction is Holm's (1979): the i-th smallest p counts the cases behind it whose counts allow one as small.
    ``turned``: where a pass is not wanted. ``without`` are cases that are left out: of those that stopped the numbers
    of answers depend on what they answered, and the test is for numbers that do not.
    """
    rows = sorted(_rows(pairs, turned, without), key=lambda row: (row.p, row.fall.case))
    least = sorted(row.least for row in rows)
    p_values = [row.p for row in rows]
    found: list[Fall] = []
    before = 0.0
    for row in rows:
        # Those before it are named already: each of them has a smaller p, and so a smaller least one.
        rivals = bisect.bisect_right(least, row.p) - bisect.bisect_left(p_values, row.p)
        before = max(before, min(1.0, row.p * max(1, rivals)))
        found.append(row.fall._replace(p=before))
    return found


def _rows(pairs: Pairs, turned: bool, without: Collection[str]) -> Iterator[_Row]:
    # Where a pass is not wanted getting worse is a rise: from candidate to base that is a fall.
    sides = (pairs.base, pairs.cand) if not turned else (pairs.cand, pairs.base)
    counts = zip(
        pairs.ids,
        *(column.tolist() for side in sides for column in (side.answers, side.total)),
        strict=True,
    )
    for case, n_b, m_b, n_c, m_c in counts:
        if case in without:
            continue
        p, least = fisher(n_b, round(m_b), n_c, round(m_c))
        ends = (round(m_b), n_b), (round(m_c), n_c)
        yield _Row(p, least, Fall(p, case, *(ends if not turned else ends[::-1])))


def too_few_to_name(pairs: Pairs, alpha: float) -> bool:
    """Whether no case could be named, whatever its answers were: even all passes before and none now are too few."""
    counts = zip(pairs.base.answers.tolist(), pairs.cand.answers.tolist(), strict=True)
    return all(fisher(before, before, now, 0)[0] > alpha for before, now in counts)


def _unnameable(pairs: Pairs, alpha: float) -> bool:
    """Whether none can be named by as many passes as there are: none has a p-value as small as ``alpha`` to give."""
    return all(row.least > alpha for row in _rows(pairs, False, ()))


def named_measures(policy: Policy, run: RunCases) -> list[Measure]:
    """By which measures cases are named: those of passes that a critical gate is about, else the run's first one."""
    passing = [measure for measure in run.cases.measures if measure.kind == "pass"]
    critical = {gate.path for gate in policy.gates if gate.tier == "critical" and _is_about(gate, run)}
    return [measure for measure in passing if measure.name in critical] or passing[:1]


def _is_about(gate: Gate, run: RunCases) -> bool:
    return gate.run in (run.called, run.evaluator)


def case_veto(
    run: RunCases, partner: RunCases, measure: Measure, alpha: float, aside: Collection[str] = ()
) -> Check | None:
    """The named cases as a member of the SUSPECT family: never GO, and no more than a note where nobody is named.

    None where no case could be named. ``aside`` are cases in quarantine.
    """
    pairs = pairs_of(partner.cases, run.cases, measure)
    if _unnameable(pairs, alpha):
        return None
    without = {*run.cases.stopped, *partner.cases.stopped, *aside}
    found = falls(pairs, turned=measure.better == "lower", without=without)
    if not found:
        return None
    named = [fall for fall in found if fall.p <= alpha][:_MOST]
    count = sum(fall.p <= alpha for fall in found)
    told = "; ".join(fall.sentence for fall in named[:_TOLD]) + ("; ..." if count > _TOLD else "")
    return Check(
        f"{run.called}.{measure.name}",
        NO_CASE_WORSE,
        "critical",
        "SUSPECT" if named else "INCONCLUSIVE",
        f"{count} of {len(found)} cases fell beyond chance: {told}" if named else "no case is named",
        count,
        p_worse=found[0].p,
        cases=tuple(fall.case for fall in named),
        case_p=tuple(fall.p for fall in named),
        evidence=int(pairs.cand.answers.sum()),
        veto=True,
        change=True,
    )


@lru_cache(maxsize=65536)
def fisher(n_b: int, m_b: int, n_c: int, m_c: int) -> tuple[float, float]:
    """P(so few passes fall to the candidate), and the smallest value that this could have had.

    In whole numbers, divided once, up to `EXACT` answers: what is tested may be smaller than what sums of doubles lose.
    Beyond, the first is never too small and the second never too large, so that nobody is named by an error of either.
    """
    # Where few passes fall to the candidate many fall to the base.
    m, every = m_b + m_c, n_b + n_c
    return between(n_b, m, every, m_b)[1], between(n_b, m, every, min(m, n_b))[0]
