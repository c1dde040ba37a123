"""A plan agent's answers scored row by row: intent, accuracy, consistency, response time and stability, 0 to 5."""

from evalq.evalcore.evaluators.planagent.evaluator import PlanAgent, evaluator
from evalq.evalcore.evaluators.planagent.judging import judge_prompt
from evalq.evalcore.evaluators.planagent.params import PlanParams, Rules
from evalq.evalcore.evaluators.planagent.report import PlanState
from evalq.evalcore.evaluators.planagent.sample import write_rows
from evalq.evalcore.evaluators.planagent.score import PlanCheck

__all__ = ["PlanAgent", "PlanCheck", "PlanParams", "PlanState", "Rules", "evaluator", "judge_prompt", "write_rows"]
