"""The metrics for DeepEval, under a short name: see `evalcore.evaluators.verification.deepeval`."""

from evalcore.evaluators.verification.deepeval import StrictVerificationComplianceMetric, VerificationComplianceMetric

__all__ = ["StrictVerificationComplianceMetric", "VerificationComplianceMetric"]
