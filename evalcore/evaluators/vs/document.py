"""The specification's result document: `test_run` with its timestamp, in the order that it is specified in."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from evalq.evalcore.model.canonical import Json

__all__ = ["results_document"]

_RUN = ("total_tests", "passed", "failed", "errors", "summary", "detailed_results")
_LEVEL = ("agents_tested", "pass_rate", "avg_t_score_diversity", "phase_completion", "avg_self_critique_quality")
_DETAIL = ("test_id", "agent", "status", "passes", "of", "metrics", "issue", "remediation")
_METRICS = ("vs_phase_score", "t_score_diversity", "self_critique_quality", "provenance_completeness")


def results_document(report: Mapping[str, Json], timestamp: str) -> dict[str, Json]:
    """What results.yaml holds and `--format json` shows: ``test_run``; next to it the other results, and the run's
    inputs, counts and faults.

    ``timestamp`` is ISO 8601. Levels come in the order of the params, full before enhanced before light.
    """
    results = report["results"]
    run = results["test_run"]
    levels = [f"{level['name'].lower()}_vs" for level in report["params"]["levels"]]
    summary = {key: _in_order(run["summary"][key], (*_LEVEL, "issues")) for key in levels}
    details = [
        _in_order({**detail, "metrics": _in_order(detail["metrics"], _METRICS)}, _DETAIL)
        for detail in run["detailed_results"]
    ]
    ordered = _in_order({**run, "summary": summary, "detailed_results": details}, _RUN)
    others = {key: value for key, value in results.items() if key != "test_run"}
    of_run = {key: report[key] for key in ("inputs", "records", "faults")}
    return {"test_run": {"timestamp": timestamp, **ordered}, **others, **of_run}


def _in_order(mapping: Mapping[str, Json], keys: Sequence[str]) -> dict[str, Json]:
    """Canonical JSON has sorted keys; people read a document in the order it was specified in."""
    return {key: mapping[key] for key in keys if key in mapping}
