"""A record: the columns of a row, and its line of records.jsonl."""

from __future__ import annotations

import msgspec

from evalq.evalcore.evaluators.planagent.llm import LlmScore

__all__ = ["COLUMNS", "READ", "RecordLine"]

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
"""What a CSV must have (the seed's section 1)."""

READ = ("Query ID", "방/반복", "기대결과", "카테고리", "오류", "Raw JSON", "LLM 점수", "LLM 상태", "LLM 코멘트")
"""What is read of a row to score it, in this order."""


class RecordLine(msgspec.Struct, gc=False):
    """One line of records.jsonl, keys in the specification's order.

    ``unread`` are conditions that no form reads. ``accuracy`` is the LLM's score, of a scored row that has one, where
    the rules take it for accuracy.
    """

    record: str
    id: str
    round: str
    status: str
    score: int | None
    checks: msgspec.Raw
    unread: tuple[str, ...] | msgspec.UnsetType = msgspec.UNSET
    seconds: float | None = None
    reason: str | msgspec.UnsetType = msgspec.UNSET
    llm_score: LlmScore | msgspec.UnsetType = msgspec.UNSET
    accuracy: float | msgspec.UnsetType = msgspec.UNSET
