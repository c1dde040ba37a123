"""What of a checks run two runs are compared by: whether an output of a case passes, and its score."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from evalq.evalcore.contract.measures import Judged, Measure, Measures, Number, Sighting, spread_of
from evalq.evalcore.evaluators.checks.params import ChecksParams
from evalq.evalcore.evaluators.checks.score import judge_for
from evalq.evalcore.model.canonical import canonical_json, digest
from evalq.evalcore.records.batch import Batch

__all__ = ["MEASURES"]

_APART = ("plain", "labels", "judges", "cases", "latency_seconds", "cost", "tokens", "usage")
"""What a fallible check has no part in."""


_TOOK = ("latency_seconds", "cost", "tokens")
_QUANTILES = {"p50": 0.5, "p90": 0.9, "p95": 0.95, "p99": 0.99}
_NUMBERS = (
    Number("outputs.passed", "higher"),
    Number("outputs.failed", "lower"),
    Number("outputs.errors", "lower", holds_missing=True),
    Number("outputs.*"),
    Number("cases.answered", "higher"),
    Number("cases.unrecorded", "lower", holds_missing=True),
    Number("cases.*"),
    Number("thresholds.holds", "higher"),
    Number("thresholds.fails", "lower"),
    Number("thresholds.*"),
    *(number for name in _TOOK for number in spread_of(name, _QUANTILES)),
    Number("plain.outputs.passed", "higher"),
    Number("plain.outputs.failed", "lower"),
    Number("plain.*", kind="estimate"),
    Number("labels.used"),
    Number("labels.**", kind="estimate"),
    Number("pass_rate_interval.*", "higher", "estimate"),
    Number("diversity.verdicts.collapsed", "lower"),
    Number("diversity.verdicts.diverse", "higher"),
    Number("diversity.verdicts.*"),
    Number("diversity.collision_probability.*", kind="estimate"),
    Number("diversity.cases"),
    Number("diversity.alpha"),
    Number("diversity.*", kind="estimate"),
    Number("stopping.*"),
    Number("judges.**", kind="estimate"),
)


def _see(line: Mapping[str, Any]) -> Sighting | None:
    """An output that the selection leaves out is about no case."""
    if line["status"] == "skipped":
        return None
    case, repeat = line.get("id") or "", line.get("repeat")
    if line.get("passed") is None:
        return Sighting(case, repeat=repeat)
    plain = line.get("plain")
    values = (float(line["passed"]), float(line["score"]), None if plain is None else float(plain))
    took = line.get("took", {})
    return Sighting(case, values, repeat, line.get("kind"), tuple(took.get(name) for name in _TOOK))


def _collapsed(report: Mapping[str, Any]) -> list[str]:
    entries = report["results"].get("diversity", {}).get("by_case", ())
    return [entry["case"] for entry in entries if entry["verdict"] == "collapsed"]


def _collapse_p(report: Mapping[str, Any]) -> dict[str, float] | None:
    if "diversity" not in report["results"]:
        return None  # no answers are counted by kind
    entries = report["results"]["diversity"]["by_case"]
    return {each["case"]: each["p_collapsed"] for each in entries if each["p_collapsed"] is not None}


def _diverse(report: Mapping[str, Any]) -> list[str]:
    entries = report["results"].get("diversity", {}).get("by_case", ())
    return [entry["case"] for entry in entries if entry["verdict"] == "diverse"]


def _stopped(report: Mapping[str, Any]) -> list[str]:
    entries = report["results"]["by_case"]
    return [each["case"] for each in entries if "stop" in each and sum(each["outputs"].values()) < each["stop"]["of"]]


def _unrecorded(report: Mapping[str, Any]) -> list[str]:
    return [entry["case"] for entry in report["results"]["by_case"] if not sum(entry["outputs"].values())]


def _named(batch: Batch, params: ChecksParams) -> Iterator[str]:
    judge = judge_for(params)
    return filter(None, (judge.case(data) for _, data in batch.lines()))


def _judged(report: Mapping[str, Any]) -> Judged | None:
    """By which checks outputs are judged, how many labels these have, and who judged."""
    results = report["results"]
    if "plain" not in results:
        return None
    told = results["labels"]
    labels = {entry["check"]: _by_case(entry) for entry in told["checks"] if entry["decides"]}
    judges = [[each["judge"], each["configs"], each["prompts"]] for each in results.get("judges", ())]
    return Judged(labels, digest(canonical_json(judges)), _APART, _by_case(told["outputs"] or {}))


def _by_case(entry: Mapping[str, Any]) -> dict[str, tuple[int, int, int, int, int, int]]:
    return {case: tuple(counts) for case, *counts in entry.get("by_case", ())}


MEASURES = Measures(
    (Measure("pass_rate"), Measure("score", "score"), Measure("plain.pass_rate", optional=True)),
    _see,
    _collapsed,
    _stopped,
    _named,
    _judged,
    beside=("labels", "judges_decide"),
    collapse_p=_collapse_p,
    diverse=_diverse,
    took=_TOOK,
    numbers=_NUMBERS,
    unrecorded=_unrecorded,
)
