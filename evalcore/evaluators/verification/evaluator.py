"""Verification compliance as an evaluator: one record is one agent's output."""

from __future__ import annotations

from collections.abc import Sequence

from evalq.evalcore.contract.claims import ClaimsTally
from evalq.evalcore.contract.evaluator import (
    Batch,
    CommandLine,
    Evaluator,
    InputResult,
    Option,
    Outcome,
    Sample,
    Tally,
    Views,
)
from evalq.evalcore.evaluators.verification.charts import CHARTS, opening
from evalq.evalcore.evaluators.verification.judging import JUDGE
from evalq.evalcore.evaluators.verification.markdown import markdown
from evalq.evalcore.evaluators.verification.measures import MEASURES
from evalq.evalcore.evaluators.verification.metrics import METRICS
from evalq.evalcore.evaluators.verification.panels import PANELS
from evalq.evalcore.evaluators.verification.params import VerificationParams
from evalq.evalcore.evaluators.verification.patterns import PATTERN_SETS
from evalq.evalcore.evaluators.verification.record import read_record, record_line
from evalq.evalcore.evaluators.verification.rows import ROWS
from evalq.evalcore.evaluators.verification.sample import write_sample
from evalq.evalcore.evaluators.verification.score import VerificationScore, scorer
from evalq.evalcore.evaluators.verification.section import section
from evalq.evalcore.evaluators.verification.state import Agreement, VerificationState
from evalq.evalcore.model.canonical import Json
from evalq.evalcore.model.tally import LISTED, Faults
from evalq.evalcore.records.lines import read_lines

__all__ = ["Verification", "evaluator"]


class Verification(Evaluator[VerificationParams, VerificationState]):
    """How well an agent's output shows that it verified what it did (seed 004)."""

    name = "verification"
    version = "3"
    summary = "Score agents' transcripts for verification: read-backs, evidence, tests, quality gates."
    Params = VerificationParams
    State = VerificationState
    command = CommandLine(
        (
            Option(
                ("--strict",), "Any unsubstantiated claim scores 0; the threshold is 1.", kind="bool", param="strict"
            ),
            Option(("--threshold",), "Score from which a record passes (0.9).", kind="float", param="threshold"),
            Option(("--patterns",), "Pattern set.", param="patterns", choices=tuple(PATTERN_SETS)),
        )
    )
    measures = MEASURES
    views = Views(METRICS, PANELS, markdown, summary=opening, charts=CHARTS, rows=ROWS, at_times=("judged", "labels"))
    sample = Sample(write_sample)
    calls = JUDGE.calls

    def evaluate(self, batch: Batch, params: VerificationParams) -> Outcome[VerificationState]:
        """Score each line; a broken one is a fault with the path of what is wrong in it."""
        tally, agreement, judged = Tally(), Agreement(), ClaimsTally()
        score = scorer(params.patterns, params.scoring).score
        results, lines, failed = [], [], []
        for line in read_lines(batch, read_record, tally):
            if line.record is None:
                lines.append(line.broken())
                continue
            record, verdict = line.record.record, line.record.verdict
            result = score(record.actual_output, params.passing, strict=params.strict)
            if verdict is not None:
                judged.add(verdict, line.number, tally.left_out)
            if record.compliant is not None:
                agreement.add(record.compliant, _verdicts(record.actual_output, result, params))
                agreement.add_calls(record.compliant, result.success, verdict)
            results.append(result)
            if not result.success:
                failed.append((line.number, result.reason))
            lines.append(record_line(line, line.record, result))
        tally.scored = len(results)
        state = VerificationState.of(results)
        state.agreement = agreement
        state.judged = judged
        state.failed = Faults(len(failed), failed[:LISTED])
        return Outcome(state, tally, lines)

    def section(self, results: Sequence[InputResult[VerificationState]], params: VerificationParams) -> dict[str, Json]:
        """Means, pass rate and bands; where records are labelled, how the pattern sets agree with the labels."""
        return section(results, params)


def _verdicts(text: str, result: VerificationScore, params: VerificationParams) -> dict[str, bool]:
    """Whether the text passes by each named pattern set, and by the one in use."""
    chosen = params.pattern_set or "custom"
    verdicts = {chosen: result.success}
    for name, patterns in PATTERN_SETS.items():
        if name != chosen:
            other = scorer(patterns, params.scoring).score(text, params.passing, strict=params.strict)
            verdicts[name] = other.success
    return verdicts


evaluator = Verification()
