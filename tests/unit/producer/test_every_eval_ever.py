"""-o every-eval-ever.json: what the shared schema requires, with this run's numbers."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from evalq.evalcore.contract import plugins
from evalq.evalcore.errors import UsageError
from evalq.producer.cli import main
from evalq.producer.folder.job import Job, RunOptions
from evalq.producer.outputs.requested import NAMED, write_output
from evalq.producer.run.backend import Backend
from evalq.producer.run.execute import carry_out
from evalq.workers.settings import Settings
from tests.samples import sampled
from tests.unit.producer.quiet import QUIET

REQUIRED = {
    "": (
        *("schema_version", "evaluation_id", "retrieved_timestamp", "source_metadata"),
        *("model_info", "eval_library", "evaluation_results"),
    ),
    "source_metadata": ("source_type", "source_organization_name", "evaluator_relationship"),
    "eval_library": ("name", "version"),
    "model_info": ("name", "id"),
    "evaluation_results": ("evaluation_name", "source_data", "metric_config", "score_details"),
}
"""The keys that version 0.2.1 of the schema requires."""


def test_a_run_is_written_in_the_shared_schema(tmp_path: Path) -> None:
    """Every required key, enumerations as they are there, numbers as in the report."""
    cases, outputs = tmp_path / "cases.yaml", tmp_path / "outputs.jsonl"
    cases.write_text("cases: [{id: a, checks: [{contains: x}]}, {id: b, checks: [{contains: y}]}]\n")
    outputs.write_text('{"case": "a", "output": "x"}\n{"case": "b", "output": "no"}\n')
    path = tmp_path / "week.every-eval-ever.json"
    command = ["checks", str(cases), "--outputs", str(outputs), "--inline", "--out", str(tmp_path / "run")]
    assert main([*command, "-o", str(path), "-o", str(tmp_path / "plain.json")]) == 0
    record = json.loads(path.read_text())
    for key, required in REQUIRED.items():
        held = record[key] if key else record
        for each in held if isinstance(held, list) else [held]:
            assert set(required) <= set(each), key
    assert record["source_metadata"]["source_type"] == "evaluation_run"
    assert record["source_metadata"]["evaluator_relationship"] == "other"
    (rate,) = record["evaluation_results"]
    results = json.loads((tmp_path / "plain.json").read_text())["results"]
    assert rate["score_details"]["score"] == results["pass_rate"] == 0.5
    interval = rate["score_details"]["uncertainty"]["confidence_interval"]
    assert (interval["lower"], interval["upper"]) == tuple(
        results["pass_rate_interval"][each] for each in ("low", "high")
    )
    assert rate["metric_config"] | {"evaluation_description": ""} == {
        "evaluation_description": "",
        "lower_is_better": False,
        "score_type": "continuous",
        "min_score": 0,
        "max_score": 1,
    }
    assert rate["source_data"]["source_type"] == "other"


def test_a_run_without_a_rate_says_so(tmp_path: Path) -> None:
    """Instead of a record without evaluations; named as it was asked for, with where the run is."""
    assert list(NAMED) == ["every-eval-ever.json"]
    evaluator = plugins.get("planagent")
    job = Job.start(evaluator, sampled("planagent", tmp_path, 20), RunOptions(out=tmp_path / "run"))
    carry_out(job, Backend(Settings(), inline=True), QUIET)
    with pytest.raises(UsageError, match=r"^-o .*ever\.json: planagent has no rate .*/run\)$"):
        write_output(tmp_path / "every-eval-ever.json", job.folder, evaluator, {})
    assert not (tmp_path / "every-eval-ever.json").exists()
