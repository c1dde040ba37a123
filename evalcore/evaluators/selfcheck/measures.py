"""What of completion reports two runs are compared by: whether a task's report passes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from evalq.evalcore.contract.claims import JUDGED_NUMBERS
from evalq.evalcore.contract.measures import Direction, Measure, Measures, Number, Sighting
from evalq.evalcore.records.lines import line_ids

__all__ = ["MEASURES"]


_RATES: Mapping[str, Direction] = {"tpr": "higher", "fpr": "lower", "precision": "higher", "recall": "higher"}


def _see(line: Mapping[str, Any]) -> Sighting | None:
    case, status = line.get("id") or "", line["status"]
    return Sighting(case, (float(status == "passed"),)) if status in ("passed", "failed") else Sighting(case)


_NUMBERS = (
    *JUDGED_NUMBERS,
    Number("passed", "higher"),
    Number("failed.total", "lower"),
    Number("unresolved", "lower"),
    Number("goals.*", "higher", "estimate"),
    Number("questions.*", "higher", "estimate"),
    Number("signals.**"),
    Number("suspected.records", "lower"),
    Number("suspected.**"),
    # Of labels: how well the rules find what people found, by these cases.
    *(
        Number(f"{place}.{name}.value", better, "estimate")
        for place in ("labels", "labels.*")
        for name, better in _RATES.items()
    ),
    Number("labels.counts.*"),
    Number("labels.*.counts.*"),
    Number("labels.**", kind="estimate"),
)
MEASURES = Measures((Measure("pass_rate"),), _see, named=lambda batch, params: line_ids(batch), numbers=_NUMBERS)
