"""What of a plan agent's results two runs are compared by: a query's scores, over its rounds."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from evalq.evalcore.contract.measures import Measure, Measures, Sighting

__all__ = ["MEASURES"]


def _see(line: Mapping[str, Any]) -> Sighting | None:
    """A row whose expectation nobody can read is about no case: there is nothing that it could have failed."""
    if line["status"] == "unscored":
        return None
    case = line.get("id") or ""
    # What stands for accuracy in the report, which the rules may take from an LLM.
    score = line.get("accuracy", line.get("score"))
    return Sighting(case) if score is None else Sighting(case, (float(score),))


MEASURES = Measures((Measure("set.accuracy", "score", 0.0, 5.0),), _see)
