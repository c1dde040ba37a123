"""What of event logs two runs are compared by: each log's rates, logs of the same name against each other."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from evalq.evalcore.contract.measures import Measure, Measures, Number, Sighting

__all__ = ["MEASURES"]


def _see(line: Mapping[str, Any]) -> Sighting | None:
    case = line.get("id") or ""
    if line["status"] != "scored":
        return Sighting(case)
    return Sighting(case, (line["cooperation_rate"], line["gini_coefficient"]))


MEASURES = Measures(
    (Measure("cooperation_rate", "score"), Measure("gini_coefficient", "score", better="lower")),
    _see,
    # By log: one that is called by a name with dots, as files are, can be named by no path.
    numbers=(
        Number("logs.*.cooperation_rate", "higher", "estimate"),
        Number("logs.*.gini_coefficient", "lower", "estimate"),
        Number("logs.*.average_contribution", "higher", "estimate"),
        Number("logs.*.average_recovery_time", "lower", "estimate"),
        Number("logs.*.dialogue_entropy", kind="estimate"),
        Number("logs.**"),
    ),
)
