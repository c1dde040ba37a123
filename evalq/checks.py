"""What a check of a team's own is made of: see docs/reference/evaluators/checks.md."""

from evalq.evalcore.evaluators.checks import Answer, BadCheck, Finding, Kind, Made, ToolCall, Uncomputable, Usage

__all__ = [
    "Answer",
    "BadCheck",
    "Finding",
    "Kind",
    "Made",
    "ToolCall",
    "Uncomputable",
    "Usage",
]
