"""Self check after the work: four questions, danger signals, and the goal-backward check.

Names are the specification's, in Python's spelling; `check` is synchronous, `acheck` asynchronous. Keys of evidence and
results are the specification's camelCase, in JSON and as attributes.
"""

from evalq.evalcore.evaluators.selfcheck.evaluator import SelfCheck, evaluator
from evalq.evalcore.evaluators.selfcheck.evidence import Evidence, GoalBackwardResult, GoalPath
from evalq.evalcore.evaluators.selfcheck.goals import resolve_goals
from evalq.evalcore.evaluators.selfcheck.params import SelfCheckParams
from evalq.evalcore.evaluators.selfcheck.questions import (
    CALIBRATED_DANGER_SIGNALS,
    DANGER_SIGNALS,
    EXTENDED_DANGER_SIGNALS,
    SELF_CHECK_QUESTIONS,
    DangerSignal,
    SelfCheckQuestion,
)
from evalq.evalcore.evaluators.selfcheck.score import (
    SelfCheckProtocol,
    SelfCheckResult,
    create_default_self_check_protocol,
    create_self_check_protocol,
)

__all__ = [
    "CALIBRATED_DANGER_SIGNALS",
    "DANGER_SIGNALS",
    "EXTENDED_DANGER_SIGNALS",
    "SELF_CHECK_QUESTIONS",
    "DangerSignal",
    "Evidence",
    "GoalBackwardResult",
    "GoalPath",
    "SelfCheck",
    "SelfCheckParams",
    "SelfCheckProtocol",
    "SelfCheckQuestion",
    "SelfCheckResult",
    "create_default_self_check_protocol",
    "create_self_check_protocol",
    "evaluator",
    "resolve_goals",
]
