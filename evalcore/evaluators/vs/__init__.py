"""VS behaviour: agents' outputs against a golden set of verbalized-sampling cases, and mode collapse over repeats.

The validators and `detect_mode_collapse` take plain dicts and can be used alone; evalq runs `evaluator`.
"""

from evalq.evalcore.evaluators.vs.collapse import ModeCollapseReport, detect_mode_collapse
from evalq.evalcore.evaluators.vs.evaluator import VsEvaluator, evaluator
from evalq.evalcore.evaluators.vs.golden import load_golden
from evalq.evalcore.evaluators.vs.params import VsParams
from evalq.evalcore.evaluators.vs.report import VsState
from evalq.evalcore.evaluators.vs.validators import (
    ContractFault,
    ValidationResult,
    contract_faults,
    validate_provenance,
    validate_self_critique,
    validate_t_score_distribution,
    validate_vs_phases,
)
from evalq.evalcore.evaluators.vs.views import results_document

__all__ = [
    "ContractFault",
    "ModeCollapseReport",
    "ValidationResult",
    "VsEvaluator",
    "VsParams",
    "VsState",
    "contract_faults",
    "detect_mode_collapse",
    "evaluator",
    "load_golden",
    "results_document",
    "validate_provenance",
    "validate_self_critique",
    "validate_t_score_distribution",
    "validate_vs_phases",
]
