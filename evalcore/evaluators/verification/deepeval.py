"""The score as metrics of DeepEval, for its `evaluate` and `assert_test`. Needs the extra ``evalq[deepeval]``."""

from __future__ import annotations

from typing import Any

from evalq.evalcore.evaluators.verification.patterns import Patterns
from evalq.evalcore.evaluators.verification.score import COMPONENTS, score_verification

try:
    from deepeval.metrics import BaseMetric
    from deepeval.test_case import LLMTestCase
except ImportError as error:
    raise ImportError(
        "the DeepEval metrics need the package deepeval: pip install 'evalq[deepeval]'", name="deepeval"
    ) from error


class VerificationComplianceMetric(BaseMetric):  # type: ignore[misc]  # deepeval has no types of its own
    """How well a test case's ``actual_output`` shows that its agent verified what it did.

    After `measure`: ``score`` in [0, 1], ``reason``, ``success`` (score >= ``threshold``), ``score_breakdown`` by
    component. It calls no model and sends nothing.
    """

    strict_mode = False
    async_mode = True
    include_reason = True
    evaluation_model = None
    evaluation_cost = 0.0

    def __init__(self, threshold: float = 0.9, patterns: str | Patterns = "default") -> None:
        self.threshold = threshold
        self.patterns = patterns

    def measure(self, test_case: LLMTestCase, *args: Any, **kwargs: Any) -> float:
        """The score of ``test_case.actual_output``. Raises ValueError if there is none."""
        text = test_case.actual_output
        if not isinstance(text, str):
            raise ValueError(f"{self.__name__} needs a test case with an actual_output")
        result = score_verification(text, strict=self.strict_mode, patterns=self.patterns, threshold=self.threshold)
        self.score = result.score
        self.reason = result.reason
        self.success = result.success
        self.score_breakdown = {name: getattr(result.components, name) for name in COMPONENTS}
        return result.score

    async def a_measure(self, test_case: LLMTestCase, *args: Any, **kwargs: Any) -> float:
        """As `measure`; nothing in it is asynchronous."""
        return self.measure(test_case)

    def is_successful(self) -> bool:
        """Whether the last test case reached the threshold; False before the first one, and after an error."""
        return self.error is None and bool(self.success)

    @property
    def __name__(self) -> str:
        """The name DeepEval shows."""
        return "Verification Compliance"


class StrictVerificationComplianceMetric(VerificationComplianceMetric):
    """The same, with a score of 0 for any unsubstantiated claim; the threshold is always 1."""

    strict_mode = True

    def __init__(self, threshold: float = 1.0, patterns: str | Patterns = "default") -> None:
        # DeepEval copies a metric by calling its class with the base class's arguments.
        super().__init__(threshold=1.0, patterns=patterns)

    @property
    def __name__(self) -> str:
        """The name DeepEval shows."""
        return "Strict Verification Compliance"
