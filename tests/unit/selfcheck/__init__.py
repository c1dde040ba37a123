"""The self check evaluator."""
