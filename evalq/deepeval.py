"""The metrics for DeepEval, under a short name: see `evalq.evalcore.evaluators.verification.deepeval`."""

from evalq.evalcore.evaluators.verification.deepeval import (
    StrictVerificationComplianceMetric,
    VerificationComplianceMetric,
)

__all__ = ["StrictVerificationComplianceMetric", "VerificationComplianceMetric"]
