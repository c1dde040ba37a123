"""What a gate decides: of each thing that a policy demands, and of all of them together."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import msgspec

from evalq.evalcore.compare.intervals import ALPHA
from evalq.evalcore.compare.looks import Look
from evalq.evalcore.compare.policy import Tier
from evalq.evalcore.model.canonical import Json
from evalq.evalcore.modes import rejected

__all__ = ["EXIT_CODES", "Check", "Decided", "Decision", "Quarantined", "overall", "surprising"]

Decided = Literal["GO", "NO-GO", "INCONCLUSIVE"]

# Undecided is neither: 2, 3 and 5 are those of errors, so that CI can tell a gate from a fault (see `errors`).
EXIT_CODES: dict[Decided, int] = {"GO": 0, "NO-GO": 1, "INCONCLUSIVE": 4}


class Check(msgspec.Struct, frozen=True):
    """One demand and how the candidate meets it.

    ``demand`` says it in a few words, ``reason`` why it was decided so. ``low`` and ``high`` bound the number in
    question at 95 % (at more for answers that are not a candidate's first), ``p_worse`` is how surprising it is if the
    demand is kept; both are None where the number comes without an interval. ``cases`` are those that decided it.
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


class Decision(msgspec.Struct, frozen=True):
    """All of a gate's checks, and what follows: ``decided`` over the critical ones. ``notes`` is what else to know.

    ``look`` is which one it was at an approved baseline, None without one.
    """

    decided: Decided
    checks: tuple[Check, ...]
    notes: tuple[str, ...] = ()
    candidates: tuple[str, ...] = ()
    baseline: str = ""
    quarantined: tuple[Quarantined, ...] = ()
    look: Look | None = None

    @property
    def exit_code(self) -> int:
        """What the command that decided ends with: 0, 1 or 4."""
        return EXIT_CODES[self.decided]


def surprising(decision: Decision) -> list[Check]:
    """The critical checks that stop it and may be chance: not what is missing, nor numbers without an interval."""
    return [
        check
        for check in decision.checks
        if check.tier == "critical" and check.decided == "NO-GO" and check.p_worse is not None
    ]


def overall(checks: Sequence[Check], alpha: float = ALPHA) -> tuple[Decided, tuple[Check, ...]]:
    """What the critical checks come to, and the checks as they count in it.

    GO needs all of them. For NO-GO the surprise of each counts by Holm's procedure (1979), so that many gates do not
    make a false alarm likelier than one: a check that fails it becomes INCONCLUSIVE. What is no matter of chance (a
    number without an interval, answers that are missing) fails for certain.
    """
    # GATE 6: advisory and supporting demands are shown, take no share of the error, and never block.
    critical = [check for check in checks if check.tier == "critical"]
    surprises = sorted(
        ((check.p_worse, check) for check in critical if check.p_worse is not None), key=lambda each: each[0]
    )
    # What fell for certain within its margin, or lacks answers, is as surprising, and must not hide what is behind.
    surprising = surprises[: rejected([p for p, _ in surprises], alpha)]
    # By identity: two demands may read alike.
    kept = {id(check) for _, check in surprising if check.decided == "NO-GO"}
    counted = tuple(_counted(check, alpha, certain=check.p_worse is None or id(check) in kept) for check in checks)
    decisions = {check.decided for check in counted if check.tier == "critical"}
    if "NO-GO" in decisions:
        return "NO-GO", counted
    return ("INCONCLUSIVE" if "INCONCLUSIVE" in decisions else "GO"), counted


def _counted(check: Check, alpha: float, *, certain: bool) -> Check:
    if check.tier != "critical" or check.decided != "NO-GO" or certain:
        return check
    why = f"{check.reason}; among several gates that is not surprising enough (Holm at {alpha:g})"
    return msgspec.structs.replace(check, decided="INCONCLUSIVE", reason=why)
