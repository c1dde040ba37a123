"""Where a gate spends its error level: the errors of each interim look, and the digests by which evalq counts looks.

Each commit that is compared with a baseline is another chance for a false NO-GO. At an error of .025 each, 20 to 64 %
of histories of 100 unchanged commits hold one. So evalq counts looks, and look k spends .025/(k(k+1)). All looks
together, however many, err in at most .025. If a candidate was looked at before, new answers spend from the other
error, too. Otherwise people would run a job again until it passes (docs/decisions/0016).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import msgspec

from evalq.evalcore.compare.intervals import ALPHA
from evalq.evalcore.compare.policy import Policy
from evalq.evalcore.compare.summary import RunCases
from evalq.evalcore.model.canonical import Json, canonical_json, digest


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


def confirmation_errors(number: int) -> Errors:
    """The errors of confirmation ``number`` on a baseline, from 1: those of NO-GO sum to .05 over all of them."""
    return Errors(SCREEN / (number * (number + 1)))


def growing_run_errors(looks: int) -> Errors:
    """The errors of look ``looks`` at a run that grows, if evalq counts no looks: .0375 over all, either way."""
    spent = ALPHA if looks == 1 else ALPHA / (2 * looks * (looks - 1))
    return Errors(spent, spent)


class GateLook(msgspec.Struct, frozen=True):
    """One interim look at a candidate, with two counts from 1.

    It is look ``number`` at this baseline and policy, by answers number ``draw`` of this candidate. If earlier answers
    stopped the candidate, ``stop_reason`` says why.
    """

    number: int
    draw: int = 1
    stop_reason: str = msgspec.field(name="stands", default="")

    @property
    def errors(self) -> Errors:
        """The errors of this look. Over all numbers the first sums to .025, over all draws the second to .0375."""
        k, r = self.number, self.draw
        return Errors(ALPHA / (k * (k + 1)), ALPHA if r == 1 else ALPHA / (2 * r * (r - 1)))

    def at_least(self, looks: int) -> GateLook:
        """The same look, counted as at least ``looks``: an extended run was looked at before, gated or not."""
        return msgspec.structs.replace(self, number=max(self.number, looks), draw=max(self.draw, looks))

    def sentence(self) -> str:
        """Which comparison this is, and its errors."""
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
    return digest(canonical_json({"policy": demands, "baseline": _results(approved)}))


def spent_digest(approved: Iterable[RunCases]) -> str:
    """The name under which evalq counts the looks of all policies at these approved runs."""
    return f"baselines/{digest(canonical_json(_results(approved)))}"


def _results(approved: Iterable[RunCases]) -> list[Json]:
    # Use their results, not their ids: approving the same run again must not restart the count.
    return [list(each) for each in sorted([run.called, run.target, run.specification, run.report] for run in approved)]


def answers_digest(candidates: Iterable[RunCases]) -> str:
    """The digest of the answers of a look: the same reports are the same answers."""
    return digest(canonical_json([list(each) for each in sorted([run.called, run.report] for run in candidates)]))


def candidate_digest(candidates: Iterable[RunCases]) -> str:
    """The digest of the candidate if nobody names it: an extended run is the same candidate as its first run."""
    firsts = ([run.called, (run.lineage.first if run.lineage else "") or run.report] for run in candidates)
    return digest(canonical_json([list(each) for each in sorted(firsts)]))


def look_count(candidates: Iterable[RunCases]) -> int:
    """How many looks these runs count for: one more for each time that evalq extended them."""
    # They are decided together, so the largest count decides.
    return max((run.looks for run in candidates), default=1)
