"""What of a vs run two runs are compared by: whether a test of a case passes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from evalq.evalcore.contract.measures import Measure, Measures, Number, Sighting
from evalq.evalcore.evaluators.vs.options import normalize
from evalq.evalcore.evaluators.vs.params import VsParams
from evalq.evalcore.evaluators.vs.score import judge_for
from evalq.evalcore.records.batch import Batch

__all__ = ["MEASURES"]


def _see(line: Mapping[str, Any]) -> Sighting | None:
    """An output that the golden set does not ask for is about no case."""
    status, option, repeat = line["status"], line.get("option"), line.get("repeat")
    if status == "SKIPPED":
        return None
    case = line.get("case") or ""
    if status not in ("PASSED", "FAILED"):
        return Sighting(case, repeat=repeat)
    return Sighting(case, (float(status == "PASSED"),), repeat, None if option is None else normalize(option))


def _collapsed(report: Mapping[str, Any]) -> list[str]:
    return [entry["case"] for entry in report["results"]["mode_collapse"] if entry["verdict"] == "collapsed"]


def _collapse_p(report: Mapping[str, Any]) -> dict[str, float]:
    entries = report["results"]["mode_collapse"]
    return {each["case"]: each["p_collapsed"] for each in entries if each["p_collapsed"] is not None}


def _diverse(report: Mapping[str, Any]) -> list[str]:
    entries = report["results"]["mode_collapse"]
    # By either count: one option in two spellings looks diverse, and is not.
    return [each["case"] for each in entries if {each["verdict"], each["fuzzy"]["verdict"]} <= {"diverse", None}]


def _stopped(report: Mapping[str, Any]) -> list[str]:
    entries = report["results"]["mode_collapse"]
    return [each["case"] for each in entries if "stop" in each and each["runs"]["total"] < each["stop"]["of"]]


def _unrecorded(report: Mapping[str, Any]) -> list[str]:
    return [entry["case"] for entry in report["results"]["mode_collapse"] if not entry["runs"]["total"]]


def _named(batch: Batch, params: VsParams) -> Iterator[str]:
    judge = judge_for(params)
    return filter(None, (judge.case(data) for _, data in batch.lines()))


_LEVEL = "test_run.summary.*."
_NUMBERS = (
    Number("test_run.passed", "higher"),
    Number("test_run.failed", "lower"),
    Number("test_run.errors", "lower", holds_missing=True),
    Number("test_run.total_tests"),
    Number(_LEVEL + "agents_tested"),
    Number(_LEVEL + "pass_rate", "higher", "estimate"),
    Number(_LEVEL + "phase_completion", "higher", "estimate"),
    Number(_LEVEL + "avg_t_score_diversity", "higher", "estimate"),
    Number(_LEVEL + "avg_self_critique_quality", "higher", "estimate"),
    Number("cases.answered", "higher"),
    Number("cases.unrecorded", "lower", holds_missing=True),
    Number("cases.*"),
    Number("diversity", "higher", "estimate"),
    Number("collapse_nowhere.p", kind="estimate"),
    Number("collapse_nowhere.together", kind="estimate"),
    Number("collapse_nowhere.*"),
    Number("collapse_specified.*"),
    Number("stopping.*"),
)


MEASURES = Measures(
    (Measure("pass_rate"),),
    _see,
    _collapsed,
    _stopped,
    _named,
    collapse_p=_collapse_p,
    diverse=_diverse,
    numbers=_NUMBERS,
    unrecorded=_unrecorded,
)
