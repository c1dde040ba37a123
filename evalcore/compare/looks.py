"""How often one has looked at an approved run, and which errors the next look may have.

Every commit that is held to one baseline is another chance to stop what did not change: at an error of .025 each, 20 to
64 % of histories of 100 unchanged commits hold a false NO-GO. So looks are counted, and the k-th spends .025/(k(k+1)):
all of them together, however many, err in at most .025. Answers drawn anew for a candidate that was looked at before
spend from the other error, too, or a job would be run again until it passes (docs/decisions/0016).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import msgspec

from evalq.evalcore.compare.intervals import ALPHA
from evalq.evalcore.compare.policy import Policy
from evalq.evalcore.compare.run import RunCases
from evalq.evalcore.model.canonical import Json, canonical_json, digest

__all__ = [
    "DUE",
    "SCREEN",
    "SINGLE",
    "Errors",
    "Look",
    "answers_digest",
    "baseline_digest",
    "candidate_digest",
    "confirming",
    "growing",
    "looks_at",
    "spent_digest",
]


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


class Look(msgspec.Struct, frozen=True):
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

    def at_least(self, looks: int) -> Look:
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
