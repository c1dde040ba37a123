"""Results and samples of lm-evaluation-harness, of a model that answers from a list: `python run.py FOLDER`."""

from __future__ import annotations

import sys
from itertools import cycle
from typing import Any

import lm_eval
from lm_eval.api.model import LM
from lm_eval.loggers import EvaluationTracker
from lm_eval.tasks import TaskManager

ANSWERS = (
    "The answer is 2.",
    "the answer is 4",
    "2",
    " 2",
    "First 3, no: 4",
    "The answer is 3. The answer is 2.",
    "",
    "answer is -2",
    "It is FOUR",
    "it was  four!",
    "<b>2</b>",
    "\u0662 and 2",
    "answer is\u00a02",
)


class Listed(LM):  # type: ignore[misc]  # of a package that is not in this environment
    """Answers from the list, in its order."""

    def __init__(self) -> None:
        super().__init__()
        self._answers = cycle(ANSWERS)

    def loglikelihood(self, requests: list[Any]) -> list[tuple[float, bool]]:
        return [(-float(len(each.args[1])), True) for each in requests]

    def loglikelihood_rolling(self, requests: list[Any]) -> list[float]:
        return [-1.0 for _ in requests]

    def generate_until(self, requests: list[Any]) -> list[str]:
        return [next(self._answers) for _ in requests]


tracker = EvaluationTracker(output_path=sys.argv[1])
results = lm_eval.simple_evaluate(
    model=Listed(),
    tasks=["sums", "plain", "choices"],
    task_manager=TaskManager(include_path="tasks", include_defaults=False),
    log_samples=True,
    bootstrap_iters=0,
    evaluation_tracker=tracker,
)
samples = results.pop("samples")
tracker.save_results_aggregated(results=results, samples=samples)
for task in results["configs"]:
    tracker.save_results_samples(task_name=task, samples=samples[task])
