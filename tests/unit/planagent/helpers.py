"""Making small plan-agent CSVs and evaluating them."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from evalq.evalcore.contract.evaluator import Batch, Outcome
from evalq.evalcore.evaluators.planagent import PlanParams, PlanState, evaluator
from evalq.evalcore.fold import Evaluation, evaluate_files

COLUMNS = (
    "Run ID",
    "Item ID",
    "Query ID",
    "질의",
    "기대결과",
    "카테고리",
    "방/반복",
    "오류",
    "LLM 상태",
    "LLM 점수",
    "LLM 코멘트",
    "Raw JSON",
)
SELECT_CHECK = '1) dataUIList 내 formType 값이 "SELECT"인 항목이 존재하는가'
TWO_CHECKS = SELECT_CHECK + '\n2) 해당 항목의 actionType 값이 "GO"인가'

Row = dict[str, str]


def answer(message: str = "네", items: Sequence[Any] = (), seconds: Any = 6.0, **more: Any) -> str:
    """Raw JSON of an answer whose items have the given uiValue objects."""
    ui = [{"uiDescription": "-", "uiValue": value} for value in items]
    return json.dumps({"assistantMessage": message, "dataUIList": ui, "responseTimeSec": seconds, **more})


def row(
    query: str = "q", round_: str = "1/1", expected: str = SELECT_CHECK, raw: str | None = None, **more: str
) -> Row:
    """One row; ``more`` gives further columns: error, category, llm, state, comment."""
    names = {"error": "오류", "category": "카테고리", "llm": "LLM 점수", "state": "LLM 상태", "comment": "LLM 코멘트"}
    raw = answer(items=[{"formType": "SELECT"}]) if raw is None else raw
    given = {"Query ID": query, "방/반복": round_, "기대결과": expected, "Raw JSON": raw}
    return dict.fromkeys(COLUMNS, "") | given | {names[key]: value for key, value in more.items()}


def to_csv(rows: Sequence[Row], columns: Sequence[str] = COLUMNS) -> str:
    """The rows as a CSV with a header."""
    stream = io.StringIO()
    writer = csv.DictWriter(stream, columns, lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return stream.getvalue()


def batch_of(rows: Sequence[Row], first_line: int = 2) -> Batch:
    """The rows as one chunk behind a header."""
    body = to_csv(rows).partition("\n")[2]
    return Batch("plan.csv", first_line, body.encode(), COLUMNS)


def evaluate(rows: Sequence[Row], **params: Any) -> Outcome[PlanState]:
    """The answer to one chunk of ``rows``."""
    return evaluator.evaluate(batch_of(rows), PlanParams.model_validate(params))


def evaluation(
    folder: Path, rows: Sequence[Row], params: Mapping[str, Any] | None = None, chunk_size: int | None = None
) -> Evaluation:
    """Evaluate ``rows`` from a file "plan.csv" in ``folder``."""
    path = folder / "plan.csv"
    path.write_text(to_csv(rows), encoding="utf-8", newline="")
    return evaluate_files(evaluator, [path], params, chunk_size=chunk_size)
