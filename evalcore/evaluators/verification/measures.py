"""What of transcripts two runs are compared by: whether one complies, and its score."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from evalq.evalcore.contract.claims import JUDGED_NUMBERS
from evalq.evalcore.contract.measures import Measure, Measures, Number, Sighting
from evalq.evalcore.records.lines import line_ids

__all__ = ["MEASURES"]


def _see(line: Mapping[str, Any]) -> Sighting | None:
    case, status = line.get("id") or "", line["status"]
    if status not in ("passed", "failed"):
        return Sighting(case)
    return Sighting(case, (float(status == "passed"), float(line["score"])))


_NUMBERS = (
    *JUDGED_NUMBERS,
    Number("passed", "higher"),
    Number("failed.total", "lower"),
    Number("unsubstantiated", "lower"),
    Number("bands.*"),
    Number("components.*", "higher", "estimate"),
    Number("labels.records"),
    Number("labels.agreement.same", "higher"),
    Number("labels.agreement.share", "higher", "estimate"),
    Number("labels.patterns.*.right", "higher"),
    Number("labels.patterns.*.share", "higher", "estimate"),
    Number("labels.**", kind="estimate"),
)
MEASURES = Measures(
    (Measure("pass_rate"), Measure("mean_score", "score")),
    _see,
    named=lambda batch, params: line_ids(batch),
    numbers=_NUMBERS,
)
