"""Verification compliance (seed 004): does an agent's output show that it verified what it did?"""

from evalcore.evaluators.verification.evaluator import Verification, evaluator
from evalcore.evaluators.verification.params import VerificationParams
from evalcore.evaluators.verification.patterns import DEFAULT, HARDENED
from evalcore.evaluators.verification.rules import Patterns
from evalcore.evaluators.verification.score import Components, VerificationScore, score_verification

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
