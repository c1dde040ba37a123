"""The vs evaluation as evalq runs it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import BinaryIO

from evalq.evalcore.contract.duplicates import count_first, leave_out_repeated
from evalq.evalcore.contract.evaluator import (
    Batch,
    Calls,
    CommandLine,
    Evaluator,
    Gathering,
    InputResult,
    Option,
    Outcome,
    Records,
    Sample,
    Views,
    WholeInput,
    without_result,
)
from evalq.evalcore.evaluators.vs.charts import CHARTS, opening
from evalq.evalcore.evaluators.vs.document import results_document
from evalq.evalcore.evaluators.vs.inputs import answered, complete, output_line, prompts, stopping
from evalq.evalcore.evaluators.vs.markdown import markdown
from evalq.evalcore.evaluators.vs.measures import MEASURES
from evalq.evalcore.evaluators.vs.metrics import METRICS
from evalq.evalcore.evaluators.vs.panels import PANELS
from evalq.evalcore.evaluators.vs.params import LEVELS, VsParams
from evalq.evalcore.evaluators.vs.record import record_line
from evalq.evalcore.evaluators.vs.rows import ROWS
from evalq.evalcore.evaluators.vs.sample import write_sample
from evalq.evalcore.evaluators.vs.score import judge_for
from evalq.evalcore.evaluators.vs.section import case_failed, vs_section
from evalq.evalcore.evaluators.vs.state import Gatherer, VsState
from evalq.evalcore.model.calls import count_cuts
from evalq.evalcore.model.canonical import Json
from evalq.evalcore.model.tally import LISTED, Faults, Tally

__all__ = ["VsEvaluator", "evaluator"]


def settle(state: VsState, params: VsParams, reopen: Callable[[], BinaryIO], scratch: Path) -> VsState:
    """Where a (case, repeat) came more than once, count again from the input, its first output alone."""
    if not state.overlap:
        return state
    settled, repeated = count_first(judge_for(params).test, Gatherer(), reopen, state.last, state.dead)
    settled.repeated, settled.dead = repeated, state.dead
    return settled


def dead_output(record: Batch, params: VsParams, reason: str) -> Outcome[VsState]:
    """An output without a result, which repeats no other."""
    return without_result(VsState(dead=[record.first_line]), record, reason)


class VsEvaluator(Evaluator[VsParams, VsState]):
    """Holds recorded outputs of agents against a golden set, and repeated ones against mode collapse."""

    name = "vs"
    version = "4"
    summary = "Test agents' outputs against a golden set of verbalized-sampling cases, and find mode collapse."
    records = Records(unit="outputs")
    Params = VsParams
    State = VsState
    command = CommandLine(
        positional="golden",
        request=complete,
        options=(
            Option(
                ("--outputs",),
                "Recorded outputs: JSONL of {case, repeat, output}, or a folder of JSON files; may be repeated.",
                "path",
                many=True,
            ),
            Option(("--registry",), "Agents and their levels, in place of the registry that comes along.", "path"),
            Option(("--all",), "Every case of the golden set (the default).", "bool"),
            Option(("--agent",), "Only the cases of this agent (its id or the number that it begins with)."),
            Option(("--level",), "Only the cases of this level.", choices=tuple(level.name for level in LEVELS)),
        ),
    )
    measures = MEASURES
    views = Views(
        METRICS,
        PANELS,
        markdown,
        document=results_document,
        summary=opening,
        charts=CHARTS,
        rows=ROWS,
        at_times=("stopping",),
        failed=case_failed,
    )
    sample = Sample(write_sample, records=1_500)
    gathering = Gathering((".json",), output_line)
    calls = Calls("target", prompts, answered, answers_suffice=True, repeats=True, stopping=stopping)
    whole = WholeInput(settle, leave_out_repeated, dead_output)

    def evaluate(self, batch: Batch, params: VsParams) -> Outcome[VsState]:
        """Test every line of a chunk."""
        judge, gatherer, tally = judge_for(params), Gatherer(), Tally()
        lines: list[bytes] = []
        faults: list[tuple[int, str]] = []
        for number, data in batch.lines():
            test = judge.test(data)
            gatherer.add(number, test)
            count_cuts(data, number, tally.left_out)
            lines.append(record_line(batch.where(number), test))
            if test.status == "ERROR":
                tally.errors += 1
                faults.append((number, test.findings[0].issue))
            elif test.status == "SKIPPED":
                tally.unscored += 1
            else:
                tally.scored += 1
        tally.listed = Faults(len(faults), faults[:LISTED])
        return Outcome(gatherer.finish(), tally, lines)

    def section(self, results: Sequence[InputResult[VsState]], params: VsParams) -> dict[str, Json]:
        """The specification's result format, and mode collapse by case."""
        return vs_section(results, params)


evaluator = VsEvaluator()
