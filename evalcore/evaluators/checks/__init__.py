"""Checks: any agent's outputs against a list of cases, each with the checks that its answers have to pass."""

from evalq.evalcore.evaluators.checks.answer import CheckedAnswer, ToolCall, Uncomputable, Usage
from evalq.evalcore.evaluators.checks.cases import load_cases
from evalq.evalcore.evaluators.checks.evaluator import ChecksEvaluator, evaluator
from evalq.evalcore.evaluators.checks.params import ChecksParams
from evalq.evalcore.evaluators.checks.state import ChecksState
from evalq.evalcore.evaluators.checks.vocabulary.declaring import BadCheck, Finding, Kind, Made
from evalq.evalcore.evaluators.checks.vocabulary.registry import VOCABULARY

__all__ = [
    "VOCABULARY",
    "BadCheck",
    "CheckedAnswer",
    "ChecksEvaluator",
    "ChecksParams",
    "ChecksState",
    "Finding",
    "Kind",
    "Made",
    "ToolCall",
    "Uncomputable",
    "Usage",
    "evaluator",
    "load_cases",
]
