"""Times as the ledger counts them: histograms with fixed buckets, as fields of one hash, whole numbers only."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Mapping

__all__ = ["SECONDS", "bucket", "counters"]

SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0)
"""Upper bounds of the buckets, in seconds; one more has no bound."""


def bucket(seconds: float) -> str:
    """The bucket a time falls into, by its upper bound: the lowest that is not below it."""
    at = bisect_left(SECONDS, seconds)
    return f"{SECONDS[at]:g}" if at < len(SECONDS) else "+Inf"


def counters(label: str, took: Mapping[str, float]) -> Iterator[str | int]:
    """Fields and what to add to them, in turn: "<name> <label> <bucket>" one, "<name> <label> sum" microseconds."""
    # Whole microseconds: HINCRBY adds them exactly in any order, HINCRBYFLOAT would not.
    for name, seconds in took.items():
        yield from (f"{name} {label} {bucket(seconds)}", 1, f"{name} {label} sum", round(seconds * 1_000_000))
