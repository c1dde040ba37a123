"""The decision of a gate: the results of its demands, the rule that combines them, and the errors of a look.

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

from collections.abc import Callable, Iterable, Sequence
from typing import Literal, NamedTuple

import msgspec

from evalq.evalcore.compare.intervals import ALPHA
from evalq.evalcore.compare.policy import Policy, Tier
from evalq.evalcore.compare.summary import RunCases
from evalq.evalcore.model.canonical import Json, canonical_json, digest
from evalq.evalcore.statistics.mode_share import rejected

# Each commit that is compared with a baseline is another chance for a false NO-GO. At an error of .025 each, 20 to 64 %
# of histories of 100 unchanged commits hold one. So evalq counts looks, and look k spends .025/(k(k+1)). All looks
# together, however many, err in at most .025. If a candidate was looked at before, new answers spend from the other
# error, too. Otherwise people would run a job again until it passes (docs/decisions/0016).


class Errors(NamedTuple):
    """How often a decision may be wrong: NO-GO if nothing changed, and GO if it fell by the margin.

    ``collapse`` is the error of NO-GO for collapsed cases if a confirmation does not ask for them again. None: it is
    part of ``no_go``.
    """

    no_go: float = ALPHA
    go: float = ALPHA
    collapse: float | None = None

    @property
    def screens(self) -> bool:
        """Whether evalq asks both sides again, to the last repeat, before a finding stops anything."""
        return self.collapse is not None

    @property
    def of_collapse(self) -> float:
        """The error of NO-GO for collapsed cases, whether it is their own or a part of ``no_go``."""
        return self.no_go if self.collapse is None else self.collapse


SINGLE = Errors()
"""The errors of a single look, which is not counted."""
DUE = 20
"""From this look on NO-GO needs p below .00006. At 100 cases x 5, that is twice the fall that the first look sees."""
SCREEN = 0.05
"""How surprising answers must be before evalq asks both sides again."""


def confirming(number: int) -> Errors:
    """The errors of confirmation ``number`` on a baseline, from 1: those of NO-GO sum to .05 over all of them."""
    return Errors(SCREEN / (number * (number + 1)))


def growing(looks: int) -> Errors:
    """The errors of look ``looks`` at a run that grows, if evalq counts no looks: .0375 over all, either way."""
    spent = ALPHA if looks == 1 else ALPHA / (2 * looks * (looks - 1))
    return Errors(spent, spent)


class GateLook(msgspec.Struct, frozen=True):
    """One look at a candidate, with two counts from 1.

    It is look ``number`` at this baseline and policy, by answers number ``draw`` of this candidate. If earlier answers
    stopped the candidate, ``stands`` says why.
    """

    number: int
    draw: int = 1
    stands: str = ""

    @property
    def errors(self) -> Errors:
        """The errors of this look. Over all numbers the first sums to .025, over all draws the second to .0375."""
        k, r = self.number, self.draw
        return Errors(ALPHA / (k * (k + 1)), ALPHA if r == 1 else ALPHA / (2 * r * (r - 1)))

    def at_least(self, looks: int) -> GateLook:
        """The same look, counted as at least ``looks``: an extended run was looked at before, gated or not."""
        return msgspec.structs.replace(self, number=max(self.number, looks), draw=max(self.draw, looks))

    def told(self) -> str:
        """The look in a sentence, with its errors."""
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
    """The digest by which evalq counts looks: the approved runs' results, and all of a policy that can decide.

    It leaves out reasons, dates, and gates that are not critical. It also leaves out defaults, so that a count stays
    the same in a version of evalq that knows one key more.
    """
    demands = policy.model_dump(mode="json", exclude_defaults=True, exclude={"labels_days"})
    # The default tier is left out. A gate that names another tier is shown, but decides nothing.
    demands["gates"] = [each for each in demands["gates"] if "tier" not in each]
    if "quarantine" in demands:
        demands["quarantine"] = [{key: each.get(key, "") for key in ("case", "run")} for each in demands["quarantine"]]
    return digest(canonical_json({"policy": demands, "baseline": _found(approved)}))


def spent_digest(approved: Iterable[RunCases]) -> str:
    """The place where evalq counts the looks of all policies at these approved runs."""
    return f"baselines/{digest(canonical_json(_found(approved)))}"


def _found(approved: Iterable[RunCases]) -> list[Json]:
    # Use their results, not their ids: approving the same run again must not restart the count.
    return [list(each) for each in sorted([run.called, run.target, run.specification, run.report] for run in approved)]


def answers_digest(candidates: Iterable[RunCases]) -> str:
    """The digest of the answers that a look is at: the same reports are the same answers."""
    return digest(canonical_json([list(each) for each in sorted([run.called, run.report] for run in candidates)]))


def candidate_digest(candidates: Iterable[RunCases]) -> str:
    """The digest of the candidate if nobody names it: an extended run is the same candidate as its first run."""
    firsts = ([run.called, (run.lineage.first if run.lineage else "") or run.report] for run in candidates)
    return digest(canonical_json([list(each) for each in sorted(firsts)]))


def looks_at(candidates: Iterable[RunCases]) -> int:
    """How many looks these runs count for, by how often they were extended."""
    # They are decided together, so the largest count decides.
    return max((run.looks for run in candidates), default=1)


Decided = Literal["GO", "NO-GO", "SUSPECT", "INCONCLUSIVE"]

# SUSPECT and INCONCLUSIVE have a code of their own. Errors have 2, 3 and 5, so that CI can tell a gate from a fault.
EXIT_CODES: dict[Decided, int] = {"GO": 0, "NO-GO": 1, "SUSPECT": 4, "INCONCLUSIVE": 4}
LEAST = 2
"""The fewest answers that are evidence: one answer does not show how far chance moves it."""


class Check(msgspec.Struct, frozen=True):
    """One demand and how the candidate meets it.

    ``demand`` says it in a few words; ``reason`` says why the gate decided so. ``low`` and ``high`` bound the number in
    question at 95 % (at more if the answers are not the candidate's first). ``p_margin`` is the p-value if the demand
    were kept, ``p_worse`` the p-value if nothing changed. A NO-GO with neither is certain: chance plays no part in it.

    ``evidence`` counts the candidate's answers behind the demand; with fewer than `LEAST` it is never GO. ``cases`` are
    those that decided it. If a test of each case names them, ``case_p`` has their p-values, adjusted for all cases.
    ``veto``: if the check names a case, it turns GO into SUSPECT; otherwise it has no effect. ``change``: the check is
    only about changes since the baseline, not about the candidate by itself.
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
    tells how many there are.
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
        """Both counts, and the differences."""
        parts = [("changed", self.changed_count), ("gone", self.gone_count), ("new", self.new_count)]
        others = ", ".join(f"{count:,} {word}" for word, count in parts if count)
        counts = (
            f"{self.equal:,} case(s) are in both, of {self.base:,} of the baseline and {self.cand:,} of the candidate"
        )
        return f"{counts} ({others})" if others else counts


class GateDecision(msgspec.Struct, frozen=True):
    """All checks of a gate and its decision: ``decided`` follows from the critical checks.

    ``notes`` are further facts for the reader. ``look`` is the look at an approved baseline, None without one.
    ``exit_with`` is the exit code if ``decided`` does not set it: 3 for an incomplete run, 5 for recorded runs without
    a common case. ``paired`` counts the equal cases of each run and its baseline. ``failing`` lists the cases that did
    not pass every time, at most 1,000 of a run. Cases that a check names come first.
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


def hold_back(check: Check, reason: str) -> Check:
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
    found = {check.decided for check in kept if check.tier == "critical"}
    order: Sequence[Decided] = ("NO-GO", "SUSPECT", "INCONCLUSIVE")
    return next((each for each in order if each in found), "GO"), kept


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
