"""Transcripts scored by DeepEval's runner with a metric of its user's own, the specification's patterns one by one.

`python -m tests.bench.rivals.deepeval_verification TEXTS`, a JSON array, prints how many passed.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from deepeval import evaluate
from deepeval.evaluate import DisplayConfig
from deepeval.metrics import BaseMetric
from deepeval.test_case import LLMTestCase

from tests.unit.verification import oracle


class Verified(BaseMetric):  # type: ignore[misc]  # deepeval has no types
    """As a user of DeepEval would write it."""

    threshold = 0.9
    async_mode = True

    def measure(self, test_case: LLMTestCase, *_: Any, **__: Any) -> float:
        """The score of one transcript."""
        self.score = oracle.score(str(test_case.actual_output))
        self.success = self.score >= self.threshold
        return self.score

    async def a_measure(self, test_case: LLMTestCase, *_: Any, **__: Any) -> float:
        """The same: there is nothing to wait for."""
        return self.measure(test_case)

    def is_successful(self) -> bool:
        """Whether it reached the threshold."""
        return bool(self.success)

    @property
    def __name__(self) -> str:  # as DeepEval asks for it
        return "Verified"


def main() -> None:
    """Score all of a file."""
    texts = json.loads(Path(sys.argv[1]).read_text())
    cases = [LLMTestCase(input="", actual_output=text) for text in texts]
    found = evaluate(cases, [Verified()], display_config=DisplayConfig(show_indicator=False, print_results=False))
    sys.stderr.write(f"passed={sum(bool(result.success) for result in found.test_results)}\n")


if __name__ == "__main__":
    main()
