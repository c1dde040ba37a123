"""Cooperation metrics of simulation logs: cooperation rate, contributions, recovery, Gini, entropy."""

from evalq.evalcore.evaluators.cooperation.api import CooperationEvaluator, EvaluationRules
from evalq.evalcore.evaluators.cooperation.evaluator import Cooperation, evaluator
from evalq.evalcore.evaluators.cooperation.params import CooperationParams, Rules
from evalq.evalcore.evaluators.cooperation.section import MetricsResult

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
