"""Records that did not pass, with their reasons: the first of them in report.json, and as a table for people."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from evalq.evalcore.model.canonical import Json
from evalq.evalcore.model.manifest import location
from evalq.evalcore.model.state import Faults
from evalq.evalcore.views.markdown import table

__all__ = ["failed_section", "failed_table"]

_SHOWN = 20
_REASON = 200


def failed_section(inputs: Iterable[tuple[str, Faults]]) -> dict[str, Json]:
    """``total``, and the first of each input as {"record", "reason"}; ``inputs`` are pairs of name and failed lines."""
    given = list(inputs)
    return {
        "total": sum(failed.total for _, failed in given),
        "listed": [
            {"record": location(name, line), "reason": reason}
            for name, failed in given
            for line, reason in failed.first
        ],
    }


def failed_table(section: Mapping[str, Json]) -> list[str]:
    """The parts of a page about ``failed_section``; none where every record passed."""
    if not section["total"]:
        return []
    rows: list[tuple[object, ...]] = [
        (item["record"], item["reason"] if len(item["reason"]) <= _REASON else item["reason"][: _REASON - 1] + "…")
        for item in section["listed"][:_SHOWN]
    ]
    if section["total"] > len(rows):
        rows.append(("", f"and {section['total'] - len(rows)} more in records.jsonl"))
    return ["## Failed records\n", table(("record", "reason"), rows)]
