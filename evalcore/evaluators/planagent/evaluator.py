"""The plan agent's row score as an evaluator: what reads, scores, merges and reports, put together."""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

from evalq.evalcore.contract.evaluator import Batch, Command, Evaluator, InputResult, Option, Outcome, Request
from evalq.evalcore.evaluators.planagent.answer import shortened
from evalq.evalcore.evaluators.planagent.gauges import METRICS
from evalq.evalcore.evaluators.planagent.judging import judged, prompts
from evalq.evalcore.evaluators.planagent.kernel import COLUMNS, evaluate_batch
from evalq.evalcore.evaluators.planagent.markdown import LANGUAGES, render
from evalq.evalcore.evaluators.planagent.panels import PANELS
from evalq.evalcore.evaluators.planagent.params import PlanParams
from evalq.evalcore.evaluators.planagent.prompt import judge_prompt
from evalq.evalcore.evaluators.planagent.queries import unpack_rows
from evalq.evalcore.evaluators.planagent.sample import write_rows
from evalq.evalcore.evaluators.planagent.section import file_section
from evalq.evalcore.evaluators.planagent.state import PlanState
from evalq.evalcore.model.calls import Prompt
from evalq.evalcore.model.canonical import Json
from evalq.evalcore.model.span import Format
from evalq.evalcore.model.tally import LISTED, Faults

__all__ = ["PlanAgent", "evaluator"]

SHOWN_NAME = 80


class PlanAgent(Evaluator[PlanParams, PlanState]):
    """Scores a plan agent's rows from 0 to 5 against the checklist in each row (seed 003)."""

    name: ClassVar[str] = "planagent"
    version: ClassVar[str] = "2"
    summary: ClassVar[str] = "Score a plan agent's rows (plan_agent_*.csv) from 0 to 5 against their checklists."
    format: ClassVar[Format] = "csv"
    columns: ClassVar[tuple[str, ...]] = COLUMNS
    unit: ClassVar[str] = "rows"
    asks: ClassVar[str] = "judge"
    demo_records: ClassVar[int] = 50_000
    options: ClassVar[tuple[Option, ...]] = (
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
    )
    commands: ClassVar[tuple[Command, ...]] = (
        Command(
            "planagent-prompt",
            "Print the prompt for scoring rows by a language model, which --judge sends with each row.",
            (Option(("--lang",), "Language of the prompt.", choices=LANGUAGES),),
            lambda options: judge_prompt(str(options.get("lang") or LANGUAGES[0])).rstrip("\n"),
        ),
    )
    metrics = METRICS
    panels = PANELS
    Params = PlanParams
    State = PlanState

    def prompts(self, asked: Request) -> Iterator[Prompt]:
        """The evaluation prompt of the seed's section 5, once a row."""
        return prompts(asked)

    def answered(self, asked: Request, outputs: Path, folder: Path) -> Request:
        """The rows with the judge's scores in their LLM columns."""
        return judged(asked, outputs, folder)

    def evaluate(self, batch: Batch, params: PlanParams) -> Outcome[PlanState]:
        """Score the rows of one chunk."""
        return evaluate_batch(batch, params)

    def close(self, result: InputResult[PlanState], params: PlanParams) -> list[bytes]:
        """List every row that repeats a Query ID and round."""
        queries = result.state.queries
        found = [
            (
                repeat.line,
                f"Query ID {_shown(repeat.query)} repeats round {_shown(repeat.round)} of line {repeat.first_line}",
            )
            for repeat in queries.repeats()
        ]
        for query, count in queries.dropped.items():
            *_, last = unpack_rows(queries.rows[query])
            found.append((last[2], f"Query ID {_shown(query)} has {count} more rows than can be compared"))
        result.tally.listed.merge(Faults(len(found), heapq.nsmallest(LISTED, found)))
        return []

    def section(self, results: Sequence[InputResult[PlanState]], params: PlanParams) -> dict[str, Json]:
        """One input's results as they are; several under ``files``, by name."""
        sections = {result.name: file_section(result.state, params) for result in results}
        return {"files": sections} if len(sections) > 1 else next(iter(sections.values()))

    def sample(self, folder: Path, records: int, seed: int) -> Request:
        """One file of made-up rows: ten rounds of each Query ID in a large one, two in a small one."""
        path = folder / "plan_agent_sample.csv"
        rounds = [f"{number}/1" for number in range(1, 11 if records >= 100_000 else 3)]
        with path.open("w", encoding="utf-8", newline="") as stream:
            write_rows(stream, records, seed, rounds=rounds)
        return Request([str(path)], {}, {})

    def markdown(self, report: Mapping[str, Json], options: Mapping[str, Any]) -> str:
        """The seed's template, in Korean unless ``options["lang"]`` is "en"; once a file."""
        return render(report, str(options.get("lang") or LANGUAGES[0]))


def _shown(text: str) -> str:
    return f'"{shortened(text, SHOWN_NAME)}"'


evaluator = PlanAgent()
