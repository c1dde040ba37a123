"""The evaluation of outputs by cases with checks, as evalq runs it."""

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
    Further,
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
from evalq.evalcore.evaluators.checks.charts import CHARTS, opening
from evalq.evalcore.evaluators.checks.further import asking, to_ask
from evalq.evalcore.evaluators.checks.inputs import answered, complete, output_line, prompts, stopping
from evalq.evalcore.evaluators.checks.labelling.fallible import any_judged
from evalq.evalcore.evaluators.checks.labelling.shown import notices
from evalq.evalcore.evaluators.checks.markdown import markdown
from evalq.evalcore.evaluators.checks.measures import MEASURES
from evalq.evalcore.evaluators.checks.metrics import METRICS
from evalq.evalcore.evaluators.checks.panels import PANELS
from evalq.evalcore.evaluators.checks.params import ChecksParams
from evalq.evalcore.evaluators.checks.record import record_line
from evalq.evalcore.evaluators.checks.rows import ROWS
from evalq.evalcore.evaluators.checks.sample import write_sample
from evalq.evalcore.evaluators.checks.score import judge_for
from evalq.evalcore.evaluators.checks.section import case_failed, checks_section
from evalq.evalcore.evaluators.checks.state import ChecksState, Gatherer
from evalq.evalcore.model.calls import count_cuts
from evalq.evalcore.model.canonical import Json
from evalq.evalcore.model.state import LISTED, Faults, Tally

__all__ = ["ChecksEvaluator", "evaluator"]


def settle(state: ChecksState, params: ChecksParams, reopen: Callable[[], BinaryIO], scratch: Path) -> ChecksState:
    """Where a (case, repeat) came more than once, count again from the input, its first output alone."""
    if not state.overlap:
        return state
    settled, repeated = count_first(judge_for(params).test, Gatherer(), reopen, state.last, state.dead)
    settled.repeated, settled.dead = repeated, state.dead
    return settled


def dead_output(record: Batch, params: ChecksParams, reason: str) -> Outcome[ChecksState]:
    """An output without a result, which repeats no other."""
    return without_result(ChecksState(dead=[record.first_line]), record, reason)


class ChecksEvaluator(Evaluator[ChecksParams, ChecksState]):
    """Holds recorded or live outputs of any agent against cases with checks."""

    name = "checks"
    version = "2"
    summary = (
        "Check any agent's outputs, case by case: by text, JSON, numbers, tool calls, cost; repeated as often as asked."
    )
    records = Records(unit="outputs")
    Params = ChecksParams
    State = ChecksState
    command = CommandLine(
        positional="cases",
        request=complete,
        options=(
            Option(
                ("--outputs",),
                "Recorded outputs: JSONL of {case, repeat, output}, or a folder of .json, .txt or .md files, an output "
                "each; may be repeated.",
                "path",
                many=True,
            ),
            Option(
                ("--judge",),
                "Ask this target what checks of judges ask, unless they name another; with --outputs, about these.",
            ),
            Option(
                ("--against",),
                "Outputs of another run (outputs.jsonl): its answers to the same repeats, for checks prefer: true.",
                "path",
            ),
            Option(("--case-tag",), "Only the cases with this tag.", param="tag"),
            Option(
                ("--pass-rate",),
                "The pass rate, from 0 to 1, that a case without thresholds of its own has to reach.",
                "float",
                "pass_rate",
            ),
            Option(
                ("--diversity",),
                "Count answers by kind, and say whether they collapsed to one; of cases that say nothing of it.",
                "str",
                "diversity.by",
                choices=("text", "near", "embedding", "none"),
            ),
            Option(
                ("--embedder",),
                "Ask this target, of kind embeddings, for vectors of answers that are counted by embedding, unless "
                "their cases name another; with --outputs, of these.",
            ),
            Option(
                ("--labels",),
                "What people said of a random sample of the outputs: JSONL or CSV of case, repeat, check, passed.",
                "path",
            ),
            Option(
                ("--judges-decide",),
                "Let thresholds count that rest on judges with too few labelled verdicts.",
                "bool",
                "judges_decide",
            ),
        ),
    )
    measures = MEASURES
    views = Views(
        *(METRICS, PANELS, markdown, notices),
        summary=opening,
        charts=CHARTS,
        rows=ROWS,
        at_times=("diversity", "judges", "labels", "plain", "stopping"),
        failed=case_failed,
    )
    sample = Sample(write_sample, records=2_000)
    gathering = Gathering((".json", ".txt", ".md"), output_line)
    calls = Calls(
        *("target", prompts, answered),
        answers_suffice=True,
        repeats=True,
        stopping=stopping,
        further=Further(asking, to_ask, "judged.jsonl"),
    )
    whole = WholeInput(settle, leave_out_repeated, dead_output)

    def evaluate(self, batch: Batch, params: ChecksParams) -> Outcome[ChecksState]:
        """Judge every line of a chunk."""
        judge, gatherer, tally, apart = judge_for(params), Gatherer(), Tally(), any_judged(params)
        lines: list[bytes] = []
        faults: list[tuple[int, str]] = []
        for number, data in batch.lines():
            test = judge.test(data)
            gatherer.add(number, test)
            count_cuts(data, number, tally.left_out)
            lines.append(record_line(batch.where(number), test, apart=apart))
            if test.status == "error":
                tally.errors += 1
                faults.append((number, test.reason))
            elif test.status == "skipped":
                tally.unscored += 1
            else:
                tally.scored += 1
        tally.listed = Faults(len(faults), faults[:LISTED])
        return Outcome(gatherer.finish(), tally, lines)

    def section(self, results: Sequence[InputResult[ChecksState]], params: ChecksParams) -> dict[str, Json]:
        """Pass rates by case, tag and check, thresholds, and what outputs took."""
        return checks_section(results, params)


evaluator = ChecksEvaluator()
