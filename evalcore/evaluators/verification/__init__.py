"""Verification compliance: does an agent's output show that it verified what it did?"""

from evalq.evalcore.evaluators.verification.evaluator import Verification, evaluator
from evalq.evalcore.evaluators.verification.params import VerificationParams
from evalq.evalcore.evaluators.verification.patterns import DEFAULT, HARDENED, Patterns
from evalq.evalcore.evaluators.verification.score import Components, VerificationScore, score_verification

__all__ = [
    "DEFAULT",
    "HARDENED",
    "Components",
    "Patterns",
    "Verification",
    "VerificationParams",
    "VerificationScore",
    "evaluator",
    "score_verification",
]
