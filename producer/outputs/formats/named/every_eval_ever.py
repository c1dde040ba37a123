"""Every Eval Ever: a run's aggregate record in the shared schema of the EvalEval Coalition, version 0.2.1.

Source: eval.schema.json of https://github.com/evaleval/every_eval_ever. A run has one evaluation for each
rate over all its outputs, with its interval.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import datetime
from pathlib import Path
from typing import Any

from evalq.evalcore.compare.run import RunCases
from evalq.evalcore.contract.evaluator import Evaluator
from evalq.evalcore.errors import UsageError
from evalq.evalcore.files import write_atomic
from evalq.evalcore.model.canonical import Json, canonical_line
from evalq.evalcore.version import __version__
from evalq.producer.folder.run_folder import RunFolder
from evalq.producer.outputs.cases import cases_of
from evalq.producer.outputs.rates import rates_of

__all__ = ["SCHEMA_VERSION", "write"]

SCHEMA_VERSION = "0.2.1"
_LEVEL = 0.95


def write(path: Path, folder: RunFolder, evaluator: Evaluator[Any, Any], options: Mapping[str, Any]) -> None:
    """The record of a finished run. Raises UsageError for one that has no rate."""
    write_atomic(path, canonical_line(_record(path, folder, evaluator, cases_of(folder))))


def _record(path: Path, folder: RunFolder, evaluator: Evaluator[Any, Any], run: RunCases) -> dict[str, Json]:
    info, report = folder.info(), folder.report()
    model = run.target or "recorded outputs"
    ended = str(int(datetime.fromisoformat(info.started).timestamp()))
    name = run.suite if run.suite not in ("", "default") else evaluator.name
    results = list(_results(name, evaluator, report, run))
    if not results:
        raise UsageError(
            f"-o {path}: {evaluator.name} has no rate over its outputs, and such a file holds nothing else: write "
            f"another format (the run is whole, in {folder.named()})"
        )
    return {
        "schema_version": SCHEMA_VERSION,
        "evaluation_id": f"{name}/{model}/{ended}",
        "evaluation_timestamp": info.started,
        "retrieved_timestamp": ended,
        "source_metadata": {
            "source_name": "evalq",
            "source_type": "evaluation_run",
            # Who ran it is not for evalq to say: whoever hands the record in writes that there.
            "source_organization_name": "unknown",
            "evaluator_relationship": "other",
            "additional_details": {"run": info.run, "report_sha256": run.report},
        },
        "eval_library": {"name": "evalq", "version": __version__},
        "model_info": {"name": model, "id": model},
        "evaluation_results": results,
    }


def _results(
    name: str, evaluator: Evaluator[Any, Any], report: Mapping[str, Any], run: RunCases
) -> Iterator[dict[str, Json]]:
    results = report["results"]
    source = {
        "dataset_name": name,
        "source_type": "other",
        "additional_details": {"specification_sha256": run.specification},
    }
    for key, value in rates_of(report).items():
        yield {
            "evaluation_name": f"{evaluator.name}.{key}",
            "source_data": source,
            "metric_config": {
                "evaluation_description": key.replace("_", " "),
                "lower_is_better": "error" in key or "fail" in key,
                "score_type": "continuous",
                "min_score": 0,
                "max_score": 1,
            },
            "score_details": _score(value, results.get(f"{key}_interval"), run),
        }


def _score(value: float, interval: Any, run: RunCases) -> dict[str, Json]:
    uncertainty: dict[str, Json] = {"num_samples": run.records.get("scored", 0)}
    if isinstance(interval, dict) and None not in (interval.get("low"), interval.get("high")):
        uncertainty["confidence_interval"] = {
            "lower": interval["low"],
            "upper": interval["high"],
            "confidence_level": _LEVEL,
            "method": "evalq",
        }
    return {"score": value, "uncertainty": uncertainty}
