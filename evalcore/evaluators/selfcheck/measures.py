"""What of completion reports two runs are compared by: whether a task's report passes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from evalq.evalcore.contract.measures import Measure, Measures, Sighting
from evalq.evalcore.records.lines import line_ids

__all__ = ["MEASURES"]


def _see(line: Mapping[str, Any]) -> Sighting | None:
    case, status = line.get("id") or "", line["status"]
    return Sighting(case, (float(status == "passed"),)) if status in ("passed", "failed") else Sighting(case)


MEASURES = Measures((Measure("pass_rate"),), _see, named=lambda batch, params: line_ids(batch))
