"""The decision of a gate: one type for the result of a demand, and the rule that combines them.

A demand hands in a `Check`: its own verdict at the errors of the look, its p-values, its interval and how many answers
it rests on. `overall` then corrects for the number of demands, in two families of critical checks, each by Holm (1979):

- NO-GO: ``p_margin`` of each demand, the p-value if the demand were kept;
- SUSPECT: ``p_worse`` of each change, and the named cases: worse beyond chance, while a fall of the size that the
  policy forbids is neither shown nor excluded.

The correction only weakens a verdict: NO-GO becomes SUSPECT or INCONCLUSIVE, SUSPECT becomes INCONCLUSIVE. A check
that rests on fewer than `LEAST` answers is never GO.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Literal

import msgspec

from evalq.evalcore.compare.intervals import ALPHA
from evalq.evalcore.compare.looks import Look
from evalq.evalcore.compare.policy import Tier
from evalq.evalcore.model.canonical import Json
from evalq.evalcore.modes import rejected

__all__ = [
    "EXIT_CODES",
    "LEAST",
    "Check",
    "Decided",
    "Decision",
    "FailingCase",
    "PairedCases",
    "Quarantined",
    "hold_back",
    "named_cases",
    "overall",
    "surprising",
    "undecided",
    "without_evidence",
]

Decided = Literal["GO", "NO-GO", "SUSPECT", "INCONCLUSIVE"]

# SUSPECT and INCONCLUSIVE are neither: 2, 3 and 5 are those of errors, so that CI can tell a gate from a fault.
EXIT_CODES: dict[Decided, int] = {"GO": 0, "NO-GO": 1, "SUSPECT": 4, "INCONCLUSIVE": 4}
LEAST = 2
"""The fewest answers that are evidence: one answer says nothing of how far chance moves it."""


class Check(msgspec.Struct, frozen=True):
    """One demand and how the candidate meets it.

    ``demand`` says it in a few words, ``reason`` why it was decided so. ``low`` and ``high`` bound the number in
    question at 95 % (at more for answers that are not a candidate's first). ``p_margin`` is the p-value of the demand
    being kept, ``p_worse`` that of no change; a NO-GO with neither is certain, and no matter of chance.

    ``evidence`` is how many answers of the candidate the demand rests on: with fewer than `LEAST` it is never GO.
    ``cases`` are those that decided it. ``case_p`` has their p-values, adjusted for all cases, where they are named by
    a test of each; ``veto``: the check turns GO into SUSPECT where it names a case, and else says nothing. ``change``:
    it is about what changed since the baseline, and about nothing that the candidate is by itself.
    """

    metric: str
    demand: str
    tier: Tier
    decided: Decided
    reason: str
    value: Json = None
    low: float | None = None
    high: float | None = None
    p_worse: float | None = None
    cases: tuple[str, ...] = ()
    p_margin: float | None = None
    evidence: int = 0
    case_p: tuple[float, ...] = ()
    veto: bool = False
    change: bool = False

    @property
    def certain(self) -> bool:
        """Whether chance has no part in it: an exact demand, or answers that nobody gave."""
        return self.p_margin is None and self.p_worse is None


class Quarantined(msgspec.Struct, frozen=True):
    """A case that the policy has in quarantine. ``aside``: it is, so that no demand on single cases is decided by it.

    ``why`` says why it is or is not. ``passed`` of ``answers`` are the candidate's, and in ``history`` those before it;
    ``fell``: it is seen to pass less often than these, which quarantine does not excuse.
    """

    run: str
    case: str
    aside: bool
    why: str
    reason: str
    until: str = ""
    passed: int = 0
    answers: int = 0
    history: tuple[int, int] = (0, 0)
    fell: bool = False


class FailingCase(msgspec.Struct, frozen=True):
    """A case of which not every answer passed: ``passed`` of ``answers``, and ``before`` the same of the baseline.

    ``before`` is None where the baseline has no answer of an equal case. ``named``: a critical check that is NO-GO or
    SUSPECT names it; of the others nobody knows more than that chance may have done it.
    """

    run: str
    case: str
    passed: int
    answers: int
    before: tuple[int, int] | None = None
    named: bool = False


class PairedCases(msgspec.Struct, frozen=True):
    """The cases of a run and its baseline: how many are ``equal``, and which decide nothing.

    ``base`` and ``cand`` count the cases of either side. ``changed`` have another input or other checks, ``gone`` are
    asked by the baseline alone, ``new`` by the candidate alone: the first 20 of each, and how many there are.
    """

    run: str
    equal: int
    base: int
    cand: int
    changed: tuple[str, ...] = ()
    gone: tuple[str, ...] = ()
    new: tuple[str, ...] = ()
    changed_count: int = 0
    gone_count: int = 0
    new_count: int = 0

    @property
    def sentence(self) -> str:
        """Both counts, and what differs."""
        parts = [("changed", self.changed_count), ("gone", self.gone_count), ("new", self.new_count)]
        others = ", ".join(f"{count:,} {word}" for word, count in parts if count)
        counts = (
            f"{self.equal:,} case(s) are in both, of {self.base:,} of the baseline and {self.cand:,} of the candidate"
        )
        return f"{counts} ({others})" if others else counts


class Decision(msgspec.Struct, frozen=True):
    """All of a gate's checks, and what follows: ``decided`` over the critical ones. ``notes`` is what else to know.

    ``look`` is which one it was at an approved baseline, None without one. ``exit_with`` is the exit code where it is
    not that of ``decided``: 3 for a run that is not complete, 5 for recorded runs that have no case in common.
    ``paired`` counts the cases of each run and its baseline that are equal. ``failing`` are the cases that did not pass
    every time, those that a check names first, at most 1,000 of a run.
    """

    decided: Decided
    checks: tuple[Check, ...]
    notes: tuple[str, ...] = ()
    candidates: tuple[str, ...] = ()
    baseline: str = ""
    quarantined: tuple[Quarantined, ...] = ()
    look: Look | None = None
    exit_with: int | None = None
    paired: tuple[PairedCases, ...] = ()
    failing: tuple[FailingCase, ...] = ()

    @property
    def exit_code(self) -> int:
        """The exit code of the command that decided: 0, 1 or 4, or ``exit_with``."""
        return EXIT_CODES[self.decided] if self.exit_with is None else self.exit_with


def surprising(decision: Decision, *verdicts: Decided) -> list[Check]:
    """The critical checks that are one of ``verdicts`` (NO-GO or SUSPECT) and may be chance: neither missing answers
    nor exact demands.
    """
    wanted = verdicts or ("NO-GO", "SUSPECT")
    return [each for each in decision.checks if each.tier == "critical" and each.decided in wanted and not each.certain]


def named_cases(checks: Sequence[Check], *names: str) -> set[str]:
    """The cases that critical checks of a run, which is called by any of ``names``, name as NO-GO or SUSPECT."""
    return {
        case
        for check in checks
        if check.tier == "critical" and check.decided in ("NO-GO", "SUSPECT")
        if any(check.metric == name or check.metric.startswith(f"{name}.") for name in names)
        for case in check.cases
    }


def hold_back(check: Check, reason: str) -> Check:
    """The check, which is not GO for ``reason``: too little was seen for that, and enough for NO-GO and SUSPECT."""
    return undecided(check, reason) if check.decided in ("GO", "INCONCLUSIVE") else check


def undecided(check: Check, reason: str) -> Check:
    """The check, INCONCLUSIVE for ``reason`` whatever it was: what it rests on cannot decide."""
    return msgspec.structs.replace(
        check, decided="INCONCLUSIVE", reason=f"{reason}; {check.reason}" if check.reason else reason
    )


def without_evidence(check: Check) -> Check:
    """The check, INCONCLUSIVE where it is GO by fewer than `LEAST` answers: no evidence is never GO."""
    if check.evidence >= LEAST or check.decided != "GO":
        return check
    count = "no answer" if check.evidence <= 0 else "one answer"
    return undecided(check, f"{count} is no evidence")


def overall(checks: Sequence[Check], alpha: float = ALPHA, *, block: bool = False) -> tuple[Decided, tuple[Check, ...]]:
    """What the critical checks come to, and the checks as they count in it.

    NO-GO if any is, else SUSPECT if any is, else INCONCLUSIVE if any is, else GO. Each family errs in at most ``alpha``
    where nothing changed. With ``block`` (``on_worse: block``) the two families are one, and its verdict is NO-GO.
    Vetoes that name no case are left out of what is returned.
    """
    # GATE 6: advisory and supporting demands are shown, take no share of the error, and never block.
    critical = [without_evidence(check) for check in checks if check.tier == "critical"]
    shown = iter(critical)
    counted = [next(shown) if check.tier == "critical" else without_evidence(check) for check in checks]
    # By identity: two demands may read alike.
    if block:
        worse = _levels(critical, lambda check: check.p_margin if check.p_worse is None else check.p_worse, alpha)
        judged = [_blocked(check, worse, alpha) for check in counted]
    else:
        margins = _levels(critical, lambda check: check.p_margin, alpha)
        worse = _levels(critical, lambda check: check.p_worse, alpha)
        judged = [_judged(check, margins, worse, alpha) for check in counted]
    kept = tuple(check for check in judged if not check.veto or check.decided in ("SUSPECT", "NO-GO"))
    found = {check.decided for check in kept if check.tier == "critical"}
    order: Sequence[Decided] = ("NO-GO", "SUSPECT", "INCONCLUSIVE")
    return next((each for each in order if each in found), "GO"), kept


_Levels = dict[int, float]
"""{id of a check that its family rejects: the level at which Holm's procedure does}."""


def _levels(critical: Sequence[Check], p_of: Callable[[Check], float | None], alpha: float) -> _Levels:
    # GO checks stay members: a fall that is sure, and smaller than allowed, must not hide what is behind it.
    family = sorted(((p, check) for check in critical if (p := p_of(check)) is not None), key=lambda member: member[0])
    passed = family[: rejected([p for p, _ in family], alpha)]
    return {id(check): alpha / (len(family) - rank) for rank, (_, check) in enumerate(passed)}


def _judged(check: Check, margins: _Levels, worse: _Levels, alpha: float) -> Check:
    """The check as it counts among all: the verdict that it handed in, or a weaker one."""
    if check.tier != "critical" or check.decided not in ("NO-GO", "SUSPECT") or check.certain:
        return check
    if check.decided == "NO-GO" and id(check) in margins:
        return check
    if id(check) in worse:
        return msgspec.structs.replace(_named(check, worse[id(check)]), decided="SUSPECT")
    return _weakened(check, alpha)


def _blocked(check: Check, family: _Levels, alpha: float) -> Check:
    if check.tier != "critical" or check.decided not in ("NO-GO", "SUSPECT") or check.certain:
        return check
    if id(check) in family:
        return msgspec.structs.replace(_named(check, family[id(check)]), decided="NO-GO")
    return _weakened(check, alpha)


def _named(check: Check, level: float) -> Check:
    """The check with the cases that are named at the ``level`` which it has among all of its family."""
    if not check.case_p:
        return check
    names = [case for case, p in zip(check.cases, check.case_p, strict=True) if p <= level]
    return msgspec.structs.replace(check, cases=tuple(names), case_p=check.case_p[: len(names)])


def _weakened(check: Check, alpha: float) -> Check:
    why = f"{check.reason}; among several gates that is not surprising enough (Holm at {alpha:g})"
    return msgspec.structs.replace(check, decided="INCONCLUSIVE", reason=why)
