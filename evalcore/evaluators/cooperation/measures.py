"""What of event logs two runs are compared by: each log's rates, logs of the same name against each other."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from evalq.evalcore.contract.measures import Measure, Measures, Sighting

__all__ = ["MEASURES"]


def _see(line: Mapping[str, Any]) -> Sighting | None:
    case = line.get("id") or ""
    if line["status"] != "scored":
        return Sighting(case)
    return Sighting(case, (line["cooperation_rate"], line["gini_coefficient"]))


MEASURES = Measures(
    (Measure("cooperation_rate", "score"), Measure("gini_coefficient", "score", better="lower")),
    _see,
)
