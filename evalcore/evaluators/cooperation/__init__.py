"""Cooperation metrics of simulation logs (seed 001): cooperation rate, contributions, recovery, Gini, entropy."""

from evalcore.evaluators.cooperation.api import CooperationEvaluator, EvaluationRules
from evalcore.evaluators.cooperation.evaluator import Cooperation, evaluator
from evalcore.evaluators.cooperation.metrics import MetricsResult
from evalcore.evaluators.cooperation.params import CooperationParams, Rules

Evaluator = CooperationEvaluator
"""The seed's own name for it."""

__all__ = [
    "Cooperation",
    "CooperationEvaluator",
    "CooperationParams",
    "EvaluationRules",
    "Evaluator",
    "MetricsResult",
    "Rules",
    "evaluator",
]
