"""The labelled set is the one fixed before any list was tuned, and the page tells what the lists reach on it."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import pytest

from evalq.evalcore.evaluators.selfcheck.evidence import read_record, scanned_text
from evalq.evalcore.records.json_values import read_object
from tests.unit.selfcheck.labelled_set import HALVES, LABELLED, LISTS, halves, measured, sealed_digest, tables
from tests.unit.selfcheck.pairs import PARTS, parts

PAGE = Path(__file__).parents[3] / "docs" / "reference" / "selfcheck-effectiveness.md"


def test_the_halves_have_the_digests_that_were_written_down() -> None:
    """Neither the set nor the split can change behind the figures."""
    stored = json.loads(HALVES.read_text())
    for half, lines in halves().items():
        assert stored[half] == {"records": len(lines), "sha256": hashlib.sha256(b"".join(lines)).hexdigest()}


def test_the_set_is_what_the_specification_asks_for() -> None:
    """50 and 50, all readable, of many lengths, ids unique, some in Korean; half of each label in each half."""
    records = [read_object(line) for line in LABELLED.read_bytes().splitlines()]
    assert [sum(r["hallucinated"] is label for r in records) for label in (True, False)] == [50, 50]
    assert len({record["id"] for record in records}) == 100
    texts = [scanned_text(read_record(record).evidence) for record in records]
    assert len(set(texts)) == 100
    assert min(map(len, texts)) < 60
    assert max(map(len, texts)) > 400
    assert 15 <= sum(any("가" <= char <= "힣" for char in text) for text in texts) <= 40
    for lines in halves().values():
        assert sum(json.loads(line)["hallucinated"] for line in lines) == len(lines) / 2 == 25


@pytest.mark.parametrize("signals", LISTS)
@pytest.mark.parametrize("half", ["A", "B"])
def test_the_figures_are_counts_of_records(signals: str, half: str) -> None:
    """Every rate is the counts' own, by verdict and by signal."""
    labels = measured(halves()[half], signals)
    for block in (labels, labels["any_signal"]):
        counts = block["counts"]
        assert counts["true_positives"] + counts["false_negatives"] == 25
        assert block["tpr"]["value"] == counts["true_positives"] / 25
        assert block["fpr"]["value"] == counts["false_positives"] / 25


def test_the_page_shows_the_figures_as_they_are() -> None:
    """The tables in the documentation are those that these sets, lists and rules give now."""
    page = PAGE.read_text()
    for table in tables():
        assert table in page


def test_every_look_at_the_sealed_part_is_written_down() -> None:
    """The sealed part gives the figures of the last look listed: whatever changes them is a further look."""
    looks = json.loads(PARTS.read_text())["looks"]
    assert looks[-1]["figures"] == sealed_digest()
    assert [look["date"] for look in looks] == sorted(look["date"] for look in looks)


@pytest.mark.parametrize("part", ["open", "sealed"])
def test_the_pairs_have_as_many_of_each_label(part: str) -> None:
    """Each call is counted over all pairs of the part: half of its records are hallucinated."""
    lines = parts()[part]
    labels = measured(lines, "default")
    for block in (labels, labels["any_signal"], labels["suspected"]):
        counts = block["counts"]
        assert counts["true_positives"] + counts["false_negatives"] == len(lines) / 2
        assert counts["false_positives"] + counts["true_negatives"] == len(lines) / 2
