"""The contract of evaluators, and their common parts: params, measures, partial answers, the registry."""
