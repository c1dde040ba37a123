"""Scores of lm-evaluation-harness on listed answers: `python lm_eval_scores.py FOLDER`, with its tasks beside."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import lm_eval
from lm_eval.api.model import LM
from lm_eval.loggers import EvaluationTracker
from lm_eval.tasks import TaskManager

ANSWERS = json.loads((Path(sys.argv[1]) / "outputs.json").read_text())


class Listed(LM):  # type: ignore[misc]  # of a package that is not in this environment
    """Answers to question N with the Nth."""

    def loglikelihood(self, requests: list[Any]) -> list[tuple[float, bool]]:
        return [(-1.0, True) for _ in requests]

    def loglikelihood_rolling(self, requests: list[Any]) -> list[float]:
        return [-1.0 for _ in requests]

    def generate_until(self, requests: list[Any]) -> list[str]:
        return [ANSWERS[int(each.args[0])] for each in requests]


tracker = EvaluationTracker(output_path=sys.argv[1])
tasks = ["number", "word"]
manager = TaskManager(include_path=sys.argv[1], include_defaults=False)
results = lm_eval.simple_evaluate(
    model=Listed(),
    tasks=tasks,
    task_manager=manager,
    log_samples=True,
    bootstrap_iters=0,
    evaluation_tracker=tracker,
)
samples = results.pop("samples")
tracker.save_results_aggregated(results=results, samples=samples)
for task in tasks:
    tracker.save_results_samples(task_name=task, samples=samples[task])
