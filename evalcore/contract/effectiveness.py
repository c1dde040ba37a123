"""How well calls agree with labels: rates with intervals, held against targets."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

import msgspec
from pydantic import Field

from evalq.evalcore.contract.answers import Params
from evalq.evalcore.model.canonical import Json
from evalq.evalcore.model.state import Merging
from evalq.evalcore.statistics.exact import wilson
from evalq.evalcore.views.markdown import percent, table

__all__ = ["Confusion", "Targets", "effectiveness", "effectiveness_table", "met"]

_MEASURES = (
    ("tpr", "true positive rate", "at least"),
    ("fpr", "false positive rate", "at most"),
    ("precision", "precision", ""),
    ("recall", "recall", "at least"),
)


class Targets(Params):
    """What the specification's section 5.3 asks for, and the ``confidence`` of the intervals held against it."""

    true_positive_rate: float = Field(default=0.7, ge=0, le=1)
    false_positive_rate: float = Field(default=0.2, ge=0, le=1)
    confidence: float = Field(default=0.95, gt=0, lt=1)


class Confusion(Merging):
    """Labelled records by label and call; positive are those that are to be found: hallucinated, or not verified."""

    true_positives: int = 0
    false_positives: int = 0
    true_negatives: int = 0
    false_negatives: int = 0

    @property
    def total(self) -> int:
        """All labelled records."""
        return self.true_positives + self.false_positives + self.true_negatives + self.false_negatives

    def add(self, *, positive: bool, called: bool) -> None:
        """Count one record with its label and what it was called."""
        if positive:
            self.true_positives += called
            self.false_negatives += not called
        else:
            self.false_positives += called
            self.true_negatives += not called

    def merge(self, later: Confusion) -> None:
        """Take in further counts."""
        for name in self.__struct_fields__:
            setattr(self, name, getattr(self, name) + getattr(later, name))


def met(low: float, high: float, target: float, bound: Literal["least", "most"]) -> str:
    """Whether a share with this interval meets its target: "yes", "no", or "undecided" while the interval spans it."""
    # By the interval and not by the rate itself: a few records may reach any target by chance (SPEC, section 3).
    if bound == "least":
        return "yes" if low >= target else "no" if high < target else "undecided"
    return "yes" if high <= target else "no" if low > target else "undecided"


def effectiveness(counts: Confusion, targets: Targets) -> dict[str, Json]:
    """``tpr``, ``fpr``, ``precision``, ``recall`` (null where there is nothing to divide by) and the ``counts``."""
    positives = counts.true_positives + counts.false_negatives
    negatives = counts.false_positives + counts.true_negatives
    called = counts.true_positives + counts.false_positives
    caught = _rate(counts.true_positives, positives, targets.confidence, targets.true_positive_rate, "least")
    return {
        "tpr": caught,
        "fpr": _rate(counts.false_positives, negatives, targets.confidence, targets.false_positive_rate, "most"),
        # No target: the seed sets none for it.
        "precision": _rate(counts.true_positives, called, targets.confidence, None, "least"),
        # The same number under its other name, and a copy, so that changing one cannot change both.
        "recall": dict(caught),
        "counts": msgspec.to_builtins(counts),
    }


def _rate(
    hits: int, of: int, confidence: float, target: float | None, bound: Literal["least", "most"]
) -> dict[str, Json]:
    if of == 0:
        # Nothing to divide by meets no target, and misses none.
        empty = None if target is None else "undecided"
        return {"value": None, "low": None, "high": None, "target": target, "met": empty}
    low, high = wilson(hits, of, confidence)
    verdict = None if target is None else met(low, high, target, bound)
    return {"value": hits / of, "low": low, "high": high, "target": target, "met": verdict}


def effectiveness_table(measured: Mapping[str, Json]) -> str:
    """The four measures, each with its interval, its target and whether it is met."""
    rows: list[tuple[object, ...]] = []
    for key, name, bound in _MEASURES:
        rate = measured[key]
        interval = "-" if rate["low"] is None else f"{percent(rate['low'])} to {percent(rate['high'])}"
        target = "-" if rate["target"] is None else f"{bound} {percent(rate['target'])}"
        rows.append((name, percent(rate["value"]), interval, target, rate["met"] or "-"))
    return table(("measure", "value", "interval", "target", "met"), rows)
