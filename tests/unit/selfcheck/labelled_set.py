"""The older labelled set with its two halves, and what each list of signals reaches on it and on the labelled pairs.

    python -m tests.unit.selfcheck.labelled_set

prints the tables of docs/reference/selfcheck-effectiveness.md.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from evalq.evalcore.contract.evaluator import Batch, InputResult
from evalq.evalcore.evaluators import selfcheck
from evalq.evalcore.evaluators.selfcheck import SelfCheckParams
from tests.unit.selfcheck.pairs import PARTS, Features, feature_table, parts, separation

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


def table(splits: Mapping[str, list[bytes]], called: str) -> str:
    """A Markdown table: a row for each list, part of a set (``called`` part or half) and way of calling a record
    hallucinated.
    """
    head = [
        "list",
        called,
        "called hallucinated when",
        "true positive rate",
        "met",
        "false positive rate",
        "met",
        "precision",
    ]
    rows = [head, ["---"] * len(head)]
    for signals in LISTS:
        for part, lines in splits.items():
            labels = measured(lines, signals)
            for call, path in CALLS.items():
                block = labels[path[0]] if path else labels
                tpr, fpr, precision = block["tpr"], block["fpr"], block["precision"]
                rows.append([signals, part, call, _rate(tpr), tpr["met"], _rate(fpr), fpr["met"], _rate(precision)])
    return _markdown(rows)


def kind_table() -> str:
    """A Markdown table: of the open part, by kind of report, how many are suspected and how many do not pass."""
    given = parts()["open"]
    lines = selfcheck.evaluator.evaluate(Batch("pairs", 1, b"".join(given)), SelfCheckParams()).lines
    total, suspected, failed = Counter[tuple[bool, str]](), Counter[tuple[bool, str]](), Counter[tuple[bool, str]]()
    for record, line in zip(map(json.loads, given), map(json.loads, lines), strict=True):
        kind = (record["hallucinated"], record["kind"])
        total[kind] += 1
        suspected[kind] += bool(line["suspected"])
        failed[kind] += line["status"] != "passed"
    rows = [["label", "kind", "reports", "suspected", "check does not pass"], ["---"] * 5]
    for kind in sorted(total):
        name = "hallucinated" if kind[0] else "accurate"
        rows.append([name, kind[1], str(total[kind]), str(suspected[kind]), str(failed[kind])])
    return _markdown(rows)


def older_table() -> str:
    """A Markdown table: what the shape of a report alone tells in the older set."""
    given = [json.loads(line) for line in LABELLED.read_bytes().splitlines()]
    features: Features = {
        "evidence of type summary": lambda record: any(
            item["type"] == "summary" for item in record.get("evidence", ())
        ),
        "testOutput of one line": lambda record: len((record.get("testOutput") or "").splitlines()) == 1,
        "testOutput of at most 60 characters": lambda record: len(record.get("testOutput") or "") <= 60,
    }
    rows = [["feature", "hallucinated reports", "accurate reports", "Youden's J"], ["---"] * 4]
    for name, feature in features.items():
        share = {
            label: sum(feature(record) for record in given if record["hallucinated"] is label)
            / sum(record["hallucinated"] is label for record in given)
            for label in (True, False)
        }
        rows.append([name, f"{share[True]:.2f}", f"{share[False]:.2f}", f"{separation(feature, given):.2f}"])
    return _markdown(rows)


def sealed_digest() -> str:
    """SHA-256 of the sealed part's table: it changes only by a look that somebody must write down."""
    return hashlib.sha256(table({"sealed": parts()["sealed"]}, "part").encode()).hexdigest()


def looks_table() -> str:
    """A Markdown table: when somebody measured the sealed part, and what was changed afterwards."""
    rows = [["date", "commits on the branch", "figures", "why", "changed afterwards"], ["---"] * 5]
    looks = json.loads(PARTS.read_text())["looks"]
    rows += [[one["date"], str(one["commits"]), one["figures"][:12], one["why"], one["changed"]] for one in looks]
    return _markdown(rows)


def tables() -> list[str]:
    """All tables of the page, in its order."""
    return [
        feature_table(),
        looks_table(),
        table(parts(), "part"),
        kind_table(),
        older_table(),
        table(halves(), "half"),
    ]


def _markdown(rows: list[list[str]]) -> str:
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


def _rate(rate: dict[str, Any]) -> str:
    if rate["value"] is None:  # a precision where nothing was called
        return "-"
    return f"{rate['value']:.2f} ({rate['low']:.2f} to {rate['high']:.2f})"


if __name__ == "__main__":
    print("\n\n".join(tables()))  # noqa: T201 - that is what it is for
