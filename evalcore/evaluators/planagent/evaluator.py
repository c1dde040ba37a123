"""The plan agent's row score as an evaluator: its calls, measures, options and whole-input results."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, BinaryIO

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
    WholeInput,
    without_result,
)
from evalq.evalcore.contract.measures import Measure, Measures, Number, Observation
from evalq.evalcore.errors import InputChanged
from evalq.evalcore.evaluators.planagent.chunk import NO_ROUNDS, QUERY
from evalq.evalcore.evaluators.planagent.compiled import evaluate_batch
from evalq.evalcore.evaluators.planagent.judging import add_scores, judge_prompt, prompts
from evalq.evalcore.evaluators.planagent.markdown import LANGUAGES
from evalq.evalcore.evaluators.planagent.params import PlanParams
from evalq.evalcore.evaluators.planagent.queries import Queries, RepeatedRow, RoundPairs, kept_name
from evalq.evalcore.evaluators.planagent.record import COLUMNS, READ, shortened
from evalq.evalcore.evaluators.planagent.report import PlanState, file_section
from evalq.evalcore.evaluators.planagent.sample import write_sample
from evalq.evalcore.evaluators.planagent.views import VIEWS
from evalq.evalcore.model.canonical import Json
from evalq.evalcore.model.manifest import MAX_RECORD_BYTES
from evalq.evalcore.model.state import EXAMPLES, LISTED, Faults

# Repeated rows of a Query ID and round: only the whole input shows them.

_SHOWN_NAME = 80
_QUERY, _ROUND = 0, 1
_NumberedRow = tuple[int, str, str]
"""(line, Query ID, round)"""


def settle_repeats(state: PlanState, params: PlanParams, reopen: Callable[[], BinaryIO], scratch: Path) -> PlanState:
    """Find the lines of the first repeated rows if the state does not have them. Raises InputChanged."""
    queries = state.queries
    if queries.pairs is not None and queries.pairs.repeated:
        queries.first_repeats = _first_repeats(queries, queries.pairs, reopen)
    return state


def list_repeats(result: InputResult[PlanState], params: PlanParams) -> list[bytes]:
    """List the rows that repeat a Query ID and round, and the Query IDs that consistency leaves out."""
    queries = result.state.queries
    total, first = queries.repeats()
    listed = [
        (
            repeat.line,
            f"Query ID {_quoted(repeat.query)} repeats round {_quoted(repeat.round)} of line {repeat.first_line}",
        )
        for repeat in first
    ]
    result.tally.listed.merge(Faults(total, listed))
    queries.drop_lines(first)
    review = queries.review(len(result.state.rounds), params.pass_mark)
    excluded = sorted({*review.short, *review.repeated})
    result.tally.left_out.add_all(QUERY, NO_ROUNDS, len(excluded), ((0, query) for query in excluded[:EXAMPLES]))
    return []


def _dead_row(record: Batch, params: PlanParams, reason: str) -> Outcome[PlanState]:
    """A row without a result; it does not count as a repeat."""
    return without_result(PlanState(queries=Queries(dead=[record.first_line])), record, reason)


def _quoted(text: str) -> str:
    return f'"{shortened(text, _SHOWN_NAME)}"'


def _first_repeats(queries: Queries, pairs: RoundPairs, reopen: Callable[[], BinaryIO]) -> list[RepeatedRow]:
    """The LISTED first repeated rows: one reading of the input finds them, and one the rows that they repeat.

    A single reading would have to keep the line of every row that could be repeated.
    """
    dead = set(queries.dead)
    wanted = min(LISTED, pairs.repeated)
    seen = RoundPairs()
    repeats: list[_NumberedRow] = []
    with reopen() as stream:
        rows = _read_rows(stream, dead)
        while len(repeats) < wanted and (row := next(rows, None)) is not None:
            if pairs.has_repeats(row[1]) and seen.add(row[1], row[2]):
                repeats.append(row)
    pairs_sought = {row[1:] for row in repeats}
    first: dict[tuple[str, str], int] = {}
    with reopen() as stream:
        rows = _read_rows(stream, dead)
        while len(first) < len(pairs_sought) and (row := next(rows, None)) is not None:
            if row[1:] in pairs_sought:
                first.setdefault(row[1:], row[0])
    if len(repeats) < wanted or len(first) < len(pairs_sought):
        raise InputChanged("the input changed before its repeated rows could be found in it: start the run again")
    return [RepeatedRow(line, query, round_, first[query, round_]) for line, query, round_ in repeats]


def _read_rows(stream: BinaryIO, dead: set[int]) -> Iterator[_NumberedRow]:
    """All scored rows, without the dead ones. They were read before, so none is broken."""
    # An answer's JSON may be longer than Python's limit of 128 KiB for a field.
    csv.field_size_limit(MAX_RECORD_BYTES)
    # Only line feeds end lines, as for the cutter; a dead row's bytes need not be UTF-8.
    reader = csv.reader(io.TextIOWrapper(stream, "utf-8-sig", "replace", newline="\n"))
    columns: list[str] = []
    query = round_ = line = 0
    while True:
        line = reader.line_num + 1
        try:
            row = next(reader)
        except StopIteration:
            return
        except csv.Error:
            continue  # a dead row may be anything
        if not columns:
            if any(map(str.strip, row)):
                # The file was replaced: too few repeats then raise InputChanged.
                if not {*READ} <= {*row}:
                    return
                columns = row
                query, round_ = columns.index(READ[_QUERY]), columns.index(READ[_ROUND])
        elif any(map(str.strip, row)) and line not in dead and len(row) == len(columns):
            yield line, row[query].strip(), kept_name(row[round_].strip())


# The measure for comparing two runs: a query's scores over its rounds.


def _observe(line: Mapping[str, Any]) -> Observation | None:
    """The row's case and score; None for an unscored row, which has no check that it could fail."""
    if line["status"] == "unscored":
        return None
    case = line.get("id") or ""
    # The report's accuracy, which the rules may take from an LLM.
    score = line.get("accuracy", line.get("score"))
    return Observation(case) if score is None else Observation(case, (float(score),), took=(line.get("seconds"),))


def _set_numbers(path: str) -> tuple[Number, ...]:
    """The numbers of a set of rows, at ``path`` in the results: of all rows, or of a round."""
    seconds = "seconds" if path == "set" else ""
    return (
        Number(f"{path}.records"),
        Number(f"{path}.scored", "higher"),
        Number(f"{path}.unscored", "lower", holds_missing=True),
        Number(f"{path}.seconds_excluded"),
        Number(f"{path}.score_counts.*"),
        Number(f"{path}.speed_counts.*"),
        Number(f"{path}.speed.mean_seconds", "lower", "mean" if seconds else "estimate", seconds),
        Number(f"{path}.speed.*", "higher", "estimate"),
        Number(f"{path}.stability.*", "higher", "estimate"),
        Number(f"{path}.accuracy", "higher", "estimate"),
        Number(f"{path}.accuracy_readings.*", "higher", "estimate"),
        Number(f"{path}.intent", "higher", "estimate"),
    )


_NUMBERS = (
    *_set_numbers("set"),
    *_set_numbers("rounds.*"),
    Number("consistency.score", "higher", "estimate"),
    Number("consistency.both_pass", "higher"),
    Number("consistency.both_fail", "lower"),
    Number("consistency.mixed", "lower"),
    Number("consistency.**"),
    Number("failures.rows", "lower"),
    Number("failures.no_check_passed", "lower"),
    Number("failures.share", "lower", "estimate"),
    Number("failures.**"),
    Number("low_scores.rows", "lower"),
    Number("low_scores.share", "lower", "estimate"),
    Number("low_scores.**"),
    Number("slow.rows", "lower"),
    Number("slow.share", "lower", "estimate"),
    Number("slow.**"),
    Number("unread.conditions", "lower", holds_missing=True),
    Number("unread.rows", "lower", holds_missing=True),
    Number("llm.unreadable", "lower", holds_missing=True),
    Number("llm.pairs"),
    Number("llm.kappa_pairs"),
    Number("llm.exact"),
    Number("llm.within_one"),
    Number("llm.*", kind="estimate"),
)
_MEASURES = Measures((Measure("set.accuracy", "score", 0.0, 5.0),), _observe, took=("seconds",), numbers=_NUMBERS)


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
            Option(("--lang",), "Language of the report and its page.", choices=LANGUAGES),
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
    measures = _MEASURES
    views = VIEWS
    sample = Sample(write_sample, records=50_000)
    calls = Calls("judge", prompts, add_scores)
    whole = WholeInput(settle_repeats, list_repeats, _dead_row)

    def evaluate(self, batch: Batch, params: PlanParams) -> Outcome[PlanState]:
        """Score the rows of one chunk."""
        return evaluate_batch(batch, params)

    def section(self, results: Sequence[InputResult[PlanState]], params: PlanParams) -> dict[str, Json]:
        """The results of one input; those of several under ``files``, by name."""
        sections = {result.name: file_section(result.state, params) for result in results}
        return {"files": sections} if len(sections) > 1 else next(iter(sections.values()))


evaluator = PlanAgent()
