"""Goldens and a test run of DeepEval: `python deepeval_cases.py FOLDER`, in the environment of these tests."""

from __future__ import annotations

import sys

from deepeval import evaluate
from deepeval.dataset import EvaluationDataset, Golden
from deepeval.evaluate import AsyncConfig, DisplayConfig
from deepeval.metrics import ExactMatchMetric, PatternMatchMetric
from deepeval.test_case import LLMTestCase, ToolCall

GOLDENS = [
    Golden(
        input="Weather?",
        expected_output="Rain",
        actual_output="It rains.",
        retrieval_context=["a page"],
        expected_tools=[ToolCall(name="search", input_parameters={"q": "weather"})],
        tools_called=[ToolCall(name="search", input_parameters={"q": "weather"})],
        additional_metadata={"topic": "weather"},
    ),
    Golden(input="Capital?", expected_output="Paris", actual_output="It is Paris."),
]
ANSWERS = ("Paris", " Paris\n", "paris", "Paris.", "<b>Paris</b>", "\u00a0Paris", "P\u0301aris", "Paris\nParis")

dataset = EvaluationDataset(goldens=GOLDENS)
for form in ("json", "jsonl", "csv"):
    dataset.save_as(form, sys.argv[1], "goldens")
evaluate(
    [
        LLMTestCase(name=f"c{n}", input="Capital?", actual_output=a, expected_output="Paris")
        for n, a in enumerate(ANSWERS)
    ],
    [ExactMatchMetric(), PatternMatchMetric(pattern="P.*")],
    async_config=AsyncConfig(run_async=False),
    display_config=DisplayConfig(show_indicator=False, print_results=False),
)
