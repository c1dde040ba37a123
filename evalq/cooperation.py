"""The specification's own classes for cooperation metrics: see docs/reference/evaluators/cooperation.md."""

from evalq.evalcore.evaluators.cooperation import (
    CooperationEvaluator,
    EvaluationRules,
    MetricsResult,
)

__all__ = [
    "CooperationEvaluator",
    "EvaluationRules",
    "MetricsResult",
]
