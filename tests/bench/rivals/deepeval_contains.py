"""Texts tested by DeepEval's runner: `python deepeval_contains.py TEXTS`, a JSON array, prints how many passed."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from deepeval import evaluate
from deepeval.evaluate import DisplayConfig
from deepeval.metrics import PatternMatchMetric
from deepeval.test_case import LLMTestCase

found = evaluate(
    [LLMTestCase(input="Capital?", actual_output=text) for text in json.loads(Path(sys.argv[1]).read_text())],
    [PatternMatchMetric(pattern="(?s).*Paris.*")],
    display_config=DisplayConfig(show_indicator=False, print_results=False),
)
sys.stderr.write(f"passed={sum(bool(result.success) for result in found.test_results)}\n")
