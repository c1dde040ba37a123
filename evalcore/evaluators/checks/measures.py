"""What of a checks run two runs are compared by: whether an output of a case passes, and its score."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from evalq.evalcore.contract.measures import Measure, Measures, Sighting
from evalq.evalcore.evaluators.checks.params import ChecksParams
from evalq.evalcore.evaluators.checks.score import judge_for
from evalq.evalcore.records.batch import Batch

__all__ = ["MEASURES"]


def _see(line: Mapping[str, Any]) -> Sighting | None:
    """An output that the selection leaves out is about no case."""
    if line["status"] == "skipped":
        return None
    case, repeat = line.get("id") or "", line.get("repeat")
    if line.get("passed") is None:
        return Sighting(case, repeat=repeat)
    return Sighting(case, (float(line["passed"]), float(line["score"])), repeat, line.get("kind"))


def _collapsed(report: Mapping[str, Any]) -> list[str]:
    entries = report["results"].get("diversity", {}).get("by_case", ())
    return [entry["case"] for entry in entries if entry["verdict"] == "collapsed"]


def _stopped(report: Mapping[str, Any]) -> list[str]:
    entries = report["results"]["by_case"]
    return [each["case"] for each in entries if "stop" in each and sum(each["outputs"].values()) < each["stop"]["of"]]


def _named(batch: Batch, params: ChecksParams) -> Iterator[str]:
    judge = judge_for(params)
    return filter(None, (judge.case(data) for _, data in batch.lines()))


MEASURES = Measures((Measure("pass_rate"), Measure("score", "score")), _see, _collapsed, _stopped, _named)
