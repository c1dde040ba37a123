"""The decision of a gate: results of demands, the rule that combines them, and the errors that a look may spend.

A demand hands in a `Check`: its own verdict at the errors of the look, its p-values, its interval and how many answers
it rests on. `overall` then corrects for the number of demands, in two families of critical checks, each by Holm (1979):

- NO-GO: ``p_margin`` of each demand, the p-value if the demand were kept;
- SUSPECT: ``p_worse`` of each change, and the named cases: worse beyond chance, while a fall of the size that the
  policy forbids is neither shown nor excluded.

The correction only weakens a verdict: NO-GO becomes SUSPECT or INCONCLUSIVE, SUSPECT becomes INCONCLUSIVE. A check
that rests on fewer than `LEAST` answers is never GO.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Literal, NamedTuple

import msgspec

from evalq.evalcore.compare.intervals import ALPHA
from evalq.evalcore.compare.policy import Policy, Tier
from evalq.evalcore.compare.summary import RunCases
from evalq.evalcore.model.canonical import Json, canonical_json, digest
from evalq.evalcore.statistics.mode_share import rejected

# Every commit that is held to one baseline is another chance to stop what did not change: at an error of .025 each,
# 20 to 64 % of histories of 100 unchanged commits hold a false NO-GO. So looks are counted, and the k-th spends
# .025/(k(k+1)): all of them together, however many, err in at most .025. Answers drawn anew for a candidate that was
# looked at before spend from the other error, too, or a job would be run again until it passes
# (docs/decisions/0016).


class Errors(NamedTuple):
    """How often a decision may be wrong: NO-GO where nothing changed, and GO where it fell by the margin.

    ``collapse`` is that of NO-GO for collapsed cases where nobody asks them afresh; None: it is part of ``no_go``.
    """

    no_go: float = ALPHA
    go: float = ALPHA
    collapse: float | None = None

    @property
    def screens(self) -> bool:
        """Whether what is seen is asked afresh, of either side to the end, before it stops anything."""
        return self.collapse is not None

    @property
    def of_collapse(self) -> float:
        """The error of NO-GO for collapsed cases, whether it is their own or a part of ``no_go``."""
        return self.no_go if self.collapse is None else self.collapse


SINGLE = Errors()
"""The errors of a single look, which is not counted."""
DUE = 20
"""From this look on NO-GO needs p below .00006: twice the fall that the first look sees, at 100 cases x 5."""
SCREEN = 0.05
"""How surprising answers have to be for both sides to be asked afresh."""


def confirming(number: int) -> Errors:
    """What the ``number``-th confirmation on a baseline may spend, from 1: NO-GO sums to .05 over all of them."""
    return Errors(SCREEN / (number * (number + 1)))


def growing(looks: int) -> Errors:
    """What the ``looks``-th look at a run that grows may spend where none is counted: .0375 over all, either way."""
    spent = ALPHA if looks == 1 else ALPHA / (2 * looks * (looks - 1))
    return Errors(spent, spent)


class GateLook(msgspec.Struct, frozen=True):
    """One look at a candidate: the ``number``-th at this baseline and policy, by the ``draw``-th answers of this
    candidate, both from 1. ``stands`` is why the candidate was stopped by earlier answers, where it was.
    """

    number: int
    draw: int = 1
    stands: str = ""

    @property
    def errors(self) -> Errors:
        """What this look may spend. Over all numbers the first sums to .025, over all draws the second to .0375."""
        k, r = self.number, self.draw
        return Errors(ALPHA / (k * (k + 1)), ALPHA if r == 1 else ALPHA / (2 * r * (r - 1)))

    def at_least(self, looks: int) -> GateLook:
        """The same, as one of at least so many: a run that was extended has been looked at before, gated or not."""
        return msgspec.structs.replace(self, number=max(self.number, looks), draw=max(self.draw, looks))

    def told(self) -> str:
        """The look in a sentence, with the errors that it may spend."""
        errors = self.errors
        which = "First comparison" if self.number == 1 else f"Comparison {self.number:,}"
        again = (
            f" These are answers number {self.draw:,} of this candidate: GO errs in at most {100 * errors.go:.3g} %."
            if self.draw > 1
            else ""
        )
        due = (
            " Falls have to be larger with each comparison: approve a new baseline to see smaller ones again."
            if self.number >= DUE
            else ""
        )
        return (
            f"{which} with this baseline: without a real change it is NO-GO in at most {100 * errors.no_go:.3g} % of "
            f"such comparisons, and SUSPECT in as many.{again}{due}"
        )


def baseline_digest(policy: Policy, approved: Iterable[RunCases]) -> str:
    """The digest by which looks are counted: of what the approved runs found, and all of a policy that can decide.

    Reasons, dates, and gates that are not critical are no part of it. Defaults are left out, so that a count outlives a
    version of evalq that knows a key more.
    """
    demands = policy.model_dump(mode="json", exclude_defaults=True, exclude={"labels_days"})
    # The default tier is left out: what says another one is shown, and decides nothing.
    demands["gates"] = [each for each in demands["gates"] if "tier" not in each]
    if "quarantine" in demands:
        demands["quarantine"] = [{key: each.get(key, "") for key in ("case", "run")} for each in demands["quarantine"]]
    return digest(canonical_json({"policy": demands, "baseline": _found(approved)}))


def spent_digest(approved: Iterable[RunCases]) -> str:
    """The place where the looks of all policies at these approved runs are counted."""
    return f"baselines/{digest(canonical_json(_found(approved)))}"


def _found(approved: Iterable[RunCases]) -> list[Json]:
    # By what they found, not by their ids: approving the same run again must not begin the count anew.
    return [list(each) for each in sorted([run.called, run.target, run.specification, run.report] for run in approved)]


def answers_digest(candidates: Iterable[RunCases]) -> str:
    """The digest of the answers that a look is at: the same reports are the same answers."""
    return digest(canonical_json([list(each) for each in sorted([run.called, run.report] for run in candidates)]))


def candidate_digest(candidates: Iterable[RunCases]) -> str:
    """The digest of who is judged, if nobody says: an extended run is the candidate that it was extended from."""
    firsts = ([run.called, (run.lineage.first if run.lineage else "") or run.report] for run in candidates)
    return digest(canonical_json([list(each) for each in sorted(firsts)]))


def looks_at(candidates: Iterable[RunCases]) -> int:
    """How many looks these are, by how often they were extended."""
    # They are decided together, so the one that was seen most often tells how often.
    return max((run.looks for run in candidates), default=1)


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
    """A case that the policy has in quarantine. ``quarantined``: it is, and decides no demand on single cases.

    ``why`` says why it is or is not. ``passed`` of ``answers`` are the candidate's, and in ``history`` those before it;
    ``regressed``: it is seen to pass less often than these, which quarantine does not excuse.
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


class GateDecision(msgspec.Struct, frozen=True):
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
    look: GateLook | None = None
    exit_with: int | None = None
    paired: tuple[PairedCases, ...] = ()
    failing: tuple[FailingCase, ...] = ()

    @property
    def exit_code(self) -> int:
        """The exit code of the command that decided: 0, 1 or 4, or ``exit_with``."""
        return EXIT_CODES[self.decided] if self.exit_with is None else self.exit_with


def surprising(decision: GateDecision, *verdicts: Decided) -> list[Check]:
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


def _without_evidence(check: Check) -> Check:
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
    critical = [_without_evidence(check) for check in checks if check.tier == "critical"]
    shown = iter(critical)
    counted = [next(shown) if check.tier == "critical" else _without_evidence(check) for check in checks]
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
