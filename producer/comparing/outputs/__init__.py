"""The files that -o asks for of a decision or a comparison: for machines that read them, for pages that show them."""

from evalq.producer.comparing.outputs.outcome import ComparedRuns
from evalq.producer.comparing.outputs.stale import Deciding, withdrawn
from evalq.producer.comparing.outputs.write import (
    check_decision_output,
    check_decision_outputs,
    errors_written,
    write_comparison,
    write_decision,
)

__all__ = [
    "ComparedRuns",
    "Deciding",
    "check_decision_output",
    "check_decision_outputs",
    "errors_written",
    "withdrawn",
    "write_comparison",
    "write_decision",
]
