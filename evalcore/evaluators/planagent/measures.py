"""What of a plan agent's results two runs are compared by: a query's scores, over its rounds."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from evalq.evalcore.contract.measures import Measure, Measures, Number, Observation

__all__ = ["MEASURES"]


def _see(line: Mapping[str, Any]) -> Observation | None:
    """A row whose expectation nobody can read is about no case: there is nothing that it could have failed."""
    if line["status"] == "unscored":
        return None
    case = line.get("id") or ""
    # What stands for accuracy in the report, which the rules may take from an LLM.
    score = line.get("accuracy", line.get("score"))
    return Observation(case) if score is None else Observation(case, (float(score),), took=(line.get("seconds"),))


def _of_set(place: str) -> tuple[Number, ...]:
    """What the results have of a set of rows, be it all of them or a round's."""
    seconds = "seconds" if place == "set" else ""
    return (
        Number(f"{place}.records"),
        Number(f"{place}.scored", "higher"),
        Number(f"{place}.unscored", "lower", holds_missing=True),
        Number(f"{place}.seconds_excluded"),
        Number(f"{place}.score_counts.*"),
        Number(f"{place}.speed_counts.*"),
        Number(f"{place}.speed.mean_seconds", "lower", "mean" if seconds else "estimate", seconds),
        Number(f"{place}.speed.*", "higher", "estimate"),
        Number(f"{place}.stability.*", "higher", "estimate"),
        Number(f"{place}.accuracy", "higher", "estimate"),
        Number(f"{place}.accuracy_readings.*", "higher", "estimate"),
        Number(f"{place}.intent", "higher", "estimate"),
    )


_NUMBERS = (
    *_of_set("set"),
    *_of_set("rounds.*"),
    Number("consistency.score", "higher", "estimate"),
    Number("consistency.both_pass", "higher"),
    Number("consistency.both_fail", "lower"),
    Number("consistency.mixed", "lower"),
    Number("consistency.**"),
    Number("failures.rows", "lower"),
    Number("failures.no_check_passed", "lower"),
    Number("failures.share", "lower", "estimate"),
    Number("failures.**"),
    Number("low_scores.rows", "lower"),
    Number("low_scores.share", "lower", "estimate"),
    Number("low_scores.**"),
    Number("slow.rows", "lower"),
    Number("slow.share", "lower", "estimate"),
    Number("slow.**"),
    Number("unread.conditions", "lower", holds_missing=True),
    Number("unread.rows", "lower", holds_missing=True),
    Number("llm.unreadable", "lower", holds_missing=True),
    Number("llm.pairs"),
    Number("llm.kappa_pairs"),
    Number("llm.exact"),
    Number("llm.within_one"),
    Number("llm.*", kind="estimate"),
)
MEASURES = Measures((Measure("set.accuracy", "score", 0.0, 5.0),), _see, took=("seconds",), numbers=_NUMBERS)
