"""The labelled set, its two halves, and the table of what each list of signals reaches on them.

    python -m tests.unit.selfcheck.labelled_set

prints the table of docs/reference/selfcheck-effectiveness.md.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from evalcore.evaluator import Batch, InputResult
from evalcore.evaluators import selfcheck
from evalcore.evaluators.selfcheck import SelfCheckParams

__all__ = ["HALVES", "LABELLED", "LISTS", "halves", "measured", "table"]

EXAMPLES = Path(selfcheck.__file__).parent / "examples"
LABELLED = EXAMPLES / "labelled.jsonl"
HALVES = EXAMPLES / "halves.json"
LISTS = ("default", "extended", "calibrated")
CALLS = {"check does not pass": (), "any signal found": ("any_signal",), "suspected": ("suspected",)}


def halves() -> dict[str, list[bytes]]:
    """The lines of both halves, by the rule in halves.json."""
    lines = LABELLED.read_bytes().splitlines(keepends=True)
    records = [json.loads(line) for line in lines]
    first = set()
    for label in (True, False):
        ids = [record["id"] for record in records if record["hallucinated"] is label]
        ids.sort(key=lambda own: hashlib.sha256(own.encode()).hexdigest())
        first |= set(ids[:25])
    inside = [record["id"] in first for record in records]
    return {
        "A": [line for line, is_first in zip(lines, inside, strict=True) if is_first],
        "B": [line for line, is_first in zip(lines, inside, strict=True) if not is_first],
    }


def measured(lines: Iterable[bytes], signals: str) -> dict[str, Any]:
    """The ``labels`` block of the report on ``lines``."""
    params = SelfCheckParams.model_validate({"signals": signals})
    outcome = selfcheck.evaluator.evaluate(Batch("labelled.jsonl", 1, b"".join(lines)), params)
    result = InputResult("labelled.jsonl", "labelled.jsonl", outcome.state, outcome.tally)
    labels: dict[str, Any] = selfcheck.evaluator.section([result], params)["labels"]
    return labels


def table() -> str:
    """A Markdown table: a row for each list, half and way of calling a record hallucinated."""
    head = [
        "list",
        "half",
        "called hallucinated when",
        "true positive rate",
        "met",
        "false positive rate",
        "met",
        "precision",
    ]
    rows = [head, ["---"] * len(head)]
    parts = halves()
    for signals in LISTS:
        for half in ("A", "B"):
            labels = measured(parts[half], signals)
            for call, path in CALLS.items():
                block = labels[path[0]] if path else labels
                tpr, fpr, precision = block["tpr"], block["fpr"], block["precision"]
                rows.append([signals, half, call, _rate(tpr), tpr["met"], _rate(fpr), fpr["met"], _rate(precision)])
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


def _rate(rate: dict[str, Any]) -> str:
    return f"{rate['value']:.2f} ({rate['low']:.2f} to {rate['high']:.2f})"


if __name__ == "__main__":
    print(table())  # noqa: T201 - that is what it is for
