"""The plan agent's row score as an evaluator: what reads, scores, merges and reports, put together."""

from __future__ import annotations

from collections.abc import Sequence

from evalq.evalcore.contract.evaluator import (
    Batch,
    Calls,
    Command,
    CommandLine,
    Evaluator,
    InputResult,
    Option,
    Outcome,
    Records,
    Sample,
    Views,
    WholeInput,
)
from evalq.evalcore.evaluators.planagent.charts import CHARTS, opening
from evalq.evalcore.evaluators.planagent.fast import evaluate_batch
from evalq.evalcore.evaluators.planagent.judging import judge_prompt, judged, prompts
from evalq.evalcore.evaluators.planagent.markdown import LANGUAGES, markdown
from evalq.evalcore.evaluators.planagent.measures import MEASURES
from evalq.evalcore.evaluators.planagent.metrics import METRICS
from evalq.evalcore.evaluators.planagent.panels import PANELS
from evalq.evalcore.evaluators.planagent.params import PlanParams
from evalq.evalcore.evaluators.planagent.record import COLUMNS
from evalq.evalcore.evaluators.planagent.repeats import dead_row, list_repeats, settle_repeats
from evalq.evalcore.evaluators.planagent.rows import ROWS
from evalq.evalcore.evaluators.planagent.sample import write_sample
from evalq.evalcore.evaluators.planagent.section import file_section
from evalq.evalcore.evaluators.planagent.state import PlanState
from evalq.evalcore.model.canonical import Json

__all__ = ["PlanAgent", "evaluator"]


class PlanAgent(Evaluator[PlanParams, PlanState]):
    """Scores a plan agent's rows from 0 to 5 against the checklist in each row (seed 003)."""

    name = "planagent"
    version = "3"
    summary = "Score a plan agent's rows (plan_agent_*.csv) from 0 to 5 against their checklists."
    records = Records("csv", COLUMNS, "rows")
    Params = PlanParams
    State = PlanState
    command = CommandLine(
        options=(
            Option(("--lang",), "Language of the Markdown report.", choices=LANGUAGES),
            Option(
                ("--speed-reading",),
                "Speed in the printed table: the band of the mean seconds, or the mean of the rows' points.",
                param="rules.speed",
                choices=("band_of_mean", "mean_of_points"),
            ),
            Option(
                ("--stability-reading",),
                "Stability in the printed table: a score of 0 fails, or only an error, broken JSON or an empty answer.",
                param="rules.stability",
                choices=("score_zero", "error_or_empty"),
            ),
            Option(
                ("--accuracy-reading",),
                "Accuracy: the same score as intent, or the LLM's score in rows that have one.",
                param="rules.accuracy",
                choices=("heuristic", "llm_when_present"),
            ),
        ),
        commands=(
            Command(
                "planagent-prompt",
                "Print the prompt for scoring rows by a language model, which --judge sends with each row.",
                (Option(("--lang",), "Language of the prompt.", choices=LANGUAGES),),
                lambda options: judge_prompt(str(options.get("lang") or LANGUAGES[0])).rstrip("\n"),
            ),
        ),
    )
    measures = MEASURES
    views = Views(METRICS, PANELS, markdown, summary=opening, charts=CHARTS, rows=ROWS)
    sample = Sample(write_sample, records=50_000)
    calls = Calls("judge", prompts, judged)
    whole = WholeInput(settle_repeats, list_repeats, dead_row)

    def evaluate(self, batch: Batch, params: PlanParams) -> Outcome[PlanState]:
        """Score the rows of one chunk."""
        return evaluate_batch(batch, params)

    def section(self, results: Sequence[InputResult[PlanState]], params: PlanParams) -> dict[str, Json]:
        """One input's results as they are; several under ``files``, by name."""
        sections = {result.name: file_section(result.state, params) for result in results}
        return {"files": sections} if len(sections) > 1 else next(iter(sections.values()))


evaluator = PlanAgent()
