"""Rates, intervals and verdicts of labelled records, against plain arithmetic and known values."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evalq.evalcore.contract.claims import Confusion, Targets, compare_with_target, effectiveness
from evalq.evalcore.statistics.exact import wilson


@pytest.mark.parametrize(
    ("low", "high", "least", "most"),
    [
        (0.7, 0.9, "yes", "undecided"),
        (0.71, 0.9, "yes", "no"),
        (0.5, 0.69, "no", "yes"),
        (0.5, 0.7, "undecided", "yes"),
        (0.6, 0.8, "undecided", "undecided"),
        (0.2, 0.3, "no", "yes"),
    ],
)
def test_a_target_is_met_by_the_whole_interval_or_not_at_all(low: float, high: float, least: str, most: str) -> None:
    """At least .7: low end on it or above; at most .7: high end on it or below; spanning it: undecided."""
    assert compare_with_target(low, high, 0.7, "least") == least
    assert compare_with_target(low, high, 0.7, "most") == most


@given(st.lists(st.tuples(st.booleans(), st.booleans()), max_size=60))
def test_rates_are_what_counting_by_hand_gives(records: list[tuple[bool, bool]]) -> None:
    """Every rate and count, straight from the list of (label, call)."""
    counts = Confusion()
    for label, called in records:
        counts.add(positive=label, called=called)
    result = effectiveness(counts, Targets())
    tp = sum(label and called for label, called in records)
    fp = sum(called and not label for label, called in records)
    positives = sum(label for label, _ in records)
    negatives = len(records) - positives
    assert counts.total == len(records)
    assert result["tpr"]["value"] == (tp / positives if positives else None)
    assert result["recall"] == result["tpr"]
    assert result["fpr"]["value"] == (fp / negatives if negatives else None)
    assert result["precision"]["value"] == (tp / (tp + fp) if tp + fp else None)
    assert result["precision"]["target"] is None
    assert result["precision"]["met"] is None
    assert (result["tpr"]["target"], result["fpr"]["target"]) == (0.7, 0.2)
    if positives:
        assert (result["tpr"]["low"], result["tpr"]["high"]) == wilson(tp, positives)
    else:
        assert result["tpr"]["met"] == "undecided"


@given(st.lists(st.tuples(st.booleans(), st.booleans()), max_size=30), st.integers(0, 30))
def test_counts_merge_wherever_they_are_cut(records: list[tuple[bool, bool]], cut: int) -> None:
    """Two parts give what the whole gives."""
    whole, first, second = Confusion(), Confusion(), Confusion()
    for index, (label, called) in enumerate(records):
        for counts in (whole, first if index < cut else second):
            counts.add(positive=label, called=called)
    first.merge(second)
    assert first == whole


def test_targets_are_data() -> None:
    """Another target, another verdict."""
    counts = Confusion(true_positives=30, false_negatives=20, false_positives=1, true_negatives=49)
    assert effectiveness(counts, Targets())["tpr"]["met"] == "undecided"
    assert effectiveness(counts, Targets(true_positive_rate=0.4))["tpr"]["met"] == "yes"
    assert effectiveness(counts, Targets(false_positive_rate=0.001))["fpr"]["met"] == "no"
    assert effectiveness(counts, Targets())["fpr"]["met"] == "yes"
