"""The labelled pairs are fixed, and their shape does not give the label away: only what a report says can."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from statistics import median

import pytest

from evalq.evalcore.evaluators.selfcheck.evidence import read_record
from evalq.evalcore.records.json_values import read_object
from tests.unit.selfcheck.pairs import (
    BOUNDED,
    PAIRS,
    PARTS,
    by_pair,
    pairs_layout_auc,
    parts,
    records,
    separation,
    sizes,
)

MOST = 0.15
"""Youden's J that no feature of shape may pass, on the whole set or on a part."""


def test_both_parts_have_the_digests_that_were_written_down() -> None:
    """Neither the set nor the split can change behind the figures; no task is in both parts."""
    stored = json.loads(PARTS.read_text())
    tasks = []
    for part, lines in parts().items():
        given = [json.loads(line) for line in lines]
        tasks.append({record["task"] for record in given})
        assert stored[part] == {
            "tasks": len(tasks[-1]),
            "records": len(lines),
            "hallucinated": sum(record["hallucinated"] for record in given),
            "sha256": hashlib.sha256(b"".join(lines)).hexdigest(),
        }
    assert not tasks[0] & tasks[1]
    assert len(tasks[1]) * 3 >= len(tasks[0] | tasks[1])


def test_every_task_has_accurate_and_hallucinated_reports() -> None:
    """At least 190 readable reports of 75 tasks, in pairs; a quarter in Korean; no two alike."""
    given = [read_object(line) for line in PAIRS.read_bytes().splitlines()]
    assert all(read_record(record).label is not None for record in given)
    assert len({record["id"] for record in given}) == len(given) >= 190
    assert len({record["task"] for record in given}) >= 75
    assert len(by_pair()) * 2 == len(given)
    said = [
        json.dumps({**record, "id": "", "kind": "", "hallucinated": None}, sort_keys=True, ensure_ascii=False)
        for record in given
    ]
    assert len(set(said)) == len(said)
    assert 0.2 <= sum(any("가" <= char <= "힣" for char in text) for text in said) / len(said) <= 0.3


def test_both_reports_of_a_pair_have_the_same_shape() -> None:
    """The same keys, types of evidence and requirements, and lengths within a quarter (or a word or two)."""
    for pair in by_pair():
        accurate, hallucinated = pair
        assert accurate.keys() == hallucinated.keys(), accurate["id"]
        one, other = ([item["type"] for item in record.get("evidence", ())] for record in pair)
        assert one == other, accurate["id"]
        one, other = ([item["requirement"] for item in record["requirementsList"]] for record in pair)
        assert one == other, accurate["id"]
        for low, high in map(sorted, zip(*map(sizes, pair), strict=True)):
            assert low >= 0.75 * high or high - low <= 8, accurate["id"]


def test_both_labels_have_outputs_of_all_lengths() -> None:
    """None, one line and many, as often; medians of the lengths within a tenth."""
    given = records()
    lines = {
        label: Counter(min(3, len(r.get("testOutput", "").splitlines())) for r in given if r["hallucinated"] is label)
        for label in (True, False)
    }
    assert lines[True] == lines[False]
    assert min(lines[True][count] for count in (0, 1, 3)) >= 10
    for index in (0, 1):
        low, high = sorted(
            median(sizes(r)[index] for r in given if r["hallucinated"] is label) for label in (True, False)
        )
        assert low >= 0.9 * high


@pytest.mark.parametrize("part", ["all", "open", "sealed"])
def test_no_feature_of_shape_separates_the_labels(part: str) -> None:
    """Keys, types, counts and lengths alone call next to nothing right, by their best threshold."""
    given = records() if part == "all" else [json.loads(line) for line in parts()[part]]
    found = {name: separation(feature, given) for name, feature in BOUNDED.items()}
    worst = max(found, key=lambda name: found[name])
    print(f"{part}: the worst is {worst}, J {found[worst]:.3f}")  # noqa: T201 - shown by pytest -s and on failure
    assert found[worst] <= MOST


def test_layout_alone_tells_next_to_nothing() -> None:
    """A classifier of all features of layout together is at chance; with the pairs that were taken out it was not."""
    assert 0.46 <= pairs_layout_auc() <= 0.54


def test_a_leak_would_be_found() -> None:
    """A feature that one label has and the other has not separates fully, either way round."""
    assert separation(lambda record: record["hallucinated"], records()) == 1
    assert separation(lambda record: not record["hallucinated"], records()) == 1
    assert separation(lambda record: 1, records()) == 0
