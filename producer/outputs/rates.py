"""The rates over all outputs of a run, for those who are told a few numbers of it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

__all__ = ["rates_of"]


def rates_of(report: Mapping[str, Any]) -> dict[str, float]:
    """{name in the results: share} of a report; empty for an evaluator that has none."""
    results = report["results"]
    return {
        key: float(value)
        for key, value in (results.items() if isinstance(results, Mapping) else ())
        if key.endswith("_rate") and isinstance(value, int | float) and not isinstance(value, bool)
    }
