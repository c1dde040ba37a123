"""The labelled pairs (an accurate and a hallucinated report of one task), their split, and what tells them apart."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from typing import Any

from evalq.evalcore.evaluators import selfcheck
from tests.unit.layout import layout_auc

FOLDER = Path(selfcheck.__file__).parent / "labelled"
"""Not among the examples, which many tests evaluate: each of them would look at the sealed part."""
PAIRS = FOLDER / "pairs.jsonl"
PARTS = FOLDER / "pairs.json"
KEYS = ("testOutput", "testsPassed", "requirementsList", "assumptions", "evidence", "codeChanges")

Plain = dict[str, Any]
Features = dict[str, Callable[[Plain], float]]


def records() -> list[Plain]:
    """All records in the order of the file."""
    return [json.loads(line) for line in PAIRS.read_bytes().splitlines()]


def by_pair() -> list[tuple[Plain, Plain]]:
    """(accurate, hallucinated) of each pair."""
    found: dict[tuple[str, int], dict[bool, Plain]] = {}
    for record in records():
        found.setdefault((record["task"], record["pair"]), {})[record["hallucinated"]] = record
    return [(both[False], both[True]) for both in found.values()]


def parts() -> dict[str, list[bytes]]:
    """The lines of the open and the sealed part, by the rule in pairs.json: no task is in both."""
    lines = PAIRS.read_bytes().splitlines(keepends=True)
    own = [json.loads(line)["task"] for line in lines]
    order = sorted(set(own), key=lambda task: hashlib.sha256(task.encode()).hexdigest())
    sealed = set(order[: json.loads(PARTS.read_text())["sealed"]["tasks"]])
    return {
        "open": [line for line, task in zip(lines, own, strict=True) if task not in sealed],
        "sealed": [line for line, task in zip(lines, own, strict=True) if task in sealed],
    }


def sizes(record: Plain) -> tuple[int, int]:
    """Characters of the test output, and of all that the agent wrote to back its claim."""
    output = len(record.get("testOutput", ""))
    return output, output + sum(len(text) for text in _others(record))


def separation(feature: Callable[[Plain], float], of: Iterable[Plain]) -> float:
    """Youden's J (true positive rate less false positive rate) of the best threshold on ``feature``, either way."""
    values: dict[bool, list[float]] = {True: [], False: []}
    for record in of:
        values[record["hallucinated"]].append(float(feature(record)))

    def share(label: bool, least: float) -> float:
        return sum(value >= least for value in values[label]) / len(values[label])

    return max(abs(share(True, at) - share(False, at)) for at in {*values[True], *values[False]})


def pairs_layout_auc() -> float:
    """How far a classifier that sees no word tells the labels apart: .5 is chance."""
    given = records()
    texts = [[record.get("testOutput", ""), *_others(record)] for record in given]
    return layout_auc(texts, [record["hallucinated"] for record in given], [record["task"] for record in given])


def _others(record: Plain) -> list[str]:
    texts = [item["content"] for item in record.get("evidence", ())]
    texts += [item["assumption"] for item in record.get("assumptions", ())]
    return texts + [item["diff"] for item in record.get("codeChanges", ())]


def _digits(record: Plain) -> int:
    text = "\n".join([record.get("testOutput", ""), *_others(record)])
    return sum(char.isdigit() for char in text)


def _has(key: str, record: Plain) -> bool:
    return key in record


def _has_type(name: str, record: Plain) -> bool:
    return any(item["type"] == name for item in record.get("evidence", ()))


def _features() -> Features:
    types = sorted({item["type"] for record in records() for item in record.get("evidence", ())})
    found: Features = {f"has {key}": partial(_has, key) for key in KEYS}
    found |= {f"evidence of type {name}": partial(_has_type, name) for name in types}
    return found | {
        "length of testOutput": lambda record: sizes(record)[0],
        "length of all text": lambda record: sizes(record)[1],
        "lines of testOutput": lambda record: len(record.get("testOutput", "").splitlines()),
        "testOutput of one line": lambda record: len(record.get("testOutput", "").splitlines()) == 1,
        "number of requirements": lambda record: len(record["requirementsList"]),
        "pieces of evidence": lambda record: len(record.get("evidence", ())),
        "testsPassed": lambda record: record["testsPassed"],
    }


BOUNDED = _features()
"""What must not tell the labels apart: the shape of a record."""

CONTENT: Features = {
    "digits in all text": _digits,
    "an assumption not verified": lambda record: any(not item["verified"] for item in record.get("assumptions", ())),
    "a requirement not met": lambda record: any(not item["met"] for item in record["requirementsList"]),
}
"""What a report says; it may tell them apart, and the page says how far."""


def feature_table() -> str:
    """A Markdown table: the five features of shape that separate best, and those of content."""
    given = records()
    shape = sorted(((separation(feature, given), name) for name, feature in BOUNDED.items()), reverse=True)[:5]
    said = [(separation(feature, given), name) for name, feature in CONTENT.items()]
    rows = [("feature", "of", "Youden's J"), ("---", "---", "---")]
    rows += [("all of layout together (area under the curve, .5 is chance)", "shape", f"{pairs_layout_auc():.2f}")]
    rows += [(name, "shape", f"{value:.2f}") for value, name in shape]
    rows += [(name, "content", f"{value:.2f}") for value, name in said]
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)
