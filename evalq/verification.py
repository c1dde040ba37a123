"""The score of one transcript: see docs/reference/evaluators/verification.md."""

from evalq.evalcore.evaluators.verification import (
    VerificationScore,
    score_verification,
)

__all__ = [
    "VerificationScore",
    "score_verification",
]
