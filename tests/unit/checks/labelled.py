"""Outputs with what a judge said of them, and labels of people."""

from __future__ import annotations

import json
from functools import cache
from typing import Any

from evalq.evalcore.evaluators.checks.answer import text_digest
from evalq.evalcore.evaluators.checks.score import OutputScorer
from tests.unit.checks.helpers import line, params_of

RUBRIC: dict[str, Any] = {"rubric": "It is polite.", "name": "polite"}
CASES: list[dict[str, Any]] = [
    *({"id": f"m{at}", "checks": [RUBRIC, {"max-length": 20}], "weight": 1 + at % 2} for at in range(4)),
    {"id": "only", "checks": [{**RUBRIC, "weight": 2}]},
    {"id": "plain", "checks": [{"contains": "yes"}]},
    {"id": "shown", "checks": [{**RUBRIC, "weight": 0}, {"contains": "yes"}]},
]
"""Cases of both kinds of checks, of one, and one whose judge only shows what it thinks."""


MARKER = "0123456789abcdef"
"""That of every prompt here: nobody was asked."""


@cache
def _key() -> str:
    plan = OutputScorer(params_of([CASES[0]])).plan("m0")
    assert plan is not None
    return next(iter(plan.questions))


def judgement(output: str, passed: bool) -> dict[str, Any]:
    """What a judge said of an output."""
    names = {"check": _key(), "about": text_digest(output), "judge": "grader", "config": "c0ffee", "marker": MARKER}
    return {**names, "output": {"marker": MARKER, "pass": passed}}


def judged_line(case: str, repeat: int, passed: bool, output: str = "yes", labels: Any = None) -> bytes:
    """A recorded output that a judge passed or not, and what people said of it."""
    said = {} if labels is None else {"labels": labels}
    return line(case, repeat, output, judgements=[judgement(output, passed)], **said)


def labels_file(rows: list[tuple[str, int, str, bool]]) -> str:
    """JSONL of labels."""
    names = ("case", "repeat", "check", "passed")
    return "".join(json.dumps(dict(zip(names, row, strict=True))) + "\n" for row in rows)
