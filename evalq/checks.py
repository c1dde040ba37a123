"""What a check of a team's own is made of: see docs/reference/evaluators/checks.md."""

from evalq.evalcore.evaluators.checks import BadCheck, CheckedAnswer, Finding, Kind, Made, ToolCall, Uncomputable, Usage

__all__ = [
    "BadCheck",
    "CheckedAnswer",
    "Finding",
    "Kind",
    "Made",
    "ToolCall",
    "Uncomputable",
    "Usage",
]
