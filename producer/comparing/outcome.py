"""The content that every format shows of a decision, a comparison, or an error instead."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Literal, NamedTuple

import msgspec

from evalq.evalcore.compare.comparison import Estimate, MeasureComparison, Verdict
from evalq.evalcore.compare.decision import Check, Decided, FailingCase, GateDecision, Levels, Quarantined
from evalq.evalcore.compare.summary import RunCases
from evalq.evalcore.contract.measures import changed, level
from evalq.evalcore.errors import EvalqError
from evalq.evalcore.model.canonical import Json
from evalq.evalcore.views.markdown import escape
from evalq.producer.comparing.comparing import comparison_text, decision_demands, decision_head, quarantine_text
from evalq.producer.comparing.samples import SampleAnswer, base_samples, folder_of, samples_in

if TYPE_CHECKING:
    from evalq.producer.suites.summary import Matrices


PointState = Literal["kept", "broken", "suspect", "open", "error"]
"""Whether the demand holds: "suspect" if it got worse beyond chance by an unknown amount, "open" if the answers cannot
tell, "error" if nothing could be decided.
"""


class OutcomePoint(NamedTuple):
    """One check; ``tier`` as in a policy. ``veto``: it is about single cases."""

    name: str
    state: PointState
    word: str
    reason: str
    cases: tuple[str, ...] = ()
    tier: str = "critical"
    veto: bool = False

    @property
    def blocks(self) -> bool:
        """Whether it can block."""
        return self.tier == "critical"


class DecisionOutcome(NamedTuple):
    """The outcome of the command ``what`` ("gate", "compare"), with its verdict as a ``word``.

    ``runs`` have the cases to show; ``text`` is the whole outcome as Markdown, ``document`` as JSON. ``allowed``: an
    open outcome may pass. ``quarantined`` maps (run, case) to the reason. ``matrix`` shows the runs of a suite's
    matrices side by side, as Markdown. ``failing`` are cases that did not pass every time, and ``compared`` the names
    of runs that have a baseline. ``demands`` is the part of the text that explains each demand, ``levels`` the numbers
    side by side, ``baseline`` what they are compared with. ``pairs`` are what a comparison compared, ``decision`` is a
    gate's.
    """

    what: str
    word: str
    state: PointState
    points: tuple[OutcomePoint, ...]
    runs: tuple[RunCases, ...]
    text: str
    document: Json
    allowed: bool = False
    quarantined: Mapping[tuple[str, str], str] = {}
    matrix: str = ""
    failing: tuple[FailingCase, ...] = ()
    compared: frozenset[str] = frozenset()
    demands: str = ""
    levels: tuple[tuple[str, Levels], ...] = ()
    baseline: str = ""
    pairs: tuple[ComparedRuns, ...] = ()
    decision: GateDecision | None = None

    def worst_first(self, run: RunCases) -> list[FailingCase]:
        """The cases of ``run`` that did not pass every time: named ones first, then by how far they fell."""
        named = self.named(run)
        listed = [each for each in self.failing if each.run == run.called]
        return sorted(listed, key=lambda each: (each.case not in named, -_fall(each), each.case))

    def samples(self, run: RunCases) -> list[tuple[SampleAnswer | None, SampleAnswer]]:
        """(an answer of the baseline, one of the candidate) to each of the cases that got worst."""
        listed = [each for each in self.worst_first(run) if each.case in self.named(run) or _fall(each) > 0]
        folder, cases = folder_of(run), [each.case for each in listed[:_SAMPLES]]
        if self.state == "kept" or folder is None or not cases:
            return []
        ours = samples_in(folder, cases, passed=False)
        theirs = self.base_samples(run, cases)
        return [(theirs.get(case), ours[case]) for case in cases if case in ours]

    def base_samples(self, run: RunCases, cases: Sequence[str]) -> dict[str, SampleAnswer]:
        """{case: an answer that passed} of the run that ``run`` was compared with."""
        paired = self.decision.paired if self.decision is not None else ()
        partner = next((each.partner for each in paired if each.run == run.called), "")
        return base_samples(self.baseline, partner, run, cases)

    def named(self, run: RunCases) -> set[str]:
        """The cases of ``run`` that a blocking check names: all others may have failed by chance."""
        return {
            case
            for point in self.points
            if point.blocks and point.state in ("broken", "suspect")
            if any(point.name.startswith((f"{name}.", f"{name}: ")) for name in (run.called, run.evaluator))
            for case in point.cases
        }

    def before(self, run: RunCases) -> dict[str, str]:
        """{case of ``run`` that did not pass every time: its passes in the baseline}."""
        return {
            each.case: f"{each.before[0]:,} of {each.before[1]:,} in the baseline"
            for each in self.failing
            if each.run == run.called and each.before is not None
        }

    @property
    def passes(self) -> bool:
        """Whether it lets the change pass."""
        return self.state == "kept" or (self.state == "open" and self.allowed)


_SAMPLES = 2
"""Cases of a run that have sample answers."""


def _fall(case: FailingCase) -> float:
    """How far the case's share of passes fell since the baseline; without one, how far it is from passing always."""
    now = case.passed / case.answers if case.answers else 0.0
    return (case.before[0] / case.before[1] if case.before else 1.0) - now


class ComparedRuns(NamedTuple):
    """Two runs and their comparison, a `MeasureComparison` for each measure."""

    base: RunCases
    cand: RunCases
    found: Sequence[MeasureComparison]

    @property
    def document(self) -> dict[str, Json]:
        """It as JSON."""
        return {"base": self.base.run, "cand": self.cand.run, "measures": msgspec.to_builtins(self.found)}


_DECIDED: Mapping[Decided, PointState] = {
    "GO": "kept",
    "NO-GO": "broken",
    "SUSPECT": "suspect",
    "INCONCLUSIVE": "open",
}
_VERDICTS: Mapping[Verdict, PointState] = {"same": "kept", "better": "kept", "worse": "broken", "inconclusive": "open"}
_ORDER: Sequence[Verdict] = ("worse", "inconclusive", "same", "better")


def of_decision(
    decision: GateDecision, runs: Sequence[RunCases], *, allowed: bool = False, matrices: Matrices | None = None
) -> DecisionOutcome:
    """The outcome of a gate; ``matrices`` are those of its suite."""
    points = (*map(_check_point, decision.checks), *map(_quarantine_point, decision.quarantined))
    quarantined = {
        (each.run, each.case): f"quarantine: {each.reason}"
        for each in decision.quarantined
        if each.quarantined and not each.regressed
    }
    text, document = decision_head(decision), msgspec.to_builtins(decision)
    shown = ""
    if matrices:
        from evalq.producer.suites.summary import matrix_text  # imports the suite files' code, which few decisions need

        shown = matrix_text(matrices, level=2)
        document["matrices"] = msgspec.to_builtins(matrices)
    return DecisionOutcome(
        "gate",
        decision.decided,
        _DECIDED[decision.decided],
        points,
        tuple(runs),
        text,
        document,
        # As for the exit code: an incomplete run, or one with no case in common, never passes.
        allowed=allowed and decision.exit_with is None,
        quarantined=quarantined,
        matrix=shown,
        failing=decision.failing,
        compared=frozenset(each.run for each in decision.paired),
        demands=decision_demands(decision),
        levels=tuple((check.metric, check.levels) for check in decision.checks if check.levels is not None),
        baseline=decision.baseline,
        decision=decision,
    )


def _check_point(check: Check) -> OutcomePoint:
    name = f"{check.metric}: {check.demand}"
    return OutcomePoint(name, _DECIDED[check.decided], check.decided, check.reason, check.cases, check.tier, check.veto)


def _quarantine_point(entry: Quarantined) -> OutcomePoint:
    """A point that every format shows, and that decides nothing."""
    name = f"{entry.run}.quarantine: {entry.case}" if entry.run else f"quarantine: {entry.case}"
    word = "QUARANTINED" if entry.quarantined else "NOT QUARANTINED"
    return OutcomePoint(name, "open", word, f"{quarantine_text(entry)}; {entry.reason}", (), "advisory")


def of_comparisons(compared: Sequence[ComparedRuns]) -> DecisionOutcome:
    """The outcome of the worst measure of all pairs; a comparison forbids nothing, so an open one may pass."""
    points = tuple(_measure_point(pair, found) for pair in compared for found in pair.found)
    words = [found.verdict for pair in compared for found in pair.found]
    word = min(words, key=_ORDER.index)
    text = "\n".join(comparison_text(*pair) for pair in compared)
    document: list[Json] = [pair.document for pair in compared]
    runs = tuple(pair.cand for pair in compared)
    return DecisionOutcome(
        "compare",
        word,
        _VERDICTS[word],
        points,
        runs,
        text,
        {"comparisons": document},
        allowed=True,
        compared=frozenset(run.called for run in runs),
        pairs=tuple(compared),
    )


def _measure_point(pair: ComparedRuns, found: MeasureComparison) -> OutcomePoint:
    name = f"{pair.cand.called}.{found.measure.name}: not worse than {pair.base.shown}"
    seen = found.observed
    reason, measure = "no case has an answer in both runs", found.measure
    if seen is not None:
        reason = (
            f"{level(seen.base, measure)} to {level(seen.cand, measure)} over {seen.cases} cases: changed by "
            f"{changed(seen.delta, measure)}, with 95 % between {changed(seen.low, measure)} and "
            f"{changed(seen.high, measure)} for these cases{_besides(found, seen)}"
        )
    return OutcomePoint(name, _VERDICTS[found.verdict], found.verdict, reason, tuple(found.named))


def _besides(found: MeasureComparison, seen: Estimate) -> str:
    """What else the verdict depends on."""
    measure = found.measure
    parts = [measure.reading] if found.measure.reading else []
    if found.by_cases and seen.case_low is not None and seen.case_high is not None:
        parts.append(
            f"for cases like these, which decide here, between {changed(seen.case_low, measure)} "
            f"and {changed(seen.case_high, measure)}"
        )
    if found.stopped:
        parts.append(f"evalq stopped calling {found.stopped} cases once they were decided, which biases their means")
    return "".join(f"; {part}" for part in parts)


def of_error(what: str, error: EvalqError) -> DecisionOutcome:
    """The outcome of a command that ended with an error."""
    message, kind = str(error), type(error).__name__
    point = OutcomePoint("comparison" if what == "compare" else "decision", "error", kind, message)
    lines = [f"# ERROR: evalq {what} could not decide", "", *(escape(line) for line in message.splitlines())]
    document = {"decided": "ERROR", "error": message, "kind": kind, "exit_code": error.exit_code}
    return DecisionOutcome(what, "ERROR", "error", (point,), (), "\n".join(lines) + "\n", document)
