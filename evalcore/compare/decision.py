"""The decision of a gate: the results of its demands, and the rule that combines them.

Each demand hands in a `Check`: its own verdict at the errors of the look, its p-values, its interval and its number of
answers. `overall` then corrects for the number of demands. It corrects two families of critical checks, each by Holm
(1979):

- NO-GO uses ``p_margin`` of each demand. It is the p-value if the demand were kept.
- SUSPECT uses ``p_worse`` of each change, and the named cases. The candidate is worse beyond chance, but a fall of the
  forbidden size is neither shown nor excluded.

The correction only weakens a verdict: NO-GO becomes SUSPECT or INCONCLUSIVE, SUSPECT becomes INCONCLUSIVE. A check with
fewer than `LEAST` answers is never GO.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Literal

import msgspec

from evalq.evalcore.compare.intervals import ALPHA
from evalq.evalcore.compare.policy import Tier
from evalq.evalcore.compare.spending import GateLook
from evalq.evalcore.model.canonical import Json
from evalq.evalcore.statistics.mode_share import rejected
from evalq.evalcore.views.markdown import plural

Decided = Literal["GO", "NO-GO", "SUSPECT", "INCONCLUSIVE"]

# SUSPECT and INCONCLUSIVE have a code of their own. Errors have 2, 3 and 5, so that CI can tell a gate from a fault.
EXIT_CODES: dict[Decided, int] = {"GO": 0, "NO-GO": 1, "SUSPECT": 4, "INCONCLUSIVE": 4}
LEAST = 2
"""The fewest answers that are evidence: one answer does not show how far chance moves it."""


class Levels(msgspec.Struct, frozen=True):
    """The numbers of a demand as people read them: ``cand`` after ``base``, the ``change``, and what is ``allowed``.

    ``base`` and ``change`` are empty for a bound. ``low`` and ``high`` are the ends of the interval.
    """

    cand: str
    allowed: str
    low: str
    high: str
    base: str = ""
    change: str = ""


class Check(msgspec.Struct, frozen=True):
    """One demand and how the candidate meets it.

    ``demand`` says it in a few words; ``reason`` says why the gate decided so. ``low`` and ``high`` bound the number in
    question at 95 % (at more if the answers are not the candidate's first). ``p_margin`` is the p-value if the demand
    were kept, ``p_worse`` the p-value if nothing changed. A NO-GO with neither is certain: chance plays no part in it.

    ``evidence`` counts the candidate's answers behind the demand; with fewer than `LEAST` it is never GO. ``cases`` are
    those that decided it. If a test of each case names them, ``case_p`` has their p-values, adjusted for all cases.
    ``veto``: if the check names a case, it turns GO into SUSPECT; otherwise it has no effect. ``change``: the check is
    only about changes since the baseline, not about the candidate by itself. ``levels`` has its numbers for people.
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
    levels: Levels | None = None

    @property
    def certain(self) -> bool:
        """Whether chance has no part in it: the demand is exact, or answers are missing."""
        return self.p_margin is None and self.p_worse is None


class Quarantined(msgspec.Struct, frozen=True):
    """A case that the policy lists for quarantine.

    If ``quarantined``, it decides no demand on single cases. ``why`` says why it is quarantined or not. The candidate
    passed ``passed`` of ``answers``; ``history`` has both counts for earlier answers. ``regressed``: the gate sees that
    it passes less often than in the history. Quarantine does not excuse that.
    """

    run: str
    case: str
    quarantined: bool = msgspec.field(name="aside")
    why: str
    reason: str
    until: str = ""
    passed: int = 0
    answers: int = 0
    history: tuple[int, int] = (0, 0)
    regressed: bool = msgspec.field(name="fell", default=False)


class FailingCase(msgspec.Struct, frozen=True):
    """A case that did not pass every time: ``passed`` of ``answers``, and ``before`` the same of the baseline.

    ``before`` is None if the baseline has no answer of an equal case. ``named``: a critical check that is NO-GO or
    SUSPECT names the case. The failures of the other cases may be chance.
    """

    run: str
    case: str
    passed: int
    answers: int
    before: tuple[int, int] | None = None
    named: bool = False


class PairedCases(msgspec.Struct, frozen=True):
    """The cases of a run and its baseline: how many are ``equal``, and the cases that decide nothing.

    ``base`` and ``cand`` count the cases of each side. ``changed`` cases have another input or other checks. Only the
    baseline asks ``gone`` cases; only the candidate asks ``new`` cases. Each list has the first 20 cases, and a count
    tells how many there are. ``partner`` is the id of the baseline's run.
    """

    run: str
    equal: int
    base: int
    cand: int
    partner: str = ""
    changed: tuple[str, ...] = ()
    gone: tuple[str, ...] = ()
    new: tuple[str, ...] = ()
    changed_count: int = 0
    gone_count: int = 0
    new_count: int = 0

    @property
    def sentence(self) -> str:
        """The counts of both sides, and the differences."""
        parts = [("changed", self.changed_count), ("gone", self.gone_count), ("new", self.new_count)]
        others = ", ".join(f"{count:,} {word}" for word, count in parts if count)
        counts = f"{plural(self.equal, 'case')} in both: {self.base:,} in the baseline, {self.cand:,} in the candidate"
        return f"{counts} ({others})" if others else counts


class GateDecision(msgspec.Struct, frozen=True):
    """All checks of a gate and its decision: ``decided`` follows from the critical checks.

    ``notes`` are further facts for the reader. ``look`` is the look at an approved baseline, None without one.
    ``exit_with`` is the exit code if ``decided`` does not set it: 3 for an incomplete run, 5 for recorded runs without
    a common case. ``paired`` counts the equal cases of each run and its baseline. ``failing`` lists the cases that did
    not pass every time, at most 1,000 of a run. Cases that a check names come first. ``candidates`` are the ids of the
    runs, and ``folders`` what their user calls them.
    """

    decided: Decided
    checks: tuple[Check, ...]
    notes: tuple[str, ...] = ()
    candidates: tuple[str, ...] = ()
    baseline: str = ""
    quarantined: tuple[Quarantined, ...] = ()
    look: GateLook | None = None
    exit_with: int | None = None
    paired: tuple[PairedCases, ...] = ()
    failing: tuple[FailingCase, ...] = ()
    folders: tuple[str, ...] = ()

    @property
    def exit_code(self) -> int:
        """The exit code of the command that decided: 0, 1 or 4, or ``exit_with``."""
        return EXIT_CODES[self.decided] if self.exit_with is None else self.exit_with


def surprising(decision: GateDecision, *verdicts: Decided) -> list[Check]:
    """The critical checks with one of ``verdicts`` (NO-GO or SUSPECT) that may be chance.

    Missing answers and exact demands are not chance.
    """
    wanted = verdicts or ("NO-GO", "SUSPECT")
    return [each for each in decision.checks if each.tier == "critical" and each.decided in wanted and not each.certain]


def named_cases(checks: Sequence[Check], *names: str) -> set[str]:
    """The cases that critical checks of a run name as NO-GO or SUSPECT; the run has one of ``names``."""
    return {
        case
        for check in checks
        if check.tier == "critical" and check.decided in ("NO-GO", "SUSPECT")
        if any(check.metric == name or check.metric.startswith(f"{name}.") for name in names)
        for case in check.cases
    }


def keep_from_go(check: Check, reason: str) -> Check:
    """The check, kept from GO for ``reason``: its evidence is too small for GO, but enough for NO-GO and SUSPECT."""
    return undecided(check, reason) if check.decided in ("GO", "INCONCLUSIVE") else check


def undecided(check: Check, reason: str) -> Check:
    """The check, made INCONCLUSIVE for ``reason`` whatever it was: its evidence cannot decide."""
    return msgspec.structs.replace(
        check, decided="INCONCLUSIVE", reason=f"{reason}; {check.reason}" if check.reason else reason
    )


def _without_evidence(check: Check) -> Check:
    """The check, INCONCLUSIVE if it is GO with fewer than `LEAST` answers: no evidence is never GO."""
    if check.evidence >= LEAST or check.decided != "GO":
        return check
    count = "no answer" if check.evidence <= 0 else "one answer"
    return undecided(check, f"{count} is no evidence")


def overall(checks: Sequence[Check], alpha: float = ALPHA, *, block: bool = False) -> tuple[Decided, tuple[Check, ...]]:
    """The decision of the critical checks, and the checks as they count in it.

    It is NO-GO if any check is, else SUSPECT if any is, else INCONCLUSIVE if any is, else GO. If nothing changed, each
    family errs in at most ``alpha``. With ``block`` (``on_worse: block``) the two families are one, and its verdict is
    NO-GO. The returned checks leave out vetoes that name no case.
    """
    # GATE 6: evalq shows advisory and supporting demands. They take no share of the error and never block.
    critical = [_without_evidence(check) for check in checks if check.tier == "critical"]
    shown = iter(critical)
    counted = [next(shown) if check.tier == "critical" else _without_evidence(check) for check in checks]
    # Tell checks apart by identity: two demands may read alike.
    if block:
        worse = _levels(critical, lambda check: check.p_margin if check.p_worse is None else check.p_worse, alpha)
        judged = [_blocked(check, worse, alpha) for check in counted]
    else:
        margins = _levels(critical, lambda check: check.p_margin, alpha)
        worse = _levels(critical, lambda check: check.p_worse, alpha)
        judged = [_judged(check, margins, worse, alpha) for check in counted]
    kept = tuple(check for check in judged if not check.veto or check.decided in ("SUSPECT", "NO-GO"))
    verdicts = {check.decided for check in kept if check.tier == "critical"}
    order: Sequence[Decided] = ("NO-GO", "SUSPECT", "INCONCLUSIVE")
    return next((each for each in order if each in verdicts), "GO"), kept


_Levels = dict[int, float]
"""{id of a check that its family rejects: the level at which Holm's procedure rejects it}."""


def _levels(critical: Sequence[Check], p_of: Callable[[Check], float | None], alpha: float) -> _Levels:
    # GO checks stay in the family: a sure fall that is smaller than allowed must not hide the checks behind it.
    family = sorted(((p, check) for check in critical if (p := p_of(check)) is not None), key=lambda member: member[0])
    passed = family[: rejected([p for p, _ in family], alpha)]
    return {id(check): alpha / (len(family) - rank) for rank, (_, check) in enumerate(passed)}


def _judged(check: Check, margins: _Levels, worse: _Levels, alpha: float) -> Check:
    """The check as it counts among all checks: with its own verdict, or a weaker one."""
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
    """The check with only the cases that are named at ``level``, its own level in its family."""
    if not check.case_p:
        return check
    names = [case for case, p in zip(check.cases, check.case_p, strict=True) if p <= level]
    return msgspec.structs.replace(check, cases=tuple(names), case_p=check.case_p[: len(names)])


def _weakened(check: Check, alpha: float) -> Check:
    why = f"{check.reason}; among several gates that is not surprising enough (Holm at {alpha:g})"
    return msgspec.structs.replace(check, decided="INCONCLUSIVE", reason=why)
