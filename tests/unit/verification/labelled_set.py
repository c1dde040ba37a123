"""The labelled pairs of transcripts, and how far scores and layout tell them apart.

    python -m tests.unit.verification.labelled_set

prints the tables of docs/reference/verification-effectiveness.md.
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

from evalq.evalcore.contract.evaluator import Batch, InputResult
from evalq.evalcore.evaluators import verification
from evalq.evalcore.evaluators.verification import VerificationParams, score_verification
from tests.unit.layout import auc, layout_auc

FOLDER = Path(verification.__file__).parent
PAIRS = FOLDER / "labelled" / "pairs.jsonl"
OLDER = FOLDER / "examples" / "labelled.jsonl"
DIGEST = "001f49e30b9e05315521338e88c17d2f05d33bb15e0334bef44cce76a0f17fbc"
"""SHA-256 of the pairs' file, which was written before anything was measured on it."""
SETS = ("default", "hardened")


def records(path: Path = PAIRS) -> list[dict[str, Any]]:
    """The records of a set in the order of the file."""
    return [json.loads(line) for line in path.read_bytes().splitlines()]


def by_task() -> dict[str, dict[bool, str]]:
    """{task: {verified: transcript}}."""
    found: dict[str, dict[bool, str]] = {}
    for record in records():
        found.setdefault(record["task"], {})[record["compliant"]] = record["actual_output"]
    return found


def measured(path: Path, patterns: str) -> dict[str, Any]:
    """``labels.by_score`` of the report on a set."""
    params = VerificationParams.model_validate({"patterns": patterns})
    outcome = verification.evaluator.evaluate(Batch(path.name, 1, path.read_bytes()), params)
    result = InputResult(path.name, path.name, outcome.state, outcome.tally)
    found: dict[str, Any] = verification.evaluator.section([result], params)["labels"]["by_score"]
    return found


def separation_table() -> str:
    """A Markdown table: how far scores, and layout alone, tell verified transcripts from others."""
    rows = [["set", "transcripts", "by the score, default", "by the score, hardened", "by layout alone"], ["---"] * 5]
    for name, path in (("pairs", PAIRS), ("older set", OLDER)):
        given = records(path)
        labels, texts = [record["compliant"] for record in given], [record["actual_output"] for record in given]
        found = [auc(labels, [score_verification(text, patterns=each).score for text in texts]) for each in SETS]
        groups = [record.get("task", record["id"]) for record in given]
        found.append(layout_auc([[text] for text in texts], labels, groups))
        rows.append([name, str(len(given)), *(f"{value:.2f}" for value in found)])
    return _markdown(rows)


def call_table() -> str:
    """A Markdown table: how many unverified transcripts do not pass, and how many verified ones do not either."""
    rows = [["set", "patterns", "unverified that do not pass", "verified that do not pass"], ["---"] * 4]
    for name, path in (("pairs", PAIRS), ("older set", OLDER)):
        for patterns in SETS:
            found = measured(path, patterns)
            rows.append([name, patterns, _rate(found["tpr"]), _rate(found["fpr"])])
    return _markdown(rows)


def tables() -> list[str]:
    """All tables of the page, in its order."""
    return [separation_table(), call_table()]


def _rate(rate: dict[str, Any]) -> str:
    return f"{rate['value']:.2f} ({rate['low']:.2f} to {rate['high']:.2f})"


def _markdown(rows: list[list[str]]) -> str:
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


def digest() -> str:
    """SHA-256 of the pairs' file as it is."""
    return hashlib.sha256(PAIRS.read_bytes()).hexdigest()


if __name__ == "__main__":
    print("\n\n".join(tables()))  # noqa: T201 - that is what it is for
