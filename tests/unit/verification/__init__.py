"""The verification evaluator."""
