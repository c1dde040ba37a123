"""Scores of DeepEval on listed answers: `python deepeval_scores.py FOLDER EXPECTED`, in that folder."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from deepeval import evaluate
from deepeval.evaluate import AsyncConfig, DisplayConfig, ErrorConfig
from deepeval.metrics import ExactMatchMetric
from deepeval.test_case import LLMTestCase

FOLDER = Path(sys.argv[1])
ANSWERS = json.loads((FOLDER / "outputs.json").read_text())
AT_ONCE = 50
"""DeepEval writes all of a test run anew after each case."""

for start in range(0, len(ANSWERS), AT_ONCE):
    evaluate(
        [
            LLMTestCase(name=f"c{n}", input=f"Question {n}?", actual_output=ANSWERS[n], expected_output=sys.argv[2])
            for n in range(start, min(start + AT_ONCE, len(ANSWERS)))
        ],
        [ExactMatchMetric()],
        async_config=AsyncConfig(run_async=False),
        display_config=DisplayConfig(show_indicator=False, print_results=False),
        # It takes no answer that is empty.
        error_config=ErrorConfig(skip_on_missing_params=True),
    )
    (FOLDER / ".deepeval" / ".latest_test_run.json").rename(FOLDER / f"run-{start:04}.json")
