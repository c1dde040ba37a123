"""The state that verification scores merge into, and the results of the report."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from evalq.evalcore.contract.claims import ClaimsTally, ClaimsVerdict, Confusion, effectiveness
from evalq.evalcore.contract.evaluator import InputResult, State
from evalq.evalcore.evaluators.verification.params import VerificationParams
from evalq.evalcore.evaluators.verification.score import BANDS, COMPONENTS, VerificationScore
from evalq.evalcore.model.canonical import Json
from evalq.evalcore.model.state import Faults, Merging, add_counts
from evalq.evalcore.statistics.exact import ExactSum
from evalq.evalcore.views.markdown import failed_section


class PatternAgreement(Merging):
    """Labelled records: their number, how often each pattern set's verdict is the label, and how often all sets agree.

    ``by_score`` calls a record unverified when its score does not pass, ``by_judge`` when one of its claims is not
    supported.
    """

    records: int = 0
    by_score: Confusion = msgspec.field(default_factory=Confusion)
    by_judge: Confusion = msgspec.field(default_factory=Confusion)
    right: dict[str, int] = msgspec.field(default_factory=dict)
    same: int = 0

    def add(self, label: bool, verdicts: dict[str, bool]) -> None:
        """Count one record with its label and the verdict of each pattern set."""
        self.records += 1
        self.same += len(set(verdicts.values())) == 1
        add_counts(self.right, {name: verdict is label for name, verdict in verdicts.items()})

    def add_calls(self, label: bool, passed: bool, verdict: ClaimsVerdict | None) -> None:
        """Count whether the score, and the judge if it has a verdict, call a labelled record unverified."""
        self.by_score.add(positive=not label, called=not passed)
        if verdict is not None and verdict.finding is not None:
            self.by_judge.add(positive=not label, called=not verdict.holds)

    def merge(self, later: PatternAgreement) -> None:
        """Take in further counts."""
        self.records += later.records
        self.by_score.merge(later.by_score)
        self.by_judge.merge(later.by_judge)
        self.same += later.same
        add_counts(self.right, later.right)


class VerificationState(State):
    """Counts and exact sums of scores: in all, by component (in the order of COMPONENTS), by band (of BANDS).

    ``failed`` are the lines of records that did not pass, with their reasons.
    """

    scored: int = 0
    passed: int = 0
    score: ExactSum = msgspec.field(default_factory=ExactSum)
    components: list[ExactSum] = msgspec.field(default_factory=lambda: [ExactSum() for _ in COMPONENTS])
    bands: list[int] = msgspec.field(default_factory=lambda: [0] * len(BANDS))
    claims: int = 0
    agreement: PatternAgreement = msgspec.field(default_factory=PatternAgreement)
    failed: Faults = msgspec.field(default_factory=Faults)
    judged: ClaimsTally = msgspec.field(default_factory=ClaimsTally)

    @classmethod
    def of(cls, results: list[VerificationScore]) -> VerificationState:
        """The state of ``results``, without their labels and lines."""
        return cls(
            scored=len(results),
            passed=sum(result.success for result in results),
            score=ExactSum.of(result.score for result in results),
            components=[ExactSum.of(getattr(result.components, name) for result in results) for name in COMPONENTS],
            bands=[sum(result.band == band for result in results) for band in BANDS],
            claims=sum(bool(result.unsubstantiated) for result in results),
        )

    def merge(self, later: VerificationState) -> None:
        """Take in the scores of later records."""
        self.scored += later.scored
        self.passed += later.passed
        self.score.merge(later.score)
        for ours, other in zip(self.components, later.components, strict=True):
            ours.merge(other)
        self.bands = [ours + other for ours, other in zip(self.bands, later.bands, strict=True)]
        self.claims += later.claims
        self.agreement.merge(later.agreement)
        self.failed.merge(later.failed)
        self.judged.merge(later.judged)


def section(results: Sequence[InputResult[VerificationState]], params: VerificationParams) -> dict[str, Json]:
    """Means, pass rate and bands; for labelled records, how well the pattern sets agree with the labels."""
    state = VerificationState.zero()
    for result in results:
        state.merge(result.state)
    count = state.scored
    means = [total.mean(count) if count else None for total in (state.score, *state.components)]
    plain: dict[str, Json] = {
        "mean_score": means[0],
        "pass_rate": state.passed / count if count else None,
        "passed": state.passed,
        "bands": dict(zip(BANDS, state.bands, strict=True)),
        "components": dict(zip(COMPONENTS, means[1:], strict=True)),
        "unsubstantiated": state.claims,
        "failed": failed_section((result.name, result.state.failed) for result in results),
    }
    if labelled := state.agreement.records:
        right = {name: {"right": k, "share": k / labelled} for name, k in state.agreement.right.items()}
        same = {"same": state.agreement.same, "share": state.agreement.same / labelled}
        plain["labels"] = {
            "records": labelled,
            "patterns": right,
            "agreement": same,
            "by_score": effectiveness(state.agreement.by_score, params.targets),
        }
        if state.agreement.by_judge.total:
            plain["labels"]["judged"] = effectiveness(state.agreement.by_judge, params.targets)
    if state.judged.total:
        plain["judged"] = state.judged.section()
    return plain
