"""Demands that rest on verdicts of judges: these decide as far as people's labels bear them out."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import date
from typing import NamedTuple

import msgspec

from evalq.evalcore.compare.comparison import Estimate, Measured
from evalq.evalcore.compare.decision import Check
from evalq.evalcore.compare.intervals import ALPHA
from evalq.evalcore.compare.policy import Policy
from evalq.evalcore.compare.run import RunCases
from evalq.evalcore.statistics.agreement import share
from evalq.evalcore.statistics.judge_trust import JudgedCase, trust_of

__all__ = ["Corrected", "corrected", "nothing_decides", "old_labels", "on_trust", "why_advisory"]

_NAMED = 5
_SMALLEST, _HALVINGS = -12.0, 24
"""The smallest error that is looked at, as a power of ten, and how often the range up to a half is halved."""
_Rows = Mapping[str, tuple[int, int, int, int, int, int]]


def on_trust(
    checks: Iterable[Check], path: str, policy: Policy, run: RunCases, partner: RunCases | None
) -> Iterator[Check]:
    """Checks of what stands at ``path``, advisory where they rest on judges that people's labels do not bear out.

    Where they do, how far judge and people agree stands in the reason.
    """
    why, told = why_advisory(path, policy, run, partner), _agreement(path, policy, run, partner)
    for check in checks:
        if why and check.tier != "advisory":
            yield msgspec.structs.replace(check, tier="advisory", reason=f"{check.reason}; advisory: {why}")
        else:
            yield msgspec.structs.replace(check, reason=f"{check.reason}; {told}") if told else check


def why_advisory(path: str, policy: Policy, run: RunCases, partner: RunCases | None) -> str:
    """Why what stands at ``path`` in the results decides nothing; empty where it may.

    Labels of the baseline count, too, where the same judges were asked by the same words: a judge that people were
    compared with once need not be labelled anew with every candidate.
    """
    judged = run.cases.judged
    if judged is None or policy.judges == "decide" or not judged.rests(path):
        return ""
    if policy.judges == "advisory":
        return "it rests on judges (judges: advisory)"
    drawn = policy.labels == "by_verdict"
    found = {
        check: trust_of(_rows(check, run, partner), policy.minimum_labels, policy.judge_error, by_verdict=drawn).why
        for check in sorted(judged.labels)
    }
    lacking = [f"{check}: {why}" for check, why in found.items() if why]
    if not lacking:
        return ""
    more = f" and {len(lacking) - _NAMED} more" if len(lacking) > _NAMED else ""
    return f"it rests on judges that people's labels do not bear out ({'; '.join(lacking[:_NAMED])}{more})"


def old_labels(
    policy: Policy, candidates: Iterable[RunCases], partners: Mapping[str, RunCases], today: str
) -> Iterator[str]:
    """A sentence for each run whose labels bear out judges, and are surely older than the policy has them.

    A label is about an answer of its run, and is in its report: what began so long ago has no younger ones.
    """
    if policy.judges != "labelled" or not today:
        return
    told: set[str] = set()
    for run in candidates:
        partner = partners.get(run.called)
        for side in (run, partner):
            if side is None or side.run in told or not any(_rows_of(side, run).values()):
                continue
            age = _days_between(side.day, today)
            if age > policy.labels_days:
                told.add(side.run)
                yield (
                    f"{run.called}: the labels that its judges are trusted by are of run {side.run}, which began on "
                    f"{side.day}, {age:,} days ago (labels_days: {policy.labels_days}); label a new random sample"
                )


def _days_between(day: str, today: str) -> int:
    """0 where nobody knows: a run's folder may have been written to by anybody."""
    try:
        return (date.fromisoformat(today) - date.fromisoformat(day)).days
    except ValueError:
        return 0


def _agreement(path: str, policy: Policy, run: RunCases, partner: RunCases | None) -> str:
    judged = run.cases.judged
    if judged is None or not judged.rests(path):
        return ""
    told = []
    for check in sorted(judged.labels)[:_NAMED]:
        trust = trust_of(_rows(check, run, partner), policy.minimum_labels, policy.judge_error)
        if trust.agreement.value is not None and trust.agreement.interval is not None:
            low, high = trust.agreement.interval
            told.append(
                f"{check} agrees with people in {trust.agreement.value:.1%} of {trust.labels} labels "
                f"({low:.1%} to {high:.1%})"
            )
    return "; ".join(told)


def _rows(check: str, run: RunCases, partner: RunCases | None) -> list[JudgedCase]:
    """The labels of a check by case, those of the baseline with them where the same judges were asked alike."""
    return _added([_rows_of(side, run).get(check, {}) for side in (run, partner) if side is not None])


def _rows_of(side: RunCases, run: RunCases) -> Mapping[str, _Rows]:
    """The labels in ``side`` that tell of the judges of ``run``, by check: its own, and those of the same judges."""
    asked, found = run.cases.judged, side.cases.judged
    return found.labels if asked is not None and found is not None and found.by == asked.by else {}


def _added(sides: Sequence[_Rows]) -> list[JudgedCase]:
    # By case: labels of one case are alike, whichever run they are of.
    cases = sorted({case for side in sides for case in side})
    return [JudgedCase(*map(sum, zip(*(side[case] for side in sides if case in side), strict=True))) for case in cases]


class Corrected(NamedTuple):
    """A change of what judges pass, as people would see it: what was judged, divided by how well judges tell.

    A judge that passes what people pass in a share s, and what they fail in a share f, shows s - f of each change
    (Rogan and Gladen 1978). Both intervals have half of the error.
    """

    raw: Measured
    rows: Sequence[JudgedCase]
    alpha: float

    @property
    def estimate(self) -> Estimate:
        """The raw one with the corrected interval; whether it fell at all is told by that interval alone."""
        low, high = self._interval(self.alpha)
        return msgspec.structs.replace(self.raw.estimate, low=low, high=high, p_worse=self.p_margin(0.0))

    def p_margin(self, margin: float) -> float:
        """The smallest error at which the corrected interval lies below a fall of ``margin``."""

        def shown(alpha: float) -> bool:
            return self._interval(alpha)[1] < -margin

        if not shown(0.5):
            return 1.0
        least, most = _SMALLEST, math.log10(0.5)
        for _ in range(_HALVINGS):
            middle = (least + most) / 2
            least, most = (least, middle) if shown(10**middle) else (middle, most)
        return float(10**most)

    def _interval(self, alpha: float) -> tuple[float, float]:
        width = self.raw.change.width
        low, high = self.raw.change.interval(alpha / 2)
        least, most = self._telling(alpha / 2)
        if least <= 0:
            return -width, width
        ends = low / (least if low < 0 else most), high / (least if high > 0 else most)
        return max(-width, ends[0]), min(width, ends[1])

    def _telling(self, alpha: float) -> tuple[float, float]:
        """Where s - f lies: each of the two errors of a judge has half of ``alpha``."""
        answered = sum(bool(row.answers) for row in self.rows)
        wrong = [(row.false_pass, row.false_pass + row.neither) for row in self.rows]
        missed = [(row.false_fail, row.false_fail + row.both) for row in self.rows]
        errors = [share(each, answered, alpha / 2).interval for each in (wrong, missed)]
        if errors[0] is None or errors[1] is None:
            return 0.0, 1.0
        return 1 - errors[0].high - errors[1].high, 1 - errors[0].low - errors[1].low


def corrected(
    found: Measured | None, path: str, policy: Policy, run: RunCases, partner: RunCases, alpha: float = ALPHA
) -> Measured | Corrected | None:
    """The change as people would see it, where it rests on judges that decide by their labels; else as it is."""
    judged = run.cases.judged
    if found is None or judged is None or policy.judges != "labelled" or not judged.rests(path) or path != "pass_rate":
        return found
    before = partner.cases.judged
    sides: list[_Rows] = [judged.outputs]
    if before is not None and before.by == judged.by:
        sides.append(before.outputs)
    if not any(sides) and len(judged.labels) == 1:
        # Of a single check whole answers pass as it does.
        return Corrected(found, _rows(next(iter(judged.labels)), run, partner), alpha)
    return Corrected(found, _added(sides), alpha)


def nothing_decides(policy: Policy, checks: Sequence[Check]) -> Iterator[Check]:
    """INCONCLUSIVE where all that the policy holds critical rests on judges: nothing would be left to say no."""
    # Only what its author holds critical: that answers are missing says no without any judge, and says nothing else.
    metrics = {gate.metric for gate in policy.gates if gate.tier == "critical"}
    own = [check for check in checks if check.metric in metrics]
    if own and not any(check.tier == "critical" for check in own):
        reason = (
            "all critical demands rest on judges, and are advisory: label a random sample, or put "
            "`judges: decide` into the policy"
        )
        yield Check("judges", "something that decides", "critical", "INCONCLUSIVE", reason)
